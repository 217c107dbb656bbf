/* SPDX-License-Identifier: Apache-2.0 */
#include "jail/cgroup.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CGROUP_ROOT "/sys/fs/cgroup"
#define CGROUP_FILE_MAX 65536u
#define CGROUP_NAME_SIZE 40u
#define CGROUP_PIDS_MAX 1024u
#define CPU_PERIOD_US 100000u

/* Version 1: where each hierarchy is mounted, and whether a machine can do without. */
static const struct {
    const char *mount;
    bool optional;
} hierarchies[CGROUP_COUNT_] = {
    [CGROUP_PIDS] = {CGROUP_ROOT "/pids", false},
    [CGROUP_CPU] = {CGROUP_ROOT "/cpu", false},
    [CGROUP_CPUACCT] = {CGROUP_ROOT "/cpuacct", true},
    [CGROUP_MEMORY] = {CGROUP_ROOT "/memory", false},
};
_Static_assert(CGROUP_COUNT_ <= JAIL_CGROUPS_MAX, "the jail joins them all");

static void cgroup_name(char ret[CGROUP_NAME_SIZE], const char *id, uint32_t slot)
{
    snprintf(ret, CGROUP_NAME_SIZE, "%s-%u", id, slot);
}

/* False for a folder that is not a machine's. */
static bool cgroup_parse_name(const char *name, char ret_id[PRIV_ID_SIZE], uint32_t *ret_slot)
{
    const char *dash = strrchr(name, '-');
    uint64_t slot;

    if (!dash || dash == name || (size_t)(dash - name) >= PRIV_ID_SIZE ||
        str_to_u64(dash + 1, PRIV_MACHINE_SLOT_MAX, &slot) < 0) {
        return false;
    }
    memset(ret_id, 0, PRIV_ID_SIZE);
    memcpy(ret_id, name, (size_t)(dash - name));
    *ret_slot = (uint32_t)slot;
    return true;
}

