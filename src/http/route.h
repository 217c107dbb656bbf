/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes are a constant table. A pattern is a path whose segments may be "{name}", which captures
 * one non-empty decoded segment, and may end in "{name...}", which captures the raw rest of the
 * path (with its leading '/'; it may be empty, unless the pattern has a slash before the brace).
 * Method "*" stands for any.
 *
 *     static const struct http_route routes[] = {
 *         {"GET", "/v1/sandboxes/{id}", sandbox_get, 0},
 *         {"*", "/v1/sandboxes/{id}/guest{rest...}", guest_forward, 0},
 *     };
 *     static const struct http_router router = {routes, ARRAY_SIZE(routes), before};
 *
 * Exact segments win over "{name}", which wins over "{name...}"; among equals the first in the
 * table. HEAD is served by the GET route (the server drops the body). An unknown path is 404
 * "not_found", a known path with another method 405 "method_not_allowed" with Allow; OPTIONS is not
 * answered by itself. A path with an empty segment, "." or "..", also in encoded form, matches
 * nothing: what we match is what an upstream sees.
 *
 * The table is open so that a test can compare it with the OpenAPI file.
 */
#pragma once

#include "http/server.h"

#define HTTP_ROUTE_MAX_PARAMS 6u

struct http_route {
    const char *method;  /* static */
    const char *pattern; /* static */
    http_handler_fn *handler;
    unsigned flags; /* the service's own (who may call, ...) */
};

struct http_router {
    const struct http_route *routes;
    size_t n_routes;
    /*
     * Runs before the handler of a matched route, e.g. to authenticate by route->flags. A failure
     * is the reply. It may have replied itself: then it returns 0 and the handler does not run. May
     * be NULL.
     */
    int (*before)(struct http_request *req, const struct http_route *route, struct err *e);
};

/* Call it from http_server_opts.handler. */
MUST_CHECK int http_router_handle(const struct http_router *router, struct http_request *req,
                                  struct err *e);

/* The matched route, NULL before http_router_handle. */
const struct http_route *http_request_route(const struct http_request *req);

/* Pure matching. Values are offsets into path, still encoded. */
struct http_route_match {
    const struct http_route *route; /* NULL: no path matches, or not with that method */
    bool path_known;
    struct {
        const char *name; /* into the pattern */
        size_t name_len;
        const char *value; /* into path */
        size_t value_len;
        bool rest;
    } params[HTTP_ROUTE_MAX_PARAMS];
    size_t n_params;
};

void http_router_match(const struct http_router *router, const char *method, const char *path,
                       struct http_route_match *ret);
