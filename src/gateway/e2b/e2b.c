/* SPDX-License-Identifier: Apache-2.0 */

/* The control API's routes, and the way of its requests before and after their handlers. */
#include <string.h>

#include "gateway/e2b/private.h"
#include "model/json-text.h"

static int authenticate(struct http_request *req, const struct http_route *route, struct err *e);
static int health(struct http_request *req, struct err *e);

#define SB "/sandboxes/{id}"

static const struct http_route routes[] = {
    {"GET", "/health", health, ROUTE_PUBLIC},

    {"POST", "/v2/sandboxes", e2b_create_handler, 0},
    {"GET", "/v2/sandboxes", e2b_list_handler, 0},
    {"POST", "/v2/sandboxes/{id}/connect", e2b_connect_handler, 0},
    {"GET", "/v2/sandboxes/{id}/logs", e2b_logs_v2_handler, 0},

    {"POST", "/sandboxes", e2b_create_v1_handler, 0},
    {"GET", "/sandboxes", e2b_list_v1_handler, 0},
    {"GET", "/sandboxes/metrics", e2b_metrics_many_handler, 0},
    {"GET", SB, e2b_get_handler, 0},
    {"DELETE", SB, e2b_kill_handler, 0},
    {"POST", SB "/connect", e2b_connect_v1_handler, 0},
    {"POST", SB "/resume", e2b_resume_handler, 0},
    {"POST", SB "/pause", e2b_pause_handler, 0},
    {"POST", SB "/timeout", e2b_timeout_handler, 0},
    {"POST", SB "/refreshes", e2b_refresh_handler, 0},
    {"POST", SB "/snapshots", e2b_snapshot_handler, 0},
    {"POST", SB "/fork", e2b_fork_handler, 0},
    {"GET", SB "/metrics", e2b_metrics_handler, 0},
    {"GET", SB "/logs", e2b_logs_handler, 0},
    {"PUT", SB "/network", e2b_network_handler, 0},

    {"GET", "/files", e2b_signed_files_handler, ROUTE_PUBLIC},
    {"POST", "/files", e2b_signed_files_handler, ROUTE_PUBLIC},

    {"GET", "/secrets", e2b_secrets_handler, 0},
    {"POST", "/secrets", e2b_secret_create_handler, 0},
    {"GET", "/secrets/{id}", e2b_secret_get_handler, 0},
    {"POST", "/secrets/{id}", e2b_secret_update_handler, 0},
    {"DELETE", "/secrets/{id}", e2b_secret_delete_handler, 0},
    {"GET", "/volumes", e2b_volumes_handler, 0},
    {"POST", "/volumes", e2b_volume_create_handler, 0},
    {"GET", "/volumes/{id}", e2b_volume_handler, 0},
    {"DELETE", "/volumes/{id}", e2b_volume_handler, 0},

    {"GET", "/snapshots", e2b_snapshots_handler, 0},
    {"GET", "/templates", e2b_templates_handler, 0},
    {"GET", "/v2/templates", e2b_templates_handler, 0},
    {"GET", "/templates/aliases/{alias}", e2b_template_alias_handler, 0},
    {"GET", "/templates/{id}", e2b_template_get_handler, 0},
    {"PATCH", "/templates/{id}", e2b_template_patch_handler, 0},
    {"PATCH", "/v2/templates/{id}", e2b_template_patch_handler, 0},
    {"DELETE", "/templates/{id}", e2b_template_delete_handler, 0},
    {"GET", "/templates/{id}/tags", e2b_template_tags_handler, 0},
    {"POST", "/templates/tags", e2b_tags_add_handler, 0},
    {"DELETE", "/templates/tags", e2b_tags_remove_handler, 0},
    {"POST", "/v3/templates", e2b_build_begin_handler, 0},
    {"GET", "/templates/{id}/files/{hash}", e2b_build_files_handler, 0},
    {"PUT", "/templates/{id}/files/{hash}", e2b_build_upload_handler, ROUTE_PUBLIC},
    {"POST", "/v2/templates/{id}/builds/{build}", e2b_build_start_handler, 0},
    {"GET", "/templates/{id}/builds/{build}/status", e2b_build_status_handler, 0},
    {"GET", "/templates/{id}/builds/{build}/logs", e2b_build_logs_handler, 0},
};

const struct http_router e2b_router = {routes, ARRAY_SIZE(routes), authenticate};

struct e2b *e2b_new(void)
{
    struct e2b *x = xnew(struct e2b);

    x->live = live_set_new();
    x->watchers = watchers_new();
    pthread_mutex_init(&x->search, NULL);
    return x;
}

void e2b_free(struct e2b *x)
{
    if (x) {
        watchers_free(x->watchers);
        live_set_free(x->live);
        pthread_mutex_destroy(&x->search);
        free(x);
    }
}

void e2b_cut(struct e2b *x, const char *sandbox)
{
    ASSERT(x && sandbox);
    live_cut(x->live, sandbox);
}

static int authenticate(struct http_request *req, const struct http_route *route, struct err *e)
{
    struct request *rq = request_of(req);
    int r;

    if (route->flags & ROUTE_PUBLIC) {
        return 0;
    }
    r = auth_request(rq->gateway->auth, req, &rq->caller, e);
    r = r < 0 ? r : request_check_rate(req, e);
    if (r == 0) {
        r = auth_enter(rq->gateway->auth, rq->caller.actor.project, e);
    }
    rq->entered = r == 0;
    return r;
}

static int health(struct http_request *req, struct err *e)
{
    static const char text[] = "The service is running";

    return http_reply_bytes(req, 200, "text/plain", text, strlen(text), e);
}

