/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The nodes of this gateway: a client to each by its name, and what was last heard of each, for the scheduler. What is in
 * the database of them is read now and then (fleet_refresh()), never on the way of a request; between two readings what is
 * placed here is counted here.
 *
 * Clients live as long as the fleet, so that nobody has to count who uses one: a node that went or has another address
 * leaves its old client behind, asleep. There are few of these.
 *
 * Threads: every function from any thread; one lock, nothing blocking under it.
 */
#pragma once

#include "control/node-client.h"
#include "control/schedule.h"

struct fleet;
struct db;

/* The node that this gateway has always had: "local" on one machine. url NULL: there is none, all are in the database. */
struct fleet_opts {
    const char *home;     /* borrowed for the call: its name */
    const char *url;      /* borrowed for the call */
    struct http_tls *tls; /* borrowed: lives longer; for https:, NULL: there are none such */
};
MUST_CHECK int fleet_new(const struct fleet_opts *opts, struct fleet **ret, struct err *e);
void fleet_free(struct fleet *f);
DEFINE_CLEANUP(struct fleet *, fleet_free);

const char *fleet_home(const struct fleet *f);
/* More than one node: somebody has to choose. */
bool fleet_chooses(struct fleet *f);
/*
 * The client of a node, never NULL, borrowed as long as the fleet. One that is not known is a client whose calls fail as
 * those to a node that cannot be reached. name "": the home node.
 */
struct node_client *fleet_client(struct fleet *f, const char *name);
bool fleet_knows(struct fleet *f, const char *name);
/* Does it live, as far as was heard? */
bool fleet_alive(struct fleet *f, const char *name);
/*
 * For what any node can answer as well, such as what is in the object store: this one if it lives, else one that does, else
 * this one all the same. Borrowed as above.
 */
struct node_client *fleet_any(struct fleet *f, const char *name);
/* Has there been a new one since this was asked last? */
bool fleet_changed(struct fleet *f);
/* Calls each with every node of now, by name; not under the lock. */
typedef int fleet_fn(void *ctx, struct node_client *node);
MUST_CHECK int fleet_each(struct fleet *f, fleet_fn *each, void *ctx);

/* What is known of one. told: what it said, JSON of GET /v1/node; NULL: nothing. */
struct fleet_news {
    const char *name;
    const char *url;
    enum schedule_wanted wanted;
    bool alive;
    const json_t *told;
};
/* A new one, or news of a known one. The home node's address stays. -EINVAL: the address cannot be used. */
MUST_CHECK int fleet_put(struct fleet *f, const struct fleet_news *news, struct err *e);
/* What a known one has just said, and nothing else about it. */
void fleet_told(struct fleet *f, const char *name, const json_t *told);
/* All but the home node that are not among these are not listed, asked or chosen any more. */
void fleet_keep(struct fleet *f, const char *const *names, size_t n);

/* Its last pass went well or not: were all nodes' last passes fine? *ret_was: how its last but one was. */
bool fleet_passed(struct fleet *f, const char *name, bool fine, bool *ret_was);

/* Where could it be? *ret is the caller's to free, *ret_n of them, those that fit first. Returns how many fit. */
struct fleet_choice {
    char name[SANDBOX_NODE_SIZE];
    struct schedule_verdict verdict;
};
size_t fleet_schedule(struct fleet *f, const struct schedule_wish *wish, struct fleet_choice **ret,
                      size_t *ret_n);
/* One more of that shape is on its way to it: until it says so itself. */
void fleet_count(struct fleet *f, const char *name, const struct shape *shape);
/* What the memory of something that was saved there depends on, into the wish's borrowed words; copies live in ret. */
struct fleet_origin {
    char accel[SCHEDULE_WORD_SIZE];
    char vmm[SCHEDULE_WORD_SIZE];
    char cpu[SCHEDULE_WORD_SIZE];
};
void fleet_origin(struct fleet *f, const char *name, struct fleet_origin *ret);
