/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/sigs.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"

static const int end_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const int other_signals[] = {SIGUSR1, SIGUSR2};
static const int window_signals[] = {SIGWINCH, SIGCONT};

static void sigs_add(sigset_t *set, const int *signals, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sigaddset(set, signals[i]);
    }
}

int sigs_open(struct sigs *s, bool with_window, struct err *e)
{
    sigset_t all;
    sigset_t end;

    sigemptyset(&all);
    sigemptyset(&end);
    sigs_add(&end, end_signals, ARRAY_SIZE(end_signals));
    sigs_add(&all, end_signals, ARRAY_SIZE(end_signals));
    sigs_add(&all, other_signals, ARRAY_SIZE(other_signals));
    if (with_window) {
        sigs_add(&all, window_signals, ARRAY_SIZE(window_signals));
    }
    *s = (struct sigs)SIGS_INIT;
    s->fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    s->end_fd = signalfd(-1, &end, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0 || s->end_fd < 0) {
        int r = -errno;

        fd_close(s->fd);
        fd_close(s->end_fd);
        *s = (struct sigs)SIGS_INIT;
        return err_wrap(e, r, "taking signals");
    }
    pthread_sigmask(SIG_BLOCK, &all, &s->before);
    return 0;
}

int sigs_read(const struct sigs *s)
{
    struct signalfd_siginfo info;
    ssize_t n = read(s->fd, &info, sizeof(info));

    return n == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

void sigs_done(struct sigs *s)
{
    if (s->fd < 0) {
        return;
    }
    /* What came too late to be handled has been answered by our ending. */
    while (sigs_read(s)) {
    }
    s->fd = fd_close(s->fd);
    s->end_fd = fd_close(s->end_fd);
    pthread_sigmask(SIG_SETMASK, &s->before, /* old */ NULL);
}

void sigs_wait(const struct sigs *s, uint64_t deadline_ns)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};

    while (poll(&p, 1, deadline_poll_ms(deadline_ns)) < 0 && errno == EINTR) {
    }
}

bool sigs_is_end(int signo)
{
    for (size_t i = 0; i < ARRAY_SIZE(end_signals); i++) {
        if (end_signals[i] == signo) {
            return true;
        }
    }
    return false;
}

void sigs_name(int signo, char *ret, size_t size)
{
    const char *name = sigabbrev_np(signo);

    if (name) {
        snprintf(ret, size, "%s", name);
    } else {
        snprintf(ret, size, "%d", signo);
    }
}
