/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/command-spawn.h"

#include "base/fs.h"
#include "daemon/pty.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* On the report socket; both ends are this program. */
struct report_message {
    uint8_t event;
    uint8_t stage;
    int32_t code;
};

/* The child's ends. */
struct child {
    const struct command_spawn *s;
    int report_fd;
    int in_fd;
    int out_fd;
    int err_fd;
};

union fd_control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static void child_send(int report_fd, struct report_message m, int fd)
{
    struct iovec iov = {.iov_base = &m, .iov_len = sizeof(m)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    union fd_control control = {0};

    if (fd >= 0) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);
        control.header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
    }
    while (sendmsg(report_fd, &msg, MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
}

static NORETURN void child_fail(const struct child *c, enum spawn_stage stage, int code)
{
    child_send(c->report_fd, (struct report_message){SPAWN_FAILED, (uint8_t)stage, code}, FD_NONE);
    _exit(stage == SPAWN_STAGE_EXEC ? command_exec_exit_code(code) : 126);
}

/* Handlers go by exec anyway; what the daemon ignores or blocks must not be inherited. */
static void child_reset_signals(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int signo = 1; signo <= SIGRTMAX; signo++) {
        sigaction(signo, &action,
                  NULL); /* refused for KILL, STOP and two that libc keeps: none is ignored */
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_set_limits(void)
{
    static const struct {
        int resource;
        rlim_t soft;
        rlim_t hard;
    } limits[] = {
        {RLIMIT_NOFILE, 1024, 524288}, /* select(2) still works for those who do not ask for more */
        {RLIMIT_CORE, 0, RLIM_INFINITY},
    };
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        struct rlimit now = {0};

        getrlimit((__rlimit_resource_t)limits[i].resource, &now);
        now.rlim_max = MIN(now.rlim_max, limits[i].hard);
        now.rlim_cur = MIN(now.rlim_max, limits[i].soft);
        setrlimit((__rlimit_resource_t)limits[i].resource, &now);
    }
    setpriority(PRIO_PROCESS, 0, 0);
    if (fd >= 0) {
        if (write(fd, "0", 1) < 0) {
            /* A host that forbids it (tests): the child is then as hard to kill as the daemon is. */
        }
        fd_close(fd);
    }
}

static int child_set_streams(const struct child *c)
{
    if (dup2(c->in_fd, STDIN_FILENO) < 0 || dup2(c->out_fd, STDOUT_FILENO) < 0 ||
        dup2(c->err_fd, STDERR_FILENO) < 0) {
        return -errno;
    }
    return 0;
}

static int child_set_terminal(const struct child *c)
{
    int master = FD_NONE;
    int slave = FD_NONE;
    uid_t uid = c->s->user ? c->s->user->uid : getuid();
    int r = pty_open(uid, c->s->spec->size, &master, &slave);

    if (r < 0) {
        return r;
    }
    child_send(c->report_fd, (struct report_message){.event = SPAWN_PTY}, master);
    fd_close(master);
    r = pty_adopt(slave);
    fd_close(slave);
    return r;
}

static const char *env_value(char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (; *env; env++) {
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') {
            return *env + len + 1;
        }
    }
    return NULL;
}

/* A given folder must be there (a relative one is below the home); a home that is not there makes no command impossible. */
static int child_set_cwd(const struct command_spawn *s)
{
    if (s->spec->cwd) {
        if (s->spec->cwd[0] != '/' && s->user && chdir(s->user->home) < 0) {
            return -errno;
        }
        return chdir(s->spec->cwd) < 0 ? -errno : 0;
    }
    if (s->user && chdir(s->user->home) < 0 && chdir("/") < 0) {
        return -errno;
    }
    return 0;
}

/* As execvp(3): a file without an interpreter line is a shell script. */
static int exec_one(const char *path, char *const *argv, char *const *env)
{
    execve(path, argv, env);
    if (errno == ENOEXEC) {
        size_t n = 0;
        char **with_shell;

        while (argv[n]) {
            n++;
        }
        with_shell = xnew_n(char *, n + 2);
        with_shell[0] = xstrdup("/bin/sh");
        with_shell[1] = xstrdup(path);
        memcpy(&with_shell[2], &argv[1], n * sizeof(char *)); /* the NULL with it */
        execve(with_shell[0], with_shell, env);
        errno = ENOEXEC;
    }
    return -errno;
}

