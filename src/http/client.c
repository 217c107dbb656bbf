/* SPDX-License-Identifier: Apache-2.0 */
#include "http/client-internal.h"

#include "base/json.h"
#include "base/log.h"
#include "wire/traceparent.h"

#include <stdio.h>
#include <string.h>

/* One piece of a streamed body, which is one chunk. */
#define SEND_PIECE (128u * 1024)
/* A server may send so many answers of 1xx before the final one. */
#define MAX_INTERIM 16u
#define ERROR_BODY_MAX (64u * 1024)
#define JSON_BODY_MAX (64u * 1024 * 1024)

static uint64_t deadline_or_never(uint64_t deadline_ns)
{
    return deadline_ns ? deadline_ns : DEADLINE_NEVER;
}

/* ---- sending the head ---- */

static const char *framing_fields(const struct http_call_opts *o, const char *method, char *text,
                                  size_t size)
{
    bool wants_length = str_eq(method, "POST") || str_eq(method, "PUT") || str_eq(method, "PATCH");

    if (o->body_length == HTTP_BODY_STREAM) {
        return "Transfer-Encoding: chunked\r\n";
    }
    if (o->body_length > 0 || wants_length) {
        snprintf(text, size, "Content-Length: %lld\r\n", (long long)o->body_length);
        return text;
    }
    return "";
}

static int print_headers(struct buf *b, const struct http_headers *h,
                         const struct http_headers *over)
{
    int r = 0;

    for (size_t i = 0; r == 0 && h && i < h->n; i++) {
        if (!over || !http_headers_get(over, h->v[i].name)) {
            r = http1_print_field(b, h->v[i].name, h->v[i].value);
        }
    }
    return r;
}

static bool given(const struct http_client *c, const struct http_call_opts *o, const char *name)
{
    return http_headers_get(&c->fixed, name) || (o->headers && http_headers_get(o->headers, name));
}

/* Which request of a client of ours this call is for. */
static int print_request(const struct http_client *c, const struct http_call_opts *o, struct buf *b)
{
    const struct log_request *request = log_request();
    char text[TRACEPARENT_SIZE];
    int r = 0;

    if (request->id[0] && !given(c, o, "X-Request-Id")) {
        r = http1_print_field(b, "X-Request-Id", request->id);
    }
    if (r == 0 && request->trace[0] && !given(c, o, "traceparent")) {
        traceparent_print(request->trace, request->span, text);
        r = http1_print_field(b, "traceparent", text);
    }
    return r;
}

static int print_head(struct http_client *c, const struct http_call_opts *o, struct buf *b)
{
    const char *method = o->method ? o->method : "GET";
    bool based = c->url.scheme != URL_UNIX && c->url.path[0];
    cleanup_free char *target = xasprintf("%s%s", based ? c->url.path : "", o->target);
    char length[48];
    int r = http1_print_request(b, method, target);

    if (r == 0 && !given(c, o, "Host")) {
        r = http1_print_field(b, "Host", c->host_field);
    }
    if (r == 0 && !o->over && !given(c, o, "User-Agent")) {
        r = http1_print_field(b, "User-Agent", "space/" SPACE_VERSION);
    }
    if (r == 0 && c->opts.tells_request) {
        r = print_request(c, o, b);
    }
    if (r == 0) {
        r = print_headers(b, &c->fixed, o->headers);
    }
    if (r == 0) {
        r = print_headers(b, o->headers, /* over */ NULL);
    }
    if (r == 0 && o->content_type) {
        r = http1_print_field(b, "Content-Type", o->content_type);
    }
    if (r == 0) {
        r = buf_add_str(b, framing_fields(o, method, length, sizeof(length)));
    }
    return r == 0 ? http1_print_end(b) : r;
}

static bool is_idempotent(const char *method)
{
    static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"};

    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        if (str_eq(methods[i], method)) {
            return true;
        }
    }
    return false;
}

/* ---- steps without waiting ---- */

static bool is_broken(int code)
{
    return code == -EPIPE || code == -ECONNRESET || code == -ENOTCONN;
}

