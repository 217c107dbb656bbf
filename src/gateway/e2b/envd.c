/* SPDX-License-Identifier: Apache-2.0 */

/* What comes for port 49983 of a sandbox: who may, is it awake, and to which handler. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/log.h"
#include "gateway/e2b/figures.h"
#include "gateway/e2b/rpc.h"

#define CORS_MAX_AGE "7200"

static void inside_done(struct inside *in)
{
    if (in->live) {
        live_leave(in->live);
    }
    sandbox_done(&in->sb);
}

static int reply_gone(struct http_request *req, const char *id, struct err *e)
{
    return e2b_reply_json_take(req, 502,
                               json_pack("{s:s, s:s, s:i}", "sandboxId", id, "message",
                                         "The sandbox was not found", "code", 502),
                               e);
}

/* For pages of browsers: whoever has the token may, from wherever. */
static void allow_browsers(struct http_request *req)
{
    http_reply_header(req, "Access-Control-Allow-Origin", "*");
    http_reply_header(
        req, "Access-Control-Expose-Headers",
        "Location, Cache-Control, X-Content-Type-Options, Content-Encoding, "
        "Connect-Content-Encoding, Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin");
}

static int reply_preflight(struct http_request *req, struct err *e)
{
    http_reply_header(req, "Access-Control-Allow-Methods", "HEAD, GET, POST, PUT, PATCH, DELETE");
    http_reply_header(req, "Access-Control-Allow-Headers", "*, Authorization");
    http_reply_header(req, "Access-Control-Max-Age", CORS_MAX_AGE);
    return http_reply_empty(req, 204, e);
}

/* --- who --- */

_Static_assert(INSIDE_USER_SIZE == sizeof((struct e2b_box){0}.user), "a template's user is one");

/* Authorization: Basic base64("USER:"). */
static int read_user(struct http_request *req, char ret[static INSIDE_USER_SIZE], struct err *e)
{
    const char *field = http_request_header(req, "Authorization");
    cleanup_buf struct buf text = BUF_INIT(512);
    size_t len;

    ret[0] = '\0';
    if (!field || strncasecmp(field, "Basic ", 6) != 0) {
        return 0;
    }
    field += 6;
    if (base64_decode(field, strlen(field), &text) < 0) {
        return err_set(e, -EKEYREJECTED, "unauthorized", "the field Authorization cannot be read");
    }
    len = strcspn(buf_str(&text), ":");
    if (len >= INSIDE_USER_SIZE) {
        return err_set(e, -EKEYREJECTED, "unauthorized", "invalid username: '%.100s'",
                       buf_str(&text));
    }
    memcpy(ret, buf_str(&text), len);
    ret[len] = '\0';
    return inside_check_user(ret, e);
}

static bool is_health(const struct http_request *req)
{
    return str_eq(http_request_path(req), "/health");
}

static bool is_files(const struct http_request *req)
{
    return str_eq(http_request_path(req), "/files");
}

/* The token; for files a signature made with it instead; nothing for the health. */
static int check_token(struct inside *in, struct err *e)
{
    const struct gateway *g = gateway_of(in->req);
    const char *token = http_request_header(in->req, "X-Access-Token");
    char mine[TOKEN_SIZE];

    if (!in->box.secure || is_health(in->req)) {
        return 0;
    }
    if (tokens_check(g->tokens, TOKEN_ENVD, in->sb.id, token)) {
        return 0;
    }
    if (!is_files(in->req)) {
        return err_set(e, -EKEYREJECTED, "unauthorized",
                       "unauthorized access, please provide a valid access token or method "
                       "signing if supported");
    }
    if (token) {
        return err_set(e, -EKEYREJECTED, "unauthorized",
                       "access token present in header but does not match");
    }
    tokens_make(g->tokens, TOKEN_ENVD, in->sb.id, mine);
    return e2b_signature_check(in->req, mine, e);
}

/* --- whose --- */

/* 1: *in has the sandbox; 0: it is not there. */
static int find(struct http_request *req, const char *id, struct inside *in, struct err *e)
{
    int r;

    if (!id_valid(ID_SANDBOX, id)) {
        return 0;
    }
    r = db_sandbox_get(gateway_of(req)->db, id, /* project */ NULL, &in->sb, e);
    if (r < 0) {
        return r == -ENOENT ? 0 : r;
    }
    e2b_box_read(&in->sb, &in->box);
    return !in->box.killed && e2b_box_state(&in->sb);
}

/* A request here acts for the sandbox's project, whoever sends it, and counts for it. */
static int enter(struct inside *in, struct err *e)
{
    struct request *rq = request_of(in->req);
    int r;

    snprintf(rq->caller.actor.project, sizeof(rq->caller.actor.project), "%s", in->sb.project);
    r = auth_enter(rq->gateway->auth, in->sb.project, e);
    rq->entered = r == 0;
    return r;
}

/* 1: it runs. 0: it does not, and this request does not wake it. */
static int wake(struct inside *in, struct err *e)
{
    struct control *control = gateway_of(in->req)->control;
    cleanup_free char *id = xstrdup(in->sb.id);
    int r;

    request_about(in->req, &in->sb);
    if (in->sb.observed == SANDBOX_STATE_RUNNING) {
        return 1;
    }
    if (is_health(in->req) || !control_may_wake(&in->sb)) {
        return 0;
    }
    r = control_wake(control, actor_of(in->req), id, &in->sb, e);
    if (r == 0) {
        request_about(in->req, &in->sb);
    }
    return r < 0 ? r : in->sb.observed == SANDBOX_STATE_RUNNING;
}

/* --- handlers --- */

