/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server-internal.h"

#include "base/json.h"
#include "base/log.h"
#include "wire/traceparent.h"
#include "wire/url.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- from a head to a request ---- */

/* A view into the request's block, as a string: the byte behind it is not needed any more. */
static const char *cut(struct http_request *req, struct http1_view v)
{
    char *p = req->block + (v.p - req->block);

    p[v.len] = '\0';
    return p;
}

static void take_fields(struct http_request *req, const struct http1_head *head)
{
    req->headers.v = xnew_n(struct http_header, head->n_fields + 1);
    for (size_t i = 0; i < head->n_fields; i++) {
        req->headers.v[i] =
            (struct http_header){cut(req, head->fields[i].name), cut(req, head->fields[i].value)};
    }
    req->headers.n = head->n_fields;
}

/* Decodes one side of a pair to *at, which moves on. */
static int take_query_part(char **at, const char *s, size_t len, const char **ret)
{
    size_t decoded;
    int r = url_decode(s, len, URL_PLUS_IS_SPACE, *at, &decoded);

    if (r == 0) {
        *ret = *at;
        *at += decoded + 1;
    }
    return r;
}

static int take_query(struct http_request *req)
{
    struct url_query q = {req->query, strlen(req->query)};
    struct url_pair pair;
    size_t n = 1;
    char *at;

    for (const char *p = req->query; *p; p++) {
        n += *p == '&';
    }
    req->query_pairs = xnew_n(struct http_header, n);
    req->query_block = xmalloc(q.len + 2 * n);
    at = req->query_block;
    while (url_query_next(&q, &pair)) {
        struct http_header *h = &req->query_pairs[req->n_query];

        if (take_query_part(&at, pair.name, pair.name_len, &h->name) < 0 ||
            take_query_part(&at, pair.value, pair.value_len, &h->value) < 0) {
            return -EINVAL;
        }
        req->n_query++;
    }
    return 0;
}

static void take_head(struct http_request *req, const struct http1_head *head)
{
    const struct http1_field *host = http1_field_get(head, "host");

    req->minor = head->minor;
    req->keep_alive = head->keep_alive;
    req->expect_continue = head->expect_continue;
    req->body_length = head->framing == HTTP1_BODY_CHUNKED ? -1 : (int64_t)head->content_length;
    in_init(&req->in, head->framing, head->content_length);
    take_fields(req, head); /* before the first line: nothing in there is cut by it */
    req->host = host ? cut(req, host->value) : "";
    req->method = cut(req, head->method);
    req->head_method = str_eq(req->method, "HEAD");
    req->query = head->query.p ? cut(req, head->query) : NULL;
    req->path = "/";
    if (head->form == HTTP1_FORM_ASTERISK || head->path.p[0] != '/' || head->path.len > 1) {
        req->path = cut(req, head->form == HTTP1_FORM_ASTERISK ? head->target : head->path);
    }
}

/* 0, or the HTTP status to refuse with and why. */
static int request_parse(struct http_request *req, const char **ret_why)
{
    struct http_conn *c = req->conn;
    struct http1_head head;
    enum http1_error why;
    size_t ignored;

    req->block = xmalloc(c->head_len + 1);
    memcpy(req->block, io_data(&c->io), c->head_len);
    why = http1_parse_request(req->block, c->head_len, &head);
    if (why != HTTP1_OK) {
        *ret_why = http1_error_text(why);
        return http1_error_status(why);
    }
    if (head.form == HTTP1_FORM_AUTHORITY) {
        *ret_why = "CONNECT is not served here";
        return 501;
    }
    io_consume(&c->io, c->head_len);
    take_head(req, &head);
    if (url_decode(req->path, strlen(req->path), 0, NULL, &ignored) < 0) {
        *ret_why = "the path has a bad percent escape";
        return 400;
    }
    if (req->query && take_query(req) < 0) {
        *ret_why = "the query has a bad percent escape";
        return 400;
    }
    return 0;
}

static void request_done(struct http_request *req)
{
    if (req->user_destroy) {
        req->user_destroy(req->user);
    }
    out_done(&req->out);
    http_headers_done(&req->reply_headers);
    free(req->headers.v);
    free(req->query_pairs);
    free(req->query_block);
    free(req->params_block);
    free(req->block);
}

static void tell_done(struct http_request *req, int r)
{
    struct http_server *s = req->server;
    struct http_done done = {
        .method = req->method,
        .path = req->path,
        .pattern = req->route ? req->route->pattern : NULL,
        .status = req->status,
        .error = r,
        .bytes_in = req->in.n_read,
        .bytes_out = req->out.n_written,
        .duration_ns = clock_now_ns() - req->started_ns,
    };

    if (s->opts.done) {
        s->opts.done(s->opts.ctx, req, &done);
    }
}