/* Opens group/file below a hierarchy's folder; group may be "." */
static int cgroup_open(int dir_fd, const char *group, const char *file, int flags)
{
    char path[CGROUP_NAME_SIZE + 64];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", group, file);
    fd = openat(dir_fd, path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int cgroup_write(int dir_fd, const char *group, const char *file, const char *value)
{
    cleanup_close int fd = cgroup_open(dir_fd, group, file, O_WRONLY);

    if (fd < 0) {
        return fd;
    }
    return write(fd, value, strlen(value)) < 0 ? -errno : 0;
}

static int cgroup_read(int dir_fd, const char *group, const char *file, struct buf *b)
{
    cleanup_close int fd = cgroup_open(dir_fd, group, file, O_RDONLY);

    return fd < 0 ? fd : fs_read_fd(fd, b);
}

/*
 * The number after key (a word at the start of a line), or the first number of the file without
 * key.
 */
static uint64_t cgroup_number(int dir_fd, const char *group, const char *file, const char *key)
{
    cleanup_buf struct buf b = BUF_INIT(CGROUP_FILE_MAX);
    size_t len = key ? strlen(key) : 0;

    if (dir_fd < 0 || cgroup_read(dir_fd, group, file, &b) < 0) {
        return 0;
    }
    for (const char *line = buf_str(&b); line && *line;) {
        if (!key) {
            return strtoull(line, NULL, 10);
        }
        if (strncmp(line, key, len) == 0 && line[len] == ' ') {
            return strtoull(line + len + 1, NULL, 10);
        }
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return 0;
}

static int cgroup_open_group(const char *mount, const char *name, int *ret)
{
    cleanup_close int fd = open(mount, O_DIRECTORY | O_PATH | O_CLOEXEC);
    int r;

    if (fd < 0) {
        return -errno;
    }
    if (mkdirat(fd, name, 0755) < 0 && errno != EEXIST) {
        return -errno;
    }
    r = openat(fd, name, O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (r < 0) {
        return -errno;
    }
    *ret = r;
    return 0;
}

static int cgroup_host_open_v2(struct cgroup_host *host, const char *name, struct err *e)
{
    static const char controllers[] = "+cpu +memory +pids";
    int r = cgroup_write(AT_FDCWD, CGROUP_ROOT, "cgroup.subtree_control", controllers);

    if (r == 0) {
        r = cgroup_open_group(CGROUP_ROOT, name, &host->dir_fd[CGROUP_PIDS]);
    }
    if (r == 0) {
        r = cgroup_write(host->dir_fd[CGROUP_PIDS], ".", "cgroup.subtree_control", controllers);
    }
    return r < 0 ? err_wrap(e, r, "making the cgroup '%s'", name) : 0;
}

static int cgroup_host_open_v1(struct cgroup_host *host, const char *name, struct err *e)
{
    for (size_t i = 0; i < CGROUP_COUNT_; i++) {
        int r = cgroup_open_group(hierarchies[i].mount, name, &host->dir_fd[i]);

        if (r < 0 && !(r == -ENOENT && hierarchies[i].optional)) {
            return err_wrap(e, r, "making the cgroup '%s' in %s (is the controller mounted there?)",
                            name, hierarchies[i].mount);
        }
    }
    return 0;
}

/* Version 2 counts only when it has the controllers: on hybrid hosts they are with version 1. */
static bool cgroup_v2_has_controllers(void)
{
    cleanup_buf struct buf b = BUF_INIT(CGROUP_FILE_MAX);

    return cgroup_read(AT_FDCWD, CGROUP_ROOT, "cgroup.controllers", &b) == 0 &&
           strstr(buf_str(&b), "memory") && strstr(buf_str(&b), "cpu") &&
           strstr(buf_str(&b), "pids");
}

int cgroup_host_open(struct cgroup_host *ret, const char *name, struct err *e)
{
    struct cgroup_host host = {.v2 = cgroup_v2_has_controllers()};
    int r;

    for (size_t i = 0; i < CGROUP_COUNT_; i++) {
        host.dir_fd[i] = FD_NONE;
    }
    r = host.v2 ? cgroup_host_open_v2(&host, name, e) : cgroup_host_open_v1(&host, name, e);
    if (r < 0) {
        cgroup_host_close(&host);
        return r;
    }
    *ret = host;
    return 0;
}

void cgroup_host_close(struct cgroup_host *host)
{
    for (size_t i = 0; i < CGROUP_COUNT_; i++) {
        host->dir_fd[i] = fd_close(host->dir_fd[i]);
    }
}

/* Calls fn for each machine until it returns non-zero; returns that, 0 at the end, or an error. */
static int cgroup_each(const struct cgroup_host *host,
                       int (*fn)(void *arg, const char *id, uint32_t slot), void *arg)
{
    int fd = openat(host->dir_fd[CGROUP_PIDS], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    char id[PRIV_ID_SIZE];
    uint32_t slot;
    int r = 0;

    if (!dir) {
        r = -errno;
        fd_close(fd);
        return r;
    }
    errno = 0;
    while (r == 0 && (entry = readdir(dir))) {
        if (entry->d_type == DT_DIR && cgroup_parse_name(entry->d_name, id, &slot)) {
            r = fn(arg, id, slot);
        }
        errno = 0;
    }
    if (r == 0 && errno != 0) {
        r = -errno;
    }
    closedir(dir);
    return r;
}

struct search {
    const char *id; /* borrowed */
    uint32_t slot;
    char best[PRIV_ID_SIZE]; /* lowest id so far that is higher than id; "" for none */
};

static int match_id(void *arg, const char *id, uint32_t slot)
{
    struct search *s = arg;

    s->slot = slot;
    return str_eq(id, s->id) ? 1 : 0;
}

static int match_slot(void *arg, const char *id, uint32_t slot)
{
    const struct search *s = arg;

    (void)id;
    return slot == s->slot ? 1 : 0;
}

static int match_next(void *arg, const char *id, uint32_t slot)
{
    struct search *s = arg;

    if (strcmp(id, s->id) > 0 && (!s->best[0] || strcmp(id, s->best) < 0)) {
        memcpy(s->best, id, sizeof(s->best));
        s->slot = slot;
    }
    return 0;
}

int cgroup_find(const struct cgroup_host *host, const char *id, uint32_t *ret_slot)
{
    struct search s = {.id = id};
    int r = cgroup_each(host, match_id, &s);

    if (r == 1) {
        *ret_slot = s.slot;
        return 0;
    }
    return r < 0 ? r : -ENOENT;
}

int cgroup_slot_used(const struct cgroup_host *host, uint32_t slot)
{
    struct search s = {.slot = slot};

    return cgroup_each(host, match_slot, &s);
}

int cgroup_next(const struct cgroup_host *host, const char *after, char ret_id[PRIV_ID_SIZE],
                uint32_t *ret_slot)
{
    struct search s = {.id = after};
    int r = cgroup_each(host, match_next, &s);

    if (r < 0 || !s.best[0]) {
        return r;
    }
    memcpy(ret_id, s.best, PRIV_ID_SIZE);
    *ret_slot = s.slot;
    return 1;
}

/* A limit: a file in a hierarchy and what to write there. */
struct setting {
    enum cgroup_hierarchy hierarchy;
    const char *file;
    uint64_t value;
    bool optional; /* kernels without swap accounting do not have it */
};

static int cgroup_apply(const struct cgroup_host *host, const char *group, const struct setting *s)
{
    char text[32];
    int r;

    snprintf(text, sizeof(text), "%llu", (unsigned long long)s->value);
    r = FAULT("cgroup.limit") ? -errno
                              : cgroup_write(host->dir_fd[s->hierarchy], group, s->file, text);
    return s->optional && (r == -ENOENT || r == -EOPNOTSUPP) ? 0 : r;
}

static int cgroup_limit(const struct cgroup_host *host, const char *group,
                        const struct cgroup_limits *limits, struct err *e)
{
    /* One fifth of a CPU beyond the virtual CPUs for the VMM's own thread. */
    uint64_t quota_us = (uint64_t)limits->vcpus * CPU_PERIOD_US + CPU_PERIOD_US / 5;
    char cpu_max[48];
    const struct setting v1[] = {
        {CGROUP_PIDS, "pids.max", limits->pids, false},
        {CGROUP_CPU, "cpu.cfs_period_us", CPU_PERIOD_US, false},
        {CGROUP_CPU, "cpu.cfs_quota_us", quota_us, false},
        {CGROUP_CPU, "cpu.shares", (uint64_t)limits->vcpus * 1024, false},
        {CGROUP_MEMORY, "memory.limit_in_bytes", limits->memory_bytes, false},
        {CGROUP_MEMORY, "memory.memsw.limit_in_bytes", limits->memory_bytes, true},
    };
    const struct setting v2[] = {
        {CGROUP_PIDS, "pids.max", limits->pids, false},
        {CGROUP_PIDS, "cpu.weight", MIN((uint64_t)limits->vcpus * 100, (uint64_t)10000), false},
        {CGROUP_PIDS, "memory.max", limits->memory_bytes, false},
        {CGROUP_PIDS, "memory.swap.max", 0, true},
        {CGROUP_PIDS, "memory.oom.group", 1, true},
    };
    const struct setting *settings = host->v2 ? v2 : v1;
    size_t n = host->v2 ? ARRAY_SIZE(v2) : ARRAY_SIZE(v1);
    int r;

    for (size_t i = 0; i < n; i++) {
        r = cgroup_apply(host, group, &settings[i]);
        if (r < 0) {
            return err_wrap(e, r, "setting %s", settings[i].file);
        }
    }
    if (host->v2) {
        snprintf(cpu_max, sizeof(cpu_max), "%llu %u", (unsigned long long)quota_us, CPU_PERIOD_US);
        r = cgroup_write(host->dir_fd[CGROUP_PIDS], group, "cpu.max", cpu_max);
        if (r < 0) {
            return err_wrap(e, r, "setting cpu.max");
        }
    }
    return 0;
}

static int cgroup_make(const struct cgroup_host *host, const char *group,
                       const struct cgroup_limits *limits, int procs[JAIL_CGROUPS_MAX],
                       struct err *e)
{
    for (size_t i = 0; i < CGROUP_COUNT_; i++) {
        if (host->dir_fd[i] < 0) {
            continue;
        }
        if (FAULT("cgroup.mkdir") ||
            (mkdirat(host->dir_fd[i], group, 0755) < 0 && (errno != EEXIST || i == CGROUP_PIDS))) {
            return err_wrap(e, -errno, "making the machine's cgroup");
        }
        procs[i] = FAULT("cgroup.procs")
                       ? -errno
                       : cgroup_open(host->dir_fd[i], group, "cgroup.procs", O_WRONLY);
        if (procs[i] < 0) {
            return err_wrap(e, procs[i], "opening the machine's cgroup");
        }
    }
    return cgroup_limit(host, group, limits, e);
}

int cgroup_create(const struct cgroup_host *host, const char *id, uint32_t slot,
                  const struct cgroup_limits *limits, int procs[JAIL_CGROUPS_MAX], struct err *e)
{
    char group[CGROUP_NAME_SIZE];
    int r;

    cgroup_name(group, id, slot);
    for (size_t i = 0; i < JAIL_CGROUPS_MAX; i++) {
        procs[i] = FD_NONE;
    }
    r = cgroup_make(host, group, limits, procs, e);
    if (r < 0) {
        for (size_t i = 0; i < JAIL_CGROUPS_MAX; i++) {
            procs[i] = fd_close(procs[i]);
        }
        IGNORE_RESULT(
            cgroup_destroy(host, id, slot, deadline_in_ms(1000), /* e */ NULL)); /* r is told */
    }
    return r;
}

/* The processes of a group, in the order of cgroup.procs. Returns how many. */
static int cgroup_pids(const struct cgroup_host *host, const char *group, pid_t *ret, size_t max)
{
    cleanup_buf struct buf b = BUF_INIT(CGROUP_FILE_MAX);
    size_t n = 0;
    int r = cgroup_read(host->dir_fd[CGROUP_PIDS], group, "cgroup.procs", &b);

    if (r < 0) {
        return r;
    }
    for (const char *p = buf_str(&b); *p && n < max;) {
        ret[n++] = (pid_t)strtol(p, NULL, 10);
        p = strchr(p, '\n');
        p = p ? p + 1 : "";
    }
    return (int)n;
}

/* A pidfd for pid that is certain to be a process of the group, or -ESRCH. */
static int cgroup_pidfd(const struct cgroup_host *host, const char *group, pid_t pid)
{
    cleanup_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    pid_t pids[CGROUP_PIDS_MAX];
    int n;

    if (fd < 0) {
        return -errno;
    }
    /* If the group lists the pid now that we hold it, it is the process that we hold. */
    n = cgroup_pids(host, group, pids, ARRAY_SIZE(pids));
    for (int i = 0; i < n; i++) {
        if (pids[i] == pid) {
            return TAKE_FD(fd);
        }
    }
    return n < 0 ? n : -ESRCH;
}

/* Kills the processes of the group once and waits for the end of those that it could name. */
static int cgroup_kill_pass(const struct cgroup_host *host, const char *group, uint64_t deadline_ns)
{
    pid_t pids[CGROUP_PIDS_MAX];
    int n = cgroup_pids(host, group, pids, ARRAY_SIZE(pids));

    if (n <= 0) {
        return n;
    }
    if (host->v2) {
        IGNORE_RESULT(
            cgroup_write(host->dir_fd[CGROUP_PIDS], group, "cgroup.kill", "1")); /* new in 5.14 */
    }
    for (int i = 0; i < n; i++) {
        cleanup_close int pidfd = cgroup_pidfd(host, group, pids[i]);
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        if (pidfd < 0) {
            continue;
        }
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        if (poll(&p, 1, deadline_poll_ms(deadline_ns)) == 0) {
            return -ETIMEDOUT;
        }
    }
    return n;
}

/*
 * The end of the VMM ends its pid namespace, so a second pass is only for what was just being
 * forked.
 */
static int cgroup_kill_all(const struct cgroup_host *host, const char *group, uint64_t deadline_ns)
{
    int r;

    do {
        r = cgroup_kill_pass(host, group, deadline_ns);
    } while (r > 0 && !deadline_passed(deadline_ns));
    return r > 0 ? -ETIMEDOUT : r;
}

/* A process is out of the list a moment before the kernel lets go of its group: that is EBUSY. */
static int cgroup_rmdir(int dir_fd, const char *group, uint64_t deadline_ns)
{
    while (unlinkat(dir_fd, group, AT_REMOVEDIR) < 0) {
        if (errno == ENOENT) {
            return 0;
        }
        if (errno != EBUSY || deadline_passed(deadline_ns)) {
            return -errno;
        }
        poll(NULL, 0, 1); /* nothing can be awaited here: version 1 has no event for it */
    }
    return 0;
}

int cgroup_destroy(const struct cgroup_host *host, const char *id, uint32_t slot,
                   uint64_t deadline_ns, struct err *e)
{
    char group[CGROUP_NAME_SIZE];
    int r;

    cgroup_name(group, id, slot);
    r = cgroup_kill_all(host, group, deadline_ns);
    if (r < 0 && r != -ENOENT) {
        return err_wrap(e, r, "killing machine '%s'", id);
    }
    for (size_t i = CGROUP_COUNT_; i-- > 0;) { /* the one that decides goes last */
        r = host->dir_fd[i] >= 0 ? cgroup_rmdir(host->dir_fd[i], group, deadline_ns) : 0;
        if (r < 0) {
            return err_wrap(e, r, "removing the cgroup of machine '%s'", id);
        }
    }
    return 0;
}

/* The last number of the line NSpid: the pid inside the innermost pid namespace. */
static bool cgroup_is_namespace_init(pid_t pid)
{
    cleanup_buf struct buf b = BUF_INIT(CGROUP_FILE_MAX);
    char path[40];
    const char *line;
    const char *end;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    if (fs_read_file(AT_FDCWD, path, &b) < 0) {
        return false;
    }
    line = strstr(buf_str(&b), "\nNSpid:");
    end = line ? strchr(line + 1, '\n') : NULL;
    return end && end[-1] == '1' && end[-2] == '\t';
}

int cgroup_vmm(const struct cgroup_host *host, const char *id, uint32_t slot, pid_t *ret_pid,
               int *ret_pidfd)
{
    char group[CGROUP_NAME_SIZE];
    pid_t pids[CGROUP_PIDS_MAX];
    int n;

    cgroup_name(group, id, slot);
    n = cgroup_pids(host, group, pids, ARRAY_SIZE(pids));
    for (int i = 0; i < n; i++) {
        cleanup_close int pidfd = cgroup_pidfd(host, group, pids[i]);

        if (pidfd >= 0 && cgroup_is_namespace_init(pids[i])) {
            *ret_pid = pids[i];
            *ret_pidfd = TAKE_FD(pidfd);
            return 0;
        }
    }
    return n < 0 ? n : -ESRCH;
}

int cgroup_stats(const struct cgroup_host *host, const char *id, uint32_t slot,
                 struct priv_machine_stats *ret, struct err *e)
{
    const int *dir = host->dir_fd;
    char group[CGROUP_NAME_SIZE];

    cgroup_name(group, id, slot);
    if (faccessat(dir[CGROUP_PIDS], group, F_OK, 0) < 0) {
        return err_wrap(e, -errno, "looking at machine '%s'", id);
    }
    *ret = (struct priv_machine_stats){
        .pids = cgroup_number(dir[CGROUP_PIDS], group, "pids.current", NULL)};
    if (host->v2) {
        int v2 = dir[CGROUP_PIDS];

        ret->cpu_ns = cgroup_number(v2, group, "cpu.stat", "usage_usec") * 1000;
        ret->memory_bytes = cgroup_number(v2, group, "memory.current", NULL);
        ret->memory_anon_bytes = cgroup_number(v2, group, "memory.stat", "anon");
        ret->memory_limit_bytes = cgroup_number(v2, group, "memory.max", NULL);
        ret->oom_kills = cgroup_number(v2, group, "memory.events", "oom_kill");
    } else {
        int acct = dir[CGROUP_CPUACCT] >= 0 ? dir[CGROUP_CPUACCT] : dir[CGROUP_CPU];

        ret->cpu_ns = cgroup_number(acct, group, "cpuacct.usage", NULL);
        ret->memory_bytes = cgroup_number(dir[CGROUP_MEMORY], group, "memory.usage_in_bytes", NULL);
        ret->memory_anon_bytes = cgroup_number(dir[CGROUP_MEMORY], group, "memory.stat", "rss");
        ret->memory_limit_bytes =
            cgroup_number(dir[CGROUP_MEMORY], group, "memory.limit_in_bytes", NULL);
        ret->oom_kills = cgroup_number(dir[CGROUP_MEMORY], group, "memory.oom_control", "oom_kill");
    }
    return 0;
}
