/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second wall: a host process that has escaped its VM finds itself in here.
 *
 * jail_start() makes a child in new mount, pid, net, ipc and uts namespaces. The child, still root,
 * does in this order (each step is possible only before the next):
 *
 *   join      the machine's cgroups (given as open cgroup.procs files), then a cgroup namespace of
 *             its own
 *   network   a tap, its address and the rules of net.h, in its own network namespace
 *   root      an empty tmpfs with read-only binds of the VMM's program, its libraries and firmware,
 *             a procfs that shows only this pid namespace, /dev/null, /dev/urandom and, when asked
 *             for, /dev/kvm; names for the descriptors that a VMM can only open by name; then
 *             pivot_root
 *   fds       the console becomes 0..2 (0 is /dev/null), the machine's descriptors get their fixed
 *             numbers (ipc/priv.h), everything else is closed
 *   limits    rlimits: no core files, no file larger than any disk may be
 *   identity  bounding set emptied, uid and gid of the machine's slot, no groups (but /dev/kvm's),
 *             no capability in any set, securebits locked, no_new_privs
 *   filter    the system calls of filter.c, anything else ends the process
 *   exec      the VMM
 *
 * A step that fails sends its sentence to the parent through a pipe and the child ends; the pipe
 * closes on exec, which is how the parent knows that all went well. The child is PID 1 of its pid
 * namespace: when it ends, everything in there ends.
 *
 * The VMM needs its libraries, procfs and /dev until it has initialised. jail_seal() then swaps its
 * root for an empty read-only tmpfs.
 *
 * Single-threaded callers only: the child is made with clone(2) and goes on in our code.
 */
#pragma once

#include "base/err.h"
#include "ipc/priv.h"

#include <linux/filter.h>
#include <sys/types.h>

#define JAIL_CGROUPS_MAX 6u

struct jail_spec {
    const char *vmm_path;            /* borrowed: absolute, without symbolic links */
    char *const *argv;               /* borrowed: NULL-terminated */
    const struct sock_fprog *filter; /* borrowed: from jail_filter_vmm() */
    uid_t uid;                       /* and gid */
    uint32_t threads_max;
    uint64_t file_size_max; /* RLIMIT_FSIZE */
    bool kvm;
    int fds[PRIV_FD_COUNT_]; /* borrowed */
    int cgroup_procs
        [JAIL_CGROUPS_MAX]; /* borrowed: open for writing; FD_NONE where there is none */
};

struct jail_child {
    pid_t pid;
    int pidfd; /* owned */
};

/* Returns when the VMM has been exec'd. On failure there is no child any more. */
MUST_CHECK int jail_start(const struct jail_spec *spec, struct jail_child *ret, struct err *e);

/*
 * Empties the root of the process behind pidfd and of all others in its mount namespace. Done by a
 * short-lived child, because entering a mount namespace is for ever. -ESRCH: the process has ended.
 */
MUST_CHECK int jail_seal(int pidfd, struct err *e);
