/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/recovery.h"

#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "sandbox/history.h"
#include "sandbox/rollback.h"
#include "sandbox/tenure.h"

#include <errno.h>

/* Those that an operation held are looked at again. */
#define AGAIN_MS 1000

struct recovery {
    struct node *node; /* borrowed: lives longer */
    pthread_t threads[RECOVERY_AT_ONCE];
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t news;
    uint64_t wakes; /* grows with each news; a thread that has seen fewer has a pass to do */
    bool stop;
};

static bool may_try(struct resident *res)
{
    uint64_t now_ms = clock_wall_ms();

    if (now_ms - res->recovery_since_ms > RECOVERY_WINDOW_MS) {
        res->recovery_since_ms = now_ms;
        res->recovery_tries = 0;
    }
    return res->recovery_tries++ < RECOVERY_TRIES;
}

/* Memory that cannot be resumed, damaged perhaps, is no reason to stay away: its disk is there. */
static void recover(struct resident *res)
{
    bool memory = res->record.policy.recover == POLICY_RECOVER_MEMORY;
    struct err e = {0};
    int r = memory ? rollback_recover(res, &e) : rollback_recover_disk(res, &e);

    if (r < 0) {
        history_add(res, "recovery_failed", "%s", e.msg);
    }
    if (r < 0 && memory && rollback_recover_disk(res, &e) < 0) {
        history_add(res, "recovery_failed", "from its disk: %s", e.msg);
    }
}

/* False: an operation holds it. Nobody waits for that here: a guest may make it last, and the others wait, too. */
static bool bring_back(struct resident *res)
{
    if (pthread_mutex_trylock(&res->op) != 0) {
        return false;
    }
    if (!res->gone && res->wants_recovery && resident_state(res) == SANDBOX_STATE_FAILED) {
        res->wants_recovery = false;
        if (res->record.policy.recover == POLICY_RECOVER_NONE) {
            history_add(res, "left_failed", "its policy wants no recovery");
        } else if (!may_try(res)) {
            history_add(res, "given_up", "it ended %d times within %u minutes", RECOVERY_TRIES,
                        RECOVERY_WINDOW_MS / 60000);
        } else {
            recover(res);
        }
    }
    pthread_mutex_unlock(&res->op);
    return true;
}

/*
 * False: some could not be looked at. All threads walk the same list; who finds a sandbox held, by another of us or by
 * an operation, goes on with the next one.
 */
static bool pass(struct node *node)
{
    bool all = true;

    if (tenure_fenced(node->tenure)) { /* nothing can start now; a moment later again */
        return false;
    }

    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        all = bring_back(res) && all;
    }
    return all;
}

/* Waits for news, or, when there may still be something to do, for a moment. True: time for a pass. */
static bool wait_for_news(struct recovery *r, uint64_t seen, bool again)
{
    if (!again) {
        pthread_cond_wait(&r->news, &r->lock);
        return r->wakes != seen;
    }
    return cond_wait_until(&r->news, &r->lock, deadline_in_ms(AGAIN_MS)) < 0 || r->wakes != seen;
}

static void *recovery_main(void *arg)
{
    struct recovery *r = arg;
    bool again = false;
    uint64_t seen = 0;

    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        if (r->wakes == seen && !wait_for_news(r, seen, again)) {
            continue;
        }
        seen = r->wakes;
        pthread_mutex_unlock(&r->lock);
        again = !pass(r->node);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

struct recovery *recovery_start(struct node *node)
{
    struct recovery *r = xnew(struct recovery);

    r->node = node;
    r->wakes = 1; /* the start may have found some */
    pthread_mutex_init(&r->lock, NULL);
    cond_init(&r->news);
    for (unsigned i = 0; i < RECOVERY_AT_ONCE; i++) {
        ASSERT(pthread_create(&r->threads[i], NULL, recovery_main, r) == 0);
    }
    return r;
}

void recovery_wake(struct recovery *recovery)
{
    pthread_mutex_lock(&recovery->lock);
    recovery->wakes++;
    pthread_cond_broadcast(&recovery->news);
    pthread_mutex_unlock(&recovery->lock);
}

void recovery_stop(struct recovery *recovery)
{
    pthread_mutex_lock(&recovery->lock);
    recovery->stop = true;
    pthread_cond_broadcast(&recovery->news);
    pthread_mutex_unlock(&recovery->lock);
    for (unsigned i = 0; i < RECOVERY_AT_ONCE; i++) {
        pthread_join(recovery->threads[i], NULL);
    }
    pthread_cond_destroy(&recovery->news);
    pthread_mutex_destroy(&recovery->lock);
    free(recovery);
}
