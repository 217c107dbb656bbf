/* SPDX-License-Identifier: Apache-2.0 */
#include "http/route.h"

#include "http/server-internal.h"
#include "wire/url.h"

#include <string.h>

/*
 * How well a pattern fits: smaller is better; what decides is the first segment where two differ.
 */
enum segment_rank {
    RANK_EXACT,
    RANK_CAPTURE,
    RANK_REST
};
#define RANK_MAX_SEGMENTS 24u

struct rank {
    unsigned char v[RANK_MAX_SEGMENTS];
    size_t n;
};

struct segment {
    const char *p;
    size_t len;
};

/* The next "/segment" of *path; false at its end. */
static bool next_segment(const char **path, struct segment *ret)
{
    const char *end;

    if (**path != '/') {
        return false;
    }
    ret->p = *path + 1;
    end = strchrnul(ret->p, '/');
    ret->len = (size_t)(end - ret->p);
    *path = end;
    return true;
}

static bool add_param(struct http_route_match *m, struct segment name, struct segment value,
                      bool rest)
{
    ASSERT(m->n_params < HTTP_ROUTE_MAX_PARAMS);
    m->params[m->n_params].name = name.p;
    m->params[m->n_params].name_len = name.len;
    m->params[m->n_params].value = value.p;
    m->params[m->n_params].value_len = value.len;
    m->params[m->n_params].rest = rest;
    m->n_params++;
    return true;
}

static void add_rank(struct rank *rank, enum segment_rank r)
{
    ASSERT(rank->n < RANK_MAX_SEGMENTS);
    rank->v[rank->n++] = (unsigned char)r;
}

/* "name...}" at the end of a pattern takes what is left, with its slash. */
static bool match_rest(const char *open, const char *path, struct http_route_match *m,
                       struct rank *rank)
{
    const char *dots = strstr(open, "...}");

    ASSERT(dots && dots[4] == '\0');
    add_rank(rank, RANK_REST);
    return add_param(m, (struct segment){open + 1, (size_t)(dots - open - 1)},
                     (struct segment){path, strlen(path)}, /* rest */ true);
}

static bool match_pattern(const char *pattern, const char *path, struct http_route_match *m,
                          struct rank *rank)
{
    struct segment want;
    struct segment have;

    for (;;) {
        const char *open;

        if (*pattern == '{') {
            return match_rest(pattern, path, m, rank);
        }
        if (!next_segment(&pattern, &want)) {
            return *path == '\0';
        }
        if (!next_segment(&path, &have)) {
            return false;
        }
        if (want.p[0] == '{' && want.len > 4 && memcmp(want.p + want.len - 4, "...}", 4) == 0) {
            return match_rest(want.p, have.p - 1, m, rank);
        }
        if (want.p[0] == '{' && want.p[want.len - 1] == '}') {
            if (have.len == 0) {
                return false;
            }
            add_param(m, (struct segment){want.p + 1, want.len - 2}, have, /* rest */ false);
            add_rank(rank, RANK_CAPTURE);
            continue;
        }
        open = memchr(want.p, '{', want.len); /* "guest{rest...}" */
        if (open) {
            want.len = (size_t)(open - want.p);
            pattern = open;
        }
        if (want.len != have.len || memcmp(want.p, have.p, have.len) != 0) {
            return false;
        }
        add_rank(rank, RANK_EXACT);
    }
}

static bool better(const struct rank *a, const struct rank *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        if (a->v[i] != b->v[i]) {
            return a->v[i] < b->v[i];
        }
    }
    return a->n > b->n;
}

/* "", "." and ".." (also encoded) would mean another path to whoever reads it after us. */
static bool path_is_plain(const char *path)
{
    struct segment s;
    bool first = true;

    while (next_segment(&path, &s)) {
        char decoded[3];
        size_t len = 0;

        if (s.len == 0 && !(first && *path == '\0')) {
            return false;
        }
        first = false;
        if (s.len <= 6 && url_decode(s.p, s.len, 0, NULL, &len) == 0 && len <= 2) {
            IGNORE_RESULT(
                url_decode(s.p, s.len, 0, decoded, &len)); /* it could be decoded just now */
            if (str_eq(decoded, ".") || str_eq(decoded, "..")) {
                return false;
            }
        }
    }
    return *path == '\0';
}

static bool method_fits(const char *want, const char *method)
{
    return str_eq(want, method) || str_eq(want, "*") ||
           (str_eq(want, "GET") && str_eq(method, "HEAD"));
}

void http_router_match(const struct http_router *router, const char *method, const char *path,
                       struct http_route_match *ret)
{
    struct rank best_rank = {0};
    bool path_known = false;

    *ret = (struct http_route_match){0};
    if (!path_is_plain(path)) {
        return;
    }
    for (size_t i = 0; i < router->n_routes; i++) {
        struct http_route_match m = {.route = &router->routes[i]};
        struct rank rank = {0};

        if (!match_pattern(m.route->pattern, path, &m, &rank)) {
            continue;
        }
        path_known = true;
        if (method_fits(m.route->method, method) && (!ret->route || better(&rank, &best_rank))) {
            *ret = m;
            best_rank = rank;
        }
    }
    ret->path_known = path_known;
}

/* ---- serving ---- */

static void take_params(struct http_request *req, const struct http_route_match *m)
{
    size_t size = 1;
    char *at;

    for (size_t i = 0; i < m->n_params; i++) {
        size += m->params[i].name_len + m->params[i].value_len + 2;
    }
    at = req->params_block = xmalloc(size);
    for (size_t i = 0; i < m->n_params; i++) {
        size_t len = m->params[i].name_len;

        req->params[i].name = at;
        *(char *)mempcpy(at, m->params[i].name, len) = '\0';
        at += len + 1;
        req->params[i].value = at;
        len = m->params[i].value_len;
        if (m->params[i].rest) {
            *(char *)mempcpy(at, m->params[i].value, len) = '\0';
        } else {
            int r = url_decode(m->params[i].value, len, 0, at, &len);

            ASSERT(r == 0); /* the server has checked the path */
        }
        at += len + 1;
    }
    req->n_params = m->n_params;
}

static int method_not_allowed(const struct http_router *router, struct http_request *req,
                              struct err *e)
{
    cleanup_buf struct buf allow = BUF_INIT(256);

    for (size_t i = 0; i < router->n_routes; i++) {
        const struct http_route *route = &router->routes[i];
        struct http_route_match m;
        struct http_router one = {.routes = route, .n_routes = 1};

        http_router_match(&one, route->method, req->path, &m);
        if (!m.route || strstr(buf_str(&allow), route->method)) {
            continue;
        }
        if (buf_printf(&allow, "%s%s%s", allow.len ? ", " : "", route->method,
                       str_eq(route->method, "GET") ? ", HEAD" : "") < 0) {
            break;
        }
    }
    http_reply_header(req, "Allow", buf_str(&allow));
    return err_set(e, -EOPNOTSUPP, "method_not_allowed", "%s is not possible here, only %s",
                   req->method, buf_str(&allow));
}

int http_router_handle(const struct http_router *router, struct http_request *req, struct err *e)
{
    struct http_route_match m;
    int r;

    http_router_match(router, req->method, req->path, &m);
    if (!m.route && m.path_known) {
        return method_not_allowed(router, req, e);
    }
    if (!m.route) {
        return err_set(e, -ENOENT, "not_found", "there is nothing at this path");
    }
    req->route = m.route;
    take_params(req, &m);
    if (router->before) {
        r = router->before(req, m.route, e);
        if (r < 0 || http_reply_begun(req)) {
            return r;
        }
    }
    return m.route->handler(req, e);
}
