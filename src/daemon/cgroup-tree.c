/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cgroup-driver.h"

#include "base/buf.h"
#include "base/fs.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* More processes than this are not looked at: this way of doing it is for tests on a host. */
#define PROCESSES_MAX 65536u
#define ENVIRON_MAX (2u * 1024 * 1024)
#define LOOK_EVERY_MS 50

struct process {
    pid_t pid;
    pid_t parent;
    pid_t session;
    bool member;
};

/* From "/proc/PID/stat": -ESRCH when it has gone or is a zombie. */
static int read_process(int proc_fd, const char *name, struct process *ret)
{
    char path[64];
    char text[1024];
    cleanup_close int fd = FD_NONE;
    const char *rest;
    ssize_t n;
    char state;
    int parent;
    int group;
    int session;

    snprintf(path, sizeof(path), "%.20s/stat", name);
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (n <= 0) {
        return -ESRCH;
    }
    text[n] = '\0';
    rest = strrchr(text, ')'); /* the name before it may hold anything */
    if (!rest || sscanf(rest + 1, " %c %d %d %d", &state, &parent, &group, &session) != 4 ||
        state == 'Z' || state == 'X') {
        return -ESRCH;
    }
    *ret = (struct process){
        .pid = (pid_t)strtol(name, NULL, 10), .parent = parent, .session = session};
    return 0;
}

enum mark {
    MARK_NONE,
    MARK_FOUND, /* it was born with the mark of this command */
    MARK_UNKNOWN, /* it is in the middle of execve(2), has no environment, or is not ours to look at */
};

static enum mark find_mark(int proc_fd, pid_t pid, const char *id)
{
    cleanup_buf struct buf env = BUF_INIT(ENVIRON_MAX);
    char path[64];
    char mark[64];
    size_t mark_len;

    snprintf(path, sizeof(path), "%d/environ", pid);
    snprintf(mark, sizeof(mark), "%s=%s", COMMAND_MARK, id);
    mark_len = strlen(mark) + 1;
    if (fs_read_file(proc_fd, path, &env) < 0 || env.len == 0) {
        return MARK_UNKNOWN;
    }
    for (size_t at = 0; at + mark_len <= env.len;) {
        if (memcmp(env.data + at, mark, mark_len) == 0) {
            return MARK_FOUND;
        }
        at += strlen(env.data + at) + 1;
    }
    return MARK_NONE;
}

static bool is_member(const struct cgroup *cg, int proc_fd, const struct process *p)
{
    /* The leader's number means something only while it is not reaped. */
    if (cg->leader > 0 && (p->pid == cg->leader || p->session == cg->leader)) {
        return true;
    }
    switch (find_mark(proc_fd, p->pid, cg->id)) {
    case MARK_FOUND:
        return true;
    case MARK_UNKNOWN:
        return cg->session > 0 && p->session == cg->session;
    case MARK_NONE:
        break;
    }
    return false;
}

static size_t list_processes(int proc_fd, struct process **ret)
{
    int list_fd = openat(proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = list_fd >= 0 ? fdopendir(list_fd) : NULL;
    struct process *list = NULL;
    struct dirent *entry;
    size_t n = 0;

    if (!dir) {
        fd_close(list_fd);
    }
    while (dir && n < PROCESSES_MAX && (entry = readdir(dir))) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9') {
            continue;
        }
        if (n % 256 == 0) {
            list = xrealloc(list, (n + 256) * sizeof(*list));
        }
        n += read_process(proc_fd, entry->d_name, &list[n]) == 0;
    }
    if (dir) {
        closedir(dir);
    }
    *ret = list;
    return n;
}

/* Children of members are members, until nothing changes. */
static void spread(struct process *list, size_t n)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < n; i++) {
            for (size_t k = 0; !list[i].member && k < n; k++) {
                list[i].member = list[k].member && list[k].pid == list[i].parent;
                changed |= list[i].member;
            }
        }
    }
}

/* Signals all members (0: none) and returns how many there are. */
static size_t for_members(struct cgroup *cg, int signo)
{
    cleanup_close int proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_free struct process *list = NULL;
    size_t n = proc_fd >= 0 ? list_processes(proc_fd, &list) : 0;
    size_t n_members = 0;

    for (size_t i = 0; i < n; i++) {
        list[i].member = is_member(cg, proc_fd, &list[i]);
    }
    spread(list, n);
    for (size_t i = 0; i < n; i++) {
        if (list[i].member) {
            n_members++;
            if (signo > 0) {
                kill(list[i].pid, signo);
            }
        }
    }
    return n_members;
}

static int tree_make(struct cgroup *cg, struct err *e)
{
    (void)cg;
    (void)e;
    return 0;
}

static void tree_remove(struct cgroup *cg)
{
    (void)cg;
}

static int tree_signal(struct cgroup *cg, int signo)
{
    return for_members(cg, signo) > 0 ? 0 : -ESRCH;
}

static void tree_kill(struct cgroup *cg)
{
    cg->killing = for_members(cg, SIGKILL) > 0;
    if (cg->killing) {
        cgroup_check_later(cg, LOOK_EVERY_MS); /* what was being forked meanwhile */
    }
}

static bool tree_populated(struct cgroup *cg)
{
    return for_members(cg, 0) > 0;
}

static uint64_t tree_oom_kills(struct cgroup *cg)
{
    (void)cg;
    return 0;
}

static void tree_watch(struct cgroup *cg, bool on)
{
    if (on) {
        cgroup_check_later(cg, LOOK_EVERY_MS);
    }
}

static void tree_kill_all(struct cgroups *cs)
{
    (void)cs; /* every command is killed by itself; there is no common place to look */
}

static void tree_sweep(struct cgroups *cs)
{
    (void)cs;
}

const struct cgroup_driver cgroup_driver_tree = {
    .name = "tree",
    .make = tree_make,
    .remove = tree_remove,
    .signal = tree_signal,
    .kill = tree_kill,
    .populated = tree_populated,
    .oom_kills = tree_oom_kills,
    .watch = tree_watch,
    .kill_all = tree_kill_all,
    .sweep = tree_sweep,
};
