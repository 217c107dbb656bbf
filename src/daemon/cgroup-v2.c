/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cgroup-driver.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The workload may make cgroups of its own below a command's; this deep we look and clear away. */
#define DEPTH_MAX 8
#define FILE_TEXT_MAX 1024

/* Reads a small control file as a string; negative errno. */
static int read_text(int dir_fd, const char *name, char ret[static FILE_TEXT_MAX])
{
    cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0) {
        return -errno;
    }
    n = read(fd, ret, FILE_TEXT_MAX - 1);
    if (n < 0) {
        return -errno;
    }
    ret[n] = '\0';
    return 0;
}

static int write_text(int dir_fd, const char *name, const char *text)
{
    cleanup_close int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);
    size_t len = strlen(text);

    if (fd < 0) {
        return -errno;
    }
    return write(fd, text, len) == (ssize_t)len ? 0 : -errno;
}

/* The number after "key " in a file of such lines; 0 when it is not there. */
static uint64_t read_keyed(int dir_fd, const char *name, const char *key)
{
    char text[FILE_TEXT_MAX];
    size_t key_len = strlen(key);

    if (read_text(dir_fd, name, text) < 0) {
        return 0;
    }
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, key_len) == 0 && line[key_len] == ' ') {
            return strtoull(line + key_len + 1, NULL, 10);
        }
    }
    return 0;
}

/* Keeps a tenth of the workload's processes for the commands that come later; best effort. */
static void limit_pids(const struct cgroup *cg)
{
    char text[FILE_TEXT_MAX];
    uint64_t whole;

    if (read_text(cg->cs->base_fd, "pids.max", text) < 0 || str_starts(text, "max")) {
        return; /* no such controller, or no limit to keep a part of */
    }
    whole = strtoull(text, NULL, 10);
    if (whole < 32) {
        return;
    }
    snprintf(text, sizeof(text), "%llu", (unsigned long long)(whole - whole / 10));
    IGNORE_RESULT(
        write_text(cg->dir_fd, "pids.max", text)); /* without it the workload's own limit holds */
}

static int v2_make(struct cgroup *cg, struct err *e)
{
    int base_fd = cg->cs->base_fd;

    if (mkdirat(base_fd, cg->id, 0755) < 0) {
        return err_wrap(e, -errno, "making the cgroup of the command");
    }
    cg->dir_fd = openat(base_fd, cg->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (cg->dir_fd < 0) {
        int r = -errno;

        unlinkat(base_fd, cg->id, AT_REMOVEDIR);
        cg->dir_fd = FD_NONE;
        return err_wrap(e, r, "opening the cgroup of the command");
    }
    limit_pids(cg);
    return 0;
}

/* For one folder: its name below parent_fd, and itself as fd. */
typedef void walk_fn(int parent_fd, const char *name, int fd, void *arg);

/* Calls fn for this folder and for every folder below it, deepest first. */
static void walk(int parent_fd, const char *name, int depth, walk_fn *fn, void *arg)
{
    cleanup_close int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int list_fd;
    DIR *dir;
    struct dirent *entry;

    if (fd < 0) {
        return;
    }
    list_fd = depth < DEPTH_MAX ? openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : FD_NONE;
    dir = list_fd >= 0 ? fdopendir(list_fd) : NULL;
    if (!dir) {
        fd_close(list_fd);
    }
    while (dir && (entry = readdir(dir))) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            walk(fd, entry->d_name, depth + 1, fn, arg);
        }
    }
    if (dir) {
        closedir(dir);
    }
    fn(parent_fd, name, fd, arg);
}

static void remove_one(int parent_fd, const char *name, int fd, void *unused)
{
    (void)fd;
    (void)unused;
    unlinkat(parent_fd, name, AT_REMOVEDIR); /* refused while it has members: that is meant */
}

static void v2_remove(struct cgroup *cg)
{
    if (unlinkat(cg->cs->base_fd, cg->id, AT_REMOVEDIR) < 0 && errno == EBUSY) {
        walk(cg->cs->base_fd, cg->id, 0, remove_one, NULL);
    }
}

