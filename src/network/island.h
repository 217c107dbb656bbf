/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sandbox as the network gateway knows it: its two sockets, its policy, its connections, what waits for a
 * person, its log. Lives on one worker.
 *
 *     guest ──TCP──▶ conn.c: peek ─▶ judge ─▶ (ask) ─▶ resolve ─▶ connect ─▶ pump        or intercept_accept()
 *     guest ──DNS──▶ names.c: judge ─▶ resolve ─▶ answer
 */
#pragma once

#include "network/egress.h"
#include "network/intercept.h"
#include "network/notify.h"
#include "network/resolver.h"
#include "network/worker.h"

/* Per sandbox. More is reset at once: a workload that needs more than that is a scan. */
#define ISLAND_CONNECTIONS_MAX 1024u
#define ISLAND_QUESTIONS_MAX 128u
#define ISLAND_ASKS_MAX 32u

struct conn;
struct guest_question;
struct handed_over;
struct hold;

/* Something that only a person can decide: a host (or address) and port, or the requests of a method to a path there. */
struct ask_what {
    const char *name; /* NULL: an address */
    struct in_addr addr;
    uint16_t port;
    const char *method; /* NULL: a connection */
    const char *path;   /* with method; without its query */
};

#define ASK_TOKEN_BYTES 32u
#define ASK_TOKEN_SIZE (2 * ASK_TOKEN_BYTES + 1)

struct ask {
    struct ask *next; /* owned */
    uint64_t number;
    struct ask_what what; /* its strings are owned */
    uint64_t since_ms;
    uint64_t deadline_ns;
    enum netpolicy_action answer; /* NETPOLICY_ASK: none yet */
    char token[ASK_TOKEN_SIZE];   /* who has it may answer, once */
};

struct island {
    struct intercept_owner owner;
    struct worker *worker;          /* borrowed */
    struct intercept *intercept;    /* borrowed; NULL: nothing can be looked into */
    struct notifier *notifier;      /* borrowed; NULL: nobody is told of questions */
    const struct netpolicy *policy; /* owned: a reference */
    struct resolver *resolver;      /* owned */
    int tcp_fd;                     /* owned */
    int dns_fd;                     /* owned */
    struct loop_io *tcp_io;
    struct loop_io *dns_io;
    struct conn *conns; /* owned */
    size_t n_conns;
    struct handed_over *handed_over;  /* that the interceptor has; they count as connections */
    struct guest_question *questions; /* owned */
    size_t n_questions;
    struct ask *asks;   /* owned */
    struct hold *holds; /* requests that wait for one */
    size_t n_asks;
    uint64_t last_ask;
    uint64_t n_refused; /* connections over the limit */
    struct egress log;
};

struct island_options {
    struct intercept_owner owner;
    struct worker *worker;
    struct intercept *intercept;
    struct notifier *notifier; /* may be NULL */
    const struct resolver_servers *servers;
    int log_dir_fd; /* borrowed; FD_NONE: the egress log is in memory only */
};

/* All of these in the worker's thread. */
struct island *island_new(const struct island_options *options);
/* Resets its connections. */
void island_free(struct island *island);
/* Takes over new sockets and listens to them instead of the old ones. */
void island_listen_take(struct island *island, int tcp_fd, int dns_fd);
/* Judges what is open again: connections that the new policy does not let through are reset. */
void island_set_policy(struct island *island, const struct netpolicy *policy);
bool island_tick(struct island *island, uint64_t now_ns);
/*
 * What a person has said to that. NETPOLICY_ASK: nothing yet; there is an ask now. Too many of them, or none for too long:
 * NETPOLICY_DENY.
 */
enum netpolicy_action island_ask(struct island *island, const struct ask_what *what);
json_t *island_asks_json(const struct island *island);
struct island_answer {
    uint64_t number;
    bool allow;
    uint64_t remember_s; /* for how long it counts: with 0 for what waits now */
    const char *token;   /* NULL: who answers was let in otherwise; else it must be the ask's */
};
/* -ENOENT: nobody waits for that any more, or it has another token. */
MUST_CHECK int island_answer(struct island *island, const struct island_answer *answer);

/* ---- conn.c ---- */

void conn_accept(struct island *island);
void conn_rejudge_all(struct island *island);
void conn_reset_all(struct island *island);
bool conn_tick_all(struct island *island, uint64_t now_ns);
/* The asks have changed: those that wait look again. */
void conn_asks_changed(struct island *island);
json_t *conn_list_json(struct island *island);

/* ---- names.c ---- */

/* An answer, of at most DNS_UDP_MAX bytes; none (NULL, 0) when the island goes. */
typedef void (*names_reply_fn)(void *arg, const uint8_t *data, size_t len);

void names_receive(struct island *island);
void names_forget_all(struct island *island);
/*
 * One question: calls fn, at once or later, once or (not a question, or too many) never; then it returns false.
 * *ret_pending (may be NULL) is what names_cancel() takes until then.
 */
bool names_ask(struct island *island, const uint8_t *data, size_t len, names_reply_fn fn, void *arg,
               struct guest_question **ret_pending);
void names_cancel(struct guest_question *question);
