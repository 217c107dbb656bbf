/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a connection that is looked into: TLS, then request after request. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "credential/secret.h"
#include "network/intercept-internal.h"

struct io_wait intercept_wait(const struct intercept_conn *c, uint64_t ms)
{
    return (struct io_wait){.deadline_ns = deadline_in_ms(ms),
                            .watch = {.fd = c->stop_fd, .events = POLLIN}};
}

void intercept_refuse(struct intercept_conn *c, const char *why)
{
    struct log_ctx ctx = {.sandbox = c->target.owner.sandbox};

    snprintf(c->refused, sizeof(c->refused), "%s", why);
    log_debug(&ctx, "a connection to %s port %u is refused: %s", c->target.name, c->target.port,
              why);
}

void intercept_linger(struct intercept_conn *c)
{
    struct io_wait wait = intercept_wait(c, 1000);
    char rest[4096];

    io_shutdown_send(&c->guest);
    for (unsigned i = 0; i < 64; i++) {
        ssize_t n = io_recv(&c->guest, rest, sizeof(rest));

        if (n == 0 || (n < 0 && (n != -EAGAIN || io_wait(&c->guest, POLLIN, &wait) < 0))) {
            break;
        }
    }
}

void intercept_answer(struct intercept_conn *c, int status, const char *code, const char *message)
{
    struct io_wait wait = intercept_wait(c, INTERCEPT_HEAD_MS);
    cleanup_free char *text = intercept_answer_text(code, message);
    cleanup_free char *head = NULL;
    struct iovec iov[2];

    head = xasprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                     "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
                     status, http1_status_text((unsigned)status), strlen(text));
    iov[0] = (struct iovec){head, strlen(head)};
    iov[1] = (struct iovec){text, strlen(text)};
    c->result.status = status;
    intercept_refuse(c, code);
    if (c->now) {
        exchange_tell(c->now, status, code);
    }
    if (io_send_all(&c->guest, iov, 2, &wait) == 0) {
        intercept_linger(c);
    }
}

/* ---- one request ---- */

static void exchange_done(struct exchange *x)
{
    x->c->now = NULL;
    plan_done(&x->plan);
    redact_done(&x->redact);
    secret_wipe_buf(&x->body);
    secret_wipe_buf(&x->down_trailers);
    buf_done(&x->up_trailers);
    if (x->up_out.head.base) {
        explicit_bzero(x->up_out.head.base, x->up_out.head.cap);
    }
    if (x->up_out.pending.base) {
        explicit_bzero(x->up_out.pending.base, x->up_out.pending.cap);
    }
    out_done(&x->up_out);
    out_done(&x->down_out);
    free(x->head_text);
    if (x->chunk) {
        explicit_bzero(x->chunk, INTERCEPT_CHUNK);
    }
    free(x->chunk);
    free(x);
}
DEFINE_CLEANUP(struct exchange *, exchange_done);

static struct exchange *exchange_new(struct intercept_conn *c)
{
    struct exchange *x = xnew(struct exchange);

    x->c = c;
    redact_init(&x->redact);
    out_init(&x->up_out);
    x->up_out.head.max = INJECT_HEAD_MAX;
    x->up_out.pending.max += INJECT_HEAD_MAX;
    out_init(&x->down_out);
    x->body = BUF_INIT(INJECT_BODY_MAX + 4u * PLAN_VALUE_MAX);
    x->up_trailers = BUF_INIT(HTTP1_MAX_TRAILER);
    x->down_trailers = BUF_INIT(HTTP1_MAX_TRAILER);
    x->chunk = xmalloc(INTERCEPT_CHUNK);
    return x;
}

/* Between requests: has the guest been silent for a while? What the next one does not need is given back. */
static bool is_idle(struct intercept_conn *c)
{
    struct io_wait wait = intercept_wait(c, INTERCEPT_SPARE_MS);

    if (io_buffered(&c->guest) || io_wait(&c->guest, POLLIN, &wait) != -ETIMEDOUT) {
        return false;
    }
    intercept_disconnect(c);
    return true;
}

/* Waits for a head. 0: there is one of *ret_len bytes in guest.in. -ENODATA: the guest has closed in between. */
static int read_head(struct intercept_conn *c, size_t *ret_len)
{
    struct io_wait wait = intercept_wait(c, INTERCEPT_IDLE_MS);
    struct http1_scan scan = {0};
    bool begun = false;

    for (;;) {
        ssize_t n;
        int r = http1_scan(&scan, io_data(&c->guest), c->guest.in_len, ret_len);

        if (r != -EAGAIN) {
            return r;
        }
        if (c->guest.in_len > 0 && !begun) {
            begun = true;
            wait = intercept_wait(c, INTERCEPT_HEAD_MS);
        }
        n = io_fill(&c->guest, HTTP1_MAX_HEAD + 1);
        if (n == 0) {
            return c->guest.in_len ? -EBADMSG : -ENODATA;
        }
        if (n == -EAGAIN) {
            r = io_wait(&c->guest, POLLIN, &wait);
            n = r < 0 ? r : 1;
        }
        if (n < 0) {
            return (int)n;
        }
    }
}

