/* SPDX-License-Identifier: Apache-2.0 */
/* One request of a guest that speaks HTTP/2: what is decided about it, and how it and its answer travel. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "credential/secret.h"
#include "network/http2-internal.h"

/* Of a thread that asks the credential manager. */
#define STACK_BYTES (256u * 1024)
/* Pseudo fields and te. */
#define EXTRA_FIELDS 6

/* Fields for nghttp2, which copies them. */
struct fields {
    nghttp2_nv nv[HTTP1_MAX_FIELDS + EXTRA_FIELDS];
    size_t n;
    uint8_t flags;
};

static void add_field(struct fields *f, struct http1_view name, struct http1_view value)
{
    ASSERT(f->n < ARRAY_SIZE(f->nv));
    f->nv[f->n++] = (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name.p,
                                 .namelen = name.len,
                                 .value = (uint8_t *)(uintptr_t)value.p,
                                 .valuelen = value.len,
                                 .flags = f->flags};
}

static void add_text(struct fields *f, const char *name, const char *value)
{
    add_field(f, (struct http1_view){name, strlen(name)},
              (struct http1_view){value, strlen(value)});
}

/* In place: the text is ours. */
static void lower(struct http1_view v)
{
    char *p = (char *)(uintptr_t)v.p;

    for (size_t i = 0; i < v.len; i++) {
        p[i] = (char)tolower((unsigned char)p[i]);
    }
}

static void resume(nghttp2_session *session, int32_t id, struct http2_way *w)
{
    if (w->deferred && session && id) {
        w->deferred = false;
        nghttp2_session_resume_data(session, id); /* the stream may just have gone */
    }
}

void http2_reset_guest(struct http2_stream *s, uint32_t code)
{
    s->state = HTTP2_ANSWERED;
    nghttp2_submit_rst_stream(s->h->guest.session, NGHTTP2_FLAG_NONE, s->id, code);
}

/* ---- answers of our own ---- */

void http2_answer(struct http2_stream *s, const struct intercept_refusal *why)
{
    cleanup_free char *text = intercept_answer_text(why->code, why->message);
    nghttp2_data_provider provider = http2_provider(s, /* up */ false);
    struct fields f = {.n = 0};
    char status[12];
    char length[24];
    bool empty = http1_view_is(s->head.method, "HEAD");

    s->h->c->result.status = why->status;
    intercept_refuse(s->h->c, why->code);
    if (s->good && !s->head_done) {
        intercept_tell(s->h->c, &s->head, &s->judged, &s->plan, why->status, why->code);
    }
    s->state = HTTP2_ANSWERED;
    if (s->gone || s->head_done) {
        return;
    }
    snprintf(status, sizeof(status), "%d", why->status);
    snprintf(length, sizeof(length), "%zu", strlen(text));
    add_text(&f, ":status", status);
    add_text(&f, "content-type", "application/json");
    add_text(&f, "content-length", length);
    add_text(&f, "cache-control", "no-store");
    s->head_done = s->stop_guest = s->down.end = true;
    IGNORE_RESULT(buf_add_str(&s->down.data, text)); /* the first bytes, and few */
    nghttp2_submit_response(s->h->guest.session, s->id, f.nv, f.n, empty ? NULL : &provider);
}

static void answer_error(struct http2_stream *s, const struct err *e)
{
    struct intercept_refusal why;

    intercept_failure(e, &why);
    http2_answer(s, &why);
}

/* ---- the request to the server ---- */

static bool is_grpc_negotiation(const struct http2_stream *s, struct http1_view name)
{
    return s->plan.n_secrets > 0 && http1_view_is(name, "grpc-accept-encoding");
}

/* From the head of HTTP/1.1, whose names become lower case. */
static void fields_of_request(struct http2_stream *s, const struct http1_head *head,
                              struct fields *f)
{
    f->flags = s->plan.n > 0 ? NGHTTP2_NV_FLAG_NO_INDEX : 0;
    add_field(f, (struct http1_view){":method", 7}, head->method);
    add_text(f, ":scheme", "https");
    add_text(f, ":authority", s->h->c->host);
    add_field(f, (struct http1_view){":path", 5}, head->target);
    for (size_t i = 0; i < head->n_fields; i++) {
        struct http1_view name = head->fields[i].name;

        lower(name);
        if (http1_view_is(name, "host") || http1_view_is(name, "connection") ||
            http1_view_is(name, "transfer-encoding") || http1_view_is(name, "upgrade") ||
            is_grpc_negotiation(s, name)) {
            continue;
        }
        add_field(f, name, head->fields[i].value);
    }
    if (s->te_trailers) {
        add_text(f, "te", "trailers");
    }
}