struct signal_job {
    int signo;
    unsigned n_members;
};

/* 0 and 1 can stand in a list (other namespaces) and mean something else to kill(2). */
static void signal_pid(struct signal_job *job, pid_t pid)
{
    if (pid > 1) {
        job->n_members++;
        kill(pid, job->signo);
    }
}

static void signal_members(int parent_fd, const char *name, int fd, void *arg)
{
    cleanup_close int procs = openat(fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    char text[4096];
    pid_t pid = 0;
    ssize_t n;

    (void)parent_fd;
    (void)name;
    while (procs >= 0 && (n = read(procs, text, sizeof(text))) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] >= '0' && text[i] <= '9') {
                pid = pid * 10 + (text[i] - '0');
            } else {
                signal_pid(arg, pid);
                pid = 0;
            }
        }
    }
}

static int v2_signal(struct cgroup *cg, int signo)
{
    struct signal_job job = {.signo = signo};

    walk(cg->cs->base_fd, cg->id, 0, signal_members, &job);
    return job.n_members > 0 ? 0 : -ESRCH;
}

static void v2_kill(struct cgroup *cg)
{
    if (write_text(cg->dir_fd, "cgroup.kill", "1") < 0) {
        IGNORE_RESULT(v2_signal(
            cg, SIGKILL)); /* a kernel before 5.14; whoever is left is seen by the watch */
    }
}

static bool v2_populated(struct cgroup *cg)
{
    return read_keyed(cg->dir_fd, "cgroup.events", "populated") > 0;
}

static uint64_t v2_oom_kills(struct cgroup *cg)
{
    return read_keyed(cg->dir_fd, "memory.events", "oom_kill");
}

static void on_events(void *arg, uint32_t events)
{
    struct cgroup *cg = arg;
    char text[FILE_TEXT_MAX];

    (void)events;
    if (pread(cg->events_fd, text, sizeof(text), 0) >= 0) { /* reading is what re-arms the event */
        cgroup_check_empty(cg);
    }
}

static void v2_watch(struct cgroup *cg, bool on)
{
    if (on && !cg->events) {
        cg->events_fd = openat(cg->dir_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
        if (cg->events_fd < 0) {
            cgroup_check_later(cg, 1000); /* no descriptor left: look again later instead */
            return;
        }
        cg->events = loop_add_io(cg->cs->loop, cg->events_fd, EPOLLPRI, on_events, cg);
    } else if (!on) {
        loop_io_free(cg->events);
        cg->events = NULL;
        cg->events_fd = fd_close(cg->events_fd);
    }
}

static void for_each_child(struct cgroups *cs, walk_fn *fn)
{
    int list_fd = openat(cs->base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = list_fd >= 0 ? fdopendir(list_fd) : NULL;
    struct dirent *entry;

    if (!dir) {
        fd_close(list_fd);
        return;
    }
    while ((entry = readdir(dir))) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            walk(cs->base_fd, entry->d_name, 0, fn, NULL);
        }
    }
    closedir(dir);
}

static void kill_one(int parent_fd, const char *name, int fd, void *unused)
{
    (void)parent_fd;
    (void)name;
    (void)unused;
    IGNORE_RESULT(write_text(fd, "cgroup.kill", "1")); /* gone meanwhile is as good */
}

static void v2_kill_all(struct cgroups *cs)
{
    for_each_child(cs, kill_one);
}

static void v2_sweep(struct cgroups *cs)
{
    for_each_child(cs, remove_one);
}

const struct cgroup_driver cgroup_driver_v2 = {
    .name = "cgroup2",
    .make = v2_make,
    .remove = v2_remove,
    .signal = v2_signal,
    .kill = v2_kill,
    .populated = v2_populated,
    .oom_kills = v2_oom_kills,
    .watch = v2_watch,
    .kill_all = v2_kill_all,
    .sweep = v2_sweep,
};
