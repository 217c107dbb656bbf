/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection that the guest has made.
 *
 *     PEEKING ──▶ ASKING ──▶ RESOLVING ──▶ CONNECTING ──▶ PIPING ──▶ freed
 *        │           │           │             │
 *        └───────────┴───────────┴─────────────┴── refused: freed         RESOLVING ──▶ the interceptor: freed
 *     DNS (to port 53: questions over TCP)
 *
 * Its entry in the egress log is made when it is decided, and completed when it is freed; the interceptor's
 * is completed by its result.
 */
#pragma once

#include "network/island.h"
#include "network/pump.h"

#define CONN_PEEK_MAX INTERCEPT_PEEKED_MAX

enum conn_state {
    CONN_PEEKING,
    CONN_ASKING,
    CONN_RESOLVING,
    CONN_CONNECTING,
    CONN_PIPING,
    CONN_DNS,
};

enum conn_kind {
    CONN_OPAQUE, /* or not known yet */
    CONN_TLS,
    CONN_HTTP,
    CONN_SSH, /* a credential logs in there: not a byte of it is read here */
};

struct conn {
    struct conn *next; /* of its island */
    struct conn *prev;
    struct island *island; /* borrowed: lives longer */
    enum conn_state state;
    enum conn_kind kind;
    int guest_fd;  /* owned */
    int server_fd; /* owned */
    struct loop_io *guest_io;
    struct loop_io *server_io;
    struct buf peeked;
    struct in_addr dst; /* that the guest connected to */
    uint16_t port;
    char *name;   /* owned; NULL: none */
    bool by_map;  /* the name is the one that dst was given to the guest for */
    bool patient; /* its first bytes are waited for, however long it is silent */
    bool observed;
    struct netpolicy_verdict verdict;
    struct in_addr candidates[DNS_ADDRS_MAX]; /* where it may go, in the order of trying */
    size_t n_candidates;
    size_t tried;
    struct resolver_waiter waiter;
    struct pump up;
    struct pump down;
    uint64_t deadline_ns;            /* of the state; while piping, of silence */
    uint64_t moved;                  /* bytes up and down when it was looked at last */
    uint64_t entry;                  /* in the log; 0: not yet */
    struct guest_question *question; /* over TCP */
};

/* What the interceptor has and will give back; the island may be gone by then. */
struct handed_over {
    struct handed_over *next; /* of its island */
    struct worker *worker;
    struct island *island; /* borrowed; NULL: it is gone */
    char *name;            /* owned; NULL: none */
    struct in_addr addr;
    uint16_t port;
    uint64_t entry;
    struct intercept_result result;
    char *credential; /* owned */
    char *refused;    /* owned */
};

/* ---- conn-note.c ---- */

/* An intercept_note_fn; arg: a handed_over. */
void conn_note_request(void *arg, const struct intercept_note *note);

/* ---- conn-judge.c ---- */

enum peek_result {
    PEEK_MORE,
    PEEK_DONE, /* kind and name are set */
    PEEK_BAD,  /* *ret_why says what */
};
/* Looks at what was read so far. silent: nothing has come for a while. */
enum peek_result conn_peek(struct conn *c, bool silent, const char **ret_why);
/* Is it one that a credential of SSH is for? Then its kind and name are set, by the address that the guest has chosen. */
bool conn_is_ssh(struct conn *c);
/* Sets verdict, and name where the guest's own questions tell it. */
void conn_judge(struct conn *c);
/* Where it may go. *ret_why is why nowhere. */
bool conn_choose(struct conn *c, const struct dns_addrs *addrs, const char **ret_why);
