/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the server: who owns a connection when, and what the files of the server share.
 *
 *   state     owned by      in list          leaves by
 *   HEAD      loop thread   waiting/heads    complete head -> QUEUED; else gone
 *   QUEUED    the queue     queue            a pool thread takes it -> RUNNING
 *   RUNNING   pool thread   running          reply over -> HEAD (keep-alive), LINGER or gone
 *   LINGER    loop thread   lingers          end of input, limit, timeout -> gone
 *
 * LINGER: we have sent our last byte and shut our side down, and read away what the client still
 * sends, because closing a socket with unread bytes would destroy the reply on its way.
 *
 * struct http_server has one lock, which guards everything marked so. Connections in the loop's
 * hands are armed in epoll with EPOLLONESHOT, so an event hands a connection to the loop thread
 * alone; a pool thread that gives one back lists it and arms it under the lock and does not touch
 * it any more. The loop thread alone frees connections it owns, at the end of a round of events, so
 * that no event of the round meets a freed one.
 */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "http/body.h"
#include "http/io.h"
#include "http/route.h"
#include "http/server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

TAILQ_HEAD(conn_list, http_conn);

enum conn_state {
    CONN_HEAD,
    CONN_QUEUED,
    CONN_RUNNING,
    CONN_LINGER,
    CONN_DEAD
};

struct http_conn {
    struct http_server *server; /* borrowed: outlives its connections */
    struct http_io io;
    enum conn_state state;
    bool watched; /* known to epoll */
    bool http2;   /* as the TLS handshake has agreed; see server-http2.h */
    bool secure;  /* came by TLS, in whatever way */
    TAILQ_ENTRY(http_conn) entry;
    struct conn_list *list; /* the one it is in; guarded */
    uint64_t deadline_ns;   /* of its list */
    struct http1_scan scan;
    size_t head_len;   /* of the complete head in io */
    uint64_t lingered; /* bytes thrown away */
    bool has_peer;
    struct ucred peer;
    char peer_name[64];
};

struct listener {
    int fd;            /* owned */
    char *unlink_path; /* owned; NULL: nothing to remove */
    http_peer_allowed_fn *peer_allowed;
    struct http_tls *tls; /* borrowed; NULL: plain */
    bool tcp;
};

struct pool_thread {
    pthread_t thread;
    SLIST_ENTRY(pool_thread) entry;
    struct http_server *server; /* borrowed */
};

#define SERVER_MAX_LISTENERS 8u

struct http_server {
    struct http_server_opts opts; /* defaults filled in */
    struct listener listeners[SERVER_MAX_LISTENERS];
    size_t n_listeners;
    int epoll_fd; /* owned */
    int wake_fd;  /* owned; eventfd */
    atomic_bool stopping;
    bool accepting;           /* loop thread only: listeners are armed */
    uint64_t accept_again_ns; /* loop thread only: out of descriptors until then */
    struct conn_list dead;    /* loop thread only: freed at the end of the round */

    pthread_mutex_t lock;
    pthread_cond_t work; /* the queue is not empty, or closing */
    /* guarded by lock */
    struct conn_list waiting; /* HEAD, no byte yet: keep-alive and fresh */
    struct conn_list heads;   /* HEAD, some bytes */
    struct conn_list queue;
    struct conn_list running;
    struct conn_list lingers;
    size_t n_conns;
    size_t n_queued;
    unsigned n_http2; /* connections that speak it, each with a thread */
    unsigned n_threads;
    unsigned n_idle;
    SLIST_HEAD(thread_list, pool_thread) finished; /* to be joined */
    bool closing;                                  /* pool threads end when the queue is empty */
};

/* ---- server.c ---- */
void listener_done(struct listener *l);
void server_wake(struct http_server *s);

/* ---- server-loop.c ---- */
void server_loop_run(struct http_server *s);

/* ---- server-pool.c ---- */
/*
 * Queues a connection with a complete head. False: too much is waiting already, nothing was done.
 * Lock held.
 */
bool pool_submit_locked(struct http_server *s, struct http_conn *c);
/* Ends all threads; nothing may be queued any more. */
void pool_join(struct http_server *s);
/* Takes c out of its list; into another one (may be NULL) with the deadline of that. Lock held. */
void conn_move_locked(struct http_conn *c, struct conn_list *list);
/* Gives c to the loop thread, armed. Lock held. */
void conn_arm_locked(struct http_conn *c, enum conn_state state);
/* Unlists, closes and frees. Lock not held. */
void conn_free(struct http_conn *c);
/* Our last byte is sent: from here on only LINGER. Lock not held. */
void conn_linger(struct http_conn *c);

/* ---- request.c ---- */

struct http_request {
    struct http_conn *conn; /* borrowed: lives longer */
    struct http_server *server;
    char *block;        /* owned: the head, cut into strings */
    char *query_block;  /* owned: decoded query */
    char *params_block; /* owned: decoded path segments */
    const char *method; /* borrowed: block, as the following */
    const char *path;
    const char *query;
    const char *host;
    struct http_headers headers;     /* v owned, strings borrowed from block */
    struct http_header *query_pairs; /* owned; strings borrowed from query_block */
    size_t n_query;
    const struct http_route *route; /* static */
    struct http_header params[HTTP_ROUTE_MAX_PARAMS];
    size_t n_params;
    void *user;
    void (*user_destroy)(void *p);
    unsigned minor;
    bool head_method;
    bool keep_alive;      /* the client's wish and ours so far */
    bool expect_continue; /* not yet answered */
    bool upgraded;        /* the connection is no longer HTTP */
    bool tunnelled;       /* nor ours: its end is the other side's, and so is its breaking */
    unsigned io_timeout_ms;
    uint64_t body_limit;
    int64_t body_length;
    bool body_read_failed;
    struct http_in in;
    struct http_out out;
    struct http_headers reply_headers;
    int status;        /* of the reply; 0: not begun */
    bool reply_broken; /* only a cut is possible */
    uint64_t started_ns;
};

/*
 * Runs one request: head, handler, end of the reply and of the body. What is to become of the
 * connection:
 */
enum request_after {
    AFTER_KEEP,
    AFTER_LINGER,
    AFTER_CLOSE,
    AFTER_RESET
};
enum request_after request_run(struct http_conn *c);
/* A reply without a request, for the loop thread: never waits. */
void conn_refuse(struct http_conn *c, int status, const char *reason, const char *text);

/* The deadline of the next read or write. */
struct io_wait request_wait(const struct http_request *req);
/* Non-blocking body, for the proxy; the limit and 100-continue are applied. */
ssize_t request_try_read(struct http_request *req, void *data, size_t len, struct err *e);
/* ---- reply.c ---- */
/* Prints the head to out.head, without sending. After that http_reply_begun is true. */
int reply_prepare(struct http_request *req, int status, const char *content_type, int64_t length,
                  struct err *e);
/* Ends what the handler left open: error reply, end of the body, drain. */
enum request_after reply_finish(struct http_request *req, int r, const struct err *why);
