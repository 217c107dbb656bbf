/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-spawn.h"

#include "base/fs.h"
#include "daemon/file-worker.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct child {
    const struct workload *workload;  /* borrowed */
    const struct workload_user *user; /* borrowed */
    int control_fd;
    pid_t parent;
};

/*
 * The daemon blocks what it reads from a signalfd, and ignores SIGPIPE, which suits the worker too.
 */
static void unblock_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, /* old */ NULL);
}

/* Everything but 0 to 2 and these two; FD_NONE is none. */
static void close_others(int a, int b)
{
    int low = MAX(MIN(a, b), 2);
    int high = MAX(MAX(a, b), 2);

    if (low > 3) {
        close_range(3, (unsigned)low - 1, 0);
    }
    if (high > low + 1) {
        close_range((unsigned)low + 1, (unsigned)high - 1, 0);
    }
    close_range((unsigned)high + 1, ~0u, 0);
}

/* The daemon is not to be chosen by the OOM killer; its workers may be. */
static void give_up_protection(int fds_dir)
{
    int fd = openat(fds_dir, "../oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        IGNORE_RESULT(
            fs_write_all(fd, "0", 1)); /* without it the worker is only safer than it should be */
        close(fd);
    }
}

static NORETURN void child_main(const struct child *c)
{
    int fds_dir = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct file_worker w = {.user = c->user, .control = c->control_fd, .data = FD_NONE};
    struct err e = {0};
    int r;

    w.fds_dir = fds_dir < 0 ? FD_NONE : fds_dir;
    unblock_signals();
    give_up_protection(fds_dir);
    r = workload_enter(c->workload);
    if (r == 0) {
        r = workload_become(c->user);
    }
    /* Only now: becoming the user clears it. The daemon may have ended before. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != c->parent) {
        _exit(1);
    }
    close_others(c->control_fd, w.fds_dir);
    if (r < 0) {
        err_wrap(&e, r, "entering the sandbox");
        IGNORE_RESULT(
            file_send_error(c->control_fd, &e)); /* then the daemon sees the end of the socket */
        _exit(1);
    }
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_NAME, "space-file");
    umask(022);
    file_worker_serve(&w);
    _exit(0);
}

int file_spawn(const struct workload *workload, const struct workload_user *user,
               struct file_spawned *ret)
{
    struct child child = {.workload = workload, .user = user, .parent = getpid()};
    cleanup_close int ours = FD_NONE;
    cleanup_close int theirs = FD_NONE;
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return -errno;
    }
    ours = pair[0];
    theirs = pair[1];
    child.control_fd = theirs;
    pid = fork();
    if (pid < 0) {
        return -errno;
    }
    if (pid == 0) {
        child_main(&child);
    }
    ret->pid = pid;
    ret->control_fd = TAKE_FD(ours);
    return 0;
}
