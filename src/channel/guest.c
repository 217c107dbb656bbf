/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/guest.h"

#include "channel/link.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>

enum {
    DUE_REQUEST = 1u << 0,
    DUE_BODY = 1u << 1,
    DUE_WRITABLE = 1u << 2,
    DUE_CLOSE = 1u << 3,
};

struct guest_stream {
    struct guest *g;           /* borrowed: lives longer */
    struct guest_stream *prev; /* borrowed: neighbour in g->streams */
    struct guest_stream *next; /* borrowed: neighbour in g->streams */
    int32_t id;
    unsigned due;
    char *method;                 /* owned */
    char *target;                 /* owned */
    struct guest_header *headers; /* owned */
    size_t n_headers;
    size_t head_bytes;
    struct buf rx;
    struct buf tx;
    void *user; /* borrowed: the handler's */
    bool head_too_large;
    bool announced; /* on_request was called */
    bool live;      /* nghttp2 knows it */
    bool responded;
    bool rx_eof;
    bool tx_eof;
    bool discard;     /* nobody reads the body */
    bool short_write; /* a write found no room: on_writable is owed */
};

struct guest {
    const struct guest_ops *ops; /* borrowed: static */
    void *arg;                   /* borrowed: the owner's */
    nghttp2_session *session;    /* owned; NULL while hunting */
    struct link_decoder decoder;
    struct guest_stream *streams; /* owned */
    unsigned n_streams;
    size_t held; /* body bytes in all streams */
    size_t debt; /* of these, not yet given back to the connection's window */
    char ack_nonce[LINK_NONCE_LEN + 1];
    bool send_ack;
    bool send_ready;
    bool stale;
    bool any_due;
    bool dispatching;
    struct buf *out; /* borrowed: during guest_pull */
};

static void stream_due(struct guest_stream *s, unsigned due)
{
    s->due |= due;
    s->g->any_due = true;
    s->g->ops->wake(s->g->arg);
}

static struct guest_stream *stream_new(struct guest *g, int32_t id)
{
    struct guest_stream *s = xnew(struct guest_stream);

    s->g = g;
    s->id = id;
    s->live = true;
    s->rx = BUF_INIT(GUEST_STREAM_WINDOW);
    s->tx = BUF_INIT(GUEST_STREAM_OUT);
    s->next = g->streams;
    if (s->next) {
        s->next->prev = s;
    }
    g->streams = s;
    g->n_streams++;
    return s;
}

/* Gives n bytes that nobody holds any more back to both windows. */
static void stream_release(struct guest_stream *s, size_t n)
{
    struct guest *g = s->g;
    size_t pay = MIN(g->debt, n);

    ASSERT(n <= g->held);
    g->held -= n;
    g->debt -= pay;
    if (!g->session) {
        return;
    }
    if (pay > 0) {
        nghttp2_session_consume_connection(g->session, pay);
    }
    if (s->live) {
        nghttp2_session_consume_stream(g->session, s->id, n);
    }
    g->ops->wake(g->arg);
}

static void stream_free(struct guest_stream *s)
{
    struct guest *g = s->g;

    stream_release(s, s->rx.len);
    if (s->prev) {
        s->prev->next = s->next;
    } else {
        g->streams = s->next;
    }
    if (s->next) {
        s->next->prev = s->prev;
    }
    g->n_streams--;
    for (size_t i = 0; i < s->n_headers; i++) {
        free(s->headers[i].name);
        free(s->headers[i].value);
    }
    free(s->headers);
    free(s->method);
    free(s->target);
    buf_done(&s->rx);
    buf_done(&s->tx);
    free(s);
}

