/* SPDX-License-Identifier: Apache-2.0 */
#include "http/io.h"

#include "base/clock.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IO_FIRST_CAP 4096u

void io_init_take(struct http_io *io, int fd)
{
    ASSERT(fd >= 0);
    *io = (struct http_io){.fd = fd};
}

void io_init_layer_take(struct http_io *io, const struct http_io_layer *layer, void *under)
{
    *io = (struct http_io){.fd = FD_NONE, .layer = layer, .under = under};
}

void io_early(struct http_io *io, const void *data, size_t len)
{
    ASSERT(!io->early && io->in_len == 0);
    if (len > 0) {
        io->early = xmemdup(data, len);
        io->n_early = len;
    }
}

size_t io_take_early(struct http_io *io, void *data, size_t len)
{
    size_t n = io->early ? MIN(len, io->n_early - io->early_pos) : 0;

    if (n > 0) {
        memcpy(data, io->early + io->early_pos, n);
        io->early_pos += n;
        if (io->early_pos == io->n_early) {
            free(io->early);
            io->early = NULL;
        }
    }
    return n;
}

void io_done(struct http_io *io)
{
    if (io->ssl) {
        io_tls_done(io);
    }
    if (io->layer) {
        io->layer->done(io->under);
        io->layer = NULL;
    }
    free(io->in);
    free(io->early);
    io->fd = fd_close(io->fd);
    io->early = NULL;
    io->in = NULL;
    io->in_pos = io->in_len = io->in_cap = 0;
}

void io_shutdown_send(struct http_io *io)
{
    if (io->ssl) {
        io_tls_goodbye(io);
    }
    ASSERT(!io->layer);
    if (shutdown(io->fd, SHUT_WR) < 0) {
        return; /* gone already: that is what we wanted */
    }
}

int io_end_send(struct http_io *io)
{
    if (io->layer) {
        return io->layer->end_send(io->under);
    }
    io_shutdown_send(io);
    return 0;
}

static ssize_t raw_recv(struct http_io *io, void *data, size_t len)
{
    size_t early;

    if (io->ssl) {
        return io_tls_recv(io, data, len);
    }
    if (io->layer) {
        return io->layer->recv(io->under, data, len);
    }
    early = io_take_early(io, data, len);
    if (early > 0) {
        return (ssize_t)early;
    }
    for (;;) {
        ssize_t n = recv(io->fd, data, len, MSG_DONTWAIT);

        if (n >= 0) {
            return n;
        }
        if (errno != EINTR) {
            return -errno;
        }
    }
}

ssize_t io_recv(struct http_io *io, void *data, size_t len)
{
    ASSERT(len > 0);
    if (io->in_len > 0) {
        size_t n = MIN(len, io->in_len);

        memcpy(data, io_data(io), n);
        io_consume(io, n);
        return (ssize_t)n;
    }
    return raw_recv(io, data, len);
}

ssize_t io_fill(struct http_io *io, size_t max)
{
    ssize_t n;

    if (io->in_len >= max) {
        return -E2BIG;
    }
    if (io->in_pos > 0) {
        memmove(io->in, io_data(io), io->in_len);
        io->in_pos = 0;
    }
    if (io->in_len == io->in_cap || io->in_cap == 0) {
        io->in_cap = MIN(MAX(io->in_cap * 2, (size_t)IO_FIRST_CAP), MAX(max, (size_t)IO_FIRST_CAP));
        io->in = xrealloc(io->in, io->in_cap);
    }
    ASSERT(io->in_cap > io->in_len);
    n = raw_recv(io, io->in + io->in_len, io->in_cap - io->in_len);
    if (n > 0) {
        io->in_len += (size_t)n;
    }
    return n;
}

void io_consume(struct http_io *io, size_t n)
{
    ASSERT(n <= io->in_len);
    io->in_len -= n;
    io->in_pos = io->in_len ? io->in_pos + n : 0;
}

void io_trim(struct http_io *io)
{
    if (io->in_len == 0) {
        free(io->in);
        io->in = NULL;
        io->in_cap = io->in_pos = 0;
    }
}

ssize_t io_send(struct http_io *io, const struct iovec *iov, int n_iov)
{
    struct msghdr msg = {.msg_iovlen = (size_t)n_iov};

    ASSERT(n_iov > 0 && n_iov <= IO_MAX_IOV);
    if (io->ssl) {
        return io_tls_send(io, iov, n_iov);
    }
    if (io->layer) {
        return io->layer->send(io->under, iov, n_iov);
    }
    memcpy(&msg.msg_iov, &iov,
           sizeof(iov)); /* sendmsg does not change it, whatever its type says */
    for (;;) {
        ssize_t n = sendmsg(io->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0) {
            return n;
        }
        if (errno != EINTR) {
            return errno == EPIPE ? -EPIPE : -errno;
        }
    }
}

static void iov_advance(struct iovec **iov, int *n_iov, size_t n)
{
    while (*n_iov > 0 && n >= (*iov)->iov_len) {
        n -= (*iov)->iov_len;
        (*iov)++;
        (*n_iov)--;
    }
    if (n > 0) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + n;
        (*iov)->iov_len -= n;
    }
}

int io_send_all(struct http_io *io, struct iovec *iov, int n_iov, const struct io_wait *wait)
{
    iov_advance(&iov, &n_iov, 0);
    while (n_iov > 0) {
        ssize_t n = io_send(io, iov, n_iov);

        if (n >= 0) {
            iov_advance(&iov, &n_iov, (size_t)n);
        } else if (n == -EAGAIN) {
            int r = io_wait(io, POLLOUT, wait);

            if (r < 0) {
                return r;
            }
        } else {
            return (int)n;
        }
    }
    return 0;
}

struct pollfd io_pollfd(const struct http_io *io, short events)
{
    struct pollfd p = {.fd = io->fd, .events = events};

    if (io->layer) {
        return io->layer->pollfd(io->under, events);
    }
    if ((events & POLLIN) && io->want_out) {
        p.events |= POLLOUT;
    }
    if ((events & POLLOUT) && io->want_in) {
        p.events |= POLLIN;
    }
    return p;
}

bool io_buffered(const struct http_io *io)
{
    return io->in_len > 0 || io->early || (io->ssl && SSL_pending(io->ssl) > 0);
}

int io_wait(struct http_io *io, short events, const struct io_wait *wait)
{
    for (;;) {
        struct pollfd p[2] = {io_pollfd(io, events), wait->watch};
        int n = poll(p, wait->watch.fd >= 0 ? 2 : 1, deadline_poll_ms(wait->deadline_ns));

        if (n > 0 && p[0].revents) {
            return 0;
        }
        if (n > 0) {
            return -ECANCELED;
        }
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n == 0 && deadline_passed(wait->deadline_ns)) {
            return -ETIMEDOUT;
        }
    }
}
