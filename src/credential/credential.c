/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/credential.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "wire/url.h"

static const char *const scope_names[CREDENTIAL_SCOPE_COUNT_] = {
    [CREDENTIAL_ORGANISATION] = "organisation",
    [CREDENTIAL_PROJECT] = "project",
    [CREDENTIAL_SANDBOX] = "sandbox",
};

static const char *const type_names[CREDENTIAL_TYPE_COUNT_] = {
    [CREDENTIAL_BEARER] = "bearer",
    [CREDENTIAL_HEADER] = "header",
    [CREDENTIAL_BASIC] = "basic",
    [CREDENTIAL_QUERY] = "query",
    [CREDENTIAL_COOKIE] = "cookie",
    [CREDENTIAL_BODY] = "body",
    [CREDENTIAL_PLACEHOLDER] = "placeholder",
    [CREDENTIAL_OAUTH2] = "oauth2",
    [CREDENTIAL_SIGV4] = "sigv4",
    [CREDENTIAL_GITHUB_APP] = "github_app",
    [CREDENTIAL_WEBHOOK] = "webhook",
    [CREDENTIAL_SSH] = "ssh",
};

const char *credential_scope_name(enum credential_scope scope)
{
    ASSERT(scope < CREDENTIAL_SCOPE_COUNT_);
    return scope_names[scope];
}

const char *credential_type_name(enum credential_type type)
{
    ASSERT(type < CREDENTIAL_TYPE_COUNT_);
    return type_names[type];
}

/* ---- matching ---- */

bool credential_name_valid(const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < len; i++) {
        if (!isalnum((unsigned char)name[i]) && !strchr("-_.", name[i])) {
            return false;
        }
    }
    return len > 0 && len < CREDENTIAL_NAME_SIZE && isalnum((unsigned char)name[0]);
}

/* Labels of letters, digits, '-' and '_'; none begins or ends with '-'. */
static bool labels_valid(const char *s)
{
    size_t label = 0;
    unsigned n = 0;

    for (;; s++) {
        if (*s == '.' || *s == '\0') {
            if (label == 0 || label > 63 || s[-1] == '-') {
                return false;
            }
            n++;
            label = 0;
            if (*s == '\0') {
                return n >= 1;
            }
            continue;
        }
        if (!(islower((unsigned char)*s) || isdigit((unsigned char)*s) || *s == '_' ||
              (*s == '-' && label > 0))) {
            return false;
        }
        label++;
    }
}

bool credential_host_valid(const char *pattern)
{
    size_t len = strlen(pattern);

    if (len == 0 || len >= CREDENTIAL_HOST_SIZE) {
        return false;
    }
    if (str_starts(pattern, "*.")) {
        return strchr(pattern + 2, '.') && labels_valid(pattern + 2);
    }
    return labels_valid(pattern);
}

bool credential_host_fits(const char *pattern, const char *host)
{
    size_t len = strlen(host);
    size_t tail;

    if (!str_starts(pattern, "*.")) {
        return strcasecmp(pattern, host) == 0;
    }
    tail = strlen(pattern + 1); /* with its dot */
    return len > tail && host[0] != '.' && strcasecmp(host + len - tail, pattern + 1) == 0;
}

/* Would any other parser see the same segments? */
bool credential_path_plain(const char *path)
{
    const char *s = path;

    if (*s != '/') {
        return false;
    }
    while (*s == '/') {
        size_t raw = strcspn(s + 1, "/");
        char plain[4096];
        size_t n = 0;

        if (raw >= sizeof(plain) || url_decode(s + 1, raw, 0, plain, &n) < 0 ||
            strlen(plain) != n) {
            return false;
        }
        if (strpbrk(plain, "/\\;%") || str_eq(plain, ".") || str_eq(plain, "..") ||
            (n == 0 && s[1 + raw] != '\0')) {
            return false;
        }
        for (size_t i = 0; i < n; i++) {
            if ((unsigned char)plain[i] < 0x20 || plain[i] == 0x7f) {
                return false;
            }
        }
        s += 1 + raw;
    }
    return *s == '\0';
}

static bool path_fits(const char *prefix, const char *path)
{
    size_t len = strlen(prefix);

    if (str_eq(prefix, "/")) {
        return true;
    }
    return credential_path_plain(path) && strncmp(path, prefix, len) == 0 &&
           (path[len] == '\0' || path[len] == '/');
}

static bool method_fits(const struct credential_target *t, const char *method)
{
    for (size_t i = 0; i < t->n_methods; i++) {
        if (str_eq(t->methods[i], method)) {
            return true;
        }
    }
    return t->n_methods == 0;
}

bool credential_target_fits(const struct credential_target *t, const struct credential_request *q)
{
    return t->port == q->port && credential_host_fits(t->host, q->host) &&
           path_fits(t->path, q->path) && method_fits(t, q->method);
}