/* ---- what nghttp2 tells us ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct guest *g = arg;

    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    /* Also counts streams that nghttp2 has closed and a handler has not been told about yet. */
    if (g->n_streams >= 2 * GUEST_STREAMS_MAX) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id,
                                         stream_new(g, frame->hd.stream_id));
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    struct guest_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    const char *n = (const char *)name;

    (void)flags;
    (void)arg;
    if (!s || frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0; /* trailers: nobody asked for them */
    }
    s->head_bytes += name_len + value_len;
    if (s->head_bytes > GUEST_HEAD_BYTES_MAX || s->n_headers >= GUEST_HEADERS_MAX) {
        s->head_too_large = true;
        return 0;
    }
    if (str_eq(n, ":method") && !s->method) {
        s->method = xstrndup((const char *)value, value_len);
    } else if (str_eq(n, ":path") && !s->target) {
        s->target = xstrndup((const char *)value, value_len);
    } else if (n[0] != ':') {
        s->headers = xrealloc(s->headers, (s->n_headers + 1) * sizeof(*s->headers));
        s->headers[s->n_headers].name = xstrndup(n, name_len);
        s->headers[s->n_headers].value = xstrndup((const char *)value, value_len);
        s->n_headers++;
    }
    return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct guest_stream *s;

    (void)arg;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) {
        return 0;
    }
    s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!s) {
        return 0;
    }
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        stream_due(s, DUE_REQUEST);
    }
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        s->rx_eof = true;
        stream_due(s, DUE_BODY);
    }
    return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                         size_t len, void *arg)
{
    struct guest *g = arg;
    struct guest_stream *s = nghttp2_session_get_stream_user_data(session, id);
    void *end = NULL;

    (void)flags;
    if (!s || s->discard) {
        nghttp2_session_consume(session, id, len);
        return 0;
    }
    if (buf_reserve(&s->rx, len, &end) < 0) {
        return NGHTTP2_ERR_CALLBACK_FAILURE; /* cannot be: nghttp2 holds the peer to the window */
    }
    link_copy(end, data, len);
    buf_commit(&s->rx, len);
    if (g->held + len <= GUEST_HELD_MAX) {
        nghttp2_session_consume_connection(session, len);
    } else {
        g->debt += len;
    }
    g->held += len;
    stream_due(s, DUE_BODY);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *arg)
{
    struct guest_stream *s = nghttp2_session_get_stream_user_data(session, id);

    (void)error_code;
    (void)arg;
    if (s) {
        s->live = false;
        stream_due(s, DUE_CLOSE);
    }
    return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct guest_stream *s;

    (void)arg;
    if ((frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS) ||
        !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        return 0;
    }
    s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (s && !s->rx_eof) { /* answered before the request was over: tell the host to stop sending */
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_NO_ERROR);
    }
    return 0;
}

static ssize_t on_read_length(nghttp2_session *session, uint8_t type, int32_t id,
                              int32_t session_window, int32_t stream_window, uint32_t frame_max,
                              void *arg)
{
    (void)session;
    (void)type;
    (void)id;
    (void)session_window;
    (void)stream_window;
    (void)arg;
    return MIN(frame_max, GUEST_FRAME_MAX);
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
                       uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct guest_stream *s = source->ptr;
    size_t n = MIN(s->tx.len, len);

    (void)session;
    (void)id;
    (void)buf;
    (void)arg;
    if (n == 0 && !s->tx_eof) {
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > 0) {
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    }
    if (n == s->tx.len && s->tx_eof) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return (ssize_t)n;
}

