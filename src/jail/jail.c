/* SPDX-License-Identifier: Apache-2.0 */
#include "jail/jail.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/sock.h"
#include "jail/filter.h"
#include "jail/jail-internal.h"
#include "jail/net.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Set-up takes a few milliseconds; on a host that swaps it may take longer, but not for ever. */
#define JAIL_SETUP_TIMEOUT_MS 8000

/*
 * Like fork(2), but into new namespaces and with a pidfd. The program is single-threaded. Not
 * clone3(2): where a unit has RestrictNamespaces=, systemd can look into the flags of clone(2)
 * only.
 */
static pid_t jail_clone(unsigned long flags, int *ret_pidfd)
{
    long pid = syscall(SYS_clone, flags | CLONE_PIDFD | SIGCHLD, /* stack */ NULL, ret_pidfd,
                       /* child_tid */ NULL, /* tls */ NULL);

    return pid < 0 ? -errno : (pid_t)pid;
}

static int jail_join_cgroups(const struct jail_spec *spec, struct err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(spec->cgroup_procs); i++) {
        int fd = spec->cgroup_procs[i];

        if (fd >= 0 && (FAULT("jail.join_cgroup") || write(fd, "0\n", 2) != 2)) {
            return err_wrap(e, -errno, "joining the machine's cgroup");
        }
    }
    if (FAULT("jail.cgroup_namespace") || unshare(CLONE_NEWCGROUP) < 0) {
        return err_wrap(e, -errno, "making a cgroup namespace");
    }
    return 0;
}

/* When the host runs out of memory, a machine goes before the services. Best effort. */
static void jail_prefer_for_oom(void)
{
    cleanup_close int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        IGNORE_RESULT(write(fd, "300", 3));
    }
}

/* First in the child: nothing of the parent's signal handling or scheduling order stays. */
static void jail_reset_signals(void)
{
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int signo = 1; signo <= SIGRTMAX; signo++) {
        sigaction(signo, &by_default,
                  /* old */ NULL); /* fails for KILL and STOP, which need nothing */
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, /* old */ NULL);
}

static int jail_enter(const struct jail_spec *spec, int *error_fd, struct err *e)
{
    static char *const no_environment[] = {NULL};
    struct jail_spec inside = *spec; /* with what is made in here */
    gid_t kvm_gid = 0;
    int r;

    jail_reset_signals();
    jail_prefer_for_oom();
    umask(0); /* what the jail's root holds must be readable for the VMM, which can make no file */
    r = jail_join_cgroups(spec, e);
    if (r < 0) {
        return r;
    }
    if (FAULT("jail.session") || setsid() < 0 || sethostname("machine", 7) < 0) {
        return err_wrap(e, -errno, "making a session");
    }
    r = jail_net(&inside.fds[PRIV_FD_NET], e);
    if (r < 0) {
        return r;
    }
    r = jail_root(spec, &kvm_gid, e);
    if (r < 0) {
        return r;
    }
    r = jail_fds(&inside, error_fd, e);
    if (r < 0) {
        return r;
    }
    r = jail_limits(spec, e);
    if (r < 0) {
        return r;
    }
    r = jail_identity(spec, kvm_gid, e);
    if (r < 0) {
        return r;
    }
    if (FAULT("jail.filter")) {
        return err_wrap(e, -errno, "installing the system call filter");
    }
    r = jail_filter_install(spec->filter);
    if (r < 0) {
        return err_wrap(e, r, "installing the system call filter");
    }
    if (FAULT("jail.exec") || execve(spec->vmm_path, spec->argv, no_environment) < 0) {
        return err_wrap(e, -errno, "executing '%s'", spec->vmm_path);
    }
    return 0;
}

static NORETURN void jail_child_main(const struct jail_spec *spec, int error_fd)
{
    struct err e = {0};

    if (jail_enter(spec, &error_fd, &e) < 0) {
        /*
         * Smaller than PIPE_BUF: whole or not at all. If the parent is gone, nobody needs to know.
         */
        IGNORE_RESULT(write(error_fd, &e, sizeof(e)));
    }
    _exit(127);
}

/*
 * 0 once the pipe closes (exec has happened or the child died: waitid tells), else the child's
 * error.
 */
