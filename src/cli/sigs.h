/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals as something to read. While a struct sigs is open its signals are blocked in the calling thread and in those it
 * starts later, and are read from `fd`; `end_fd` sees only those that ask us to end (INT, TERM, HUP, QUIT), so
 * that a request may watch it without being cut off by a resized window.
 */
#pragma once

#include <signal.h>

#include "base/err.h"

struct sigs {
    int fd;     /* owned */
    int end_fd; /* owned */
    sigset_t before;
};

#define SIGS_INIT \
    { \
        .fd = FD_NONE, .end_fd = FD_NONE \
    }

/* with_window: SIGWINCH and SIGCONT too. */
MUST_CHECK int sigs_open(struct sigs *s, bool with_window, struct err *e);
/* The next signal, or 0 when there is none. Never waits. */
int sigs_read(const struct sigs *s);
void sigs_done(struct sigs *s);
/* Waits until a signal is there or the deadline has passed. */
void sigs_wait(const struct sigs *s, uint64_t deadline_ns);
/* A signal that asks us to end. */
bool sigs_is_end(int signo);
/* "INT"; ret holds 16. */
void sigs_name(int signo, char *ret, size_t size);
