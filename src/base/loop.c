/* SPDX-License-Identifier: Apache-2.0 */
#include "base/loop.h"

#include "base/clock.h"

#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_PER_ROUND 64

struct loop_io {
    struct loop *loop;    /* borrowed: lives longer */
    struct loop_io *next; /* owned: dead handles wait here */
    int fd;               /* borrowed: the caller's */
    uint32_t events;
    bool dead;
    bool registered;
    loop_io_fn fn;
    void *arg; /* borrowed: the caller's */
};

struct loop_timer {
    struct loop *loop;       /* borrowed: lives longer */
    struct loop_timer *next; /* in loop->timers or loop->dead_timers */
    uint64_t deadline_ns;
    bool dead;
    loop_fn fn;
    void *arg; /* borrowed: the caller's */
};

struct deferred {
    struct deferred *next; /* owned */
    loop_fn fn;
    void *arg;
};

struct loop {
    int epoll_fd; /* owned */
    int wake_fd;  /* owned */
    bool stopped;
    struct loop_io *dead_ios;  /* owned */
    struct loop_timer *timers; /* unordered: a daemon has a few dozen */
    struct deferred *deferred; /* owned: in order */
    struct deferred **deferred_end;
};

struct loop *loop_new(void)
{
    struct loop *loop = xnew(struct loop);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};

    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT(loop->epoll_fd >= 0 && loop->wake_fd >= 0);
    ASSERT(epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &ev) == 0);
    loop->deferred_end = &loop->deferred;
    return loop;
}

static void free_dead(struct loop *loop)
{
    while (loop->dead_ios) {
        struct loop_io *io = loop->dead_ios;

        loop->dead_ios = io->next;
        free(io);
    }
    for (struct loop_timer **at = &loop->timers; *at;) {
        struct loop_timer *timer = *at;

        if (timer->dead) {
            *at = timer->next;
            free(timer);
        } else {
            at = &timer->next;
        }
    }
}

void loop_free(struct loop *loop)
{
    if (!loop) {
        return;
    }
    free_dead(loop);
    ASSERT(!loop->timers);
    while (loop->deferred) {
        struct deferred *d = loop->deferred;

        loop->deferred = d->next;
        free(d);
    }
    fd_close(loop->epoll_fd);
    fd_close(loop->wake_fd);
    free(loop);
}

void loop_wake(struct loop *loop)
{
    uint64_t one = 1;

    if (write(loop->wake_fd, &one, sizeof(one)) < 0) {
        return; /* EAGAIN: it is awake already */
    }
}

void loop_stop(struct loop *loop)
{
    loop->stopped = true;
    loop_wake(loop);
}

void loop_defer(struct loop *loop, loop_fn fn, void *arg)
{
    struct deferred *d = xnew(struct deferred);

    d->fn = fn;
    d->arg = arg;
    *loop->deferred_end = d;
    loop->deferred_end = &d->next;
}

static void run_deferred(struct loop *loop)
{
    while (loop->deferred) {
        struct deferred *d = loop->deferred;

        loop->deferred = d->next;
        if (!loop->deferred) {
            loop->deferred_end = &loop->deferred;
        }
        d->fn(d->arg);
        free(d);
    }
}

static uint64_t nearest_deadline(const struct loop *loop, uint64_t deadline_ns)
{
    for (const struct loop_timer *t = loop->timers; t; t = t->next) {
        if (!t->dead) {
            deadline_ns = MIN(deadline_ns, t->deadline_ns);
        }
    }
    return deadline_ns;
}

static void fire_timers(struct loop *loop)
{
    uint64_t now = clock_now_ns();

    for (struct loop_timer *t = loop->timers; t; t = t->next) {
        if (!t->dead && t->deadline_ns <= now) {
            t->deadline_ns = DEADLINE_NEVER;
            t->fn(t->arg);
        }
    }
}

void loop_run_once(struct loop *loop, uint64_t deadline_ns)
{
    struct epoll_event events[EVENTS_PER_ROUND];
    int n;

    run_deferred(loop);
    n = epoll_wait(loop->epoll_fd, events, EVENTS_PER_ROUND,
                   loop->stopped ? 0 : deadline_poll_ms(nearest_deadline(loop, deadline_ns)));
    ASSERT(n >= 0 || errno == EINTR);
    for (int i = 0; i < n; i++) {
        struct loop_io *io = events[i].data.ptr;

        if (!io) {
            uint64_t count;

            if (read(loop->wake_fd, &count, sizeof(count)) < 0) {
                continue; /* another round took it */
            }
        } else if (!io->dead && io->registered) {
            io->fn(io->arg, events[i].events);
        }
    }
    fire_timers(loop);
    run_deferred(loop);
    free_dead(loop);
}

void loop_run(struct loop *loop)
{
    while (!loop->stopped) {
        loop_run_once(loop, DEADLINE_NEVER);
    }
    loop->stopped = false;
}

struct loop_io *loop_add_io(struct loop *loop, int fd, uint32_t events, loop_io_fn fn, void *arg)
{
    struct loop_io *io = xnew(struct loop_io);

    ASSERT(fd >= 0);
    io->loop = loop;
    io->fd = fd;
    io->fn = fn;
    io->arg = arg;
    loop_io_set(io, events);
    return io;
}

void loop_io_set(struct loop_io *io, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = io};

    if (io->registered && io->events == events) {
        return;
    }
    /* With nothing asked for it is taken out: epoll would still report errors, round after round. */
    if (events == 0) {
        if (io->registered) {
            epoll_ctl(io->loop->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
        }
        io->registered = false;
    } else {
        ASSERT(epoll_ctl(io->loop->epoll_fd, io->registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, io->fd,
                         &ev) == 0);
        io->registered = true;
    }
    io->events = events;
}

void loop_io_free(struct loop_io *io)
{
    if (!io || io->dead) {
        return;
    }
    loop_io_set(io, 0);
    io->dead = true;
    io->next = io->loop->dead_ios;
    io->loop->dead_ios = io;
}

struct loop_timer *loop_add_timer(struct loop *loop, loop_fn fn, void *arg)
{
    struct loop_timer *timer = xnew(struct loop_timer);

    timer->loop = loop;
    timer->fn = fn;
    timer->arg = arg;
    timer->deadline_ns = DEADLINE_NEVER;
    timer->next = loop->timers;
    loop->timers = timer;
    return timer;
}

void loop_timer_set(struct loop_timer *timer, uint64_t deadline_ns)
{
    timer->deadline_ns = deadline_ns;
}

void loop_timer_free(struct loop_timer *timer)
{
    if (timer) {
        timer->dead = true;
    }
}
