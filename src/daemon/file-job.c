/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-job.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "daemon/file-spawn.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Packets handled per turn of the loop, so that one chatty worker does not keep the others waiting.
 */
#define PACKETS_PER_TURN 16
/* How long a process may take from its last word, or from SIGKILL, to its end. */
#define DYING_MS 10000

enum job_class {
    CLASS_SMALL,
    CLASS_TRANSFER,
    CLASS_WATCH,
    CLASS_COUNT_
};

static const struct {
    unsigned slots;
    unsigned queue;
} classes[CLASS_COUNT_] = {
    [CLASS_SMALL] = {16, 512},
    [CLASS_TRANSFER] = {32, 128},
    [CLASS_WATCH] = {32, 0},
};

#define KEEPS_GOING (1u << 0) /* finished although nobody waits for the answer */
#define STEPWISE (1u << 1)    /* the deadline is for each step, see file-job.h */

static const struct {
    enum job_class class;
    unsigned seconds;
    unsigned flags;
} kinds[FILE_OP_COUNT_] = {
    [FILE_OP_READ] = {CLASS_TRANSFER, 60, STEPWISE},
    [FILE_OP_WRITE] = {CLASS_TRANSFER, 120, STEPWISE},
    [FILE_OP_STAT] = {CLASS_SMALL, 20, 0},
    [FILE_OP_LIST] = {CLASS_SMALL, 60, 0},
    [FILE_OP_WATCH] = {CLASS_WATCH, 60, STEPWISE},
    [FILE_OP_MKDIR] = {CLASS_SMALL, 20, KEEPS_GOING},
    [FILE_OP_MOVE] = {CLASS_SMALL, 60, KEEPS_GOING},
    [FILE_OP_REMOVE] = {CLASS_SMALL, 900, 0},
    [FILE_OP_CHMOD] = {CLASS_SMALL, 20, KEEPS_GOING},
    [FILE_OP_CHOWN] = {CLASS_SMALL, 20, KEEPS_GOING},
    [FILE_OP_SYMLINK] = {CLASS_SMALL, 20, KEEPS_GOING},
};

struct worker;

struct file_job {
    struct file_pool *pool; /* borrowed: lives longer */
    struct file_job *next;  /* borrowed: in pool's list */
    struct file_request req;
    struct workload_user user;
    const struct file_job_events *events; /* static */
    void *arg;                            /* borrowed */
    struct worker *worker;                /* borrowed; NULL: queued, or reaped */
    int control_fd;                       /* owned; FD_NONE before the start */
    int data_fd;                          /* owned; FD_NONE when there is none, or it has ended */
    struct loop_io *control_io;           /* owned */
    struct loop_io *data_io;              /* owned */
    struct loop_timer *timer;             /* owned */
    struct file_head head;
    uint64_t n_bytes; /* of the body, so far */
    bool has_head;
    bool complete; /* END was said */
    bool paused;
    bool committed;
    bool running; /* has a slot */
};

/*
 * A forked process, from the fork until it is reaped. Without a job it is exiting, was killed, or
 * may finish alone until its grace is over. When it is still there then, it is killed; when that
 * does not help either, it counts as stuck.
 */
struct worker {
    struct file_pool *pool;   /* borrowed: lives longer */
    struct file_job *job;     /* borrowed; NULL: it is on its own */
    struct worker *next;      /* borrowed: in pool's list */
    struct loop_timer *timer; /* owned: set when it is on its own */
    pid_t pid;
    bool killed;
    bool stuck;
};

struct file_pool {
    struct loop *loop;         /* borrowed */
    struct children *children; /* borrowed */
    struct workload *workload; /* borrowed */
    struct file_job *jobs;     /* owned: oldest first */
    struct worker *workers;    /* owned */
    unsigned n_running[CLASS_COUNT_];
    unsigned n_queued[CLASS_COUNT_];
    unsigned n_stuck;
    uint64_t n_started;
    uint64_t n_timed_out;
    uint64_t max_ms;          /* of all deadlines; 0: none */
    struct loop_timer *sweep; /* owned: set when there is something to start or to end */
};

/* ---- the end of workers and jobs ---- */

