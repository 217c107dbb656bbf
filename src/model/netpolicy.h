/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox may reach. Pure: decides, does not perform.
 *
 *     {"preset": "none" | "registries" | "internet" | "custom",
 *      "rules": [{"host": "*.example.com", "ports": "443", "action": "allow"},
 *                {"cidr": "10.1.0.0/16", "ports": "5432-5440", "action": "allow"},
 *                {"host": "api.example.com", "methods": ["GET"], "path": "/v1/", "action": "inspect"}],
 *      "observe": false}
 *
 * The first rule that fits decides: the client's in their order, then the preset's, then "deny". To deny a part
 * of what is allowed, put the denial before. What a rule fits:
 *
 *     host   a connection whose client has named that host (ClientHello, Host header): "example.com" is that name
 *            alone, "*.example.com" every name below it and not itself. Case and one trailing dot do not matter.
 *     cidr   a connection that the guest made to an address in it, whatever name it gives. "allow" lets it go to
 *            that very address, private ones included.
 *     ports  "443", "8000-8100"; absent: all.
 *     methods, path (a prefix)   of each HTTP request, on a connection that is inspected for it.
 *
 * A connection without a name is judged by cidr rules only (and by the preset internet). One with a name goes
 * to an address that the gateway itself has resolved for that name: netpolicy_addr_allowed() says whether that
 * address may be used. Public ones may, unless the first cidr rule that holds them says "deny"; private ones (all
 * that is not globally reachable: RFC 6890 and its updates) only where a cidr rule allows them.
 *
 * "ask" holds the connection, or with methods or a path each such request, until a person decides. "observe" lets through, to public addresses, what would be
 * denied, and the egress log says so.
 *
 * A policy never changes once made; references are counted and may be held by any thread.
 */
#pragma once

#include "base/json.h"

#include <netinet/in.h>

#define NETPOLICY_RULES_MAX 1024u
#define NETPOLICY_NAME_MAX 253u /* RFC 1035 2.3.4, without the root's dot */
#define NETPOLICY_PATH_MAX 256u
#define NETPOLICY_NOTE_MAX 120u
/* The text of a policy with that many rules of the usual length; a packet of the gateway's socket holds it. */
#define NETPOLICY_TEXT_MAX 131072u

enum netpolicy_action {
    NETPOLICY_DENY,
    NETPOLICY_ALLOW,
    NETPOLICY_INSPECT,
    NETPOLICY_ASK,
    NETPOLICY_ACTION_COUNT_,
};

struct netpolicy;

/* -EINVAL naming the field. The object is kept by reference and must not be changed afterwards. */
MUST_CHECK int netpolicy_from_json(json_t *object, struct netpolicy **ret, struct err *e);
/* Equal for policies that say the same in the same words; NULL: none. To see whether two sides have the same. */
uint64_t netpolicy_fingerprint(const json_t *object);
/* {"preset":"none"} */
struct netpolicy *netpolicy_none(void);
struct netpolicy *netpolicy_ref(const struct netpolicy *policy);
void netpolicy_unref(const struct netpolicy *policy);
DEFINE_CLEANUP(const struct netpolicy *, netpolicy_unref);
/* What it was made from, borrowed. */
json_t *netpolicy_json(const struct netpolicy *policy);
/* Nothing can get out, so nobody needs to listen. */
bool netpolicy_is_closed(const struct netpolicy *policy);
bool netpolicy_observes(const struct netpolicy *policy);

struct netpolicy_query {
    const char *name;    /* borrowed: normalised; NULL or "": none was given */
    struct in_addr addr; /* that the guest connected to */
    uint16_t port;       /* host order */
    const char *method;  /* borrowed; NULL: not known, it is a connection that is judged */
    const char *path;    /* borrowed; with method */
};

/* Who has decided. Rules count from 0 in the client's order. */
#define NETPOLICY_BY_PRESET (-1)
#define NETPOLICY_BY_DEFAULT (-2)

struct netpolicy_verdict {
    enum netpolicy_action action;
    int rule;
    /* The rule named an address, not the name: the connection goes to the guest's own destination. */
    bool by_addr;
};

/*
 * Without a method: of a connection. A rule with methods or path that could fit makes it "inspect", since only
 * the requests can tell. With a method: of that request; "inspect" then means as much as "allow".
 */
struct netpolicy_verdict netpolicy_judge(const struct netpolicy *policy,
                                         const struct netpolicy_query *query);
/*
 * May a named connection go to this address, which was resolved for its name? NETPOLICY_ANY_PORT: may one on
 * some port?
 */
#define NETPOLICY_ANY_PORT 0
bool netpolicy_addr_allowed(const struct netpolicy *policy, struct in_addr addr, uint16_t port);
/* Does the first cidr rule that holds the address let it be reached? Then it may be one of the host's own. */
bool netpolicy_addr_named(const struct netpolicy *policy, struct in_addr addr, uint16_t port);
/* Could any connection to that name be anything but denied? Else the name is not resolved. */
bool netpolicy_resolves(const struct netpolicy *policy, const char *name);
/* "rule 3 (allow *.example.com, ports 443)", "the preset 'registries'", "no rule: denied". */
void netpolicy_explain(const struct netpolicy *policy, const struct netpolicy_verdict *verdict,
                       char *ret, size_t size);
/*
 * {"host", "port", "method"?, "path"?} judged: {"action", "rule", "explanation", "resolves"}. The host may be an
 * address. -EINVAL naming the field.
 */
MUST_CHECK int netpolicy_explain_json(const struct netpolicy *policy, json_t *question,
                                      json_t **ret, struct err *e);
const char *netpolicy_action_name(enum netpolicy_action action);

/*
 * A name as it is compared: lower case, without the last dot. -EINVAL: no host name; that includes
 * what some libraries read as an address ("127.1", "0x7f000001", "2130706433").
 */
MUST_CHECK int netpolicy_name(const char *text, size_t len,
                              char ret[static NETPOLICY_NAME_MAX + 1]);
/* Four decimal numbers without leading zeros, nothing else. */
MUST_CHECK int netpolicy_parse_addr(const char *text, size_t len, struct in_addr *ret);
/* Globally reachable: no private, loopback, link-local, shared, documentation, multicast or reserved one. */
bool netpolicy_addr_public(struct in_addr addr);
