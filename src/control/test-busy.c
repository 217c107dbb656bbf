/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/test.h"
#include "control/busy.h"

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void one_hold_per_sandbox(void)
{
    CLEANUP(busy_freep) struct busy *busy = busy_new();
    struct busy_hold *a = NULL;
    struct busy_hold *other = NULL;
    struct err e = {0};

    CHECK_INT(busy_enter(busy, "sa", 0, DEADLINE_NEVER, &a, &e), 0);
    CHECK(busy_try_enter(busy, "sa") == NULL);
    CHECK_INT(busy_enter(busy, "sa", 0, 1, &other, &e), -ETIMEDOUT); /* a deadline long past */
    CHECK_STR(e.reason, "busy");
    other = busy_try_enter(busy, "sb");
    CHECK(other != NULL);
    busy_leave(other);
    busy_leave(a);
    a = busy_try_enter(busy, "sa");
    CHECK(a != NULL);
    busy_leave(a);
}

struct waiter {
    struct busy *busy; /* borrowed: joined before it goes */
    unsigned flags;
    int result;
};

static void *wait_and_leave(void *arg)
{
    struct waiter *w = arg;
    struct busy_hold *hold = NULL;

    w->result = busy_enter(w->busy, "sa", w->flags, deadline_in_ms(30000), &hold, NULL);
    busy_leave(hold);
    return NULL;
}

static void cancel_reaches_the_holder_and_the_waiter_follows(void)
{
    CLEANUP(busy_freep) struct busy *busy = busy_new();
    struct waiter w = {.busy = busy, .flags = BUSY_CANCEL_HOLDER};
    struct busy_hold *a = busy_try_enter(busy, "sa");
    struct pollfd p = {.fd = busy_cancel_fd(a), .events = POLLIN};
    pthread_t thread;

    CHECK(!readable(busy_cancel_fd(a)));
    CHECK(!busy_cancelled(a));
    REQUIRE(pthread_create(&thread, NULL, wait_and_leave, &w) == 0);
    CHECK_INT(poll(&p, 1, 30000), 1);
    CHECK(busy_cancelled(a));
    busy_leave(a);
    pthread_join(thread, NULL);
    CHECK_INT(w.result, 0);
}

static void many_take_turns(void)
{
    CLEANUP(busy_freep) struct busy *busy = busy_new();
    struct waiter w[8];
    pthread_t threads[8];

    for (int i = 0; i < 8; i++) {
        w[i] = (struct waiter){.busy = busy};
        REQUIRE(pthread_create(&threads[i], NULL, wait_and_leave, &w[i]) == 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(w[i].result, 0);
    }
}

TEST_MAIN(T(one_hold_per_sandbox), T(cancel_reaches_the_holder_and_the_waiter_follows),
          T(many_take_turns))
