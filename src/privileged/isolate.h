/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node manager's own cage, after everything that needs a path is open: the closed list of
 * capabilities and the list of system calls (isolate.c), no_new_privs, no core files.
 */
#pragma once

#include "base/err.h"

/* For ever, for this process and all it starts. */
MUST_CHECK int isolate_self(struct err *e);
