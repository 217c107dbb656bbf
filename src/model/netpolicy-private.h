/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of netpolicy.h only. */
#pragma once

#include "model/netpolicy.h"

enum netrule_kind {
    NETRULE_HOST,
    NETRULE_CIDR,
    NETRULE_ANYWHERE, /* the preset internet: every name, every public address */
};

struct netrule {
    enum netrule_kind kind;
    enum netpolicy_action action;
    char *host; /* owned: normalised, without "*." */
    bool below; /* "*.": the names below host */
    struct in_addr net;
    uint32_t mask; /* host order */
    unsigned prefix;
    uint16_t port_min;
    uint16_t port_max;
    char **methods; /* owned: NULL-terminated; NULL: any */
    char *path;     /* owned: a prefix; NULL: any */
    int next;       /* the next rule of the same name, or -1 */
};

enum netpreset {
    NETPRESET_NONE,
    NETPRESET_REGISTRIES,
    NETPRESET_INTERNET,
    NETPRESET_CUSTOM,
    NETPRESET_INHERIT,
    NETPRESET_COUNT_,
};

/* One level; the sandbox's own holds the others. */
struct netpolicy {
    unsigned refs; /* atomic */
    json_t *json;  /* owned */
    enum netpreset preset;
    bool observe;
    struct netrule *rules; /* owned: the client's, then the preset's */
    size_t n_rules;
    size_t n_own;     /* the client's */
    int *buckets;     /* owned: first rule of a name, by hash; -1: none */
    size_t n_buckets; /* a power of two, at least twice the names */
    int *by_addr;     /* owned: the rules that are not of a host, in order */
    size_t n_by_addr;
    struct netpolicy *outer[NETPOLICY_SANDBOX]; /* owned; NULL: that level has none */
};

/* ---- one level by itself: netpolicy.c ---- */

/* Does a level that no rule has spoken for leave it to the others? */
bool netlevel_is_silent(const struct netpolicy *p, const struct netpolicy_verdict *verdict);
/* *ret_lets: false where it lets nothing through by itself, and only looks at requests in order to deny some of them. */
struct netpolicy_verdict netlevel_judge(const struct netpolicy *p, const struct netpolicy_query *q,
                                        bool *ret_lets);
/* Has it a rule that lets anything through? */
bool netlevel_lets(const struct netpolicy *p);

enum netlevel_word {
    NETLEVEL_SAYS_NO,
    NETLEVEL_SAYS_YES,
    NETLEVEL_SAYS_NOTHING,
};

/* What its first cidr rule for that address says. */
enum netlevel_word netlevel_addr(const struct netpolicy *p, struct in_addr addr, uint16_t port);
/* May that name be looked up? */
enum netlevel_word netlevel_resolves(const struct netpolicy *p, const char *name);
void netlevel_explain(const struct netpolicy *p, const struct netpolicy_verdict *verdict, char *ret,
                      size_t size);

/* The first rule for exactly that text, with or without "*.", or -1; the others follow by next. */
int netpolicy_first(const struct netpolicy *p, const char *host, bool below);
/* "443", "8000-8100". */
MUST_CHECK int netrule_ports(const char *text, uint16_t *ret_min, uint16_t *ret_max);
MUST_CHECK int netrule_host(const char *text, struct netrule *rule);
MUST_CHECK int netrule_cidr(const char *text, struct netrule *rule);
const char *netpreset_name(enum netpreset preset);
#define NETPRESET_HOST_SIZE 64
/* The hosts of the preset registries, each on ports 80 and 443. False: there is no i-th. */
bool netpreset_registry(size_t i, char ret[static NETPRESET_HOST_SIZE]);
