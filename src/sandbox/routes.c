/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/routes.h"

#include "sandbox/console.h"
#include "sandbox/guest-proxy.h"
#include "sandbox/lifecycle.h"
#include "sandbox/metrics.h"
#include "sandbox/pause.h"
#include "sandbox/template.h"

#include <string.h>

#define BODY_MAX (256u * 1024)
#define METRICS_MAX (1024u * 1024)

static struct node *node_of(const struct http_request *req)
{
    return http_request_ctx(req);
}

int route_find(struct http_request *req, struct resident **ret, struct err *e)
{
    *ret = resident_find(node_of(req), http_request_param(req, "id"));
    return *ret ? 0
                : err_set(e, -ENOENT, "sandbox_not_found", "there is no such sandbox on this node");
}

static bool request_gone(void *arg)
{
    return http_client_gone(arg);
}

static int create(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    CLEANUP(record_done) struct record rec = {0};
    cleanup_json json_t *body = NULL;
    const struct lifecycle_caller caller = {request_gone, req};
    bool existed = false;
    int r = http_body_json(req, BODY_MAX, &body, e);

    if (r == 0) {
        r = record_from_request(body, &rec, e);
    }
    if (r == 0) {
        r = lifecycle_create(node_of(req), &rec, &caller, &res, &existed, e);
    }
    if (r < 0) {
        return r;
    }
    r = http_reply_json_take(req, existed ? 200 : 201, resident_to_json(res), e);
    if (r < 0 && !existed && lifecycle_delete(res, NULL) < 0) {
        return r; /* the answer did not arrive and undoing failed: the control plane's next pass finds it */
    }
    return r;
}

static int list(struct http_request *req, struct err *e)
{
    json_t *all = json_array();

    for (struct resident *res = resident_next_take(node_of(req), NULL); res;
         res = resident_next_take(node_of(req), res)) {
        json_array_append_new(all, resident_to_json(res));
    }
    return http_reply_json_take(req, 200, json_pack("{s:o}", "sandboxes", all), e);
}

/* What the kernel counts for the machine; absent when it cannot be told now. */
static void add_usage(struct resident *res, json_t *out)
{
    struct priv_machine_stats stats;
    char id[ID_SIZE];
    bool running;

    pthread_mutex_lock(&res->lock);
    running = res->record.has_machine;
    memcpy(id, res->record.machine.id, sizeof(id));
    pthread_mutex_unlock(&res->lock);
    if (running && priv_machine_stats(res->node->host.priv, id, &stats, NULL) == 0) {
        json_object_set_new(out, "cpu_ns", json_integer((json_int_t)stats.cpu_ns));
        json_object_set_new(out, "memory_private_bytes",
                            json_integer((json_int_t)stats.memory_anon_bytes));
    }
}

static int get(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    json_t *out;
    int r = route_find(req, &res, e);

    if (r < 0) {
        return r;
    }
    out = resident_to_json(res);
    add_usage(res, out);
    return http_reply_json_take(req, 200, out, e);
}

/* stored=keep: it lives on another node, which keeps what is stored. */
static int delete (struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp)
    struct resident *res = resident_find(node_of(req), http_request_param(req, "id"));
    const char *stored = http_query_get(req, "stored");
    int r = 0;

    if (stored && !str_eq(stored, "keep")) {
        return err_field(e, -EINVAL, "invalid_field", "stored", "'stored' can only be 'keep'");
    }
    if (res) {
        r = stored ? lifecycle_leave(res, e) : lifecycle_delete(res, e);
    }

    return r < 0 ? r : http_reply_empty(req, 204, e);
}

static int run_operation(struct http_request *req,
                         int (*operation)(struct resident *, struct err *), struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = operation(res, e);
    }
    return r < 0 ? r : http_reply_json_take(req, 200, resident_to_json(res), e);
}

static int stop(struct http_request *req, struct err *e)
{
    return run_operation(req, lifecycle_stop, e);
}

static int start(struct http_request *req, struct err *e)
{
    return run_operation(req, lifecycle_start, e);
}

static int guest(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    int r = route_find(req, &res, e);

    if (r < 0) {
        return r;
    }
    if (resident_visit(res)) {
        r = resume_sandbox(res,
                           e); /* paused for idleness: the client notices no more than a delay */
    }
    r = r < 0 ? r : guest_proxy(req, res, http_request_param(req, "rest"), e);
    resident_leave(res);
    return r;
}

