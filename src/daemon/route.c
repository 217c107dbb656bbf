/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/route.h"

#include "base/json.h"
#include "channel/guest.h"
#include "daemon/module.h"
#include "daemon/server.h"
#include "daemon/target.h"

#include <string.h>

struct request {
    struct daemon *daemon;       /* borrowed: lives longer */
    struct guest_stream *stream; /* borrowed: lives until request_closed */
    const struct route *route;   /* static; NULL until one fits */
    struct target target;
    const char *captures[ROUTE_CAPTURES_MAX]; /* borrowed: target */
    struct buf body;                          /* of a ROUTE_BODY_JSON route */
    json_t *json;                             /* owned */
    void *state;                              /* borrowed: the handler's */
    struct request_callbacks callbacks;
    bool handled; /* the handler was called */
    bool begun;
    bool counted; /* in activity.n_open */
};

/* ---- what was asked ---- */

struct daemon *request_daemon(const struct request *req)
{
    return req->daemon;
}

const char *request_method(const struct request *req)
{
    return guest_stream_method(req->stream);
}

const char *request_capture(const struct request *req, size_t n)
{
    ASSERT(n < ROUTE_CAPTURES_MAX && req->captures[n]);
    return req->captures[n];
}

const char *request_query(const struct request *req, const char *name)
{
    return target_param(&req->target, name);
}

int request_query_bool(const struct request *req, const char *name, bool *ret, struct err *e)
{
    const char *value = request_query(req, name);

    if (!value || str_eq(value, "0") || str_eq(value, "false")) {
        *ret = false;
    } else if (str_eq(value, "") || str_eq(value, "1") || str_eq(value, "true")) {
        *ret = true;
    } else {
        return err_field(e, -EINVAL, "invalid_request", name, "'%s' must be 0 or 1", name);
    }
    return 0;
}

int request_query_u64(const struct request *req, const char *name, uint64_t def, uint64_t max,
                      uint64_t *ret, struct err *e)
{
    const char *value = request_query(req, name);

    if (!value) {
        *ret = def;
        return 0;
    }
    if (str_to_u64(value, max, ret) < 0) {
        return err_field(e, -EINVAL, "invalid_request", name,
                         "'%s' must be a number from 0 to %llu", name, (unsigned long long)max);
    }
    return 0;
}

const char *request_header(const struct request *req, const char *name)
{
    return guest_stream_header(req->stream, name);
}

json_t *request_json(const struct request *req)
{
    ASSERT(req->json);
    return req->json;
}

int64_t request_body_length(const struct request *req)
{
    const char *value = request_header(req, "content-length");
    uint64_t n;

    return value && str_to_u64(value, INT64_MAX, &n) == 0 ? (int64_t)n : -1;
}

void request_set_state(struct request *req, void *state, const struct request_callbacks *callbacks)
{
    req->state = state;
    req->callbacks = callbacks ? *callbacks : (struct request_callbacks){0};
}

void *request_state(const struct request *req)
{
    return req->state;
}

/* ---- the body ---- */

const void *request_body_peek(struct request *req, size_t *ret_len)
{
    return guest_stream_peek(req->stream, ret_len);
}

void request_body_consume(struct request *req, size_t len)
{
    guest_stream_consume(req->stream, len);
    if (req->counted) {
        daemon_touch(req->daemon);
    }
}

bool request_body_ended(const struct request *req)
{
    return guest_stream_ended(req->stream);
}

/* ---- the answer ---- */

static void reply(struct request *req, int status, const char *content_type, const char *text,
                  size_t len)
{
    struct guest_response r = {
        .status = status, .content_type = content_type, .length = (int64_t)len};

    ASSERT(!req->begun);
    req->begun = true;
    guest_stream_respond(req->stream, &r);
    guest_stream_discard(req->stream);
    if (len == 0) {
        return;
    }
    if (guest_stream_write(req->stream, text, len) < len) {
        guest_stream_abort(req->stream); /* the client has gone: all answers fit */
        return;
    }
    guest_stream_end(req->stream);
}

void request_reply_json(struct request *req, int status, json_t *json_take)
{
    cleanup_buf struct buf text = BUF_INIT(REQUEST_OUT_BUFFER - 1024);
    struct err e = {0};
    int r = json_take ? json_write(json_take, &text) : -ENOMEM;

    json_decref(json_take);
    if (r < 0) {
        err_set(&e, -E2BIG, "answer_too_large", "the answer is too large; ask for less at a time");
        request_reply_error(req, &e);
        return;
    }
    reply(req, status, "application/json", text.data, text.len);
}

void request_reply_error(struct request *req, const struct err *e)
{
    cleanup_json json_t *json = json_error_object(e);
    cleanup_free char *text = json_text(json);

    reply(req, str_eq(e->reason, "method_not_allowed") ? 405 : err_http_status(e),
          "application/json", text, strlen(text));
}

void request_reply_empty(struct request *req, int status)
{
    reply(req, status, /* content_type */ NULL, "", 0);
}