bool credential_wants(const struct credential *c, const char *host, uint16_t port)
{
    return c->target.port == port && credential_host_fits(c->target.host, host);
}

bool credential_in_scope(const struct credential *c, const struct credential_request *q)
{
    if (!str_eq(c->organisation, q->organisation)) {
        return false;
    }
    switch (c->scope) {
    case CREDENTIAL_ORGANISATION:
        return true;
    case CREDENTIAL_PROJECT:
        return str_eq(c->project, q->project);
    case CREDENTIAL_SANDBOX:
        return str_eq(c->project, q->project) && str_eq(c->sandbox, q->sandbox);
    default:
        return false;
    }
}

const struct credential *credential_named(const struct credential *const *all, size_t n,
                                          const struct credential_request *q, const char *name)
{
    const struct credential *best = NULL;

    for (size_t i = 0; i < n; i++) {
        if (str_eq(all[i]->name, name) && credential_in_scope(all[i], q) &&
            (!best || all[i]->scope > best->scope)) {
            best = all[i];
        }
    }
    return best;
}

/* The place of the request that it fills: two with the same place exclude each other. */
static void place_of(const struct credential *c, char *ret, size_t size)
{
    switch (c->inject.type) {
    case CREDENTIAL_HEADER:
        snprintf(ret, size, "header %s", c->inject.name);
        break;
    case CREDENTIAL_QUERY:
    case CREDENTIAL_COOKIE:
    case CREDENTIAL_BODY:
        snprintf(ret, size, "%s %s", type_names[c->inject.type], c->inject.name);
        break;
    case CREDENTIAL_PLACEHOLDER:
        snprintf(ret, size, "placeholder %s", c->name);
        break;
    default:
        snprintf(ret, size, "header authorization");
    }
}

static bool same_place(const struct credential *a, const struct credential *b)
{
    char x[CREDENTIAL_TEXT_SIZE + 32];
    char y[CREDENTIAL_TEXT_SIZE + 32];

    place_of(a, x, sizeof(x));
    place_of(b, y, sizeof(y));
    /* The case of a parameter's or cookie's name matters, that of a header's does not. */
    return str_starts(x, "header ") ? strcasecmp(x, y) == 0 : str_eq(x, y);
}

static bool is_better(const struct credential *a, const struct credential *b)
{
    size_t path_a = strlen(a->target.path);
    size_t path_b = strlen(b->target.path);
    bool any_a = a->target.host[0] == '*';
    bool any_b = b->target.host[0] == '*';

    if (a->scope != b->scope) {
        return a->scope > b->scope;
    }
    if (path_a != path_b) {
        return path_a > path_b;
    }
    if (any_a != any_b) {
        return any_b;
    }
    return strcmp(a->name, b->name) < 0;
}

size_t credential_choose(const struct credential *const *all, size_t n,
                         const struct credential_request *q, const struct credential **ret)
{
    size_t n_ret = 0;

    for (size_t i = 0; i < n; i++) {
        size_t at = 0;

        if (all[i]->inject.type == CREDENTIAL_WEBHOOK || all[i]->inject.type == CREDENTIAL_SSH ||
            !credential_in_scope(all[i], q) || !credential_target_fits(&all[i]->target, q) ||
            credential_named(all, n, q, all[i]->name) != all[i]) {
            continue;
        }
        while (at < n_ret && !same_place(ret[at], all[i])) {
            at++;
        }
        if (at == n_ret) {
            ret[n_ret++] = all[i];
        } else if (is_better(all[i], ret[at])) {
            ret[at] = all[i];
        }
    }
    return n_ret;
}

const struct credential *credential_webhook(const struct credential *const *all, size_t n,
                                            const struct credential_request *q)
{
    const struct credential *best = NULL;

    for (size_t i = 0; i < n; i++) {
        const struct credential *c = all[i];

        if (c->inject.type == CREDENTIAL_WEBHOOK && credential_in_scope(c, q) &&
            (!best || c->scope > best->scope ||
             (c->scope == best->scope && strcmp(c->name, best->name) < 0))) {
            best = c;
        }
    }
    return best;
}

const struct credential *credential_ssh(const struct credential *const *all, size_t n,
                                        const struct credential_request *q)
{
    const struct credential *best = NULL;

    for (size_t i = 0; i < n; i++) {
        if (all[i]->inject.type == CREDENTIAL_SSH && credential_in_scope(all[i], q) &&
            credential_wants(all[i], q->host, q->port) &&
            credential_named(all, n, q, all[i]->name) == all[i] &&
            (!best || is_better(all[i], best))) {
            best = all[i];
        }
    }
    return best;
}
