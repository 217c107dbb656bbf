/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intercepted connection on which both ends speak HTTP/2. One thread moves the bytes of both sessions (nghttp2); each
 * stream of the guest becomes one of the server's:
 *
 *     guest's HEADERS -> one head (wire/http2-head.h) -> judge -> plan -> server's HEADERS
 *                        \_ a thread of its own while the credential manager is waited for _/
 *     DATA both ways, each under the flow control of the session that it came by: what has not left on one side is not
 *     given back as window on the other, so that a stream holds at most HTTP2_STREAM_WINDOW bytes each way, and a
 *     connection HTTP2_CONN_WINDOW.
 *     trailers, interim answers, RST_STREAM and its code: passed on.
 *
 * The two connections live and die together: when the server is going away, the guest is told the same.
 */
#pragma once

#include <nghttp2/nghttp2.h>

#include "network/intercept-internal.h"
#include "wire/http2-head.h"

#define HTTP2_STREAMS_MAX 100u
#define HTTP2_STREAM_WINDOW (256 * 1024)
#define HTTP2_CONN_WINDOW (2 * 1024 * 1024)
/* Frames are gathered up to here before they are written. */
#define HTTP2_OUT_BYTES 65536u
/* Frames that we owe a peer which does not read. */
#define HTTP2_QUEUE_MAX 2000u
/* Bodies that are gathered at once on one connection, to have credentials put into them. */
#define HTTP2_GATHER_MAX (2u * INJECT_BODY_MAX)
/* Frames that carry nothing and are not a request: so many at once, and so many a second. */
#define HTTP2_IDLE_FRAMES_MAX 4000u
#define HTTP2_IDLE_FRAMES_PER_S 1000u

struct http2;

/* One direction of a stream. */
struct http2_way {
    struct buf data;     /* owned, wiped; not sent on yet */
    size_t owed;         /* bytes whose window has not been given back */
    struct buf trailers; /* owned: lines */
    bool end;            /* no more will be added */
    bool deferred;       /* its sender waits for more */
};

enum http2_state {
    HTTP2_HEAD,      /* of the request, not whole yet */
    HTTP2_DECIDING,  /* by its thread */
    HTTP2_GATHERING, /* the body, before the head can be written */
    HTTP2_OPEN,      /* the server has it */
    HTTP2_ANSWERED,  /* by us: what the guest still sends is dropped */
};

struct http2_stream {
    TAILQ_ENTRY(http2_stream) entry;   /* of all */
    TAILQ_ENTRY(http2_stream) decided; /* of those whose thread is done */
    struct http2 *h;                   /* borrowed */
    enum http2_state state;
    int32_t id;        /* the guest's */
    int32_t server_id; /* 0: none (any more) */
    bool gone;         /* the guest's stream is closed; freed when its thread is done */
    bool deciding;     /* head, refusal, failed, refused, plan and redact are its thread's */

    struct http2_head request; /* what comes from the guest: the head, then trailers */
    int request_error;         /* of its fields */
    bool te_trailers;          /* in the head */
    struct buf head_text;      /* owned: what head points into */
    struct http1_head head;    /* HTTP2_DECIDING and later */
    struct intercept_judgement judged;
    bool good; /* head and judged are there */
    struct intercept_refusal refusal;
    struct err failed;    /* the thread's; code 0: it is let through */
    bool asks;            /* a person has to be asked first */
    bool refused;         /* the thread's: see refusal */
    struct plan plan;     /* owned, wiped */
    struct redact redact; /* owned, wiped */
    struct buf body;      /* owned, wiped: gathered */
    bool body_known;

    struct http2_head answer; /* what comes from the server */
    int answer_error;
    bool head_done;  /* the final head has gone to the guest */
    bool end_sent;   /* the answer's end, too */
    bool stop_guest; /* after the end of the answer: it need not send more */
    unsigned n_interim;
    struct http2_way up;
    struct http2_way down;
};
TAILQ_HEAD(http2_streams, http2_stream);

/* One of the two connections. */
struct http2_end {
    nghttp2_session *session; /* owned; NULL: none */
    struct http_io *io;       /* borrowed */
    struct buf out;           /* owned, wiped: not taken by the socket */
    bool closed;              /* has ended, or is broken */
};

struct http2 {
    struct intercept_conn *c; /* borrowed */
    const struct err *no_server;
    struct http2_end guest;
    struct http2_end server;
    struct http2_streams streams;
    size_t n_streams;
    size_t gathered;
    bool draining; /* no more streams */
    bool goodbye;  /* the guest has been told */
    double idle_frames;
    uint64_t charged_ns;
    uint64_t idle_since_ns;
    char *chunk; /* owned: INTERCEPT_CHUNK */

    pthread_mutex_t lock; /* guards decided and n_deciding */
    pthread_cond_t all_decided;
    struct http2_streams decided; /* by their threads */
    size_t n_deciding;
    int decided_fd; /* owned: an eventfd */
};

/* ---- http2-session.c ---- */

MUST_CHECK int http2_sessions_open(struct http2 *h);
struct http2_stream *http2_stream_new(struct http2 *h, int32_t id);
/* The guest's stream is closed. */
void http2_stream_gone(struct http2_stream *s);
void http2_stream_free(struct http2_stream *s);
/* The server's connection has ended: with it, what was asked of it. */
void http2_server_gone(struct http2 *h);
nghttp2_data_provider http2_provider(struct http2_stream *s, bool up);

/* ---- http2-stream.c ---- */

/* The guest's head is whole. more: a body or trailers follow. */
void http2_on_request(struct http2_stream *s, bool more);
/* Those that threads have decided go on. */
void http2_take_decided(struct http2 *h);
/* More of the body, or its end. */
void http2_on_body(struct http2_stream *s);
/* An answer of our own. */
void http2_answer(struct http2_stream *s, const struct intercept_refusal *why);
void http2_reset_guest(struct http2_stream *s, uint32_t code);
/* The server's answer: a head (interim or final; with end, all of it), or trailers. */
void http2_on_answer(struct http2_stream *s, bool end);
void http2_on_answer_data(struct http2_stream *s, const uint8_t *data, size_t len, bool end);
