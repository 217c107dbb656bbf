/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions of all levels together: the strictest word counts. */
#include "model/netpolicy-private.h"

#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {"organisation", "project", "sandbox"};
_Static_assert(ARRAY_SIZE(level_names) == NETPOLICY_LEVEL_COUNT_, "each has its name");

const char *netpolicy_level_name(enum netpolicy_level level)
{
    return level_names[level];
}

/* NULL: it has none. */
static const struct netpolicy *level_of(const struct netpolicy *policy, unsigned level)
{
    return level == NETPOLICY_SANDBOX ? policy : policy->outer[level];
}

static bool has_outer(const struct netpolicy *policy)
{
    return policy->outer[NETPOLICY_ORGANISATION] || policy->outer[NETPOLICY_PROJECT];
}

/*
 * A connection that one level wants to look into is looked into before anybody is asked: its requests are asked about then, and
 * another level's rules for requests are not passed by.
 */
static int strictness(enum netpolicy_action action, bool request)
{
    switch (action) {
    case NETPOLICY_DENY:
        return 3;
    case NETPOLICY_INSPECT:
        return request ? 1 : 2;
    case NETPOLICY_ASK:
        return request ? 2 : 1;
    default:
        return 0;
    }
}

/* Of the levels before end. False: none of them says anything, and *ret is a denial. */
static bool judge_levels(const struct netpolicy *policy, const struct netpolicy_query *query,
                         unsigned end, struct netpolicy_verdict *ret)
{
    struct netpolicy_verdict v = {
        .action = NETPOLICY_DENY, .rule = NETPOLICY_BY_DEFAULT, .level = NETPOLICY_SANDBOX};
    bool said = false;
    bool lets = false;
    bool some_by_addr = false;
    bool all_by_addr = true;

    for (unsigned level = 0; level < end; level++) {
        const struct netpolicy *p = level_of(policy, level);
        struct netpolicy_verdict own;
        bool own_lets;

        if (!p) {
            continue;
        }
        own = netlevel_judge(p, query, &own_lets);
        own.level = (enum netpolicy_level)level;
        if (netlevel_is_silent(p, &own)) {
            continue;
        }
        some_by_addr = some_by_addr || own.by_addr;
        all_by_addr = all_by_addr && own.by_addr;
        if (!said || strictness(own.action, query->method) > strictness(v.action, query->method)) {
            v = own;
        }
        said = true;
        lets = lets || own_lets;
    }
    if (said && !lets && v.action != NETPOLICY_DENY && end == NETPOLICY_LEVEL_COUNT_) {
        v = (struct netpolicy_verdict){
            .action = NETPOLICY_DENY, .rule = NETPOLICY_BY_DEFAULT, .level = NETPOLICY_SANDBOX};
    }
    v.by_addr = said && all_by_addr;
    v.pinned = some_by_addr && !all_by_addr;
    *ret = v;
    return said;
}

struct netpolicy_verdict netpolicy_judge(const struct netpolicy *policy,
                                         const struct netpolicy_query *query)
{
    struct netpolicy_verdict v;

    (void)judge_levels(policy, query, NETPOLICY_LEVEL_COUNT_, &v);
    return v;
}

bool netpolicy_observed(const struct netpolicy *policy, const struct netpolicy_query *query,
                        struct netpolicy_verdict *verdict)
{
    struct netpolicy_verdict outer;

    if (verdict->action != NETPOLICY_DENY || verdict->level != NETPOLICY_SANDBOX ||
        !policy->observe) {
        return false;
    }
    if (!judge_levels(policy, query, NETPOLICY_SANDBOX, &outer)) {
        outer = (struct netpolicy_verdict){.action = NETPOLICY_ALLOW, .by_addr = false};
    }
    verdict->action = outer.action;
    verdict->by_addr = str_empty(query->name);
    verdict->pinned = !verdict->by_addr && (outer.by_addr || outer.pinned);
    return true;
}

bool netpolicy_is_closed(const struct netpolicy *policy)
{
    bool lets = policy->observe;

    for (unsigned level = 0; level < NETPOLICY_LEVEL_COUNT_; level++) {
        const struct netpolicy *p = level_of(policy, level);

        if (!p) {
            continue;
        }
        if (netlevel_lets(p) || p->observe) {
            lets = true;
        } else if (p->preset != NETPRESET_INHERIT) {
            return true;
        }
    }
    return !lets;
}

bool netpolicy_addr_named(const struct netpolicy *policy, struct in_addr addr, uint16_t port)
{
    bool named = false;

    for (unsigned level = 0; level < NETPOLICY_LEVEL_COUNT_; level++) {
        const struct netpolicy *p = level_of(policy, level);
        enum netlevel_word word = p ? netlevel_addr(p, addr, port) : NETLEVEL_SAYS_NOTHING;

        if (word == NETLEVEL_SAYS_NO ||
            (p && word == NETLEVEL_SAYS_NOTHING && p->preset != NETPRESET_INHERIT)) {
            return false;
        }
        named = named || word == NETLEVEL_SAYS_YES;
    }
    return named;
}

