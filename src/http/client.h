/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocking HTTP client of services and CLI: one struct http_client per server (address, TLS
 * context, pool of idle connections; thread-safe), one struct http_call per request (one thread at
 * a time).
 *
 *     CLEANUP(http_call_freep) struct http_call *call = NULL;
 *
 *     struct http_call_opts o = {.method = "GET", .target = "/v1/health"};
 *
 *     r = http_call_new(client, &o, &call, e);
 *     r = http_call_head(call, e);                 // waits for the status and fields
 *     n = http_call_read(call, data, sizeof(data), e);
 *
 * For a request with a body: body_length >= 0, or -1 for a streamed one of unknown length;
 * http_call_write*, http_call_end, then http_call_head. The answer may come before the body is
 * over: http_call_write then fails with -EPIPE only if the server also stopped reading; ask
 * http_call_head in any case, it may explain.
 *
 * Connection reuse: a call returns its connection to the pool when the answer was read to its end
 * and the server keeps it alive. A pooled connection may have been closed by the server meanwhile:
 * if it turns out dead before any byte of the answer arrived, a call without a body and with a safe
 * or idempotent method (GET, HEAD, PUT, DELETE without body, OPTIONS) is repeated once on a new
 * connection; others are repeated only if nothing was sent at all. A connection that is readable
 * while idle is never used.
 *
 * Deadlines are absolute (CLOCK_MONOTONIC, clock_now_ns()); 0 means none. deadline_ns bounds the
 * whole call. `watch` lets a call end early: when that descriptor becomes ready (e.g.
 * http_client_pollfd: the client we work for has gone), every blocking step fails with -ECANCELED.
 *
 * Codes meant for callers: -ECONNREFUSED (nobody listens; also when the socket's file is not
 * there), -ETIMEDOUT, -ECANCELED, -ECONNRESET (broke on the way), -EBADMSG (not HTTP, or
 * truncated), -E2BIG. Whatever keeps us from connecting has the reason "unavailable", so that it is
 * never taken for an answer of the server.
 */
#pragma once

#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/util.h"
#include "http/headers.h"

struct http_client;
struct http_tls;
struct http_call;
struct http_io;

#define HTTP_BODY_NONE 0
#define HTTP_BODY_STREAM (-1)

struct http_client_opts {
    unsigned max_idle;           /* kept connections (8) */
    unsigned connect_timeout_ms; /* 5000 */
    unsigned idle_timeout_ms;    /* a kept connection older than that is dropped (30000) */
    const char *ca_file;         /* https: NULL = the system's authorities */
    struct http_tls *tls; /* https: mutual (tls.h), instead of ca_file. borrowed: lives longer */
    /* May this address be connected to? For URLs that a tenant chose. NULL: all. */
    bool (*address_allowed)(const struct sockaddr *address);
    /* Of ours: each call says in X-Request-Id and traceparent for which request it is (base/log.h). */
    bool tells_request;
};

struct http_call_opts {
    const char *method; /* NULL: GET */
    const char *target; /* path and query, encoded; put behind the client's base path */
    const struct http_headers *headers; /* borrowed for the call to http_call_new; may be NULL */
    int64_t body_length;                /* HTTP_BODY_NONE, HTTP_BODY_STREAM or a length */
    const char *content_type;           /* of the body, may be NULL */
    uint64_t deadline_ns;
    const struct pollfd *watch; /* copied; may be NULL */
    /* NULL, or an open connection (tunnel.h): taken over, also on failure, and used for this call alone. */
    struct http_io *over;
};

/*
 * `url`: "http://host:port[/base]", "https://...", "unix:/path/of.sock" or "host:port". opts may be
 * NULL. -EINVAL when it cannot be read. Does not connect.
 */
MUST_CHECK int http_client_new(const char *url, const struct http_client_opts *opts,
                               struct http_client **ret, struct err *e);
/* When no call is left. */
void http_client_free(struct http_client *c);
DEFINE_CLEANUP(struct http_client *, http_client_free);
/* A field sent with every request (Authorization). Before the first call. */
void http_client_header(struct http_client *c, const char *name, const char *value);
/* Closes the idle connections (the server was restarted). */
void http_client_drop_idle(struct http_client *c);

/*
 * Connects or takes a kept connection and sends the head (with a body: the head leaves together
 * with the first write).
 */
MUST_CHECK int http_call_new(struct http_client *c, const struct http_call_opts *opts,
                             struct http_call **ret, struct err *e);
/* At any time. An unfinished call closes its connection: the server sees that we are gone. */
void http_call_free(struct http_call *call);
DEFINE_CLEANUP(struct http_call *, http_call_free);

MUST_CHECK int http_call_write(struct http_call *call, const void *data, size_t len, struct err *e);
MUST_CHECK int http_call_end(struct http_call *call, struct err *e);
/* Waits for the final head (1xx are skipped). May be called again. */
MUST_CHECK int http_call_head(struct http_call *call, struct err *e);
int http_call_status(const struct http_call *call);
const struct http_headers *http_call_headers(const struct http_call *call);
const char *http_call_header(const struct http_call *call, const char *name);
/* -1: not announced. */
int64_t http_call_length(const struct http_call *call);
/*
 * Up to len bytes as soon as there are some, 0 at the end. -EBADMSG when the answer was cut short.
 */
MUST_CHECK ssize_t http_call_read(struct http_call *call, void *data, size_t len, struct err *e);
/* The same without waiting: -EAGAIN when nothing is there. */
MUST_CHECK ssize_t http_call_try_read(struct http_call *call, void *data, size_t len,
                                      struct err *e);
/* The rest of the answer, NUL-terminated, at most max (-E2BIG). Caller frees. */
MUST_CHECK int http_call_all(struct http_call *call, size_t max, char **ret, size_t *ret_len,
                             struct err *e);
/* When poll says ready, use http_call_try_read until -EAGAIN before polling again. */
struct pollfd http_call_pollfd(const struct http_call *call);
void http_call_deadline(struct http_call *call, uint64_t deadline_ns);

/*
 * An answer of 4xx/5xx as an error: reads {"error":{...}} (at most 64 KiB) and sets code (a
 * negative errno that err_http_status maps back to the same status where there is one), reason and
 * sentence. 0 for other statuses.
 */
MUST_CHECK int http_call_check(struct http_call *call, struct err *e);

/*
 * One JSON exchange: body (NULL: none) is borrowed, *ret (may be NULL) is the answer or NULL when
 * it has no body. Answers of 4xx and 5xx are errors as in http_call_check.
 */
struct http_json_opts {
    const char *method;
    const char *target;
    const json_t *body;
    const struct http_headers *headers;
    uint64_t deadline_ns;
    const struct pollfd *watch;
    int *ret_status; /* may be NULL; set also when the answer is an error */
};
MUST_CHECK int http_client_json(struct http_client *c, const struct http_json_opts *opts,
                                json_t **ret, struct err *e);