static int jail_read_outcome(int fd, uint64_t deadline_ns, struct err *e)
{
    struct err theirs;
    ssize_t n;
    int r = sock_wait(fd, POLLIN, deadline_ns);

    if (r < 0) {
        return err_set(e, r, NULL, "the jail's set-up took too long");
    }
    n = read(fd, &theirs, sizeof(theirs));
    if (n < 0) {
        return err_wrap(e, -errno, "waiting for the jail");
    }
    if (n == 0) {
        return 0;
    }
    if (n != (ssize_t)sizeof(theirs) || theirs.code >= 0) {
        return err_set(e, -EPROTO, NULL, "the jail's error message is damaged");
    }
    theirs.reason[sizeof(theirs.reason) - 1] = '\0';
    theirs.msg[sizeof(theirs.msg) - 1] = '\0';
    return err_set(e, theirs.code, theirs.reason, "%s", theirs.msg);
}

static void jail_reap(const struct jail_child *child)
{
    while (waitpid(child->pid, /* status */ NULL, 0) < 0 && errno == EINTR) {
    }
}

/*
 * Kills and waits; a child of ours cannot be mistaken for another process until it is waited for.
 */
static void jail_abort(struct jail_child *child)
{
    kill(child->pid, SIGKILL);
    jail_reap(child);
    child->pidfd = fd_close(child->pidfd);
}

int jail_start(const struct jail_spec *spec, struct jail_child *ret, struct err *e)
{
    const unsigned long namespaces =
        CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    struct jail_child child = {.pidfd = FD_NONE};
    cleanup_close int read_end = FD_NONE;
    cleanup_close int write_end = FD_NONE;
    siginfo_t info = {0};
    int ends[2];
    int r;

    ASSERT(spec && spec->vmm_path && spec->argv && spec->filter && ret);
    ASSERT(spec->uid >= PRIV_MACHINE_UID_BASE);
    if (FAULT("jail.pipe") || pipe2(ends, O_CLOEXEC) < 0) {
        return err_wrap(e, -errno, "making a pipe");
    }
    read_end = ends[0];
    write_end = ends[1];
    child.pid = FAULT("jail.clone") ? -errno : jail_clone(namespaces, &child.pidfd);
    if (child.pid < 0) {
        return err_wrap(e, child.pid, "making the jail's namespaces");
    }
    if (child.pid == 0) {
        jail_child_main(spec, write_end);
    }
    write_end = fd_close(write_end);
    r = jail_read_outcome(read_end, deadline_in_ms(JAIL_SETUP_TIMEOUT_MS), e);
    if (r == 0 && FAULT("jail.started")) {
        r = err_wrap(e, -errno, "waiting for the jail");
    }
    if (r < 0) {
        jail_abort(&child);
        return r;
    }
    if (waitid(P_PID, (id_t)child.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid != 0) {
        r = err_set(e, -ECHILD, "vmm_failed", "the VMM ended at once (%s %d)",
                    info.si_code == CLD_EXITED ? "exit status" : "signal", info.si_status);
        jail_abort(&child);
        return r;
    }
    *ret = child;
    return 0;
}

/* In a child of its own. */
static int jail_seal_inside(int pidfd, struct err *e)
{
    cleanup_close int root_fd = FD_NONE;
    int r;

    if (setns(pidfd, CLONE_NEWNS) < 0) {
        return err_wrap(e, -errno, "entering the machine's mount namespace");
    }
    root_fd = jail_tmpfs(e);
    if (root_fd < 0) {
        return root_fd;
    }
    r = jail_mount_flags(root_fd, JAIL_MOUNT_SEALED, e);
    if (r < 0) {
        return r;
    }
    return jail_pivot(root_fd, e);
}

int jail_seal(int pidfd, struct err *e)
{
    struct jail_child child = {.pidfd = FD_NONE};
    cleanup_close int read_end = FD_NONE;
    cleanup_close int write_end = FD_NONE;
    int ends[2];
    int r;

    if (pipe2(ends, O_CLOEXEC) < 0) {
        return err_wrap(e, -errno, "making a pipe");
    }
    read_end = ends[0];
    write_end = ends[1];
    child.pid = jail_clone(0, &child.pidfd);
    if (child.pid < 0) {
        return err_wrap(e, child.pid, "making a child");
    }
    if (child.pid == 0) {
        struct err theirs = {0};

        r = jail_seal_inside(pidfd, &theirs);
        if (r < 0) {
            IGNORE_RESULT(write(write_end, &theirs, sizeof(theirs)));
        }
        _exit(r < 0 ? 1 : 0);
    }
    write_end = fd_close(write_end);
    r = jail_read_outcome(read_end, deadline_in_ms(JAIL_SETUP_TIMEOUT_MS), e);
    if (r < 0) {
        jail_abort(&child);
        return r;
    }
    jail_reap(&child);
    child.pidfd = fd_close(child.pidfd);
    return 0;
}
