/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line at the bottom of the terminal that says what is being waited for: a spinner, the text, how far, for how
 * long. Drawn by a thread of its own, on standard error, only when that is a terminal and --quiet was
 * not given; everywhere else nothing of it is seen, so that callers need not ask. It shows up after a quarter of a
 * second, so that what is quick does not flicker.
 *
 * progress_end() joins the thread and wipes the line; nothing else may be written to standard error while one is open,
 * except through progress_line().
 */
#pragma once

#include <stdint.h>

#include "cli/ui.h"

struct progress;

struct progress *progress_start(const struct ui *ui, const char *fmt, ...) PRINTF(2, 3);
/* Thread-safe. total 0: not known. */
void progress_set(struct progress *p, uint64_t done, uint64_t total);
void progress_text(struct progress *p, const char *fmt, ...) PRINTF(2, 3);
/* Writes a whole line above the progress line. */
void progress_line(struct progress *p, const char *text);
void progress_end(struct progress *p);
DEFINE_CLEANUP(struct progress *, progress_end);
