/* SPDX-License-Identifier: Apache-2.0 */
#include "control/keeper.h"

#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "control/keep.h"
#include "control/private.h"
#include "model/lease.h"

#include <stdio.h>
#include <string.h>

#define ROUND_MS 1000
#define STACK_SIZE (256u << 10)

struct watched {
    char name[SANDBOX_NODE_SIZE];
    struct lease_watch watch;
    uint64_t next_ms; /* not asked before */
    bool asked;       /* a thread does it now */
    bool silent;      /* it was logged that it does not answer */
    bool listed;      /* in the round that goes on */
};

struct keeper {
    struct control *c; /* borrowed */
    int64_t fresh_ms;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t news;
    bool stop;
    struct watched **nodes; /* owned, and so is each: threads point to them */
    size_t n;
    unsigned n_asked;
};

struct task {
    struct keeper *k;
    struct watched *w; /* is not freed while it is asked */
    struct node_row row;
};

static void task_free(struct task *t)
{
    node_row_done(&t->row);
    free(t);
}
DEFINE_CLEANUP(struct task *, task_free);

/* ---- one node ---- */

/* Says it once, and once that it is over. Returns after that, so that whoever waits for us has heard it. */
static void note(struct keeper *k, struct watched *w, int r, const struct err *e)
{
    bool was_silent;

    pthread_mutex_lock(&k->lock);
    was_silent = w->silent;
    w->silent = r < 0;
    pthread_mutex_unlock(&k->lock);
    if (r < 0 && !was_silent) {
        log_warn(NULL, "node '%s' is not kept: %s", w->name, e->msg);
    } else if (r == 0 && was_silent) {
        log_info(NULL, "node '%s' is kept again", w->name);
    }
}

static void *ask_one(void *arg)
{
    CLEANUP(task_freep) struct task *t = arg;
    struct keeper *k = t->k;
    struct err e = {0};
    int r = keep_node(k->c, &t->row, &e);

    note(k, t->w, r, &e);
    pthread_mutex_lock(&k->lock);
    t->w->asked = false;
    k->n_asked--;
    pthread_cond_broadcast(&k->news);
    pthread_mutex_unlock(&k->lock); /* nothing of the keeper is ours from here on */
    return NULL;
}

/* Under the lock. */
static void begin(struct keeper *k, struct watched *w, const struct node_row *row, uint64_t now_ms)
{
    struct task *t = xnew(struct task);
    pthread_attr_t attr;
    pthread_t thread;

    *t = (struct task){.k = k, .w = w, .row = *row};
    t->row.told = NULL; /* what it said before does not matter */
    ASSERT(pthread_attr_init(&attr) == 0);
    ASSERT(pthread_attr_setstacksize(&attr, STACK_SIZE) == 0);
    ASSERT(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) == 0);
    w->next_ms = now_ms + LEASE_RENEW_MS;
    w->asked = true;
    k->n_asked++;
    if (pthread_create(&thread, &attr, ask_one, t) != 0) { /* the next round tries again */
        w->asked = false;
        w->next_ms = now_ms;
        k->n_asked--;
        task_free(t);
    }
    pthread_attr_destroy(&attr);
}

/* ---- a round ---- */

/* Under the lock. */
static struct watched *watched_of(struct keeper *k, const char *name)
{
    for (size_t i = 0; i < k->n; i++) {
        if (str_eq(k->nodes[i]->name, name)) {
            return k->nodes[i];
        }
    }
    k->nodes = xrealloc(k->nodes, (k->n + 1) * sizeof(struct watched *));
    k->nodes[k->n] = xnew(struct watched);
    *k->nodes[k->n] = (struct watched){0};
    snprintf(k->nodes[k->n]->name, SANDBOX_NODE_SIZE, "%s", name);
    return k->nodes[k->n++];
}

struct round {
    struct keeper *k;
    uint64_t now_ms;
    struct node_row *over; /* owned: leases that are, as far as we have seen */
    size_t n_over;
};

static void look_at_lease(struct round *round, struct watched *w, const struct node_row *row)
{
    bool still = lease_watch_look(&w->watch, row->generation, row->renewals, round->now_ms);

    if (still && row->leased && !row->lost && row->left_ms <= 0 && row->renewals > 0) {
        round->over = xrealloc(round->over, (round->n_over + 1) * sizeof(*round->over));
        round->over[round->n_over] = *row;
        round->over[round->n_over++].told = NULL;
    }
}

