/* SPDX-License-Identifier: Apache-2.0 */

/* The object, the way of every request before and after its handler, and the route table. */
#include "gateway/gateway.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "gateway/e2b/e2b.h"
#include "gateway/preview.h"
#include "gateway/template/set.h"

static int authenticate(struct http_request *req, const struct http_route *route, struct err *e);

#define SB "/v1/sandboxes/{id}"
#define CMD SB "/commands/{cid}"
#define SNAPSHOT SB "/snapshots/{snapshot}"

static const struct http_route routes[] = {
    {"GET", "/v1/health", health_handler, ROUTE_PUBLIC},
    {"GET", "/v1/openapi.json", openapi_handler, ROUTE_PUBLIC},
    {"GET", "/metrics", metrics_handler, ROUTE_LOCAL | ROUTE_ORGANISATION},

    {"POST", "/v1/sandboxes", sandbox_create_handler, 0},
    {"GET", "/v1/sandboxes", sandbox_list_handler, 0},
    {"GET", SB, sandbox_get_handler, 0},
    {"PATCH", SB, sandbox_patch_handler, 0},
    {"DELETE", SB, sandbox_delete_handler, 0},
    {"POST", SB "/stop", sandbox_stop_handler, 0},
    {"POST", SB "/start", sandbox_start_handler, 0},
    {"POST", SB "/pause", sandbox_pause_handler, 0},
    {"POST", SB "/resume", sandbox_resume_handler, 0},
    {"POST", SB "/suspend", sandbox_suspend_handler, 0},
    {"GET", SB "/stored", sandbox_stored_handler, 0},
    {"POST", SB "/snapshots", snapshot_create_handler, 0},
    {"GET", SB "/snapshots", snapshot_list_handler, 0},
    {"GET", SNAPSHOT, snapshot_get_handler, 0},
    {"PATCH", SNAPSHOT, snapshot_patch_handler, 0},
    {"DELETE", SNAPSHOT, snapshot_delete_handler, 0},
    {"POST", SB "/rollback", sandbox_rollback_handler, 0},
    {"POST", SB "/fork", sandbox_fork_handler, 0},
    {"GET", SB "/history", history_handler, 0},
    {"GET", SB "/trace", trace_handler, 0},
    {"GET", SB "/network", network_get_handler, 0},
    {"PATCH", SB "/network", network_patch_handler, 0},
    {"GET", SB "/network/log", network_log_handler, 0},
    {"GET", SB "/network/proposal", network_proposal_handler, 0},
    {"POST", SB "/network/explain", network_explain_handler, 0},
    {"POST", SB "/network/asks/{ask}", network_answer_handler, 0},
    {"POST", "/v1/network-answers", network_token_answer_handler, ROUTE_PUBLIC},
    {"POST", SB "/run", run_handler, ROUTE_STREAM},
    {"GET", SB "/logs", node_logs_handler, ROUTE_STREAM},
    {"GET", SB "/metrics", guest_forward_handler, 0},

    {"POST", SB "/commands", guest_start_handler, ROUTE_STREAM},
    {"GET", SB "/commands", guest_forward_handler, 0},
    {"GET", CMD, guest_command_handler, ROUTE_STREAM},
    {"DELETE", CMD, guest_command_handler, 0},
    {"GET", CMD "/output", guest_output_handler, ROUTE_STREAM},
    {"POST", CMD "/stdin", guest_command_handler, ROUTE_STREAM},
    {"POST", CMD "/signal", guest_command_handler, 0},
    {"POST", CMD "/resize", guest_command_handler, 0},
    {"GET", CMD "/terminal", terminal_handler, ROUTE_STREAM},

    {"GET", SB "/files", guest_forward_handler, ROUTE_STREAM},
    {"PUT", SB "/files", guest_forward_handler, ROUTE_STREAM},
    {"GET", SB "/files/stat", guest_forward_handler, 0},
    {"GET", SB "/files/list", guest_forward_handler, 0},
    {"GET", SB "/files/watch", guest_forward_handler, ROUTE_STREAM},
    {"POST", SB "/files/mkdir", guest_forward_handler, 0},
    {"POST", SB "/files/move", guest_forward_handler, 0},
    {"POST", SB "/files/remove", guest_forward_handler, 0},
    {"POST", SB "/files/chmod", guest_forward_handler, 0},
    {"POST", SB "/files/chown", guest_forward_handler, 0},
    {"POST", SB "/files/symlink", guest_forward_handler, 0},

    {"GET", SB "/ports/{port}", port_address_handler, 0},
    {"POST", SB "/ports/{port}", guest_forward_handler, ROUTE_STREAM},

    {"GET", "/v1/templates", template_list_handler, 0},
    {"POST", "/v1/templates", template_build_handler, 0},
    {"GET", "/v1/templates/{template}", template_get_handler, 0},
    {"DELETE", "/v1/templates/{template}", template_delete_handler, 0},
    {"GET", "/v1/templates/{template}/builds/{build}", template_build_get_handler, 0},
    {"PUT", "/v1/template-files/{hash}", template_files_handler, ROUTE_STREAM},
    {"GET", "/v1/node", node_get_handler, ROUTE_ORGANISATION},
    {"GET", "/v1/node/metrics", node_metrics_handler, ROUTE_LOCAL | ROUTE_ORGANISATION},
    {"GET", "/v1/nodes", nodes_list_handler, ROUTE_OPERATOR},
    {"POST", "/v1/nodes", nodes_add_handler, ROUTE_OPERATOR},
    {"GET", "/v1/nodes/{name}", nodes_get_handler, ROUTE_OPERATOR},
    {"PATCH", "/v1/nodes/{name}", nodes_patch_handler, ROUTE_OPERATOR},
    {"DELETE", "/v1/nodes/{name}", nodes_delete_handler, ROUTE_OPERATOR},
    {"POST", "/v1/node-tokens", node_token_handler, ROUTE_OPERATOR},
    {"POST", "/v1/node-join", node_join_handler, ROUTE_PUBLIC},
    {"POST", "/v1/node-renew", node_renew_handler, ROUTE_PUBLIC},
    {"POST", "/v1/schedule/explain", schedule_explain_handler, ROUTE_ORGANISATION},
    {"POST", "/v1/keys", key_create_handler, ROUTE_ORGANISATION},
    {"GET", "/v1/keys", key_list_handler, 0},
    {"DELETE", "/v1/keys/{id}", key_delete_handler, ROUTE_ORGANISATION},
    {"GET", "/v1/projects", project_list_handler, 0},
    {"POST", "/v1/projects", project_create_handler, ROUTE_ORGANISATION},
    {"GET", "/v1/projects/{id}", project_get_handler, 0},
    {"PATCH", "/v1/projects/{id}", project_patch_handler, ROUTE_OPERATOR},
    {"GET", "/v1/projects/{id}/network", project_network_get_handler, 0},
    {"PUT", "/v1/projects/{id}/network", project_network_put_handler, ROUTE_ORGANISATION},
    {"GET", "/v1/organisation/network", organisation_network_get_handler, 0},
    {"PUT", "/v1/organisation/network", organisation_network_put_handler, ROUTE_ORGANISATION},
    {"GET", "/v1/audit", audit_list_handler, 0},

    {"POST", "/v1/credentials", credential_create_handler, 0},
    {"GET", "/v1/credentials", credential_list_handler, 0},
    {"GET", "/v1/credentials/{id}", credential_get_handler, 0},
    {"PATCH", "/v1/credentials/{id}", credential_patch_handler, 0},
    {"DELETE", "/v1/credentials/{id}", credential_delete_handler, 0},
    {"GET", "/v1/credential-log", credential_log_handler, 0},
    {"GET", "/v1/credential-log/verify", credential_verify_handler, ROUTE_ORGANISATION},
    {"GET", "/v1/authority", credential_authority_handler, 0},

    {"GET", "/", console_handler, ROUTE_PUBLIC | ROUTE_UNDOCUMENTED},
    {"GET", "/console{rest...}", console_handler, ROUTE_PUBLIC | ROUTE_UNDOCUMENTED},
};

