/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small epoll loop for the programs that just move bytes: descriptors, timers, and work to be done
 * after the current event. Level-triggered. One thread only, but for loop_wake().
 *
 *     struct loop *loop = loop_new();
 *     struct loop_io *io = loop_add_io(loop, fd, EPOLLIN, on_readable, self);
 *     struct loop_timer *t = loop_add_timer(loop, on_timer, self);
 *     loop_timer_set(t, deadline_in_ms(100));
 *     loop_run(loop);
 *
 * Handles may be freed inside any callback, their own included: they are then silent at once and
 * their memory goes after the current round. The loop does not own descriptors.
 */
#pragma once

#include "base/util.h"

#include <sys/epoll.h>

struct loop;
struct loop_io;
struct loop_timer;

typedef void (*loop_io_fn)(void *arg, uint32_t events);
typedef void (*loop_fn)(void *arg);

struct loop *loop_new(void);
/* All handles must be freed before. */
void loop_free(struct loop *loop);
DEFINE_CLEANUP(struct loop *, loop_free);
/* Runs until loop_stop(). */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);
/* One round: waits until deadline_ns at most for something to happen and handles it. For tests. */
void loop_run_once(struct loop *loop, uint64_t deadline_ns);
/* From any thread or signal handler: ends the current wait. */
void loop_wake(struct loop *loop);
/* fn runs in the loop's thread after the current callback has returned. */
void loop_defer(struct loop *loop, loop_fn fn, void *arg);

struct loop_io *loop_add_io(struct loop *loop, int fd, uint32_t events, loop_io_fn fn, void *arg);
/* 0 keeps the handle but asks for nothing. */
void loop_io_set(struct loop_io *io, uint32_t events);
void loop_io_free(struct loop_io *io);
DEFINE_CLEANUP(struct loop_io *, loop_io_free);

/* A new timer is not set. It fires once per loop_timer_set(). */
struct loop_timer *loop_add_timer(struct loop *loop, loop_fn fn, void *arg);
/* DEADLINE_NEVER unsets it. */
void loop_timer_set(struct loop_timer *timer, uint64_t deadline_ns);
void loop_timer_free(struct loop_timer *timer);
DEFINE_CLEANUP(struct loop_timer *, loop_timer_free);
