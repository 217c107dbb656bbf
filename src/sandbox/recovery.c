/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/recovery.h"

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/history.h"
#include "sandbox/rollback.h"

#include <errno.h>
#include <time.h>

/* Those that an operation held are looked at again. */
#define AGAIN_S 1

struct recovery {
    struct node *node; /* borrowed: lives longer */
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t news;
    bool woken;
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

/* False: an operation holds it. Nobody waits for that here: a guest may make it last, and the others wait, too. */
static bool bring_back(struct resident *res)
{
    struct err e = {0};

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
        } else if (rollback_recover(res, &e) < 0) {
            history_add(res, "recovery_failed", "%s", e.msg);
        }
    }
    pthread_mutex_unlock(&res->op);
    return true;
}

/* False: some could not be looked at. */
static bool pass(struct node *node)
{
    bool all = true;

    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        all = bring_back(res) && all;
    }
    return all;
}

static void wait_for_news(struct recovery *r, bool again)
{
    struct timespec until;

    if (!again) {
        pthread_cond_wait(&r->news, &r->lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += AGAIN_S;
    if (pthread_cond_timedwait(&r->news, &r->lock, &until) == ETIMEDOUT) {
        r->woken = true;
    }
}

static void *recovery_main(void *arg)
{
    struct recovery *r = arg;
    bool again = false;

    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        if (!r->woken) {
            wait_for_news(r, again);
            continue;
        }
        r->woken = false;
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
    r->woken = true; /* the start may have found some */
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->news, NULL);
    ASSERT(pthread_create(&r->thread, NULL, recovery_main, r) == 0);
    return r;
}

void recovery_wake(struct recovery *recovery)
{
    pthread_mutex_lock(&recovery->lock);
    recovery->woken = true;
    pthread_cond_signal(&recovery->news);
    pthread_mutex_unlock(&recovery->lock);
}

void recovery_stop(struct recovery *recovery)
{
    pthread_mutex_lock(&recovery->lock);
    recovery->stop = true;
    pthread_cond_signal(&recovery->news);
    pthread_mutex_unlock(&recovery->lock);
    pthread_join(recovery->thread, NULL);
    pthread_cond_destroy(&recovery->news);
    pthread_mutex_destroy(&recovery->lock);
    free(recovery);
}
