/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proc.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/sock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int add_files(posix_spawn_file_actions_t *actions, const struct proc_spec *spec)
{
    const int wanted[3] = {spec->stdin_fd, spec->stdout_fd, spec->stderr_fd};
    int r = 0;

    for (int target = 0; target < 3 && r == 0; target++) {
        if (wanted[target] >= 0) {
            r = posix_spawn_file_actions_adddup2(actions, wanted[target], target);
        } else if (target == STDIN_FILENO) {
            r = posix_spawn_file_actions_addopen(actions, target, "/dev/null", O_RDONLY, 0);
        }
    }
    if (r == 0) {
        r = posix_spawn_file_actions_addclosefrom_np(actions, 3);
    }
    return -r;
}

static int add_attributes(posix_spawnattr_t *attr, const struct proc_spec *spec)
{
    short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    sigset_t none;
    sigset_t all;

    sigemptyset(&none);
    sigfillset(&all);
    if (spec->new_session) {
        flags |= POSIX_SPAWN_SETSID;
    }
    posix_spawnattr_setsigmask(attr, &none);
    posix_spawnattr_setsigdefault(attr, &all);
    return -posix_spawnattr_setflags(attr, flags);
}

/* posix_spawn takes pointers to writable strings but does not write to them. */
static char *const *as_spawn_vector(const char *const *v)
{
    char *const *out;

    memcpy(&out, &v, sizeof(out));
    return out;
}

int proc_spawn(const struct proc_spec *spec, struct proc *ret, struct err *e)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    pid_t pid = 0;
    int pidfd;
    int r;

    ASSERT(spec->argv && spec->argv[0]);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    r = add_files(&actions, spec);
    if (r == 0) {
        r = add_attributes(&attr, spec);
    }
    if (r == 0) {
        r = -posix_spawn(&pid, spec->argv[0], &actions, &attr, as_spawn_vector(spec->argv),
                         spec->envp ? as_spawn_vector(spec->envp) : environ);
    }
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (r < 0) {
        return err_wrap(e, r, "starting '%s'", spec->argv[0]);
    }
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    ASSERT(pidfd >= 0); /* our own child, not yet waited for */
    *ret = (struct proc){.pid = pid, .pidfd = pidfd};
    return 0;
}

int proc_wait(struct proc *proc, uint64_t deadline_ns, int *ret_status)
{
    int status = 0;
    int r = sock_wait(proc->pidfd, POLLIN, deadline_ns);

    if (r < 0) {
        return r;
    }
    while (waitpid(proc->pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    proc->pidfd = fd_close(proc->pidfd);
    *ret_status = status;
    return 0;
}

void proc_signal(const struct proc *proc, int signo)
{
    if (proc->pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, proc->pidfd, signo, NULL, 0);
    }
}

int proc_start_time(pid_t pid, uint64_t *ret)
{
    cleanup_buf struct buf b = BUF_INIT(4096);
    char path[40];
    const char *at;
    int r;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    r = fs_read_file(AT_FDCWD, path, &b);
    if (r < 0) {
        return r == -ENOENT ? -ESRCH : r;
    }
    at = strrchr(buf_str(&b), ')'); /* the name before it may hold anything */
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    if (!at) {
        return -EBADMSG;
    }
    *ret = strtoull(at + 1, NULL, 10);
    return 0;
}

int proc_watch_signals(const int signals[], struct err *e)
{
    sigset_t set;
    int fd;

    sigemptyset(&set);
    for (; *signals; signals++) {
        sigaddset(&set, *signals);
    }
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR) {
        return err_wrap(e, -errno, "blocking signals");
    }
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? err_wrap(e, -errno, "watching signals") : fd;
}

int proc_raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        return -errno;
    }
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) < 0 ? -errno : 0;
}
