/* SPDX-License-Identifier: Apache-2.0 */
/* The connection: its session, its deadlines, its bytes. */
#include "http/server-http2.h"

#include "base/log.h"

#include <string.h>

#define CHUNK (32u * 1024)
/* How often it is looked at the time, and whether the server stops. */
#define LOOK_MS 1000

bool http2_has_room(struct http_server *s, unsigned share)
{
    bool room;

    ASSERT(share > 0);
    pthread_mutex_lock(&s->lock);
    room = s->n_http2 < MAX(s->opts.max_threads / share, 1u);
    pthread_mutex_unlock(&s->lock);
    return room;
}

/* ---- what nghttp2 tells ---- */

static struct http2_exchange *exchange_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int charge(struct http2_conn *h, double points)
{
    uint64_t now_ns = clock_now_ns();
    double back = (double)(now_ns - h->charged_ns) / (double)NS_PER_S * HTTP2_POINTS_PER_S;

    h->points = h->points > back ? h->points - back : 0;
    h->charged_ns = now_ns;
    h->points += points;
    if (h->points > HTTP2_POINTS_MAX) {
        log_warn(NULL, "ending a connection of %s: too many frames that carry nothing",
                 h->c->peer_name);
        nghttp2_session_terminate_session(h->session, NGHTTP2_ENHANCE_YOUR_CALM);
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    return 0;
}

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2_conn *h = arg;
    int32_t id = frame->hd.stream_id;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    /* Until the client has read our settings nghttp2 allows more. */
    if (h->n >= HTTP2_STREAMS || h->goodbye) {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
        return 0;
    }
    nghttp2_session_set_stream_user_data(session, id, http2_exchange_new(h, id));
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    struct http2_exchange *x = exchange_of(session, frame->hd.stream_id);

    (void)flags;
    (void)arg;
    if (x && x->head_error == 0) {
        x->head_error = http2_head_add(&x->head, (struct http2_bytes){name, name_len},
                                       (struct http2_bytes){value, value_len});
    }
    return 0;
}

/* A field that is none is not left out: it ends the stream. */
static int on_bad_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                         size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                         void *arg)
{
    (void)session;
    (void)frame;
    (void)name;
    (void)name_len;
    (void)value;
    (void)value_len;
    (void)flags;
    (void)arg;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2_exchange *x = exchange_of(session, frame->hd.stream_id);
    bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        if (x && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
            http2_exchange_open(x, !end);
        } else if (x && !x->failed) {
            http2_exchange_trailers(x);
        }
        return 0;
    case NGHTTP2_DATA:
        if (x && end) {
            x->up_end = true;
        }
        return frame->hd.length == 0 && !end ? charge(arg, 1) : 0;
    case NGHTTP2_WINDOW_UPDATE:
        return charge(arg, 0.1);
    case NGHTTP2_RST_STREAM:
        return charge(arg, HTTP2_POINTS_RESET);
    default:
        return charge(arg, 1);
    }
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t len, void *arg)
{
    struct http2_exchange *x = exchange_of(session, id);

    (void)flags;
    (void)arg;
    if (!x || x->failed || x->up_closed || buf_add(&x->up, data, len) < 0) {
        nghttp2_session_consume(session, id, len);
    }
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct http2_exchange *x = exchange_of(session, id);

    (void)code;
    (void)arg;
    if (x) {
        nghttp2_session_consume_connection(session, x->up.len);
        http2_exchange_free(x);
    }
    return 0;
}

/* The answer is whole: a client that still sends is told that nobody reads it. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2_exchange *x = exchange_of(session, frame->hd.stream_id);

    (void)arg;
    if (x && x->answered && !x->up_end && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) &&
        (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS)) {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, x->id, NGHTTP2_NO_ERROR);
    }
    return 0;
}

static int open_session(struct http2_conn *h)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, HTTP2_STREAM_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP1_MAX_HEAD},
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, HTTP2_STREAMS},
    };
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *option = NULL;
    int r;

    ASSERT(nghttp2_session_callbacks_new(&cb) == 0 && nghttp2_option_new(&option) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_bad_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_sent);
    nghttp2_option_set_no_auto_window_update(option, 1);
    r = nghttp2_session_server_new2(&h->session, cb, h, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cb);
    r = r < 0 ? r
              : nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings,
                                        ARRAY_SIZE(settings));
    r = r < 0 ? r
              : nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0,
                                                      HTTP2_CONN_BYTES);
    return r < 0 ? -EPROTO : 0;
}

/* ---- bytes ---- */

static int receive(struct http2_conn *h, bool *moved)
{
    ssize_t n = io_recv(&h->c->io, h->chunk, CHUNK);

    if (n == -EAGAIN) {
        return 0;
    }
    if (n <= 0) {
        return n == 0 ? -ECONNRESET : (int)n;
    }
    *moved = true;
    if (nghttp2_session_mem_recv(h->session, (const uint8_t *)h->chunk, (size_t)n) < 0) {
        return -EPROTO;
    }
    return nghttp2_session_get_outbound_queue_size(h->session) > HTTP2_QUEUE_MAX ? -EPROTO : 0;
}

static int gather(struct http2_conn *h, bool *moved)
{
    while (h->out.len < HTTP2_OUT_BYTES) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(h->session, &data);

        if (n <= 0) {
            return n < 0 ? -EPROTO : 0;
        }
        *moved = true;
        if (buf_add(&h->out, data, (size_t)n) < 0) {
            return -E2BIG;
        }
    }
    return 0;
}