static void pool_wants_sweep(struct file_pool *pool)
{
    loop_timer_set(pool->sweep, /* now */ 0);
}

static void worker_free(struct worker *w)
{
    for (struct worker **p = &w->pool->workers; *p; p = &(*p)->next) {
        if (*p == w) {
            *p = w->next;
            break;
        }
    }
    w->pool->n_stuck -= w->stuck;
    loop_timer_free(w->timer);
    free(w);
}

/* How it ended does not count, but what it said; the end of its socket tells the rest. */
static void worker_reaped(void *arg, const struct child_exit *x)
{
    struct worker *w = arg;

    (void)x;
    if (w->job) {
        w->job->worker = NULL;
    }
    worker_free(w);
}

static uint64_t pool_deadline(const struct file_pool *pool, uint64_t ms)
{
    return deadline_in_ms(pool->max_ms > 0 ? MIN(pool->max_ms, ms) : ms);
}

static void worker_kill(struct worker *w)
{
    kill(w->pid, SIGKILL);
    w->killed = true;
    loop_timer_set(w->timer, pool_deadline(w->pool, DYING_MS));
}

static void worker_deadline(void *arg)
{
    struct worker *w = arg;

    if (!w->killed) {
        worker_kill(w);
        return;
    }
    w->stuck = true;
    w->pool->n_stuck++;
}

/* From here on it is on its own; grace_ms 0 kills it. */
static void worker_leave(struct worker *w, uint64_t grace_ms)
{
    w->job = NULL;
    if (grace_ms == 0) {
        worker_kill(w);
    } else {
        loop_timer_set(w->timer, pool_deadline(w->pool, grace_ms));
    }
}

static struct worker *worker_new(struct file_job *job, pid_t pid)
{
    struct worker *w = xnew(struct worker);

    w->pool = job->pool;
    w->job = job;
    w->pid = pid;
    w->timer = loop_add_timer(w->pool->loop, worker_deadline, w);
    w->next = w->pool->workers;
    w->pool->workers = w;
    children_watch(w->pool->children, pid, worker_reaped, w);
    return w;
}

static void job_close(struct file_job *job)
{
    loop_io_free(TAKE_PTR(job->control_io));
    loop_io_free(TAKE_PTR(job->data_io));
    job->control_fd = fd_close(job->control_fd);
    job->data_fd = fd_close(job->data_fd);
}

static void job_free(struct file_job *job, uint64_t grace_ms)
{
    struct file_pool *pool = job->pool;
    enum job_class class = kinds[job->req.op].class;

    for (struct file_job **p = &pool->jobs; *p; p = &(*p)->next) {
        if (*p == job) {
            *p = job->next;
            break;
        }
    }
    *(job->running ? &pool->n_running[class] : &pool->n_queued[class]) -= 1;
    job_close(job);
    if (job->worker) {
        worker_leave(job->worker, grace_ms);
    }
    loop_timer_free(job->timer);
    file_request_done(&job->req);
    free(job);
    if (pool->n_queued[class] > 0) {
        pool_wants_sweep(pool);
    }
}

/* e NULL: the answer is complete. */
static void job_end(struct file_job *job, const struct err *e)
{
    const struct file_job_events *events = job->events;
    void *arg = job->arg;

    job_free(job, job->complete ? DYING_MS : 0);
    if (events->on_end) {
        events->on_end(arg, e);
    }
}

static void job_fail(struct file_job *job, int code, const char *reason, const char *text)
{
    struct err e = {0};

    err_set(&e, code, reason, "%s", text);
    job_end(job, &e);
}

static void job_broken(struct file_job *job)
{
    job_fail(job, -EIO, "worker_failed", "the process that carried out the file operation failed");
}

static void on_deadline(void *arg)
{
    struct file_job *job = arg;

    job->pool->n_timed_out++;
    job_fail(job, -ETIMEDOUT, NULL, "the file operation took too long and was ended");
}

static void job_deadline(struct file_job *job, bool waiting)
{
    uint64_t ms = kinds[job->req.op].seconds * 1000ull;

    loop_timer_set(job->timer, waiting ? pool_deadline(job->pool, ms) : DEADLINE_NEVER);
}

