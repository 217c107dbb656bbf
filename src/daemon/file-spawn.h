/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks the worker for one file operation. The child keeps nothing of the daemon's: it enters the
 * sandbox, becomes the user, closes every descriptor but its own, and runs file_worker_run.
 */
#pragma once

#include "daemon/file-request.h"
#include "daemon/workload.h"

struct file_spawned {
    pid_t pid;
    int control_fd; /* the receiver's to own: SOCK_SEQPACKET, non-blocking */
    int data_fd;    /* likewise, non-blocking: READ: to read, WRITE: to write; else FD_NONE */
};

/* -errno of fork, pipe or socketpair. Failures in the child are told over control_fd. */
MUST_CHECK int file_spawn(const struct workload *workload, const struct workload_user *user,
                          const struct file_request *req, struct file_spawned *ret);
