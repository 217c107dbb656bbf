/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes from one socket to another, unread: splice(2) through a pipe that is only held while something is in it,
 * so that an idle connection has none. At most one pipe's worth waits: when the receiver is slow, the
 * sender is not read.
 *
 * The end of the stream is passed on as a half-close, after everything before it.
 */
#pragma once

#include "base/buf.h"
#include "network/worker.h"

struct pump {
    struct worker *worker;   /* borrowed */
    int from_fd;             /* borrowed */
    int to_fd;               /* borrowed */
    struct buf *first;       /* borrowed: goes before anything else; NULL or empty: nothing */
    struct worker_pipe pipe; /* owned */
    size_t in_pipe;
    bool ended;  /* from has said that there is no more */
    bool closed; /* and to was told */
    uint64_t bytes;
};

void pump_init(struct pump *p, struct worker *w, int from_fd, int to_fd);
void pump_done(struct pump *p);
/* Moves what can be moved now, not for too long. Negative errno: the connection is broken. */
MUST_CHECK int pump_run(struct pump *p);
/* What it waits for on each socket: EPOLLIN or 0, EPOLLOUT or 0. */
uint32_t pump_wants_from(const struct pump *p);
uint32_t pump_wants_to(const struct pump *p);