/* May this request pass? Answers itself when not. */
static bool judge(struct exchange *x)
{
    struct intercept_refusal why;
    enum netpolicy_action action = intercept_judge(x->c, &x->head, &x->judged, &why);

    if (action == NETPOLICY_ASK) {
        action = intercept_ask(x->c, &x->head, &why);
    }
    if (action == NETPOLICY_ALLOW) {
        return true;
    }
    intercept_answer(x->c, why.status, why.code, why.message);
    return false;
}

static int get_plan(struct exchange *x, struct err *e)
{
    struct intercept_conn *c = x->c;
    int r = intercept_plan(c, &x->head, &x->plan, &x->redact, e);

    if (r == 0 && x->plan.n > 0) {
        snprintf(c->credential, sizeof(c->credential), "%s", x->plan.v[0].credential);
    }
    return r;
}

/* All of the body, when a secret goes into it. */
static int gather_body(struct exchange *x, struct err *e)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    cleanup_secret_buf struct buf raw = BUF_INIT(INJECT_BODY_MAX);
    struct intercept_conn *c = x->c;
    struct iovec iov = {(void *)(uintptr_t)go_on, sizeof(go_on) - 1};
    struct io_wait wait = intercept_wait(c, INTERCEPT_HEAD_MS);
    ssize_t n = 1;
    int r = 0;

    if (x->head.expect_continue && !x->up_in.done) {
        r = io_send_all(&c->guest, &iov, 1, &wait);
    }
    while (r == 0 && n != 0) {
        n = in_read(&x->up_in, &c->guest, x->chunk, INTERCEPT_CHUNK);
        if (n == -EAGAIN) {
            wait = intercept_wait(c, INTERCEPT_IDLE_MS);
            r = io_wait(&c->guest, POLLIN, &wait);
        } else if (n < 0) {
            r = (int)n;
        } else if (n > 0) {
            c->result.bytes_up += (uint64_t)n;
            r = buf_add(&raw, x->chunk, (size_t)n);
        }
    }
    if (r == -E2BIG) {
        return err_set(e, r, "body_too_large", "the body is too large to put a credential into it");
    }
    r = r < 0 ? r : inject_body(&x->head, &x->plan, raw.data, raw.len, &x->body, e);
    x->body_known = r == 0;
    return r;
}

static int print_head(struct exchange *x, struct err *e)
{
    struct inject_request req = {
        .head = &x->head,
        .host = x->c->host,
        .plan = &x->plan,
        .time_s = clock_wall_ms() / 1000,
        .body_known = x->body_known,
        .body = x->body.data,
        .body_len = x->body.len,
    };
    int r;

    buf_reset(&x->up_out.head);
    r = inject_head(&req, &x->up_out.head, e);
    if (r == 0) {
        out_begin(&x->up_out,
                  x->body_known ? (x->body.len ? HTTP1_BODY_LENGTH : HTTP1_BODY_NONE)
                                : x->head.framing,
                  x->body_known ? x->body.len : x->head.content_length);
    }
    return r;
}

/* Sends it and passes the answer on; once more on a new connection if the one that was kept turns out dead. */
static int perform(struct exchange *x, struct err *e)
{
    struct intercept_conn *c = x->c;
    int r = 0;

    if (c->connected && intercept_server_is_stale(c)) {
        intercept_disconnect(c);
    }
    if (!c->connected) {
        r = intercept_connect_server(c, IO_ALPN_HTTP1, e);
    }
    r = r < 0 ? r : print_head(x, e);
    if (r < 0) {
        return r;
    }
    r = exchange_pump(x);
    if (r == -EAGAIN) {
        intercept_disconnect(c);
        r = intercept_connect_server(c, IO_ALPN_HTTP1, e);
        out_done(&x->up_out);
        out_init(&x->up_out);
        x->up_out.head.max = INJECT_HEAD_MAX;
        x->up_done = x->up_broken = false;
        r = r < 0 ? r : print_head(x, e);
        r = r < 0 ? r : exchange_pump(x);
    }
    return r;
}

/* What went wrong before anything of an answer was given. */
static void answer_failure(struct exchange *x, const struct err *e)
{
    struct intercept_refusal why;

    if (x->head_done || e->code == -ECANCELED) {
        return; /* cut off: the guest must not take it for a whole answer */
    }
    intercept_failure(e, &why);
    intercept_answer(x->c, why.status, why.code, why.message);
}