static int call_error(struct http_call *call, int code, const char *what, struct err *e)
{
    const char *server =
        call->client->url.scheme == URL_UNIX ? call->client->url.path : call->client->host_field;

    return err_wrap(e, code, "%s %s", what, server);
}

/* Puts the call on a new connection with nothing sent. */
static int start_again(struct http_call *call, struct err *e)
{
    int r;

    client_conn_free(call->conn);
    call->conn = NULL;
    r = client_acquire(call->client, /* fresh */ true, &call->wait, &call->conn, &call->reused, e);
    if (r < 0) {
        return r;
    }
    buf_reset(&call->out.head);
    call->sent = false;
    call->scan = (struct http1_scan){0};
    return buf_add(&call->out.head, call->head.data, call->head.len);
}

int call_try_send(struct http_call *call, struct out_data d, struct err *e)
{
    for (;;) {
        struct http_out before =
            call->out; /* counters only: nothing is pending, the head stays until sent */
        int r;

        if (!call->conn) {
            return err_set(e, -EPIPE, "connection_lost", "the connection is closed");
        }
        r = out_try_write(&call->out, &call->conn->io, d);
        if (r == 0) {
            call->sent = true;
            return 0;
        }
        if (call->sent || !call->reused || !is_broken(r)) {
            return call_error(call, is_broken(r) ? -EPIPE : r, "sending to", e);
        }
        call->out.left = before.left;
        call->out.n_written = before.n_written;
        call->out.done = before.done;
        r = start_again(call, e);
        if (r < 0) {
            return r;
        }
    }
}

static void take_answer(struct http_call *call, const struct http1_head *head)
{
    char name[256];
    cleanup_free char *value = NULL;

    call->status = (int)head->status;
    call->length = head->has_length ? (int64_t)head->content_length : -1;
    call->keep_alive = head->keep_alive;
    for (size_t i = 0; i < head->n_fields; i++) {
        const struct http1_field *f = &head->fields[i];

        if (f->name.len >= sizeof(name)) {
            continue; /* no name we would ask for */
        }
        *(char *)mempcpy(name, f->name.p, f->name.len) = '\0';
        free(value);
        value = xstrndup(f->value.p, f->value.len);
        http_headers_add(&call->headers, name, value);
    }
    in_init(&call->in, head->framing, head->content_length);
    if (head->framing == HTTP1_BODY_NONE && !call->head_method && head->status != 304) {
        call->length = 0;
    }
    call->head_done = true;
}

/* A complete head is in the buffer. 0: it was the final one. */
static int parse_answer(struct http_call *call, size_t head_len, struct err *e)
{
    struct http_io *io = &call->conn->io;
    struct http1_head head;
    enum http1_error why = http1_parse_response(io_data(io), head_len, call->head_method, &head);
    bool interim;

    if (why != HTTP1_OK) {
        return err_set(e, -EBADMSG, "bad_answer", "the server's answer is malformed: %s",
                       http1_error_text(why));
    }
    interim = head.status < 200 && !(head.status == 101 && call->upgrade);
    if (head.status == 101 && !call->upgrade) {
        return err_set(e, -EBADMSG, "bad_answer",
                       "the server changed the protocol without being asked");
    }
    if (!interim) {
        take_answer(call, &head);
    }
    io_consume(io, head_len);
    call->scan = (struct http1_scan){0};
    if (interim && ++call->n_interim > MAX_INTERIM) {
        return err_set(e, -EBADMSG, "bad_answer", "the server never comes to its final answer");
    }
    return interim ? -EAGAIN : 0;
}

