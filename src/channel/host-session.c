/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP/2 session of a channel: what nghttp2 tells us, and what we tell it. Lock held throughout. */
#include "channel/host-internal.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

void channel_stream_notify(struct channel_stream *s)
{
    uint64_t one = 1;

    pthread_cond_broadcast(&s->changed);
    if (s->event_fd >= 0) {
        /* An eventfd that overflows is readable all the same. */
        IGNORE_RESULT(write(s->event_fd, &one, sizeof(one)));
    }
}

static void stream_fail(struct channel_stream *s, int code, const char *reason, const char *msg)
{
    if (!s->failed.code) {
        err_set(&s->failed, code, reason, "%s", msg);
    }
    channel_stream_notify(s);
}

static void session_broken(struct channel *ch, const char *msg)
{
    if (!ch->broken.code) {
        err_set(&ch->broken, -EPROTO, "guest_protocol", "%s", msg);
    }
}

/* Until the guest has acknowledged our settings, nghttp2 would let it. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *arg)
{
    (void)session;
    if (hd->type == NGHTTP2_PUSH_PROMISE) {
        session_broken(arg, "the sandbox makes requests of its own");
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    return 0;
}

/* Everything that is not body costs: floods end here, whatever they are made of. */
static void charge_overhead(struct channel *ch, size_t bytes)
{
    uint64_t now = clock_now_ns();
    uint64_t back = (now - ch->charged_ns) / (NS_PER_S / CHANNEL_OVERHEAD_PER_S);

    if (back > 0) {
        ch->overhead -= MIN(back, ch->overhead);
        ch->charged_ns = now;
    }
    ch->overhead += bytes;
    if (ch->overhead > CHANNEL_OVERHEAD_MAX) {
        session_broken(ch, "the sandbox sends frames without end and without content");
    }
}

static struct channel_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return id > 0 ? nghttp2_session_get_stream_user_data(session, id) : NULL;
}

void channel_stream_head_free(struct channel_stream *s)
{
    for (size_t i = 0; i < s->n_headers; i++) {
        free((char *)(uintptr_t)s->headers[i].name);
        free((char *)(uintptr_t)s->headers[i].value);
    }
    free(s->headers);
    s->headers = NULL;
    s->n_headers = 0;
    s->status = 0;
}

static int head_broken(nghttp2_session *session, struct channel_stream *s, const char *msg)
{
    stream_fail(s, -EPROTO, "guest_protocol", msg);
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_PROTOCOL_ERROR);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    struct channel_stream *s = stream_of(session, frame->hd.stream_id);
    const char *n = (const char *)name;
    struct channel_header *h;

    (void)flags;
    (void)arg;
    if (!s || s->failed.code || s->head_done || frame->hd.type != NGHTTP2_HEADERS) {
        return 0; /* also trailers: nobody asked for them */
    }
    s->head_bytes += name_len + value_len; /* of all heads of this stream, interim ones too */
    if (s->head_bytes > CHANNEL_HEAD_BYTES_MAX || s->n_headers >= CHANNEL_HEADERS_MAX) {
        return head_broken(session, s, "the sandbox's answer has too large a head");
    }
    if (str_eq(n, ":status")) { /* nghttp2 has checked that it is three digits */
        s->status = (value[0] - '0') * 100 + (value[1] - '0') * 10 + (value[2] - '0');
        return 0;
    }
    if (n[0] == ':') {
        return 0;
    }
    s->headers = xrealloc(s->headers, (s->n_headers + 1) * sizeof(*s->headers));
    h = &s->headers[s->n_headers++];
    h->name = xstrndup(n, name_len);
    h->value = xstrndup((const char *)value, value_len);
    return 0;
}

