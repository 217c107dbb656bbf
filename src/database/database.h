/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The memory of the control plane: organisations, projects, keys, sandboxes, operations, audit events.
 *
 * Theory of operation. Every function is one transaction and may be called from any thread; a small
 * pool holds the connections. The products behind it (sqlite.c; others pass the same conformance
 * suite) are a table of functions, see driver.h.
 *
 * Sandboxes change by compare-and-set: each row has a generation that grows with every write, and an
 * update says which generation it was decided on. Somebody who decided on an old one gets -ESTALE,
 * reads again and decides again. That is what keeps an expiry from killing what was just extended, and
 * a creation that ends late from bringing back what was deleted.
 *
 * Failure is never emptiness: a list that breaks in the middle returns an error after the rows it gave,
 * and callers throw those away.
 *
 * Schema: numbered migrations that only go forward (schema.c). A database newer than the program is
 * refused.
 */
#pragma once

#include "base/err.h"
#include "model/netpolicy.h"
#include "model/record.h"
#include "model/sandbox.h"
#include "model/tenant.h"

struct db;
struct db_driver;

/* url: "sqlite:/path/to/space.db" or "postgresql://user@host/name". Creates what is missing, and migrates. */
MUST_CHECK int db_open(const char *url, struct db **ret, struct err *e);
/* As db_open with a driver of the caller's, for tests that let statements fail. */
MUST_CHECK int db_open_driver(const struct db_driver *driver, const char *where, struct db **ret,
                              struct err *e);
void db_free(struct db *db);
DEFINE_CLEANUP(struct db *, db_free);
/* One statement that proves the database answers. */
MUST_CHECK int db_ping(struct db *db, struct err *e);

/* --- gateways that share a database --- */

/* Do other programs use it, too? Then what only one of them may do needs a hold or a turn. */
bool db_shared(const struct db *db);
/*
 * This gateway lives for another lease_ms, by the database's clock. *ret_alive is how many do, it included. What the
 * dead held is free; after a day their rows go.
 */
MUST_CHECK int db_gateway_beat(struct db *db, const char *id, int64_t lease_ms, int64_t *ret_alive,
                               struct err *e);
/* Its end was orderly: everything it held is free. */
MUST_CHECK int db_gateway_end(struct db *db, const char *id, struct err *e);

/*
 * A hold is exclusive among the gateways that live, and ends with its owner. 1: it is the owner's (also when it was
 * already); 0: somebody else's, who will say "given NAME" when it is free.
 */
MUST_CHECK int db_hold_take(struct db *db, const char *name, const char *owner, struct err *e);
MUST_CHECK int db_hold_give(struct db *db, const char *name, const char *owner, struct err *e);

/*
 * Turns: what has to be done again and again, by any gateway, by one at a time. A turn that is taken is the owner's for
 * lease_ms; who dies in it leaves it to the others then. Those that are due come first, longest overdue first.
 */
#define DB_TURN_SIZE 80
/* 0 also when it is there. */
MUST_CHECK int db_turn_add(struct db *db, const char *name, struct err *e);
MUST_CHECK int db_turn_remove(struct db *db, const char *name, struct err *e);
/* 1: ret is the name of one that is due, now the owner's. 0: none is; *ret_next_ms: when the next will be, from now. */
MUST_CHECK int db_turn_take(struct db *db, const char *owner, int64_t lease_ms,
                            char ret[static DB_TURN_SIZE], int64_t *ret_next_ms, struct err *e);
/* It is due again in next_ms, or as soon as it was hurried meanwhile. */
MUST_CHECK int db_turn_done(struct db *db, const char *name, const char *owner, int64_t next_ms,
                            struct err *e);
/* Due at once; all whose names begin so. Whoever listens hears "turn". */
MUST_CHECK int db_turn_hurry(struct db *db, const char *prefix, struct err *e);

/* All who agree on name have the value of the first of them. value: at most size - 1 characters, in and out. */
MUST_CHECK int db_secret_agree(struct db *db, const char *name, char *value, size_t size,
                               struct err *e);

/* Says text, a word and a name, to all who listen. Only for shared databases; so are the rest. */
MUST_CHECK int db_say(struct db *db, const char *text, struct err *e);
#define DB_NOTICE_SIZE 128
struct db_listener;
MUST_CHECK int db_listen(struct db *db, struct db_listener **ret, struct err *e);
void db_listener_free(struct db_listener *l);
DEFINE_CLEANUP(struct db_listener *, db_listener_free);
/* 1: ret is what was said; 0: nothing until the deadline, or wake_fd is readable; an error: listen anew. */
MUST_CHECK int db_listener_wait(struct db_listener *l, uint64_t deadline_ns, int wake_fd,
                                char ret[static DB_NOTICE_SIZE], struct err *e);