int call_try_head(struct http_call *call, struct err *e)
{
    while (!call->head_done) {
        struct http_io *io;
        size_t head_len = 0;
        ssize_t n;
        int r;

        if (!call->conn) {
            return err_set(e, -ECONNRESET, "connection_lost", "the connection is closed");
        }
        io = &call->conn->io;
        r = http1_scan(&call->scan, io->in_len ? io_data(io) : "", io->in_len, &head_len);
        if (r == -E2BIG) {
            return err_set(e, -EBADMSG, "bad_answer",
                           "the head of the server's answer is too large");
        }
        if (r == 0) {
            r = parse_answer(call, head_len, e);
            if (r < 0 && r != -EAGAIN) {
                return r;
            }
            continue;
        }
        n = io_fill(io, HTTP1_MAX_HEAD);
        if (n == -EAGAIN) {
            return -EAGAIN;
        }
        if (n <= 0) {
            return call_error(call, n == 0 ? -ECONNRESET : (int)n, "waiting for the answer of", e);
        }
        call->answered = true;
    }
    return 0;
}

/* The exchange is complete: the connection is free for another call. */
static void give_back(struct http_call *call)
{
    if (call->conn && call->in.done && call->out.done && call->out.pending.len == 0 &&
        call->keep_alive && !call->upgrade && !call->over) {
        client_release_take(call->client, TAKE_PTR(call->conn));
    }
}

ssize_t http_call_try_read(struct http_call *call, void *data, size_t len, struct err *e)
{
    ssize_t n;
    int r = call_try_head(call, e);

    if (r < 0) {
        return r;
    }
    if (call->in.done) {
        give_back(call);
        return 0;
    }
    if (!call->conn) {
        return err_set(e, -ECONNRESET, "connection_lost", "the connection is closed");
    }
    n = in_read(&call->in, &call->conn->io, data, len);
    if (n == -EBADMSG) {
        return err_set(e, -EBADMSG, "answer_cut", "the answer was cut short or is malformed");
    }
    if (n < 0 && n != -EAGAIN) {
        return call_error(call, (int)n, "reading the answer of", e);
    }
    if (call->in.done) {
        give_back(call);
    }
    return n;
}

/* ---- steps that wait ---- */

static int call_wait(struct http_call *call, short events, struct err *e)
{
    int r = call->conn ? io_wait(&call->conn->io, events, &call->wait) : -ENOTCONN;

    if (r == -ETIMEDOUT) {
        return err_set(e, r, "timed_out", "the server did not answer in time");
    }
    if (r == -ECANCELED) {
        return err_set(e, r, "client_gone", "the call was given up");
    }
    return r < 0 ? call_error(call, r, "waiting for", e) : 0;
}

/* Until all that is pending is sent, or an answer makes it pointless. */
static int flush(struct http_call *call, struct err *e)
{
    int r = call->conn ? out_try_flush(&call->out, &call->conn->io) : -EPIPE;

    while (r == -EAGAIN) {
        r = call_wait(call, (short)(POLLOUT | (call->head_done ? 0 : POLLIN)), e);
        if (r < 0) {
            return r;
        }
        r = call_try_head(call, e);
        if (r < 0 && r != -EAGAIN) {
            return r;
        }
        if (r == 0 && call->status >= 400) {
            return err_set(e, -EPIPE, "answered_early",
                           "the server refused before the body was over");
        }
        r = out_try_flush(&call->out, &call->conn->io);
    }
    return r < 0 ? call_error(call, r, "sending to", e) : 0;
}

static int send_data(struct http_call *call, struct out_data d, struct err *e)
{
    const char *p = d.data;
    size_t left = d.len;

    do {
        size_t n = MIN(left, (size_t)SEND_PIECE);
        int r = call_try_send(call, (struct out_data){p, n, d.end && n == left}, e);

        if (r == 0) {
            r = flush(call, e);
        }
        if (r < 0) {
            return r;
        }
        p = p ? p + n : NULL;
        left -= n;
    } while (left > 0);
    return 0;
}

static void take_connection(struct http_call *call, struct http_io *over)
{
    if (over) {
        call->over = true;
        call->conn = xnew(struct client_conn);
        call->conn->io = *over;
        *over = (struct http_io){.fd = FD_NONE};
    }
}

