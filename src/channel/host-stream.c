/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as their threads see them. */
#include "base/cond.h"
#include "channel/host-internal.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
                       uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct channel_stream *s = source->ptr;
    size_t n;

    (void)buf;
    (void)arg;
    if (nghttp2_session_get_stream_user_data(session, id) !=
        s) { /* freed; its reset is on the way */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    n = MIN(s->tx.len, len);
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

static bool header_is_hop(const char *name)
{
    static const char *const hop[] = {"connection",        "host",   "keep-alive",
                                      "proxy-connection",  "te",     "trailer",
                                      "transfer-encoding", "upgrade"};

    for (size_t i = 0; i < ARRAY_SIZE(hop); i++) {
        if (str_eq(name, hop[i])) {
            return true;
        }
    }
    return false;
}

static nghttp2_nv nv(const char *name, const char *value)
{
    union { /* nghttp2 copies both but takes them without const */
        const char *in;
        uint8_t *out;
    } n = {.in = name}, v = {.in = value};

    return (nghttp2_nv){n.out, v.out, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE};
}

static bool target_valid(const char *target)
{
    for (const char *p = target; *p; p++) {
        if (*p <= ' ' || *p > '~') {
            return false;
        }
    }
    return target[0] == '/' && strlen(target) < CHANNEL_HEAD_BYTES_MAX * 2;
}

/* Fills nva (room for 4 + n_headers); returns the count or -EINVAL. */
static int request_headers(const struct channel_request *q, nghttp2_nv *nva, struct err *e)
{
    int n = 0;

    if (!target_valid(q->target) ||
        !nghttp2_check_method((const uint8_t *)q->method, strlen(q->method))) {
        return err_set(e, -EINVAL, "bad_request", "the request line cannot be sent to a sandbox");
    }
    nva[n++] = nv(":method", q->method);
    nva[n++] = nv(":scheme", "http");
    nva[n++] = nv(":authority", "sandbox");
    nva[n++] = nv(":path", q->target);
    for (size_t i = 0; i < q->n_headers; i++) {
        nghttp2_nv h = nv(q->headers[i].name, q->headers[i].value);

        if (header_is_hop(q->headers[i].name)) {
            continue;
        }
        if (!nghttp2_check_header_name(h.name, h.namelen) || h.name[0] == ':' ||
            !nghttp2_check_header_value(h.value, h.valuelen)) {
            return err_set(e, -EINVAL, "bad_request", "the header '%s' cannot be sent to a sandbox",
                           q->headers[i].name);
        }
        nva[n++] = h;
    }
    return n;
}

static struct channel_stream *stream_new(struct channel *ch, bool has_body)
{
    struct channel_stream *s = xnew(struct channel_stream);

    cond_init(&s->changed);
    s->ch = ch;
    s->event_fd = FD_NONE;
    s->rx = BUF_INIT(CHANNEL_STREAM_WINDOW);
    s->tx = BUF_INIT(CHANNEL_STREAM_OUT);
    s->tx_eof = !has_body;
    ch->refs++;
    s->next = ch->streams;
    if (s->next) {
        s->next->prev = s;
    }
    ch->streams = s;
    if (ch->n_streams++ == 0) {
        ch->received_ns = clock_now_ns(); /* silence counts from here */
    }
    return s;
}

/* Unlinks, gives the lock back, frees. */
static void stream_destroy_unlock(struct channel_stream *s)
{
    struct channel *ch = s->ch;

    if (s->prev) {
        s->prev->next = s->next;
    } else {
        ch->streams = s->next;
    }
    if (s->next) {
        s->next->prev = s->prev;
    }
    ch->n_streams--;
    channel_unref_unlock(ch);
    channel_stream_head_free(s);
    pthread_cond_destroy(&s->changed);
    fd_close(s->event_fd);
    buf_done(&s->rx);
    buf_done(&s->tx);
    free(s);
}

static int stream_submit(struct channel *ch, const struct channel_request *q, const nghttp2_nv *nva,
                         size_t n, struct channel_stream **ret, struct err *e)
{
    struct channel_stream *s;
    nghttp2_data_provider body = {.read_callback = on_read};
    int32_t id;

    if (ch->n_streams >= CHANNEL_STREAMS_MAX) {
        return err_set(e, -EBUSY, "guest_busy", "this sandbox has %u requests open already",
                       ch->n_streams);
    }
    s = stream_new(ch, q->has_body);
    body.source.ptr = s;
    id = nghttp2_submit_request(ch->session, NULL, nva, n, q->has_body ? &body : NULL, s);
    if (id < 0) { /* stream ids are used up after a thousand million requests */
        err_set(e, -ECONNRESET, "guest_gone", "the session with the sandbox is used up");
        channel_session_end(ch, e);
        s->failed = (struct err){.code = -ECONNRESET};
    }
    s->id = id;
    s->live = id > 0;
    *ret = s;
    channel_wake(ch);
    return id < 0 ? -ECONNRESET : 0;
}

int channel_request(struct channel *ch, const struct channel_request *request, uint64_t deadline_ns,
                    struct channel_stream **ret, struct err *e)
{
    cleanup_free nghttp2_nv *nva = xnew_n(nghttp2_nv, 4 + request->n_headers);
    struct channel_stream *s = NULL;
    struct err why = {0};
    int n = request_headers(request, nva, e);
    int r;

    if (n < 0) {
        return n;
    }
    pthread_mutex_lock(&ch->lock);
    r = channel_wait_locked(ch, deadline_ns, &why);
    if (r == 0) {
        r = stream_submit(ch, request, nva, (size_t)n, &s, &why);
    }
    if (r < 0 && s) {
        stream_destroy_unlock(s);
    } else {
        pthread_mutex_unlock(&ch->lock);
    }
    if (r < 0) {
        return err_set(e, r, why.reason, "%s", why.msg);
    }
    *ret = s;
    return 0;
}

/* ---- waiting ---- */

static int stream_failed(const struct channel_stream *s, struct err *e)
{
    return err_set(e, s->failed.code, s->failed.reason, "%s", s->failed.msg);
}

/* Waits for news. -EAGAIN (deadline 0) or -ETIMEDOUT. */
static int stream_wait(struct channel_stream *s, uint64_t deadline_ns, struct err *e)
{
    if (deadline_ns == 0) {
        return err_set(e, -EAGAIN, NULL, "nothing yet");
    }
    if (deadline_passed(deadline_ns)) {
        return err_set(e, -ETIMEDOUT, "guest_timeout", "the sandbox did not answer in time");
    }
    IGNORE_RESULT(
        cond_wait_until(&s->changed, &s->ch->lock, deadline_ns)); /* the caller looks again */
    return 0;
}

static int stream_writable(struct channel_stream *s, struct err *e)
{
    if (s->failed.code) {
        return stream_failed(s, e);
    }
    if (!s->live) {
        return err_set(e, -EPIPE, "answer_complete", "the sandbox has answered and wants no more");
    }
    ASSERT(!s->tx_eof);
    return s->tx.len < s->tx.max ? 1 : 0;
}

static size_t stream_put(struct channel_stream *s, const void *data, size_t len)
{
    size_t n = MIN(len, s->tx.max - s->tx.len);

    IGNORE_RESULT(buf_add(&s->tx, data, n));            /* there is room */
    nghttp2_session_resume_data(s->ch->session, s->id); /* fails when it was not deferred: fine */
    channel_wake(s->ch);
    return n;
}

int channel_stream_write(struct channel_stream *s, const void *data, size_t len,
                         uint64_t deadline_ns, struct err *e)
{
    const char *p = data;
    int r = 0;

    pthread_mutex_lock(&s->ch->lock);
    while (len > 0 && r >= 0) {
        r = stream_writable(s, e);
        if (r > 0) {
            size_t n = stream_put(s, p, len);

            p += n;
            len -= n;
        } else if (r == 0) {
            r = stream_wait(s, deadline_ns, e);
        }
    }
    pthread_mutex_unlock(&s->ch->lock);
    return r < 0 ? r : 0;
}

ssize_t channel_stream_write_some(struct channel_stream *s, const void *data, size_t len,
                                  struct err *e)
{
    ssize_t r;

    ASSERT(len > 0);
    pthread_mutex_lock(&s->ch->lock);
    r = stream_writable(s, e);
    if (r > 0) {
        r = (ssize_t)stream_put(s, data, len);
    } else if (r == 0) {
        r = -EAGAIN;
    }
    pthread_mutex_unlock(&s->ch->lock);
    return r;
}

void channel_stream_finish(struct channel_stream *s)
{
    pthread_mutex_lock(&s->ch->lock);
    s->tx_eof = true;
    if (s->live) {
        nghttp2_session_resume_data(s->ch->session,
                                    s->id); /* fails when it was not deferred: fine */
        channel_wake(s->ch);
    }
    pthread_mutex_unlock(&s->ch->lock);
}

int channel_stream_read_head(struct channel_stream *s, uint64_t deadline_ns,
                             const struct channel_head **ret, struct err *e)
{
    int r = 0;

    pthread_mutex_lock(&s->ch->lock);
    while (!s->head_done && r == 0) {
        r = s->failed.code ? stream_failed(s, e) : stream_wait(s, deadline_ns, e);
    }
    if (s->head_done) {
        *ret = &s->head;
        r = 0;
    }
    pthread_mutex_unlock(&s->ch->lock);
    return r;
}

/* n bytes that nobody holds any more go back to both windows. */
static void stream_release(struct channel_stream *s, size_t n)
{
    struct channel *ch = s->ch;
    size_t pay = MIN(ch->debt, n);

    ASSERT(n <= ch->held_bytes);
    ch->held_bytes -= n;
    ch->debt -= pay;
    if (!ch->session) {
        return;
    }
    if (pay > 0) {
        nghttp2_session_consume_connection(ch->session, pay);
    }
    if (s->live) {
        nghttp2_session_consume_stream(ch->session, s->id, n);
    }
    if (nghttp2_session_want_write(ch->session)) {
        channel_wake(ch);
    }
}

ssize_t channel_stream_read(struct channel_stream *s, void *ret, size_t len, uint64_t deadline_ns,
                            struct err *e)
{
    ssize_t r = 0;

    ASSERT(len > 0);
    pthread_mutex_lock(&s->ch->lock);
    while (s->rx.len == 0 && !s->rx_eof && r == 0) {
        r = s->failed.code ? stream_failed(s, e) : stream_wait(s, deadline_ns, e);
    }
    if (s->rx.len > 0) {
        size_t n = MIN(len, s->rx.len);

        memcpy(ret, s->rx.data, n);
        buf_consume(&s->rx, n);
        stream_release(s, n);
        r = (ssize_t)n;
    } else if (s->rx_eof && s->failed.code) {
        r = stream_failed(s, e);
    }
    pthread_mutex_unlock(&s->ch->lock);
    return r;
}

int channel_stream_fd(struct channel_stream *s)
{
    int fd;

    pthread_mutex_lock(&s->ch->lock);
    if (s->event_fd < 0) {
        s->event_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK); /* news: what happened until now */
        if (s->event_fd < 0) {
            s->event_fd = FD_NONE;
        }
    }
    fd = s->event_fd;
    pthread_mutex_unlock(&s->ch->lock);
    return fd;
}

void channel_stream_clear(struct channel_stream *s)
{
    uint64_t count;

    if (s->event_fd >= 0) {
        IGNORE_RESULT(
            read(s->event_fd, &count, sizeof(count))); /* non-blocking: may be clear already */
    }
}

static void stream_cancel(struct channel_stream *s)
{
    if (s->live) {
        nghttp2_submit_rst_stream(s->ch->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
        channel_wake(s->ch);
    }
    s->discard = true;
    if (!s->failed.code && !(s->rx_eof && s->head_done)) {
        err_set(&s->failed, -ECANCELED, "cancelled", "the request has been given up");
    }
    channel_stream_notify(s);
}

void channel_stream_cancel(struct channel_stream *s)
{
    pthread_mutex_lock(&s->ch->lock);
    stream_cancel(s);
    pthread_mutex_unlock(&s->ch->lock);
}

void channel_stream_free(struct channel_stream *s)
{
    if (!s) {
        return;
    }
    pthread_mutex_lock(&s->ch->lock);
    if (s->live) {
        stream_cancel(s);
        nghttp2_session_set_stream_user_data(s->ch->session, s->id, NULL);
    }
    stream_release(s, s->rx.len);
    stream_destroy_unlock(s);
}
