/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streaming reverse proxy: one request of our server to one upstream, both directions at once, in
 * the handler's thread, by poll. What arrives is passed on at once; each direction holds at most
 * one buffer, so a slow reader slows the other end (backpressure), and an answer may begin before
 * the request's body is over.
 *
 *   client gone            -> the upstream call is aborted (its server sees us gone)
 *   upstream broke before the answer's head  -> error to the caller, who returns it: 502 JSON
 *   upstream broke in the answer             -> the client is cut off, never ended properly
 *   the answer ends before the request body  -> the rest of the body is not forwarded
 *
 * The upstream is a table of non-blocking functions, so that it can be an HTTP client's call
 * (http_proxy_call) or a stream of another transport (the guest channel).
 *
 * Hop-by-hop fields (Connection and what it names, Keep-Alive, TE, Trailer, Transfer-Encoding,
 * Upgrade, Proxy-*) and Host, Expect, Content-Length never pass; all others pass unless the
 * caller's filter says no.
 */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "http/client.h"
#include "http/server.h"

struct http_upstream_head {
    int status;
    int64_t length;
    const struct http_headers *headers; /* borrowed: lives as long as the upstream */
};

/* All functions are non-blocking; -EAGAIN: poll first. Called from the handler's thread only. */
struct http_upstream_ops {
    /*
     * Before each round of attempts: an upstream whose descriptor is an eventfd empties it here,
     * and only here (what becomes ready after that is seen by poll). NULL: the descriptor itself
     * tells what is ready.
     */
    void (*clear)(void *up);
    /*
     * Some bytes of the request's body: n > 0 taken, or -EAGAIN. Any other error: the upstream
     * takes no more body; head and recv go on being asked, they may have an answer or say what is
     * wrong.
     */
    ssize_t (*send)(void *up, const void *data, size_t len, struct err *e);
    /* The body is over. May be called again after -EAGAIN. */
    int (*send_end)(void *up, struct err *e);
    /*
     * 0 when the answer's head is there: headers are borrowed until the end, length is -1 if
     * unknown.
     */
    int (*head)(void *up, struct http_upstream_head *ret, struct err *e);
    /* Bytes of the answer; 0 at its proper end; anything else but -EAGAIN: it broke. */
    ssize_t (*recv)(void *up, void *data, size_t len, struct err *e);
    /*
     * What to wait for. want_recv: head or recv said -EAGAIN; want_send: send or send_end did. The
     * descriptor may be an eventfd; FD_NONE: nothing to wait for.
     */
    struct pollfd (*pollfd)(void *up, bool want_recv, bool want_send);
    /* The client is gone or sent nonsense: stop at once. The owner frees. */
    void (*abort)(void *up);
};

struct http_proxy_opts {
    /* Which fields pass, each way; NULL: all that are not hop-by-hop. */
    bool (*request_header)(const char *name);
    bool (*response_header)(const char *name);
    uint64_t body_limit; /* of the request's body; 0: none */
    unsigned
        answer_timeout_ms; /* from the end of the request's body to the answer's head; 0: none */
    unsigned
        idle_timeout_ms; /* nothing moves in either direction for that long; 0: none (streams) */
};

/* The request's fields that pass, for building the upstream's head. */
void http_proxy_headers(const struct http_request *req, const struct http_proxy_opts *opts,
                        struct http_headers *ret);

/*
 * Moves the body to `up` and the answer to the client. On failure the handler just returns the
 * code. opts may be NULL.
 */
MUST_CHECK int http_proxy_run(struct http_request *req, const struct http_upstream_ops *ops,
                              void *up, const struct http_proxy_opts *opts, struct err *e);

/*
 * The same for a call that was made by the caller, with the body length of the request; its head may have been
 * waited for already.
 */
MUST_CHECK int http_proxy_answer(struct http_request *req, struct http_call *call,
                                 const struct http_proxy_opts *opts, struct err *e);

/* The whole job for an HTTP upstream: method and target (encoded path and query) on `client`;
 * `extra` (may be NULL) is added to the request's fields, replacing those of the same name. */
MUST_CHECK int http_proxy_call(struct http_request *req, struct http_client *client,
                               const char *target, const struct http_headers *extra,
                               const struct http_proxy_opts *opts, struct err *e);
