/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions. */
#include "model/netpolicy.h"

#include "model/netpolicy-private.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const char *const action_names[] = {"deny", "allow", "inspect", "ask"};

const char *netpolicy_action_name(enum netpolicy_action action)
{
    return action_names[action];
}

json_t *netpolicy_json(const struct netpolicy *policy)
{
    return policy->json;
}

bool netpolicy_observes(const struct netpolicy *policy)
{
    return policy->observe;
}

bool netpolicy_is_closed(const struct netpolicy *policy)
{
    for (size_t i = 0; i < policy->n_rules; i++) {
        if (policy->rules[i].action != NETPOLICY_DENY) {
            return false;
        }
    }
    return !policy->observe;
}

static bool rule_holds(const struct netrule *rule, struct in_addr addr)
{
    if (rule->kind == NETRULE_CIDR) {
        return ((ntohl(addr.s_addr) ^ ntohl(rule->net.s_addr)) & rule->mask) == 0;
    }
    return rule->kind == NETRULE_ANYWHERE;
}

static bool has_method(const struct netrule *rule, const char *method)
{
    for (size_t i = 0; rule->methods && rule->methods[i]; i++) {
        if (str_eq(rule->methods[i], method)) {
            return true;
        }
    }
    return !rule->methods;
}

/* Which rules are looked at: of a request all; of a connection first those that do not depend on requests. */
enum fit {
    FIT_REQUEST,
    FIT_ALWAYS,        /* without methods and path */
    FIT_SOMETIMES,     /* with them */
    FIT_SOMETIMES_LETS /* with them, and not to deny */
};

/* Beside name or address. */
static bool rule_fits(const struct netrule *rule, const struct netpolicy_query *q, enum fit fit)
{
    bool sometimes = rule->methods || rule->path;

    if (q->port < rule->port_min || q->port > rule->port_max) {
        return false;
    }
    switch (fit) {
    case FIT_ALWAYS:
        return !sometimes;
    case FIT_SOMETIMES:
        return sometimes;
    case FIT_SOMETIMES_LETS:
        return sometimes && rule->action != NETPOLICY_DENY;
    default:
        return has_method(rule, q->method) &&
               (!rule->path || (q->path && str_starts(q->path, rule->path)));
    }
}

struct search {
    const struct netpolicy *p;
    const struct netpolicy_query *q;
    enum fit fit;
};

/* The first rule of this name that fits and comes before best, which is -1 for none yet. */
static int better_by_name(const struct search *s, const char *host, bool below, int best)
{
    int i = netpolicy_first(s->p, host, below);

    while (i >= 0 && (best < 0 || i < best)) {
        if (rule_fits(&s->p->rules[i], s->q, s->fit)) {
            return i;
        }
        i = s->p->rules[i].next;
    }
    return best;
}

static int find_by_name(const struct search *s)
{
    const char *at = s->q->name;
    int best;

    if (str_empty(at)) {
        return -1;
    }
    best = better_by_name(s, at, /* below */ false, -1);
    while ((at = strchr(at, '.'))) {
        at++;
        best = better_by_name(s, at, /* below */ true, best);
    }
    return best;
}

/* The first that fits, or -1. */
static int find_rule(const struct netpolicy *p, const struct netpolicy_query *q, enum fit fit)
{
    const struct search search = {p, q, fit};
    int best = find_by_name(&search);

    for (size_t k = 0; k < p->n_by_addr; k++) {
        int i = p->by_addr[k];
        const struct netrule *rule = &p->rules[i];

        if (best >= 0 && i > best) {
            break;
        }
        if (rule_holds(rule, q->addr) && rule_fits(rule, q, fit)) {
            return i;
        }
    }
    return best;
}

/* The preset internet allows everything public; a name's address is looked at once it is known. */
static bool anywhere_refuses(const struct netrule *rule, const struct netpolicy_query *q)
{
    return rule->kind == NETRULE_ANYWHERE && str_empty(q->name) && !netpolicy_addr_public(q->addr);
}

static struct netpolicy_verdict verdict_of(const struct netpolicy *p,
                                           const struct netpolicy_query *q, int i)
{
    struct netpolicy_verdict v = {NETPOLICY_DENY, NETPOLICY_BY_DEFAULT, false};
    const struct netrule *rule;

    if (i < 0) {
        return v;
    }
    rule = &p->rules[i];
    v.rule = (size_t)i < p->n_own ? i : NETPOLICY_BY_PRESET;
    if (anywhere_refuses(rule, q)) {
        return v;
    }
    v.action = rule->action;
    v.by_addr = rule->kind == NETRULE_CIDR || str_empty(q->name);
    return v;
}

/* Is there one before the rule that decides for all requests? */
static bool before(int i, int decides)
{
    return i >= 0 && (decides < 0 || i < decides);
}

