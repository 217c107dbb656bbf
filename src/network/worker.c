/* SPDX-License-Identifier: Apache-2.0 */
#include "network/worker.h"

#include "base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Each has up to 64 KiB in the kernel once it was filled, and none while it is empty. */
#define PIPES_KEPT 64u

struct job {
    struct job *next; /* owned by the list */
    loop_fn fn;
    void *arg;
    bool *done; /* borrowed: of a call that waits; NULL: nobody does */
};

struct worker {
    struct loop *loop; /* owned */
    pthread_t thread;
    int event_fd; /* owned: something is in jobs */
    struct loop_io *event_io;
    struct loop_timer *tick;
    bool ticking;
    worker_tick_fn on_tick;
    void *tick_arg;
    struct worker_pipe pipes[PIPES_KEPT]; /* owned */
    size_t n_pipes;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct job *jobs; /* owned: in order */
    struct job **jobs_end;
};

static struct job *next_job(struct worker *w)
{
    struct job *job;

    pthread_mutex_lock(&w->lock);
    job = w->jobs;
    if (job) {
        w->jobs = job->next;
        w->jobs_end = w->jobs ? w->jobs_end : &w->jobs;
    }
    pthread_mutex_unlock(&w->lock);
    return job;
}

static void on_event(void *arg, uint32_t events)
{
    struct worker *w = arg;
    struct job *job;
    uint64_t count;

    (void)events;
    if (read(w->event_fd, &count, sizeof(count)) < 0) {
        return;
    }
    while ((job = next_job(w))) {
        job->fn(job->arg);
        if (job->done) {
            pthread_mutex_lock(&w->lock);
            *job->done = true;
            pthread_cond_broadcast(&w->changed);
            pthread_mutex_unlock(&w->lock);
        }
        free(job);
    }
}

static void on_tick(void *arg)
{
    struct worker *w = arg;

    w->ticking = false;
    if (w->on_tick(w->tick_arg, clock_now_ns())) {
        worker_needs_tick(w);
    }
}

void worker_needs_tick(struct worker *w)
{
    if (!w->ticking) {
        w->ticking = true;
        loop_timer_set(w->tick, deadline_in_ms(WORKER_TICK_MS));
    }
}

static void *run(void *arg)
{
    struct worker *w = arg;

    loop_run(w->loop);
    return NULL;
}

struct worker *worker_new(worker_tick_fn tick_fn, void *arg)
{
    struct worker *w = xnew(struct worker);

    w->loop = loop_new();
    w->on_tick = tick_fn;
    w->tick_arg = arg;
    w->jobs_end = &w->jobs;
    w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT(w->event_fd >= 0);
    ASSERT(pthread_mutex_init(&w->lock, NULL) == 0 && pthread_cond_init(&w->changed, NULL) == 0);
    w->event_io = loop_add_io(w->loop, w->event_fd, EPOLLIN, on_event, w);
    w->tick = loop_add_timer(w->loop, on_tick, w);
    ASSERT(pthread_create(&w->thread, NULL, run, w) == 0);
    return w;
}

static void stop(void *arg)
{
    struct worker *w = arg;

    loop_stop(w->loop);
}

void worker_free(struct worker *w)
{
    if (!w) {
        return;
    }
    worker_call(w, stop, w);
    pthread_join(w->thread, NULL);
    for (size_t i = 0; i < w->n_pipes; i++) {
        fd_close(w->pipes[i].read_fd);
        fd_close(w->pipes[i].write_fd);
    }
    loop_io_free(w->event_io);
    loop_timer_free(w->tick);
    loop_free(w->loop);
    fd_close(w->event_fd);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

struct loop *worker_loop(struct worker *w)
{
    return w->loop;
}

static void add_job(struct worker *w, struct job job)
{
    struct job *copy = xmemdup(&job, sizeof(job));
    uint64_t one = 1;

    pthread_mutex_lock(&w->lock);
    *w->jobs_end = copy;
    w->jobs_end = &copy->next;
    pthread_mutex_unlock(&w->lock);
    ASSERT(write(w->event_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
}

void worker_post(struct worker *w, loop_fn fn, void *arg)
{
    add_job(w, (struct job){.fn = fn, .arg = arg});
}

void worker_call(struct worker *w, loop_fn fn, void *arg)
{
    bool done = false;

    add_job(w, (struct job){.fn = fn, .arg = arg, .done = &done});
    pthread_mutex_lock(&w->lock);
    while (!done) {
        pthread_cond_wait(&w->changed, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
}

int worker_pipe_take(struct worker *w, struct worker_pipe *ret)
{
    int fds[2];

    if (w->n_pipes > 0) {
        *ret = w->pipes[--w->n_pipes];
        return 0;
    }
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0) {
        return -errno;
    }
    *ret = (struct worker_pipe){fds[0], fds[1]};
    return 0;
}

void worker_pipe_give(struct worker *w, struct worker_pipe *p, bool empty)
{
    if (p->read_fd < 0) {
        return;
    }
    if (empty && w->n_pipes < PIPES_KEPT) {
        w->pipes[w->n_pipes++] = *p;
    } else {
        fd_close(p->read_fd);
        fd_close(p->write_fd);
    }
    *p = (struct worker_pipe){FD_NONE, FD_NONE};
}
