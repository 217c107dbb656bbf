/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server-internal.h"

#include "base/json.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* An unread rest of a body up to this is read away to keep the connection; for so long. */
#define DRAIN_MAX_BYTES (256u * 1024)
#define DRAIN_TIMEOUT_MS 200u

/* ---- head ---- */

static const char *date_now(void)
{
    static _Thread_local char text[40];
    static _Thread_local time_t printed;
    time_t now = time(NULL);
    struct tm tm;

    if (now != printed) {
        gmtime_r(&now, &tm);
        strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm);
        printed = now;
    }
    return text;
}

/* Can the connection carry another request after this one? */
static bool may_keep(struct http_request *req)
{
    bool rest_is_small = req->in.framing != HTTP1_BODY_LENGTH || req->in.left <= DRAIN_MAX_BYTES;

    return req->keep_alive && !atomic_load(&req->server->stopping) && !req->body_read_failed &&
           (req->in.done || (!req->expect_continue && rest_is_small));
}

static enum http1_framing reply_framing(const struct http_request *req, int status, int64_t length)
{
    if (status < 200 || status == 204 || status == 304) {
        return HTTP1_BODY_NONE;
    }
    if (length >= 0) {
        return HTTP1_BODY_LENGTH;
    }
    return req->minor == 0 ? HTTP1_BODY_CLOSE : HTTP1_BODY_CHUNKED;
}

static int print_fields(struct http_request *req, enum http1_framing framing, int64_t length,
                        struct buf *b)
{
    int r = http1_print_field(b, "Date", date_now());

    if (r == 0 && framing == HTTP1_BODY_LENGTH) {
        r = buf_printf(b, "Content-Length: %lld\r\n", (long long)length);
    }
    if (r == 0 && framing == HTTP1_BODY_CHUNKED) {
        r = http1_print_field(b, "Transfer-Encoding", "chunked");
    }
    if (r == 0 && !req->upgraded && (!req->keep_alive || req->minor == 0)) {
        r = http1_print_field(b, "Connection", req->keep_alive ? "keep-alive" : "close");
    }
    for (size_t i = 0; r == 0 && i < req->reply_headers.n; i++) {
        r = http1_print_field(b, req->reply_headers.v[i].name, req->reply_headers.v[i].value);
    }
    return r == 0 ? http1_print_end(b) : r;
}

int reply_prepare(struct http_request *req, int status, const char *content_type, int64_t length,
                  struct err *e)
{
    enum http1_framing framing = reply_framing(req, status, length);
    struct buf *b = &req->out.head;
    int r;

    ASSERT(!http_reply_begun(req) && !req->reply_broken);
    req->keep_alive = may_keep(req) && framing != HTTP1_BODY_CLOSE;
    if (content_type) {
        http_headers_set(&req->reply_headers, "Content-Type", content_type);
    }
    if (!http_headers_get(&req->reply_headers, "Server")) {
        http_headers_add(&req->reply_headers, "Server", req->server->opts.name);
    }
    r = http1_print_status(b, 1, (unsigned)status);
    if (r == 0) {
        r = print_fields(req, framing, length, b);
    }
    if (r < 0) {
        buf_reset(b);
        return err_wrap(e, r, "composing the head of the reply");
    }
    req->status = status;
    req->out.mute = req->head_method;
    out_begin(&req->out, framing, (uint64_t)MAX(length, (int64_t)0));
    return 0;
}

void http_reply_header(struct http_request *req, const char *name, const char *value)
{
    ASSERT(!http_reply_begun(req));
    http_headers_add(&req->reply_headers, name, value);
}

bool http_reply_begun(const struct http_request *req)
{
    return req->status != 0;
}

void http_reply_abort(struct http_request *req)
{
    req->reply_broken = true;
}

/* ---- body ---- */

static int reply_write(struct http_request *req, struct out_data d, struct err *e)
{
    struct io_wait wait = request_wait(req);
    int r;

    ASSERT(http_reply_begun(req));
    if (req->reply_broken) {
        return err_set(e, -ECANCELED, "client_gone", "the connection is broken");
    }
    r = out_write(&req->out, &req->conn->io, d, &wait);
    if (r < 0) {
        req->reply_broken = true;
    }
    switch (r) {
    case 0:
        return 0;
    case -EPROTO:
        return err_set(e, r, "internal", "the reply is shorter than announced");
    case -ETIMEDOUT:
        return err_set(e, -ECANCELED, "client_too_slow", "the client does not read its answer");
    default:
        return err_set(e, -ECANCELED, "client_gone", "the client has gone");
    }
}

int http_reply_begin(struct http_request *req, int status, const char *content_type, int64_t length,
                     struct err *e)
{
    return reply_prepare(req, status, content_type, length, e);
}

int http_write(struct http_request *req, const void *data, size_t len, struct err *e)
{
    return reply_write(req, (struct out_data){data, len, /* end */ false}, e);
}

int http_flush(struct http_request *req, struct err *e)
{
    return reply_write(req, (struct out_data){0}, e);
}

