/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions of one level. */
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

bool netlevel_lets(const struct netpolicy *p)
{
    for (size_t i = 0; i < p->n_rules; i++) {
        if (p->rules[i].action != NETPOLICY_DENY) {
            return true;
        }
    }
    return false;
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
    struct netpolicy_verdict v = {.action = NETPOLICY_DENY, .rule = NETPOLICY_BY_DEFAULT};
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

bool netlevel_is_silent(const struct netpolicy *p, const struct netpolicy_verdict *verdict)
{
    return verdict->rule == NETPOLICY_BY_DEFAULT && p->preset == NETPRESET_INHERIT;
}

struct netpolicy_verdict netlevel_judge(const struct netpolicy *p, const struct netpolicy_query *q,
                                        bool *ret_lets)
{
    struct netpolicy_verdict v;
    bool denies;
    int decides;
    int i;

    *ret_lets = true;
    if (q->method) {
        return verdict_of(p, q, find_rule(p, q, FIT_REQUEST));
    }
    decides = find_rule(p, q, FIT_ALWAYS);
    v = verdict_of(p, q, decides);
    denies = v.action == NETPOLICY_DENY && !netlevel_is_silent(p, &v);
    /* A rule for some requests comes before: they must be seen, if any of them could be let through. */
    i = find_rule(p, q, denies ? FIT_SOMETIMES_LETS : FIT_SOMETIMES);
    if (before(i, decides)) {
        bool by_addr = v.action != NETPOLICY_DENY && v.by_addr;

        *ret_lets = !netlevel_is_silent(p, &v) || find_rule(p, q, FIT_SOMETIMES_LETS) >= 0;
        v = verdict_of(p, q, i);
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

enum netlevel_word netlevel_addr(const struct netpolicy *p, struct in_addr addr, uint16_t port)
{
    const struct netrule *rule = addr_rule(p, addr, port);

    if (!rule) {
        return NETLEVEL_SAYS_NOTHING;
    }
    return rule->action == NETPOLICY_DENY ? NETLEVEL_SAYS_NO : NETLEVEL_SAYS_YES;
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

enum netlevel_word netlevel_resolves(const struct netpolicy *p, const char *name)
{
    const char *at = name;
    int best = -1;

    first_saying(p, name, /* below */ false, &best);
    while ((at = strchr(at, '.'))) {
        at++;
        first_saying(p, at, /* below */ true, &best);
    }
    if (best >= 0) {
        return p->rules[best].action != NETPOLICY_DENY ? NETLEVEL_SAYS_YES : NETLEVEL_SAYS_NO;
    }
    if (p->preset == NETPRESET_INHERIT) {
        return NETLEVEL_SAYS_NOTHING;
    }
    return p->preset == NETPRESET_INTERNET ? NETLEVEL_SAYS_YES : NETLEVEL_SAYS_NO;
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

void netlevel_explain(const struct netpolicy *p, const struct netpolicy_verdict *verdict, char *ret,
                      size_t size)
{
    char text[NETPOLICY_NAME_MAX + 80];

    if (verdict->rule == NETPOLICY_BY_DEFAULT) {
        snprintf(ret, size, "no rule fits, so it is denied");
    } else if (verdict->rule == NETPOLICY_BY_PRESET) {
        snprintf(ret, size, "the preset '%s'%s", netpreset_name(p->preset),
                 verdict->action == NETPOLICY_DENY ? ", which has public addresses only" : "");
    } else {
        print_rule(&p->rules[verdict->rule], text, sizeof(text));
        snprintf(ret, size, "rule %d: %s", verdict->rule, text);
    }
}