static int look_at(void *ctx, const struct node_row *row)
{
    struct round *round = ctx;
    struct keeper *k = round->k;
    struct watched *w;

    if (row->wanted == NODE_REMOVED) {
        return 0;
    }
    pthread_mutex_lock(&k->lock);
    w = watched_of(k, row->name);
    w->listed = true;
    look_at_lease(round, w, row);
    if (!w->asked && round->now_ms >= w->next_ms &&
        (row->lost || row->told_ago_ms < 0 || row->told_ago_ms >= k->fresh_ms)) {
        begin(k, w, row, round->now_ms);
    }
    pthread_mutex_unlock(&k->lock);
    return 0;
}

/* Those that no row names any more. */
static void forget(struct keeper *k)
{
    size_t kept = 0;

    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n; i++) {
        if (k->nodes[i]->listed || k->nodes[i]->asked) {
            k->nodes[i]->listed = false;
            k->nodes[kept++] = k->nodes[i];
        } else {
            free(k->nodes[i]);
        }
    }
    k->n = kept;
    pthread_mutex_unlock(&k->lock);
}

static void lose(struct keeper *k, const struct node_row *row)
{
    struct err e = {0};
    int64_t generation = 0;
    int r = db_node_lose(k->c->db, row->name, row->renewals, &generation, &e);

    if (r < 0) {
        log_warn(NULL, "cannot say that node '%s' is lost, retrying: %s", row->name, e.msg);
    } else if (r == 1) {
        log_error(
            NULL,
            "node '%s' is lost: its lease is over and nobody has heard of it for %d s; what it "
            "has stored goes on elsewhere",
            row->name, LEASE_MS / 1000);
    }
}

int keeper_round(struct keeper *k, uint64_t now_ms, struct err *e)
{
    struct round round = {.k = k, .now_ms = now_ms};
    int r = db_node_list(k->c->db, look_at, &round, e);

    for (size_t i = 0; i < round.n_over && r == 0; i++) {
        lose(k, &round.over[i]);
    }
    free(round.over);
    if (r == 0) {
        forget(k);
    }
    return r;
}

/* ---- the thread ---- */

static bool wait_for_round(struct keeper *k)
{
    uint64_t until_ns = deadline_in_ms(ROUND_MS);
    bool stop;

    pthread_mutex_lock(&k->lock);
    while (!k->stop && cond_wait_until(&k->news, &k->lock, until_ns) == 0) {
    }
    stop = k->stop;
    pthread_mutex_unlock(&k->lock);
    return !stop;
}

static void *rounds(void *arg)
{
    struct keeper *k = arg;
    bool failed = false;

    do {
        struct err e = {0};
        bool fails = keeper_round(k, clock_now_ns() / NS_PER_MS, &e) < 0;

        if (fails && !failed) {
            log_error(NULL, "the leases of nodes are not renewed until this is repaired: %s",
                      e.msg);
        }
        failed = fails;
    } while (wait_for_round(k));
    return NULL;
}

struct keeper *keeper_new(struct control *c, int64_t fresh_ms)
{
    struct keeper *k = xnew(struct keeper);

    *k = (struct keeper){.c = c, .fresh_ms = fresh_ms};
    pthread_mutex_init(&k->lock, NULL);
    cond_init(&k->news);
    return k;
}

void keeper_start(struct keeper *k)
{
    int r = pthread_create(&k->thread, NULL, rounds, k);

    ASSERT(r == 0); /* like memory: restart is the way out */
    k->running = true;
}

void keeper_stop(struct keeper *k)
{
    if (!k->running) {
        return;
    }
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_broadcast(&k->news);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->thread, NULL);
    k->running = false;
}

void keeper_settle(struct keeper *k)
{
    pthread_mutex_lock(&k->lock);
    while (k->n_asked > 0) {
        pthread_cond_wait(&k->news, &k->lock);
    }
    pthread_mutex_unlock(&k->lock);
}

void keeper_free(struct keeper *k)
{
    if (!k) {
        return;
    }
    keeper_stop(k);
    keeper_settle(k);
    for (size_t i = 0; i < k->n; i++) {
        free(k->nodes[i]);
    }
    free(k->nodes);
    pthread_cond_destroy(&k->news);
    pthread_mutex_destroy(&k->lock);
    free(k);
}