/* ---- what the worker says ---- */

/* All there is: END, and the content to its last byte. */
static void job_check_complete(struct file_job *job)
{
    if (!job->complete || (job->req.op == FILE_OP_READ && job->data_fd >= 0)) {
        return;
    }
    if (job->head.flags & FILE_HEAD_LENGTH && job->n_bytes != job->head.length) {
        job_broken(job);
        return;
    }
    job_end(job, /* no error */ NULL);
}

static bool job_count(struct file_job *job, size_t len)
{
    job->n_bytes += len;
    return !(job->head.flags & FILE_HEAD_LENGTH) || job->n_bytes <= job->head.length;
}

/*
 * Which head belongs to which operation: content for READ alone, lines without end for WATCH alone.
 */
static bool head_fits(const struct file_job *job, const struct file_head *h)
{
    bool content = h->flags & FILE_HEAD_CONTENT;
    bool stream = h->flags & FILE_HEAD_STREAM;

    return content == (job->req.op == FILE_OP_READ) && stream == (job->req.op == FILE_OP_WATCH) &&
           (content || !(h->flags & FILE_HEAD_RANGE)) &&
           (content || stream || h->flags & FILE_HEAD_LENGTH);
}

static int on_head(struct file_job *job, const struct file_head *head)
{
    if (job->has_head || !head_fits(job, head)) {
        return -EPROTO;
    }
    job->has_head = true;
    job->head = *head;
    if (kinds[job->req.op].flags & STEPWISE) {
        job_deadline(job, job->req.op == FILE_OP_READ);
    }
    if (job->data_io && job->req.op == FILE_OP_READ && !job->paused) {
        loop_io_set(job->data_io, EPOLLIN);
    }
    if (job->events->on_head) {
        job->events->on_head(job->arg, head);
    }
    return 0;
}

/* Returns false when the job is gone. */
static bool on_message(struct file_job *job, const struct file_msg *m)
{
    int r = 0;

    if (job->complete ||
        (m->type != FILE_MSG_HEAD && m->type != FILE_MSG_ERROR && !job->has_head)) {
        job_broken(job);
        return false;
    }
    switch (m->type) {
    case FILE_MSG_HEAD:
        r = on_head(job, &m->head);
        break;
    case FILE_MSG_BODY:
        r = job->head.flags & FILE_HEAD_CONTENT || !job_count(job, m->body_len) ? -EPROTO : 0;
        if (r == 0 && job->events->on_body) {
            job->events->on_body(job->arg, m->body, m->body_len);
        }
        break;
    case FILE_MSG_END:
        job->complete = true;
        loop_io_set(job->control_io, 0);
        job_check_complete(job);
        return false;
    case FILE_MSG_ERROR:
        job->complete = true;
        job_end(job, &m->err);
        return false;
    }
    if (r < 0) {
        job_broken(job);
    }
    return r == 0;
}

static void on_control(void *arg, uint32_t events)
{
    static char
        packet[FILE_MSG_MAX + 1]; /* one more: a longer packet does not pass for a whole one */
    struct file_job *job = arg;

    (void)events;
    for (unsigned i = 0; i < PACKETS_PER_TURN && !job->paused; i++) {
        ssize_t n = recv(job->control_fd, packet, sizeof(packet), MSG_DONTWAIT);
        struct file_msg m;

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n < 0 && errno == ECONNRESET) {
            continue; /* it ended without reading our last word; what it said is still to be read */
        }
        if (n <= 0 || file_msg_parse(packet, (size_t)n, &m) < 0) {
            job_broken(job);
            return;
        }
        if (!on_message(job, &m)) {
            return;
        }
    }
}

static void on_data(void *arg, uint32_t events)
{
    struct file_job *job = arg;

    (void)events;
    if (job->req.op == FILE_OP_READ) {
        if (job->events->on_content) {
            job->events->on_content(job->arg);
        }
        return;
    }
    loop_io_set(job->data_io, 0);
    job_deadline(job, /* waiting */ false);
    if (job->events->on_room) {
        job->events->on_room(job->arg);
    }
}

/* ---- starting ---- */