static int on_head_complete(nghttp2_session *session, struct channel_stream *s)
{
    if (s->head_done || s->failed.code) {
        return 0;
    }
    if (s->status < 200) { /* 1xx: the real one follows */
        channel_stream_head_free(s);
        return 0;
    }
    if (s->status > 599) {
        return head_broken(session, s, "the sandbox's answer has an impossible status");
    }
    s->head_done = true;
    s->head = (struct channel_head){s->status, s->n_headers, s->headers};
    channel_stream_notify(s);
    return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct channel *ch = arg;
    struct channel_stream *s = stream_of(session, frame->hd.stream_id);

    if (frame->hd.type == NGHTTP2_GOAWAY) {
        session_broken(ch, "the sandbox has ended the session");
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (nghttp2_session_get_outbound_queue_size(session) > CHANNEL_QUEUE_MAX) {
        session_broken(ch, "the sandbox makes us answer without end");
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (!s) {
        return 0;
    }
    if (frame->hd.type == NGHTTP2_HEADERS) {
        on_head_complete(session, s);
    }
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && s->head_done) {
        s->rx_eof = true;
        channel_stream_notify(s);
    }
    return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                         size_t len, void *arg)
{
    struct channel *ch = arg;
    struct channel_stream *s = stream_of(session, id);

    (void)flags;
    ch->body_bytes += len;
    if (!s || s->discard || s->failed.code) {
        nghttp2_session_consume(session, id, len);
        return 0;
    }
    if (buf_add(&s->rx, data, len) < 0) {
        session_broken(ch, "the sandbox sends more than it may");
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (ch->held_bytes + len <= CHANNEL_HELD_MAX) {
        nghttp2_session_consume_connection(session, len);
    } else {
        ch->debt += len;
    }
    ch->held_bytes += len;
    channel_stream_notify(s);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *arg)
{
    struct channel_stream *s = stream_of(session, id);

    if (!s) {
        return 0;
    }
    s->live = false;
    if (((struct channel *)arg)->broken.code) {
        return 0; /* the session is about to end, and says why */
    }
    if (error_code == NGHTTP2_PROTOCOL_ERROR || error_code == NGHTTP2_FLOW_CONTROL_ERROR ||
        error_code == NGHTTP2_STREAM_CLOSED) {
        stream_fail(s, -EPROTO, "guest_protocol", "the sandbox's answer breaks HTTP/2's rules");
    } else if (error_code == NGHTTP2_REFUSED_STREAM) {
        stream_fail(s, -EBUSY, "guest_busy", "the sandbox has too many requests open");
    } else if (error_code != NGHTTP2_NO_ERROR || !s->rx_eof) {
        stream_fail(s, -EIO, "stream_broken", "the sandbox could not complete its answer");
    }
    channel_stream_notify(s);
    return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY) { /* nghttp2's own verdict */
        session_broken(arg, "the sandbox breaks HTTP/2's rules");
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
    return MIN(frame_max, CHANNEL_FRAME_MAX); /* the guest's wish does not decide our memory */
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
    struct channel *ch = arg;
    struct channel_stream *s = source->ptr;
    bool was_full;

    if (stream_of(session, frame->hd.stream_id) != s) { /* freed since the frame was made */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    if (ch->out.len >= CHANNEL_PULL_MAX) {
        return NGHTTP2_ERR_WOULDBLOCK; /* nghttp2 would go on and on */
    }
    was_full = s->tx.len > CHANNEL_STREAM_OUT / 2;
    ASSERT(frame->data.padlen == 0 && len <= s->tx.len); /* nobody chose padding */
    if (out_encode(&ch->out, head, 9) < 0 || out_encode(&ch->out, s->tx.data, len) < 0) {
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    buf_consume(&s->tx, len);
    if (was_full && s->tx.len <= CHANNEL_STREAM_OUT / 2) {
        channel_stream_notify(s);
    }
    return 0;
}

void channel_session_start(struct channel *ch)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, CHANNEL_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, CHANNEL_FRAME_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, CHANNEL_HEAD_BYTES_MAX},
    };
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *option = NULL;

    ASSERT(!ch->session);
    ASSERT(nghttp2_session_callbacks_new(&cb) == 0 && nghttp2_option_new(&option) == 0);
    nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    nghttp2_session_callbacks_set_data_source_read_length_callback(cb, on_read_length);
    nghttp2_session_callbacks_set_send_data_callback(cb, on_send_data);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_max_outbound_ack(option, 64);
    nghttp2_option_set_max_settings(option, 16);
    nghttp2_option_set_max_deflate_dynamic_table_size(option, 4096);
    ASSERT(nghttp2_session_client_new2(&ch->session, cb, ch, option) == 0);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(option);
    ASSERT(nghttp2_submit_settings(ch->session, NGHTTP2_FLAG_NONE, settings,
                                   ARRAY_SIZE(settings)) == 0);
    ASSERT(nghttp2_session_set_local_window_size(ch->session, NGHTTP2_FLAG_NONE, 0,
                                                 CHANNEL_CONNECTION_WINDOW) == 0);
    ch->overhead = 0;
    ch->charged_ns = clock_now_ns();
    ch->received_ns = ch->charged_ns;
    ch->ping_ns = 0;
}

static bool session_check(struct channel *ch, bool fine)
{
    struct err why = ch->broken;

    if (fine && !why.code &&
        (nghttp2_session_want_read(ch->session) || nghttp2_session_want_write(ch->session))) {
        return true;
    }
    if (!why.code) {
        err_set(&why, -EPROTO, "guest_protocol", "the sandbox breaks HTTP/2's rules");
    }
    channel_session_end(ch, &why);
    return false;
}

bool channel_session_feed(struct channel *ch, const uint8_t *data, size_t len)
{
    bool fine;

    ch->body_bytes = 0;
    fine = nghttp2_session_mem_recv(ch->session, data, len) == (ssize_t)len;
    charge_overhead(ch, len - MIN(ch->body_bytes, len));
    return session_check(ch, fine);
}

bool channel_session_pull(struct channel *ch)
{
    while (ch->out.len < CHANNEL_PULL_MAX) {
        const uint8_t *data = NULL;
        size_t before = ch->out.len;
        ssize_t n = nghttp2_session_mem_send(ch->session, &data);

        if (n < 0 || (n > 0 && out_encode(&ch->out, data, (size_t)n) < 0)) {
            return session_check(ch, false);
        }
        if (n == 0 && ch->out.len == before) {
            break;
        }
    }
    return session_check(ch, true);
}

void channel_session_ping(struct channel *ch)
{
    nghttp2_submit_ping(ch->session, NGHTTP2_FLAG_NONE, NULL);
}
