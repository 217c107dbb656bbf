/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pty.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* The workload's own, or on hosts that close it to users, the one beside it; -ENODEV when it is no pty. */
static int open_master(void)
{
    cleanup_close int fd = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    unsigned number;

    if (fd < 0) {
        fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    }
    if (fd < 0) {
        return -errno;
    }
    /* Whoever owns the workload's /dev could have put something else here that blocks the daemon's reads. */
    if (ioctl(fd, TIOCGPTN, &number) < 0) {
        return -ENODEV;
    }
    return TAKE_FD(fd);
}

static int set_utf8(int fd)
{
    struct termios t;

    if (tcgetattr(fd, &t) < 0) {
        return -errno;
    }
    t.c_iflag |= IUTF8;
    return tcsetattr(fd, TCSANOW, &t) < 0 ? -errno : 0;
}

int pty_open(uid_t uid, struct pty_size size, int *ret_master, int *ret_slave)
{
    cleanup_close int master = open_master();
    cleanup_close int slave = FD_NONE;
    int unlock = 0;
    int r;

    if (master < 0) {
        return master;
    }
    if (ioctl(master, TIOCSPTLCK, &unlock) < 0) {
        return -errno;
    }
    slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0) {
        return -errno;
    }
    /* The group stays as devpts was mounted to give it (tty). Without privilege it is ours already. */
    if (fchown(slave, uid, (gid_t)-1) < 0 && errno != EPERM) {
        return -errno;
    }
    r = set_utf8(slave);
    if (r == 0) {
        r = pty_resize(master, size);
    }
    if (r < 0) {
        return r;
    }
    *ret_master = TAKE_FD(master);
    *ret_slave = TAKE_FD(slave);
    return 0;
}

int pty_adopt(int slave)
{
    if (ioctl(slave, TIOCSCTTY, 0) < 0) {
        return -errno;
    }
    for (int fd = 0; fd <= 2; fd++) {
        if (dup2(slave, fd) < 0) {
            return -errno;
        }
    }
    return 0;
}

int pty_resize(int master, struct pty_size size)
{
    struct winsize w = {.ws_row = size.rows, .ws_col = size.cols};

    return ioctl(master, TIOCSWINSZ, &w) < 0 ? -errno : 0;
}

char pty_eof_byte(int master)
{
    struct termios t;

    /* On Linux a master answers with the settings of its slave. */
    if (tcgetattr(master, &t) < 0 || t.c_cc[VEOF] == _POSIX_VDISABLE) {
        return 4;
    }
    return (char)t.c_cc[VEOF];
}
