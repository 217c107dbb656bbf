/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one HTTP server of all our services.
 *
 * One thread (the caller of http_server_run) runs an epoll loop that owns every connection nobody
 * works for: it accepts, reads request heads without blocking and enforces the idle and head
 * deadlines, so a slow or silent client costs a descriptor and a buffer, never a thread. When a
 * head is complete the connection goes to a pool of threads that grows up to max_threads; there the
 * handler runs straight-line, blocking code. When it returns, the connection goes back to the loop,
 * or straight on with the next pipelined request.
 *
 *     epoll thread:  LISTEN -> HEAD -> (queue) ...      ... -> HEAD (keep-alive) | LINGER | gone
 *     pool thread:                      handler -> reply
 *
 * A handler is
 *
 *     int get_thing(struct http_request *req, struct err *e)
 *
 * It either replies and returns 0, or returns a negative errno with *e filled: when no reply was
 * begun, the server turns that into the JSON error reply (http_reply_error); when one was begun,
 * the connection is cut without the end of the body, so that the client sees a truncation and not a
 * short success. A handler that returns 0 without a reply is a bug (500, logged as an error).
 *
 * Reads and writes block until the deadline of the request's I/O: no single read or write may make
 * no progress for longer than io_timeout (http_request_io_timeout changes it). Return codes a
 * handler may act on: -ECANCELED (client gone, or it does not read), -ETIMEDOUT (its body does not
 * come), -E2BIG (body over the limit), -EBADMSG (malformed body). Passing them up is always right.
 *
 * Nothing here is specific to HTTP/1; the connection below is reached through http_request only. Where HTTP/2 is offered,
 * its streams come here as connections of their own (server-http2.h).
 * Everything about one request is called from its own thread, except http_server_stop.
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
#include "http/headers.h"

struct http_server;
struct http_request;

typedef int http_handler_fn(struct http_request *req, struct err *e);

/* What one finished request was, for logs and metrics. Borrowed for the call. */
struct http_done {
    const char *method;
    const char *path;    /* raw, as received */
    const char *pattern; /* of the matched route, NULL if none */
    int status;          /* 0: cut before a reply */
    int error;           /* what the handler returned */
    uint64_t bytes_in;   /* body bytes */
    uint64_t bytes_out;
    uint64_t duration_ns;
};

struct http_server_opts {
    http_handler_fn *handler; /* every request comes here; see http_router_handle in route.h */
    void *ctx;                /* borrowed; http_request_ctx() */
    const char *name;         /* static; the "Server" field; NULL: "space" */
    void (*done)(void *ctx, struct http_request *req,
                 const struct http_done *done); /* may be NULL */
    /* Zero means the default in parentheses. */
    unsigned max_threads;      /* 1024; a stream holds one as long as it lasts */
    unsigned max_connections;  /* 4096 */
    unsigned max_queue;        /* complete requests waiting for a thread before 503 (1024) */
    unsigned idle_timeout_ms;  /* keep-alive without a request (75000) */
    unsigned head_timeout_ms;  /* from the first byte of a head to its end (10000) */
    unsigned io_timeout_ms;    /* one read or write without progress (30000) */
    unsigned drain_timeout_ms; /* http_server_stop: running requests get this long (10000) */
    size_t max_body_bytes;     /* default limit of a body (1 MiB) */
    bool http2;                /* is offered to clients with TLS, beside HTTP/1.1 */
};

/* Who may connect to a unix socket; called with the peer's credentials for each connection. */
typedef bool http_peer_allowed_fn(const struct ucred *peer, void *ctx);

struct http_server *http_server_new(const struct http_server_opts *opts);

/* `address` is "HOST:PORT", "[V6]:PORT" or ":PORT"; port 0 picks one. More than one listener may be
 * added, before run. -EADDRINUSE and -EACCES are meant for the caller. */
MUST_CHECK int http_server_listen_tcp(struct http_server *s, const char *address, struct err *e);