const struct http_router gateway_router = {routes, ARRAY_SIZE(routes), authenticate};

/* A sandbox was paused at its end: clients of E2B's API expect that what they have open breaks. */
static void on_still(void *ctx, const char *id)
{
    struct gateway *g = ctx;

    e2b_cut(g->e2b, id);
}

int gateway_new(const struct gateway_opts *opts, struct gateway **ret, struct err *e)
{
    CLEANUP(gateway_freep) struct gateway *g = xnew(struct gateway);
    int r;

    ASSERT(opts && opts->db && opts->fleet && opts->control && opts->tokens && opts->state_dir &&
           ret);

    g->console_fd = FD_NONE;
    g->db = opts->db;
    g->fleet = opts->fleet;
    g->control = opts->control;
    g->credentials = opts->credentials;
    g->domain = opts->domain;
    g->tokens = opts->tokens;
    g->node_authority = opts->node_authority;
    g->auth = auth_new(g->db);
    g->domain_shown = opts->domain && !str_eq(opts->domain, "localhost") ? opts->domain : NULL;
    g->metrics = metrics_new(&gateway_router, &e2b_router);
    g->e2b = e2b_new();
    control_on_still(g->control, on_still, g);
    g->rates = rates_new(opts->limit);
    if (opts->console_dir) {
        g->console_fd = fs_open(opts->console_dir, O_RDONLY | O_DIRECTORY, 0);
        if (g->console_fd < 0) {
            return err_wrap(e, g->console_fd, "opening the console's folder '%s'",
                            opts->console_dir);
        }
    }
    r = files_open(opts->state_dir, &g->files, e);
    if (r < 0) {
        return r;
    }
    g->builds =
        builds_new(&(struct builds_opts){.db = g->db, .control = g->control, .files = g->files});
    *ret = TAKE_PTR(g);
    return 0;
}

