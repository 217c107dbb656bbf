/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The control plane's half of a sandbox's life. A request becomes a record of desired state first, then
 * the node is asked, then what was observed is recorded. Whatever does not finish on this fast
 * path, the reconciler finishes: it compares all rows with what the node has, all the time. Gateways that share a
 * database take turns at that, and hold sandboxes among each other; see share.h.
 *
 * Creation. The row (and the operation, when the client gave an Idempotency-Key) is written in state
 * creating, owned by this process; the node is asked; state and answer are written together. When it fails, or
 * the client goes away, the machine and the row go again. When our process dies in between, the row
 * has a dead owner: a retry with the same key takes it over with the same id; without
 * one the reconciler removes it.
 *
 * Deletion. Desired state "deleted" is durable before anything is done, and nothing leaves it: a
 * creation still under way is cancelled, and if it comes through all the same its compare-and-set fails
 * and it cleans up. The row goes when the node has said that nothing is left. Only then is the client
 * told 204; before that 202.
 *
 * Threads: every function may be called from any thread. Locks: the table of holds (busy.h), taken
 * before any call to the node that changes a sandbox and before the database.
 */
#pragma once

#include "control/busy.h"
#include "control/fleet.h"
#include "database/database.h"

struct control;

struct control_opts {
    struct db *db;                /* borrowed: lives longer */
    struct fleet *fleet;          /* borrowed: lives longer */
    int64_t (*now_ms)(void *ctx); /* wall clock; NULL: the real one */
    void *now_ctx;
};

struct control *control_new(const struct control_opts *opts);
/* When no call is inside any more and the reconciler has been stopped. */
void control_free(struct control *c);
DEFINE_CLEANUP(struct control *, control_free);

/*
 * Joins the other gateways of a database that is shared; to be called before the first request. Until then, and with
 * a database of one's own, this process is taken to be the only one.
 */
MUST_CHECK int control_share(struct control *c, struct err *e);
/*
 * Is our node the one that the other gateways call so? -ENOTUNIQ "other_node": it is not, and nothing that we could do is
 * right. Other errors: it cannot be known now; creations, deletions and the reconciler ask again and wait for it.
 */
MUST_CHECK int control_check_node(struct control *c, struct err *e);
/* How many gateways live on the database; 1 without control_share(). */
unsigned control_gateways(const struct control *c);

int64_t control_now_ms(const struct control *c);
/* The nodes; borrowed. */
struct fleet *control_fleet(const struct control *c);
/* What this process is called where gateways share a database; borrowed. */
const char *control_owner(const struct control *c);

/*
 * Called when a sandbox that reached its end was paused or stopped instead of deleted: whoever still waits for something of
 * it would wait for nothing. From the reconciler's thread; set before it starts.
 */
typedef void control_still_fn(void *ctx, const char *id);
void control_on_still(struct control *c, control_still_fn *fn, void *ctx);

/* Who asks: the key of a request, with the names that go into the records. */
struct control_actor {
    char organisation[ID_SIZE];
    char project[ID_SIZE];
    char key[ID_SIZE];
    int64_t max_sandboxes;
};

struct control_create {
    const struct sandbox_spec *spec; /* borrowed for the call; NULL with fork */
    const struct sandbox_fork *fork; /* borrowed for the call; NULL: from a template */
    const struct sandbox *parent;    /* borrowed for the call; control_fork() sets it */
    const char *idempotency_key;     /* borrowed for the call; NULL: none */
    const char *fingerprint;         /* borrowed for the call; of the request, with a key only */
    const struct pollfd *watch; /* borrowed for the call; ready: the client has gone. May be NULL */
    bool alone; /* a fork of one that is answered as a creation: the sandbox, not a list of it */
};

struct control_answer {
    int status;
    char *body; /* owned; JSON text */
    bool replayed;
};

/*
 * Makes a sandbox and waits until it runs. Errors meant for clients: -EDQUOT (quota), what the node said
 * (-ENOSPC, -ENOMEM, "template_not_found", ...), -EHOSTDOWN, -ETIMEDOUT, -EEXIST "idempotency_...", -ECANCELED
 * (the client has gone). After an error there is no such sandbox, or it is being deleted.
 */
MUST_CHECK int control_create(struct control *c, const struct control_actor *actor,
                              const struct control_create *what, struct control_answer *ret,
                              struct err *e);

/*
 * Makes what->fork->count children of a sandbox, all or none; see model/sandbox.h and creation.h. Counts each against
 * the quota. Errors as above, and "snapshot_not_found".
 */