static int exec_search(char *const *argv, char *const *env)
{
    const char *path = env_value(env, "PATH");
    int result = -ENOENT;

    if (strchr(argv[0], '/')) {
        return exec_one(argv[0], argv, env);
    }
    for (path = path ? path : DEFAULT_PATH; path; path = strchr(path, ':')) {
        char file[PATH_MAX];
        int dir_len;
        int r;

        path += *path == ':';
        dir_len = (int)MIN(strcspn(path, ":"), (size_t)PATH_MAX);
        if (snprintf(file, sizeof(file), "%.*s%s%s", dir_len, path, dir_len ? "/" : "", argv[0]) >=
            (int)sizeof(file)) {
            continue;
        }
        r = exec_one(file, argv, env);
        if (r == -EACCES) {
            result = r; /* worth telling if nothing better comes */
        } else if (r != -ENOENT && r != -ENOTDIR) {
            return r;
        }
    }
    return result;
}

static NORETURN void child_run(const struct child *c)
{
    const struct command_spawn *s = c->s;
    int r;

    child_reset_signals();
    child_set_limits();
    umask(022);
    if (setsid() < 0) {
        child_fail(c, SPAWN_STAGE_SETUP, -errno);
    }
    if (!s->spec->pty && (r = child_set_streams(c)) < 0) {
        child_fail(c, SPAWN_STAGE_SETUP, r);
    }
    if (s->workload && (r = workload_enter(s->workload)) < 0) {
        child_fail(c, SPAWN_STAGE_ENTER, r);
    }
    if (s->spec->pty && (r = child_set_terminal(c)) < 0) {
        child_fail(c, SPAWN_STAGE_PTY, r);
    }
    if (s->user && (r = workload_become(s->user)) < 0) {
        child_fail(c, SPAWN_STAGE_USER, r);
    }
    if ((r = child_set_cwd(s)) < 0) {
        child_fail(c, SPAWN_STAGE_CWD, r);
    }
    /* Everything of ours is close-on-exec from birth; this is for what a library may have opened without. */
    if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0) {
        child_fail(c, SPAWN_STAGE_SETUP, -errno);
    }
    child_fail(c, SPAWN_STAGE_EXEC, exec_search(s->spec->argv, s->env));
}

/* One pipe; ours does not block, the program's does, as programs expect. */
static int make_pipe(bool to_child, int *ret_ours, int *ret_theirs)
{
    int fds[2];
    int r;

    if (pipe2(fds, O_CLOEXEC) < 0) {
        return -errno;
    }
    *ret_ours = fds[to_child ? 1 : 0];
    *ret_theirs = fds[to_child ? 0 : 1];
    r = fd_set_nonblock(*ret_ours, true);
    ASSERT(r == 0);
    return 0;
}

/* fork(2), but born in the cgroup. The daemon has one thread, so the child may use all of libc. */
static pid_t fork_into(int cgroup_fd)
{
    struct clone_args args = {.exit_signal = SIGCHLD};

    if (cgroup_fd >= 0) {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)cgroup_fd;
    }
    return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

struct ends {
    int ours[4];   /* owned: report, in, out, err */
    int theirs[4]; /* owned */
};

static void ends_close(struct ends *ends)
{
    for (size_t i = 0; i < ARRAY_SIZE(ends->ours); i++) {
        ends->ours[i] = fd_close(ends->ours[i]);
        ends->theirs[i] = fd_close(ends->theirs[i]);
    }
}

static int ends_open(const struct command_spec *spec, struct ends *ends)
{
    int pair[2];
    int r = 0;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return -errno;
    }
    ends->ours[0] = pair[0];
    ends->theirs[0] = pair[1];
    r = fd_set_nonblock(pair[0], true);
    if (r < 0 || spec->pty) {
        return r;
    }
    if (spec->stdin_open) {
        r = make_pipe(/* to_child */ true, &ends->ours[1], &ends->theirs[1]);
    } else {
        ends->theirs[1] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        r = ends->theirs[1] < 0 ? -errno : 0;
    }
    for (size_t i = 2; r == 0 && i < 4; i++) {
        r = make_pipe(/* to_child */ false, &ends->ours[i], &ends->theirs[i]);
    }
    return r;
}

