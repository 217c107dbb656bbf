/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Nodes that are lost or drained are emptied: what their rows name goes elsewhere (control_move()), a few at a time.
 *
 *     lost     what ran is restored from its last durable state, what slept sleeps on; creations are abandoned, deletions
 *              are finished. What is stopped, or was never stored, waits for the node: its disk is there alone.
 *     drained  what runs, is paused or suspended is moved. What is stopped, or has snapshots to be kept, stays.
 *
 * Every gateway does that, in a thread beside the reconciler's, which must not wait for bytes that travel. They share the work
 * by the holds on sandboxes: who finds one held leaves it. Nothing of it is remembered but when to try again what failed, so
 * that any of them can die at any step; move.c says what the rows look like then.
 */
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "control/private.h"
#include "database/nodes.h"

#include <stdio.h>
#include <string.h>

#define ROUND_MS 2000
#define RETRY_MS 60000
#define JOBS_MAX 1024u /* of one round */
#define NODES_MAX SCHEDULE_NODES_MAX
#define WORKERS 4

struct job {
    char id[ID_SIZE];
    char node[SANDBOX_NODE_SIZE];
    bool lost;
};

/* What failed, and when it is tried again. */
struct later {
    char id[ID_SIZE];
    uint64_t again_ns;
};

struct evacuation {
    struct control *c; /* borrowed */
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t news;
    bool stop;
};

struct round {
    struct control *c;
    struct job *nodes; /* owned, and so are the jobs; of these only node and lost count */
    size_t n_nodes;
    struct job *jobs;
    size_t n;
    size_t next;            /* atomic */
    const struct job *node; /* which is read now; borrowed */
};

static void round_done(struct round *round)
{
    free(round->nodes);
    free(round->jobs);
}

/* ---- later ---- */

/* Under the mutex. */
static struct later *find_later(struct control *c, const char *id)
{
    for (size_t i = 0; i < c->n_later; i++) {
        if (str_eq(c->later[i].id, id)) {
            return &c->later[i];
        }
    }
    return NULL;
}

static bool is_later(struct control *c, const char *id)
{
    const struct later *l;
    bool later;

    pthread_mutex_lock(&c->mutex);
    l = find_later(c, id);
    later = l && !deadline_passed(l->again_ns);
    pthread_mutex_unlock(&c->mutex);
    return later;
}

/* Those whose time has come make room. */
static void forget_passed(struct control *c)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->n_later; i++) {
        if (!deadline_passed(c->later[i].again_ns)) {
            c->later[kept++] = c->later[i];
        }
    }
    c->n_later = kept;
}

static void try_later(struct control *c, const char *id)
{
    struct later *l;

    pthread_mutex_lock(&c->mutex);
    if (!c->later) {
        c->later = xnew_n(struct later, JOBS_MAX);
    }
    l = find_later(c, id);
    if (!l) {
        forget_passed(c);
        l = c->n_later < JOBS_MAX ? &c->later[c->n_later++] : NULL; /* else it is tried too often */
    }
    if (l) {
        snprintf(l->id, sizeof(l->id), "%s", id);
        l->again_ns = deadline_in_ms(RETRY_MS);
    }
    pthread_mutex_unlock(&c->mutex);
}

/* ---- one sandbox ---- */

/* Its gateway has died: nobody waits for it any more. */
static int abandon(struct control *c, const char *id, struct err *e)
{
    int r = control_mark_deleted(c, /* actor */ NULL, id, "sandbox.abandon", e);

    return r < 0 ? r : control_finish_delete_held(c, id, deadline_in_ms(CONTROL_DELETE_MS), e);
}

static int do_held(struct control *c, const struct job *job, struct busy_hold *hold, struct err *e)
{
    const struct control_move how = {.from = job->node, .lost = job->lost};
    cleanup_sandbox struct sandbox sb = {0};
    int r = db_sandbox_get(c->db, job->id, /* project */ NULL, &sb, e);

    if (r < 0 || !str_eq(sb.node, job->node)) {
        return r == -ENOENT ? 0 : r;
    }
    if (job->lost && sb.desired == SANDBOX_STATE_DELETED) {
        return control_finish_delete_held(c, job->id, deadline_in_ms(CONTROL_DELETE_MS), e);
    }
    if (job->lost && sb.observed == SANDBOX_STATE_CREATING) {
        return abandon(c, job->id, e);
    }
    return control_move_held(c, job->id, &how, hold, e);
}

static void do_job(struct control *c, const struct job *job)
{
    CLEANUP(busy_leavep) struct busy_hold *hold = busy_try_enter(c->busy, job->id);
    const struct log_ctx log = {.sandbox = job->id};
    struct err e = {0};
    int r;

    if (!hold) {
        return;
    }
    r = do_held(c, job, hold, &e);
    if (r == 0) {
        log_info(&log, "taken off node '%s', which is %s", job->node,
                 job->lost ? "lost" : "drained");
        return;
    }
    try_later(c, job->id);
    log_warn(&log, "cannot be taken off node '%s', which is %s, trying again later: %s", job->node,
             job->lost ? "lost" : "drained", e.msg);
}

