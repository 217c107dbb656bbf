/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/test.h"
#include "volume/turns.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 8
#define ROUNDS 200

static void one_sandbox_is_one_after_the_other(void)
{
    struct turn first;
    struct turn second;
    struct turn other;
    struct err e = {0};

    CHECK_INT(turn_take(&first, "a", DEADLINE_NEVER, &e), 0);
    CHECK_INT(turn_take(&second, "a", deadline_in_ms(20), &e), -EBUSY);
    CHECK_STR(e.reason, "busy");
    CHECK_INT(turn_take(&other, "b", deadline_in_ms(20), &e), 0);
    turn_give(&first);
    CHECK_INT(turn_take(&second, "a", deadline_in_ms(20), &e), 0);
    turn_give(&other);
    turn_give(&second);
}

static atomic_int inside;
static atomic_int seen_twice;

static void *take_and_give(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct turn t;
        struct err e = {0};

        CHECK_INT(turn_take(&t, arg, deadline_in_ms(60000), &e), 0);
        if (atomic_fetch_add(&inside, 1) > 0) {
            atomic_fetch_add(&seen_twice, 1);
        }
        atomic_fetch_sub(&inside, 1);
        turn_give(&t);
    }
    return NULL;
}

static void nobody_is_left_waiting(void)
{
    static char name[] = "a";
    pthread_t threads[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        ASSERT(pthread_create(&threads[i], NULL, take_and_give, name) == 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_INT(seen_twice, 0);
}

TEST_MAIN(T(one_sandbox_is_one_after_the_other), T(nobody_is_left_waiting))
