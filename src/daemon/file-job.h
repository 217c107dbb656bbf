/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of file operations: starts a worker per operation, reads what it says as
 * hostile bytes, and ends it when it takes too long. Nothing here blocks and nothing here touches a
 * file of the sandbox.
 *
 *     QUEUED    waits for a free slot of its class
 *     RUNNING   the worker lives; events come
 *     (gone)    on_end has been called, or file_job_cancel
 *
 * Slots: each class (small operations, transfers, watches) has its own, so that slow readers do not
 * stop a stat. A worker that was killed but does not die gives its slot back, but is counted: with
 * JOB_STUCK_MAX of them new operations are refused. The processes are those of file-crew.h.
 *
 * Deadlines: a small operation has one for everything. A transfer has one for each step in which
 * the worker is the one we wait for; a client may be as slow as it likes.
 */
#pragma once

#include "base/loop.h"
#include "daemon/children.h"
#include "daemon/file-proto.h"
#include "daemon/file-request.h"
#include "daemon/workload.h"

#define JOB_STUCK_MAX 64

struct file_pool;
struct file_job;

/*
 * Called from the loop, never from inside a call into this module. NULL: of no interest. Inside
 * on_head, on_body and on_content the job must not be cancelled (in on_end it is gone already).
 */
struct file_job_events {
    void (*on_head)(void *arg, const struct file_head *head);
    /* The next bytes of a JSON body. */
    void (*on_body)(void *arg, const void *data, size_t len);
    /* READ: the pipe has content or has ended: call file_job_read. */
    void (*on_content)(void *arg);
    /* WRITE: there is room again after file_job_write took less than offered. */
    void (*on_room)(void *arg);
    /* Last call: NULL when the answer is complete. The job is gone when this returns. */
    void (*on_end)(void *arg, const struct err *e);
};

struct file_pool *file_pool_new(struct loop *loop, struct children *children,
                                struct workload *workload);
/* Cancels all jobs, kills all workers. */
void file_pool_free(struct file_pool *pool);
DEFINE_CLEANUP(struct file_pool *, file_pool_free);
/* Ends all jobs with an error to their owners: the sandbox is taken away. */
void file_pool_reset(struct file_pool *pool);

/* No deadline is longer than this, so that tests see it pass. 0: as they are. */
void file_pool_hurry(struct file_pool *pool, uint64_t max_ms);

struct file_pool_stats {
    unsigned n_running;
    unsigned n_queued;
    unsigned n_stuck;
    uint64_t n_started;
    uint64_t n_forked;
    uint64_t n_timed_out;
};
void file_pool_stats(const struct file_pool *pool, struct file_pool_stats *ret);

/*
 * Takes over what req points to, also on failure. -EAGAIN "too_many_file_operations" when slots and
 * queue are full; -ENOENT "user_not_found". events is static; arg is borrowed until on_end or
 * file_job_cancel.
 */
MUST_CHECK int file_job_start_take(struct file_pool *pool, struct file_request *req,
                                   const struct file_job_events *events, void *arg,
                                   struct file_job **ret, struct err *e);
/*
 * No more events; the job is gone. An upload that was not committed leaves nothing behind.
 * Operations that change something in one step (mkdir, move, ...) are finished all the same.
 */
void file_job_cancel(struct file_job *job);

/* Stops and goes on with on_body and on_content, while the client does not read. */
void file_job_pause(struct file_job *job, bool paused);
/*
 * READ: what is there now, up to len. 0: nothing now (on_content follows) or at the end (on_end
 * follows).
 */
size_t file_job_read(struct file_job *job, void *ret, size_t len);
/* WRITE: takes what there is room for; less than len: on_room follows. */
size_t file_job_write(struct file_job *job, const void *data, size_t len);
/* WRITE: that was all, and the client confirms it. */
void file_job_commit(struct file_job *job);