int http_call_new(struct http_client *c, const struct http_call_opts *o, struct http_call **ret,
                  struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = xnew(struct http_call);
    const char *method = o->method ? o->method : "GET";
    int r;

    ASSERT(o->target && o->body_length >= HTTP_BODY_STREAM);
    take_connection(call, o->over);
    call->client = c;
    call->wait.deadline_ns = deadline_or_never(o->deadline_ns);
    call->wait.watch = o->watch ? *o->watch : (struct pollfd){.fd = FD_NONE};
    call->head_method = str_eq(method, "HEAD");
    call->repeatable = o->body_length == HTTP_BODY_NONE && is_idempotent(method);
    call->length = -1;
    call->head = BUF_INIT(HTTP1_MAX_HEAD);
    call->upgrade = o->headers && http_headers_has_token(o->headers, "Connection", "upgrade");
    out_init(&call->out);
    r = print_head(c, o, &call->head);
    if (r == -EINVAL) {
        return err_set(e, r, "invalid_request", "the request '%s %s' cannot be sent as it is",
                       method, o->target);
    }
    if (r < 0) {
        return err_set(e, r, "head_too_large", "the head of the request is larger than %u bytes",
                       HTTP1_MAX_HEAD);
    }
    if (!call->conn) {
        r = client_acquire(c, /* fresh */ false, &call->wait, &call->conn, &call->reused, e);
        if (r < 0) {
            return r;
        }
    }
    r = buf_add(&call->out.head, call->head.data, call->head.len);
    ASSERT(r == 0);
    out_begin(&call->out,
              o->body_length == HTTP_BODY_STREAM ? HTTP1_BODY_CHUNKED
              : o->body_length > 0               ? HTTP1_BODY_LENGTH
                                                 : HTTP1_BODY_NONE,
              o->body_length > 0 ? (uint64_t)o->body_length : 0);
    if (o->body_length == HTTP_BODY_NONE) {
        r = send_data(call, (struct out_data){.end = true}, e);
        if (r < 0) {
            return r;
        }
    }
    *ret = TAKE_PTR(call);
    return 0;
}

void http_call_free(struct http_call *call)
{
    if (!call) {
        return;
    }
    if (call->head_done && call->in.done) {
        give_back(call);
    }
    client_conn_free(call->conn);
    out_done(&call->out);
    buf_done(&call->head);
    http_headers_done(&call->headers);
    free(call);
}

int http_call_write(struct http_call *call, const void *data, size_t len, struct err *e)
{
    return len > 0 ? send_data(call, (struct out_data){data, len, /* end */ false}, e) : 0;
}

int http_call_end(struct http_call *call, struct err *e)
{
    return call->out.done ? 0 : send_data(call, (struct out_data){.end = true}, e);
}

int call_try_repeat(struct http_call *call, int code, struct err *e)
{
    int r;

    if (!is_broken(code) || !call->reused || call->answered || !call->repeatable) {
        return code;
    }
    call->out.done = false;
    r = start_again(call, e);
    return r == 0 ? call_try_send(call, (struct out_data){.end = true}, e) : r;
}

int http_call_head(struct http_call *call, struct err *e)
{
    int r = call->sent ? 0 : send_data(call, (struct out_data){0}, e);

    while (r == 0) {
        r = call_try_head(call, e);
        if (r == 0) {
            return 0;
        }
        r = r == -EAGAIN ? call_wait(call, POLLIN, e) : call_try_repeat(call, r, e);
        if (r == 0 && call->out.pending.len > 0) {
            r = flush(call, e);
        }
    }
    return r;
}

int http_call_status(const struct http_call *call)
{
    return call->status;
}

const struct http_headers *http_call_headers(const struct http_call *call)
{
    return &call->headers;
}

const char *http_call_header(const struct http_call *call, const char *name)
{
    return http_headers_get(&call->headers, name);
}

int64_t http_call_length(const struct http_call *call)
{
    return call->length;
}

void http_call_deadline(struct http_call *call, uint64_t deadline_ns)
{
    call->wait.deadline_ns = deadline_or_never(deadline_ns);
}

ssize_t http_call_read(struct http_call *call, void *data, size_t len, struct err *e)
{
    int r = http_call_head(call, e);

    while (r == 0) {
        ssize_t n = http_call_try_read(call, data, len, e);

        if (n != -EAGAIN) {
            return n;
        }
        r = call_wait(call, POLLIN, e);
    }
    return r;
}

