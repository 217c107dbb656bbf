/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/helper.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct helper {
    struct helper_spec spec;
    int fd;                   /* owned: our end of the pair */
    struct loop_io *io;       /* owned */
    struct loop_timer *timer; /* owned */
    pid_t pid;
};

static NORETURN void helper_child(const struct helper_spec *spec, int fd)
{
    struct err e = {0};
    sigset_t none;
    char byte;
    int r;

    prctl(PR_SET_NAME, "space-helper");
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    r = spec->fn(spec->fn_arg, &e);
    if (r < 0 && e.code != r) {
        err_set(&e, r, NULL, "%s", strerrordesc_np(-r));
    }
    /* One packet; then until the daemon has what it wants. */
    if (send(fd, &e, sizeof(e), MSG_NOSIGNAL) == sizeof(e)) {
        IGNORE_RESULT(recv(fd, &byte, 1, 0)); /* 0: let go */
        if (r == 0 && spec->after) {
            spec->after(spec->fn_arg);
        }
    }
    _exit(0);
}

static void helper_free(struct helper *h)
{
    loop_io_free(h->io);
    loop_timer_free(h->timer);
    fd_close(h->fd);
    free(h);
}

static void helper_finish(struct helper *h, int r, const struct err *e)
{
    h->spec.done(h->spec.done_arg, r, e, h->pid);
    helper_free(h);
}

static void on_report(void *arg, uint32_t events)
{
    struct helper *h = arg;
    struct err e = {0};
    ssize_t n = recv(h->fd, &e, sizeof(e), MSG_DONTWAIT);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n != sizeof(e)) {
        err_set(&e, -EIO, NULL, "%s: the helper died", h->spec.what);
    } else if (e.code > 0) {
        e.code = -EIO;
    } else if (e.code < 0) {
        e.reason[sizeof(e.reason) - 1] = e.field[sizeof(e.field) - 1] = e.msg[sizeof(e.msg) - 1] =
            '\0';
        err_wrap(&e, e.code, "%s", h->spec.what);
    }
    helper_finish(h, e.code, &e);
}

static void on_deadline(void *arg)
{
    struct helper *h = arg;
    struct err e = {0};

    kill(h->pid, SIGKILL);
    err_set(&e, -ETIMEDOUT, NULL, "%s: not done in time", h->spec.what);
    helper_finish(h, e.code, &e);
}

static void on_exit_of_child(void *arg, const struct child_exit *x)
{
    (void)arg;
    (void)x; /* what matters came through the socket */
}

int helper_start(struct daemon *d, const struct helper_spec *spec, struct helper **ret,
                 struct err *e)
{
    struct helper *h;
    int fds[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
        return err_wrap(e, -errno, "%s", spec->what);
    }
    pid = fork();
    if (pid == 0) {
        close(fds[0]);
        helper_child(spec, fds[1]);
    }
    close(fds[1]);
    if (pid < 0) {
        int r = -errno;

        close(fds[0]);
        return err_wrap(e, r, "%s", spec->what);
    }
    children_watch(d->children, pid, on_exit_of_child, /* arg */ NULL);
    h = xnew(struct helper);
    h->spec = *spec;
    h->fd = fds[0];
    h->pid = pid;
    h->io = loop_add_io(d->loop, h->fd, EPOLLIN, on_report, h);
    h->timer = loop_add_timer(d->loop, on_deadline, h);
    loop_timer_set(h->timer, spec->deadline_ns);
    *ret = h;
    return 0;
}

void helper_cancel(struct helper *h)
{
    kill(h->pid, SIGKILL);
    helper_free(h);
}