void request_begin(struct request *req, int status, const char *content_type,
                   const struct request_header *headers, size_t n_headers)
{
    struct guest_header_ref refs[GUEST_HEADERS_MAX];
    struct guest_response r = {
        .status = status, .content_type = content_type, .length = -1, .headers = refs};

    ASSERT(!req->begun && n_headers <= ARRAY_SIZE(refs));
    for (size_t i = 0; i < n_headers; i++) {
        if (str_eq(headers[i].name, "content-length")) { /* said in one way only */
            uint64_t n;

            r.length = str_to_u64(headers[i].value, INT64_MAX, &n) == 0 ? (int64_t)n : -1;
            continue;
        }
        refs[r.n_headers++] = (struct guest_header_ref){headers[i].name, headers[i].value};
    }
    req->begun = true;
    guest_stream_respond(req->stream, &r);
}

bool request_begun(const struct request *req)
{
    return req->begun;
}

size_t request_write(struct request *req, const void *data, size_t len)
{
    if (req->counted) {
        daemon_touch(req->daemon);
    }
    return guest_stream_write(req->stream, data, len);
}

size_t request_write_room(const struct request *req)
{
    return guest_stream_room(req->stream);
}

void *request_write_reserve(struct request *req, size_t want, size_t *ret_len)
{
    return guest_stream_reserve(req->stream, want, ret_len);
}

void request_write_commit(struct request *req, size_t len)
{
    if (req->counted) {
        daemon_touch(req->daemon);
    }
    guest_stream_commit(req->stream, len);
}

void request_end(struct request *req)
{
    guest_stream_discard(req->stream);
    guest_stream_end(req->stream);
}

void request_abort(struct request *req)
{
    guest_stream_discard(req->stream);
    guest_stream_abort(req->stream);
}

/* ---- finding the handler ---- */

static int route_find(struct request *req, struct err *e)
{
    bool path_known = false;

    for (size_t i = 0; i < n_daemon_modules; i++) {
        for (size_t k = 0; k < daemon_modules[i]->n_routes; k++) {
            const struct route *route = &daemon_modules[i]->routes[k];
            const char *captures[ROUTE_CAPTURES_MAX] = {0};

            if (!target_matches(&req->target, route->pattern, captures)) {
                continue;
            }
            path_known = true;
            if (str_eq(route->method, request_method(req))) {
                memcpy(req->captures, captures, sizeof(captures));
                req->route = route;
                return 0;
            }
        }
    }
    if (path_known) {
        return err_set(e, -EOPNOTSUPP, "method_not_allowed", "%s is not possible here",
                       request_method(req));
    }
    return err_set(e, -ENOENT, "not_found", "there is nothing at this path");
}

static int request_accept(struct request *req, struct err *e)
{
    int r;

    if (guest_stream_head_too_large(req->stream)) {
        return err_set(e, -E2BIG, "too_large", "the request's head is too large");
    }
    r = target_parse(guest_stream_target(req->stream), &req->target, e);
    if (r == 0) {
        r = route_find(req, e);
    }
    if (r < 0) {
        return r;
    }
    if ((req->route->flags & ROUTE_NEEDS_WORKLOAD) && !workload_ready(req->daemon->workload)) {
        return err_set(e, -EBUSY, "not_ready", "the sandbox has not been set up yet");
    }
    return 0;
}

static void request_handle(struct request *req)
{
    req->handled = true;
    req->route->handler(req);
}

void request_open(struct daemon *d, struct guest_stream *stream)
{
    struct request *req = xnew(struct request);
    struct err e = {0};

    req->daemon = d;
    req->stream = stream;
    req->body = BUF_INIT(REQUEST_JSON_MAX);
    guest_stream_set_user(stream, req);
    if (request_accept(req, &e) < 0) {
        request_reply_error(req, &e);
        return;
    }
    if (!(req->route->flags & ROUTE_QUIET)) {
        req->counted = true;
        d->activity.n_open++;
        d->activity.n_requests++;
        daemon_touch(d);
    }
    if (!(req->route->flags & ROUTE_BODY_JSON)) {
        request_handle(req);
    }
}

/* Collects a JSON body; when it is whole, parses and calls the handler. */
static void request_collect(struct request *req)
{
    struct err e = {0};
    size_t len = 0;
    const void *data = request_body_peek(req, &len);
    int r = buf_add(&req->body, data, len);

    if (r < 0) {
        err_set(&e, -E2BIG, "too_large", "the body may have at most %u bytes", REQUEST_JSON_MAX);
        request_reply_error(req, &e);
        return;
    }
    request_body_consume(req, len);
    if (!request_body_ended(req)) {
        return;
    }
    if (req->body.len == 0) {
        req->json = json_object();
    } else if (json_parse_object(req->body.data, req->body.len, &req->json, &e) < 0) {
        request_reply_error(req, &e);
        return;
    }
    buf_done(&req->body);
    request_handle(req);
}

void request_body_came(struct guest_stream *stream)
{
    struct request *req = guest_stream_user(stream);

    if (!req->handled) {
        if (!req->begun) {
            request_collect(req);
        }
    } else if (req->callbacks.on_readable) {
        req->callbacks.on_readable(req);
    } else {
        guest_stream_discard(stream);
    }
}

void request_room_came(struct guest_stream *stream)
{
    struct request *req = guest_stream_user(stream);

    if (req->callbacks.on_writable) {
        req->callbacks.on_writable(req);
    }
}

void request_closed(struct guest_stream *stream)
{
    struct request *req = guest_stream_user(stream);

    if (req->callbacks.on_close) {
        req->callbacks.on_close(req);
    }
    if (req->counted) {
        req->daemon->activity.n_open--;
        daemon_touch(req->daemon);
    }
    target_done(&req->target);
    buf_done(&req->body);
    json_decref(req->json);
    free(req);
}
