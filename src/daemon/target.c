/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/target.h"

#include "wire/url.h"

#include <string.h>

/* Decodes to *at and moves it behind the NUL. */
static int put(char **at, const char *s, size_t len, unsigned flags, const char **ret,
               struct err *e)
{
    size_t n = 0;

    if (url_decode(s, len, flags, *at, &n) < 0) {
        return err_set(e, -EINVAL, "invalid_request",
                       "the path or query has a malformed %%-escape or a NUL");
    }
    *ret = *at;
    *at += n + 1;
    return 0;
}

static int parse_path(struct target *t, const char *s, size_t len, char **at, struct err *e)
{
    size_t i = 0;

    while (i < len) {
        const char *end = memchr(s + i + 1, '/', len - i - 1);
        size_t n = end ? (size_t)(end - s) - i - 1 : len - i - 1;
        int r;

        if (n == 0 && len == 1) {
            return 0; /* "/" */
        }
        if (n == 0 || t->n_segments >= TARGET_SEGMENTS_MAX) {
            return err_set(e, -EINVAL, "invalid_request",
                           "the path has an empty segment or too many");
        }
        r = put(at, s + i + 1, n, 0, &t->segments[t->n_segments], e);
        if (r < 0) {
            return r;
        }
        t->n_segments++;
        i += n + 1;
    }
    return 0;
}

static int parse_query(struct target *t, const char *s, char **at, struct err *e)
{
    struct url_query q = {.rest = s, .len = strlen(s)};
    struct url_pair pair;

    while (url_query_next(&q, &pair)) {
        struct target_param *p = &t->params[t->n_params];
        int r;

        if (t->n_params >= TARGET_PARAMS_MAX) {
            return err_set(e, -EINVAL, "invalid_request", "the query has more than %d parameters",
                           TARGET_PARAMS_MAX);
        }
        r = put(at, pair.name, pair.name_len, URL_PLUS_IS_SPACE, &p->name, e);
        if (r == 0) {
            r = put(at, pair.value, pair.value_len, URL_PLUS_IS_SPACE, &p->value, e);
        }
        if (r < 0) {
            return r;
        }
        t->n_params++;
    }
    return 0;
}

int target_parse(const char *s, struct target *ret, struct err *e)
{
    struct target t = {0};
    size_t path_len = strcspn(s, "?");
    char *at;
    int r;

    if (s[0] != '/') {
        return err_set(e, -EINVAL, "invalid_request", "the request target must start with '/'");
    }
    /* Decoding never grows; each piece needs its NUL. */
    t.text = xmalloc(strlen(s) + 1 + TARGET_SEGMENTS_MAX + (size_t)2 * TARGET_PARAMS_MAX);
    at = t.text;
    r = parse_path(&t, s, path_len, &at, e);
    if (r == 0 && s[path_len]) {
        r = parse_query(&t, s + path_len + 1, &at, e);
    }
    if (r < 0) {
        target_done(&t);
        return r;
    }
    *ret = t;
    return 0;
}

void target_done(struct target *t)
{
    free(t->text);
    *t = (struct target){0};
}

const char *target_param(const struct target *t, const char *name)
{
    for (size_t i = 0; i < t->n_params; i++) {
        if (str_eq(t->params[i].name, name)) {
            return t->params[i].value;
        }
    }
    return NULL;
}

bool target_matches(const struct target *t, const char *pattern,
                    const char *captures[static ROUTE_CAPTURES_MAX])
{
    size_t n_captures = 0;
    size_t i = 0;

    while (*pattern == '/' && pattern[1]) {
        size_t n = strcspn(pattern + 1, "/");
        const char *part = pattern + 1;

        if (i >= t->n_segments) {
            return false;
        }
        if (part[0] == '{') {
            ASSERT(n_captures < ROUTE_CAPTURES_MAX);
            captures[n_captures++] = t->segments[i];
        } else if (strlen(t->segments[i]) != n || memcmp(t->segments[i], part, n) != 0) {
            return false;
        }
        i++;
        pattern = part + n;
    }
    return i == t->n_segments;
}
