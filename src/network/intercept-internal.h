/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the interceptor. Each connection that is not idle has a thread of its own, which runs straight-line code:
 *
 *     TLS with the guest (leaf) -> { head -> judge -> plan -> server -> bodies both ways }... -> closed
 *
 * A connection is known to the list of its interceptor until its thread has told done(). Ending one from outside is an
 * event that every wait of its thread listens to.
 */
#pragma once

#include <pthread.h>
#include <sys/queue.h>

#include "base/log.h"
#include "credential/inject.h"
#include "credential/redact.h"
#include "http/body.h"
#include "network/intercept.h"
#include "network/leaf.h"

/* A client that keeps a connection open without using it. */
#define INTERCEPT_IDLE_MS 90000u
/* After that, its connection to the server is closed and its thread ends: the next request makes others. */
#define INTERCEPT_SPARE_MS 10000u
/* From the first byte of a head to its end. */
#define INTERCEPT_HEAD_MS 15000u
#define INTERCEPT_HANDSHAKE_MS 15000u
#define INTERCEPT_CONNECT_MS 10000u
/* No byte in either direction while a request is on its way. Some answers are thought about for long. */
#define INTERCEPT_QUIET_MS 3600000u
#define INTERCEPT_USE_MS 20000u
/* Each connection with SSH is a process: of one sandbox, and of all. */
#define INTERCEPT_SSH_SANDBOX_MAX 32u
#define INTERCEPT_SSH_MAX 512u
/* Bytes of one read. Two of these and what is kept back for redaction bound a request's memory. */
#define INTERCEPT_CHUNK 32768u
/* Interim answers before the final one. */
#define INTERCEPT_INTERIM_MAX 16u

/* What intercept_judge() has found. */
struct intercept_judgement {
    struct netpolicy_verdict verdict;
    bool observed;
};

struct exchange;

struct intercept_conn {
    struct intercept *in; /* borrowed */
    struct intercept_target target;
    struct netpolicy *policy; /* owned: a reference */
    struct intercept_result result;
    char credential[CREDENTIAL_NAME_SIZE];
    char refused[40];
    int stop_fd; /* owned: an eventfd */
    struct http_io guest;
    struct http_io server;
    bool offers_http2;                 /* the guest's ClientHello does */
    bool connected;                    /* server is one */
    bool server_used;                  /* it has served a request before */
    char host[NETPOLICY_NAME_MAX + 8]; /* the Host field for the server */
    struct exchange *now;              /* borrowed: HTTP/1.1's request; NULL: none, or HTTP/2 */
    char ssh_id[ID_SIZE];              /* the credential of SSH, as the next guarded by the lock */
    int64_t ssh_rotated_at_ms;
    bool parked;              /* no thread has it, or it was so until now */
    uint64_t parked_until_ns; /* guarded by the interceptor's lock, as the next */
    TAILQ_ENTRY(intercept_conn) park_entry;
    TAILQ_ENTRY(intercept_conn) entry;
};
TAILQ_HEAD(intercept_conns, intercept_conn);

/* Who may see what: a copy of what the credential manager says. */
struct intercept_want {
    enum credential_scope scope;
    char organisation[ID_SIZE];
    char project[ID_SIZE];
    char sandbox[ID_SIZE];
    char host[CREDENTIAL_HOST_SIZE];
    uint16_t port;
    bool ssh; /* logs in with SSH: no request is looked into for it */
    char id[ID_SIZE];
    int64_t rotated_at_ms;
};

struct intercept {
    struct credential_client *credentials; /* owned */
    struct leaves *leaves;                 /* owned */
    SSL_CTX *client_tls;                   /* owned */
    unsigned max_connections;
    char *ssh_end; /* owned: the program */

    pthread_mutex_t lock;         /* guards all below */
    pthread_cond_t ended;         /* a connection has */
    struct intercept_conns conns; /* what they point to is each one's thread's */
    size_t n_conns;
    struct intercept_want *wants; /* owned */
    size_t n_wants;
    struct intercept_conns parked; /* the oldest first */
    uint64_t trim_at_ns;           /* DEADLINE_NEVER: nothing was parked since */

    pthread_t parker;
    int park_fd;      /* owned: an epoll of what is parked */
    int park_wake_fd; /* owned */
    bool park_over;   /* atomic */

    pthread_t watcher; /* keeps wants as the credential manager has them */
    int stop_fd;       /* owned: ends the watcher */
};

/* One request. */
struct exchange {
    struct intercept_conn *c;
    struct http1_head head; /* views into head_text */
    char *head_text;        /* owned */
    struct intercept_judgement judged;
    bool noted;           /* it is in the log */
    struct plan plan;     /* owned */
    struct redact redact; /* owned */
    struct buf body;      /* owned: when it had to be gathered */
    bool body_known;
    struct buf up_trailers;   /* owned: as they came */
    struct buf down_trailers; /* owned: the same */
    struct http_in up_in;
    struct http_out up_out;
    struct http_in down_in;
    struct http_out down_out;
    bool up_done;   /* the whole request has left */
    bool up_broken; /* the server reads no more of it */
    bool head_done; /* the final head of the answer was passed on */
    bool down_done;
    bool upgraded;
    bool keep_guest; /* the guest's connection may carry another request */
    bool keep_server;
    bool answered; /* some byte of the answer has come */
    unsigned n_interim;
    char *chunk; /* owned: INTERCEPT_CHUNK bytes */
};

