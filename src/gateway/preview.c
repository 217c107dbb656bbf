/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/preview.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/guest.h"
#include "gateway/tokens.h"
#include "http/tunnel.h"

#define TRAFFIC_TOKEN_FIELD "E2b-Traffic-Access-Token"
#define PAGE_MAX 8192

enum trouble {
    GONE,
    CLOSED,
    TOKEN_MISSING,
    TOKEN_WRONG,
    TOO_MANY,
    OUT_OF_REACH,
    NO_HTTP,
    TROUBLE_COUNT_
};

static const struct preview_trouble troubles[TROUBLE_COUNT_] = {
    [GONE] = {502, "The sandbox was not found", "This sandbox is not running",
              "It may have ended, or been paused or stopped by its owner. If the address was given "
              "to you, ask "
              "whoever gave it.",
              false, false},
    [CLOSED] = {502, "The sandbox is running but port is not open", "Nothing is listening here yet",
                "The sandbox is running, but no server in it listens on this port. Start one, and "
                "this page "
                "shows it by itself.",
                true, true},
    [TOKEN_MISSING] =
        {403,
         "Sandbox is secured with traffic access token. Token header "
         "'e2b-traffic-access-token' is missing",
         "This sandbox is private",
         "Requests to it need the header <code>e2b-traffic-access-token</code>. Its owner has "
         "the token.",
         false, false},
    [TOKEN_WRONG] =
        {403,
         "Sandbox is secured with traffic access token. Token header "
         "'e2b-traffic-access-token' is invalid",
         "This sandbox is private",
         "The token in the header <code>e2b-traffic-access-token</code> is not the one of this "
         "sandbox.",
         false, false},
    [TOO_MANY] =
        {429, "Too many connections to the sandbox are open", "Too many connections",
         "As many connections to this sandbox are open as are allowed. Close some, or try again "
         "in a moment.",
         false, true},
    [OUT_OF_REACH] = {503, "The sandbox cannot be reached just now: try again",
                      "The sandbox cannot be reached just now",
                      "It may be waking up, or its host has too much to do. Try again in a moment.",
                      false, true},
    [NO_HTTP] =
        {502, "The server in the sandbox did not answer in HTTP",
         "The server did not answer properly",
         "Something listens on this port, but it closed the connection or does not speak HTTP.",
         true, false},
};

static int reply_trouble(struct http_request *req, const struct address *to, enum trouble which,
                         struct err *e)
{
    const struct preview_trouble *t = &troubles[which];
    bool page = preview_wants_page(http_request_header(req, "Accept"));
    cleanup_buf struct buf text = BUF_INIT(PAGE_MAX);
    int r = page ? preview_page(t, to, &text) : preview_json(t, to, &text);

    if (r < 0) {
        return err_wrap(e, r, "composing the answer");
    }
    http_reply_header(req, "Cache-Control", "no-store");
    http_reply_header(req, "X-Content-Type-Options", "nosniff");
    if (page) {
        http_reply_header(req, "Content-Security-Policy",
                          "default-src 'none'; style-src 'unsafe-inline'");
    }
    return http_reply_bytes(req, t->status, page ? "text/html; charset=utf-8" : "application/json",
                            text.data, text.len, e);
}

/* ---- may this visitor come in, and is anybody home? ---- */

struct visit {
    struct http_request *req; /* borrowed */
    const struct address *to; /* borrowed */
    struct sandbox sb;        /* owned */
    struct preview_policy policy;
    enum trouble trouble; /* set when a step returns 1 */
};

static int trouble(struct visit *v, enum trouble which)
{
    v->trouble = which;
    return 1;
}

/* 0, 1: trouble, or an error of ours. */
static int find_sandbox(struct visit *v, struct err *e)
{
    struct gateway *g = gateway_of(v->req);
    int r = id_valid(ID_SANDBOX, v->to->id)
                ? db_sandbox_get(g->db, v->to->id, /* project */ NULL, &v->sb, e)
                : -ENOENT;

    if (r == -ENOENT || (r == 0 && v->sb.desired == SANDBOX_STATE_DELETED)) {
        return trouble(v, GONE);
    }
    return r;
}

static int check_token(struct visit *v)
{
    const char *token = http_request_header(v->req, TRAFFIC_TOKEN_FIELD);

    preview_policy_read(v->sb.surface, v->to->port, &v->policy);
    if (!v->policy.private ||
        tokens_check(gateway_of(v->req)->tokens, TOKEN_TRAFFIC, v->sb.id, token)) {
        return 0;
    }
    return trouble(v, token ? TOKEN_WRONG : TOKEN_MISSING);
}

