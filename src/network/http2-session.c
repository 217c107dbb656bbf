/* SPDX-License-Identifier: Apache-2.0 */
/* What nghttp2 tells of the two sessions. */
#include <malloc.h>
#include <string.h>

#include "base/clock.h"
#include "credential/secret.h"
#include "network/http2-internal.h"

/* ---- streams ---- */

static void way_init(struct http2_way *w)
{
    /* Redaction may hold back a needle and let it out with what comes next. */
    w->data = BUF_INIT(2 * HTTP2_STREAM_WINDOW + INJECT_BODY_MAX + 2 * REDACT_NEEDLE_MAX);
    w->trailers = BUF_INIT(HTTP1_MAX_HEAD * 2);
}

struct http2_stream *http2_stream_new(struct http2 *h, int32_t id)
{
    struct http2_stream *s = xnew(struct http2_stream);

    s->h = h;
    s->id = id;
    http2_head_init(&s->request);
    http2_head_init(&s->answer);
    redact_init(&s->redact);
    s->head_text = BUF_INIT(HTTP1_MAX_HEAD * 2);
    s->body = BUF_INIT(INJECT_BODY_MAX + 4u * PLAN_VALUE_MAX);
    way_init(&s->up);
    way_init(&s->down);
    TAILQ_INSERT_TAIL(&h->streams, s, entry);
    h->n_streams++;
    return s;
}

void http2_stream_free(struct http2_stream *s)
{
    struct http2 *h = s->h;

    TAILQ_REMOVE(&h->streams, s, entry);
    if (--h->n_streams == 0) {
        h->idle_since_ns = clock_now_ns();
    }
    h->gathered -= s->state == HTTP2_GATHERING ? s->body.len : 0;
    http2_head_done(&s->request);
    http2_head_done(&s->answer);
    plan_done(&s->plan);
    redact_done(&s->redact);
    buf_done(&s->head_text);
    secret_wipe_buf(&s->body);
    secret_wipe_buf(&s->up.data);
    secret_wipe_buf(&s->down.data);
    buf_done(&s->up.trailers);
    buf_done(&s->down.trailers);
    free(s);
}

/* Window that was held back on a stream of that session; of its connection only, if the stream is closed. */
static void give_back(nghttp2_session *session, int32_t id, struct http2_way *w, size_t n)
{
    n = MIN(n, w->owed);
    w->owed -= n;
    if (session && n > 0) {
        nghttp2_session_consume(session, id, n); /* fails without memory only */
    }
}

void http2_stream_gone(struct http2_stream *s)
{
    struct http2 *h = s->h;

    s->gone = true;
    give_back(h->guest.session, s->id, &s->up, s->up.owed);
    if (s->server_id) {
        give_back(h->server.session, s->server_id, &s->down, s->down.owed);
        nghttp2_session_set_stream_user_data(h->server.session, s->server_id, NULL);
        nghttp2_submit_rst_stream(h->server.session, NGHTTP2_FLAG_NONE, s->server_id,
                                  NGHTTP2_CANCEL);
        s->server_id = 0;
    }
    if (!s->deciding) {
        http2_stream_free(s);
    }
}

static struct http2_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return id > 0 ? nghttp2_session_get_stream_user_data(session, id) : NULL;
}

/* ---- sending bodies ---- */

/* A field that we put in ourselves? */
/* At the end: trailers, if there are some. The guest's cannot bring back what was replaced in the head. */
static void end_data(struct http2_stream *s, nghttp2_session *session, int32_t id, uint32_t *flags)
{
    const struct http2_way *w = session == s->h->guest.session ? &s->down : &s->up;
    nghttp2_nv nv[HTTP1_MAX_FIELDS];
    struct http1_head head;
    size_t n = 0;

    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (w->trailers.len == 0 ||
        http1_parse_trailers(w->trailers.data, w->trailers.len, &head) != HTTP1_OK) {
        return;
    }
    for (size_t i = 0; i < head.n_fields; i++) {
        if (w == &s->up && inject_replaces(&s->plan, head.fields[i].name)) {
            continue;
        }
        nv[n++] = (nghttp2_nv){.name = (uint8_t *)(uintptr_t)head.fields[i].name.p,
                               .namelen = head.fields[i].name.len,
                               .value = (uint8_t *)(uintptr_t)head.fields[i].value.p,
                               .valuelen = head.fields[i].value.len};
    }
    if (n > 0) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, id, nv, n); /* copies */
    }
}

