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

/*
 * What the pipe holds: enough that a transfer is not bound by how often two processes take turns.
 */
#define PIPE_SIZE (1 << 20)

struct child {
    const struct workload *workload;  /* borrowed */
    const struct workload_user *user; /* borrowed */
    const struct file_request *req;   /* borrowed */
    int control_fd;
    int data_fd;
    pid_t parent;
};

/* The daemon blocks what it reads from a signalfd, and ignores SIGPIPE, which suits the worker too. */
static void unblock_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, /* old */ NULL);
}

/* Everything but 0 to 2 and these. keep is sorted here; FD_NONE in it is skipped. */
static void close_others(int keep[static 3])
{
    unsigned from = 3;

    for (int i = 0; i < 3; i++) {
        for (int j = i + 1; j < 3; j++) {
            if (keep[j] < keep[i]) {
                int lower = keep[j];

                keep[j] = keep[i];
                keep[i] = lower;
            }
        }
    }
    for (int i = 0; i < 3; i++) {
        if (keep[i] < 3) {
            continue;
        }
        if ((unsigned)keep[i] > from) {
            close_range(from, (unsigned)keep[i] - 1, 0);
        }
        from = (unsigned)keep[i] + 1;
    }
    close_range(from, ~0u, 0);
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
    int keep[3] = {c->control_fd, c->data_fd, fds_dir};
    struct file_worker w = {
        .req = c->req, .user = c->user, .control = c->control_fd, .data = c->data_fd};
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
    close_others(keep);
    if (r < 0) {
        err_wrap(&e, r, "entering the sandbox");
        IGNORE_RESULT(
            file_send_error(c->control_fd, &e)); /* then the daemon sees the end of the socket */
        _exit(1);
    }
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_NAME, "space-file");
    umask(022);
    file_worker_run(&w);
    _exit(0);
}

static int make_pipe(const struct file_request *req, int *ret_ours, int *ret_childs)
{
    bool to_child = req->op == FILE_OP_WRITE;
    int p[2];

    if (req->op != FILE_OP_READ && req->op != FILE_OP_WRITE) {
        return 0;
    }
    if (pipe2(p, O_CLOEXEC) < 0) {
        return -errno;
    }
    *ret_ours = p[to_child ? 1 : 0];
    *ret_childs = p[to_child ? 0 : 1];
    /* Smaller works too. */
    IGNORE_RESULT(fcntl(*ret_ours, F_SETPIPE_SZ, PIPE_SIZE));
    return fd_set_nonblock(*ret_ours, true);
}

int file_spawn(const struct workload *workload, const struct workload_user *user,
               const struct file_request *req, struct file_spawned *ret)
{
    cleanup_close int data_ours = FD_NONE;
    cleanup_close int data_childs = FD_NONE;
    cleanup_close int control_ours = FD_NONE;
    cleanup_close int control_childs = FD_NONE;
    struct child child = {.workload = workload, .user = user, .req = req, .parent = getpid()};
    int pair[2];
    pid_t pid;
    int r = make_pipe(req, &data_ours, &data_childs);

    if (r < 0) {
        return r;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return -errno;
    }
    control_ours = pair[0];
    control_childs = pair[1];
    child.control_fd = control_childs;
    child.data_fd = data_childs;
    pid = fork();
    if (pid < 0) {
        return -errno;
    }
    if (pid == 0) {
        child_main(&child);
    }
    ret->pid = pid;
    ret->control_fd = TAKE_FD(control_ours);
    ret->data_fd = TAKE_FD(data_ours);
    return 0;
}
