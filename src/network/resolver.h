/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names to addresses for one sandbox: its own cache, so that no sandbox can learn by the time an answer takes what
 * another has asked for. Each question goes out from a socket of its own, connected to the server (the
 * kernel chooses a random port and drops what comes from elsewhere), with a random id; the next server is asked
 * when one does not answer; an answer that was cut is asked for again over TCP.
 *
 * Lives in one loop's thread. A waiter is embedded in what waits and must be cancelled before that goes.
 */
#pragma once

#include "base/err.h"
#include "network/worker.h"
#include "wire/dns.h"

#define RESOLVER_SERVERS_MAX 4u
/* Of each sandbox; the one not used for longest goes. */
#define RESOLVER_NAMES_MAX 256u
#define RESOLVER_LOOKUPS_MAX 64u
#define RESOLVER_TTL_MIN_S 5u
#define RESOLVER_TTL_MAX_S 300u

struct resolver_servers {
    struct sockaddr_in server[RESOLVER_SERVERS_MAX];
    size_t n;
};

/* "10.0.0.53", "10.0.0.53:5353". -EINVAL. */
MUST_CHECK int resolver_parse_server(const char *text, struct sockaddr_in *ret);
/* The IPv4 name servers of a file like /etc/resolv.conf. -ENOENT "no_resolver": it names none. */
MUST_CHECK int resolver_read_servers(const char *path, struct resolver_servers *ret, struct err *e);

struct resolver;
struct lookup;

struct resolver_answer {
    enum dns_rcode rcode;
    struct dns_addrs addrs; /* ttl_s is what is left */
};

struct resolver_waiter {
    struct lookup *lookup;        /* borrowed; NULL: does not wait */
    struct resolver_waiter *next; /* borrowed */
    void (*fn)(void *arg, const struct resolver_answer *answer);
    void *arg; /* borrowed */
};

/* servers is borrowed: lives longer. */
struct resolver *resolver_new(struct worker *w, const struct resolver_servers *servers);
void resolver_free(struct resolver *r);

/*
 * 0: *ret is the answer. -EAGAIN: w->fn will be called with it. -EBUSY: too many lookups. The name is normalised.
 */
MUST_CHECK int resolver_ask(struct resolver *r, const char *name, struct resolver_waiter *w,
                            struct resolver_answer *ret);
void resolver_cancel(struct resolver_waiter *w);
/* Calls fn for each name, fresh or not, that this sandbox was given the address for, and with when it last was, until fn says true. */
bool resolver_names_of(struct resolver *r, struct in_addr addr,
                       bool (*fn)(void *arg, const char *name, uint64_t used_ns), void *arg);
/* Ends what takes too long. Says whether something is under way. */
bool resolver_tick(struct resolver *r, uint64_t now_ns);
