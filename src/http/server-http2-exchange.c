/* SPDX-License-Identifier: Apache-2.0 */
/* One stream, and the connection that it is for the server. */
#include "http/server-http2.h"

#include "base/log.h"

#include <string.h>
#include <sys/socket.h>

#define PIECE (32u * 1024)

struct http2_exchange *http2_exchange_new(struct http2_conn *h, int32_t id)
{
    struct http2_exchange *x = xnew(struct http2_exchange);

    x->h = h;
    x->id = id;
    x->begun_ns = clock_now_ns();
    http2_head_init(&x->head);
    out_init(&x->out);
    x->up = BUF_INIT(HTTP2_STREAM_BYTES);
    TAILQ_INSERT_TAIL(&h->all, x, entry);
    h->n++;
    h->used = true;
    return x;
}

void http2_exchange_free(struct http2_exchange *x)
{
    struct http2_conn *h = x->h;

    TAILQ_REMOVE(&h->all, x, entry);
    if (--h->n == 0) {
        h->idle_from_ns = clock_now_ns();
    }
    if (x->open) {
        io_done(&x->io);
    }
    http2_head_done(&x->head);
    out_done(&x->out);
    buf_done(&x->up);
    free(x);
}

void http2_exchange_reset(struct http2_exchange *x, uint32_t code)
{
    if (!x->failed) {
        x->failed = true;
        nghttp2_submit_rst_stream(x->h->session, NGHTTP2_FLAG_NONE, x->id, code);
    }
}

/* ---- up: the request ---- */

/* A connection of its own for the server. False: it has too many. */
static bool adopt(struct http_conn *parent, int fd_take)
{
    struct http_server *s = parent->server;
    struct http_conn *c = xnew(struct http_conn);
    bool room;

    c->server = s;
    c->secure = true;
    memcpy(c->peer_name, parent->peer_name, sizeof(c->peer_name));
    io_init_take(&c->io, fd_take);
    pthread_mutex_lock(&s->lock);
    room = s->n_conns < s->opts.max_connections;
    if (room) {
        s->n_conns++;
        conn_arm_locked(c, CONN_HEAD);
    }
    pthread_mutex_unlock(&s->lock);
    if (!room) {
        io_done(&c->io);
        free(c);
    }
    return room;
}

/* What no server of ours would get to see. */
static void refuse(struct http2_exchange *x, int status)
{
    char text[4];
    nghttp2_nv nv = {.name = (uint8_t *)(uintptr_t) ":status",
                     .namelen = 7,
                     .value = (uint8_t *)text,
                     .valuelen = 3};

    snprintf(text, sizeof(text), "%03u", (unsigned)status % 1000);
    x->answered = x->failed = true;
    nghttp2_submit_response(x->h->session, x->id, &nv, 1, NULL);
}

/* How the head says that the body is framed; what the strict parser would refuse never gets to be a connection. */
static bool read_own_head(struct http2_exchange *x)
{
    struct http1_head head;
    enum http1_error why;

    if (x->head_error == -E2BIG) {
        refuse(x, 431);
        return false;
    }
    why = http1_parse_request(buf_str(&x->out.head), x->out.head.len, &head);
    if (why != HTTP1_OK || head.form == HTTP1_FORM_AUTHORITY) {
        refuse(x, why != HTTP1_OK ? http1_error_status(why) : 501);
        return false;
    }
    x->head_only = http1_view_is(head.method, "HEAD") && head.method.len == 4;
    out_begin(&x->out, head.framing, head.content_length);
    return true;
}

void http2_exchange_open(struct http2_exchange *x, bool more)
{
    int fds[2];

    x->up_end = !more;
    if (x->head_error == 0) {
        x->head_error = http2_head_request(&x->head, "https", more, &x->out.head);
    }
    if (x->head_error < 0 && x->head_error != -E2BIG) {
        http2_exchange_reset(x, NGHTTP2_PROTOCOL_ERROR);
        return;
    }
    if (!read_own_head(x)) {
        return;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0) {
        log_warn(NULL, "refusing a stream: %m");
        http2_exchange_reset(x, NGHTTP2_REFUSED_STREAM);
        return;
    }
    io_init_take(&x->io, fds[0]);
    x->open = true;
    if (!adopt(x->h->c, fds[1])) {
        http2_exchange_reset(x, NGHTTP2_REFUSED_STREAM);
    }
    http2_head_done(&x->head);
    http2_head_init(&x->head); /* trailers may come */
}

void http2_exchange_trailers(struct http2_exchange *x)
{
    if (x->head_error < 0) {
        http2_exchange_reset(x, NGHTTP2_PROTOCOL_ERROR);
    }
    x->up_end = true;
}

/* Nobody reads any more of the body: what comes is dropped. */
static void close_up(struct http2_exchange *x)
{
    x->up_closed = true;
    x->wants_out = false;
    nghttp2_session_consume(x->h->session, x->id, x->up.len);
    buf_reset(&x->up);
}