void gateway_free(struct gateway *g)
{
    if (g) {
        builds_free(g->builds);
        files_free(g->files);
        e2b_free(g->e2b);
        auth_free(g->auth);
        rates_free(g->rates);
        metrics_free(g->metrics);
        g->console_fd = fd_close(g->console_fd);
        free(g);
    }
}

struct request *request_of(const struct http_request *req)
{
    struct request *rq = http_request_user(req);

    ASSERT(rq);
    return rq;
}

void request_about(struct http_request *req, const struct sandbox *sb)
{
    request_of(req)->node = fleet_client(gateway_of(req)->fleet, sb->node);
}

struct http_client *request_node(const struct http_request *req)
{
    struct node_client *node = request_of(req)->node;

    return node_client_http(node ? node : fleet_client(gateway_of(req)->fleet, ""));
}

const struct control_actor *actor_of(const struct http_request *req)
{
    return &request_of(req)->caller.actor;
}

static void request_free(void *p)
{
    struct request *rq = p;

    if (rq->entered) {
        auth_leave(rq->gateway->auth, rq->caller.actor.project);
    }
    if (rq->visits[0]) {
        auth_leave(rq->gateway->auth, rq->visits);
    }
    free(rq);
}

/*
 * The request's id: the client's own, if it is harmless to print; else the trace that the client says it is part of; else a
 * new one. It is this thread's from now on, and goes to every service that is asked.
 */
static void begin_request(struct http_request *req, struct request *rq)
{
    struct log_request of = {0};

    http_request_adopt(req);
    of = *log_request();
    if (!of.id[0] && of.trace[0]) {
        snprintf(of.id, sizeof(of.id), "%s", of.trace);
    } else if (!of.id[0]) {
        id_new(ID_REQUEST, of.id);
    }
    log_request_set(&of);
    snprintf(rq->id, sizeof(rq->id), "%s", of.id);
}

