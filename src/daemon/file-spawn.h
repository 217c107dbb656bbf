/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks a worker. The child keeps nothing of the daemon's: it enters the sandbox, becomes the user,
 * closes every descriptor but its own, and runs file_worker_serve.
 */
#pragma once

#include "daemon/workload.h"

struct file_spawned {
    pid_t pid;
    int control_fd; /* the receiver's to own: SOCK_SEQPACKET */
};

/* -errno of fork or socketpair. Failures in the child are told over control_fd. */
MUST_CHECK int file_spawn(const struct workload *workload, const struct workload_user *user,
                          struct file_spawned *ret);
