/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/children.h"

#include "base/log.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
    struct child *next; /* owned */
    pid_t pid;
    child_fn *fn;
    void *arg; /* borrowed: whoever registered */
};

/* Orphans can be made faster than they are reaped: after so many, others get their turn. */
#define REAP_PER_ROUND 256

struct children {
    int signal_fd;           /* owned */
    struct loop_io *io;      /* owned */
    struct loop_timer *more; /* owned: set when a round was not enough */
    bool reap_all;
    struct child *list; /* owned */
};

static struct child *child_unlink(struct children *c, pid_t pid)
{
    for (struct child **at = &c->list; *at; at = &(*at)->next) {
        if ((*at)->pid == pid) {
            struct child *found = *at;

            *at = found->next;
            return found;
        }
    }
    return NULL;
}

static void child_ended(struct children *c, pid_t pid, int status, const struct rusage *usage)
{
    cleanup_free struct child *child = child_unlink(c, pid);
    struct child_exit x = {.pid = pid, .usage = *usage};

    if (!child || !child->fn) {
        return; /* an orphan of the workload, or nobody's any more */
    }
    if (WIFSIGNALED(status)) {
        x.code = WCOREDUMP(status) ? CLD_DUMPED : CLD_KILLED;
        x.status = WTERMSIG(status);
    } else {
        x.code = CLD_EXITED;
        x.status = WEXITSTATUS(status);
    }
    child->fn(child->arg, &x);
}

/* One registered child that has ended; for those who may not reap what is not theirs. */
static pid_t reap_registered(struct children *c, int *status, struct rusage *usage)
{
    for (struct child *child = c->list; child; child = child->next) {
        pid_t pid = wait4(child->pid, status, WNOHANG, usage);

        if (pid > 0) {
            return pid;
        }
    }
    return 0;
}

static void reap(void *arg)
{
    struct children *c = arg;
    unsigned n = 0;

    while (n < REAP_PER_ROUND) {
        struct rusage usage = {0};
        int status = 0;
        pid_t pid =
            c->reap_all ? wait4(-1, &status, WNOHANG, &usage) : reap_registered(c, &status, &usage);

        if (pid <= 0) {
            return;
        }
        child_ended(c, pid, status, &usage);
        n++;
    }
    loop_timer_set(c->more, 0);
}

static void on_sigchld(void *arg, uint32_t events)
{
    struct children *c = arg;
    struct signalfd_siginfo si;

    (void)events;
    while (read(c->signal_fd, &si, sizeof(si)) == sizeof(si)) {
        /* One signal may stand for many children: what counts is what wait says. */
    }
    reap(c);
}

int children_new(struct loop *loop, bool reap_all, struct children **ret)
{
    struct children *c;
    sigset_t set;
    int fd;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) {
        return -errno;
    }
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    c = xnew(struct children);
    c->signal_fd = fd;
    c->reap_all = reap_all;
    c->io = loop_add_io(loop, fd, EPOLLIN, on_sigchld, c);
    c->more = loop_add_timer(loop, reap, c);
    *ret = c;
    return 0;
}

void children_free(struct children *c)
{
    if (!c) {
        return;
    }
    while (c->list) {
        struct child *child = c->list;

        c->list = child->next;
        free(child);
    }
    loop_io_free(c->io);
    loop_timer_free(c->more);
    fd_close(c->signal_fd);
    free(c);
}

void children_watch(struct children *c, pid_t pid, child_fn *fn, void *arg)
{
    struct child *child = xnew(struct child);

    ASSERT(pid > 0 && fn);
    child->pid = pid;
    child->fn = fn;
    child->arg = arg;
    child->next = c->list;
    c->list = child;
}

void children_forget(struct children *c, pid_t pid)
{
    for (struct child *child = c->list; child; child = child->next) {
        if (child->pid == pid) {
            child->fn = NULL; /* still reaped */
        }
    }
}
