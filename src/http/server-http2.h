/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 before the server. A connection whose TLS handshake has agreed on it gets a thread of the pool for as long as it
 * lasts, which moves its frames (nghttp2). Each of its streams becomes a connection of the server like any other, by a pair
 * of sockets: what the client sends is written there as HTTP/1.1 (wire/http2-head.h), what comes back is read as the answer. So
 * handlers, limits and deadlines are the same for both, and what breaks on one side breaks on the other: a stream that
 * the client resets is a client that has gone, an answer that is cut off is a stream that is reset.
 *
 *     frames -> one head -> socket pair -> the server's loop and pool ... -> answer's head and body -> frames
 *
 * Bounds. So many streams at once (HTTP2_STREAMS), each with so much of its body on its way (HTTP2_STREAM_BYTES): window is given
 * back when the server has taken what came before. An answer is read only as fast as the client's windows let it
 * leave. Frames that carry nothing, resets above all, are counted; who sends too many is told to go. A head that stays
 * incomplete, a connection without streams, and a client that does not read end at the server's deadlines. At most a
 * quarter of the pool's threads serves such connections; a client that comes later is offered HTTP/1.1 only.
 */
#pragma once

#include <nghttp2/nghttp2.h>

#include "http/server-internal.h"
#include "wire/http2-head.h"

#define HTTP2_STREAMS 128u
#define HTTP2_STREAM_BYTES (256u * 1024)
#define HTTP2_CONN_BYTES (4u * 1024 * 1024)
/* Frames are gathered up to here before they are written. */
#define HTTP2_OUT_BYTES (64u * 1024)
/* Frames that we owe a client which does not read. */
#define HTTP2_QUEUE_MAX 2000u
#define HTTP2_SHARE_OFFERED 4u
#define HTTP2_SHARE_TAKEN 2u
/* Points for frames that carry nothing: so many at once, and so many back a second. A reset costs more than a ping. */
#define HTTP2_POINTS_MAX 4000.0
#define HTTP2_POINTS_PER_S 400.0
#define HTTP2_POINTS_RESET 10.0

struct http2_conn;

struct http2_exchange {
    TAILQ_ENTRY(http2_exchange) entry;
    struct http2_conn *h; /* borrowed */
    int32_t id;
    uint64_t begun_ns;

    struct http2_head head; /* of the request, then its trailers, which are dropped */
    int head_error;
    bool open;         /* io is there, and the server has the other end */
    struct http_io io; /* owned */
    struct http_out out;
    struct buf up;  /* owned: of the body, not taken yet; its window has not been given back */
    bool up_end;    /* nothing more will come */
    bool up_closed; /* the server has it all, or wants no more */
    bool wants_out; /* the socket takes nothing just now */

    bool head_only; /* it asks for a head */
    bool answered;  /* the answer's head has gone */
    bool failed;    /* is being reset */
    struct http1_scan scan;
    struct http_in in;
    bool deferred;       /* the session waits for more of the body */
    bool readable;       /* as poll has said */
    uint64_t hung_up_ns; /* the server has closed its end; 0: not yet */
};
TAILQ_HEAD(http2_exchanges, http2_exchange);

struct http2_conn {
    struct http_conn *c;      /* borrowed */
    nghttp2_session *session; /* owned */
    struct http2_exchanges all;
    size_t n;
    struct buf out;        /* owned: not taken by the socket */
    uint64_t sent_ns;      /* when the socket last took something, or had nothing to take */
    uint64_t idle_from_ns; /* without streams since then */
    bool used;             /* there was a stream */
    bool goodbye;          /* no more streams: the client has been told */
    double points;
    uint64_t charged_ns;
    char *chunk; /* owned */
};

/* ---- server-http2.c ---- */

/*
 * Do fewer than this share of the pool's threads (4: a quarter) serve such connections? Offered is it by HTTP2_SHARE_OFFERED; who
 * was offered it and comes a moment later is served by HTTP2_SHARE_TAKEN. Lock not held.
 */
bool http2_has_room(struct http_server *s, unsigned share);
/* From the first bytes to the end. */
enum request_after http2_run(struct http_conn *c);

/* ---- server-http2-exchange.c ---- */

struct http2_exchange *http2_exchange_new(struct http2_conn *h, int32_t id);
/* Also breaks off what the server still does for it. */
void http2_exchange_free(struct http2_exchange *x);
/* The head is whole; more: a body or trailers follow. */
void http2_exchange_open(struct http2_exchange *x, bool more);
/* Trailers of the request, which end it: nobody here wants to know what they say, as with HTTP/1.1. */
void http2_exchange_trailers(struct http2_exchange *x);
/* Moves what can be moved without waiting. True: something was. */
bool http2_exchange_turn(struct http2_exchange *x);
/* What to wait for. */
struct pollfd http2_exchange_pollfd(const struct http2_exchange *x);
void http2_exchange_reset(struct http2_exchange *x, uint32_t code);