static ssize_t read_way(struct http2_stream *s, nghttp2_session *session, int32_t id,
                        struct http2_bytes room, uint32_t *flags)
{
    struct http2_way *w = session == s->h->guest.session ? &s->down : &s->up;
    size_t n = MIN(room.len, w->data.len);

    if (n == 0 && !w->end) {
        w->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > 0) {
        memcpy((void *)(uintptr_t)room.p, w->data.data, n);
        buf_consume(&w->data, n);
    }
    if (w->data.len == 0 && w->end) {
        end_data(s, session, id, flags);
    }
    return (ssize_t)n;
}

/* To the server, from what the guest has sent. */
static ssize_t read_up(nghttp2_session *session, int32_t id, uint8_t *room, size_t len,
                       uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct http2_stream *s = source->ptr;
    ssize_t n = read_way(s, session, id, (struct http2_bytes){room, len}, flags);

    (void)arg;
    if (n > 0) {
        give_back(s->h->guest.session, s->id, &s->up, (size_t)n);
    }
    return n;
}

static ssize_t read_down(nghttp2_session *session, int32_t id, uint8_t *room, size_t len,
                         uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct http2_stream *s = source->ptr;
    ssize_t n = read_way(s, session, id, (struct http2_bytes){room, len}, flags);

    (void)arg;
    if (n > 0) {
        give_back(s->h->server.session, s->server_id ? s->server_id : INT32_MAX, &s->down,
                  (size_t)n);
        s->h->c->result.bytes_down += (uint64_t)n;
    }
    return n;
}

nghttp2_data_provider http2_provider(struct http2_stream *s, bool up)
{
    return (nghttp2_data_provider){.source.ptr = s, .read_callback = up ? read_up : read_down};
}

/* ---- the guest's session ---- */

/* Resets, pings and the like cost; who sends them without end is told to go. */
static int charge(struct http2 *h)
{
    uint64_t now = clock_now_ns();
    double back = (double)(now - h->charged_ns) / (double)NS_PER_S * HTTP2_IDLE_FRAMES_PER_S;

    h->idle_frames = h->idle_frames > back ? h->idle_frames - back : 0;
    h->charged_ns = now;
    if (++h->idle_frames > HTTP2_IDLE_FRAMES_MAX) {
        intercept_refuse(h->c, "http2_flood");
        nghttp2_session_terminate_session(h->guest.session, NGHTTP2_ENHANCE_YOUR_CALM);
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    return 0;
}

static int on_guest_begin(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2 *h = arg;
    int32_t id = frame->hd.stream_id;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    /* Until the guest has read our settings nghttp2 allows more. */
    if (h->n_streams >= HTTP2_STREAMS_MAX || h->draining) {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
        return 0;
    }
    nghttp2_session_set_stream_user_data(session, id, http2_stream_new(h, id));
    return 0;
}

static int on_guest_header(nghttp2_session *session, const nghttp2_frame *frame,
                           const uint8_t *name, size_t name_len, const uint8_t *value,
                           size_t value_len, uint8_t flags, void *arg)
{
    struct http2_stream *s = stream_of(session, frame->hd.stream_id);

    (void)flags;
    (void)arg;
    if (s && s->request_error == 0) {
        s->request_error = http2_head_add(&s->request, (struct http2_bytes){name, name_len},
                                          (struct http2_bytes){value, value_len});
    }
    return 0;
}

/* In answers as in requests: a field that is none is not left out but ends the stream. */
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

static void on_guest_trailers(struct http2_stream *s)
{
    int r = s->request_error;

    r = r < 0 ? r : http2_head_trailers(&s->request, &s->up.trailers);
    if (r < 0) {
        http2_reset_guest(s, NGHTTP2_PROTOCOL_ERROR);
    }
}

static void on_guest_headers(struct http2_stream *s, const nghttp2_frame *frame)
{
    bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        s->up.end = end;
        http2_on_request(s, !end);
    } else if (s->state != HTTP2_ANSWERED) {
        on_guest_trailers(s);
    }
}

