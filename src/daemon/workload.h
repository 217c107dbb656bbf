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
 * State: NONE -> READY by workload_mount (POST /setup), READY -> NONE by workload_unmount (POST /teardown).
 * In tests READY from the start, with a plain directory for a root.
 *
 * /etc/passwd and /etc/group are foreign bytes: read as regular files beneath the root without following
 * symlinks, at most WORKLOAD_PASSWD_MAX bytes, by a parser that is pure and fuzzed (passwd.h).
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
    char name[WORKLOAD_NAME_MAX]; /* decimal uid when there is no entry */
    char home[256];               /* absolute; "/" when the entry has none or a relative one */
    char shell[256];              /* "/bin/sh" when the entry has none */
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
/* Owner names for file entries: "" when unknown. ret holds WORKLOAD_NAME_MAX. Cached until the files change. */
void workload_uid_name(struct workload *w, uid_t uid, char *ret);
void workload_gid_name(struct workload *w, gid_t gid, char *ret);
/* The inverse, for chown: a name or a decimal id. -ENOENT when there is no such name. */
MUST_CHECK int workload_uid_of(struct workload *w, const char *name, uid_t *ret);
MUST_CHECK int workload_gid_of(struct workload *w, const char *name, gid_t *ret);

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
/* Set-up's limit for each command's kept output and such: 0 when set-up did not say. */
uint64_t workload_limit(const struct workload *w, const char *name);