/* What the database complains about is for our log; whatever it is, the client may try again. */
static int hide_database_error(const struct request *rq, int r, struct err *e)
{
    struct log_ctx log = {.request = rq->id};

    if (e->code != r || !str_eq(e->reason, "database_error")) {
        return r;
    }
    log_error(&log, "the database fails: %s", e->msg);
    return err_set(e, -EHOSTDOWN, "database_unavailable",
                   "the database cannot be used just now: try again");
}

void gateway_hide_database_error(const struct http_request *req, struct err *e)
{
    IGNORE_RESULT(hide_database_error(request_of(req), e->code, e)); /* e says it all */
}

/* Ours are named by their first word; whatever else there is belongs to E2B's API. */
static bool is_ours(const char *path)
{
    return str_eq(path, "/") || str_starts(path, "/v1/") || str_eq(path, "/metrics") ||
           str_starts(path, "/console");
}

static int handle_api(struct http_request *req, struct err *e)
{
    return is_ours(http_request_path(req)) ? http_router_handle(&gateway_router, req, e)
                                           : e2b_handle(req, e);
}

/* 1: the request is for what is inside a sandbox, not for us. */
static int find_address(struct http_request *req, struct address *ret, struct err *e)
{
    const struct address_source src = {
        .host = http_request_host(req),
        .id = http_request_header(req, "E2b-Sandbox-Id"),
        .port = http_request_header(req, "E2b-Sandbox-Port"),
        .domain = gateway_of(req)->domain,
    };

    return address_find(&src, ret, e);
}

int gateway_handle(struct http_request *req, struct err *e)
{
    struct request *rq = xnew(struct request);
    struct address to;
    int r;

    rq->gateway = gateway_of(req);
    begin_request(req, rq);
    http_request_set_user(req, rq, request_free);
    r = find_address(req, &to, e);
    if (r > 0 && to.port != ADDRESS_ENVD_PORT) {
        r = preview_handle(req, &to, e);
        return r < 0 ? hide_database_error(rq, r, e) : r;
    }
    http_reply_header(req, "X-Request-Id", rq->id);
    http_reply_header(req, "Cache-Control", "no-store");
    http_reply_header(req, "X-Content-Type-Options", "nosniff");
    if (r >= 0) {
        r = r > 0 ? e2b_inside(req, &to, e) : handle_api(req, e);
    }
    return r < 0 ? hide_database_error(rq, r, e) : r;
}

static bool is_local(const struct http_request *req)
{
    const char *peer = http_request_peer_name(req);

    return str_starts(peer, "127.") || str_starts(peer, "[::1]");
}

int request_check_rate(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    uint64_t wait_ns;
    char seconds[24];

    rates_share(g->rates, control_gateways(g->control));
    wait_ns = rates_take(g->rates, actor_of(req)->key, clock_now_ns());

    if (wait_ns == 0) {
        return 0;
    }
    snprintf(seconds, sizeof(seconds), "%llu",
             (unsigned long long)((wait_ns + NS_PER_S - 1) / NS_PER_S));
    http_reply_header(req, "Retry-After", seconds);
    return err_set(e, -EAGAIN, "rate_limited",
                   "this key asks more often than it may: try again in %s s", seconds);
}

static int check_scope(const struct caller *caller, unsigned flags, struct err *e)
{
    if ((flags & ROUTE_OPERATOR) && caller->scope < KEY_SCOPE_OPERATOR) {
        return err_set(e, -EPERM, "operator_key_needed",
                       "this needs a key with the scope 'operator'; this key's scope is '%s'",
                       key_scope_name(caller->scope));
    }
    if ((flags & ROUTE_ORGANISATION) && caller->scope < KEY_SCOPE_ORGANISATION) {
        return err_set(
            e, -EPERM, "organisation_key_needed",
            "this needs a key with the scope 'organisation'; this key's scope is 'project'");
    }
    return 0;
}