static int out_encode(struct buf *out, const void *data, size_t len)
{
    void *end = NULL;
    int r = buf_reserve(out, LINK_ENCODED_MAX(len), &end);

    if (r == 0) {
        buf_commit(out, link_encode(data, len, end));
    }
    return r;
}

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                        size_t len, nghttp2_data_source *source, void *arg)
{
    struct guest *g = arg;
    struct guest_stream *s = source->ptr;

    (void)session;
    if (g->out->len >= GUEST_PULL_MAX) {
        return NGHTTP2_ERR_WOULDBLOCK; /* nghttp2 would go on and on */
    }
    ASSERT(frame->data.padlen == 0 && len <= s->tx.len); /* nobody chose padding */
    if (out_encode(g->out, head, 9) < 0 || out_encode(g->out, s->tx.data, len) < 0) {
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    buf_consume(&s->tx, len);
    if (s->short_write && guest_stream_room(s) >= GUEST_STREAM_OUT / 2) {
        s->short_write = false;
        stream_due(s, DUE_WRITABLE);
    }
    return 0;
}

static void session_start(struct guest *g)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GUEST_STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, GUEST_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, GUEST_FRAME_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GUEST_HEAD_BYTES_MAX + GUEST_HEADERS_MAX * 32},
    };
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *option = NULL;

    ASSERT(nghttp2_session_callbacks_new(&cb) == 0 && nghttp2_option_new(&option) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    nghttp2_session_callbacks_set_data_source_read_length_callback(cb, on_read_length);
    nghttp2_session_callbacks_set_send_data_callback(cb, on_send_data);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_outbound_ack(option, 64);
    ASSERT(nghttp2_session_server_new2(&g->session, cb, g, option) == 0);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(option);
    ASSERT(nghttp2_submit_settings(g->session, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings)) ==
           0);
    ASSERT(nghttp2_session_set_local_window_size(g->session, NGHTTP2_FLAG_NONE, 0,
                                                 GUEST_CONNECTION_WINDOW) == 0);
}

/* ---- the engine ---- */

struct guest *guest_new(const struct guest_ops *ops, void *arg)
{
    struct guest *g = xnew(struct guest);

    ASSERT(ops && ops->on_request && ops->on_body && ops->on_writable && ops->on_close &&
           ops->wake);
    g->ops = ops;
    g->arg = arg;
    return g;
}

void guest_free(struct guest *g)
{
    if (!g) {
        return;
    }
    guest_hangup(g);
    guest_dispatch(g);
    ASSERT(!g->streams);
    free(g);
}

static void session_end(struct guest *g)
{
    if (!g->session) {
        return;
    }
    nghttp2_session_del(g->session);
    g->session = NULL;
    g->stale = true;
    g->debt = 0;
    g->send_ack = false;
    for (struct guest_stream *s = g->streams; s; s = s->next) {
        s->live = false;
        stream_due(s, DUE_CLOSE);
    }
}

/* The session cannot go on, and the host may not know. */
static void session_break(struct guest *g)
{
    session_end(g);
    g->send_ready = true;
    g->ops->wake(g->arg);
}

void guest_hangup(struct guest *g)
{
    session_end(g);
    g->send_ack = false;
    g->send_ready = false;
    g->decoder = LINK_DECODER_INIT;
}

void guest_announce(struct guest *g)
{
    if (!g->session) {
        g->send_ready = true;
        g->ops->wake(g->arg);
    }
}

static void guest_hello(struct guest *g)
{
    session_end(g);
    session_start(g);
    g->stale = true;
    g->send_ready = false;
    g->send_ack = true;
    memcpy(g->ack_nonce, g->decoder.nonce, sizeof(g->ack_nonce));
    g->ops->wake(g->arg);
}

void guest_feed(struct guest *g, uint8_t *data, size_t len)
{
    while (len > 0) {
        size_t used = 0;
        size_t payload = 0;
        enum link_event event = link_decode(&g->decoder, data, len, &used, &payload);

        if (g->session && payload > 0 &&
            nghttp2_session_mem_recv(g->session, data, payload) != (ssize_t)payload) {
            session_break(g);
        }
        if (event == LINK_HELLO) {
            guest_hello(g);
        } else if (event != LINK_NONE && g->session) {
            session_break(g);
        }
        data += used;
        len -= used;
    }
    if (g->session) { /* there may be window updates or acknowledgements to send */
        g->ops->wake(g->arg);
    }
}

