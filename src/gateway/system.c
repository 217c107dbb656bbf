/* SPDX-License-Identifier: Apache-2.0 */

/* Node, health, metrics, the OpenAPI file. */
#include <string.h>

#include "base/clock.h"
#include "gateway/gateway.h"
#include "gateway/openapi.h"

static int reply_from_node(struct http_request *req, const char *target, struct err *e)
{
    struct pollfd watch = http_client_pollfd(req);
    struct node_call call = {.deadline_ns = deadline_in_ms(GATEWAY_NODE_MS), .watch = &watch};
    cleanup_json json_t *answer = NULL;
    int r = node_client_get(fleet_client(gateway_of(req)->fleet, ""), target, &call, &answer, e);

    return r < 0 ? r : http_reply_json(req, 200, answer, e);
}

int node_get_handler(struct http_request *req, struct err *e)
{
    return reply_from_node(req, "/v1/node", e);
}

/* Its services have no address that a scraper could reach: we are asked instead. */
int node_metrics_handler(struct http_request *req, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct pollfd watch = http_client_pollfd(req);
    const struct http_call_opts opts = {.method = "GET",
                                        .target = "/v1/metrics",
                                        .deadline_ns = deadline_in_ms(GATEWAY_NODE_MS),
                                        .watch = &watch};
    cleanup_free char *text = NULL;
    struct err why = {0};
    size_t len = 0;
    struct fleet *fleet = gateway_of(req)->fleet;
    const char *name = http_query_get(req, "node"); /* NULL: the home node */
    int r;

    if (name && !fleet_knows(fleet, name)) {
        return err_set(e, -ENOENT, "node_not_found", "there is no such node");
    }
    r = http_call_new(node_client_http(fleet_client(fleet, name ? name : "")), &opts, &call, &why);
    r = r < 0 ? r : http_call_head(call, &why);
    r = r < 0 ? r : http_call_all(call, GATEWAY_BODY_MAX, &text, &len, &why);
    if (r < 0 || http_call_status(call) != 200) {
        return r == -ECANCELED ? r
                               : err_set(e, -EHOSTDOWN, "node_unavailable",
                                         "the node does not say what it counts");
    }
    return http_reply_bytes(req, 200, "text/plain; version=0.0.4", text, len, e);
}

static int explain_new(struct http_request *req, json_t *body, json_t **ret, struct err *e)
{
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    int r = sandbox_spec_from_json(body, &spec, e);

    if (r == 0) {
        *ret = control_explain_new(gateway_of(req)->control, &spec);
    }
    return r;
}

/* What a sandbox would be made of, or {"sandbox"}: one that is there. */
int schedule_explain_handler(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"sandbox", JSON_FIELD_STRING, JSON_REQUIRED}};
    cleanup_json json_t *body = NULL;
    json_t *answer = NULL;
    int r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);

    if (r < 0) {
        return r;
    }
    if (!json_object_get(body, "sandbox")) {
        r = explain_new(req, body, &answer, e);
    } else {
        r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
        r = r < 0 ? r
                  : control_explain(gateway_of(req)->control, actor_of(req),
                                    json_get_string(body, "sandbox", ""), &answer, e);
    }
    return r < 0 ? r : http_reply_json_take(req, 200, answer, e);
}

int health_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    struct control_health h = control_health(g->control);
    int r = db_ping(g->db, e);

    if (r < 0) {
        return err_set(e, -EHOSTDOWN, "database_unavailable", "the database does not answer");
    }
    return http_reply_json_take(req, 200,
                                json_pack("{s:b, s:s, s:{s:b, s:I}}", "ok", 1, "version",
                                          SPACE_VERSION, "node", "ok", h.node_ok, "checked_at_ms",
                                          (json_int_t)h.last_pass_ms),
                                e);
}

int metrics_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    cleanup_buf struct buf text = BUF_INIT(GATEWAY_BODY_MAX);
    int r = metrics_print(g->metrics, g->control, g->db, &text, e);

    return r < 0 ? r
                 : http_reply_bytes(req, 200, "text/plain; version=0.0.4", buf_str(&text), text.len,
                                    e);
}

int openapi_handler(struct http_request *req, struct err *e)
{
    return http_reply_bytes(req, 200, "application/json", openapi_text, openapi_text_len, e);
}
