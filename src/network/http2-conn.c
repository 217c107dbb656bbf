/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "credential/secret.h"
#include "network/http2-internal.h"

/* ---- bytes ---- */

/* Frames into out, as long as there is room. */
static int gather_frames(struct http2_end *end, bool *ret_moved)
{
    while (end->out.len < HTTP2_OUT_BYTES) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(end->session, &data);

        if (n < 0) {
            return -EPROTO;
        }
        if (n == 0) {
            return 0;
        }
        *ret_moved = true;
        if (buf_add(&end->out, data, (size_t)n) < 0) {
            return -E2BIG;
        }
    }
    return 0;
}

static int send_out(struct http2_end *end, bool *ret_moved, bool *ret_wait)
{
    size_t sent = 0;
    int r = 0;

    while (sent < end->out.len && r == 0) {
        struct iovec iov = {end->out.data + sent, end->out.len - sent};
        ssize_t n = io_send(end->io, &iov, 1);

        if (n < 0) {
            r = (int)n;
        } else {
            sent += (size_t)n;
            *ret_moved = true;
        }
    }
    if (sent > 0) {
        buf_consume(&end->out, sent);
    }
    *ret_wait = r == -EAGAIN;
    return r == -EAGAIN ? 0 : r;
}

static int receive(struct http2 *h, struct http2_end *end, bool *ret_moved)
{
    ssize_t n = io_recv(end->io, h->chunk, INTERCEPT_CHUNK);

    if (n == -EAGAIN) {
        return 0;
    }
    if (n <= 0) {
        return n == 0 ? -ECONNRESET : (int)n;
    }
    *ret_moved = true;
    if (nghttp2_session_mem_recv(end->session, (const uint8_t *)h->chunk, (size_t)n) < 0) {
        return -EPROTO;
    }
    return nghttp2_session_get_outbound_queue_size(end->session) > HTTP2_QUEUE_MAX ? -EPROTO : 0;
}

/* One round of one side. *ret_wait: it waits for room to send. */
static void turn(struct http2 *h, struct http2_end *end, bool *ret_moved, bool *ret_wait)
{
    int r;

    *ret_wait = false;
    if (!end->session || end->closed) {
        return;
    }
    r = receive(h, end, ret_moved);
    r = r < 0 ? r : gather_frames(end, ret_moved);
    r = r < 0 ? r : send_out(end, ret_moved, ret_wait);
    end->closed = r < 0 || (!nghttp2_session_want_read(end->session) &&
                            !nghttp2_session_want_write(end->session) && end->out.len == 0);
}

/* ---- the whole ---- */

static int wait_for_any(struct http2 *h, bool guest_out, bool server_out)
{
    struct pollfd p[4] = {
        {.fd = h->guest.io->fd},
        {.fd = FD_NONE},
        {.fd = h->c->stop_fd, .events = POLLIN},
        {.fd = h->decided_fd, .events = POLLIN},
    };
    uint64_t deadline_ns = deadline_in_ms(INTERCEPT_QUIET_MS);
    int n;

    if (h->n_streams == 0) {
        deadline_ns = h->idle_since_ns + INTERCEPT_IDLE_MS * NS_PER_MS;
    }
    p[0].events = io_pollfd(h->guest.io, POLLIN).events;
    p[0].events |= guest_out ? io_pollfd(h->guest.io, POLLOUT).events : 0;
    if (h->server.session && !h->server.closed) {
        p[1].fd = h->server.io->fd;
        p[1].events = io_pollfd(h->server.io, POLLIN).events;
        p[1].events |= server_out ? io_pollfd(h->server.io, POLLOUT).events : 0;
    }
    n = poll(p, 4, deadline_poll_ms(deadline_ns));
    if (n < 0) {
        return errno == EINTR ? 0 : -errno;
    }
    return n == 0 ? -ETIMEDOUT : (p[2].revents ? -ECANCELED : 0);
}

/* Says goodbye once, when the last stream has ended: what was refused until then may be tried again elsewhere. */
static void say_goodbye(struct http2 *h)
{
    if (h->draining && h->n_streams == 0 && !h->goodbye) {
        h->goodbye = true;
        nghttp2_submit_goaway(h->guest.session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(h->guest.session),
                              NGHTTP2_NO_ERROR, NULL, 0);
    }
}

static bool is_over(const struct http2 *h)
{
    return h->guest.closed || (h->goodbye && h->n_streams == 0 && h->guest.out.len == 0 &&
                               !nghttp2_session_want_write(h->guest.session));
}

static void run(struct http2 *h)
{
    int r = 0;

    while (r == 0 && !is_over(h)) {
        bool moved = false;
        bool guest_out;
        bool server_out;

        http2_take_decided(h);
        turn(h, &h->guest, &moved, &guest_out);
        turn(h, &h->server, &moved, &server_out);
        if (h->server.session && h->server.closed) {
            http2_server_gone(h);
            h->draining = moved = true;
        }
        say_goodbye(h);
        if (!moved) {
            r = wait_for_any(h, guest_out, server_out);
        }
        if (r == -ETIMEDOUT && h->n_streams == 0) {
            h->draining = true;
            r = 0;
        }
    }
    if (r == 0 && !h->guest.closed) {
        intercept_linger(h->c);
    }
}

static void http2_done(struct http2 *h)
{
    struct http2_stream *next;

    /* Whoever still asks for one of them has nobody to tell. */
    IGNORE_RESULT(eventfd_write(h->c->stop_fd, 1));
    pthread_mutex_lock(&h->lock);
    while (h->n_deciding > 0) {
        pthread_cond_wait(&h->all_decided, &h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    for (struct http2_stream *s = TAILQ_FIRST(&h->streams); s; s = next) {
        next = TAILQ_NEXT(s, entry);
        http2_stream_free(s);
    }
    nghttp2_session_del(h->guest.session);
    nghttp2_session_del(h->server.session);
    secret_wipe_buf(&h->guest.out);
    secret_wipe_buf(&h->server.out);
    explicit_bzero(h->chunk, INTERCEPT_CHUNK);
    free(h->chunk);
    fd_close(h->decided_fd);
    pthread_cond_destroy(&h->all_decided);
    pthread_mutex_destroy(&h->lock);
}

void intercept_http2_run(struct intercept_conn *c, const struct err *no_server)
{
    /* A frame may come on top of what is there, and nghttp2's frames are of the default size. */
    struct http2 h = {.c = c,
                      .no_server = no_server,
                      .guest = {.io = &c->guest, .out = BUF_INIT(2 * HTTP2_OUT_BYTES)},
                      .server = {.io = &c->server, .out = BUF_INIT(2 * HTTP2_OUT_BYTES)},
                      .idle_since_ns = clock_now_ns()};

    TAILQ_INIT(&h.streams);
    TAILQ_INIT(&h.decided);
    pthread_mutex_init(&h.lock, NULL);
    pthread_cond_init(&h.all_decided, NULL);
    h.chunk = xmalloc(INTERCEPT_CHUNK);
    h.decided_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h.decided_fd >= 0 && http2_sessions_open(&h) == 0) {
        run(&h);
    }
    http2_done(&h);
}