static int authenticate(struct http_request *req, const struct http_route *route, struct err *e)
{
    struct request *rq = request_of(req);
    int r;

    if (route->flags & ROUTE_STREAM) {
        http_request_io_timeout(req, 0);
    }
    if ((route->flags & ROUTE_PUBLIC) || ((route->flags & ROUTE_LOCAL) && is_local(req))) {
        return 0;
    }
    r = auth_request(rq->gateway->auth, req, &rq->caller, e);
    if (r < 0) {
        if (r == -EKEYREJECTED) {
            http_reply_header(req, "WWW-Authenticate", "Bearer realm=\"space\"");
        }
        return r;
    }
    r = request_check_rate(req, e);
    r = r < 0 ? r : check_scope(&rq->caller, route->flags, e);
    if (r < 0) {
        return r;
    }
    r = auth_enter(rq->gateway->auth, rq->caller.actor.project, e);
    rq->entered = r == 0;
    return r;
}

void gateway_done(void *ctx, struct http_request *req, const struct http_done *done)
{
    struct gateway *g = ctx;
    const struct request *rq = http_request_user(req);
    const struct http_route *route = http_request_route(req);
    bool names_one = route && str_starts(route->pattern, "/v1/sandboxes/{id}");
    const struct log_ctx log = {.request = rq ? rq->id : NULL,
                                .sandbox = names_one ? http_request_param(req, "id") : NULL};

    metrics_count(g->metrics, route, done);
    /* The path only: queries hold file names and metadata. */
    log_info(
        &log,
        "access method=%s path=%.200s status=%d error=%d ms=%.1f in=%llu out=%llu key=%s peer=%s",
        done->method, done->path, done->status, -done->error,
        (double)done->duration_ns / (double)NS_PER_MS, (unsigned long long)done->bytes_in,
        (unsigned long long)done->bytes_out,
        rq && rq->caller.actor.key[0] ? rq->caller.actor.key : "-", http_request_peer_name(req));
}

int reply_text(struct http_request *req, int status, const struct buf *text, struct err *e)
{
    return http_reply_bytes(req, status, "application/json", buf_str(text), text->len, e);
}

static const char *how_to_go_on(enum sandbox_state state)
{
    switch (state) {
    case SANDBOX_STATE_PAUSED:
    case SANDBOX_STATE_SUSPENDED:
        return ": resume it first";
    case SANDBOX_STATE_STOPPED:
    case SANDBOX_STATE_FAILED:
        return ": start it first";
    default:
        return "";
    }
}

int get_sandbox(struct http_request *req, const char *id, struct sandbox *ret, struct err *e)
{
    struct control *c = gateway_of(req)->control;
    int r = control_get(c, actor_of(req), id, ret, e);

    if (r == 0 && ret->observed == SANDBOX_STATE_FAILED) {
        sandbox_done(ret);
        r = control_look(c, actor_of(req), id, ret, e);
    }
    return r;
}

int require_running(struct http_request *req, char ret_id[static ID_SIZE], struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    const char *id = http_request_param(req, "id");
    int r;

    r = get_sandbox(req, id, &sb, e);
    if (r < 0) {
        return r;
    }
    if (control_may_wake(&sb)) {
        r = control_wake(gateway_of(req)->control, actor_of(req), id, &sb, e);
        if (r < 0) {
            return r;
        }
    }
    if (sandbox_shown_state(&sb) != SANDBOX_STATE_RUNNING) {
        return err_set(e, -ESTALE, "sandbox_not_running", "the sandbox is %s, not running%s%s%s",
                       sandbox_state_name(sandbox_shown_state(&sb)), sb.reason[0] ? ": " : "",
                       sb.reason, how_to_go_on(sandbox_shown_state(&sb)));
    }
    snprintf(ret_id, ID_SIZE, "%s", sb.id);
    request_about(req, &sb);
    return 0;
}
