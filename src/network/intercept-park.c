/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections whose guest is silent need no thread: its stack, and what the allocator keeps for it, would be most of what they
 * cost. One thread waits for all of them, and gives each a thread again once a byte comes, it is to end, or it has been silent
 * for too long.
 */
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "network/intercept-internal.h"

/* The allocator keeps what lies between things that are in use; so long after something was parked it is told to give it back. */
#define TRIM_AFTER_MS 1000u

/* The C library keeps stacks of threads that have ended, with 16 KiB of each; a handshake goes deeper than what is needed of them. */
#define STACK_KEEP 4096u

static void trim_stack(void)
{
    pthread_attr_t attr;
    void *low = NULL;
    size_t size = 0;
    char here;
    uintptr_t end = ((uintptr_t)&here - STACK_KEEP) & ~(uintptr_t)(STACK_KEEP - 1);

    if (pthread_getattr_np(pthread_self(), &attr) != 0) {
        return;
    }
    if (pthread_attr_getstack(&attr, &low, &size) == 0 && end > (uintptr_t)low) {
        IGNORE_RESULT(madvise(low, end - (uintptr_t)low, MADV_DONTNEED)); /* it only saves memory */
    }
    pthread_attr_destroy(&attr);
}

static int watch(const struct intercept *in, int fd, struct intercept_conn *c)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};

    return epoll_ctl(in->park_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static void unwatch(const struct intercept *in, int fd)
{
    IGNORE_RESULT(epoll_ctl(in->park_fd, EPOLL_CTL_DEL, fd, NULL)); /* it is there, or never was */
}

static void wake(const struct intercept *in)
{
    IGNORE_RESULT(eventfd_write(in->park_wake_fd, 1)); /* a full counter wakes as well */
}

bool intercept_park(struct intercept_conn *c)
{
    struct intercept *in = c->in;
    bool news;

    pthread_mutex_lock(&in->lock);
    c->parked = true; /* also if not: the thread then waits for a request as one that was */
    if (watch(in, c->guest.fd, c) < 0 || watch(in, c->stop_fd, c) < 0) {
        unwatch(in, c->guest.fd);
        pthread_mutex_unlock(&in->lock);
        return false;
    }
    news = TAILQ_EMPTY(&in->parked) || in->trim_at_ns == DEADLINE_NEVER;
    c->parked_until_ns = deadline_in_ms(INTERCEPT_IDLE_MS - INTERCEPT_SPARE_MS);
    TAILQ_INSERT_TAIL(&in->parked, c, park_entry); /* all wait for the same time */
    if (in->trim_at_ns == DEADLINE_NEVER) {
        in->trim_at_ns = deadline_in_ms(TRIM_AFTER_MS);
    }
    pthread_mutex_unlock(&in->lock);
    if (news) {
        wake(in);
    }
    trim_stack();
    return true;
}

static void unpark(struct intercept *in, struct intercept_conn *c)
{
    int r;

    pthread_mutex_lock(&in->lock);
    TAILQ_REMOVE(&in->parked, c, park_entry);
    unwatch(in, c->guest.fd);
    unwatch(in, c->stop_fd);
    r = intercept_start_thread(c);
    pthread_mutex_unlock(&in->lock);
    if (r < 0) {
        intercept_conn_end(c);
    }
}

/* Ends those that have been silent for too long. When to look again. */
static uint64_t end_the_oldest(struct intercept *in)
{
    uint64_t now = clock_now_ns();
    uint64_t next = DEADLINE_NEVER;
    struct intercept_conn *c;

    pthread_mutex_lock(&in->lock);
    TAILQ_FOREACH(c, &in->parked, park_entry)
    {
        if (c->parked_until_ns > now) {
            next = c->parked_until_ns;
            break;
        }
        c->parked_until_ns = DEADLINE_NEVER; /* its eventfd brings it out */
        IGNORE_RESULT(eventfd_write(c->stop_fd, 1));
    }
    if (in->trim_at_ns <= now) {
        in->trim_at_ns = DEADLINE_NEVER;
        pthread_mutex_unlock(&in->lock);
        malloc_trim(0);
        return now; /* the list may be another one by now */
    }
    next = MIN(next, in->trim_at_ns);
    pthread_mutex_unlock(&in->lock);
    return next;
}

static void *park_run(void *arg)
{
    struct intercept *in = arg;
    uint64_t next = DEADLINE_NEVER;

    while (!__atomic_load_n(&in->park_over, __ATOMIC_ACQUIRE)) {
        struct epoll_event event; /* one at a time: what it is of may be gone after the next */
        eventfd_t count;
        int n = epoll_wait(in->park_fd, &event, 1, deadline_poll_ms(next));

        if (n > 0 && event.data.ptr) {
            unpark(in, event.data.ptr);
        } else if (n > 0) {
            IGNORE_RESULT(eventfd_read(in->park_wake_fd, &count)); /* that it woke us is all */
        }
        next = end_the_oldest(in);
    }
    return NULL;
}

int intercept_park_start(struct intercept *in, struct err *e)
{
    int r;

    TAILQ_INIT(&in->parked);
    in->trim_at_ns = DEADLINE_NEVER;
    in->park_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    in->park_fd = epoll_create1(EPOLL_CLOEXEC);
    if (in->park_wake_fd < 0 || in->park_fd < 0) {
        return err_wrap(e, -errno, "waiting for connections that are idle");
    }
    r = watch(in, in->park_wake_fd, /* no connection */ NULL);
    if (r == 0) {
        r = -pthread_create(&in->parker, NULL, park_run, in);
        in->parker = r < 0 ? 0 : in->parker;
    }
    return r < 0 ? err_wrap(e, r, "waiting for connections that are idle") : 0;
}

void intercept_park_stop(struct intercept *in)
{
    if (in->parker) {
        __atomic_store_n(&in->park_over, true, __ATOMIC_RELEASE);
        wake(in);
        pthread_join(in->parker, NULL);
        in->parker = 0;
    }
    in->park_fd = fd_close(in->park_fd);
    in->park_wake_fd = fd_close(in->park_wake_fd);
}
