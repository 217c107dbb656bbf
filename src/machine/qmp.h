/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A QMP connection to one VMM: one command at a time, events noted on the way. Not thread-safe: the
 * machine's lock guards it. A broken connection is made anew by the next command, since QEMU listens
 * again after its client has gone (so a restarted manager re-adopts its machines).
 */
#pragma once

#include "wire/qmp.h"

struct qmp;

/* Does not connect yet. path is copied. */
struct qmp *qmp_new(const char *path);
void qmp_free(struct qmp *q);
DEFINE_CLEANUP(struct qmp *, qmp_free);
/*
 * Runs a command. arguments is taken over and may be NULL; ret_value may be NULL. pass_fd (or FD_NONE) goes
 * along as a descriptor, for add-fd and getfd. -ECONNREFUSED: nobody listens; -EREMOTEIO: QEMU
 * refused, its reason is in e.
 */
MUST_CHECK int qmp_command_take(struct qmp *q, const char *name, json_t *arguments, int pass_fd,
                                uint64_t deadline_ns, json_t **ret_value, struct err *e);