static int print_head(struct http2_stream *s, struct buf *ret, struct err *e)
{
    struct inject_request req = {
        .head = &s->head,
        .host = s->h->c->host,
        .plan = &s->plan,
        .time_s = clock_wall_ms() / 1000,
        .body_known = s->body_known,
        .body = s->body.data,
        .body_len = s->body.len,
    };

    return inject_head(&req, ret, e);
}

static int submit(struct http2_stream *s, struct buf *text, struct err *e)
{
    nghttp2_data_provider provider = http2_provider(s, /* up */ true);
    struct fields f = {.n = 0};
    struct http1_head head;
    bool empty = s->up.end && s->up.data.len == 0 && s->up.trailers.len == 0;
    int r = print_head(s, text, e);

    if (r < 0) {
        return r;
    }
    if (http1_parse_request(text->data, text->len, &head) != HTTP1_OK) {
        return err_set(e, -EINVAL, "request_not_injectable",
                       "the request is such that its credential cannot be put in");
    }
    fields_of_request(s, &head, &f);
    r = nghttp2_submit_request(s->h->server.session, NULL, f.nv, f.n, empty ? NULL : &provider, s);
    if (r < 0) {
        return err_set(e, -EIO, "server_failed", "the server takes no more requests");
    }
    s->server_id = r;
    s->state = HTTP2_OPEN;
    s->h->c->result.requests++;
    if (s->plan.n > 0) {
        snprintf(s->h->c->credential, sizeof(s->h->c->credential), "%s", s->plan.v[0].credential);
    }
    return 0;
}

static void send_request(struct http2_stream *s)
{
    cleanup_secret_buf struct buf text = BUF_INIT(INJECT_HEAD_MAX);
    struct err e = {0};

    if (!s->h->server.session && s->h->no_server) {
        e = *s->h->no_server;
    } else if (!s->h->server.session || s->h->draining) {
        http2_reset_guest(s, NGHTTP2_REFUSED_STREAM);
        return;
    }
    if (e.code || submit(s, &text, &e) < 0) {
        answer_error(s, &e);
    }
}

/* ---- bodies that have to be gathered ---- */

static void gather_done(struct http2_stream *s)
{
    cleanup_secret_buf struct buf raw = s->body;
    struct err e = {0};
    int r;

    s->h->gathered -= raw.len;
    s->body = BUF_INIT(INJECT_BODY_MAX + 4u * PLAN_VALUE_MAX);
    s->state = HTTP2_HEAD;
    r = inject_body(&s->head, &s->plan, raw.data, raw.len, &s->body, &e);
    if (r == 0) {
        s->body_known = true;
        r = buf_add(&s->up.data, s->body.data, s->body.len);
    }
    if (r < 0) {
        answer_error(s, &e);
        return;
    }
    send_request(s);
}

static void gather(struct http2_stream *s)
{
    const struct intercept_refusal large = {413, "body_too_large",
                                            "the body is too large to put a credential into it"};
    size_t n = s->up.data.len;

    if (s->body.len + n > INJECT_BODY_MAX || s->h->gathered + n > HTTP2_GATHER_MAX ||
        buf_add(&s->body, s->up.data.data, n) < 0) {
        s->h->gathered -= s->body.len;
        s->state = HTTP2_HEAD;
        http2_answer(s, &large);
        return;
    }
    s->h->gathered += n;
    buf_reset(&s->up.data);
    if (s->up.owed > 0) {
        nghttp2_session_consume(s->h->guest.session, s->id, s->up.owed);
        s->up.owed = 0;
    }
    if (s->up.end) {
        gather_done(s);
    }
}

void http2_on_body(struct http2_stream *s)
{
    if (s->state == HTTP2_GATHERING) {
        gather(s);
    } else if (s->state == HTTP2_OPEN) {
        resume(s->h->server.session, s->server_id, &s->up);
    }
}

/* A guest that waits for leave to send would wait for ever. */
static void begin_gathering(struct http2_stream *s)
{
    struct fields f = {.n = 0};

    s->state = HTTP2_GATHERING;
    if (s->head.expect_continue && !s->up.end && s->up.data.len == 0) {
        add_text(&f, ":status", "100");
        nghttp2_submit_headers(s->h->guest.session, NGHTTP2_FLAG_NONE, s->id, NULL, f.nv, f.n,
                               NULL);
    }
    gather(s);
}

