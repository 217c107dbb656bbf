/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread with a loop. Everything of one sandbox lives on one worker and is touched by its thread alone;
 * others come in with worker_call() (waits until it was done) or worker_post() (does not).
 *
 * A worker ticks ten times a second while something in it has a deadline: thousands of connections would make
 * a timer each expensive, and none of their limits needs to be exact.
 */
#pragma once

#include "base/loop.h"

#define WORKER_TICK_MS 100u

struct worker;

/* on_tick runs in the worker's thread, with its argument and the time; it says whether to tick again. */
typedef bool (*worker_tick_fn)(void *arg, uint64_t now_ns);

struct worker *worker_new(worker_tick_fn on_tick, void *arg);
/* Everything in it must be gone. */
void worker_free(struct worker *w);
struct loop *worker_loop(struct worker *w);
/* From its thread: there is something with a deadline. */
void worker_needs_tick(struct worker *w);
void worker_call(struct worker *w, loop_fn fn, void *arg);
void worker_post(struct worker *w, loop_fn fn, void *arg);

/* A pipe for splice(2), empty; they are kept for the next. -EMFILE. */
struct worker_pipe {
    int read_fd;
    int write_fd;
};
MUST_CHECK int worker_pipe_take(struct worker *w, struct worker_pipe *ret);
/* An empty one is kept, another is closed. */
void worker_pipe_give(struct worker *w, struct worker_pipe *pipe, bool empty);
