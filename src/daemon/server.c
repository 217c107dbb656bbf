/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server.h"

#include "base/log.h"
#include "channel/guest.h"
#include "daemon/module.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_SIZE (64u * 1024)
/* Turns of pull and write before others get their chance. */
#define FLUSH_TURNS 8

struct server {
    struct daemon *daemon; /* borrowed: lives longer */
    struct guest *guest;   /* owned */
    int fd;                /* owned */
    struct loop_io *io;    /* owned */
    struct buf out;
    bool socket;
    bool connected;
    bool flush_due;
    uint8_t in[READ_SIZE];
};

static void on_request(void *arg, struct guest_stream *stream)
{
    struct server *s = arg;

    request_open(s->daemon, stream);
}

static void server_flush(void *arg);

static void on_wake(void *arg)
{
    struct server *s = arg;

    if (!s->flush_due) {
        s->flush_due = true;
        loop_defer(s->daemon->loop, server_flush, s);
    }
}

static const struct guest_ops server_ops = {
    .on_request = on_request,
    .on_body = request_body_came,
    .on_writable = request_room_came,
    .on_close = request_closed,
    .wake = on_wake,
};

static void server_lost(struct server *s)
{
    s->connected = false;
    guest_hangup(s->guest);
    buf_reset(&s->out);
    if (s->socket) {
        loop_io_set(s->io, 0);
        loop_stop(s->daemon->loop);
    } else {
        loop_io_set(s->io, EPOLLIN | EPOLLOUT | (uint32_t)EPOLLET);
    }
}

/* Writes until the port is full or nothing is left. True: there may be more to pull. */
static bool server_write(struct server *s)
{
    while (s->out.len > 0) {
        ssize_t n = write(s->fd, s->out.data, s->out.len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno != EAGAIN) {
            log_debug(NULL, "writing to the channel: %s", strerrordesc_np(errno));
            server_lost(s);
        }
        if (n <= 0) {
            return false;
        }
        buf_consume(&s->out, (size_t)n);
    }
    return true;
}

static void server_flush(void *arg)
{
    struct server *s = arg;
    unsigned turns = 0;

    s->flush_due = false;
    guest_dispatch(s->guest);
    if (!s->connected) {
        return;
    }
    do {
        if (guest_output_stale(s->guest)) {
            buf_reset(&s->out);
        }
        guest_pull(s->guest, &s->out);
        if (s->out.len == 0) {
            break;
        }
        if (!server_write(s)) {
            break;
        }
        guest_dispatch(s->guest);
    } while (++turns < FLUSH_TURNS);
    if (s->connected) {
        loop_io_set(s->io,
                    EPOLLIN | (s->out.len > 0 || turns == FLUSH_TURNS ? (uint32_t)EPOLLOUT : 0));
    }
}

/* One round's worth. False: the host is not there. */
static bool server_read(struct server *s)
{
    size_t got = 0;
    ssize_t n = 0;

    while (got < sizeof(s->in)) { /* the port gives a page at a time */
        n = read(s->fd, s->in + got, sizeof(s->in) - got);
        if (n <= 0) {
            break;
        }
        got += (size_t)n;
    }
    guest_feed(s->guest, s->in, got);
    return got > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void on_port(void *arg, uint32_t events)
{
    struct server *s = arg;

    if (!s->connected) {
        if (events & EPOLLHUP) {
            return; /* still nobody */
        }
        s->connected = true;
        loop_io_set(s->io, EPOLLIN);
        guest_announce(s->guest);
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && !server_read(s)) {
        server_lost(s);
    }
    server_flush(s);
}

struct server *server_new(struct daemon *d, int fd_take)
{
    struct server *s = xnew(struct server);
    struct stat st;

    s->daemon = d;
    s->fd = fd_take;
    s->socket = fstat(fd_take, &st) == 0 && S_ISSOCK(st.st_mode);
    s->out = BUF_INIT(3 * GUEST_PULL_MAX);
    s->guest = guest_new(&server_ops, s);
    s->connected = true;
    s->io = loop_add_io(d->loop, s->fd, EPOLLIN, on_port, s);
    guest_announce(s->guest);
    return s;
}

void server_free(struct server *s)
{
    if (!s) {
        return;
    }
    s->connected = false;
    guest_free(s->guest);
    loop_io_free(s->io);
    fd_close(s->fd);
    buf_done(&s->out);
    free(s);
}

void server_drop_session(struct server *s)
{
    guest_hangup(s->guest);
    guest_announce(s->guest);
}

bool server_connected(const struct server *s)
{
    return guest_up(s->guest);
}
