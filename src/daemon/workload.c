/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/workload.h"

#include "base/fs.h"
#include "daemon/passwd.h"
#include "daemon/trust.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct workload {
    bool ready;
    int root_fd;      /* owned */
    int mount_ns_fd;  /* owned */
    int cgroup_ns_fd; /* owned */
    int cgroup_fd;    /* owned */
    char **env;       /* owned; set-up's; may be NULL */
    char default_user[WORKLOAD_NAME_MAX];
};

struct workload *workload_new(struct workload_cgroups cgroups_take)
{
    struct workload *w = xnew(struct workload);

    w->root_fd = FD_NONE;
    w->mount_ns_fd = FD_NONE;
    w->cgroup_fd = cgroups_take.cgroup_fd;
    w->cgroup_ns_fd = cgroups_take.ns_fd;
    return w;
}

void workload_free(struct workload *w)
{
    if (!w) {
        return;
    }
    workload_leave_ready(w);
    workload_env_free(w->env);
    fd_close(w->cgroup_fd);
    fd_close(w->cgroup_ns_fd);
    free(w);
}

void workload_enter_ready(struct workload *w, struct workload_place place_take)
{
    ASSERT(!w->ready && place_take.root_fd >= 0);
    w->root_fd = place_take.root_fd;
    w->mount_ns_fd = place_take.mount_ns_fd;
    w->ready = true;
}

void workload_leave_ready(struct workload *w)
{
    w->root_fd = fd_close(w->root_fd);
    w->mount_ns_fd = fd_close(w->mount_ns_fd);
    w->ready = false;
}

void workload_set_env(struct workload *w, char **env_take)
{
    workload_env_free(w->env);
    w->env = env_take;
}

void workload_configure(struct workload *w, char **env_take, const char *default_user)
{
    workload_set_env(w, env_take);
    if (str_copy(w->default_user, sizeof(w->default_user), default_user) < 0) {
        w->default_user[0] = '\0'; /* set-up has checked its length */
    }
}

int workload_cgroup_ns(const struct workload *w)
{
    return w->cgroup_ns_fd;
}

bool workload_ready(const struct workload *w)
{
    return w->ready;
}

int workload_cgroup(const struct workload *w)
{
    return w->cgroup_fd;
}

int workload_root(const struct workload *w)
{
    return w->root_fd;
}

/* ---- users ---- */

/* A small regular file of the sandbox; empty when there is none that we would read. */
static void workload_read(const struct workload *w, const char *name, struct buf *ret)
{
    struct open_how how = {
        .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };
    cleanup_close int fd = (int)syscall(SYS_openat2, w->root_fd, name, &how, sizeof(how));
    struct stat st;

    if (fd < 0) {
        fd = FD_NONE;
        return;
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || fs_read_fd(fd, ret) < 0) {
        buf_reset(ret);
    }
}

/* What Linux does without any file. */
static int workload_user_builtin(uid_t uid, struct workload_user *ret)
{
    struct workload_user u = {
        .uid = uid, .gid = uid, .home = "/", .shell = "/bin/sh", .n_groups = 1};

    u.groups[0] = u.gid;
    if (uid == 0) {
        IGNORE_RESULT(str_copy(u.name, sizeof(u.name), "root"));
        IGNORE_RESULT(str_copy(u.home, sizeof(u.home), "/root"));
    } else {
        snprintf(u.name, sizeof(u.name), "%u", uid);
    }
    *ret = u;
    return 0;
}

int workload_user(const struct workload *w, const char *name, struct workload_user *ret,
                  struct err *e)
{
    cleanup_buf struct buf passwd = BUF_INIT(PASSWD_FILE_MAX);
    cleanup_buf struct buf group = BUF_INIT(PASSWD_FILE_MAX);
    uint64_t uid = 0;
    int r;

    ASSERT(w->ready);
    if (str_empty(name)) {
        name = w->default_user[0] ? w->default_user : "root";
    }
    workload_read(w, "etc/passwd", &passwd);
    r = passwd_find_name(buf_str(&passwd), passwd.len, name, ret);
    if (r < 0 && str_to_u64(name, UINT32_MAX - 1, &uid) == 0) {
        r = passwd_find_uid(buf_str(&passwd), passwd.len, (uid_t)uid, ret);
        r = r < 0 ? workload_user_builtin((uid_t)uid, ret) : r;
    } else if (r < 0 && str_eq(name, "root")) {
        r = workload_user_builtin(0, ret);
    }
    if (r < 0) {
        return err_field(e, -ENOENT, "user_not_found", "user", "the sandbox has no user '%.64s'",
                         name);
    }
    workload_read(w, "etc/group", &group);
    group_collect(buf_str(&group), group.len, ret);
    return 0;
}

/* ---- in the forked child ---- */

int workload_enter(const struct workload *w)
{
    if (w->mount_ns_fd >= 0 && setns(w->mount_ns_fd, CLONE_NEWNS) < 0) {
        return -errno;
    }
    if (w->cgroup_ns_fd >= 0 && setns(w->cgroup_ns_fd, CLONE_NEWCGROUP) < 0) {
        return -errno;
    }
    if (fchdir(w->root_fd) < 0) {
        return -errno;
    }
    if (geteuid() != 0 && w->mount_ns_fd < 0) {
        return 0; /* tests as a plain user */
    }
    return chroot(".") < 0 || chdir("/") < 0 ? -errno : 0;
}

int workload_become(const struct workload_user *u)
{
    if (geteuid() != 0) { /* tests as a plain user: nobody else than oneself */
        return u->uid == geteuid() ? 0 : -EPERM;
    }
    if (setgroups(u->n_groups, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
        setresuid(u->uid, u->uid, u->uid) < 0) {
        return -errno;
    }
    return 0;
}

/* ---- environment ---- */

static size_t env_find(char **env, size_t n, const char *entry)
{
    size_t len = strcspn(entry, "=") + 1;
    size_t i = 0;

    while (i < n && strncmp(env[i], entry, len) != 0) {
        i++;
    }
    return i;
}

char **workload_env(const struct workload *w, const struct workload_user *u)
{
    size_t n = 0;
    size_t n_own = 0;
    size_t n_trust = 0;
    bool trusts = w->root_fd >= 0 && trust_present(w->root_fd);
    char **env;

    while (trusts && trust_env(n_trust)) {
        n_trust++;
    }
    while (w->env && w->env[n_own]) {
        n_own++;
    }
    env = xnew_n(char *, 6 + n_trust + n_own + 1);
    env[n++] = xstrdup("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    env[n++] = xasprintf("HOME=%s", u->home);
    env[n++] = xasprintf("USER=%s", u->name);
    env[n++] = xasprintf("LOGNAME=%s", u->name);
    env[n++] = xasprintf("SHELL=%s", u->shell);
    env[n++] = xstrdup("LANG=C.UTF-8");
    for (size_t i = 0; i < n_trust; i++) {
        env[n++] = xstrdup(trust_env(i));
    }
    for (size_t i = 0; i < n_own; i++) {
        size_t at = env_find(env, n, w->env[i]);

        if (at == n) {
            n++;
        }
        free(env[at]);
        env[at] = xstrdup(w->env[i]);
    }
    return env;
}

void workload_env_free(char **env)
{
    for (size_t i = 0; env && env[i]; i++) {
        free(env[i]);
    }
    free(env);
}