bool netpolicy_addr_allowed(const struct netpolicy *policy, struct in_addr addr, uint16_t port)
{
    bool public = netpolicy_addr_public(addr);

    for (unsigned level = 0; level < NETPOLICY_LEVEL_COUNT_ && public; level++) {
        const struct netpolicy *p = level_of(policy, level);

        if (p && netlevel_addr(p, addr, port) == NETLEVEL_SAYS_NO) {
            return false;
        }
    }
    return public || netpolicy_addr_named(policy, addr, port);
}

bool netpolicy_resolves(const struct netpolicy *policy, const char *name)
{
    enum netlevel_word own = netlevel_resolves(policy, name);
    bool said = own == NETLEVEL_SAYS_YES || policy->observe;

    for (unsigned level = 0; level < NETPOLICY_SANDBOX; level++) {
        const struct netpolicy *p = policy->outer[level];
        enum netlevel_word word = p ? netlevel_resolves(p, name) : NETLEVEL_SAYS_NOTHING;

        if (word == NETLEVEL_SAYS_NO) {
            return false;
        }
        said = said || word == NETLEVEL_SAYS_YES;
    }
    return said && (own != NETLEVEL_SAYS_NO || policy->observe);
}

enum netpolicy_level netpolicy_unresolved_by(const struct netpolicy *policy, const char *name)
{
    unsigned level = 0;

    while (level < NETPOLICY_SANDBOX &&
           (!policy->outer[level] ||
            netlevel_resolves(policy->outer[level], name) != NETLEVEL_SAYS_NO)) {
        level++;
    }
    return (enum netpolicy_level)level;
}

/* ---- explaining ---- */

void netpolicy_explain(const struct netpolicy *policy, const struct netpolicy_verdict *verdict,
                       char *ret, size_t size)
{
    const struct netpolicy *p = level_of(policy, verdict->level);
    int n = 0;

    if (!p || (has_outer(policy) && netlevel_is_silent(p, verdict))) {
        snprintf(ret, size, "no rule of any level fits, so it is denied");
        return;
    }
    if (has_outer(policy)) {
        n = snprintf(ret, size, "%s, ", level_names[verdict->level]);
    }
    netlevel_explain(p, verdict, ret + n, size - (size_t)n);
}

static json_t *rule_json(const struct netpolicy_verdict *verdict)
{
    return verdict->rule >= 0 ? json_integer(verdict->rule) : json_null();
}

/* What each level says by itself. */
static json_t *levels_json(const struct netpolicy *policy, const struct netpolicy_query *query)
{
    json_t *list = json_array();

    for (unsigned level = 0; level < NETPOLICY_LEVEL_COUNT_; level++) {
        const struct netpolicy *p = level_of(policy, level);
        struct netpolicy_verdict v;
        char text[NETPOLICY_NAME_MAX + 160];
        bool silent;
        bool lets;

        if (!p) {
            continue;
        }
        v = netlevel_judge(p, query, &lets);
        silent = netlevel_is_silent(p, &v);
        netlevel_explain(p, &v, text, sizeof(text));
        json_array_append_new(
            list, json_pack("{s:s, s:s?, s:o, s:s}", "level", level_names[level], "action",
                            silent ? NULL : netpolicy_action_name(v.action), "rule", rule_json(&v),
                            "explanation", silent ? "no rule fits: the others decide" : text));
    }
    return list;
}

int netpolicy_explain_json(const struct netpolicy *policy, json_t *question, json_t **ret,
                           struct err *e)
{
    const char *host = json_get_string(question, "host", "");
    int64_t port = json_get_int(question, "port", 0);
    char name[NETPOLICY_NAME_MAX + 1] = "";
    struct netpolicy_query query = {.name = name,
                                    .method = json_get_string(question, "method", NULL),
                                    .path = json_get_string(question, "path", "/")};
    struct netpolicy_verdict verdict;
    struct netpolicy_verdict seen;
    bool observed;
    char text[NETPOLICY_NAME_MAX + 160];

    if (port < 1 || port > UINT16_MAX) {
        return err_field(e, -EINVAL, "out_of_range", "port", "'port' must be from 1 to 65535");
    }
    if (netpolicy_parse_addr(host, strlen(host), &query.addr) < 0 &&
        netpolicy_name(host, strlen(host), name) < 0) {
        return err_field(e, -EINVAL, "invalid_field", "host",
                         "'host' must be a host name or an IPv4 address");
    }
    query.port = (uint16_t)port;
    seen = verdict = netpolicy_judge(policy, &query);
    observed = netpolicy_observed(policy, &query, &seen);
    netpolicy_explain(policy, &verdict, text, sizeof(text));
    *ret = json_pack("{s:s, s:s, s:b, s:b}", "action", netpolicy_action_name(verdict.action),
                     "explanation", text, "resolves", name[0] && netpolicy_resolves(policy, name),
                     "observed", observed);
    json_object_set_new(*ret, "level", json_string(level_names[verdict.level]));
    json_object_set_new(*ret, "rule", rule_json(&verdict));
    json_object_set_new(*ret, "levels", levels_json(policy, &query));
    return 0;
}