enum request_after request_run(struct http_conn *c)
{
    struct http_server *s = c->server;
    struct http_request req = {
        .conn = c,
        .server = s,
        .io_timeout_ms = s->opts.io_timeout_ms,
        .body_limit = s->opts.max_body_bytes,
        .started_ns = clock_now_ns(),
    };
    enum request_after after = AFTER_LINGER;
    struct err why = {0};
    const char *text = NULL;
    int status;
    int r;

    out_init(&req.out);
    status = request_parse(&req, &text);
    if (status != 0) {
        conn_refuse(c, status, "bad_request", text);
    } else {
        r = s->opts.handler(&req, &why);
        after = reply_finish(&req, r, &why);
        tell_done(&req, r);
    }
    log_request_set(NULL);
    request_done(&req);
    return after;
}

void http_request_adopt(const struct http_request *req)
{
    struct log_request of = {0};
    struct traceparent parent;

    log_request_identify(&of, http_request_header(req, "X-Request-Id"));
    if (traceparent_parse(http_request_header(req, "traceparent"), &parent) == 0) {
        snprintf(of.trace, sizeof(of.trace), "%s", parent.trace);
        snprintf(of.span, sizeof(of.span), "%s", parent.span);
    }
    log_request_set(&of);
}

/* ---- accessors ---- */

void *http_request_ctx(const struct http_request *req)
{
    return req->server->opts.ctx;
}

const char *http_request_method(const struct http_request *req)
{
    return req->method;
}

const char *http_request_path(const struct http_request *req)
{
    return req->path;
}

const char *http_request_query_raw(const struct http_request *req)
{
    return req->query;
}

const char *http_request_host(const struct http_request *req)
{
    return req->host;
}

const struct http_headers *http_request_headers(const struct http_request *req)
{
    return &req->headers;
}

const char *http_request_header(const struct http_request *req, const char *name)
{
    return http_headers_get(&req->headers, name);
}

bool http_request_secure(const struct http_request *req)
{
    return req->conn->secure;
}

bool http_request_peer(const struct http_request *req, struct ucred *ret)
{
    if (req->conn->has_peer) {
        *ret = req->conn->peer;
    }
    return req->conn->has_peer;
}

const char *http_request_peer_name(const struct http_request *req)
{
    return req->conn->peer_name;
}

bool http_request_stopping(const struct http_request *req)
{
    return atomic_load(&req->server->stopping);
}

const struct http_route *http_request_route(const struct http_request *req)
{
    return req->route;
}

const char *http_request_param(const struct http_request *req, const char *name)
{
    for (size_t i = 0; i < req->n_params; i++) {
        if (str_eq(req->params[i].name, name)) {
            return req->params[i].value;
        }
    }
    ASSERT(!"the route has no such parameter");
}

void http_request_set_user(struct http_request *req, void *p, void (*destroy)(void *p))
{
    if (req->user_destroy) {
        req->user_destroy(req->user);
    }
    req->user = p;
    req->user_destroy = destroy;
}

void *http_request_user(const struct http_request *req)
{
    return req->user;
}

void http_request_io_timeout(struct http_request *req, unsigned ms)
{
    req->io_timeout_ms = ms;
}

struct io_wait request_wait(const struct http_request *req)
{
    return (struct io_wait){
        .deadline_ns = req->io_timeout_ms ? deadline_in_ms(req->io_timeout_ms) : DEADLINE_NEVER,
        .watch = {.fd = FD_NONE},
    };
}

struct pollfd http_client_pollfd(const struct http_request *req)
{
    return (struct pollfd){.fd = req->conn->io.fd, .events = POLLRDHUP};
}

