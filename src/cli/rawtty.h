/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our terminal in raw mode. One at a time in a process, because the settings must be put back from a signal handler and
 * from exit() too.
 */
#pragma once

#include "base/err.h"

struct rawtty_size {
    unsigned rows;
    unsigned cols;
};

/* fd must be a terminal; borrowed until rawtty_leave(). */
MUST_CHECK int rawtty_enter(int fd, struct err *e);
/* Again after we were stopped and continued. Nothing when it was not entered. */
void rawtty_again(void);
/* Safe in any state. */
void rawtty_leave(void);
/* The size of the terminal at fd; false when it has none. */
bool rawtty_size(int fd, struct rawtty_size *ret);
