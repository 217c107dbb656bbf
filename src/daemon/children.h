/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who died. As PID 1 the daemon inherits every orphan of the guest, so it reaps everything on SIGCHLD
 * and calls whoever registered the pid; the rest are orphans and are forgotten.
 *
 * Register right after fork, before returning to the loop: the daemon is single-threaded and reaps only from
 * the loop, so the child cannot be missed. The pid stays valid (a zombie) until the callback is called, so
 * kill(pid) is safe before that and never after.
 */
#pragma once

#include "base/loop.h"
#include "base/util.h"

#include <sys/resource.h>
#include <sys/types.h>

struct children;

struct child_exit {
    pid_t pid;
    int code;   /* CLD_EXITED, CLD_KILLED or CLD_DUMPED */
    int status; /* exit status or signal number, as in siginfo_t */
    struct rusage usage;
};

typedef void child_fn(void *arg, const struct child_exit *x);

/*
 * Blocks SIGCHLD and listens for it on the loop. Forked children must unblock their signals before exec.
 * reap_all: as PID 1 or child subreaper, wait for any child; otherwise only for the registered.
 */
MUST_CHECK int children_new(struct loop *loop, bool reap_all, struct children **ret);
void children_free(struct children *c);
DEFINE_CLEANUP(struct children *, children_free);

/* fn is called once, from the loop, after the child has been reaped. */
void children_watch(struct children *c, pid_t pid, child_fn *fn, void *arg);
/* The callback will not be called; the child is still reaped. No-op when the pid is not registered. */
void children_forget(struct children *c, pid_t pid);
