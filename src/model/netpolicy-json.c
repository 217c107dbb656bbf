/* SPDX-License-Identifier: Apache-2.0 */
/* Policies from JSON, and what makes deciding quick: names by hash. */
#include "model/netpolicy-private.h"

#include <stdio.h>
#include <string.h>

#define METHODS_MAX 16u
#define METHOD_LEN_MAX 24u

static const char *const preset_names[] = {"none", "registries", "internet", "custom", "inherit"};
_Static_assert(ARRAY_SIZE(preset_names) == NETPRESET_COUNT_, "each has its name");

/* Where package managers fetch from by default. Nothing in here takes uploads without an account. */
static const struct {
    const char *host;
    const char *domain;
} registries[] = {
    {"deb", "debian.org"},         {"security", "debian.org"},
    {"archive", "ubuntu.com"},     {"security", "ubuntu.com"},
    {"dl-cdn", "alpinelinux.org"}, {"pypi", "org"},
    {"files", "pythonhosted.org"}, {"registry", "npmjs.org"},
    {"registry", "yarnpkg.com"},   {"crates", "io"},
    {"index.crates", "io"},        {"static.crates", "io"},
    {"proxy", "golang.org"},       {"sum", "golang.org"},
    {"rubygems", "org"},           {"index.rubygems", "org"},
    {"repo.maven", "apache.org"},  {"repo1", "maven.org"},
};

bool netpreset_registry(size_t i, char ret[static NETPRESET_HOST_SIZE])
{
    if (i >= ARRAY_SIZE(registries)) {
        return false;
    }
    snprintf(ret, NETPRESET_HOST_SIZE, "%s.%s", registries[i].host, registries[i].domain);
    return true;
}

const char *netpreset_name(enum netpreset preset)
{
    return preset_names[preset];
}

static int rule_bad(size_t i, const char *field, const char *what, struct err *e)
{
    char name[40];

    snprintf(name, sizeof(name), "rules[%zu].%s", i, field);
    return err_field(e, -EINVAL, "invalid_field", name, "'%s' must be %s", name, what);
}

static int read_action(size_t i, const char *text, struct netrule *rule, struct err *e)
{
    for (int a = 0; a < NETPOLICY_ACTION_COUNT_; a++) {
        if (str_eq(text, netpolicy_action_name((enum netpolicy_action)a))) {
            rule->action = (enum netpolicy_action)a;
            return 0;
        }
    }
    return rule_bad(i, "action", "'allow', 'deny', 'inspect' or 'ask'", e);
}

static bool method_valid(const char *text)
{
    size_t len = text ? strlen(text) : 0;

    return len > 0 && len <= METHOD_LEN_MAX && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == len;
}

static int read_methods(size_t i, json_t *list, struct netrule *rule, struct err *e)
{
    size_t n = json_array_size(list);

    if (!list) {
        return 0;
    }
    if (n == 0 || n > METHODS_MAX) {
        return rule_bad(i, "methods", "1 to 16 HTTP methods", e);
    }
    rule->methods = xnew_n(char *, n + 1);
    for (size_t k = 0; k < n; k++) {
        const char *text = json_string_value(json_array_get(list, k));

        if (!method_valid(text)) {
            return rule_bad(i, "methods", "HTTP methods in capitals, like \"GET\"", e);
        }
        rule->methods[k] = xstrdup(text);
    }
    return 0;
}

static bool path_valid(const char *text)
{
    size_t len = strlen(text);

    if (text[0] != '/' || len > NETPOLICY_PATH_MAX) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] >= 0x7f || text[i] == '?' || text[i] == '#') {
            return false;
        }
    }
    return !strstr(text, "/../") && !strstr(text, "/./");
}

static int read_http(size_t i, json_t *object, struct netrule *rule, struct err *e)
{
    const char *path = json_get_string(object, "path", NULL);
    int r = read_methods(i, json_object_get(object, "methods"), rule, e);

    if (r < 0) {
        return r;
    }
    if (path) {
        if (!path_valid(path)) {
            return rule_bad(i, "path", "the beginning of a path, like \"/v1/\"", e);
        }
        rule->path = xstrdup(path);
    }
    return 0;
}