/* The same for TLS; tls (tls.h) is borrowed: lives longer than the server. */
struct http_tls;
MUST_CHECK int http_server_listen_tls(struct http_server *s, const char *address,
                                      struct http_tls *tls, struct err *e);

/* Binds (replacing a stale socket that nobody listens on; -EADDRINUSE when somebody does), with
 * that mode. peer_allowed NULL: the file's mode is the only check. Paths of any length work. */
MUST_CHECK int http_server_listen_unix(struct http_server *s, const char *path, mode_t mode,
                                       http_peer_allowed_fn *peer_allowed, struct err *e);

/* A socket that is bound and listening already (socket activation, tests). Takes fd. */
void http_server_listen_fd_take(struct http_server *s, int fd, http_peer_allowed_fn *peer_allowed);

/* The port of the first TCP listener, 0 without one. */
uint16_t http_server_port(const struct http_server *s);

/*
 * Serves until http_server_stop. Then: listeners are closed and idle connections dropped, running
 * requests may finish within drain_timeout; what still runs after that has its connection shut
 * down, so reads and writes fail and http_client_gone says true; returns when all have returned.
 */
MUST_CHECK int http_server_run(struct http_server *s, struct err *e);

/* From any thread or signal handler; may be called before or during run, and twice. */
void http_server_stop(struct http_server *s);

/* After run has returned (or never ran). Removes the unix socket files it made. */
void http_server_free(struct http_server *s);

/* ---- the request. All strings are borrowed and live until the handler returns. ---- */

void *http_request_ctx(const struct http_request *req);
const char *http_request_method(const struct http_request *req);
/*
 * Continues the request of a client of ours: its X-Request-Id and traceparent, if they are fine, become this thread's
 * (base/log.h). The server itself forgets them when a request is done.
 */
void http_request_adopt(const struct http_request *req);
/* The path as received, percent-encoded, without query: for forwarding. Begins with '/'. */
const char *http_request_path(const struct http_request *req);
/* The raw query without '?', or NULL when there is none: for forwarding. */
const char *http_request_query_raw(const struct http_request *req);
const char *http_request_host(const struct http_request *req);
const struct http_headers *http_request_headers(const struct http_request *req);
const char *http_request_header(const struct http_request *req, const char *name);
/* Over TLS. */
bool http_request_secure(const struct http_request *req);
/* Peer of a unix socket; false for TCP. */
bool http_request_peer(const struct http_request *req, struct ucred *ret);
/* Printable peer for logs: "127.0.0.1:4711" or "uid 0 pid 12". */
const char *http_request_peer_name(const struct http_request *req);
/* The server is stopping: long streams should end themselves soon. */
bool http_request_stopping(const struct http_request *req);

/*
 * Decoded path segment captured by the route ("{id}"). The route must have that name. Any bytes but
 * NUL and '/' are possible: callers validate. For "{rest...}": the raw remainder, starting with
 * '/', or "".
 */
const char *http_request_param(const struct http_request *req, const char *name);

/*
 * Decoded value of the first query parameter of that name; NULL when absent; "" for "?a" and "?a=".
 * '+' is a space. Bytes may be anything but NUL (the server refuses bad escapes and %00 with 400
 * before the handler runs).
 */
const char *http_query_get(const struct http_request *req, const char *name);
/* For iteration: false after the last one. */
bool http_query_at(const struct http_request *req, size_t i, const char **ret_name,
                   const char **ret_value);
/* A whole number within bounds; absent: the fallback. Otherwise -EINVAL naming the parameter. */
struct http_query_bounds {
    int64_t min;
    int64_t max;
    int64_t fallback;
};
MUST_CHECK int http_query_int(const struct http_request *req, const char *name,
                              struct http_query_bounds bounds, int64_t *ret, struct err *e);
