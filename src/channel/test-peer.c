/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/test-peer.h"

#include "base/buf.h"
#include "channel/guest.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct test_peer {
    int fd;      /* owned */
    int wake_fd; /* owned */
    pthread_t thread;
    struct guest *guest; /* owned */
    struct buf out;
    bool announce;
    bool woken;
    atomic_bool stop;
    atomic_size_t drop;
    atomic_uint n_streams;
};

struct sender {
    size_t left;
    size_t offset;
};

static void on_wake(void *arg)
{
    struct test_peer *p = arg;

    p->woken = true;
}

static void send_bytes(struct guest_stream *s)
{
    struct sender *x = guest_stream_user(s);

    while (x->left > 0) {
        size_t n = 0;
        uint8_t *out = guest_stream_reserve(s, x->left, &n);

        if (n == 0) {
            return;
        }
        for (size_t i = 0; i < n; i++) {
            out[i] = (uint8_t)((x->offset + i) * 7);
        }
        guest_stream_commit(s, n);
        x->offset += n;
        x->left -= n;
    }
    guest_stream_end(s);
}

static void echo(struct guest_stream *s)
{
    size_t n = 0;
    const void *data = guest_stream_peek(s, &n);

    guest_stream_consume(s, guest_stream_write(s, data, n));
    if (guest_stream_ended(s)) {
        guest_stream_end(s);
    }
}

static void on_request(void *arg, struct guest_stream *s)
{
    static const struct guest_header_ref extra[] = {{"x-test", "yes"}};
    struct guest_response r = {.status = 200,
                               .content_type = "text/plain",
                               .length = -1,
                               .headers = extra,
                               .n_headers = 1};
    const char *target = guest_stream_target(s);

    (void)arg;
    if (guest_stream_head_too_large(s)) {
        r.status = 431;
        r.length = 0;
        guest_stream_respond(s, &r);
    } else if (str_eq(target, "/echo")) {
        guest_stream_respond(s, &r);
    } else if (str_starts(target, "/bytes?")) {
        struct sender *x = xnew(struct sender);

        x->left = strtoul(target + 7, NULL, 10);
        guest_stream_set_user(s, x);
        guest_stream_discard(s);
        guest_stream_respond(s, &r);
        send_bytes(s);
    } else if (str_eq(target, "/fail")) {
        guest_stream_respond(s, &r);
        guest_stream_write(s, "half", 4);
        guest_stream_abort(s);
    } else if (str_eq(target, "/early")) {
        r.status = 413;
        r.length = 0;
        guest_stream_respond(s, &r);
    } else if (!str_eq(target, "/hang")) {
        r.status = 404;
        r.length = 0;
        guest_stream_respond(s, &r);
    }
}

static void on_more(struct guest_stream *s)
{
    if (str_eq(guest_stream_target(s), "/echo")) {
        echo(s);
    } else if (guest_stream_user(s)) {
        send_bytes(s);
    }
}

static void on_close(struct guest_stream *s)
{
    free(guest_stream_user(s));
}

static const struct guest_ops ops = {
    .on_request = on_request,
    .on_body = on_more,
    .on_writable = on_more,
    .on_close = on_close,
    .wake = on_wake,
};

static void peer_read(struct test_peer *p)
{
    uint8_t data[65536];
    ssize_t n = recv(p->fd, data, sizeof(data), MSG_DONTWAIT);
    size_t drop;

    if (n <= 0) {
        return;
    }
    drop = MIN(atomic_load(&p->drop), (size_t)n);
    atomic_fetch_sub(&p->drop, drop);
    guest_feed(p->guest, data + drop, (size_t)n - drop);
}

static void peer_flush(struct test_peer *p)
{
    do {
        ssize_t n;

        p->woken = false;
        guest_dispatch(p->guest);
        if (guest_output_stale(p->guest)) {
            buf_reset(&p->out);
        }
        guest_pull(p->guest, &p->out);
        n = p->out.len ? send(p->fd, p->out.data, p->out.len, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        buf_consume(&p->out, n > 0 ? (size_t)n : 0);
    } while (p->woken && p->out.len == 0);
    atomic_store(&p->n_streams, guest_n_streams(p->guest));
}

static void *peer_thread(void *arg)
{
    struct test_peer *p = arg;

    if (p->announce) {
        guest_announce(p->guest);
    }
    peer_flush(p);
    while (!atomic_load(&p->stop)) {
        struct pollfd fds[] = {{.fd = p->fd, .events = POLLIN},
                               {.fd = p->wake_fd, .events = POLLIN}};

        fds[0].events |= p->out.len ? POLLOUT : 0;
        poll(fds, 2, -1);
        if (fds[0].revents & POLLIN) {
            peer_read(p);
        }
        if (fds[0].revents & POLLHUP) {
            break;
        }
        peer_flush(p);
    }
    return NULL;
}

struct test_peer *test_peer_new(int fd_take, bool announce)
{
    struct test_peer *p = xnew(struct test_peer);

    p->fd = fd_take;
    p->announce = announce;
    p->wake_fd = eventfd(0, EFD_CLOEXEC);
    p->out = BUF_INIT(3 * GUEST_PULL_MAX);
    p->guest = guest_new(&ops, p);
    ASSERT(pthread_create(&p->thread, NULL, peer_thread, p) == 0);
    return p;
}

int test_peer_free(struct test_peer *p)
{
    uint64_t one = 1;
    int fd = p->fd;

    atomic_store(&p->stop, true);
    ASSERT(write(p->wake_fd, &one, sizeof(one)) == sizeof(one));
    pthread_join(p->thread, NULL);
    guest_free(p->guest);
    fd_close(p->wake_fd);
    buf_done(&p->out);
    free(p);
    return fd;
}

void test_peer_drop(struct test_peer *p, size_t n)
{
    atomic_store(&p->drop, n);
}

unsigned test_peer_streams(struct test_peer *p)
{
    return atomic_load(&p->n_streams);
}