MUST_CHECK int control_fork(struct control *c, const struct control_actor *actor, const char *id,
                            const struct control_create *what, struct control_answer *ret,
                            struct err *e);

/* The id of the sandbox that a control_create() has made, or of the first child of a control_fork(). -EPROTO "bad_answer". */
MUST_CHECK int control_answer_id(const struct control_answer *answer, char ret[static ID_SIZE],
                                 struct err *e);

/* -ENOENT "sandbox_not_found": not there or not the actor's; the same error in both cases. */
MUST_CHECK int control_get(struct control *c, const struct control_actor *actor, const char *id,
                           struct sandbox *ret, struct err *e);
/*
 * As control_get(), but the node is asked how the sandbox is, and what it says is written first. When the node does not
 * say, the row as it is has to do. For rows that say "failed": the node may have brought it back since.
 */
MUST_CHECK int control_look(struct control *c, const struct control_actor *actor, const char *id,
                            struct sandbox *ret, struct err *e);
/* *ret_done false: it was accepted and will be finished when the node can be reached. */
MUST_CHECK int control_delete(struct control *c, const struct control_actor *actor, const char *id,
                              bool *ret_done, struct err *e);
/* A sandbox whose deletion was accepted is -ENOENT for these. *ret is the row afterwards. */
MUST_CHECK int control_patch(struct control *c, const struct control_actor *actor, const char *id,
                             const struct sandbox_patch *patch, struct sandbox *ret, struct err *e);
MUST_CHECK int control_stop(struct control *c, const struct control_actor *actor, const char *id,
                            struct sandbox *ret, struct err *e);
MUST_CHECK int control_start(struct control *c, const struct control_actor *actor, const char *id,
                             struct sandbox *ret, struct err *e);

/*
 * A pause that was asked for stays until somebody resumes it. With wakes, and when the node paused it for idleness,
 * desired stays "running" and the next request to its inside resumes it: control_wake().
 */
struct control_pause {
    bool durable; /* saved so that it survives the host's end, too */
    bool wakes;
};
MUST_CHECK int control_pause(struct control *c, const struct control_actor *actor, const char *id,
                             const struct control_pause *how, struct sandbox *ret, struct err *e);
/* All who want it at the same time get the outcome of one attempt. */
MUST_CHECK int control_resume(struct control *c, const struct control_actor *actor, const char *id,
                              struct sandbox *ret, struct err *e);
/* Would a request to the inside of this sandbox find it awake after control_wake()? */
bool control_may_wake(const struct sandbox *sb);
MUST_CHECK int control_wake(struct control *c, const struct control_actor *actor, const char *id,
                            struct sandbox *ret, struct err *e);

/*
 * To the object store: the node keeps nothing of it. Resuming restores it; with wakes, the next request to its inside does.
 * Without drop_snapshots, one that has snapshots to be kept is not suspended: -ESTALE "snapshots_kept".
 */
struct control_suspend {
    bool wakes;
    bool drop_snapshots;
};
MUST_CHECK int control_suspend(struct control *c, const struct control_actor *actor, const char *id,
                               const struct control_suspend *how, struct sandbox *ret,
                               struct err *e);
/* Since when is it stored: {"modified_ms"}. -ENOENT "not_stored". *ret is ended with json_decref(). */
MUST_CHECK int control_stored(struct control *c, const struct control_actor *actor, const char *id,
                              json_t **ret, struct err *e);

/*
 * Brings a sandbox to another node than the one in its row; for drains, and for nodes that have died. Its processes go on
 * there; where no node can run its memory, it starts afresh from its disk, and its history says so.
 *
 * The node lives (lost false): what runs or is paused is suspended there first; what ran is restored. What sleeps is not woken:
 * nothing of it is on any node, and the row names none. -ESTALE "wrong_state": it is stopped, or a transient state has to end
 * first.
 *
 * The node is lost (database/nodes.h; else -ESTALE "node_not_lost"): what ran is restored from its last durable state, what
 * was paused or suspended sleeps in the store. -ENOENT "not_stored": there is no durable state; the row says "failed" and keeps
 * its node, which may come back with the disk. What the node has left, the reconciler removes there when it can be reached,
 * without touching what is stored.
 *
 * Exactly once: the caller needs no hold; two calls at once are one after the other, and the second finds nothing to do. After
 * a crash at any step the row names the one node that may have it; call it again. Blocks as long as bytes travel.
 */