/* "1", "true", "" -> true; "0", "false" -> false; absent: fallback. */
MUST_CHECK int http_query_bool(const struct http_request *req, const char *name, bool fallback,
                               bool *ret, struct err *e);

/* A pointer the handler chain may keep with the request (e.g. the authenticated key, set by a route
 * table's before hook); `destroy` may be NULL and runs when the request ends. */
void http_request_set_user(struct http_request *req, void *p, void (*destroy)(void *p));
void *http_request_user(const struct http_request *req);

/* No progress for that long fails a read or write of this request; 0: never. */
void http_request_io_timeout(struct http_request *req, unsigned ms);

/* ---- the body ---- */

/* Replaces the server's default limit; UINT64_MAX: none (streams). Before the first read. */
void http_body_limit(struct http_request *req, uint64_t max_bytes);
/* -1 when the length is not known beforehand. 0: no body. */
int64_t http_body_length(const struct http_request *req);
/* Up to len bytes, as soon as there are some; 0 at the end of the body. Sends "100 Continue" first
 * when the client waits for it. */
MUST_CHECK ssize_t http_body_read(struct http_request *req, void *data, size_t len, struct err *e);
/*
 * The whole body, NUL-terminated (the NUL is not counted), at most max. *ret is for the caller to
 * free.
 */
MUST_CHECK int http_body_all(struct http_request *req, size_t max, char **ret, size_t *ret_len,
                             struct err *e);
/* The whole body as strict JSON: one object, no duplicate keys, UTF-8, and no more values in it than
 * JSON_UNTRUSTED_VALUES_MAX. An empty body gives an empty object. Caller owns *ret (json_decref).
 * -EINVAL "invalid_json", -E2BIG. */
MUST_CHECK int http_body_json(struct http_request *req, size_t max, json_t **ret, struct err *e);

/* ---- the reply ---- */

/*
 * Adds a field to the reply that is not begun yet. Content-Length, Transfer-Encoding and Connection
 * are ours.
 */
void http_reply_header(struct http_request *req, const char *name, const char *value);
MUST_CHECK int http_reply_json(struct http_request *req, int status, const json_t *json,
                               struct err *e);
/* As above, but drops the caller's reference. */
MUST_CHECK int http_reply_json_take(struct http_request *req, int status, json_t *json,
                                    struct err *e);
MUST_CHECK int http_reply_bytes(struct http_request *req, int status, const char *content_type,
                                const void *data, size_t len, struct err *e);
/* 204 and friends: no body. */
MUST_CHECK int http_reply_empty(struct http_request *req, int status, struct err *e);
/* {"error":{"code","message","field"?}} with the status of err_http_status. */
MUST_CHECK int http_reply_error(struct http_request *req, const struct err *why, struct err *e);

/* A streamed reply. length -1: unknown (chunked, or closing for HTTP/1.0 clients); content_type may
 * be NULL. The head leaves with the first write, or at once by http_flush. */
MUST_CHECK int http_reply_begin(struct http_request *req, int status, const char *content_type,
                                int64_t length, struct err *e);
/*
 * All of it, at once on the wire (no further buffering). Nothing is sent for HEAD. More or fewer
 * bytes than the announced length is a programmer's error (ASSERT) resp. cuts the connection.
 */
MUST_CHECK int http_write(struct http_request *req, const void *data, size_t len, struct err *e);
MUST_CHECK int http_flush(struct http_request *req, struct err *e);
MUST_CHECK int http_end(struct http_request *req, struct err *e);
bool http_reply_begun(const struct http_request *req);
/* From now on only a cut is possible: the connection is closed without the end of the reply. */
void http_reply_abort(struct http_request *req);

/* ---- while the handler waits for something else ---- */

/*
 * To be put into the handler's own poll set: it becomes ready when the client may be gone. Then ask
 * http_client_gone, which never blocks. A client that has shut down its sending side counts as
 * gone.
 */
struct pollfd http_client_pollfd(const struct http_request *req);
bool http_client_gone(struct http_request *req);