static int job_spawn(struct file_job *job)
{
    struct file_spawned s;
    int r = file_spawn(job->pool->workload, &job->user, &job->req, &s);

    if (r < 0) {
        return r;
    }
    job->worker = worker_new(job, s.pid);
    job->pool->n_started++;
    job->control_fd = s.control_fd;
    job->data_fd = s.data_fd;
    job->control_io =
        loop_add_io(job->pool->loop, job->control_fd, job->paused ? 0 : EPOLLIN, on_control, job);
    if (job->data_fd >= 0) {
        job->data_io = loop_add_io(job->pool->loop, job->data_fd, 0, on_data, job);
        if (job->req.op == FILE_OP_WRITE) {
            loop_io_set(job->data_io, EPOLLOUT); /* tells a writer that came before us */
        }
    }
    job_deadline(job, job->req.op != FILE_OP_WRITE);
    return 0;
}

static void job_run(struct file_job *job)
{
    enum job_class class = kinds[job->req.op].class;
    int r;

    job->running = true;
    job->pool->n_queued[class]--;
    job->pool->n_running[class]++;
    r = job_spawn(job);
    if (r < 0) {
        struct err e = {0};

        err_wrap(&e, r, "starting a process for the file operation");
        job_end(job, &e);
    }
}

/* Something to do for this job? Then does it (the job may be gone) and returns true. */
static bool sweep_job(struct file_job *job)
{
    enum job_class class = kinds[job->req.op].class;

    if (job->complete && job->data_fd < 0) {
        job_check_complete(job);
        return true;
    }
    if (!job->running && job->pool->n_running[class] < classes[class].slots) {
        job_run(job);
        return true;
    }
    return false;
}

static void pool_sweep(void *arg)
{
    struct file_pool *pool = arg;
    struct file_job *job = pool->jobs;

    while (job) {
        /*
         * An owner may have cancelled any other job from its on_end: then look again from the
         * start.
         */
        job = sweep_job(job) ? pool->jobs : job->next;
    }
}

static int check_room(const struct file_pool *pool, enum job_class class, struct err *e)
{
    if (pool->n_stuck >= JOB_STUCK_MAX) {
        return err_set(
            e, -EAGAIN, "file_workers_stuck",
            "too many earlier file operations hang in a file system that does not answer");
    }
    if (pool->n_queued[class] >= classes[class].queue &&
        pool->n_running[class] + pool->n_queued[class] >=
            classes[class].slots + classes[class].queue) {
        return err_set(
            e, -EAGAIN, "too_many_file_operations",
            "too many file operations of this kind run in this sandbox: try again later");
    }
    return 0;
}

int file_job_start_take(struct file_pool *pool, struct file_request *req_take,
                        const struct file_job_events *events, void *arg, struct file_job **ret,
                        struct err *e)
{
    cleanup_file_request struct file_request req = *req_take;
    enum job_class class = kinds[req.op].class;
    struct workload_user user;
    struct file_job *job;
    struct file_job **end = &pool->jobs;
    int r;

    *req_take = (struct file_request){.mode = -1};
    r = check_room(pool, class, e);
    if (r == 0) {
        r = workload_user(pool->workload, req.user, &user, e);
    }
    if (r < 0) {
        return r;
    }
    job = xnew(struct file_job);
    job->pool = pool;
    job->req = req;
    req = (struct file_request){.mode = -1};
    job->user = user;
    job->events = events;
    job->arg = arg;
    job->control_fd = FD_NONE;
    job->data_fd = FD_NONE;
    job->timer = loop_add_timer(pool->loop, on_deadline, job);
    while (*end) {
        end = &(*end)->next;
    }
    *end = job;
    pool->n_queued[class]++;
    pool_wants_sweep(pool);
    *ret = job;
    return 0;
}

/* ---- the owner's calls ---- */

void file_job_cancel(struct file_job *job)
{
    /* An upload that was not committed sees its socket closed and clears away what it made. */
    bool alone = kinds[job->req.op].flags & KEEPS_GOING || job->req.op == FILE_OP_WRITE;

    job_free(job, alone ? kinds[job->req.op].seconds * 1000ull : 0);
}

