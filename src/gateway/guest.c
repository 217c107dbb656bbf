/* SPDX-License-Identifier: Apache-2.0 */

/* What goes through to a sandbox's daemon as it is, and command output as lines of JSON. */
#include "gateway/guest.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gateway/ndjson.h"
#include "wire/frames.h"

static bool listed(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Keys, cookies and the like are our business and never reach a guest. */
static bool request_header_passes(const char *name)
{
    static const char *const names[] = {"Content-Type", "Range", "If-Range", "Accept"};

    return listed(names, ARRAY_SIZE(names), name);
}

/* The guest may be hostile: nothing that makes a browser or proxy act passes. */
static bool response_header_passes(const char *name)
{
    static const char *const names[] = {"Content-Type", "Content-Range", "Accept-Ranges"};

    return listed(names, ARRAY_SIZE(names), name) || strncasecmp(name, "X-Space-", 8) == 0;
}

static const struct http_proxy_opts proxy_opts = {
    .request_header = request_header_passes,
    .response_header = response_header_passes,
};

void guest_reply_headers(struct http_request *req)
{
    http_reply_header(req, "Content-Security-Policy", "sandbox; default-src 'none'");
}

char *guest_target(struct http_request *req, const char *id, const char *middle)
{
    static const char prefix[] = "/v1/sandboxes/";
    const char *rest = http_request_path(req);
    const char *query = http_request_query_raw(req);

    ASSERT(str_starts(rest, prefix)); /* every route here begins so */
    rest = strchr(rest + strlen(prefix), '/');
    ASSERT(rest);
    return xasprintf("/v1/sandboxes/%s%s%s%s%s", id, middle, rest, query ? "?" : "",
                     query ? query : "");
}

static int forward(struct http_request *req, const char *middle, struct err *e)
{
    struct http_headers extra = HTTP_HEADERS_INIT;
    cleanup_free char *target = NULL;
    char id[ID_SIZE];
    int r;

    r = require_running(req, id, e);
    if (r < 0) {
        return r;
    }
    target = guest_target(req, id, middle);
    http_headers_add(&extra, "X-Request-Id", request_of(req)->id);
    http_body_limit(req,
                    http_request_route(req)->flags & ROUTE_STREAM ? UINT64_MAX : GATEWAY_BODY_MAX);
    guest_reply_headers(req);
    r = http_proxy_call(req, request_node(req), target, &extra, &proxy_opts, e);
    http_headers_done(&extra);
    return r;
}

int guest_forward_handler(struct http_request *req, struct err *e)
{
    return forward(req, "/guest", e);
}

int require_command(struct http_request *req, char ret_cid[static ID_SIZE], struct err *e)
{
    const char *cid = http_request_param(req, "cid");

    if (!id_valid(ID_COMMAND, cid)) {
        return err_set(
            e, -ENOENT, "command_not_found",
            "there is no such command in the sandbox; GET /v1/sandboxes/ID/commands lists them");
    }
    snprintf(ret_cid, ID_SIZE, "%s", cid);
    return 0;
}

int guest_command_handler(struct http_request *req, struct err *e)
{
    char cid[ID_SIZE];
    char id[ID_SIZE];
    int r;

    r = require_running(req, id, e); /* whose sandbox it is comes before everything else */
    if (r == 0) {
        r = require_command(req, cid, e);
    }
    return r < 0 ? r : guest_forward_handler(req, e);
}

/* The logs of the machine come from the node itself, also when it does not run any more. */
int node_logs_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct http_headers extra = HTTP_HEADERS_INIT;
    cleanup_free char *target = NULL;
    int r;

    r = control_get(gateway_of(req)->control, actor_of(req), http_request_param(req, "id"), &sb, e);
    if (r < 0) {
        return r;
    }
    request_about(req, &sb);
    target = guest_target(req, sb.id, "");
    http_headers_add(&extra, "X-Request-Id", request_of(req)->id);
    guest_reply_headers(req);
    r = http_proxy_call(req, request_node(req), target, &extra, &proxy_opts, e);
    http_headers_done(&extra);
    return r;
}

int guest_call(struct http_request *req, const struct guest_call_opts *opts, struct http_call **ret,
               struct err *e)
{
    struct pollfd client = http_client_pollfd(req);
    struct http_headers headers = HTTP_HEADERS_INIT;
    struct http_call_opts call = {
        .method = opts->method,
        .target = opts->target,
        .headers = &headers,
        .body_length = opts->body_len,
        .content_type = opts->content_type,
        .watch = opts->watch ? opts->watch : &client,
    };
    int r;