/* --- organisations and projects; -EEXIST: the name is taken; -ENOENT: not there (or not theirs) --- */

MUST_CHECK int db_organisation_insert(struct db *db, const struct organisation *o, struct err *e);
MUST_CHECK int db_organisation_by_name(struct db *db, const char *name, struct organisation *ret,
                                       struct err *e);
MUST_CHECK int db_project_insert(struct db *db, const struct project *p, struct err *e);
MUST_CHECK int db_project_get(struct db *db, const char *id, struct project *ret, struct err *e);
MUST_CHECK int db_project_by_name(struct db *db, const char *organisation, const char *name,
                                  struct project *ret, struct err *e);
MUST_CHECK int db_project_set_quota(struct db *db, const char *id, int64_t max_sandboxes,
                                    struct err *e);
typedef int db_project_fn(void *ctx, const struct project *p);
MUST_CHECK int db_project_list(struct db *db, const char *organisation, db_project_fn *each,
                               void *ctx, struct err *e);

/* What a level around sandboxes lets them reach: JSON text of model/netpolicy.h. id: the organisation's or the project's. */
MUST_CHECK int db_network_set(struct db *db, enum netpolicy_level level, const char *id,
                              const char *text, struct err *e);
/* The caller owns the text; "": that level says nothing. */
MUST_CHECK int db_network_get(struct db *db, enum netpolicy_level level, const char *id, char **ret,
                              struct err *e);

/* --- keys --- */

MUST_CHECK int db_key_insert(struct db *db, const struct api_key *k, struct err *e);
/* -ENOENT: no such key, or it is revoked. */
MUST_CHECK int db_key_by_hash(struct db *db, const char *hash, struct api_key *ret, struct err *e);
/* Revoked ones too. project "" or NULL: all of the organisation. */
typedef int db_key_fn(void *ctx, const struct api_key *k);
MUST_CHECK int db_key_list(struct db *db, const char *organisation, const char *project,
                           db_key_fn *each, void *ctx, struct err *e);
MUST_CHECK int db_key_get(struct db *db, const char *id, struct api_key *ret, struct err *e);
/* Idempotent: the first revocation's time stays. */
MUST_CHECK int db_key_revoke(struct db *db, const char *id, int64_t at_ms, struct err *e);
MUST_CHECK int db_key_touch(struct db *db, const char *id, int64_t at_ms, struct err *e);

/* What all of this process's databases do is counted from then on; see base/metric.h. */
void db_metrics_register(void);

/* --- sandboxes --- */

/* What is written in the same transaction as a change of a sandbox. Either may be NULL. */
struct db_beside {
    const struct operation *operation; /* borrowed for the call */
    const struct audit_event *audit;   /* borrowed for the call */
    bool relaxed; /* a loss of power may undo it: for what would then be observed again */
};

/*
 * Writes a new sandbox, and with it the operation that makes it. max is the quota of the project.
 * beside may be NULL. -EDQUOT: the project is full; -EEXIST: the operation is known already (nothing
 * written).
 */
MUST_CHECK int db_sandbox_insert(struct db *db, const struct sandbox *sb,
                                 const struct db_beside *beside, int64_t max, struct err *e);
/* The same for n sandboxes of one project: all of them or none. */
MUST_CHECK int db_sandbox_insert_all(struct db *db, const struct sandbox *sbs, size_t n,
                                     const struct db_beside *beside, int64_t max, struct err *e);
/* project NULL: any. The caller ends *ret with sandbox_done(). */
MUST_CHECK int db_sandbox_get(struct db *db, const char *id, const char *project,
                              struct sandbox *ret, struct err *e);
/*
 * Writes what may change of a sandbox (states, node, owner, metadata, policy, times, reason) where the generation is
 * still sb's, and moves sb->generation on. An operation beside it is finished: its status and answer are
 * stored. beside may be NULL. -ESTALE: somebody was faster; -ENOENT: it is gone.
 */
MUST_CHECK int db_sandbox_update(struct db *db, struct sandbox *sb, const struct db_beside *beside,
                                 struct err *e);
/* The same for n sandboxes: all of them or none. */
MUST_CHECK int db_sandbox_update_all(struct db *db, struct sandbox *sbs, size_t n,
                                     const struct db_beside *beside, struct err *e);
/*
 * Removes the row where the generation is still sb's; -ESTALE, -ENOENT as above. An operation beside it is
 * forgotten, so that a retry runs afresh. beside may be NULL.
 */
MUST_CHECK int db_sandbox_delete(struct db *db, const struct sandbox *sb,
                                 const struct db_beside *beside, struct err *e);

#define SANDBOX_FILTER_MAX 8

struct sandbox_filter {
    const char *key;   /* borrowed: lives as long as the query */
    const char *value; /* borrowed: lives as long as the query */
};

