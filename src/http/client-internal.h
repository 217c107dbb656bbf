/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the client: connections, their pool, and the non-blocking steps of a call. */
#pragma once

#include "base/clock.h"
#include "http/body.h"
#include "http/client.h"
#include "wire/url.h"

#include <pthread.h>
#include <sys/queue.h>

struct client_conn {
    struct http_io io;
    uint64_t idle_since_ns;
    TAILQ_ENTRY(client_conn) entry;
};
TAILQ_HEAD(client_conns, client_conn);

struct http_client {
    struct http_client_opts opts; /* defaults filled in; ca_file not kept */
    struct url url;
    char *host_field; /* owned */
    SSL_CTX *tls;     /* owned; NULL without https, and with opts.tls */
    struct http_headers fixed;

    pthread_mutex_t lock;
    struct client_conns idle; /* guarded by lock; newest first */
    unsigned n_idle;          /* guarded by lock */
};

struct http_call {
    struct http_client *client; /* borrowed: outlives its calls */
    struct client_conn *conn;   /* owned; NULL when given back or broken */
    struct io_wait wait;
    bool head_method;
    bool repeatable; /* a safe or idempotent method without a body */
    bool reused;     /* the connection had served before: it may be dead */
    bool sent;       /* some byte of the request was taken by the socket */
    bool answered;   /* some byte of the answer has arrived */
    bool head_done;
    bool upgrade; /* 101 is a final answer */
    bool over;    /* the connection is for this call alone */
    bool keep_alive;
    unsigned n_interim;
    struct buf head; /* the request's head, to be sent again */
    struct http_out out;
    struct http1_scan scan;
    struct http_in in;
    int status;
    int64_t length;
    struct http_headers headers;
};

/* ---- client-conn.c ---- */
/*
 * A connection for a call: a kept one that looks alive (*ret_reused), unless `fresh`, or a new one.
 */
int client_acquire(struct http_client *c, bool fresh, const struct io_wait *wait,
                   struct client_conn **ret, bool *ret_reused, struct err *e);
/* Keeps it, or closes it when there are enough. */
void client_release_take(struct http_client *c, struct client_conn *conn);
void client_conn_free(struct client_conn *conn);

/* ---- client.c ---- */
/* -EAGAIN until the final head is there. */
int call_try_head(struct http_call *call, struct err *e);
/*
 * Takes all of d (at most 1 MiB, nothing pending); repeats on a new connection while nothing was
 * sent.
 */
int call_try_send(struct http_call *call, struct out_data d, struct err *e);
/*
 * A kept connection that the server closed just when we used it: nobody has read our request. After
 * `code` from call_try_head: 0 when the request is on its way again, else the error. Connecting may
 * block.
 */
int call_try_repeat(struct http_call *call, int code, struct err *e);