/* ---- deciding ---- */

static void go_on(struct http2_stream *s)
{
    if (s->refused) {
        http2_answer(s, &s->refusal);
    } else if (s->failed.code) {
        answer_error(s, &s->failed);
    } else if (inject_needs_body(&s->head, &s->plan)) {
        begin_gathering(s);
    } else {
        send_request(s);
    }
}

static void *decide_thread(void *arg)
{
    struct http2_stream *s = arg;
    struct http2 *h = s->h;
    int r = 0;

    s->refused = s->asks && intercept_ask(h->c, &s->head, &s->refusal) != NETPOLICY_ALLOW;
    if (!s->refused) {
        r = intercept_plan(h->c, &s->head, &s->plan, &s->redact, &s->failed);
    }
    if (r < 0 && s->failed.code == 0) {
        err_set(&s->failed, r, NULL, "the credential manager's answer cannot be used");
    }
    pthread_mutex_lock(&h->lock);
    TAILQ_INSERT_TAIL(&h->decided, s, decided);
    IGNORE_RESULT(eventfd_write(h->decided_fd, 1)); /* a full counter wakes as well */
    if (--h->n_deciding == 0) {
        pthread_cond_signal(&h->all_decided);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static int start_deciding(struct http2_stream *s)
{
    struct http2 *h = s->h;
    pthread_attr_t attr;
    pthread_t thread;
    int r;

    pthread_mutex_lock(&h->lock);
    h->n_deciding++;
    pthread_mutex_unlock(&h->lock);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    s->state = HTTP2_DECIDING;
    s->deciding = true;
    r = -pthread_create(&thread, &attr, decide_thread, s);
    pthread_attr_destroy(&attr);
    if (r < 0) {
        s->state = HTTP2_HEAD;
        s->deciding = false;
        pthread_mutex_lock(&h->lock);
        h->n_deciding--;
        pthread_mutex_unlock(&h->lock);
    }
    return r;
}

void http2_take_decided(struct http2 *h)
{
    struct http2_streams list;
    eventfd_t count;

    if (eventfd_read(h->decided_fd, &count) < 0) {
        return;
    }
    TAILQ_INIT(&list);
    pthread_mutex_lock(&h->lock);
    TAILQ_CONCAT(&list, &h->decided, decided);
    pthread_mutex_unlock(&h->lock);
    while (!TAILQ_EMPTY(&list)) {
        struct http2_stream *s = TAILQ_FIRST(&list);

        TAILQ_REMOVE(&list, s, decided);
        s->deciding = false;
        if (s->gone) {
            http2_stream_free(s);
        } else if (s->state == HTTP2_DECIDING) {
            s->state = HTTP2_HEAD;
            go_on(s);
        }
    }
}

/* HTTP/1.1 of the same meaning, read by the one parser. */
static bool read_request(struct http2_stream *s, bool more, struct intercept_refusal *ret)
{
    enum http1_error why;
    int r = s->request_error;

    r = r < 0 ? r : http2_head_request(&s->request, "https", more, &s->head_text);
    if (r == -E2BIG) {
        *ret = (struct intercept_refusal){431, "head_too_large", "the request's head is too large"};
        return false;
    }
    if (r < 0) {
        *ret = (struct intercept_refusal){400, "bad_request", "the request's head is malformed"};
        return false;
    }
    why = http1_parse_request(s->head_text.data, s->head_text.len, &s->head);
    if (why != HTTP1_OK) {
        *ret = (struct intercept_refusal){.status = http1_error_status(why), .code = "bad_request"};
        snprintf(ret->message, sizeof(ret->message), "%s", http1_error_text(why));
        s->head = (struct http1_head){0}; /* undefined after a failure */
        return false;
    }
    s->te_trailers = s->request.te_trailers;
    return true;
}

void http2_on_request(struct http2_stream *s, bool more)
{
    struct intercept_refusal why;
    bool good = read_request(s, more, &why);
    enum netpolicy_action action = NETPOLICY_DENY;

    http2_head_done(&s->request); /* trailers may come */
    s->request_error = 0;
    s->good = good;
    if (good) {
        action = intercept_judge(s->h->c, &s->head, &s->judged, &why);
    }
    s->asks = action == NETPOLICY_ASK;
    if (action == NETPOLICY_DENY) {
        http2_answer(s, &why);
    } else if (!s->asks && !intercept_has_plan(s->h->c)) {
        go_on(s);
    } else if (start_deciding(s) < 0) {
        http2_reset_guest(s, NGHTTP2_REFUSED_STREAM);
    }
}

/* ---- the server's answer ---- */

/* An answer that cannot be searched would tell what must not be told. */
static bool is_unreadable(const struct http2_stream *s, const struct http1_head *head)
{
    if (!redact_active(&s->redact)) {
        return false;
    }
    for (size_t i = 0; i < head->n_fields; i++) {
        const struct http1_field *f = &head->fields[i];

        if ((http1_view_is(f->name, "content-encoding") ||
             http1_view_is(f->name, "grpc-encoding")) &&
            !http1_view_is(f->value, "identity") && f->value.len > 0) {
            return true;
        }
    }
    return false;
}

static void fields_of_answer(struct http2_stream *s, const struct http1_head *head,
                             const char *status, struct fields *f)
{
    add_text(f, ":status", status);
    for (size_t i = 0; i < head->n_fields; i++) {
        struct http1_view name = head->fields[i].name;
        struct http1_view value = head->fields[i].value;

        if (http1_view_is(name, "alt-svc")) {
            continue; /* it would send the guest to where nobody looks */
        }
        redact_text(&s->redact, (char *)(uintptr_t)value.p, value.len);
        add_field(f, name, value);
    }
}

static void fail(struct http2_stream *s, const char *code)
{
    const struct intercept_refusal bad = {502, "bad_answer",
                                          "the server's answer cannot be passed on"};

    if (s->server_id) {
        nghttp2_submit_rst_stream(s->h->server.session, NGHTTP2_FLAG_NONE, s->server_id,
                                  NGHTTP2_CANCEL);
    }
    if (s->head_done) {
        intercept_refuse(s->h->c, code);
        http2_reset_guest(s, NGHTTP2_INTERNAL_ERROR);
    } else {
        http2_answer(s, &bad);
        intercept_refuse(s->h->c, code);
    }
}

static void pass_head(struct http2_stream *s, bool end, struct buf *text)
{
    nghttp2_data_provider provider = http2_provider(s, /* up */ false);
    bool to_head = http1_view_is(s->head.method, "HEAD");
    struct fields f = {.n = 0};
    struct http1_head head;
    char status[12];

    if (http2_head_answer(&s->answer, text) < 0 ||
        http1_parse_response(text->data, text->len, to_head, &head) != HTTP1_OK ||
        head.status == 101 || (head.status < 200 && ++s->n_interim > INTERCEPT_INTERIM_MAX)) {
        fail(s, "bad_answer");
        return;
    }
    if (head.status >= 200 && is_unreadable(s, &head)) {
        fail(s, "answer_unreadable");
        return;
    }
    snprintf(status, sizeof(status), "%u", head.status);
    fields_of_answer(s, &head, status, &f);
    if (head.status < 200) {
        nghttp2_submit_headers(s->h->guest.session, NGHTTP2_FLAG_NONE, s->id, NULL, f.nv, f.n,
                               NULL);
        return;
    }
    s->h->c->result.status = (int)head.status;
    intercept_tell(s->h->c, &s->head, &s->judged, &s->plan, (int)head.status, NULL);
    s->head_done = true;
    /* The end on the head itself means something to gRPC. */
    s->down.end = end;
    nghttp2_submit_response(s->h->guest.session, s->id, f.nv, f.n, end ? NULL : &provider);
}

void http2_on_answer(struct http2_stream *s, bool end)
{
    cleanup_buf struct buf text = BUF_INIT(HTTP1_MAX_HEAD * 3);
    int r = s->answer_error;

    s->answer_error = 0;
    if (s->state != HTTP2_OPEN) {
        return;
    }
    if (r < 0) {
        fail(s, "bad_answer");
    } else if (!s->head_done) {
        pass_head(s, end, &text);
    } else if (http2_head_trailers(&s->answer, &s->down.trailers) < 0) {
        fail(s, "bad_answer");
    } else if (s->down.trailers.len > 0) {
        redact_text(&s->redact, s->down.trailers.data, s->down.trailers.len);
    }
}

void http2_on_answer_data(struct http2_stream *s, const uint8_t *data, size_t len, bool end)
{
    int r;

    if (s->state != HTTP2_OPEN || !s->head_done || s->down.end) {
        return;
    }
    r = redact_active(&s->redact) ? redact_next(&s->redact, data, len, end, &s->down.data)
                                  : (len > 0 ? buf_add(&s->down.data, data, len) : 0);
    if (r < 0) {
        fail(s, "bad_answer");
        return;
    }
    s->down.end = end;
    resume(s->h->guest.session, s->id, &s->down);
}
