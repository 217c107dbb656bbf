/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-job.h"

#include "base/clock.h"
#include "daemon/file-crew.h"

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

/* More than there are idle processes that may be killed all at once. */
#define RESTARTS_MAX 6

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
#define AGAIN (1u << 2)       /* may be done twice with the same end */
#define STEPWISE (1u << 1)    /* the deadline is for each step, see file-job.h */

static const struct {
    enum job_class class;
    unsigned seconds;
    unsigned flags;
} kinds[FILE_OP_COUNT_] = {
    [FILE_OP_READ] = {CLASS_TRANSFER, 60, STEPWISE | AGAIN},
    [FILE_OP_WRITE] = {CLASS_TRANSFER, 120, STEPWISE},
    [FILE_OP_STAT] = {CLASS_SMALL, 20, AGAIN},
    [FILE_OP_LIST] = {CLASS_SMALL, 60, AGAIN},
    [FILE_OP_WATCH] = {CLASS_WATCH, 60, STEPWISE | AGAIN},
    [FILE_OP_MKDIR] = {CLASS_SMALL, 20, KEEPS_GOING | AGAIN},
    [FILE_OP_MOVE] = {CLASS_SMALL, 60, KEEPS_GOING},
    [FILE_OP_REMOVE] = {CLASS_SMALL, 900, 0},
    [FILE_OP_CHMOD] = {CLASS_SMALL, 20, KEEPS_GOING | AGAIN},
    [FILE_OP_CHOWN] = {CLASS_SMALL, 20, KEEPS_GOING | AGAIN},
    [FILE_OP_SYMLINK] = {CLASS_SMALL, 20, KEEPS_GOING},
};

struct file_job {
    struct file_pool *pool; /* borrowed: lives longer */
    struct file_job *next;  /* borrowed: in pool's list */
    struct file_request req;
    struct workload_user user;
    const struct file_job_events *events; /* static */
    void *arg;                            /* borrowed */
    struct file_hand *hand;               /* owned while it runs; NULL: queued */
    int data_fd;                          /* owned; FD_NONE when there is none, or it has ended */
    struct loop_io *data_io;              /* owned */
    struct loop_timer *timer;             /* owned */
    struct file_head head;
    uint64_t n_bytes; /* of the body, so far */
    bool has_head;
    bool complete; /* END was said */
    bool paused;
    bool committed;
    bool running; /* has a slot */
    unsigned n_restarts;
};

struct file_pool {
    struct loop *loop;         /* borrowed */
    struct workload *workload; /* borrowed */
    struct file_job *jobs;     /* owned: oldest first */
    struct file_crew *crew;    /* owned */
    unsigned n_running[CLASS_COUNT_];
    unsigned n_queued[CLASS_COUNT_];
    uint64_t n_started;
    uint64_t n_timed_out;
    uint64_t max_ms;          /* of all deadlines; 0: none */
    struct loop_timer *sweep; /* owned: set when there is something to start or to end */
};

/* ---- the end of jobs ---- */

static void pool_wants_sweep(struct file_pool *pool)
{
    loop_timer_set(pool->sweep, /* now */ 0);
}

static uint64_t pool_deadline(const struct file_pool *pool, uint64_t ms)
{
    return deadline_in_ms(pool->max_ms > 0 ? MIN(pool->max_ms, ms) : ms);
}

