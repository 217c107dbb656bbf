/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that may block or needs other namespaces, done in a forked child: the daemon's own thread never
 * waits for a disk. The child runs fn, reports how it went, and stays until it is let go, so that whoever asked
 * can take descriptors of its namespaces. What nobody waits for it can do after that.
 */
#pragma once

#include "base/err.h"
#include "daemon/module.h"

struct helper;

/* In the child: returns 0 or negative errno with a sentence in e. It may block and may be killed. */
typedef int helper_fn(void *arg, struct err *e);
/*
 * In the daemon, from the loop, once: r is what fn returned, or -EIO when the child died; pid still exists
 * during the call. The helper is gone afterwards.
 */
typedef void helper_done_fn(void *arg, int r, const struct err *e, pid_t pid);

struct helper_spec {
    const char *what; /* static: for the error when it dies: "mounting the disk" */
    helper_fn *fn;
    void *fn_arg; /* borrowed: until the child has been forked, which is before the return */
    helper_done_fn *done;
    void *done_arg; /* borrowed: until done */
    void (*after)(
        void *arg); /* may be NULL: in the child when it has been let go; nobody hears of it */
    uint64_t deadline_ns; /* then the child is killed and done gets -ETIMEDOUT */
};

/* On failure done is not called. *ret may be given to helper_cancel until done is called. */
MUST_CHECK int helper_start(struct daemon *d, const struct helper_spec *spec, struct helper **ret,
                            struct err *e);
/* Kills the child; done is not called. */
void helper_cancel(struct helper *h);