    http_headers_add(&headers, "X-Request-Id", request_of(req)->id);
    if (opts->range) {
        http_headers_add(&headers, "Range", opts->range);
    }
    r = http_call_new(request_node(req), &call, ret, e);
    http_headers_done(&headers);
    if (r == -ECONNREFUSED || r == -ENOENT) {
        return err_set(e, -EHOSTDOWN, "node_unavailable", "the node cannot be reached: try again");
    }
    if (r == 0 && opts->body_len > 0) {
        r = http_call_write(*ret, opts->body, (size_t)opts->body_len, e);
        if (r == 0) {
            r = http_call_end(*ret, e);
        }
    }
    return r;
}

/* --- output as lines of JSON --- */

static bool wants_lines(const struct http_request *req)
{
    const char *accept = http_request_header(req, "Accept");

    return accept && strstr(accept, "application/x-ndjson");
}

static int write_lines(struct http_request *req, struct ndjson *lines, struct err *e)
{
    int r = lines->out.len ? http_write(req, lines->out.data, lines->out.len, e) : 0;

    buf_reset(&lines->out);
    return r;
}

static int pump_lines(struct http_request *req, struct http_call *call, struct err *e)
{
    CLEANUP(ndjson_done) struct ndjson lines = NDJSON_INIT;
    char data[65536];
    ssize_t n;
    int r;

    while (!lines.ended) {
        n = http_call_read(call, data, sizeof(data), e);
        if (n <= 0) {
            break;
        }
        r = ndjson_feed(&lines, data, (size_t)n);
        if (r < 0) {
            return err_set(e, r, "bad_answer",
                           "the sandbox's daemon sent what is no stream of frames");
        }
        r = write_lines(req, &lines, e);
        if (r < 0) {
            return r;
        }
    }
    if (lines.ended) {
        return http_end(req, e);
    }
    /* Cut: say so in the stream, and then cut, so that nobody takes it for a success. */
    r = ndjson_cut(&lines);
    if (r == 0) {
        IGNORE_RESULT(
            write_lines(req, &lines, /* e */ NULL)); /* the client is told by the cut anyway */
    }
    return err_set(e, -ECONNRESET, "stream_cut", "the connection to the sandbox broke");
}

static int reply_lines(struct http_request *req, struct http_call *call, struct err *e)
{
    const char *type;
    cleanup_free char *body = NULL;
    size_t len = 0;
    int r;

    r = http_call_head(call, e);
    if (r == 0) {
        r = http_call_check(call, e);
    }
    if (r < 0) {
        return r;
    }
    type = http_call_header(call, "Content-Type");
    if (!type ||
        !str_starts(type, FRAMES_CONTENT_TYPE)) { /* started without stream=1: one JSON object */
        r = http_call_all(call, GATEWAY_BODY_MAX, &body, &len, e);
        return r < 0 ? r
                     : http_reply_bytes(req, http_call_status(call), "application/json", body, len,
                                        e);
    }
    r = http_reply_begin(req, 200, "application/x-ndjson", -1, e);
    if (r == 0) {
        r = http_flush(req, e);
    }
    return r < 0 ? r : pump_lines(req, call, e);
}

int guest_start_handler(struct http_request *req, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *target = NULL;
    cleanup_free char *body = NULL;
    struct guest_call_opts opts = {.method = "POST", .content_type = "application/json"};
    char id[ID_SIZE];
    size_t len = 0;
    int r;

    if (!wants_lines(req)) {
        return guest_forward_handler(req, e);
    }
    r = require_running(req, id, e);
    if (r == 0) {
        r = http_body_all(req, GATEWAY_BODY_MAX, &body, &len, e);
    }
    if (r < 0) {
        return r;
    }
    target = guest_target(req, id, "/guest");
    opts.target = target;
    opts.body = body;
    opts.body_len = (int64_t)len;
    guest_reply_headers(req);
    r = guest_call(req, &opts, &call, e);
    return r < 0 ? r : reply_lines(req, call, e);
}

int guest_output_handler(struct http_request *req, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *target = NULL;
    char cid[ID_SIZE];
    char id[ID_SIZE];
    int r;

    if (!wants_lines(req)) {
        return guest_command_handler(req, e);
    }
    r = require_running(req, id, e);
    if (r == 0) {
        r = require_command(req, cid, e);
    }
    if (r < 0) {
        return r;
    }
    target = guest_target(req, id, "/guest");
    guest_reply_headers(req);
    r = guest_call(req, &(struct guest_call_opts){.method = "GET", .target = target}, &call, e);
    return r < 0 ? r : reply_lines(req, call, e);
}
