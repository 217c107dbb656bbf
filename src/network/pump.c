/* SPDX-License-Identifier: Apache-2.0 */
#include "network/pump.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* What a pipe holds by default. */
#define PIPE_BYTES 65536u
/* So that one busy connection does not keep the others of its loop waiting. */
#define ROUNDS_MAX 8

void pump_init(struct pump *p, struct worker *w, int from_fd, int to_fd)
{
    *p = (struct pump){.worker = w,
                       .from_fd = from_fd,
                       .to_fd = to_fd,
                       .pipe = {.read_fd = FD_NONE, .write_fd = FD_NONE}};
}

void pump_done(struct pump *p)
{
    if (p->worker) {
        worker_pipe_give(p->worker, &p->pipe, p->in_pipe == 0);
    }
}

/* 1: all of it has gone; 0: the receiver is full. */
static int send_first(struct pump *p)
{
    while (p->first && p->first->len > 0) {
        ssize_t n = send(p->to_fd, p->first->data, p->first->len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0) {
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        }
        buf_consume(p->first, (size_t)n);
        p->bytes += (size_t)n;
    }
    if (p->first) {
        buf_done(p->first); /* sixteen KiB that an idle connection need not hold */
        p->first = NULL;
    }
    return 1;
}

static int fill(struct pump *p)
{
    ssize_t n;
    int r;

    if (p->ended) {
        return 0;
    }
    if (p->pipe.read_fd < 0) {
        r = worker_pipe_take(p->worker, &p->pipe);
        if (r < 0) {
            return r;
        }
    }
    n = splice(p->from_fd, NULL, p->pipe.write_fd, NULL, PIPE_BYTES,
               SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    }
    p->ended = n == 0;
    p->in_pipe += (size_t)n;
    return n > 0;
}

static int drain(struct pump *p)
{
    while (p->in_pipe > 0) {
        ssize_t n = splice(p->pipe.read_fd, NULL, p->to_fd, NULL, p->in_pipe,
                           SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

        if (n < 0) {
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        }
        if (n == 0) {
            return -EPIPE;
        }
        p->in_pipe -= (size_t)n;
        p->bytes += (size_t)n;
    }
    return 0;
}

int pump_run(struct pump *p)
{
    int r = send_first(p);

    if (r <= 0) {
        return r;
    }
    for (int i = 0; i < ROUNDS_MAX; i++) {
        r = drain(p);
        if (r < 0 || p->in_pipe > 0) {
            return r;
        }
        r = fill(p);
        if (r <= 0) {
            break;
        }
    }
    if (r >= 0 && p->in_pipe > 0) {
        r = drain(p);
    }
    if (r < 0) {
        return r;
    }
    if (p->in_pipe == 0) {
        worker_pipe_give(p->worker, &p->pipe, /* empty */ true);
        if (p->ended && !p->closed) {
            p->closed = true;
            shutdown(p->to_fd, SHUT_WR); /* it may be gone: then the other direction will tell */
        }
    }
    return 0;
}

uint32_t pump_wants_from(const struct pump *p)
{
    bool full = p->in_pipe > 0 || (p->first && p->first->len > 0);

    return p->ended || full ? 0 : EPOLLIN;
}

uint32_t pump_wants_to(const struct pump *p)
{
    return p->in_pipe > 0 || (p->first && p->first->len > 0) ? EPOLLOUT : 0;
}