int command_spawn(const struct command_spawn *s, struct command_process *ret, struct err *e)
{
    CLEANUP(ends_close)
    struct ends ends = {{FD_NONE, FD_NONE, FD_NONE, FD_NONE}, {FD_NONE, FD_NONE, FD_NONE, FD_NONE}};
    int r = ends_open(s->spec, &ends);
    pid_t pid;

    if (r < 0) {
        return err_wrap(e, r, "making the streams of the command");
    }
    pid = fork_into(s->cgroup_fd);
    if (pid == 0) {
        struct child c = {s, ends.theirs[0], ends.theirs[1], ends.theirs[2], ends.theirs[3]};

        child_run(&c);
    }
    if (pid < 0 && errno == EAGAIN) {
        return err_set(
            e, -EAGAIN, "process_limit",
            "the sandbox has as many processes as it may have: end some, or delete commands");
    }
    if (pid < 0) {
        return err_wrap(e, -errno, "starting a process");
    }
    ret->pid = pid;
    ret->report_fd = TAKE_FD(ends.ours[0]);
    ret->in_fd = TAKE_FD(ends.ours[1]);
    ret->out_fd = TAKE_FD(ends.ours[2]);
    ret->err_fd = TAKE_FD(ends.ours[3]);
    return 0;
}

void command_spawn_report(int report_fd, struct spawn_report *ret)
{
    struct report_message m = {0};
    struct iovec iov = {.iov_base = &m, .iov_len = sizeof(m)};
    union fd_control control = {0};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    struct cmsghdr *header;
    ssize_t n = recvmsg(report_fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *ret = (struct spawn_report){.event = SPAWN_NOTHING, .fd = FD_NONE};
    if (n < 0) {
        ret->event = errno == EAGAIN || errno == EINTR ? SPAWN_NOTHING : SPAWN_RUNNING;
        return;
    }
    if (n < (ssize_t)sizeof(m)) {
        ret->event = SPAWN_RUNNING; /* closed by exec */
        return;
    }
    header = CMSG_FIRSTHDR(&msg);
    if (header && header->cmsg_type == SCM_RIGHTS) {
        memcpy(&ret->fd, CMSG_DATA(header), sizeof(int));
    }
    ASSERT(m.stage < SPAWN_STAGE_COUNT_ && (m.event == SPAWN_PTY || m.event == SPAWN_FAILED));
    ret->event = (enum spawn_event)m.event;
    ret->stage = (enum spawn_stage)m.stage;
    ret->code = m.code;
}

int command_exec_exit_code(int code)
{
    return code == -ENOENT || code == -ENOTDIR || code == -ELOOP ? 127 : 126;
}

int command_spawn_error(const struct command_spec *spec, const struct spawn_report *report,
                        struct err *e)
{
    const char *why = strerrordesc_np(-report->code);
    const char *program = spec->argv[0];

    why = why ? why : "unknown error";
    switch (report->stage) {
    case SPAWN_STAGE_CWD:
        return err_field(e, -EINVAL, "cwd_not_usable", "cwd", "cannot start in '%.200s': %s",
                         spec->cwd ? spec->cwd : "/", why);
    case SPAWN_STAGE_USER:
        return err_field(e, -EINVAL, "user_not_usable", "user", "cannot become user '%.63s': %s",
                         spec->user ? spec->user : "(default)", why);
    case SPAWN_STAGE_EXEC:
        if (report->code == -ENOENT && !strchr(program, '/')) {
            return err_set(e, report->code, "program_not_found", "'%.200s' was not found in PATH",
                           program);
        }
        return err_set(e, report->code, "program_not_usable", "cannot run '%.200s': %s", program,
                       why);
    case SPAWN_STAGE_PTY:
        return err_wrap(e, report->code, "opening a terminal");
    case SPAWN_STAGE_ENTER:
        return err_wrap(e, report->code, "entering the sandbox");
    case SPAWN_STAGE_SETUP:
    case SPAWN_STAGE_COUNT_:
        break;
    }
    return err_wrap(e, report->code, "preparing the process");
}