struct pollfd http_call_pollfd(const struct http_call *call)
{
    if (!call->conn) {
        return (struct pollfd){.fd = FD_NONE};
    }
    return io_pollfd(&call->conn->io, POLLIN);
}

int http_call_all(struct http_call *call, size_t max, char **ret, size_t *ret_len, struct err *e)
{
    cleanup_buf struct buf b = BUF_INIT(max + 1);
    void *room = NULL;
    ssize_t n;

    do {
        size_t step = MAX(MIN(max + 1 - b.len, (size_t)32768), (size_t)1);

        if (b.len > max || buf_reserve(&b, step, &room) < 0) {
            return err_set(e, -E2BIG, "answer_too_large", "the answer is larger than %zu bytes",
                           max);
        }
        n = http_call_read(call, room, step, e);
        if (n < 0) {
            return (int)n;
        }
        buf_commit(&b, (size_t)n);
    } while (n > 0);
    *ret_len = b.len;
    *ret = buf_take(&b);
    return 0;
}

/* ---- JSON ---- */

int http_call_check(struct http_call *call, struct err *e)
{
    cleanup_free char *text = NULL;
    cleanup_json json_t *json = NULL;
    json_t *error = NULL;
    char plain[80];
    const char *field;
    size_t len = 0;
    int r = http_call_head(call, e);

    if (r < 0 || call->status < 400) {
        return r;
    }
    if (http_call_all(call, ERROR_BODY_MAX, &text, &len, NULL) == 0 &&
        json_parse_untrusted(text, len, &json, NULL) == 0) {
        error = json_object_get(json, "error");
    }
    snprintf(plain, sizeof(plain), "the server answered %d %s", call->status,
             http1_status_text((unsigned)call->status));
    if (!json_is_object(error)) {
        return err_from_http(e, call->status, NULL, plain);
    }
    r = err_from_http(e, call->status, json_get_string(error, "code", NULL),
                      json_get_string(error, "message", plain));
    field = json_get_string(error, "field", NULL);
    if (field && e) {
        snprintf(e->field, sizeof(e->field), "%s", field);
    }
    return r;
}

static int send_json(struct http_client *c, const struct http_json_opts *o, const char *text,
                     struct http_call **ret, struct err *e)
{
    struct http_call_opts call_opts = {
        .method = o->method,
        .target = o->target,
        .headers = o->headers,
        .body_length = text ? (int64_t)strlen(text) : HTTP_BODY_NONE,
        .content_type = text ? "application/json" : NULL,
        .deadline_ns = o->deadline_ns,
        .watch = o->watch,
    };
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    int r = http_call_new(c, &call_opts, &call, e);

    if (r == 0 && text) {
        r = send_data(call, (struct out_data){text, strlen(text), /* end */ true}, e);
        if (r == -EPIPE) {
            r = 0; /* the answer may say why */
        }
    }
    if (r == 0) {
        *ret = TAKE_PTR(call);
    }
    return r;
}

int http_client_json(struct http_client *c, const struct http_json_opts *o, json_t **ret,
                     struct err *e)
{
    cleanup_free char *body = o->body ? json_text(o->body) : NULL;
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *text = NULL;
    cleanup_json json_t *json = NULL;
    size_t len = 0;
    int r = send_json(c, o, body, &call, e);

    if (r == 0) {
        r = http_call_check(call, e);
    }
    if (call && o->ret_status) {
        *o->ret_status = call->status;
    }
    if (r == 0) {
        r = http_call_all(call, JSON_BODY_MAX, &text, &len, e);
    }
    if (r == 0 && len > 0 && ret) {
        r = json_parse_any(text, len, &json, NULL);
        if (r < 0) {
            r = err_set(e, -EBADMSG, "bad_answer", "the server's answer is not JSON");
        }
    }
    if (r == 0 && ret) {
        *ret = TAKE_PTR(json);
    }
    return r;
}
