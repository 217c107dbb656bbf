/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine's console log: run_dir/m/ID/console, written by the VMM, in append mode. The guest decides what is in
 * it, so it is kept short by console_trim() and escaped where people read it.
 */
#pragma once

#include "sandbox/node.h"

#include "base/buf.h"

#define CONSOLE_KEEP_BYTES (256u * 1024)

/* Makes it afresh and opens it for the VMM. */
MUST_CHECK int console_open(const struct node *node, const char *id, int *ret_fd, struct err *e);
/* The last bytes of it, at most what b takes. -ENOENT: no machine. */
MUST_CHECK int console_read_tail(const struct node *node, const char *id, struct buf *b);
/* Empties it when it has grown beyond its limit. */
void console_trim(const struct node *node, const char *id);
/* For failures: the last line goes into our own log. */
void console_tail_to_log(const struct node *node, const char *id);
/* True when the guest's kernel has panicked, by what it said last. */
bool console_shows_panic(const struct node *node, const char *id);