/* ---- what there is to do ---- */

static bool is_wanted(struct control *c, const struct sandbox *sb, bool lost)
{
    if (!lost) {
        const unsigned moves = 1u << SANDBOX_STATE_RUNNING | 1u << SANDBOX_STATE_PAUSED |
                               1u << SANDBOX_STATE_SUSPENDED | 1u << SANDBOX_STATE_RESTORING;

        return sb->desired != SANDBOX_STATE_DELETED && (moves & (1u << sb->observed)) != 0;
    }
    if (sb->observed == SANDBOX_STATE_CREATING) {
        return control_now_ms(c) >= sb->created_at_ms + PLAN_RETRY_GRACE_MS;
    }
    return sb->desired == SANDBOX_STATE_DELETED || sb->observed != SANDBOX_STATE_STOPPED;
}

static int add_job(void *ctx, const struct sandbox *sb)
{
    struct round *round = ctx;
    struct job *job = &round->jobs[round->n];

    if (round->n < JOBS_MAX && is_wanted(round->c, sb, round->node->lost) &&
        !is_later(round->c, sb->id)) {
        *job = *round->node;
        memcpy(job->id, sb->id, sizeof(job->id));
        round->n++;
    }
    return 0;
}

static int add_node(void *ctx, const struct node_row *row)
{
    struct round *round = ctx;

    if (round->n_nodes < NODES_MAX && (row->lost || row->wanted == NODE_DRAINING)) {
        struct job *job = &round->nodes[round->n_nodes++];

        memcpy(job->node, row->name, sizeof(job->node));
        job->lost = row->lost;
    }
    return 0;
}

static int read_round(struct round *round, struct err *e)
{
    struct control *c = round->c;
    int r;

    round->nodes = xnew_n(struct job, NODES_MAX);
    round->jobs = xnew_n(struct job, JOBS_MAX);
    r = db_node_list(c->db, add_node, round, e);
    for (size_t i = 0; i < round->n_nodes && r == 0; i++) {
        round->node = &round->nodes[i];
        r = db_sandbox_list(c->db, &(struct sandbox_query){.node = round->node->node}, add_job,
                            round, e);
    }
    return r < 0 ? err_wrap(e, r, "reading what is on nodes that are emptied") : 0;
}

static void *worker(void *arg)
{
    struct round *round = arg;
    size_t i;

    while ((i = __atomic_fetch_add(&round->next, 1, __ATOMIC_RELAXED)) < round->n) {
        do_job(round->c, &round->jobs[i]);
    }
    return NULL;
}

int control_evacuate(struct control *c, struct err *e)
{
    CLEANUP(round_done) struct round round = {.c = c};
    pthread_t threads[WORKERS];
    size_t n;
    int r;

    ASSERT(c);
    r = read_round(&round, e);
    if (r < 0) {
        return r;
    }
    n = MIN(round.n, (size_t)WORKERS);
    for (size_t i = 0; i < n; i++) {
        r = pthread_create(&threads[i], NULL, worker, &round);
        ASSERT(r == 0); /* like memory: restart is the way out */
    }
    for (size_t i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    return 0;
}

/* ---- the thread ---- */

static bool wait_round(struct evacuation *ev)
{
    uint64_t until_ns = deadline_in_ms(ROUND_MS);
    bool stop;

    pthread_mutex_lock(&ev->lock);
    while (!ev->stop && cond_wait_until(&ev->news, &ev->lock, until_ns) == 0) {
    }
    stop = ev->stop;
    pthread_mutex_unlock(&ev->lock);
    return !stop;
}

static void *evacuation_main(void *arg)
{
    struct evacuation *ev = arg;
    bool was_failed = false;

    while (wait_round(ev)) {
        struct err e = {0};
        bool failed;

        if (!control_empties(ev->c)) {
            continue;
        }
        failed = control_evacuate(ev->c, &e) < 0;
        if (failed && !was_failed) {
            log_error(NULL, "no node is emptied until this is repaired: %s", e.msg);
        }
        was_failed = failed;
    }
    return NULL;
}

struct evacuation *evacuation_start(struct control *c)
{
    struct evacuation *ev = xnew(struct evacuation);
    int r;

    ev->c = c;
    pthread_mutex_init(&ev->lock, NULL);
    cond_init(&ev->news);
    r = pthread_create(&ev->thread, NULL, evacuation_main, ev);
    ASSERT(r == 0); /* like memory */
    return ev;
}

void evacuation_stop(struct evacuation *ev)
{
    pthread_mutex_lock(&ev->lock);
    ev->stop = true;
    pthread_cond_signal(&ev->news);
    pthread_mutex_unlock(&ev->lock);
    pthread_join(ev->thread, NULL);
    pthread_cond_destroy(&ev->news);
    pthread_mutex_destroy(&ev->lock);
    free(ev);
}
