/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the daemon's parts answer requests.
 *
 * The daemon is one thread around one epoll loop. A handler never blocks: it is called when the head
 * of a request is there, keeps what it needs in its own state (request_set_state), and goes on when one of
 * its callbacks or a loop event says so. The life of a request:
 *
 *     handler(req)            once, when the head is there (ROUTE_BODY_JSON: when the whole body is there and
 *                             is a JSON object). It answers at once, or sets callbacks and returns.
 *     on_readable(req)        body bytes have come, or the body has ended: call request_body_peek and
 *                             request_body_consume as far as you can. What is not consumed stays in a bounded
 *                             buffer and holds the sender back (flow control); no further call comes for it
 *                             until more arrives, so whoever leaves bytes behind peeks again by itself when
 *                             its own side can take more.
 *     on_writable(req)        after request_write took less than offered: there is room again.
 *     on_close(req)           exactly once, and last: the answer has been sent whole, or the peer or the
 *                             channel is gone, or the request was aborted. Free the state here. After it
 *                             returns req is no longer valid.
 *
 * No callback runs inside a call that the handler makes: request_write, request_end, request_abort, ...
 * return before any on_writable or on_close is called. So a handler may touch its state after them.
 *
 * Every request that reaches a handler ends in exactly one of: request_reply_*, request_end, request_abort,
 * or the peer going away. Ending the answer before the request body has been read is allowed; the rest of
 * the body is thrown away.
 *
 * Bytes are bytes: path captures and query values come percent-decoded with their length and may hold
 * anything except NUL (a NUL in them is refused with 400 before the handler is called).
 */
#pragma once

#include "base/err.h"
#include "base/util.h"

#include <jansson.h>
#include <sys/types.h>

/* Most bytes of a request body that wait for one handler: the stream's flow control window. */
#define REQUEST_BODY_BUFFER (256u * 1024)
/* Most bytes of an answer that wait for the channel, per request. */
#define REQUEST_OUT_BUFFER (256u * 1024)
/* Largest JSON body of a ROUTE_BODY_JSON route. */
#define REQUEST_JSON_MAX (256u * 1024)
#define ROUTE_CAPTURES_MAX 2

struct daemon;
struct request;

enum {
    /* The body is collected (at most REQUEST_JSON_MAX), must be a JSON object, and is request_json(). */
    ROUTE_BODY_JSON = 1u << 0,
    /* Answered 409 "not_ready" by the router until a sandbox has been set up (workload root entered). */
    ROUTE_NEEDS_WORKLOAD = 1u << 1,
    /* Does not count as activity of the client (health, metrics, set-up). */
    ROUTE_QUIET = 1u << 2,
};

struct route {
    const char *method;  /* "GET"; static */
    const char *pattern; /* "/commands/{id}/output": {x} is one non-empty segment; static */
    unsigned flags;
    void (*handler)(struct request *req);
};

struct request_callbacks {
    void (*on_readable)(struct request *req); /* may be NULL: the body is thrown away */
    void (*on_writable)(struct request *req); /* may be NULL */
    void (*on_close)(struct request *req);    /* may be NULL */
};

struct request_header {
    const char *name; /* lower case; borrowed for the call */
    const char *value;
};

/* ---- what was asked; all borrowed: live as long as the request ---- */
struct daemon *request_daemon(const struct request *req);
const char *request_method(const struct request *req);
/* The value of the n-th {x} of the pattern. */
const char *request_capture(const struct request *req, size_t n);
/* The first query value of this name, decoded; "" for "?name" and "?name="; NULL when absent. */
const char *request_query(const struct request *req, const char *name);
/* True for "1", "true" or an empty value; false for absent, "0", "false"; else -EINVAL with field. */
MUST_CHECK int request_query_bool(const struct request *req, const char *name, bool *ret,
                                  struct err *e);
/* Decimal, at most max; def when absent; else -EINVAL with field. */
MUST_CHECK int request_query_u64(const struct request *req, const char *name, uint64_t def,
                                 uint64_t max, uint64_t *ret, struct err *e);
/* Header value by lower-case name, NULL when absent. */
const char *request_header(const struct request *req, const char *name);
/* The body of a ROUTE_BODY_JSON route: an object (an empty body counts as {}). Borrowed. */
json_t *request_json(const struct request *req);
/* The content-length, or -1 when the client did not say. */
int64_t request_body_length(const struct request *req);

/* ---- the handler's own state ---- */
/* Callbacks may be changed at any time; the struct is copied. */
void request_set_state(struct request *req, void *state, const struct request_callbacks *callbacks);
void *request_state(const struct request *req);

/* ---- the body ---- */
/* What waits, contiguous; *len is 0 when nothing does. Valid until the next consume or return to the loop. */
const void *request_body_peek(struct request *req, size_t *ret_len);
void request_body_consume(struct request *req, size_t len);
/* True when everything the client sent has been consumed and it has said that this was all. */
bool request_body_ended(const struct request *req);

/* ---- the answer ---- */
/* A whole answer. json is taken over (also on failure). */
void request_reply_json(struct request *req, int status, json_t *json_take);
/* {"error":{...}} with err_http_status(e). */
void request_reply_error(struct request *req, const struct err *e);
/* A status without a body (204). */
void request_reply_empty(struct request *req, int status);

/* A streamed answer: begin, any number of writes, end. headers may be NULL when n is 0. */
void request_begin(struct request *req, int status, const char *content_type,
                   const struct request_header *headers, size_t n_headers);
bool request_begun(const struct request *req);
/*
 * Takes as much as there is room for and returns how much (0 to len). Less than len: on_writable is called
 * when half of the buffer is free again. Never write half a frame: see request_write_room.
 */
size_t request_write(struct request *req, const void *data, size_t len);
/* Bytes that request_write would take now. */
size_t request_write_room(const struct request *req);
/*
 * For read(2) straight into the answer: at most want bytes of room, contiguous; *ret_len is how many (0: full,
 * on_writable follows). Then request_write_commit what was filled.
 */
void *request_write_reserve(struct request *req, size_t want, size_t *ret_len);
void request_write_commit(struct request *req, size_t len);
/* The answer is complete; what was written is still sent. */
void request_end(struct request *req);
/* The answer cannot be completed: the client sees a broken stream, never a short but "whole" one. */
void request_abort(struct request *req);
