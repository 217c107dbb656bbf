/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the sandbox's programs live: a mount namespace of its own whose root is the sandbox's disk, a cgroup
 * that leaves the daemon room to live, users as the sandbox's own /etc/passwd tells them, and the
 * environment from set-up.
 *
 * The daemon itself stays in the initramfs. Nothing in it ever resolves a path of the sandbox in its own
 * context: a forked child calls workload_enter (setns to the mount namespace, chroot to its root) and
 * workload_become (groups, gid, uid), and only then touches paths. So symlinks planted by the workload
 * mean to us exactly what they mean to the workload, and rights are the kernel's business.
 *
 * State: not ready -> ready by workload_enter_ready (POST /setup), back by workload_leave_ready (POST /teardown).
 * In tests ready from the start, with a plain directory for a root.
 *
 * /etc/passwd and /etc/group are foreign bytes: read as regular files beneath the root, without following
 * symlinks or crossing mounts (a FUSE mount of the workload could make us wait for ever), bounded, by a
 * parser that is pure and fuzzed (passwd.h). Without them there is still root.
 */
#pragma once

#include "base/err.h"
#include "base/util.h"

#include <limits.h>
#include <sys/types.h>

#define WORKLOAD_NAME_MAX 64
#define WORKLOAD_GROUPS_MAX 64

struct workload;

struct workload_user {
    uid_t uid;
    gid_t gid;
    char name[WORKLOAD_NAME_MAX];      /* decimal uid when there is no entry */
    char home[256];                    /* absolute; "/" when the entry has none or a relative one */
    char shell[256];                   /* "/bin/sh" when the entry has none */
    gid_t groups[WORKLOAD_GROUPS_MAX]; /* supplementary, gid included */
    size_t n_groups;
};

bool workload_ready(const struct workload *w);

/*
 * name: a user name, or a decimal uid (needs no entry); NULL or "": the template's default user.
 * -ENOENT "user_not_found" with field "user".
 */
MUST_CHECK int workload_user(const struct workload *w, const char *name, struct workload_user *ret,
                             struct err *e);
/*
 * In a forked child only: moves into the sandbox (namespaces, root, cwd "/"). Async-signal-safe, allocates
 * nothing. Returns 0 or negative errno; on failure the child must _exit, nothing else.
 * In tests without privilege it does fchdir to the root instead of chroot, so paths are then relative.
 */
MUST_CHECK int workload_enter(const struct workload *w);
/* In a forked child, after workload_enter: setgroups, setgid, setuid. Likewise. */
MUST_CHECK int workload_become(const struct workload_user *u);

/*
 * The environment every command starts with: PATH, HOME, USER, LOGNAME, SHELL, LANG, then set-up's env
 * over it. Strings "K=V"; the array ends with NULL and is the caller's to free with workload_env_free.
 */
char **workload_env(const struct workload *w, const struct workload_user *u);
void workload_env_free(char **env);
DEFINE_CLEANUP(char **, workload_env_free);

/*
 * An O_PATH descriptor of the cgroup (v2) below which commands get theirs, FD_NONE where there is none (tests).
 * Borrowed: lives as long as the workload. Valid also before set-up.
 */
int workload_cgroup(const struct workload *w);
/* An O_PATH descriptor of the sandbox's root; FD_NONE when not ready. Borrowed. */
int workload_root(const struct workload *w);

/* ---- for set-up ---- */

/* Not ready. The descriptors (FD_NONE: there is none) are taken over. */
struct workload_cgroups {
    int cgroup_fd; /* the folder below which commands get theirs */
    int ns_fd;     /* a cgroup namespace with that folder as its root */
};
struct workload *workload_new(struct workload_cgroups cgroups_take);
void workload_free(struct workload *w);
DEFINE_CLEANUP(struct workload *, workload_free);

struct workload_place {
    int root_fd;     /* O_PATH, the sandbox's root */
    int mount_ns_fd; /* FD_NONE: stay in ours, and root_fd is a plain directory (tests) */
};
/* Makes it ready; the descriptors are taken over. Must not be ready. */
void workload_enter_ready(struct workload *w, struct workload_place place_take);
/* Not ready any more. With the last process and descriptor gone the kernel unmounts everything. */
void workload_leave_ready(struct workload *w);
/* env: "K=V" strings ended by NULL, taken over, may be NULL; default_user: "" for root. */
/* As in configure, for the env alone. */
void workload_set_env(struct workload *w, char **env_take);
void workload_configure(struct workload *w, char **env_take, const char *default_user);
/* FD_NONE where there is none. Borrowed. */
int workload_cgroup_ns(const struct workload *w);