bool http_client_gone(struct http_request *req)
{
    struct pollfd p = http_client_pollfd(req);

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

/* ---- query ---- */

const char *http_query_get(const struct http_request *req, const char *name)
{
    for (size_t i = 0; i < req->n_query; i++) {
        if (str_eq(req->query_pairs[i].name, name)) {
            return req->query_pairs[i].value;
        }
    }
    return NULL;
}

bool http_query_at(const struct http_request *req, size_t i, const char **ret_name,
                   const char **ret_value)
{
    if (i >= req->n_query) {
        return false;
    }
    *ret_name = req->query_pairs[i].name;
    *ret_value = req->query_pairs[i].value;
    return true;
}

int http_query_int(const struct http_request *req, const char *name,
                   struct http_query_bounds bounds, int64_t *ret, struct err *e)
{
    const char *text = http_query_get(req, name);
    bool negative = text && text[0] == '-';
    uint64_t n = 0;
    int64_t value;

    if (!text) {
        *ret = bounds.fallback;
        return 0;
    }
    if (str_to_u64(text + negative, INT64_MAX, &n) < 0) {
        return err_field(e, -EINVAL, "invalid_parameter", name, "'%s' must be a whole number",
                         name);
    }
    value = negative ? -(int64_t)n : (int64_t)n;
    if (value < bounds.min || value > bounds.max) {
        return err_field(e, -EINVAL, "invalid_parameter", name,
                         "'%s' must be between %lld and %lld", name, (long long)bounds.min,
                         (long long)bounds.max);
    }
    *ret = value;
    return 0;
}

int http_query_bool(const struct http_request *req, const char *name, bool fallback, bool *ret,
                    struct err *e)
{
    const char *text = http_query_get(req, name);

    if (!text) {
        *ret = fallback;
    } else if (str_eq(text, "1") || str_eq(text, "true") || str_eq(text, "")) {
        *ret = true;
    } else if (str_eq(text, "0") || str_eq(text, "false")) {
        *ret = false;
    } else {
        return err_field(e, -EINVAL, "invalid_parameter", name, "'%s' must be 1 or 0", name);
    }
    return 0;
}

/* ---- body ---- */

void http_body_limit(struct http_request *req, uint64_t max_bytes)
{
    ASSERT(req->in.n_read == 0);
    req->body_limit = max_bytes;
}

int64_t http_body_length(const struct http_request *req)
{
    return req->body_length;
}

static int body_error(struct http_request *req, int code, struct err *e)
{
    req->body_read_failed = true;
    switch (code) {
    case -E2BIG:
        return err_set(e, code, "body_too_large",
                       "the body is larger than the %llu bytes allowed here",
                       (unsigned long long)req->body_limit);
    case -EBADMSG:
        return err_set(e, code, "malformed_body", "the body is cut short or malformed");
    case -ETIMEDOUT:
        return err_set(e, code, "client_too_slow", "the body did not arrive in time");
    default:
        return err_set(e, -ECANCELED, "client_gone", "the client has gone while sending its body");
    }
}

/* The client sends its body only after this. */
static int send_continue(struct http_request *req, struct err *e)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct io_wait wait = request_wait(req);
    char copy[sizeof(text)];
    struct iovec iov = {copy, sizeof(text) - 1};
    int r;

    memcpy(copy, text, sizeof(text));
    req->expect_continue = false;
    if (http_reply_begun(req)) {
        return 0; /* the reply itself tells the client */
    }
    r = io_send_all(&req->conn->io, &iov, 1, &wait);
    return r < 0 ? body_error(req, r, e) : 0;
}

ssize_t request_try_read(struct http_request *req, void *data, size_t len, struct err *e)
{
    ssize_t n;

    if (req->body_length > 0 && (uint64_t)req->body_length > req->body_limit) {
        return body_error(req, -E2BIG, e);
    }
    if (req->expect_continue) {
        int r = send_continue(req, e);

        if (r < 0) {
            return r;
        }
    }
    n = in_read(&req->in, &req->conn->io, data, len);
    if (n == -EAGAIN) {
        return n;
    }
    if (n < 0) {
        return body_error(req, (int)n, e);
    }
    return req->in.n_read > req->body_limit ? body_error(req, -E2BIG, e) : n;
}

ssize_t http_body_read(struct http_request *req, void *data, size_t len, struct err *e)
{
    for (;;) {
        ssize_t n = request_try_read(req, data, len, e);
        struct io_wait wait;
        int r;

        if (n != -EAGAIN) {
            return n;
        }
        wait = request_wait(req);
        r = io_wait(&req->conn->io, POLLIN, &wait);
        if (r < 0) {
            return body_error(req, r, e);
        }
    }
}

int http_body_all(struct http_request *req, size_t max, char **ret, size_t *ret_len, struct err *e)
{
    cleanup_buf struct buf b = BUF_INIT(max + 1);
    void *room = NULL;
    ssize_t n;

    http_body_limit(req, max);
    do {
        size_t step = req->body_length >= 0
                          ? (size_t)MIN((uint64_t)req->body_length + 1, (uint64_t)max + 1)
                          : 16384;

        step = MAX(MIN(step, max + 1 - b.len), (size_t)1);
        if (buf_reserve(&b, step, &room) < 0) {
            return body_error(req, -E2BIG, e);
        }
        n = http_body_read(req, room, step, e);
        if (n < 0) {
            return (int)n;
        }
        buf_commit(&b, (size_t)n);
    } while (n > 0);
    *ret_len = b.len;
    *ret = buf_take(&b);
    return 0;
}

int http_body_json(struct http_request *req, size_t max, json_t **ret, struct err *e)
{
    cleanup_free char *text = NULL;
    size_t len = 0;
    int r = http_body_all(req, max, &text, &len, e);

    if (r < 0) {
        return r;
    }
    return len > 0 ? json_parse_untrusted(text, len, ret, e) : json_parse_object("{}", 2, ret, e);
}
