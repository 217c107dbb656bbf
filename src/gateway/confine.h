/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Stage 4 of main.c: what a gateway that serves can still do to the host.
 *
 * Files: Landlock leaves the state folder (read, write), the folders that are served or read again (read) and a few
 * files that libraries read late. A kernel without Landlock is accepted with a warning. System calls: seccomp kills
 * nothing, it refuses (EPERM) whatever runs programs, changes identity, mounts, traces, loads code into the
 * kernel or makes other kinds of sockets; see the list in confine.c.
 */
#pragma once

#include "base/err.h"

#define CONFINE_READ_MAX 6

/* read: folders, up to the first NULL. Irreversible. */
MUST_CHECK int confine(const char *state_dir, const char *const read[static CONFINE_READ_MAX],
                       struct err *e);