/*
 * Visitors have places of their own beside those of the project's keys, so that they cannot keep its owner out. The
 * name is no id of anything.
 */
static int take_place(struct visit *v)
{
    struct request *rq = request_of(v->req);

    snprintf(rq->visits, sizeof(rq->visits), "v%s", v->sb.project + 1);
    if (auth_enter(rq->gateway->auth, rq->visits, NULL) < 0) {
        rq->visits[0] = '\0';
        return trouble(v, TOO_MANY);
    }
    return 0;
}

/* Waking is done for the sandbox's owner, whoever the visitor is. */
static int wake(struct visit *v)
{
    struct gateway *g = gateway_of(v->req);
    struct control_actor owner = {0};
    struct err why = {0};
    int r = 0;

    if (control_may_wake(&v->sb)) {
        snprintf(owner.project, sizeof(owner.project), "%s", v->sb.project);
        r = control_wake(g->control, &owner, v->to->id, &v->sb, &why);
    }
    if (r < 0) {
        log_warn(&(struct log_ctx){.sandbox = v->to->id}, "cannot wake it for a visitor: %s",
                 why.msg);
        return r == -ENOENT ? trouble(v, GONE) : trouble(v, OUT_OF_REACH);
    }
    request_about(v->req, &v->sb);
    return sandbox_shown_state(&v->sb) == SANDBOX_STATE_RUNNING ? 0 : trouble(v, GONE);
}

/* ---- passing on ---- */

static int open_port(struct visit *v, struct http_io *ret, struct err *e)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/guest/ports/%u?wait_ms=%d", v->sb.id,
                                          v->to->port, PREVIEW_WAIT_MS);
    CLEANUP(http_headers_done) struct http_headers headers = HTTP_HEADERS_INIT;
    struct pollfd watch = http_client_pollfd(v->req);
    struct http_tunnel_opts opts = {
        .target = target,
        .headers = &headers,
        .deadline_ns = deadline_in_ms(PREVIEW_OPEN_MS),
        .watch = &watch,
    };
    int r;

    http_headers_add(&headers, "X-Request-Id", request_of(v->req)->id);
    r = http_tunnel_open(request_node(v->req), &opts, ret, e);
    if (r == 0 || r == -ECANCELED) {
        return r;
    }
    if (str_eq(e->reason, "port_closed")) {
        return trouble(v, CLOSED);
    }
    if (str_eq(e->reason, "too_many") || str_eq(e->reason, "too_many_connections") ||
        str_eq(e->reason, "guest_busy")) {
        return trouble(v, TOO_MANY);
    }
    log_warn(&(struct log_ctx){.sandbox = v->sb.id}, "cannot reach port %u for a visitor: %s",
             v->to->port, e->msg);
    return trouble(v, r == -ENOENT || str_eq(e->reason, "not_running") ? GONE : OUT_OF_REACH);
}

/* What is ours to see and not the sandbox's; a field of that name with another content may be its own. */
static void drop_secrets(const struct visit *v, struct http_headers *h)
{
    const char *bearer = http_bearer(http_headers_get(h, "Authorization"));
    const char *key = http_headers_get(h, "X-API-Key");

    http_headers_remove(h, TRAFFIC_TOKEN_FIELD);
    if (key && key_text_valid(key)) {
        http_headers_remove(h, "X-API-Key");
    }
    if (bearer && key_text_valid(bearer)) {
        http_headers_remove(h, "Authorization");
    }
    if (tokens_check(gateway_of(v->req)->tokens, TOKEN_ENVD, v->sb.id,
                     http_headers_get(h, "X-Access-Token"))) {
        http_headers_remove(h, "X-Access-Token");
    }
}

/* The peer without its port. */
static void forwarded_for(const struct http_request *req, struct http_headers *h)
{
    cleanup_free char *peer = xstrdup(http_request_peer_name(req));
    char *colon = strrchr(peer, ':');

    if (colon) {
        *colon = '\0';
    }
    http_headers_set(h, "X-Forwarded-For", peer);
}

/* A request for another protocol: its name, else NULL. One with a body keeps to HTTP. */
static const char *wanted_protocol(const struct http_request *req)
{
    const char *upgrade = http_request_header(req, "Upgrade");

    return upgrade && http_body_length(req) == 0 &&
                   http_headers_has_token(http_request_headers(req), "Connection", "upgrade")
               ? upgrade
               : NULL;
}