static void stream_dispatch(struct guest_stream *s)
{
    const struct guest_ops *ops = s->g->ops;
    unsigned due = s->due;

    s->due = 0;
    if ((due & DUE_REQUEST) && !(due & DUE_CLOSE)) {
        s->announced = true;
        ops->on_request(s->g->arg, s);
    }
    if (!s->announced) { /* died before anyone heard of it, or its head is not complete */
        if (due & DUE_CLOSE) {
            stream_free(s);
        }
        return;
    }
    if ((due & DUE_BODY) && !s->discard && !(due & DUE_CLOSE)) {
        ops->on_body(s);
    }
    if ((due & DUE_WRITABLE) && !(due & DUE_CLOSE)) {
        ops->on_writable(s);
    }
    if (due & DUE_CLOSE) {
        ops->on_close(s);
        stream_free(s);
    }
}

void guest_dispatch(struct guest *g)
{
    ASSERT(!g->dispatching);
    g->dispatching = true;
    while (g->any_due) {
        struct guest_stream *next;

        g->any_due = false;
        for (struct guest_stream *s = g->streams; s; s = next) {
            next =
                s->next; /* a callback never frees a stream: only stream_dispatch of that stream does */
            if (s->due) {
                stream_dispatch(s);
            }
        }
    }
    g->dispatching = false;
}

static void pull_control(struct buf *out, enum link_event type, const char *nonce)
{
    uint8_t record[LINK_CONTROL_LEN];

    link_control(type, nonce, record);
    IGNORE_RESULT(buf_add(out, record, sizeof(record))); /* the caller gave room */
}

void guest_pull(struct guest *g, struct buf *out)
{
    static const char no_nonce[LINK_NONCE_LEN + 1] = "00000000000000000000000000000000";

    ASSERT(out->max >= 3 * GUEST_PULL_MAX);
    g->stale = false;
    g->out = out;
    if (g->send_ready) {
        pull_control(out, LINK_READY, no_nonce);
        g->send_ready = false;
    }
    if (g->send_ack) {
        pull_control(out, LINK_ACK, g->ack_nonce);
        g->send_ack = false;
    }
    while (g->session && out->len < GUEST_PULL_MAX) {
        const uint8_t *data = NULL;
        size_t before = out->len;
        ssize_t n = nghttp2_session_mem_send(g->session, &data);

        if (n < 0 || (n > 0 && out_encode(out, data, (size_t)n) < 0)) {
            session_break(g);
        } else if (n == 0 && out->len == before) {
            break;
        }
    }
    g->out = NULL;
    if (g->session && !nghttp2_session_want_read(g->session) &&
        !nghttp2_session_want_write(g->session)) {
        session_break(g);
    }
}

bool guest_output_stale(struct guest *g)
{
    return g->stale;
}

bool guest_up(const struct guest *g)
{
    return g->session != NULL;
}

unsigned guest_n_streams(const struct guest *g)
{
    return g->n_streams;
}

/* ---- streams ---- */

const char *guest_stream_method(const struct guest_stream *s)
{
    return s->method ? s->method : "";
}

const char *guest_stream_target(const struct guest_stream *s)
{
    return s->target ? s->target : "";
}

const char *guest_stream_header(const struct guest_stream *s, const char *name)
{
    for (size_t i = 0; i < s->n_headers; i++) {
        if (str_eq(s->headers[i].name, name)) {
            return s->headers[i].value;
        }
    }
    return NULL;
}

bool guest_stream_head_too_large(const struct guest_stream *s)
{
    return s->head_too_large;
}

void guest_stream_set_user(struct guest_stream *s, void *user)
{
    s->user = user;
}

void *guest_stream_user(const struct guest_stream *s)
{
    return s->user;
}

const void *guest_stream_peek(const struct guest_stream *s, size_t *ret_len)
{
    *ret_len = s->rx.len;
    return s->rx.len ? s->rx.data : "";
}