int e2b_handle(struct http_request *req, struct err *e)
{
    struct err why = {0};
    int r = http_router_handle(&e2b_router, req, &why);

    if (r >= 0) {
        return r;
    }
    if (r == -ECANCELED || http_reply_begun(req)) {
        if (e) {
            *e = why;
        }
        return r;
    }
    gateway_hide_database_error(req, &why);
    return e2b_reply_error(req, err_http_status(&why), why.msg, e);
}

/* --- answers --- */

json_t *e2b_text(const char *text)
{
    cleanup_free char *copy = xstrdup(text);
    size_t len = strlen(copy);
    size_t at = 0;

    while ((at += utf8_valid_prefix(copy + at, len - at)) < len) {
        copy[at] = '?';
    }
    return json_string(copy);
}

int e2b_reply_error(struct http_request *req, int status, const char *message, struct err *e)
{
    return e2b_reply_json_take(
        req, status, json_pack("{s:i, s:o}", "code", status, "message", e2b_text(message)), e);
}

int e2b_reply_json_take(struct http_request *req, int status, json_t *json_take, struct err *e)
{
    cleanup_json json_t *json = json_take;
    cleanup_buf struct buf text = BUF_INIT(GATEWAY_ANSWER_MAX);
    int r;

    ASSERT(json);
    r = json_write(json, &text);
    return r < 0 ? err_wrap(e, r, "writing the answer") : reply_text(req, status, &text, e);
}

/* --- bodies --- */

static json_t *present(json_t *body, const char *name)
{
    json_t *value = json_object_get(body, name);

    return json_is_null(value) ? NULL : value;
}

static int wrong_type(const char *name, const char *want, struct err *e)
{
    return err_field(e, -EINVAL, "invalid_field", name, "'%s' must be %s", name, want);
}

int e2b_string(json_t *body, const char *name, const char **ret, struct err *e)
{
    json_t *value = present(body, name);

    if (value &&
        (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))) {
        return wrong_type(name, "a string without a NUL", e);
    }
    *ret = json_string_value(value);
    return 0;
}

int e2b_bool(json_t *body, const char *name, bool fallback, bool *ret, struct err *e)
{
    json_t *value = present(body, name);

    if (value && !json_is_boolean(value)) {
        return wrong_type(name, "true or false", e);
    }
    *ret = value ? json_is_true(value) : fallback;
    return 0;
}

int e2b_int(json_t *body, const char *name, struct json_bounds bounds, int64_t *ret, struct err *e)
{
    json_t *value = present(body, name);

    if (value && !json_is_integer(value)) {
        return wrong_type(name, "a whole number", e);
    }
    return json_get_bounded(body, name, bounds, ret, e);
}

int e2b_object(json_t *body, const char *name, json_t **ret, struct err *e)
{
    json_t *value = present(body, name);

    if (value && !json_is_object(value)) {
        return wrong_type(name, "an object", e);
    }
    *ret = value;
    return 0;
}

int e2b_array(json_t *body, const char *name, json_t **ret, struct err *e)
{
    json_t *value = present(body, name);

    if (value && !json_is_array(value)) {
        return wrong_type(name, "an array", e);
    }
    *ret = value;
    return 0;
}

/* --- sandboxes --- */

static int not_there(const char *id, struct err *e)
{
    return err_set(e, -ENOENT, "sandbox_not_found",
                   "Sandbox \"%.64s\" doesn't exist or you don't have access to it", id);
}

int e2b_find(struct http_request *req, struct sandbox *ret, struct e2b_box *ret_box, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_free char *id = xstrdup(http_request_param(req, "id"));
    struct e2b_box box;
    int r;

    id[strcspn(id, "-")] = '\0'; /* old clients say ID-CLIENT */
    r = control_get(gateway_of(req)->control, actor_of(req), id, &sb, e);
    if (r < 0) {
        return r == -ENOENT ? not_there(id, e) : r;
    }
    e2b_box_read(&sb, &box);
    if (box.killed || !e2b_box_state(&sb)) {
        return not_there(id, e);
    }
    *ret_box = box;
    sandbox_done(ret);
    *ret = sb;
    sb = (struct sandbox){0};
    return 0;
}

/* What a client gets to know of the ways in; the buffers hold the tokens. */
static struct e2b_tokens tokens_of(const struct gateway *g, const struct sandbox *sb,
                                   char envd[static TOKEN_SIZE], char traffic[static TOKEN_SIZE])
{
    struct e2b_tokens ret = {.domain = g->domain_shown};
    struct e2b_box box;

    e2b_box_read(sb, &box);
    tokens_make(g->tokens, TOKEN_ENVD, sb->id, envd);
    tokens_make(g->tokens, TOKEN_TRAFFIC, sb->id, traffic);
    ret.envd = box.secure ? envd : NULL;
    ret.traffic = box.private_traffic ? traffic : NULL;
    return ret;
}

json_t *e2b_show(const struct gateway *g, const struct sandbox *sb)
{
    char envd[TOKEN_SIZE];
    char traffic[TOKEN_SIZE];
    struct e2b_tokens tokens = tokens_of(g, sb, envd, traffic);

    return e2b_box_sandbox(sb, &tokens);
}

int e2b_reply_sandbox(struct http_request *req, int status, const struct sandbox *sb, struct err *e)
{
    return e2b_reply_json_take(req, status, e2b_show(gateway_of(req), sb), e);
}

int e2b_get_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    char envd[TOKEN_SIZE];
    char traffic[TOKEN_SIZE];
    struct e2b_tokens tokens;
    struct e2b_box box;
    int r = e2b_find(req, &sb, &box, e);

    if (r < 0) {
        return r;
    }
    tokens = tokens_of(gateway_of(req), &sb, envd, traffic);
    return e2b_reply_json_take(req, 200, e2b_box_detail(&sb, &tokens), e);
}