struct control_move {
    const char
        *from; /* borrowed for the call: the node; one that is elsewhere by now is left alone */
    bool lost;
    bool drop_snapshots; /* else -ESTALE "snapshots_kept" for one that has snapshots to be kept */
};
MUST_CHECK int control_move(struct control *c, const char *id, const struct control_move *how,
                            struct err *e);

/*
 * Which nodes are there for a new sandbox, or for this one of the actor's were it restored now, the best first, and why each
 * fits or does not: the body of the API's answer. Nothing is done. *ret is ended with json_decref().
 */
json_t *control_explain_new(struct control *c, const struct sandbox_spec *spec);
MUST_CHECK int control_explain(struct control *c, const struct control_actor *actor, const char *id,
                               json_t **ret, struct err *e);

struct control_rollback {
    char before[ID_SIZE]; /* the snapshot of the present as it was */
    bool cold; /* its processes were not in the snapshot: it started fresh from the disk */
};
MUST_CHECK int control_rollback(struct control *c, const struct control_actor *actor,
                                const char *id, const char *snapshot, struct sandbox *ret,
                                struct control_rollback *ret_how, struct err *e);
/*
 * An exchange with the node about the caller's sandbox: rest follows the sandbox's id in the node's path. For what
 * does not change the sandbox's life: snapshots, history. *ret (may be NULL) is ended with json_decref(). watch
 * (may be NULL) ends the wait.
 */
struct control_ask {
    const char *method;
    const char *rest;
    const json_t *body; /* may be NULL */
    const char *action; /* of the audit event; NULL: none is written */
    const struct pollfd *watch;
    bool anywhere; /* any node can answer; its own is asked as long as it lives */
};
MUST_CHECK int control_ask(struct control *c, const struct control_actor *actor, const char *id,
                           const struct control_ask *ask, json_t **ret, struct err *e);

/*
 * What an organisation (the actor's) or a project (by its id) lets its sandboxes reach; text "": nothing is said. Those that the
 * node has are told, and what they have open is judged again, before it returns; those that somebody works on, or that could
 * not be told, soon afterwards: *ret_later is how many.
 */
MUST_CHECK int control_set_network(struct control *c, const struct control_actor *actor,
                                   const char *project, const char *text, size_t *ret_later,
                                   struct err *e);

/* An audit event of something that is not a sandbox. Failure is logged: what was done stays done. */
void control_audit(struct control *c, const struct control_actor *actor, const char *action,
                   const char *target, const char *detail);

/* --- the reconciler --- */

/* Its thread. Start and stop in pairs. */
void control_start_reconciler(struct control *c);
void control_stop_reconciler(struct control *c);
/* Have a pass soon. */
void control_kick(struct control *c);

/*
 * One pass over each node, for the thread and for tests. An unreadable list of either side ends a node's before anything is
 * done; the error is the first one's.
 */
MUST_CHECK int control_reconcile(struct control *c, struct err *e);
/* The same for one node. */
MUST_CHECK int control_reconcile_node(struct control *c, const char *name, struct err *e);
/* Reads in the database which nodes there are and what they last told. The reconciler's thread does it all the time. */
MUST_CHECK int control_read_nodes(struct control *c, struct err *e);
/*
 * Takes what can be taken off the nodes that are lost or drained, one after the other in a few threads, and waits for it. The
 * thread of the reconciler has one of its own for that, so that it does not wait for bytes that travel. What fails is tried
 * again after a while; it goes to the log. An error: it cannot be read what there is to do.
 */
MUST_CHECK int control_evacuate(struct control *c, struct err *e);

/*
 * keep.c. A node whose row is gone is nobody's: it leaves what is elsewhere by now, and only then is told that it needs no lease
 * and may go on. An error: it was not told so; if it had a lease, it stands still once that is over.
 */
MUST_CHECK int control_release_node(struct control *c, const char *name, struct err *e);
/* Marks what has reached its end, then ends it. */
MUST_CHECK int control_expire(struct control *c, struct err *e);
/*
 * Ends one sandbox that was seen expired. row is what was seen: -ESTALE when it has changed since, and then
 * nothing is done.
 */
MUST_CHECK int control_expire_one(struct control *c, const struct sandbox *row, struct err *e);

struct control_health {
    bool node_ok;         /* the last pass of each node could read its list */
    int64_t last_pass_ms; /* 0: none yet */
    uint64_t passes;
    uint64_t failed_passes;
    uint64_t repairs;
};
struct control_health control_health(struct control *c);