/* ---- intercept.c ---- */

/* Under the lock. 0, or a negative errno. */
MUST_CHECK int intercept_start_thread(struct intercept_conn *c);
/* Tells, and frees it. From any thread, without the lock. */
void intercept_conn_end(struct intercept_conn *c);

/* That is what the connection logs in with: it ends when that is gone or has another value. */
void intercept_ssh_bind(struct intercept_conn *c, const char *id, int64_t rotated_at_ms);

/* ---- intercept-ssh.c ---- */

/* The whole life of a connection with SSH. */
void intercept_ssh_run(struct intercept_conn *c);

/* ---- intercept-park.c ---- */

MUST_CHECK int intercept_park_start(struct intercept *in, struct err *e);
/* Nothing may be parked any more. */
void intercept_park_stop(struct intercept *in);
/* Takes it from the calling thread, which may not touch it again; false: it cannot be taken. */
MUST_CHECK bool intercept_park(struct intercept_conn *c);

/* ---- intercept-conn.c ---- */

/* The life of a connection, from its begin or from where it was parked. true: it is idle; else it is over. */
MUST_CHECK bool intercept_conn_run(struct intercept_conn *c);
struct io_wait intercept_wait(const struct intercept_conn *c, uint64_t ms);
/* Before it is closed: what the guest is still sending would make the kernel throw our last words away. */
void intercept_linger(struct intercept_conn *c);
/* A stable word for the log. */
void intercept_refuse(struct intercept_conn *c, const char *why);
/* An answer of our own: {"error":{code, message}}; the connection is closed afterwards. */
void intercept_answer(struct intercept_conn *c, int status, const char *code, const char *message);

/* ---- intercept-server.c ---- */

/* Verified always: a server whose certificate we do not trust gets nothing. */
MUST_CHECK int intercept_connect_server(struct intercept_conn *c, enum io_alpn alpn, struct err *e);
void intercept_disconnect(struct intercept_conn *c);
/* Has the server, which may only wait for a request, closed or said something? */
bool intercept_server_is_stale(struct intercept_conn *c);

/* ---- intercept-request.c: from any thread, for what does not change in a connection's life ---- */

struct intercept_refusal {
    int status;
    char code[40]; /* a stable word */
    char message[400];
};
/* May this request pass? NETPOLICY_ASK: intercept_ask() tells. NETPOLICY_DENY: what to answer. */
enum netpolicy_action intercept_judge(const struct intercept_conn *c, const struct http1_head *head,
                                      struct intercept_judgement *ret_judged,
                                      struct intercept_refusal *ret);
/* Into the log; refused NULL: the server has answered. */
void intercept_tell(const struct intercept_conn *c, const struct http1_head *head,
                    const struct intercept_judgement *judged, const struct plan *plan, int status,
                    const char *refused);
/* The same for a request of HTTP/1.1, once. */
void exchange_tell(struct exchange *x, int status, const char *refused);
/* Asks a person. Blocks, for minutes. */
enum netpolicy_action intercept_ask(const struct intercept_conn *c, const struct http1_head *head,
                                    struct intercept_refusal *ret);
/* Could something be put into requests on this connection? Only where nobody else can read, to a server known by name. */
bool intercept_has_plan(const struct intercept_conn *c);
/* Asks what is to be put in, and what the answer must not show. Blocks. */
MUST_CHECK int intercept_plan(const struct intercept_conn *c, const struct http1_head *head,
                              struct plan *plan, struct redact *redact, struct err *e);
/* What to answer to a request that could not be passed on. */
void intercept_failure(const struct err *e, struct intercept_refusal *ret);
/* {"error": {code, message}}; owned by the caller. */
char *intercept_answer_text(const char *code, const char *message);

/* ---- http2-conn.c ---- */

/*
 * The whole life of a connection with a guest that speaks HTTP/2. The server does, too; or there is none, and no_server
 * says why.
 */
void intercept_http2_run(struct intercept_conn *c, const struct err *no_server);

/* ---- intercept-pump.c ---- */

/*
 * Moves the request to the server and the answer to the guest, both at once; up_out holds the head that is to be sent
 * first. 0: over, see keep_*. -EAGAIN: nothing of an answer has come over a connection that was used before: try
 * again on a new one. Other codes: it broke.
 */
MUST_CHECK int exchange_pump(struct exchange *x);
/* After 101: bytes both ways until both ends are done. */
void exchange_tunnel(struct exchange *x);

/* ---- intercept-answer.c ---- */

/* Reads heads of the server as far as they are there. -EAGAIN: more is needed. */
MUST_CHECK int exchange_answer_head(struct exchange *x);