static int flush(struct http2_conn *h, bool *moved)
{
    size_t sent = 0;
    int r = 0;

    while (sent < h->out.len && r == 0) {
        struct iovec iov = {h->out.data + sent, h->out.len - sent};
        ssize_t n = io_send(&h->c->io, &iov, 1);

        r = n < 0 ? (int)n : 0;
        sent += n > 0 ? (size_t)n : 0;
    }
    *moved = *moved || sent > 0;
    buf_consume(&h->out, sent);
    if (sent > 0 || h->out.len == 0) {
        h->sent_ns = clock_now_ns();
    }
    return r == -EAGAIN ? 0 : r;
}

/* ---- time ---- */

static bool is_past(uint64_t from_ns, uint64_t ms)
{
    return clock_now_ns() - from_ns > ms * NS_PER_MS;
}

static void say_goodbye(struct http2_conn *h)
{
    if (!h->goodbye) {
        h->goodbye = true;
        nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(h->session), NGHTTP2_NO_ERROR,
                              NULL, 0);
    }
}

/* -ETIMEDOUT: there is nobody worth waiting for. */
static int look_at_time(struct http2_conn *h)
{
    const struct http_server_opts *opts = &h->c->server->opts;
    struct http2_exchange *x;

    if (h->out.len > 0 && is_past(h->sent_ns, opts->io_timeout_ms)) {
        return -ETIMEDOUT;
    }
    TAILQ_FOREACH(x, &h->all, entry)
    {
        if (!x->open && !x->failed && is_past(x->begun_ns, opts->head_timeout_ms)) {
            return -ETIMEDOUT;
        }
        /* Its answer waits here, whole or cut off, for a window that does not open. */
        if (x->hung_up_ns && !x->deferred && is_past(x->hung_up_ns, opts->io_timeout_ms)) {
            http2_exchange_reset(x, NGHTTP2_CANCEL);
        }
    }
    if (h->n == 0 &&
        is_past(h->idle_from_ns, h->used ? opts->idle_timeout_ms : opts->head_timeout_ms)) {
        say_goodbye(h);
    }
    if (atomic_load(&h->c->server->stopping)) {
        say_goodbye(h);
    }
    return 0;
}

static int wait_for_any(struct http2_conn *h)
{
    struct pollfd p[1 + HTTP2_STREAMS];
    struct http2_exchange *x;
    nfds_t n = 1;

    p[0] = io_pollfd(&h->c->io, (short)(POLLIN | (h->out.len > 0 ? POLLOUT : 0)));
    TAILQ_FOREACH(x, &h->all, entry)
    {
        ASSERT(n < ARRAY_SIZE(p));
        p[n++] = http2_exchange_pollfd(x);
    }
    if (poll(p, n, LOOK_MS) < 0) {
        return errno == EINTR ? 0 : -errno;
    }
    n = 1;
    TAILQ_FOREACH(x, &h->all, entry)
    {
        x->readable = (p[n].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
        if ((p[n].revents & (POLLHUP | POLLERR)) && !x->hung_up_ns) {
            x->hung_up_ns = clock_now_ns();
        }
        n++;
    }
    return 0;
}

/* ---- the whole ---- */

static bool is_over(const struct http2_conn *h)
{
    return (h->goodbye && h->n == 0 && h->out.len == 0 &&
            !nghttp2_session_want_write(h->session)) ||
           (!nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session) &&
            h->out.len == 0);
}

static int run(struct http2_conn *h)
{
    int r = open_session(h);

    while (r == 0 && !is_over(h)) {
        struct http2_exchange *x;
        bool moved = false;

        r = receive(h, &moved);
        TAILQ_FOREACH(x, &h->all, entry)
        {
            moved = http2_exchange_turn(x) || moved;
        }
        if (r == -EPROTO) { /* what we have to say about it may still get through */
            IGNORE_RESULT(gather(h, &moved));
            IGNORE_RESULT(flush(h, &moved));
        }
        r = r < 0 ? r : gather(h, &moved);
        r = r < 0 ? r : flush(h, &moved);
        r = r < 0 ? r : look_at_time(h);
        if (r == 0 && !moved && !io_buffered(&h->c->io)) {
            r = wait_for_any(h);
        }
    }
    return r;
}

static void count(struct http_server *s, bool one_more)
{
    pthread_mutex_lock(&s->lock);
    s->n_http2 += one_more ? 1u : -1u;
    pthread_mutex_unlock(&s->lock);
}

enum request_after http2_run(struct http_conn *c)
{
    struct http2_conn h = {.c = c, .out = BUF_INIT(2 * HTTP2_OUT_BYTES)};
    struct http2_exchange *next;
    int r;

    h.sent_ns = h.idle_from_ns = h.charged_ns = clock_now_ns();
    h.chunk = xmalloc(CHUNK);
    TAILQ_INIT(&h.all);
    count(c->server, /* one_more */ true);
    r = run(&h);
    count(c->server, /* one_more */ false);
    for (struct http2_exchange *x = TAILQ_FIRST(&h.all); x; x = next) {
        next = TAILQ_NEXT(x, entry);
        http2_exchange_free(x);
    }
    nghttp2_session_del(h.session);
    buf_done(&h.out);
    free(h.chunk);
    return r == 0 || r == -EPROTO ? AFTER_LINGER : AFTER_CLOSE;
}
