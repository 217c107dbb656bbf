/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/seqpacket.h"

#include "base/sock.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

int seqpacket_accept(int listen_fd, int *ret_fd)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0) {
        return -errno;
    }
    *ret_fd = fd;
    return 0;
}

union control {
    struct cmsghdr align;
    char data[CMSG_SPACE(sizeof(int) * SEQPACKET_FDS_MAX)];
};

int seqpacket_send(int fd, const void *data, size_t len, const int *fds, size_t n_fds,
                   uint64_t deadline_ns)
{
    union control control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    ASSERT(data && len > 0 && n_fds <= SEQPACKET_FDS_MAX);
    if (n_fds > 0) {
        struct cmsghdr *c;

        msg.msg_control = control.data;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
    }
    for (;;) {
        ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        int r;

        if (n >= 0) {
            return 0; /* a packet is sent whole or not at all */
        }
        if (errno == EINTR) {
            continue;
        }
        if (errno != EAGAIN) {
            return -errno;
        }
        r = sock_wait(fd, POLLOUT, deadline_ns);
        if (r < 0) {
            return r;
        }
    }
}

void seqpacket_fds_done(struct seqpacket_fds *fds)
{
    for (size_t i = 0; i < fds->n; i++) {
        fds->fd[i] = fd_close(fds->fd[i]);
    }
    fds->n = 0;
}

/* Takes every descriptor of the message, so that none leaks; false when there are too many. */
static bool seqpacket_collect(struct msghdr *msg, struct seqpacket_fds *fds)
{
    bool fits = true;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            fits = false;
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (fds->n < MIN(fds->max, (size_t)SEQPACKET_FDS_MAX)) {
                fds->fd[fds->n++] = fd;
            } else {
                fd_close(fd);
                fits = false;
            }
        }
    }
    return fits;
}

ssize_t seqpacket_recv(int fd, void *data, size_t size, struct seqpacket_fds *fds,
                       uint64_t deadline_ns)
{
    union control control;
    struct iovec iov = {.iov_base = data, .iov_len = size};
    struct msghdr msg;
    ssize_t n;

    ASSERT(data && fds && fds->n == 0);
    for (;;) {
        int r;

        msg = (struct msghdr){.msg_iov = &iov,
                              .msg_iovlen = 1,
                              .msg_control = control.data,
                              .msg_controllen = sizeof(control.data)};
        n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n >= 0) {
            break;
        }
        if (errno == EINTR) {
            continue;
        }
        if (errno != EAGAIN || deadline_ns == 0) {
            return -errno;
        }
        r = sock_wait(fd, POLLIN, deadline_ns);
        if (r < 0) {
            return r;
        }
    }
    if (!seqpacket_collect(&msg, fds) || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        seqpacket_fds_done(fds);
        return -EMSGSIZE;
    }
    if (n == 0) {
        seqpacket_fds_done(fds);
        return -ECONNRESET;
    }
    return n;
}
