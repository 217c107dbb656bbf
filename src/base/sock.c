/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sock.h"

#include "base/clock.h"

#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_BACKLOG 128

static int fill_address(const char *path, struct sockaddr_un *ret, struct err *e)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(ret->sun_path)) {
        return err_set(e, -ENAMETOOLONG, NULL,
                       "socket path '%s' is longer than %zu bytes: choose a shorter run directory",
                       path, sizeof(ret->sun_path) - 1);
    }
    memcpy(ret->sun_path, path, strlen(path) + 1);
    return 0;
}

/* A peer that accepts nobody has a full queue, which connect(2) would wait for without end. */
#define CONNECT_TIMEOUT_S 10

static int set_send_timeout(int fd, time_t seconds)
{
    struct timeval t = {.tv_sec = seconds};

    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t)) < 0 ? -errno : 0;
}

int sock_connect_unix(const char *path, int type, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    struct sockaddr_un address;
    int r = fill_address(path, &address, e);

    if (r < 0) {
        return r;
    }
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return err_wrap(e, -errno, "making a socket");
    }
    r = set_send_timeout(fd, CONNECT_TIMEOUT_S);
    while (r == 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        if (errno != EINTR) {
            return err_wrap(e, errno == EAGAIN ? -ETIMEDOUT : -errno, "connecting to '%s'", path);
        }
    }
    if (r == 0) {
        r = set_send_timeout(fd, 0);
    }
    return r < 0 ? err_wrap(e, r, "connecting to '%s'", path) : TAKE_FD(fd);
}

int sock_listen_unix(const char *path, int type, mode_t mode, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    cleanup_close int other = FD_NONE;
    struct sockaddr_un address;
    int r = fill_address(path, &address, e);

    if (r < 0) {
        return r;
    }
    other = sock_connect_unix(path, type, NULL);
    if (other >= 0) {
        return err_set(e, -EADDRINUSE, NULL, "another process already listens on '%s'", path);
    }
    if (unlink(path) < 0 && errno != ENOENT) {
        return err_wrap(e, -errno, "removing the old socket '%s'", path);
    }
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return err_wrap(e, -errno, "making a socket");
    }
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        return err_wrap(e, -errno, "binding '%s'", path);
    }
    if (chmod(path, mode) < 0 || listen(fd, LISTEN_BACKLOG) < 0) {
        return err_wrap(e, -errno, "listening on '%s'", path);
    }
    return TAKE_FD(fd);
}

int sock_peer(int fd, struct peer *ret)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
        return -errno;
    }
    *ret = (struct peer){.pid = cred.pid, .uid = cred.uid, .gid = cred.gid};
    return 0;
}

int sock_wait(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, deadline_poll_ms(deadline_ns));

        if (n > 0) {
            return 0;
        }
        if (n == 0 && deadline_passed(deadline_ns)) {
            return -ETIMEDOUT;
        }
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
    }
}

int sock_send_all(int fd, const void *data, size_t len, uint64_t deadline_ns)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0) {
            p += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            int r = sock_wait(fd, POLLOUT, deadline_ns);

            if (r < 0) {
                return r;
            }
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

ssize_t sock_recv(int fd, void *ret, size_t len, uint64_t deadline_ns)
{
    for (;;) {
        ssize_t n = recv(fd, ret, len, MSG_DONTWAIT);
        int r;

        if (n >= 0) {
            return n;
        }
        if (errno == EINTR) {
            continue;
        }
        if (errno != EAGAIN) {
            return -errno;
        }
        r = sock_wait(fd, POLLIN, deadline_ns);
        if (r < 0) {
            return r;
        }
    }
}
