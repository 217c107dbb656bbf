/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/reload.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"

struct reload {
    struct http_tls *tls; /* borrowed */
    int signal_fd;        /* owned */
    int stop_fd;          /* owned */
    pthread_t thread;
};

static void hup_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGHUP);
}

void reload_block_signal(void)
{
    sigset_t set;

    hup_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, /* old */ NULL);
}

static void on_signal(const struct reload *r)
{
    struct signalfd_siginfo info;
    struct err e = {0};

    if (read(r->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return;
    }
    if (!r->tls) {
        log_info(NULL, "SIGHUP: there is no certificate to read again");
    } else if (http_tls_reload(r->tls, &e) < 0) {
        log_error(NULL, "cannot use the new certificate, going on with the old one: %s", e.msg);
    } else {
        log_info(NULL, "the certificate was read again");
    }
}

static void *reload_main(void *arg)
{
    const struct reload *r = arg;

    for (;;) {
        struct pollfd fds[] = {{.fd = r->signal_fd, .events = POLLIN},
                               {.fd = r->stop_fd, .events = POLLIN}};

        if (poll(fds, ARRAY_SIZE(fds), -1) < 0) {
            continue; /* EINTR */
        }
        if (fds[1].revents) {
            return NULL;
        }
        on_signal(r);
    }
}

static void reload_free(struct reload *r)
{
    fd_close(r->signal_fd);
    fd_close(r->stop_fd);
    free(r);
}

int reload_start(struct http_tls *tls, struct reload **ret, struct err *e)
{
    struct reload *r = xnew(struct reload);
    sigset_t set;
    int code;

    hup_set(&set);
    r->tls = tls;
    r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    r->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    code = r->signal_fd < 0 || r->stop_fd < 0 ? -errno
                                              : -pthread_create(&r->thread, NULL, reload_main, r);
    if (code < 0) {
        reload_free(r);
        return err_wrap(e, code, "waiting for SIGHUP");
    }
    *ret = r;
    return 0;
}

void reload_stop(struct reload *r)
{
    uint64_t one = 1;

    if (!r) {
        return;
    }
    IGNORE_RESULT(write(r->stop_fd, &one, sizeof(one))); /* the first write to it: cannot fail */
    pthread_join(r->thread, NULL);
    reload_free(r);
}