/* true: the connection may carry another one. */
static bool serve_one(struct exchange *x)
{
    struct intercept_conn *c = x->c;
    struct err e = {0};
    int r = 0;

    in_init(&x->up_in, x->head.framing, x->head.content_length);
    x->up_in.chunked.trailers = &x->up_trailers;
    if (!judge(x)) {
        return false;
    }
    r = get_plan(x, &e);
    if (r == 0 && inject_needs_body(&x->head, &x->plan)) {
        r = gather_body(x, &e);
    }
    r = r < 0 ? r : perform(x, &e);
    if (r < 0) {
        if (e.code == 0) {
            err_set(&e, r, r == -EBADMSG ? "bad_answer" : "server_failed",
                    "the server's answer cannot be passed on");
        }
        answer_failure(x, &e);
        if (!c->refused[0]) {
            intercept_refuse(c, err_reason(&e));
        }
        return false;
    }
    c->result.requests++;
    if (x->upgraded) {
        exchange_tunnel(x);
        return false;
    }
    if (!x->keep_server) {
        intercept_disconnect(c);
    }
    c->server_used = true;
    return x->keep_guest;
}

static bool serve_next(struct intercept_conn *c)
{
    CLEANUP(exchange_donep) struct exchange *x = NULL;
    enum http1_error why;
    size_t len = 0;
    int r = read_head(c, &len);

    if (r == -E2BIG) {
        intercept_answer(c, 431, "head_too_large", "the request's head is too large");
    }
    if (r < 0) {
        return false;
    }
    x = exchange_new(c);
    x->head_text = xmemdup(io_data(&c->guest), len);
    io_consume(&c->guest, len);
    why = http1_parse_request(x->head_text, len, &x->head);
    if (why != HTTP1_OK) {
        intercept_answer(c, http1_error_status(why), "bad_request", http1_error_text(why));
        return false;
    }
    c->now = x;
    return serve_one(x);
}

static int start_tls(struct intercept_conn *c, struct err *e)
{
    struct io_wait wait = intercept_wait(c, INTERCEPT_HANDSHAKE_MS);
    SSL_CTX *ctx = NULL;
    int r = leaves_get(c->in->leaves, c->target.owner.organisation, c->target.name, &ctx, e);

    if (r < 0) {
        intercept_refuse(c, "no_certificate");
        return r;
    }
    r = io_tls_accept(&c->guest, ctx, &wait, e);
    SSL_CTX_free(ctx); /* the connection has its own reference */
    if (r < 0) {
        /* Most often a client that pins or does not know our authority. */
        intercept_refuse(c, "guest_tls_failed");
    }
    return r;
}

/*
 * With a guest that offers HTTP/2 the server is asked first which version it speaks, and the guest gets the same: nothing is
 * ever translated from one into the other. A server that cannot be reached is told of by the answers.
 */
static void mirror_server(struct intercept_conn *c, struct err *ret_why)
{
    if (c->target.is_tls && c->offers_http2) {
        bool there = intercept_connect_server(c, IO_ALPN_BOTH, ret_why) == 0;

        c->guest.alpn = !there                        ? IO_ALPN_BOTH
                        : io_tls_is_http2(&c->server) ? IO_ALPN_HTTP2
                                                      : IO_ALPN_HTTP1;
    }
}

/* true: there may be requests; else it is over. */
static bool begin(struct intercept_conn *c)
{
    struct log_ctx ctx = {.sandbox = c->target.owner.sandbox};
    struct err no_server = {0};
    struct err e = {0};

    mirror_server(c, &no_server);
    if (no_server.code == -ECANCELED) {
        return false;
    }
    if (c->target.is_tls && start_tls(c, &e) < 0) {
        log_info(&ctx, "TLS with the guest for %s: %s", c->target.name, e.msg);
        return false;
    }
    if (c->target.is_tls && io_tls_is_http2(&c->guest)) {
        intercept_http2_run(c, c->connected ? NULL : &no_server);
        return false;
    }
    if (c->connected && io_tls_is_http2(&c->server)) {
        intercept_disconnect(c); /* the guest would not have it after all */
    }
    return true;
}

bool intercept_conn_run(struct intercept_conn *c)
{
    bool was_parked = c->parked;

    if (c->target.is_ssh) {
        intercept_ssh_run(c);
        return false;
    }
    c->parked = false;
    if (!was_parked && !begin(c)) {
        return false;
    }
    for (;;) {
        if (!was_parked && is_idle(c)) {
            return true;
        }
        was_parked = false;
        if (!serve_next(c)) {
            return false;
        }
        io_trim(&c->guest);
        if (c->connected) {
            io_trim(&c->server);
        }
    }
}
