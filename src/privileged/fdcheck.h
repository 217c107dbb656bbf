/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a descriptor from the sandbox manager what it is said to be? It decides over nothing that root
 * does with it (root only hands it on), but a wrong one in the jail could be a way out of it: a
 * folder, a device, a file that another machine shares for writing.
 */
#pragma once

#include "base/err.h"
#include "ipc/priv.h"

/*
 * All descriptors of a start request. -EINVAL "bad_descriptor" with a sentence that says which and
 * why.
 */
MUST_CHECK int fdcheck_machine(const struct priv_machine_start *m, const int fds[PRIV_FD_COUNT_],
                               struct err *e);
/* Those of a copy request. */
MUST_CHECK int fdcheck_copy(const struct priv_machine_copy *m, const int fds[PRIV_FD_COUNT_],
                            struct err *e);