static int read_rule(size_t i, json_t *object, struct netrule *rule, struct err *e)
{
    static const struct json_field fields[] = {
        {"host", JSON_FIELD_STRING, 0},   {"cidr", JSON_FIELD_STRING, 0},
        {"ports", JSON_FIELD_STRING, 0},  {"action", JSON_FIELD_STRING, JSON_REQUIRED},
        {"methods", JSON_FIELD_ARRAY, 0}, {"path", JSON_FIELD_STRING, 0},
        {"note", JSON_FIELD_STRING, 0},
    };
    const char *host = json_get_string(object, "host", NULL);
    const char *cidr = json_get_string(object, "cidr", NULL);
    const char *ports = json_get_string(object, "ports", NULL);
    int r;

    if (!json_is_object(object)) {
        return rule_bad(i, "", "an object", e);
    }
    r = json_check_object(object, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    *rule = (struct netrule){.port_min = 1, .port_max = UINT16_MAX, .next = -1};
    if (!host == !cidr) {
        return rule_bad(i, "host", "given, or 'cidr', and not both", e);
    }
    if (host && netrule_host(host, rule) < 0) {
        return rule_bad(i, "host", "a host name, or \"*.\" and a host name", e);
    }
    if (cidr && netrule_cidr(cidr, rule) < 0) {
        return rule_bad(i, "cidr", "an IPv4 network like \"10.1.0.0/16\", no bit set behind it", e);
    }
    if (ports && netrule_ports(ports, &rule->port_min, &rule->port_max) < 0) {
        return rule_bad(i, "ports", "a port or a range, like \"443\" or \"8000-8100\"", e);
    }
    if (strlen(json_get_string(object, "note", "")) > NETPOLICY_NOTE_MAX) {
        return rule_bad(i, "note", "at most 120 bytes", e);
    }
    r = read_action(i, json_get_string(object, "action", ""), rule, e);
    return r < 0 ? r : read_http(i, object, rule, e);
}

static int read_preset(json_t *object, enum netpreset *ret, struct err *e)
{
    const char *text = json_get_string(object, "preset", "custom");

    for (int i = 0; i < NETPRESET_COUNT_; i++) {
        if (str_eq(text, preset_names[i])) {
            *ret = (enum netpreset)i;
            return 0;
        }
    }
    return err_field(e, -EINVAL, "invalid_field", "preset",
                     "'preset' must be 'none', 'registries', 'internet', 'custom' or 'inherit'");
}

static void add_preset(struct netpolicy *p)
{
    const struct netrule base = {
        .action = NETPOLICY_ALLOW, .port_min = 1, .port_max = UINT16_MAX, .next = -1};
    char host[NETPRESET_HOST_SIZE];

    if (p->preset == NETPRESET_INTERNET) {
        p->rules[p->n_rules] = base;
        p->rules[p->n_rules++].kind = NETRULE_ANYWHERE;
    }
    for (size_t i = 0; p->preset == NETPRESET_REGISTRIES && netpreset_registry(i, host); i++) {
        for (int tls = 0; tls < 2; tls++) {
            struct netrule *rule = &p->rules[p->n_rules++];

            *rule = base;
            ASSERT(netrule_host(host, rule) == 0);
            rule->port_min = rule->port_max = tls ? 443 : 80;
        }
    }
}

/* FNV-1a, over the name and whether it is of what lies below it. */
static size_t bucket_of(const struct netpolicy *p, const char *host, bool below)
{
    uint32_t hash = 2166136261u ^ below;

    for (; *host; host++) {
        hash = (hash ^ (uint8_t)*host) * 16777619u;
    }
    return (hash ^ hash >> 15) & (p->n_buckets - 1);
}

int netpolicy_first(const struct netpolicy *p, const char *host, bool below)
{
    for (size_t at = bucket_of(p, host, below);; at = (at + 1) & (p->n_buckets - 1)) {
        int first = p->buckets[at];

        if (first < 0 || (p->rules[first].below == below && str_eq(p->rules[first].host, host))) {
            return first;
        }
    }
}

static void index_host(struct netpolicy *p, int i)
{
    const struct netrule *rule = &p->rules[i];
    int at = netpolicy_first(p, rule->host, rule->below);
    size_t bucket;

    if (at >= 0) {
        while (p->rules[at].next >= 0) {
            at = p->rules[at].next;
        }
        p->rules[at].next = i;
        return;
    }
    bucket = bucket_of(p, rule->host, rule->below);
    while (p->buckets[bucket] >= 0) {
        bucket = (bucket + 1) & (p->n_buckets - 1);
    }
    p->buckets[bucket] = i;
}

static void make_index(struct netpolicy *p)
{
    p->n_buckets = 8;
    while (p->n_buckets < 2 * p->n_rules) {
        p->n_buckets *= 2;
    }
    p->buckets = xnew_n(int, p->n_buckets);
    p->by_addr = xnew_n(int, p->n_rules + 1);
    for (size_t i = 0; i < p->n_buckets; i++) {
        p->buckets[i] = -1;
    }
    for (size_t i = 0; i < p->n_rules; i++) {
        if (p->rules[i].kind == NETRULE_HOST) {
            index_host(p, (int)i);
        } else {
            p->by_addr[p->n_by_addr++] = (int)i;
        }
    }
}

static int read_rules(struct netpolicy *p, json_t *list, struct err *e)
{
    size_t n = json_array_size(list);

    if (n > NETPOLICY_RULES_MAX) {
        return err_field(e, -EINVAL, "out_of_range", "rules", "'rules' has at most %u of them",
                         NETPOLICY_RULES_MAX);
    }
    p->rules = xnew_n(struct netrule, n + 2 * 32 + 1);
    for (size_t i = 0; i < n; i++) {
        p->n_rules = i + 1; /* so that a half-read one is freed, too */
        int r = read_rule(i, json_array_get(list, i), &p->rules[i], e);

        if (r < 0) {
            return r;
        }
    }
    p->n_own = n;
    return 0;
}

static int check_size(json_t *object, size_t max, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(max);

    return json_write(object, &text) < 0
               ? err_field(e, -EINVAL, "out_of_range", "network",
                           "a network policy has at most %zu bytes here", max)
               : 0;
}

/* Members that every level may have, then those that not all may. */
static const struct json_field fields[] = {
    {"preset", JSON_FIELD_STRING, 0},
    {"rules", JSON_FIELD_ARRAY, 0},
    {"observe", JSON_FIELD_BOOL, 0},
    {"outer", JSON_FIELD_OBJECT, 0},
};

enum fields_allowed {
    FIELDS_OUTER = 2,
    FIELDS_SANDBOX = 3,
    FIELDS_STACK = 4,
};

static int read_level(json_t *object, enum fields_allowed n_fields, struct netpolicy **ret,
                      struct err *e)
{
    static const size_t max[] = {[FIELDS_OUTER] = NETPOLICY_OUTER_TEXT_MAX,
                                 [FIELDS_SANDBOX] = NETPOLICY_TEXT_MAX,
                                 [FIELDS_STACK] = NETPOLICY_STACK_TEXT_MAX};
    struct netpolicy *p;
    int r;

    ASSERT(ret);
    if (!json_is_object(object)) {
        return err_field(e, -EINVAL, "invalid_field", "network", "'network' must be an object");
    }
    r = json_check_object(object, fields, n_fields, e);
    if (r == 0) {
        r = check_size(object, max[n_fields], e);
    }
    if (r < 0) {
        return r;
    }
    p = xnew(struct netpolicy);
    p->refs = 1;
    p->json = json_incref(object);
    p->observe = json_get_bool(object, "observe", false);
    r = read_preset(object, &p->preset, e);
    if (r == 0) {
        r = read_rules(p, json_object_get(object, "rules"), e);
    }
    if (r < 0) {
        netpolicy_unref(p);
        return r;
    }
    add_preset(p);
    make_index(p);
    *ret = p;
    return 0;
}

int netpolicy_from_json(json_t *object, struct netpolicy **ret, struct err *e)
{
    return read_level(object, FIELDS_SANDBOX, ret, e);
}

int netpolicy_outer_from_json(json_t *object, struct netpolicy **ret, struct err *e)
{
    if (json_is_object(object) && !json_object_get(object, "preset")) {
        return err_field(e, -EINVAL, "invalid_field", "preset",
                         "say the 'preset': with 'inherit' what no rule fits is left to the "
                         "levels within, with 'custom' it is denied");
    }
    return read_level(object, FIELDS_OUTER, ret, e);
}

static int read_outer(json_t *levels, struct netpolicy *p, struct err *e)
{
    const char *name;
    json_t *object;

    json_object_foreach(levels, name, object)
    {
        unsigned level = 0;
        int r;

        while (level < NETPOLICY_SANDBOX &&
               !str_eq(name, netpolicy_level_name((enum netpolicy_level)level))) {
            level++;
        }
        if (level == NETPOLICY_SANDBOX) {
            return err_field(e, -EINVAL, "unknown_field", "outer", "there is no level '%.40s'",
                             name);
        }
        r = netpolicy_outer_from_json(object, &p->outer[level], e);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int netpolicy_stack_from_json(json_t *object, struct netpolicy **ret, struct err *e)
{
    struct netpolicy *p = NULL;
    int r = read_level(object, FIELDS_STACK, &p, e);

    if (r == 0) {
        r = read_outer(json_object_get(object, "outer"), p, e);
    }
    if (r < 0) {
        netpolicy_unref(p);
        return r;
    }
    *ret = p;
    return 0;
}

json_t *netpolicy_stack_json(const char *const texts[NETPOLICY_LEVEL_COUNT_])
{
    cleanup_json json_t *outer = json_object();
    json_t *own;

    for (unsigned level = 0; level < NETPOLICY_SANDBOX; level++) {
        json_t *object = str_empty(texts[level]) ? NULL : json_loads(texts[level], 0, NULL);

        if (!str_empty(texts[level]) && !object) {
            return NULL;
        }
        if (object) {
            json_object_set_new(outer, netpolicy_level_name((enum netpolicy_level)level), object);
        }
    }
    own = str_empty(texts[NETPOLICY_SANDBOX])
              ? json_pack("{s:s}", "preset", json_object_size(outer) ? "inherit" : "none")
              : json_loads(texts[NETPOLICY_SANDBOX], 0, NULL);
    if (own && json_object_size(outer)) {
        json_object_set(own, "outer", outer);
    }
    return own;
}

uint64_t netpolicy_fingerprint(const json_t *object)
{
    cleanup_free char *text = object ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS)
                                     : xstrdup("{\"preset\":\"none\"}");
    uint64_t hash = 14695981039346656037ull; /* FNV-1a */

    ASSERT(text);
    for (const char *c = text; *c; c++) {
        hash = (hash ^ (uint8_t)*c) * 1099511628211ull;
    }
    return hash;
}

struct netpolicy *netpolicy_none(void)
{
    cleanup_json json_t *object = json_pack("{s:s}", "preset", "none");
    struct netpolicy *p = NULL;

    ASSERT(netpolicy_from_json(object, &p, NULL) == 0);
    return p;
}

static void rule_done(struct netrule *rule)
{
    for (size_t i = 0; rule->methods && rule->methods[i]; i++) {
        free(rule->methods[i]);
    }
    free(rule->methods);
    free(rule->path);
    free(rule->host);
}

struct netpolicy *netpolicy_ref(const struct netpolicy *policy)
{
    struct netpolicy *p = (struct netpolicy *)(uintptr_t)policy;

    __atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
    return p;
}

void netpolicy_unref(const struct netpolicy *policy)
{
    struct netpolicy *p = (struct netpolicy *)(uintptr_t)policy;

    if (!p || __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    for (size_t i = 0; i < p->n_rules; i++) {
        rule_done(&p->rules[i]);
    }
    free(p->rules);
    free(p->buckets);
    free(p->by_addr);
    for (size_t i = 0; i < ARRAY_SIZE(p->outer); i++) {
        netpolicy_unref(p->outer[i]);
    }
    json_decref(p->json);
    free(p);
}