/* Which sandboxes, newest first unless said otherwise, and where to go on. */
struct sandbox_query {
    const char *project; /* borrowed: lives as long as the query; NULL: all projects */
    unsigned states;     /* set of 1u << enum sandbox_state of the observed one; 0: all */
    struct sandbox_filter filters[SANDBOX_FILTER_MAX];
    size_t n_filters;
    int64_t after_ms;     /* keyset: created before this, or at it with a smaller id; */
    const char *after_id; /* NULL: from the newest. borrowed: lives as long as the query */
    int64_t
        expired_at_ms; /* when not 0: only those whose end has come by then, paused ones never, and of those that are not deleted at
           their end only running ones */
    const char *node;  /* only of these; NULL: of all. borrowed: lives as long as the query */
    bool or_nowhere;   /* and those of no node */
    const char *batch; /* only these; NULL: all. borrowed: lives as long as the query */
    bool oldest_first; /* then after_ms means created after this */
    bool no_builders;  /* not those that templates are built in (SANDBOX_METADATA_BUILD) */
    int64_t limit;     /* 0: no limit */
};

/* each returns 0 to go on; another value ends the list and is returned. It must not call the database. */
typedef int db_sandbox_fn(void *ctx, const struct sandbox *sb);
MUST_CHECK int db_sandbox_list(struct db *db, const struct sandbox_query *q, db_sandbox_fn *each,
                               void *ctx, struct err *e);

/* How many there are, by observed state. */
struct sandbox_counts {
    int64_t n[SANDBOX_STATE_COUNT_];
};
MUST_CHECK int db_sandbox_count(struct db *db, struct sandbox_counts *ret, struct err *e);

/* --- snapshots that can be found without their sandbox, and by name --- */

#define SNAPSHOT_NAME_SIZE 129

struct snapshot_row {
    char id[ID_SIZE];
    char project[ID_SIZE];
    char sandbox[ID_SIZE];         /* it was taken of */
    char name[SNAPSHOT_NAME_SIZE]; /* unique in the project; "": none */
    int64_t created_at_ms;
};
/* A name that was another's is taken from it: ret_was is the id of that one, "" for none. */
MUST_CHECK int db_snapshot_put(struct db *db, const struct snapshot_row *row,
                               char ret_was[static ID_SIZE], struct err *e);
/* By id or by name. -ENOENT "snapshot_not_found". */
MUST_CHECK int db_snapshot_find(struct db *db, const char *project, const char *id_or_name,
                                struct snapshot_row *ret, struct err *e);
/* Not an error when it is not there. */
MUST_CHECK int db_snapshot_forget(struct db *db, const char *project, const char *id,
                                  struct err *e);
/* Newest first; strings "" mean all. */
struct snapshot_query {
    const char *project; /* borrowed: lives as long as the query; so are the others */
    const char *sandbox;
    const char *name;
    int64_t after_ms; /* as in sandbox_query; 0: from the newest */
    const char *after_id;
    int64_t limit;
};
typedef int db_snapshot_fn(void *ctx, const struct snapshot_row *row);
MUST_CHECK int db_snapshot_list(struct db *db, const struct snapshot_query *q, db_snapshot_fn *each,
                                void *ctx, struct err *e);

/* --- operations --- */

/* -ENOENT: unknown. The caller ends *ret with operation_done(). */
MUST_CHECK int db_operation_get(struct db *db, const char *project, const char *key,
                                struct operation *ret, struct err *e);
/* Makes NEW_OWNER the owner of a running operation that OLD_OWNER left. -ESTALE: somebody was faster. */
MUST_CHECK int db_operation_take_over(struct db *db, const struct operation *op,
                                      const char *new_owner, struct err *e);
/* Forgets it, so that a retry runs again. Not an error when it is not there. */
MUST_CHECK int db_operation_delete(struct db *db, const char *project, const char *key,
                                   struct err *e);
/* Is a sandbox waiting for a retry of the operation that began it, or the batch that it is one of? */
MUST_CHECK int db_operation_of_sandbox(struct db *db, const char *sandbox, struct operation *ret,
                                       struct err *e);
/* Forgets those that finished and are older. */
MUST_CHECK int db_operation_prune(struct db *db, int64_t before_ms, struct err *e);

/* --- audit --- */

MUST_CHECK int db_audit_add(struct db *db, const struct audit_event *ev, struct err *e);
typedef int db_audit_fn(void *ctx, const struct audit_event *ev);
/* Newest first. */
MUST_CHECK int db_audit_list(struct db *db, const char *project, int64_t limit, db_audit_fn *each,
                             void *ctx, struct err *e);
MUST_CHECK int db_audit_prune(struct db *db, int64_t before_ms, struct err *e);
