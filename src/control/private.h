/* SPDX-License-Identifier: Apache-2.0 */

/* What the files of src/control share. */
#pragma once

#include "control/control.h"
#include "control/flight.h"
#include "control/plan.h"
#include "control/share.h"

#include <pthread.h>

/* A client waits for these; the e2b SDKs give up after 60 s. */
#define CONTROL_CREATE_MS 55000
#define CONTROL_CHANGE_MS 40000
/* Bytes travel: the node's own limit is shorter than this. */
#define CONTROL_TRANSFER_MS (31u * 60 * 1000)
/* For each child of a fork, beyond what one takes. */
#define CONTROL_FORK_CHILD_MS 3000
/* After that a deletion is left to the reconciler. */
#define CONTROL_DELETE_MS 20000
/* Cleaning up after a failed creation; nobody may be waiting any more. */
#define CONTROL_UNDO_MS 10000
/* A row that changes under us this often in a row is being fought over. */
#define CONTROL_CAS_TRIES 50

struct control {
    struct db *db;                 /* borrowed */
    struct fleet *fleet;           /* borrowed */
    struct busy *busy;             /* owned */
    struct flights *resumes;       /* owned */
    struct share *share;           /* owned; NULL: no other gateway */
    bool node_known;               /* atomic: see identity.c */
    bool empties;                  /* atomic: some node is lost or drained */
    struct evacuation *evacuation; /* owned; while running */
    struct keeper *keeper;         /* owned; while running */
    char owner[ID_SIZE];           /* this process, in rows and operations */
    int64_t (*now_ms)(void *ctx);
    void *now_ctx;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t wake;
    pthread_t thread;
    bool running;
    bool stop;
    bool kicked;
    bool due;            /* another gateway says that there is a turn to take */
    struct later *later; /* owned; see evacuate.c */
    size_t n_later;
    struct control_health health;

    control_still_fn *still; /* set before the first request */
    void *still_ctx;         /* borrowed */
};

/* The node that a row names. */
static inline struct node_client *control_node(struct control *c, const struct sandbox *sb)
{
    return fleet_client(c->fleet, sb->node);
}

/* Another gateway's pass has ended: what it saw of the node. */
void control_count_passed(struct control *c, bool fine);

/* An audit event ready to be written beside a change. actor NULL: the control plane itself. */
struct audit_event control_event(const struct control *c, const struct control_actor *actor,
                                 const struct sandbox *sb, const char *action, const char *detail);

/*
 * Reads a row, lets decide change it, writes it; again when somebody was faster. project NULL: any.
 * decide returns 1 to write, 0 to leave the row as it is (not an error), or an error. *ret is the row
 * afterwards; the caller ends it with sandbox_done().
 */
typedef int control_decide_fn(struct control *c, void *ctx, struct sandbox *sb, struct err *e);
struct control_change {
    const char *id;
    const char *project;
    control_decide_fn *decide;
    void *ctx;
    const struct control_actor *actor; /* for the audit event; NULL: the control plane */
    const char *action;                /* of the audit event; NULL: none is written */
    const struct operation *operation; /* finished with this change; NULL: none */
    bool relaxed;                      /* as of struct db_beside */
};
MUST_CHECK int control_change(struct control *c, const struct control_change *change,
                              struct sandbox *ret, struct err *e);

/* Removes the row whatever its generation; forgets OPERATION (may be NULL). 0 also when it is gone. */
MUST_CHECK int control_remove_row(struct control *c, const char *id,
                                  const struct operation *operation, const char *detail,
                                  struct err *e);
/* Writes desired state deleted. action as in control_change. */
MUST_CHECK int control_mark_deleted(struct control *c, const struct control_actor *actor,
                                    const char *id, const char *action, struct err *e);
/* Ends what the node has, removes the row. The row says "deleted" already. */
MUST_CHECK int control_finish_delete(struct control *c, const char *id, uint64_t deadline_ns,
                                     struct err *e);
/* As above, by who holds the sandbox. */
MUST_CHECK int control_finish_delete_held(struct control *c, const char *id, uint64_t deadline_ns,
                                          struct err *e);

/*
 * A move that goes through a state of its own, on the client's or a policy's behalf: begun in the row, asked of the
 * node, ended in the row by what the node said.
 */
struct control_begin {
    unsigned from; /* set of 1u << state: where it may begin */
    enum sandbox_state via;
    enum sandbox_state at; /* being there already is fine */
    enum sandbox_state desired;
    unsigned by;
    bool expired;        /* only if its time is over: else -ESTALE "not_expired" */
    const char *refusal; /* what a client cannot do from elsewhere: "stopped", "paused", ... */
    enum sandbox_state was_observed; /* out: where it was before */
    enum sandbox_state was_desired;  /* out */
};
struct control_end {
    enum sandbox_state from;
    enum sandbox_state to;
    enum sandbox_state desired;
    const char *reason;
    const struct node_sandbox *node; /* NULL: it said nothing about the machine */
    bool relaxed; /* were it forgotten, the node would say it again (struct db_beside) */
};
MUST_CHECK int control_begin_move(struct control *c, const struct control_actor *actor,
                                  const char *id, struct control_begin *m, const char *action,
                                  struct sandbox *ret, struct err *e);
