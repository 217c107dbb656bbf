/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a specification to a process in the workload.
 *
 * The child is made by clone3(2), born in its cgroup, and does everything that touches the workload: it enters
 * it, becomes the user, changes folder, searches PATH, and executes. Each of these may block for as long as the
 * workload likes (think of a FUSE folder), so the daemon must not wait: not by vfork, and not by reading.
 * Instead the child reports on a socket that closes by itself on exec:
 *
 *     (PTY, the master's descriptor)?  then  end of stream: the program runs
 *                                      or    (FAILED, stage, errno): it never ran; the child exits 126 or 127
 *
 * What the child starts from: all signals default and unblocked, a session of its own, umask 022, nice 0,
 * oom_score_adj 0, usual resource limits, no descriptor but 0, 1 and 2.
 */
#pragma once

#include "daemon/command-spec.h"
#include "daemon/workload.h"

struct command_spawn {
    const struct command_spec *spec;
    char *const *env;                 /* borrowed: whole environment of the program */
    const struct workload *workload;  /* borrowed; NULL: no workload to enter (tests) */
    const struct workload_user *user; /* borrowed; NULL: stay who we are (tests) */
    int cgroup_fd;                    /* borrowed; FD_NONE: stay in the daemon's */
};

struct command_process {
    pid_t pid;
    int report_fd; /* owned; non-blocking */
    int in_fd;     /* owned; non-blocking; FD_NONE: standard input is /dev/null, or a pty */
    int out_fd;    /* owned; non-blocking; FD_NONE with a pty */
    int err_fd;    /* owned; likewise */
};

enum spawn_stage {
    SPAWN_STAGE_SETUP, /* ours: streams, session, limits */
    SPAWN_STAGE_ENTER, /* ours: into the workload */
    SPAWN_STAGE_PTY,
    SPAWN_STAGE_USER,
    SPAWN_STAGE_CWD,
    SPAWN_STAGE_EXEC,
    SPAWN_STAGE_COUNT_
};

enum spawn_event {
    SPAWN_NOTHING, /* not yet */
    SPAWN_PTY,     /* fd is the master; the caller's */
    SPAWN_RUNNING, /* the program has been executed, or the child died without a word */
    SPAWN_FAILED,  /* stage and code say what */
};

struct spawn_report {
    enum spawn_event event;
    enum spawn_stage stage;
    int code; /* negative errno */
    int fd;   /* owned, non-blocking, with SPAWN_PTY */
};

/* -EAGAIN "process_limit": the workload has no process left; other failures are ours. */
MUST_CHECK int command_spawn(const struct command_spawn *s, struct command_process *ret,
                             struct err *e);
/* The next report; never blocks. */
void command_spawn_report(int report_fd, struct spawn_report *ret);
/* The exit code a shell would give for a program that could not be executed: 127 missing, 126 otherwise. */
int command_exec_exit_code(int code);
/* What to tell about a failure of this stage, as text for people, with field and reason for the client's mistakes. */
int command_spawn_error(const struct command_spec *spec, const struct spawn_report *report,
                        struct err *e);
