/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "http/route.h"

static int none(struct http_request *req, struct err *e)
{
    (void)req;
    (void)e;
    return 0;
}

static const struct http_route routes[] = {
    {"GET", "/", none, 0},
    {"GET", "/v1/sandboxes", none, 1},
    {"POST", "/v1/sandboxes", none, 2},
    {"GET", "/v1/sandboxes/{id}", none, 3},
    {"GET", "/v1/sandboxes/stats", none, 4},
    {"GET", "/v1/sandboxes/{id}/commands/{cid}", none, 5},
    {"*", "/v1/sandboxes/{id}/guest{rest...}", none, 6},
    {"GET", "/v1/sandboxes/{id}/guest/health", none, 7},
    {"GET", "/static/{path...}", none, 8},
};
static const struct http_router router = {.routes = routes, .n_routes = ARRAY_SIZE(routes)};

static void patterns_match_as_written(void)
{
    static const struct {
        const char *method;
        const char *path;
        int flags;         /* of the route; -1: path unknown, -2: path known */
        const char *value; /* of the first parameter */
        const char *second;
    } cases[] = {
        {"GET", "/", 0, NULL, NULL},
        {"GET", "", -1, NULL, NULL},
        {"GET", "/v1/sandboxes", 1, NULL, NULL},
        {"HEAD", "/v1/sandboxes", 1, NULL, NULL},
        {"POST", "/v1/sandboxes", 2, NULL, NULL},
        {"PUT", "/v1/sandboxes", -2, NULL, NULL},
        {"GET", "/v1/sandboxes/", -1, NULL, NULL},
        {"GET", "/v1/sandboxes/s1", 3, "s1", NULL},
        {"GET", "/v1/sandboxes/stats", 4, NULL, NULL},
        {"GET", "/v1/sandboxes/s1/commands/c%2F2", 5, "s1", "c%2F2"},
        {"GET", "/v1/sandboxes/s1/commands", -1, NULL, NULL},
        {"PUT", "/v1/sandboxes/s1/guest/a/b", 6, "s1", "/a/b"},
        {"PUT", "/v1/sandboxes/s1/guest", 6, "s1", ""},
        {"GET", "/v1/sandboxes/s1/guest/health", 7, "s1", NULL},
        {"PUT", "/v1/sandboxes/s1/guest/health", 6, "s1", "/health"},
        {"GET", "/v1/sandboxes/s1/guests", -1, NULL, NULL},
        {"GET", "/static/a/b.js", 8, "/a/b.js", NULL},
        {"GET", "/v1/sandboxes/./commands/c", -1, NULL, NULL},
        {"GET", "/v1/sandboxes/%2e%2E/commands/c", -1, NULL, NULL},
        {"GET", "/v1/sandboxes/s1/guest/../x", -1, NULL, NULL},
        {"GET", "/v1//sandboxes", -1, NULL, NULL},
        {"GET", "/v1/sandboxes/s1/guest//etc", -1, NULL, NULL},
        {"GET", "/v1/sandboxes/...", 3, "...", NULL},
        {"get", "/v1/sandboxes", -2, NULL, NULL},
        {"OPTIONS", "*", -1, NULL, NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct http_route_match m;
        const char *const want[] = {cases[i].value, cases[i].second};
        int got;

        http_router_match(&router, cases[i].method, cases[i].path, &m);
        got = m.route ? (int)m.route->flags : m.path_known ? -2 : -1;
        if (got != cases[i].flags) {
            TEST_FAIL("%s %s: %d, not %d", cases[i].method, cases[i].path, got, cases[i].flags);
            continue;
        }
        for (size_t k = 0; k < ARRAY_SIZE(want); k++) {
            if (want[k] && (k >= m.n_params || m.params[k].value_len != strlen(want[k]) ||
                            memcmp(m.params[k].value, want[k], m.params[k].value_len) != 0)) {
                TEST_FAIL("%s %s: parameter %zu is not '%s'", cases[i].method, cases[i].path, k,
                          want[k]);
            }
        }
    }
}

TEST_MAIN(T(patterns_match_as_written))