static int on_guest_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2_stream *s = stream_of(session, frame->hd.stream_id);
    bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        if (s) {
            on_guest_headers(s, frame);
        }
        break;
    case NGHTTP2_DATA:
        if (frame->hd.length == 0 && !end) {
            return charge(arg);
        }
        break;
    case NGHTTP2_WINDOW_UPDATE:
        return 0;
    default:
        return charge(arg);
    }
    /* The head may have been answered and the stream be gone. */
    s = stream_of(session, frame->hd.stream_id);
    if (s && end) {
        s->up.end = true;
        http2_head_done(&s->request);
        http2_on_body(s);
    }
    return 0;
}

static int on_guest_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                         size_t len, void *arg)
{
    struct http2_stream *s = stream_of(session, id);
    struct http2 *h = arg;

    (void)flags;
    h->c->result.bytes_up += len;
    if (!s || s->state == HTTP2_ANSWERED || buf_add(&s->up.data, data, len) < 0) {
        nghttp2_session_consume(session, id, len);
        return 0;
    }
    s->up.owed += len;
    http2_on_body(s);
    return 0;
}

static int on_guest_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct http2_stream *s = stream_of(session, id);

    (void)code;
    (void)arg;
    if (s) {
        http2_stream_gone(s);
    }
    return 0;
}

/* The answer is whole: a guest that still sends is told that nobody reads it. */
static int on_guest_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2_stream *s = stream_of(session, frame->hd.stream_id);
    bool is_end = (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
                  (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);

    (void)arg;
    if (s && is_end) {
        s->end_sent = true;
    }
    if (s && is_end && s->stop_guest && !s->up.end) {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
    }
    return 0;
}

/* ---- the server's session ---- */

static int on_server_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *arg)
{
    (void)session;
    (void)arg;
    return hd->type == NGHTTP2_PUSH_PROMISE ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_server_header(nghttp2_session *session, const nghttp2_frame *frame,
                            const uint8_t *name, size_t name_len, const uint8_t *value,
                            size_t value_len, uint8_t flags, void *arg)
{
    struct http2_stream *s = stream_of(session, frame->hd.stream_id);

    (void)flags;
    (void)arg;
    if (s && s->answer_error == 0) {
        s->answer_error = http2_head_add(&s->answer, (struct http2_bytes){name, name_len},
                                         (struct http2_bytes){value, value_len});
    }
    return 0;
}

static int on_server_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2_stream *s = stream_of(session, frame->hd.stream_id);
    struct http2 *h = arg;

    /* At once, while the streams that there are go on: their clients open another connection for the next. */
    if (frame->hd.type == NGHTTP2_GOAWAY && !h->goodbye) {
        h->draining = h->goodbye = true;
        nghttp2_submit_goaway(h->guest.session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(h->guest.session),
                              NGHTTP2_NO_ERROR, NULL, 0);
    }
    if (s && frame->hd.type == NGHTTP2_HEADERS) {
        http2_on_answer(s, (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0);
        http2_head_done(&s->answer);
    }
    if (s && (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        http2_on_answer_data(s, NULL, 0, /* end */ true);
    }
    return 0;
}

static int on_server_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                          size_t len, void *arg)
{
    struct http2_stream *s = stream_of(session, id);

    (void)flags;
    (void)arg;
    if (!s || s->state != HTTP2_OPEN) {
        nghttp2_session_consume(session, id, len);
        return 0;
    }
    s->down.owed += len;
    http2_on_answer_data(s, data, len, /* end */ false);
    return 0;
}

/* The server is done with the stream, one way or the other. */
static void server_closed(struct http2_stream *s, uint32_t code)
{
    const struct intercept_refusal failed = {502, "server_failed",
                                             "the server's answer cannot be passed on"};

    s->server_id = 0;
    if (s->state != HTTP2_OPEN) {
        return;
    }
    if (s->down.end) {
        s->stop_guest = true;
        s->state = HTTP2_ANSWERED;
        if (s->end_sent && !s->up.end) {
            http2_reset_guest(s, NGHTTP2_NO_ERROR);
        }
        give_back(s->h->guest.session, s->id, &s->up, s->up.owed);
        buf_reset(&s->up.data);
    } else if (!s->head_done && code != NGHTTP2_REFUSED_STREAM && code != NGHTTP2_CANCEL) {
        http2_answer(s, &failed);
    } else {
        http2_reset_guest(s, code == NGHTTP2_NO_ERROR ? NGHTTP2_INTERNAL_ERROR : code);
    }
}

static int on_server_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct http2_stream *s = stream_of(session, id);

    (void)arg;
    if (s) {
        server_closed(s, code);
    }
    return 0;
}