void file_job_pause(struct file_job *job, bool paused)
{
    if (job->paused == paused) {
        return;
    }
    job->paused = paused;
    if (job->control_io && !job->complete) {
        loop_io_set(job->control_io, paused ? 0 : EPOLLIN);
    }
    if (job->data_io && job->req.op == FILE_OP_READ && job->has_head) {
        loop_io_set(job->data_io, paused ? 0 : EPOLLIN);
        job_deadline(job, !paused);
    }
}

static void content_ended(struct file_job *job)
{
    loop_io_free(TAKE_PTR(job->data_io));
    job->data_fd = fd_close(job->data_fd);
    if (job->complete) {
        pool_wants_sweep(job->pool); /* else END, or the end of the socket, is still to come */
    }
}

size_t file_job_read(struct file_job *job, void *ret, size_t len)
{
    ssize_t n;

    if (job->data_fd < 0 || len == 0) {
        return 0;
    }
    n = read(job->data_fd, ret, len);
    if (n > 0 && job_count(job, (size_t)n)) {
        job_deadline(job, /* waiting */ true);
        return (size_t)n;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    content_ended(
        job); /* also when there is more than was said: the count is then wrong at the end */
    return 0;
}

size_t file_job_write(struct file_job *job, const void *data, size_t len)
{
    size_t done = 0;

    ASSERT(job->req.op == FILE_OP_WRITE && !job->committed);
    if (job->data_fd < 0) {
        return 0;
    }
    while (done < len) {
        ssize_t n = write(job->data_fd, (const char *)data + done, len - done);

        if (n > 0) {
            done += (size_t)n;
        } else if (errno != EINTR) {
            break;
        }
    }
    if (done < len && errno == EPIPE) {
        return len; /* it has failed and says why on the socket; the rest is of no use */
    }
    if (done < len) {
        loop_io_set(job->data_io, EPOLLOUT);
        job_deadline(job, /* waiting */ true);
    }
    return done;
}

void file_job_commit(struct file_job *job)
{
    static const char word = FILE_COMMIT;

    ASSERT(job->req.op == FILE_OP_WRITE && !job->committed && job->data_fd >= 0);
    job->committed = true;
    loop_io_free(TAKE_PTR(job->data_io));
    job->data_fd = fd_close(job->data_fd);
    job_deadline(job, /* waiting */ true);
    if (send(job->control_fd, &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        log_debug(NULL, "a file worker went away before the commit");
    }
}

/* ---- the pool ---- */

struct file_pool *file_pool_new(struct loop *loop, struct children *children,
                                struct workload *workload)
{
    struct file_pool *pool = xnew(struct file_pool);

    signal(SIGPIPE, SIG_IGN); /* a worker that ends while we write to it is an ordinary event */
    pool->loop = loop;
    pool->children = children;
    pool->workload = workload;
    pool->sweep = loop_add_timer(loop, pool_sweep, pool);
    return pool;
}

void file_pool_hurry(struct file_pool *pool, uint64_t max_ms)
{
    pool->max_ms = max_ms;
}

void file_pool_reset(struct file_pool *pool)
{
    while (pool->jobs) {
        job_fail(pool->jobs, -ESHUTDOWN, NULL, "the sandbox is being taken away");
    }
    for (struct worker *w = pool->workers; w; w = w->next) {
        worker_kill(w);
    }
}

void file_pool_free(struct file_pool *pool)
{
    while (pool->jobs) {
        job_free(pool->jobs, /* kill */ 0);
    }
    while (pool->workers) {
        kill(pool->workers->pid, SIGKILL);
        children_forget(pool->children, pool->workers->pid);
        worker_free(pool->workers);
    }
    loop_timer_free(pool->sweep);
    free(pool);
}

void file_pool_stats(const struct file_pool *pool, struct file_pool_stats *ret)
{
    struct file_pool_stats s = {
        .n_stuck = pool->n_stuck, .n_started = pool->n_started, .n_timed_out = pool->n_timed_out};

    for (unsigned i = 0; i < CLASS_COUNT_; i++) {
        s.n_running += pool->n_running[i];
        s.n_queued += pool->n_queued[i];
    }
    *ret = s;
}