struct netpolicy_verdict netpolicy_judge(const struct netpolicy *policy,
                                         const struct netpolicy_query *query)
{
    struct netpolicy_verdict v;
    int decides;
    int i;

    if (query->method) {
        return verdict_of(policy, query, find_rule(policy, query, FIT_REQUEST));
    }
    decides = find_rule(policy, query, FIT_ALWAYS);
    v = verdict_of(policy, query, decides);
    /* A rule for some requests comes before: they must be seen, if any of them could be let through. */
    i = find_rule(policy, query, v.action == NETPOLICY_DENY ? FIT_SOMETIMES_LETS : FIT_SOMETIMES);
    if (before(i, decides)) {
        bool by_addr = v.action != NETPOLICY_DENY && v.by_addr;

        v = verdict_of(policy, query, i);
        v.action = NETPOLICY_INSPECT;
        v.by_addr = v.by_addr || by_addr;
    }
    return v;
}

/* The first cidr rule for the address; with any port, the first that allows or that is of all ports. */
static const struct netrule *addr_rule(const struct netpolicy *p, struct in_addr addr,
                                       uint16_t port)
{
    for (size_t k = 0; k < p->n_by_addr; k++) {
        const struct netrule *rule = &p->rules[p->by_addr[k]];
        bool all_ports = rule->port_min == 1 && rule->port_max == UINT16_MAX;
        bool fits = port == NETPOLICY_ANY_PORT ? all_ports || rule->action != NETPOLICY_DENY
                                               : port >= rule->port_min && port <= rule->port_max;

        if (rule->kind == NETRULE_CIDR && rule_holds(rule, addr) && fits) {
            return rule;
        }
    }
    return NULL;
}

bool netpolicy_addr_named(const struct netpolicy *policy, struct in_addr addr, uint16_t port)
{
    const struct netrule *rule = addr_rule(policy, addr, port);

    return rule && rule->action != NETPOLICY_DENY;
}

bool netpolicy_addr_allowed(const struct netpolicy *policy, struct in_addr addr, uint16_t port)
{
    const struct netrule *rule = addr_rule(policy, addr, port);

    return rule ? rule->action != NETPOLICY_DENY : netpolicy_addr_public(addr);
}

/* The first of this name's rules, if before *best, that says something of all connections or allows some. */
static void first_saying(const struct netpolicy *p, const char *host, bool below, int *best)
{
    int i = netpolicy_first(p, host, below);

    for (; i >= 0 && (*best < 0 || i < *best); i = p->rules[i].next) {
        const struct netrule *rule = &p->rules[i];
        bool whole =
            rule->port_min == 1 && rule->port_max == UINT16_MAX && !rule->methods && !rule->path;

        if (rule->action != NETPOLICY_DENY || whole) {
            *best = i;
            return;
        }
    }
}

bool netpolicy_resolves(const struct netpolicy *policy, const char *name)
{
    const char *at = name;
    int best = -1;

    first_saying(policy, name, /* below */ false, &best);
    while ((at = strchr(at, '.'))) {
        at++;
        first_saying(policy, at, /* below */ true, &best);
    }
    if (best >= 0) {
        return policy->rules[best].action != NETPOLICY_DENY;
    }
    return policy->observe || policy->preset == NETPRESET_INTERNET;
}

/* ---- explaining ---- */

static void print_rule(const struct netrule *rule, char *ret, size_t size)
{
    char where[NETPOLICY_NAME_MAX + 8];
    char ports[32] = "";
    char text[INET_ADDRSTRLEN] = "";

    if (rule->kind == NETRULE_HOST) {
        snprintf(where, sizeof(where), "%s%s", rule->below ? "*." : "", rule->host);
    } else {
        inet_ntop(AF_INET, &rule->net, text, sizeof(text));
        snprintf(where, sizeof(where), "%s/%u", text, rule->prefix);
    }
    if (rule->port_min == rule->port_max) {
        snprintf(ports, sizeof(ports), ", port %u", rule->port_min);
    } else if (rule->port_min != 1 || rule->port_max != UINT16_MAX) {
        snprintf(ports, sizeof(ports), ", ports %u-%u", rule->port_min, rule->port_max);
    }
    snprintf(ret, size, "%s %s%s%s", action_names[rule->action], where, ports,
             rule->methods || rule->path ? ", of its requests" : "");
}

void netpolicy_explain(const struct netpolicy *policy, const struct netpolicy_verdict *verdict,
                       char *ret, size_t size)
{
    char text[NETPOLICY_NAME_MAX + 80];

    if (verdict->rule == NETPOLICY_BY_DEFAULT) {
        snprintf(ret, size, "no rule fits, so it is denied");
    } else if (verdict->rule == NETPOLICY_BY_PRESET) {
        snprintf(ret, size, "the preset '%s'%s", netpreset_name(policy->preset),
                 verdict->action == NETPOLICY_DENY ? ", which has public addresses only" : "");
    } else {
        print_rule(&policy->rules[verdict->rule], text, sizeof(text));
        snprintf(ret, size, "rule %d: %s", verdict->rule, text);
    }
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
    verdict = netpolicy_judge(policy, &query);
    netpolicy_explain(policy, &verdict, text, sizeof(text));
    *ret = json_pack("{s:s, s:s, s:b, s:b}", "action", netpolicy_action_name(verdict.action),
                     "explanation", text, "resolves", name[0] && netpolicy_resolves(policy, name),
                     "observed", verdict.action == NETPOLICY_DENY && policy->observe);
    json_object_set_new(*ret, "rule", verdict.rule >= 0 ? json_integer(verdict.rule) : json_null());
    return 0;
}