void http2_server_gone(struct http2 *h)
{
    struct http2_stream *s;

    TAILQ_FOREACH(s, &h->streams, entry)
    {
        if (s->server_id) {
            server_closed(s, NGHTTP2_INTERNAL_ERROR);
        }
        s->down.owed = 0;
    }
    nghttp2_session_del(h->server.session);
    h->server.session = NULL;
}

/* ---- opening ---- */

/* Heads with secrets in them pass through the memory of the compressor. */
static void *mem_malloc(size_t size, void *arg)
{
    (void)arg;
    return malloc(size);
}

static void mem_free(void *p, void *arg)
{
    (void)arg;
    if (p) {
        explicit_bzero(p, malloc_usable_size(p));
        free(p);
    }
}

static void *mem_calloc(size_t n, size_t size, void *arg)
{
    (void)arg;
    return calloc(n, size);
}

static void *mem_realloc(void *p, size_t size, void *arg)
{
    size_t old = p ? malloc_usable_size(p) : 0;
    void *q = malloc(size);

    if (q && p) {
        memcpy(q, p, MIN(old, size));
        mem_free(p, arg);
    }
    return q;
}

static nghttp2_session_callbacks *guest_callbacks(void)
{
    nghttp2_session_callbacks *cb = NULL;

    ASSERT(nghttp2_session_callbacks_new(&cb) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_guest_begin);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_guest_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_bad_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_guest_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_guest_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_guest_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_guest_sent);
    return cb;
}

static nghttp2_session_callbacks *server_callbacks(void)
{
    nghttp2_session_callbacks *cb = NULL;

    ASSERT(nghttp2_session_callbacks_new(&cb) == 0);
    nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_server_begin_frame);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_server_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_bad_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_server_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_server_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_server_close);
    return cb;
}

static int open_one(struct http2 *h, bool is_server)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, HTTP2_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP1_MAX_HEAD},
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, is_server ? HTTP2_STREAMS_MAX : 0},
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}, /* a client's to say */
    };
    nghttp2_mem mem = {NULL, mem_malloc, mem_free, mem_calloc, mem_realloc};
    nghttp2_session_callbacks *cb = is_server ? guest_callbacks() : server_callbacks();
    struct http2_end *end = is_server ? &h->guest : &h->server;
    nghttp2_option *option = NULL;
    int r;

    ASSERT(nghttp2_option_new(&option) == 0);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_peer_max_concurrent_streams(option, HTTP2_STREAMS_MAX);
    r = is_server ? nghttp2_session_server_new3(&end->session, cb, h, option, &mem)
                  : nghttp2_session_client_new3(&end->session, cb, h, option, &mem);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cb);
    if (r == 0) {
        r = nghttp2_submit_settings(end->session, NGHTTP2_FLAG_NONE, settings,
                                    is_server ? 3 : ARRAY_SIZE(settings));
    }
    if (r == 0) {
        r = nghttp2_session_set_local_window_size(end->session, NGHTTP2_FLAG_NONE, 0,
                                                  HTTP2_CONN_WINDOW);
    }
    return r == 0 ? 0 : -EPROTO;
}

int http2_sessions_open(struct http2 *h)
{
    int r = open_one(h, /* is_server */ true);

    return r < 0 || !h->c->connected ? r : open_one(h, /* is_server */ false);
}
