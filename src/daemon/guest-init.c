/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/guest-init.h"

#include "base/fs.h"
#include "base/log.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* From linux/module.h. */
#define INIT_COMPRESSED_FILE 4

static const struct {
    const char *path;
    const char *type;
    unsigned long flags;
    const char *options;
} mounts[] = {
    {"/dev", "devtmpfs", MS_NOSUID, "mode=0755"},
    {"/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
    {"/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
    {"/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4m"},
};

static int mount_all(struct err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
        if (mkdir(mounts[i].path, 0755) < 0 && errno != EEXIST) {
            return err_wrap(e, -errno, "making %s", mounts[i].path);
        }
        if (mount(mounts[i].type, mounts[i].path, mounts[i].type, mounts[i].flags,
                  mounts[i].options) < 0 &&
            errno != EBUSY) { /* the kernel may have mounted /dev itself */
            return err_wrap(e, -errno, "mounting %s", mounts[i].path);
        }
    }
    if (mkdir("/sandbox", 0755) < 0 && errno != EEXIST) {
        return err_wrap(e, -errno, "making /sandbox");
    }
    return 0;
}

/* Without a console the three descriptors are still taken, so that nothing else becomes one of them. */
static void open_console(void)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    int console_fd = open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC);

    dup2(null_fd, STDIN_FILENO);
    dup2(console_fd >= 0 ? console_fd : null_fd, STDOUT_FILENO);
    dup2(console_fd >= 0 ? console_fd : null_fd, STDERR_FILENO);
    if (null_fd > STDERR_FILENO) {
        close(null_fd);
    }
    if (console_fd > STDERR_FILENO) {
        close(console_fd);
    }
}

static int load_module(int dir_fd, const char *name, struct err *e)
{
    cleanup_close int fd = fs_open_beneath(dir_fd, name, O_RDONLY, 0);
    size_t len = strlen(name);
    int flags = len > 3 && str_eq(name + len - 3, ".ko") ? 0 : INIT_COMPRESSED_FILE;

    if (fd < 0) {
        return err_wrap(e, fd, "opening module %s", name);
    }
    if (syscall(SYS_finit_module, fd, "", flags) < 0 && errno != EEXIST) {
        return err_wrap(e, -errno, "loading module %s", name);
    }
    return 0;
}

static int load_modules(struct err *e)
{
    cleanup_close int dir_fd = fs_open("/modules", O_RDONLY | O_DIRECTORY, 0);
    cleanup_buf struct buf order = BUF_INIT(65536);
    char *rest;
    char *name;
    int r;

    if (dir_fd == -ENOENT) {
        return 0; /* a kernel with everything built in */
    }
    r = dir_fd < 0 ? dir_fd : fs_read_file(dir_fd, "order", &order);
    if (r < 0) {
        return err_wrap(e, r, "reading the list of modules");
    }
    rest = order.len > 0 ? order.data : NULL;
    while ((name = strsep(&rest, "\n"))) {
        r = name[0] ? load_module(dir_fd, name, e) : 0;
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static void set_limits(void)
{
    const struct rlimit files = {65536, 65536};
    cleanup_close int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || fs_write_all(fd, "-1000", 5) < 0) {
        log_warn(NULL, "cannot hide from the out-of-memory killer, ignoring");
    }
    if (setrlimit(RLIMIT_NOFILE, &files) < 0) {
        log_warn(NULL, "cannot raise the limit of open files, ignoring");
    }
    signal(SIGPIPE, SIG_IGN);
    reboot(RB_DISABLE_CAD);
}

int guest_prepare(struct err *e)
{
    int r = mount_all(e);

    if (r < 0) {
        return r;
    }
    open_console();
    set_limits();
    return load_modules(e);
}

/* ---- cgroups ---- */

static int write_at(int dir_fd, const char *name, const char *text)
{
    cleanup_close int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);

    return fd < 0 ? -errno : fs_write_all(fd, text, strlen(text));
}

/* Those that the kernel has; each on its own, so that a missing one costs only itself. */
static void enable_controllers(int dir_fd)
{
    static const char *const controllers[] = {"+cpu", "+memory", "+pids", "+io"};

    for (size_t i = 0; i < ARRAY_SIZE(controllers); i++) {
        int r = write_at(dir_fd, "cgroup.subtree_control", controllers[i]);

        if (r < 0) {
            log_warn(NULL, "no cgroup controller %s, ignoring: %s", controllers[i],
                     strerrordesc_np(-r));
        }
    }
}

