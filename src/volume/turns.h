/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changes the stored state of one sandbox goes one after the other: a client that hangs up does not wait for the end of
 * what it began, and a manifest that is on its way must not arrive after the one that asked for it to be forgotten.
 *
 *     struct turn turn;
 *     r = turn_take(&turn, sandbox, deadline_in_ms(...), e);
 *     ...
 *     turn_give(&turn);
 */
#pragma once

#include "base/err.h"

/* The caller's, and where it was taken until it is given back. */
struct turn {
    struct turn *next;   /* borrowed: of all that are taken */
    const char *sandbox; /* borrowed: lives as long as the turn */
};

/*
 * Waits until nobody has the sandbox's turn, then it is the caller's. -EBUSY "busy": somebody had it until the deadline.
 * Any thread; a thread that has a turn must not take another one.
 */
MUST_CHECK int turn_take(struct turn *t, const char *sandbox, uint64_t deadline_ns, struct err *e);
void turn_give(struct turn *t);
