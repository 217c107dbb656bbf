/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The nodes of a cluster: where each is, what is wanted of it, what it last told, and until when it may run machines.
 *
 * A node is called by its name, in rows of sandboxes (sandbox.node), too. Two nodes never share a name: the id is the
 * node's own (GET /v1/node), and a second one that comes with a known name is refused.
 *
 * Leases. until_ms is by the database's clock: a renewal puts it lease_ms into the future, and db_node_lose() takes a
 * node whose time is over, once: its generation moves on, it is lost, and whatever somebody still asks in the
 * name of the generation before is -ESTALE. It stays lost until db_node_back(). How the node's own clock fits to this is in
 * model/lease.h. A node that is not leased is the control plane's own machine: nothing of it is ever taken elsewhere.
 */
#pragma once

#include "database/database.h"

#define NODE_ID_SIZE 64
#define NODE_ADDRESS_SIZE 256
/* What a node tells of itself, as JSON text: capabilities, shapes with base machines, templates, stock. */
#define NODE_TOLD_MAX (64u << 10)

enum node_wanted {
    NODE_READY,    /* new sandboxes may come */
    NODE_CORDONED, /* none may come, those that are there stay */
    NODE_DRAINING, /* those that are there go elsewhere */
    NODE_REMOVED,  /* it is to be forgotten; nothing is asked of it any more */
    NODE_WANTED_COUNT_,
};
const char *node_wanted_name(enum node_wanted wanted);
bool node_wanted_parse(const char *name, enum node_wanted *ret);

/* What a scheduler counts with; 0: it did not say. */
struct node_capacity {
    int64_t vcpus;
    int64_t memory_mib;
    int64_t memory_free_mib;
    int64_t pool_bytes;
    int64_t pool_free_bytes;
    int64_t sandboxes; /* it has, whatever their states */
    int64_t warm;      /* machines in stock */
};

struct node_row {
    char name[SANDBOX_NODE_SIZE];
    char id[NODE_ID_SIZE];           /* "": it has not said yet */
    char address[NODE_ADDRESS_SIZE]; /* "unix:/path" or "https://host:port" */
    enum node_wanted wanted;
    bool leased;
    bool lost;
    int64_t generation;
    int64_t
        left_ms; /* out: of its lease, by the database's clock; not above 0: over, or none was given */
    int64_t renewals; /* grows with each; tells two leases of one length apart */
    int64_t joined_at_ms;
    int64_t told_ago_ms; /* out: since it last told, by the database's clock; -1: never */
    struct node_capacity capacity;
    char *told; /* owned; JSON object; "" or NULL: nothing yet */
};
void node_row_done(struct node_row *row);
#define cleanup_node_row CLEANUP(node_row_done)
/* One that is not leased is silent when it told nothing for so long. */
#define NODE_SILENT_MS 60000
enum node_health {
    NODE_NEW,    /* it has never told anything */
    NODE_ALIVE,  /* its lease goes on */
    NODE_SILENT, /* it does not; somebody will renew it, or say that it is lost */
    NODE_LOST,   /* given up: what it had stored goes on elsewhere */
    NODE_HEALTH_COUNT_,
};
enum node_health node_row_health(const struct node_row *row);
const char *node_health_name(enum node_health health);
/* May a new sandbox be placed on it? */
bool node_row_takes(const struct node_row *row);

/*
 * Writes a node that is new, or the address, the id and whether it is leased of one that is known. -EEXIST "node_exists": the
 * name is another one's (both ids are known, and they differ).
 */
MUST_CHECK int db_node_put(struct db *db, const struct node_row *row, struct err *e);
/* -ENOENT "node_not_found". The caller ends *ret with node_row_done(). */
MUST_CHECK int db_node_get(struct db *db, const char *name, struct node_row *ret, struct err *e);
typedef int db_node_fn(void *ctx, const struct node_row *row);
/* By name. each as in db_sandbox_list(). */
MUST_CHECK int db_node_list(struct db *db, db_node_fn *each, void *ctx, struct err *e);
/* -ENOENT "node_not_found". */
MUST_CHECK int db_node_want(struct db *db, const char *name, enum node_wanted wanted,
                            struct err *e);
/* Forgets it. -EBUSY "node_not_empty": rows of sandboxes name it; -ENOENT "node_not_found". */
MUST_CHECK int db_node_delete(struct db *db, const char *name, struct err *e);
/* How many sandboxes rows name it for. */
MUST_CHECK int db_node_count_sandboxes(struct db *db, const char *name, int64_t *ret,
                                       struct err *e);

/*
 * It has just told this, and lives for another lease_ms (0: it is not leased). row: name, generation, id, capacity and told.
 * -ESTALE "generation_over": it is lost or has another generation now; nothing was written but what it told.
 */
MUST_CHECK int db_node_renew(struct db *db, const struct node_row *row, int64_t lease_ms,
                             struct err *e);
/*
 * 1: the lease of this node was over and had not been renewed since renewals was read; it is lost, *ret_generation is the new
 * one. 0: it was not, somebody else took it, or it is not leased.
 */
MUST_CHECK int db_node_lose(struct db *db, const char *name, int64_t renewals,
                            int64_t *ret_generation, struct err *e);
/*
 * What it left behind is clean: it may be given leases again, and what is still its own stays so: the generation of all
 * sandboxes whose rows name it grows, so that who was about to take one of them elsewhere has decided on an old one
 * (-ESTALE). A gateway that takes sandboxes away reads the sandbox's row first, then this one's. -ESTALE "generation_over".
 */
MUST_CHECK int db_node_back(struct db *db, const char *name, int64_t generation, struct err *e);

/* --- tokens to join with; only their hashes are kept --- */

#define NODE_TOKEN_HASH_SIZE 65

/* Good for lives_ms by the database's clock. Those that are over are forgotten on the way. */
MUST_CHECK int db_node_token_add(struct db *db, const char *hash, int64_t lives_ms, struct err *e);
/* Uses it up. -EACCES "token_refused": there is none, it was used, or its time is over; the same words for all. */
MUST_CHECK int db_node_token_use(struct db *db, const char *hash, struct err *e);
