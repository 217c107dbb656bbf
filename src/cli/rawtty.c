/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/rawtty.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

/* Read by the handler of fatal signals; written before `entered` is set. */
static struct {
    volatile sig_atomic_t entered;
    int fd;
    struct termios before;
    struct termios raw;
} tty;

static void rawtty_fatal(int signo)
{
    rawtty_leave();
    /* The default action was restored (SA_RESETHAND); the signal comes again when we return. */
    raise(signo);
}

static void rawtty_handlers(void)
{
    static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction sa = {.sa_handler = rawtty_fatal, .sa_flags = (int)SA_RESETHAND};

    for (size_t i = 0; i < ARRAY_SIZE(fatal); i++) {
        struct sigaction old;

        /* A sanitizer's own handler says more than ours. */
        if (sigaction(fatal[i], /* new */ NULL, &old) == 0 && old.sa_handler == SIG_DFL) {
            sigaction(fatal[i], &sa, /* old */ NULL);
        }
    }
}

int rawtty_enter(int fd, struct err *e)
{
    static bool registered;

    ASSERT(!tty.entered);
    if (tcgetattr(fd, &tty.before) < 0) {
        return err_wrap(e, -errno, "reading the settings of the terminal");
    }
    tty.fd = fd;
    tty.raw = tty.before;
    cfmakeraw(&tty.raw);
    if (!registered) {
        registered = true;
        atexit(rawtty_leave);
        rawtty_handlers();
    }
    tty.entered = 1;
    if (tcsetattr(fd, TCSADRAIN, &tty.raw) < 0) {
        int r = -errno;

        tty.entered = 0;
        return err_wrap(e, r, "changing the settings of the terminal");
    }
    return 0;
}

void rawtty_again(void)
{
    if (tty.entered) {
        tcsetattr(tty.fd, TCSADRAIN, &tty.raw);
    }
}

void rawtty_leave(void)
{
    if (tty.entered) {
        tty.entered = 0;
        tcsetattr(tty.fd, TCSADRAIN, &tty.before);
    }
}

bool rawtty_size(int fd, struct rawtty_size *ret)
{
    struct winsize size = {0};

    if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0) {
        return false;
    }
    *ret = (struct rawtty_size){.rows = size.ws_row, .cols = size.ws_col};
    return true;
}