static int logs(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_buf struct buf text = BUF_INIT(CONSOLE_KEEP_BYTES);
    int r = route_find(req, &res, e);

    if (r < 0) {
        return r;
    }
    if (console_read_tail(res->node, res->record.machine.id, &text) < 0) {
        buf_reset(&text);
        r = buf_add_str(&text, res->last_console); /* its machine has ended: what it said last */
        if (r < 0) {
            return err_wrap(e, r, "reading the console");
        }
    }
    return http_reply_bytes(req, 200, "text/plain; charset=utf-8", buf_str(&text), text.len, e);
}

static int templates(struct http_request *req, struct err *e)
{
    json_t *all = NULL;
    int r = template_list(node_of(req), &all, e);

    return r < 0 ? r : http_reply_json_take(req, 200, json_pack("{s:o}", "templates", all), e);
}

static int health(struct http_request *req, struct err *e)
{
    return http_reply_json_take(req, 200,
                                json_pack("{s:b, s:s}", "ok", 1, "version", SPACE_VERSION), e);
}

static int metrics(struct http_request *req, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(METRICS_MAX);
    int r = metrics_print(node_of(req), &text);

    return r < 0 ? err_wrap(e, r, "printing the metrics")
                 : http_reply_bytes(req, 200, "text/plain; version=0.0.4", buf_str(&text), text.len,
                                    e);
}

static const struct http_route routes[] = {
    {"POST", "/v1/sandboxes", create, 0},
    {"GET", "/v1/sandboxes", list, 0},
    {"GET", "/v1/sandboxes/{id}", get, 0},
    {"DELETE", "/v1/sandboxes/{id}", delete, 0},
    {"POST", "/v1/sandboxes/{id}/stop", stop, 0},
    {"POST", "/v1/sandboxes/{id}/start", start, 0},
    {"POST", "/v1/sandboxes/{id}/pause", route_pause, 0},
    {"POST", "/v1/sandboxes/{id}/resume", route_resume, 0},
    {"POST", "/v1/sandboxes/{id}/suspend", route_suspend, 0},
    {"POST", "/v1/sandboxes/{id}/restore", route_restore, 0},
    {"GET", "/v1/sandboxes/{id}/stored", route_stored_get, 0},
    {"DELETE", "/v1/sandboxes/{id}/stored", route_stored_delete, 0},
    {"POST", "/v1/sandboxes/{id}/snapshots", route_snapshot_take, 0},
    {"GET", "/v1/sandboxes/{id}/snapshots", route_snapshot_list, 0},
    {"GET", "/v1/sandboxes/{id}/snapshots/{snapshot}", route_snapshot_get, 0},
    {"PATCH", "/v1/sandboxes/{id}/snapshots/{snapshot}", route_snapshot_change, 0},
    {"DELETE", "/v1/sandboxes/{id}/snapshots/{snapshot}", route_snapshot_delete, 0},
    {"POST", "/v1/sandboxes/{id}/rollback", route_rollback, 0},
    {"POST", "/v1/sandboxes/{id}/fork", route_fork, 0},
    {"GET", "/v1/sandboxes/{id}/trace", route_trace, 0},
    {"PATCH", "/v1/sandboxes/{id}/policy", route_policy, 0},
    {"PATCH", "/v1/sandboxes/{id}/end", route_end, 0},
    {"GET", "/v1/sandboxes/{id}/network", route_network_get, 0},
    {"PATCH", "/v1/sandboxes/{id}/network", route_network_set, 0},
    {"GET", "/v1/sandboxes/{id}/network/log", route_network_log, 0},
    {"GET", "/v1/sandboxes/{id}/network/proposal", route_network_proposal, 0},
    {"POST", "/v1/sandboxes/{id}/network/explain", route_network_explain, 0},
    {"POST", "/v1/sandboxes/{id}/network/asks/{ask}", route_network_answer, 0},
    {"GET", "/v1/sandboxes/{id}/history", route_history, 0},
    {"GET", "/v1/sandboxes/{id}/usage", route_usage, 0},
    {"GET", "/v1/sandboxes/{id}/logs", logs, 0},
    {"*", "/v1/sandboxes/{id}/guest{rest...}", guest, 0},
    {"GET", "/v1/templates", templates, 0},
    {"GET", "/v1/node", route_node, 0},
    {"POST", "/v1/node/prepare", route_node_prepare, 0},
    {"PUT", "/v1/node/lease", route_node_lease, 0},
    {"DELETE", "/v1/node/lease", route_node_lease_end, 0},
    {"GET", "/v1/health", health, 0},
    {"GET", "/v1/metrics", metrics, 0},
};

const struct http_router node_router = {.routes = routes, .n_routes = ARRAY_SIZE(routes)};