int http_end(struct http_request *req, struct err *e)
{
    return req->out.done ? 0 : reply_write(req, (struct out_data){.end = true}, e);
}

int http_reply_bytes(struct http_request *req, int status, const char *content_type,
                     const void *data, size_t len, struct err *e)
{
    int r = reply_prepare(req, status, content_type, (int64_t)len, e);

    return r < 0 ? r : reply_write(req, (struct out_data){data, len, /* end */ true}, e);
}

int http_reply_empty(struct http_request *req, int status, struct err *e)
{
    int r = reply_prepare(req, status, /* content_type */ NULL, 0, e);

    return r < 0 ? r : reply_write(req, (struct out_data){.end = true}, e);
}

int http_reply_json(struct http_request *req, int status, const json_t *json, struct err *e)
{
    cleanup_free char *text = json_text(json);

    return http_reply_bytes(req, status, "application/json", text, strlen(text), e);
}

int http_reply_json_take(struct http_request *req, int status, json_t *json, struct err *e)
{
    cleanup_json json_t *owned = json;

    return http_reply_json(req, status, owned, e);
}

int http_reply_error(struct http_request *req, const struct err *why, struct err *e)
{
    cleanup_json json_t *json = json_error_object(why);

    return http_reply_json(req, err_http_status(why), json, e);
}

/* ---- the end of a request ---- */

static void log_failure(const struct http_request *req, const struct err *why)
{
    int status = err_http_status(why);

    if (status >= 500 && status != 501) {
        log_warn(NULL, "%s %s failed with %d %s: %s", req->method, req->path, status,
                 err_reason(why), why->msg);
    } else {
        log_debug(NULL, "%s %s: %d %s: %s", req->method, req->path, status, err_reason(why),
                  why->msg);
    }
}

static void finish_failed(struct http_request *req, int r, const struct err *given)
{
    struct err why = *given;

    if (why.code != r) { /* the handler passed a bare number up */
        err_wrap(&why, r, "%s %s", req->method, req->path);
    }
    log_failure(req, &why);
    if (http_reply_begun(req) || req->reply_broken) {
        req->reply_broken = true;
    } else if (http_reply_error(req, &why, NULL) < 0) {
        req->reply_broken = true;
    }
}

/* Reads the rest of the body away, if it is small and here. */
static bool drain_body(struct http_request *req)
{
    struct io_wait wait = {.deadline_ns = deadline_in_ms(DRAIN_TIMEOUT_MS),
                           .watch = {.fd = FD_NONE}};
    char sink[16 * 1024];
    size_t drained = 0;

    while (!req->in.done) {
        ssize_t n = in_read(&req->in, &req->conn->io, sink, sizeof(sink));

        if (n == -EAGAIN) {
            n = io_wait(&req->conn->io, POLLIN, &wait);
        }
        drained += n > 0 ? (size_t)n : 0;
        if (n < 0 || drained > DRAIN_MAX_BYTES) {
            return false;
        }
    }
    return true;
}

enum request_after reply_finish(struct http_request *req, int r, const struct err *why)
{
    if (req->upgraded && req->tunnelled) {
        return req->reply_broken ? AFTER_RESET : AFTER_LINGER;
    }
    if (req->upgraded) {
        return AFTER_CLOSE;
    }
    if (r < 0) {
        finish_failed(req, r, why);
    } else if (!http_reply_begun(req) && !req->reply_broken) {
        struct err bug = {0};

        err_set(&bug, -ENOTRECOVERABLE, "internal", "the handler gave no answer");
        finish_failed(req, bug.code, &bug);
    } else if (!req->reply_broken && http_end(req, NULL) < 0) {
        req->reply_broken = true;
    }
    if (req->reply_broken) {
        /* Only a reset tells the client that a body that ends with the connection was cut. */
        return req->out.framing == HTTP1_BODY_CLOSE ? AFTER_RESET : AFTER_CLOSE;
    }
    if (!req->keep_alive) {
        return req->in.done && req->conn->io.in_len == 0 ? AFTER_CLOSE : AFTER_LINGER;
    }
    return drain_body(req) ? AFTER_KEEP : AFTER_LINGER;
}

void conn_refuse(struct http_conn *c, int status, const char *reason, const char *text)
{
    cleanup_buf struct buf b = BUF_INIT(2048);
    char body[512];
    struct iovec iov;
    int len = snprintf(body, sizeof(body), "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}",
                       reason, text);
    int r;

    ASSERT(len > 0 && (size_t)len < sizeof(body));
    r = http1_print_status(&b, 1, (unsigned)status);
    if (r == 0) {
        r = buf_printf(
            &b,
            "Date: %s\r\nServer: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            "Connection: close\r\n\r\n%s",
            date_now(), c->server->opts.name, len, body);
    }
    ASSERT(r == 0);
    iov = (struct iovec){b.data, b.len};
    if (io_send(&c->io, &iov, 1) < 0) {
        log_debug(NULL, "cannot tell %s why its request is refused, ignoring", c->peer_name);
    }
}
