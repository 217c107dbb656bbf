/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of one command, as a whole: started together, signalled together, killed together, however
 * they fork, change session or let themselves be orphaned.
 *
 * Two implementations behind one table:
 *
 *  - cgroup2: a cgroup per command below the workload's. The child is born in it (CLONE_INTO_CGROUP), so there
 *    is no moment in which it could escape; cgroup.kill takes everything at once, fork bombs included;
 *    cgroup.events tells when the last one has gone; memory.events tells about the out-of-memory killer;
 *    pids.max keeps a reserve for the commands that come after (a tenth of the workload's own limit).
 *  - tree: where there is no cgroup v2 (tests on a host, as a plain user). Members are found in /proc: whoever
 *    descends from the command's process, is of its session, or carries its mark in the environment
 *    (COMMAND_MARK). A process that leaves all three is not found: this is weaker, tells nothing about
 *    memory, and cgroups_kind() says so.
 *
 * Nothing blocks. Deleting what still has members is refused by the kernel; cgroup_free() then leaves the
 * folder behind and cgroups_sweep() tries again.
 */
#pragma once

#include "base/err.h"
#include "base/loop.h"

#include <sys/types.h>

/* The variable that marks a command's processes for the tree implementation. */
#define COMMAND_MARK "SPACE_COMMAND"

struct cgroups;
struct cgroup;

/* base_fd: a cgroup2 folder (O_PATH will do), borrowed for the life of the object; FD_NONE: the tree way. */
struct cgroups *cgroups_new(struct loop *loop, int base_fd);
void cgroups_free(struct cgroups *cs);
DEFINE_CLEANUP(struct cgroups *, cgroups_free);
/* "cgroup2" or "tree". */
const char *cgroups_kind(const struct cgroups *cs);
/* True when processes need COMMAND_MARK in their environment. */
bool cgroups_need_mark(const struct cgroups *cs);
/* Kills whatever is in any cgroup below the base, ours or not. */
void cgroups_kill_all(struct cgroups *cs);
/* Removes folders that could not be removed when their cgroup was freed. */
void cgroups_sweep(struct cgroups *cs);

/* Makes the cgroup for the command with this id. */
MUST_CHECK int cgroup_new(struct cgroups *cs, const char *id, struct cgroup **ret, struct err *e);
/* Frees the object and removes the cgroup if it is empty; kills nothing. */
void cgroup_free(struct cgroup *cg);
DEFINE_CLEANUP(struct cgroup *, cgroup_free);
/* For CLONE_INTO_CGROUP; FD_NONE with the tree implementation. Borrowed. */
int cgroup_fd(const struct cgroup *cg);
/* Tells which process is the command's own. The pid must not be reaped before cgroup_leader_gone(). */
void cgroup_leader(struct cgroup *cg, pid_t pid);
void cgroup_leader_gone(struct cgroup *cg);
/* A signal to every member, or 0 as a probe. -ESRCH: there is none. */
MUST_CHECK int cgroup_signal(struct cgroup *cg, int signo);
/* SIGKILL to every member, and to those it is forking now. */
void cgroup_kill(struct cgroup *cg);
bool cgroup_populated(struct cgroup *cg);
/* How many members the out-of-memory killer has taken, ever. */
uint64_t cgroup_oom_kills(struct cgroup *cg);
/* Calls fn once when the last member has gone (also when there is none now), from the loop. NULL: not any more. */
void cgroup_on_empty(struct cgroup *cg, loop_fn fn, void *arg);