MUST_CHECK int control_end_move(struct control *c, const struct control_actor *actor,
                                const char *id, struct control_end *m, struct sandbox *ret,
                                struct err *e);
/* One action on the node, in the middle of a move. On failure the move is taken back. */
struct control_step {
    struct node_client *node; /* who is asked; borrowed: the fleet's */
    const char *action;
    const json_t *body;
    struct control_begin *begin;
    struct busy_hold *hold;
    uint64_t deadline_ns;
};
MUST_CHECK int control_step(struct control *c, const struct control_actor *actor, const char *id,
                            const struct control_step *step, struct node_sandbox *ret,
                            json_t **ret_json, struct err *e);
/* What the levels around a sandbox let it reach, into a row that was not read but made. */
MUST_CHECK int control_read_outer(struct control *c, const struct control_actor *actor,
                                  struct sandbox *sb, struct err *e);
/* Looks whose it is, then waits for its turn with the sandbox. */
MUST_CHECK int control_hold(struct control *c, const struct control_actor *actor, const char *id,
                            uint64_t deadline_ns, struct busy_hold **ret, struct err *e);
/*
 * Writes what the node says, as PLAN_OBSERVE has it, into the row it was decided on; a newer row is left as it is. node
 * (may be NULL) is what it says of the machine.
 */
MUST_CHECK int control_observe(struct control *c, const struct sandbox *row,
                               const struct plan *plan, const struct node_sandbox *node,
                               struct err *e);
/* The error of a step that somebody's DELETE ended. */
int control_deleted_meanwhile(struct err *e);

/* As control_pause() and control_stop() for one whose time is over; -ESTALE "not_expired": it is not, or not any more. */
MUST_CHECK int control_end_by_pause(struct control *c, const struct control_actor *actor,
                                    const char *id, bool wakes, struct err *e);
MUST_CHECK int control_end_by_stop(struct control *c, const struct control_actor *actor,
                                   const char *id, struct err *e);

/* suspend.c. Whose project it is. */
MUST_CHECK int control_organisation(struct control *c, const char *project,
                                    char ret[static ID_SIZE], struct err *e);
/*
 * move.c. As control_resume(), by who holds it, for one that is suspended or restoring, as seen says. It is restored on
 * whichever node fits best.
 */
MUST_CHECK int control_restore_held(struct control *c, const struct control_actor *actor,
                                    const struct sandbox *seen, struct busy_hold *hold, unsigned by,
                                    struct err *e);
/* The reason in the row of one that is suspended only to go on elsewhere. */
extern const char control_moving[];
/* For the control plane itself, which moves it: what is desired of it stays. */
MUST_CHECK int control_suspend_held(struct control *c, const struct sandbox *seen,
                                    struct busy_hold *hold, bool drop_snapshots, struct err *e);
/* PLAN_SUSPEND: asks the node to suspend it, or whether it has. */
MUST_CHECK int control_suspend_row(struct control *c, const struct sandbox *row,
                                   struct node_call *call, struct err *e);
/* What the object store has of one that no node has. */
MUST_CHECK int control_forget_stored(struct control *c, const struct sandbox *row,
                                     struct node_call *call, struct err *e);
/* 0: something of it is in the object store. -ENOENT "not_stored". */
MUST_CHECK int control_is_stored(struct control *c, const struct sandbox *row,
                                 struct node_call *call, struct err *e);

/* move.c. Where it could be restored; what is given lives longer. elsewhere: not where it was. */
struct schedule_wish control_restore_wish(const struct sandbox *sb,
                                          const struct fleet_origin *origin, const char *was_on,
                                          bool elsewhere);
/* As control_move(), by who holds it. */
MUST_CHECK int control_move_held(struct control *c, const char *id, const struct control_move *how,
                                 struct busy_hold *hold, struct err *e);
/* Is this node lost, as the database has it? 1, 0; what cannot be read is an error. One that is not known is not lost. */
MUST_CHECK int control_node_lost(struct control *c, const char *name, struct err *e);

/* Was a node lost or drained when they were read last? */
static inline bool control_empties(const struct control *c)
{
    return __atomic_load_n(&c->empties, __ATOMIC_RELAXED);
}
/* evacuate.c. The thread of control_start_reconciler() that empties nodes. */
struct evacuation *evacuation_start(struct control *c);
void evacuation_stop(struct evacuation *ev);

/*
 * reconcile.c. Has a node leave what no row says that it has. 0: it has nothing such; 1: it has still, somebody holds it or it
 * could not be ended. An error: it cannot be read what it has.
 */
MUST_CHECK int control_clear_node(struct control *c, const char *name, struct err *e);

int control_not_found(struct err *e);
