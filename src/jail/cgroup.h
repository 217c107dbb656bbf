/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cgroup per machine: its limits, the list of its processes, and the only memory the node
 * manager has. A machine is the folder "<id>-<slot>" below the group "space" (or --cgroup); where
 * the host has version 1 hierarchies, one of that name in each of cpu, memory and pids (and
 * cpuacct, if it is apart). The folder in the pids hierarchy (on v2: the folder) decides whether a
 * machine exists: it is made first and removed last.
 *
 * "space" lies at the top of the hierarchy, beside systemd's own groups and not inside a unit, so
 * that a restart of the node manager's unit neither ends machines nor finds its own group busy with
 * them.
 *
 * Processes are killed by group, or by a pidfd that was opened while the group still listed the
 * process: never by a bare pid.
 */
#pragma once

#include "base/err.h"
#include "ipc/priv.h"
#include "jail/jail.h"

enum cgroup_hierarchy {
    CGROUP_PIDS, /* first: decides whether a machine exists; on v2 the only one */
    CGROUP_CPU,
    CGROUP_CPUACCT,
    CGROUP_MEMORY,
    CGROUP_COUNT_,
};

struct cgroup_host {
    bool v2;
    int dir_fd[CGROUP_COUNT_]; /* owned: the group "space"; FD_NONE where there is none */
};

struct cgroup_limits {
    uint64_t memory_bytes;
    uint32_t vcpus;
    uint32_t pids;
};

/* Finds the hierarchies and makes the group name in each. */
MUST_CHECK int cgroup_host_open(struct cgroup_host *ret, const char *name, struct err *e);
void cgroup_host_close(struct cgroup_host *host);

/* The machine with this id. -ENOENT (without text): there is none. *ret_slot may be NULL. */
MUST_CHECK int cgroup_find(const struct cgroup_host *host, const char *id, uint32_t *ret_slot);
/* 1 and the machine with the lowest id that is higher than after, or 0. */
MUST_CHECK int cgroup_next(const struct cgroup_host *host, const char *after,
                           char ret_id[PRIV_ID_SIZE], uint32_t *ret_slot);
/* Whether a machine has this slot. */
MUST_CHECK int cgroup_slot_used(const struct cgroup_host *host, uint32_t slot);

/*
 * Makes the machine's cgroups with its limits, and opens each cgroup.procs for writing into procs
 * (owned by the caller, FD_NONE for those that do not exist). Leaves nothing behind on failure.
 */
MUST_CHECK int cgroup_create(const struct cgroup_host *host, const char *id, uint32_t slot,
                             const struct cgroup_limits *limits, int procs[JAIL_CGROUPS_MAX],
                             struct err *e);
/*
 * Kills what is in there, waits until it is gone and removes the folders. -ETIMEDOUT: a process
 * would not end.
 */
MUST_CHECK int cgroup_destroy(const struct cgroup_host *host, const char *id, uint32_t slot,
                              uint64_t deadline_ns, struct err *e);
/*
 * The VMM: the process of the machine that is PID 1 of its pid namespace, with a pidfd that is
 * certain to be it. -ESRCH: it has ended.
 */
MUST_CHECK int cgroup_vmm(const struct cgroup_host *host, const char *id, uint32_t slot,
                          pid_t *ret_pid, int *ret_pidfd);
MUST_CHECK int cgroup_stats(const struct cgroup_host *host, const char *id, uint32_t slot,
                            struct priv_machine_stats *ret, struct err *e);
