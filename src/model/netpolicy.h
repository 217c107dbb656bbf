/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox may reach. Pure: decides, does not perform.
 *
 *     {"preset": "none" | "registries" | "internet" | "custom" | "inherit",
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
 * Organisation, project and sandbox may each have a policy. Each that has one judges by itself, and the strictest word counts, so that
 * nothing which an outer level denies can be allowed further in; of two that say the same the outer one is named. With the preset
 * "inherit" a level says nothing about what none of its rules fits: the others decide, and where none of them says anything it is
 * denied. A sandbox of which nothing was said is {"preset": "inherit"} inside levels that have policies. An address
 * that is not public must be named by each level that is not "inherit", and by one at least. "observe" is of a sandbox
 * alone and lets through only what its own level denies. The node gets all three in one object: the sandbox's, with the others in
 * {"outer": {"organisation": {...}, "project": {...}}}.
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
/* That of an organisation or a project: it goes along with each of its sandboxes' policies. */
#define NETPOLICY_OUTER_TEXT_MAX 16384u
#define NETPOLICY_STACK_TEXT_MAX (NETPOLICY_TEXT_MAX + 2 * NETPOLICY_OUTER_TEXT_MAX + 128u)

enum netpolicy_action {
    NETPOLICY_DENY,
    NETPOLICY_ALLOW,
    NETPOLICY_INSPECT,
    NETPOLICY_ASK,
    NETPOLICY_ACTION_COUNT_,
};

/* Outermost first. */
enum netpolicy_level {
    NETPOLICY_ORGANISATION,
    NETPOLICY_PROJECT,
    NETPOLICY_SANDBOX,
    NETPOLICY_LEVEL_COUNT_,
};

struct netpolicy;

/* -EINVAL naming the field. The object is kept by reference and must not be changed afterwards. */
MUST_CHECK int netpolicy_from_json(json_t *object, struct netpolicy **ret, struct err *e);
/* Of an organisation or a project: says its preset, has no "observe", and is smaller. *ret is for being looked at only. */
MUST_CHECK int netpolicy_outer_from_json(json_t *object, struct netpolicy **ret, struct err *e);
/* A sandbox's with "outer", as the node gets it. */
MUST_CHECK int netpolicy_stack_from_json(json_t *object, struct netpolicy **ret, struct err *e);
/*
 * What netpolicy_stack_from_json() reads, from texts that were checked; "" or NULL: that level has none. The caller owns it;
 * NULL: one of them is no JSON.
 */
json_t *netpolicy_stack_json(const char *const texts[NETPOLICY_LEVEL_COUNT_]);
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
    /* One level's rule named the address, another's the name: it goes to the guest's own destination if the name has that address. */
    bool pinned;
    enum netpolicy_level level;
};

/*
 * Without a method: of a connection. A rule with methods or path that could fit makes it "inspect", since only
 * the requests can tell. With a method: of that request; "inspect" then means as much as "allow".
 */
struct netpolicy_verdict netpolicy_judge(const struct netpolicy *policy,
                                         const struct netpolicy_query *query);
/*
 * Where the sandbox's own level alone denies and observes: the action becomes what the other levels say, and it returns
 * true. "resolves" and addresses are judged accordingly.
 */
bool netpolicy_observed(const struct netpolicy *policy, const struct netpolicy_query *query,
                        struct netpolicy_verdict *verdict);
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
/* Whose word it is, when it is not resolved. */
enum netpolicy_level netpolicy_unresolved_by(const struct netpolicy *policy, const char *name);
/*
 * "rule 3: allow *.example.com, port 443", "the preset 'registries'", "no rule fits, so it is denied"; with the level before it
 * where there are several.
 */
void netpolicy_explain(const struct netpolicy *policy, const struct netpolicy_verdict *verdict,
                       char *ret, size_t size);
/*
 * {"host", "port", "method"?, "path"?} judged: {"action", "level", "rule", "explanation", "resolves", "levels"}: of each
 * level what it says by itself. The host may be an address. -EINVAL naming the field.
 */
MUST_CHECK int netpolicy_explain_json(const struct netpolicy *policy, json_t *question,
                                      json_t **ret, struct err *e);
const char *netpolicy_action_name(enum netpolicy_action action);
const char *netpolicy_level_name(enum netpolicy_level level);

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