void guest_stream_consume(struct guest_stream *s, size_t len)
{
    if (len > 0) {
        buf_consume(&s->rx, len);
        stream_release(s, len);
    }
}

bool guest_stream_ended(const struct guest_stream *s)
{
    return s->rx_eof && s->rx.len == 0;
}

void guest_stream_discard(struct guest_stream *s)
{
    s->discard = true;
    guest_stream_consume(s, s->rx.len);
}

static nghttp2_nv nv(const char *name, const char *value)
{
    union { /* nghttp2 copies both but takes them without const */
        const char *in;
        uint8_t *out;
    } n = {.in = name}, v = {.in = value};

    return (nghttp2_nv){n.out, v.out, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE};
}

void guest_stream_respond(struct guest_stream *s, const struct guest_response *r)
{
    nghttp2_nv nva[3 + GUEST_HEADERS_MAX];
    nghttp2_data_provider body = {.source.ptr = s, .read_callback = on_read};
    char status[16];
    char length[24];
    size_t n = 0;

    ASSERT(!s->responded && r->status >= 200 && r->status <= 599 &&
           r->n_headers <= GUEST_HEADERS_MAX);
    s->responded = true;
    if (!s->live) {
        return;
    }
    snprintf(status, sizeof(status), "%d", r->status);
    nva[n++] = nv(":status", status);
    if (r->content_type) {
        nva[n++] = nv("content-type", r->content_type);
    }
    if (r->length >= 0 && r->status != 204) {
        snprintf(length, sizeof(length), "%lld", (long long)r->length);
        nva[n++] = nv("content-length", length);
    }
    for (size_t i = 0; i < r->n_headers; i++) {
        nva[n++] = nv(r->headers[i].name, r->headers[i].value);
    }
    s->tx_eof = r->length == 0;
    if (nghttp2_submit_response(s->g->session, s->id, nva, n, s->tx_eof ? NULL : &body) != 0) {
        guest_stream_abort(s);
    }
    s->g->ops->wake(s->g->arg);
}

size_t guest_stream_room(const struct guest_stream *s)
{
    return s->live && !s->tx_eof ? s->tx.max - s->tx.len : 0;
}

/* More can be sent, or the end of it. */
static void stream_resume(struct guest_stream *s)
{
    if (s->live && s->responded) {
        nghttp2_session_resume_data(s->g->session,
                                    s->id); /* fails when it was not deferred: fine */
        s->g->ops->wake(s->g->arg);
    }
}

size_t guest_stream_write(struct guest_stream *s, const void *data, size_t len)
{
    size_t n = MIN(len, guest_stream_room(s));
    void *end = NULL;

    if (n < len) {
        s->short_write = true;
    }
    if (n > 0) {
        IGNORE_RESULT(buf_reserve(&s->tx, n, &end)); /* there is room */
        link_copy(end, data, n);
        buf_commit(&s->tx, n);
        stream_resume(s);
    }
    return n;
}

void *guest_stream_reserve(struct guest_stream *s, size_t want, size_t *ret_len)
{
    size_t n = MIN(want, guest_stream_room(s));
    void *end = NULL;

    if (n == 0) {
        s->short_write = want > 0;
        *ret_len = 0;
        return NULL;
    }
    IGNORE_RESULT(buf_reserve(&s->tx, n, &end)); /* there is room */
    *ret_len = n;
    return end;
}

void guest_stream_commit(struct guest_stream *s, size_t len)
{
    if (len > 0) {
        buf_commit(&s->tx, len);
        stream_resume(s);
    }
}

void guest_stream_end(struct guest_stream *s)
{
    ASSERT(s->responded);
    s->tx_eof = true;
    stream_resume(s);
}

void guest_stream_abort(struct guest_stream *s)
{
    s->tx_eof = true;
    s->responded = true;
    if (s->live) {
        nghttp2_submit_rst_stream(s->g->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_INTERNAL_ERROR);
        s->g->ops->wake(s->g->arg);
    }
}