static bool turn_up(struct http2_exchange *x)
{
    bool moved = false;

    x->wants_out = false;
    while (!x->up_closed) {
        size_t n = MIN(x->up.len, (size_t)PIECE);
        struct out_data d = {x->up.data, n, x->up_end && n == x->up.len};
        int r = out_try_flush(&x->out, &x->io);

        if (r == -EAGAIN) {
            x->wants_out = true;
            return moved;
        }
        if (r == 0 && x->out.done) {
            x->up_closed = true;
            return true;
        }
        if (r == 0 && n == 0 && !d.end && x->out.head.len == 0) {
            return moved;
        }
        if (r == 0 && x->out.framing != HTTP1_BODY_CHUNKED && n > x->out.left) {
            r = -EPROTO; /* more than its length: nghttp2 has let it through */
        }
        r = r < 0 ? r : out_try_write(&x->out, &x->io, d);
        if (r < 0) {
            close_up(x);
            return true;
        }
        nghttp2_session_consume(x->h->session, x->id, n);
        buf_consume(&x->up, n);
        moved = true;
    }
    return moved;
}

/* ---- down: the answer ---- */

/* Fields that describe the hop before us. */
static bool is_hop(struct http1_view name)
{
    static const char *const names[] = {"connection",        "keep-alive", "proxy-connection",
                                        "transfer-encoding", "upgrade",    "te"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (http1_view_is(name, names[i])) {
            return true;
        }
    }
    return false;
}

static size_t add_fields(const struct http1_head *head, nghttp2_nv *nv)
{
    size_t n = 0;

    for (size_t i = 0; i < head->n_fields; i++) {
        const struct http1_field *f = &head->fields[i];

        if (!is_hop(f->name)) {
            nv[n++] = (nghttp2_nv){.name = (uint8_t *)(uintptr_t)f->name.p,
                                   .namelen = f->name.len,
                                   .value = (uint8_t *)(uintptr_t)f->value.p,
                                   .valuelen = f->value.len};
        }
    }
    return n;
}

/* The session has room for some of the answer's body. */
static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *room, size_t len,
                         uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct http2_exchange *x = source->ptr;
    ssize_t n = in_read(&x->in, &x->io, room, len);

    (void)session;
    (void)id;
    (void)arg;
    if (n == -EAGAIN) {
        x->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n < 0) { /* cut off: the stream is reset */
        x->failed = true;
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    if (x->in.done) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return n;
}

static void submit_head(struct http2_exchange *x, const struct http1_head *head)
{
    nghttp2_data_provider provider = {.source.ptr = x, .read_callback = read_body};
    nghttp2_nv nv[HTTP1_MAX_FIELDS + 1];
    char status[4];
    size_t n;

    snprintf(status, sizeof(status), "%03u", head->status % 1000);
    nv[0] = (nghttp2_nv){.name = (uint8_t *)(uintptr_t) ":status",
                         .namelen = 7,
                         .value = (uint8_t *)status,
                         .valuelen = 3};
    n = 1 + add_fields(head, nv + 1);
    if (head->status < 200) {
        nghttp2_submit_headers(x->h->session, NGHTTP2_FLAG_NONE, x->id, NULL, nv, n, NULL);
        return;
    }
    in_init(&x->in, head->framing, head->content_length);
    x->answered = true;
    nghttp2_submit_response(x->h->session, x->id, nv, n, x->in.done ? NULL : &provider);
}

/* One head of the answer, if it is there. -EAGAIN; others: there will be none. */
static int read_head(struct http2_exchange *x)
{
    struct http1_head head;
    size_t len = 0;
    int r;

    while ((r = http1_scan(&x->scan, x->io.in_len ? io_data(&x->io) : "", x->io.in_len, &len)) ==
           -EAGAIN) {
        ssize_t n = io_fill(&x->io, HTTP1_MAX_HEAD);

        if (n <= 0) {
            return n == 0 ? -ECONNRESET : (int)n;
        }
    }
    if (r == 0 && http1_parse_response(io_data(&x->io), len, x->head_only, &head) != HTTP1_OK) {
        r = -EPROTO;
    }
    if (r < 0) {
        return r;
    }
    submit_head(x, &head); /* copies */
    io_consume(&x->io, len);
    x->scan = (struct http1_scan){0};
    return 0;
}

static bool turn_down(struct http2_exchange *x)
{
    bool moved = false;
    int r = 0;

    while (!x->answered && r == 0) {
        r = read_head(x);
        moved = moved || r == 0;
    }
    if (r < 0 && r != -EAGAIN) {
        http2_exchange_reset(x, NGHTTP2_INTERNAL_ERROR);
        return true;
    }
    if (x->deferred && x->readable) {
        x->deferred = false;
        nghttp2_session_resume_data(x->h->session, x->id);
        moved = true;
    }
    return moved;
}

bool http2_exchange_turn(struct http2_exchange *x)
{
    bool moved = false;

    if (x->open && !x->failed) {
        moved = turn_up(x);
        moved = turn_down(x) || moved;
    } else if (x->up.len > 0) {
        close_up(x);
        moved = true;
    }
    x->readable = false;
    return moved;
}

struct pollfd http2_exchange_pollfd(const struct http2_exchange *x)
{
    bool in = !x->answered || x->deferred;
    struct pollfd p = {.fd = FD_NONE};

    if (x->open && !x->failed && (in || x->wants_out || !x->hung_up_ns)) {
        p.fd = x->io.fd;
        p.events = (short)((in ? POLLIN : 0) | (x->wants_out ? POLLOUT : 0));
    }
    return p;
}