static uint64_t number_after(const char *path, const char *key)
{
    cleanup_buf struct buf text = BUF_INIT(65536);
    const char *at;

    if (fs_read_file(AT_FDCWD, path, &text) < 0) {
        return 0;
    }
    at = strstr(buf_str(&text), key);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static void write_number(int dir_fd, const char *name, uint64_t value)
{
    char text[32];
    int r;

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    r = write_at(dir_fd, name, text);
    if (r < 0) {
        log_warn(NULL, "cannot set %s, ignoring: %s", name, strerrordesc_np(-r));
    }
}

/* What the workload may use, with a reserve for the daemon and the kernel. */
static void limit_workload(int workload_fd, int daemon_fd)
{
    const uint64_t mib = 1024 * 1024;
    /* What is available now, not what there is: the kernel's own share is charged to nobody. */
    uint64_t memory = number_after("/proc/meminfo", "MemAvailable:") * 1024;
    uint64_t threads = number_after("/proc/sys/kernel/threads-max", "");
    uint64_t reserve = MIN(MAX(memory / 16, 12 * mib), 64 * mib);

    if (memory > 2 * reserve) {
        write_number(workload_fd, "memory.max", memory - reserve);
    }
    if (threads > 0) {
        write_number(workload_fd, "pids.max", MAX(threads * 3 / 4, (uint64_t)64));
    }
    write_number(daemon_fd, "memory.min", 8 * mib);
    write_number(daemon_fd, "cpu.weight", 1000);
}

static NORETURN void namespace_child(int workload_fd, int ready_fd, int wait_fd)
{
    char byte = 1;

    if (write_at(workload_fd, "cgroup.procs", "0") < 0 || unshare(CLONE_NEWCGROUP) < 0) {
        byte = 0;
    }
    if (write(ready_fd, &byte, 1) == 1) {
        IGNORE_RESULT(read(wait_fd, &byte, 1)); /* until the parent closes it */
    }
    _exit(0);
}

/* A cgroup namespace whose root is the workload's cgroup: only a process in it can make that. */
static int make_namespace(int workload_fd)
{
    int ready[2];
    int wait[2];
    char path[64];
    char byte = 0;
    pid_t pid;
    int fd = FD_NONE;

    if (pipe2(ready, O_CLOEXEC) < 0) {
        return -errno;
    }
    if (pipe2(wait, O_CLOEXEC) < 0) {
        close(ready[0]);
        close(ready[1]);
        return -errno;
    }
    pid = fork();
    if (pid == 0) {
        close(wait[1]);
        namespace_child(workload_fd, ready[1], wait[0]);
    }
    close(ready[1]);
    close(wait[0]);
    if (pid > 0 && read(ready[0], &byte, 1) == 1 && byte == 1) {
        snprintf(path, sizeof(path), "/proc/%d/ns/cgroup", pid);
        fd = fs_open(path, O_RDONLY, 0);
    }
    close(ready[0]);
    close(wait[1]);
    if (pid > 0) {
        waitpid(pid, NULL, 0);
    }
    return fd < 0 ? FD_NONE : fd;
}

int guest_make_cgroups(struct workload_cgroups *ret, struct err *e)
{
    cleanup_close int root_fd = FD_NONE;
    cleanup_close int daemon_fd = FD_NONE;
    int workload_fd;

    *ret = (struct workload_cgroups){FD_NONE, FD_NONE};
    if (mount("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) {
        log_warn(NULL, "no cgroup v2, ignoring: %s", strerrordesc_np(errno));
        return 0;
    }
    root_fd = fs_open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY, 0);
    if (root_fd < 0) {
        return err_wrap(e, root_fd, "opening the cgroups");
    }
    enable_controllers(root_fd);
    daemon_fd = fs_mkdir_open(root_fd, "daemon", 0755);
    workload_fd = fs_mkdir_open(root_fd, "workload", 0755);
    if (daemon_fd < 0 || workload_fd < 0) {
        fd_close(workload_fd);
        return err_wrap(e, -EIO, "making the cgroups");
    }
    if (write_at(daemon_fd, "cgroup.procs", "0") < 0) {
        log_warn(NULL, "cannot enter the daemon's cgroup, ignoring");
    }
    limit_workload(workload_fd, daemon_fd);
    ret->cgroup_fd = workload_fd;
    ret->ns_fd = make_namespace(workload_fd);
    enable_controllers(workload_fd); /* only now: from here on no process may be in it itself */
    return 0;
}
