/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes, held by pidfd. A pid alone is not an identity: pid plus start time is.
 */
#pragma once

#include "base/err.h"

#include <sys/types.h>

struct proc_spec {
    const char *const *argv; /* borrowed: NULL-terminated; argv[0] is a path (no PATH search) */
    const char *const *envp; /* borrowed: NULL: the caller's environment */
    int stdin_fd;            /* borrowed: FD_NONE: /dev/null */
    int stdout_fd;           /* borrowed: FD_NONE: inherited */
    int stderr_fd;           /* borrowed: FD_NONE: inherited */
    bool new_session;
};

struct proc {
    pid_t pid;
    int pidfd; /* owned */
};

/* Starts a child with default signals and no other descriptor than 0 to 2. Thread-safe. */
MUST_CHECK int proc_spawn(const struct proc_spec *spec, struct proc *ret, struct err *e);
/* Waits for the end; ret_status as of waitpid(2). -ETIMEDOUT: it still runs. */
MUST_CHECK int proc_wait(struct proc *proc, uint64_t deadline_ns, int *ret_status);
/* Signals through the pidfd; 0 also when it has ended. */
void proc_signal(const struct proc *proc, int signo);
/*
 * Blocks these signals (ended by 0) for this thread and those that it starts, and ignores SIGPIPE. The caller's
 * descriptor can be read when one has come (signalfd(2)); it never makes a read wait.
 */
MUST_CHECK int proc_watch_signals(const int signals[], struct err *e);
/* For a service that holds many connections: as many open files as it may have. */
MUST_CHECK int proc_raise_descriptor_limit(void);
/* Clock ticks since boot at which pid started (/proc/PID/stat field 22). -ESRCH. */
MUST_CHECK int proc_start_time(pid_t pid, uint64_t *ret);
