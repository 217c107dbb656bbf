/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox as it lives on this node.
 *
 * Lifecycle operations on one sandbox are serialised by its op lock, held for the whole operation. The
 * short lock guards the fields; guest requests only take that one, so a command that streams for hours never
 * holds up a stop or a delete: those close the channel, which ends the streams.
 *
 *     resident_find / resident_add --> a reference --> resident_unref
 *     resident_guest_begin --> a reference to the channel --> resident_guest_end, after it was closed, too:
 *                              nobody waits for that, since a client may hold a stream for as long as it likes
 *
 * States are those of model/sandbox-state.h; resident_set_state() asserts each move.
 */
#pragma once

#include "channel/host.h"
#include "sandbox/node.h"
#include "sandbox/record.h"
#include "sandbox/snapshot.h"
#include "sandbox/trace.h"
#include "sandbox/usage.h"

#define RESIDENT_MUTE_MS (5u * 60 * 1000)

struct resident {
    struct node *node;     /* borrowed: lives longer */
    struct resident *next; /* guarded by node.lock; meaningless once dropped */
    uint64_t number;       /* the list is in falling order of it; constant */
    bool dropped;          /* guarded by node.lock */
    unsigned refs;         /* guarded by node.lock; the list holds one */
    pthread_mutex_t op;
    struct snapshot *snapshots; /* owned: newest first; guarded by op, as what follows */
    struct trace trace;
    bool wants_thinning;      /* its policy may want fewer snapshots: see retention.h */
    bool wants_recovery;      /* its machine ended by itself: see recovery.h */
    bool unwanted;            /* atomic: a deletion waits for what is under way */
    bool backup_unwanted;     /* atomic: whoever holds op waits for its end; see backup.h */
    uint64_t backup_again_ms; /* when the next one is due; 0: as the record says */
    pthread_mutex_t transfer; /* of a backup under way; begun with op held, ended without */
    unsigned recovery_tries;
    uint64_t recovery_since_ms;
    /* The scheduler's own: its last look for idleness, what it saw then, and when the guest last worked. */
    uint64_t idle_looked_ms;
    uint64_t idle_cpu_ms;
    uint64_t busy_ms;
    uint64_t clock_set_ms; /* when the guest was last told the time */
    uint64_t sample_at_ms; /* when its use is asked for next */
    uint64_t
        mute_until_ms; /* the guest did not answer: nothing is asked of it unbidden until then */

    pthread_mutex_t lock; /* guards what follows */
    struct record record;
    bool gone;               /* deleted: only references remain */
    struct machine *machine; /* owned; NULL: none */
    struct channel *channel; /* owned; NULL: none */
    int disk_fd;             /* owned; with the machine */
    unsigned visits;         /* requests to its inside that are at work */
    struct usage usage;      /* what it has used of its machine */
    char last_console[512];  /* what the console said last when the machine ended */
};

/* For what takes long: true once a deletion waits. arg is the resident. */
bool resident_unwanted(void *arg);
/* NULL when there is none. */
struct resident *resident_find(struct node *node, const char *id);
/*
 * Adds one in state creating with a copy of rec (its env is referenced). -EEXIST: *ret is the one that is there.
 * -EUSERS "node_full". The caller gets a reference in both cases of success and -EEXIST.
 */
MUST_CHECK int resident_add(struct node *node, const struct record *rec, struct resident **ret,
                            struct err *e);
/* One that is in no list, with one reference: a sandbox beside itself while it is rolled back. */
struct resident *resident_new_unlisted(struct node *node, const struct record *rec);
void resident_unref(struct resident *res);
DEFINE_CLEANUP(struct resident *, resident_unref);
/* Takes it out of the list; it goes with its last reference. */
void resident_drop(struct resident *res);
/* The first one, or the one after, each with a reference; res (may be NULL) is unreferenced. */
struct resident *resident_next_take(struct node *node, struct resident *res);
/* At the end of the process: machines live on. */
void resident_free_all(struct node *node);

/*
 * Moves the state, by the node, with a reason or NULL, and writes the record. When it cannot be written, as in
 * a pool that is full, a first step (pausing, resuming, stopping) was not taken; else the move is what
 * has happened, and stays: the next write tells it.
 */
MUST_CHECK int resident_set_state(struct resident *res, enum sandbox_state to, const char *reason,
                                  enum record_durability durability, struct err *e);
/* Writes the record as it is now. */
MUST_CHECK int resident_save(struct resident *res, enum record_durability durability,
                             struct err *e);
MUST_CHECK int resident_set_policy(struct resident *res, const struct policy *policy,
                                   struct err *e);
/* When its life ends, were its time to go on now (0: never). The node ends it then, should the control plane not. */
MUST_CHECK int resident_set_end(struct resident *res, int64_t end_at_ms, enum sandbox_at_end at_end,
                                struct err *e);
int64_t resident_end_at_ms(struct resident *res);
enum sandbox_state resident_state(struct resident *res);
/*
 * A request to its inside, counted from here to resident_leave(): meanwhile it is not paused for idleness. True: it is
 * paused for that, or about to be, or already being resumed, and the request has to resume it first, which waits for what
 * is under way.
 */
MUST_CHECK bool resident_visit(struct resident *res);
void resident_leave(struct resident *res);

/* The channel of a running sandbox. -ENOTCONN "not_running" with the state and what to do. */
MUST_CHECK int resident_guest_begin(struct resident *res, struct channel **ret, struct err *e);
void resident_guest_end(struct channel *ch);
/* Closes the channel: its streams end, and so do requests that begin after. Waits for no user of it. */
void resident_guest_shut(struct resident *res);

/* The node API's object. */
json_t *resident_to_json(struct resident *res);