static int metrics(struct inside *in, struct err *e)
{
    struct e2b_usage u;
    int64_t now_ms = control_now_ms(gateway_of(in->req)->control);
    int r = e2b_usage(in->req, &in->sb, &u, e);

    if (r < 0) {
        return r;
    }
    return e2b_reply_json_take(
        in->req, 200,
        json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ts",
                  (json_int_t)(now_ms / 1000), "cpu_count", (json_int_t)u.cpu_count, "cpu_used_pct",
                  u.cpu_percent, "mem_total", (json_int_t)u.memory_total, "mem_used",
                  (json_int_t)u.memory_used, "mem_cache", (json_int_t)u.memory_cache,
                  "mem_total_mib", (json_int_t)(u.memory_total >> 20), "mem_used_mib",
                  (json_int_t)(u.memory_used >> 20), "disk_used", (json_int_t)u.disk_used,
                  "disk_total", (json_int_t)u.disk_total),
        e);
}

static int envs(struct inside *in, struct err *e)
{
    json_t *env = json_loads(in->sb.env, 0, NULL);

    if (!env) {
        return err_set(e, -EUCLEAN, "database_error", "the record of the sandbox is damaged");
    }
    json_object_update_new(env, json_pack("{s:s, s:s, s:s}", "E2B_SANDBOX", "true",
                                          "E2B_SANDBOX_ID", in->sb.id, "E2B_TEMPLATE_ID",
                                          e2b_box_template(&in->sb, &in->box)));
    return e2b_reply_json_take(in->req, 200, env, e);
}

static const struct {
    const char *method;
    const char *path;
    int (*run)(struct inside *in, struct err *e);
} routes[] = {
    {"GET", "/metrics", metrics},
    {"GET", "/envs", envs},
    {"GET", "/files", e2b_files_get},
    {"POST", "/files", e2b_files_post},
};

const char *e2b_inside_path(size_t i)
{
    return i < ARRAY_SIZE(routes) ? routes[i].path : NULL;
}

static int route(struct inside *in, struct err *e)
{
    const char *method = http_request_method(in->req);
    const char *path = http_request_path(in->req);

    if (rpc_is_path(path)) {
        return rpc_handle(in, e);
    }
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        if (str_eq(routes[i].path, path) &&
            (str_eq(routes[i].method, method) ||
             (str_eq(method, "HEAD") && str_eq(routes[i].method, "GET")))) {
            return routes[i].run(in, e);
        }
    }
    return err_set(e, -ENOENT, "not_found", "there is no such path at this port");
}

/* It has failed, and nothing was answered: because the sandbox does not run any more? */
static bool is_gone(struct inside *in)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct e2b_box box;

    if (live_is_cut(in->live)) {
        return true;
    }
    if (db_sandbox_get(gateway_of(in->req)->db, in->sb.id, NULL, &sb, NULL) < 0) {
        return true;
    }
    e2b_box_read(&sb, &box);
    return box.killed || sb.observed != SANDBOX_STATE_RUNNING ||
           sb.desired == SANDBOX_STATE_DELETED;
}

static int reply_failure(struct inside *in, const struct err *why, struct err *e)
{
    struct log_ctx log = {.request = request_of(in->req)->id, .sandbox = in->sb.id};

    if (in->kind != INSIDE_REST) {
        return rpc_reply_error(in, why, e);
    }
    if (err_http_status(why) >= 500) {
        log_warn(&log, "a request for its inside fails: %s", why->msg);
    }
    return e2b_reply_error(in->req, err_http_status(why), why->msg, e);
}

static int serve(struct inside *in, struct err *e)
{
    int r;

    if (is_health(in->req)) {
        return http_reply_empty(in->req, 204, e);
    }
    r = live_enter(gateway_of(in->req)->e2b->live, in->req, in->sb.id, &in->live, e);
    if (r == 0) {
        r = read_user(in->req, in->user, e);
    }
    if (r == 0 && !in->user[0]) {
        memcpy(in->user, in->box.user, sizeof(in->user));
    }
    return r < 0 ? r : route(in, e);
}

/* The sandbox is there. */
static int admit(struct inside *in, struct err *e)
{
    struct err why = {0};
    int r = check_token(in, &why);

    if (r == 0) {
        r = enter(in, &why);
    }
    if (r == 0) {
        r = wake(in, &why);
    }
    if (r == 0) {
        return reply_gone(in->req, in->sb.id, e);
    }
    r = r == 1 ? serve(in, &why) : r;
    if (r >= 0) {
        return r;
    }
    if (http_reply_begun(in->req) || (http_client_gone(in->req) && r == -ECANCELED)) {
        if (e) {
            *e = why;
        }
        return r;
    }
    if (in->live && is_gone(in)) {
        return reply_gone(in->req, in->sb.id, e);
    }
    return reply_failure(in, &why, e);
}

int e2b_inside(struct http_request *req, const struct address *to, struct err *e)
{
    CLEANUP(inside_done) struct inside in = {.req = req, .kind = INSIDE_REST};
    int r;

    ASSERT(to && to->port == ADDRESS_ENVD_PORT);
    http_request_io_timeout(req, 0); /* streams are silent for as long as they like */
    allow_browsers(req);
    if (str_eq(http_request_method(req), "OPTIONS")) {
        return reply_preflight(req, e);
    }
    if (rpc_is_path(http_request_path(req))) {
        in.kind = rpc_kind(req);
    }
    r = find(req, to->id, &in, e);
    if (r <= 0) {
        return r < 0 ? r : reply_gone(req, to->id, e);
    }
    return admit(&in, e);
}