/* The hand back to the crew: fit for another job, or to end within grace_ms. */
static void job_return_hand(struct file_job *job, uint64_t grace_ms)
{
    if (!job->hand) {
        return;
    }
    if (job->complete && job->req.op != FILE_OP_WATCH) {
        file_hand_keep(TAKE_PTR(job->hand));
    } else {
        file_hand_let_go(TAKE_PTR(job->hand), grace_ms);
    }
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
    if (job->running) {
        pool->n_running[class]--;
    } else {
        pool->n_queued[class]--;
    }
    loop_io_free(TAKE_PTR(job->data_io));
    job->data_fd = fd_close(job->data_fd);
    job_return_hand(job, grace_ms);
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
        file_hand_listen(job->hand, false);
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

static int job_start(struct file_job *job);

/*
 * A process that waited for the next job may be killed by the workload (`pkill -u user`) at the very
 * moment it is given one. If it has not read it, or if it does not matter when it has, another does
 * it; but not an upload, whose bytes went with it.
 */
static bool job_starts_again(struct file_job *job)
{
    bool harmless = kinds[job->req.op].flags & AGAIN || file_hand_left_unread(job->hand);

    if (job->n_restarts >= RESTARTS_MAX || job->has_head || job->req.op == FILE_OP_WRITE ||
        !harmless) {
        return false;
    }
    job->n_restarts++;
    loop_io_free(TAKE_PTR(job->data_io));
    job->data_fd = fd_close(job->data_fd);
    file_hand_let_go(TAKE_PTR(job->hand), /* kill */ 0);
    return job_start(job) == 0;
}

static void on_packet(void *arg)
{
    static char
        packet[FILE_MSG_MAX + 1]; /* one more: a longer packet does not pass for a whole one */
    struct file_job *job = arg;

    for (unsigned i = 0; i < PACKETS_PER_TURN && !job->paused; i++) {
        ssize_t n = file_hand_recv(job->hand, packet, sizeof(packet));
        struct file_msg m;

        if (n == -EAGAIN || (n == 0 && job_starts_again(job))) {
            return;
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

static int job_start(struct file_job *job)
{
    struct file_order order = {
        .user = &job->user, .req = &job->req, .on_packet = on_packet, .arg = job};
    int r = file_hand_start(job->pool->crew, &order, &job->hand, &job->data_fd);

    if (r < 0) {
        return r;
    }
    job->pool->n_started++;
    if (job->paused) {
        file_hand_listen(job->hand, false);
    }
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
    r = job_start(job);
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
    if (file_crew_stuck(pool->crew) >= JOB_STUCK_MAX) {
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
    if (job->hand && !job->complete) {
        file_hand_listen(job->hand, !paused);
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
    ASSERT(job->req.op == FILE_OP_WRITE && !job->committed && job->data_fd >= 0);
    job->committed = true;
    loop_io_free(TAKE_PTR(job->data_io));
    job->data_fd = fd_close(job->data_fd);
    job_deadline(job, /* waiting */ true);
    file_hand_say(job->hand, FILE_COMMIT);
}

/* ---- the pool ---- */

struct file_pool *file_pool_new(struct loop *loop, struct children *children,
                                struct workload *workload)
{
    struct file_pool *pool = xnew(struct file_pool);

    signal(SIGPIPE, SIG_IGN); /* a worker that ends while we write to it is an ordinary event */
    pool->loop = loop;
    pool->workload = workload;
    pool->crew = file_crew_new(loop, children, workload);
    pool->sweep = loop_add_timer(loop, pool_sweep, pool);
    return pool;
}

void file_pool_hurry(struct file_pool *pool, uint64_t max_ms)
{
    pool->max_ms = max_ms;
    file_crew_hurry(pool->crew, max_ms);
}

void file_pool_reset(struct file_pool *pool)
{
    while (pool->jobs) {
        job_fail(pool->jobs, -ESHUTDOWN, NULL, "the sandbox is being taken away");
    }
    file_crew_dismiss(pool->crew);
}

void file_pool_free(struct file_pool *pool)
{
    while (pool->jobs) {
        job_free(pool->jobs, /* kill */ 0);
    }
    file_crew_free(pool->crew);
    loop_timer_free(pool->sweep);
    free(pool);
}

void file_pool_stats(const struct file_pool *pool, struct file_pool_stats *ret)
{
    struct file_pool_stats s = {
        .n_stuck = file_crew_stuck(pool->crew),
        .n_forked = file_crew_forked(pool->crew),
        .n_started = pool->n_started,
        .n_timed_out = pool->n_timed_out,
    };

    for (unsigned i = 0; i < CLASS_COUNT_; i++) {
        s.n_running += pool->n_running[i];
        s.n_queued += pool->n_queued[i];
    }
    *ret = s;
}