static void compose(const struct visit *v, struct http_headers *ret)
{
    const char *host = http_request_host(v->req);
    const char *protocol = wanted_protocol(v->req);

    http_headers_add(ret, "Host", v->policy.mask_host[0] ? v->policy.mask_host : host);
    http_proxy_headers(v->req, /* opts */ NULL, ret);
    drop_secrets(v, ret);
    forwarded_for(v->req, ret);
    http_headers_set(ret, "X-Forwarded-Host", host);
    http_headers_set(ret, "X-Forwarded-Proto", http_request_secure(v->req) ? "https" : "http");
    if (protocol) {
        http_headers_set(ret, "Connection", "Upgrade");
        http_headers_set(ret, "Upgrade", protocol);
    }
}

static int pass_on(struct visit *v, struct http_io *io, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    CLEANUP(http_headers_done) struct http_headers headers = HTTP_HEADERS_INIT;
    const char *query = http_request_query_raw(v->req);
    cleanup_free char *target =
        xasprintf("%s%s%s", http_request_path(v->req), query ? "?" : "", query ? query : "");
    struct pollfd watch = http_client_pollfd(v->req);
    bool upgrade = wanted_protocol(v->req);
    struct http_call_opts opts = {
        .method = http_request_method(v->req),
        .target = target,
        .headers = &headers,
        .body_length = http_body_length(v->req),
        .watch = &watch,
        .over = io,
    };
    int r;

    compose(v, &headers);
    r = http_call_new(request_node(v->req), &opts, &call, e);
    if (r == 0 && upgrade) {
        r = http_call_head(call, e);
        if (r == 0 && http_call_status(call) == 101) {
            return http_tunnel_upgrade(v->req, call, e);
        }
    }
    if (r == 0) {
        r = http_proxy_answer(v->req, call, /* opts */ NULL, e);
    }
    return r < 0 && r != -ECANCELED && !http_reply_begun(v->req) ? trouble(v, NO_HTTP) : r;
}

static int visit(struct visit *v, struct err *e)
{
    struct http_io io;
    int r = find_sandbox(v, e);

    r = r == 0 ? check_token(v) : r;
    r = r == 0 ? take_place(v) : r;
    r = r == 0 ? wake(v) : r;
    r = r == 0 ? open_port(v, &io, e) : r;
    return r == 0 ? pass_on(v, &io, e) : r;
}

int preview_handle(struct http_request *req, const struct address *to, struct err *e)
{
    struct visit v = {.req = req, .to = to};
    int r;

    http_request_io_timeout(req, 0);
    r = visit(&v, e);
    sandbox_done(&v.sb);
    return r == 1 ? reply_trouble(req, to, v.trouble, e) : r;
}

/* ---- the address ---- */

/* The port at which the client has reached us: that of its Host field. */
static const char *port_of_host(const char *host)
{
    const char *colon = strrchr(host, ':');

    return colon && !strchr(colon, ']') && strspn(colon + 1, "0123456789") == strlen(colon + 1)
               ? colon
               : "";
}

int port_address_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct gateway *g = gateway_of(req);
    struct preview_policy policy;
    cleanup_free char *host = NULL;
    cleanup_free char *url = NULL;
    char token[TOKEN_SIZE];
    uint64_t port = 0;
    json_t *json;
    int r = control_get(g->control, actor_of(req), http_request_param(req, "id"), &sb, e);

    if (r < 0) {
        return r;
    }
    if (str_to_u64(http_request_param(req, "port"), UINT16_MAX, &port) < 0 || port == 0) {
        return err_field(e, -EINVAL, "invalid_request", "port",
                         "'port' must be a number from 1 to %d", UINT16_MAX);
    }
    preview_policy_read(sb.surface, (uint16_t)port, &policy);
    tokens_make(g->tokens, TOKEN_TRAFFIC, sb.id, token);
    host = xasprintf("%llu-%s.%s%s", (unsigned long long)port, sb.id,
                     g->domain ? g->domain : "localhost", port_of_host(http_request_host(req)));
    url = xasprintf("%s://%s/", http_request_secure(req) ? "https" : "http", host);
    json = json_pack("{s:s, s:s, s:I, s:b}", "url", url, "host", host, "port", (json_int_t)port,
                     "public", !policy.private);
    json_object_set_new(json, "token", policy.private ? json_string(token) : json_null());
    return http_reply_json_take(req, 200, json, e);
}
