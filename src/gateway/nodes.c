/* SPDX-License-Identifier: Apache-2.0 */

/* The nodes of the cluster, for operators. What they mean is in database/nodes.h, what happens to them in control/keeper.h. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "database/nodes.h"
#include "gateway/gateway.h"
#include "wire/url.h"

/* ---- showing ---- */

static json_t *number_or_null(bool known, int64_t n)
{
    return known ? json_integer(n) : json_null();
}

/* What it told, as far as it is of use to who looks at it. */
static void add_told(json_t *out, const struct node_row *row)
{
    static const char *const words[] = {"version", "accel",     "vmm_version", "cpu_model",
                                        "kernel",  "templates", "limits"};
    cleanup_json json_t *told = NULL;

    if (str_empty(row->told) || json_parse_object(row->told, strlen(row->told), &told, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (json_object_get(told, words[i])) {
            json_object_set(out, words[i], json_object_get(told, words[i]));
        }
    }
}

static int node_json(struct http_request *req, const struct node_row *row, json_t **ret,
                     struct err *e)
{
    const struct node_capacity *cap = &row->capacity;
    int64_t sandboxes = 0;
    int r = db_node_count_sandboxes(gateway_of(req)->db, row->name, &sandboxes, e);
    json_t *out;

    if (r < 0) {
        return r;
    }
    out = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:o, s:o, s:I, s:I}", "name", row->name, "id",
                    row->id, "address", row->address, "wanted", node_wanted_name(row->wanted),
                    "health", node_health_name(node_row_health(row)), "leased", (int)row->leased,
                    "lease_left_ms", number_or_null(row->leased && row->renewals > 0, row->left_ms),
                    "told_ago_ms", number_or_null(row->told_ago_ms >= 0, row->told_ago_ms),
                    "sandboxes", (json_int_t)sandboxes, "joined_at_ms",
                    (json_int_t)row->joined_at_ms);
    ASSERT(out);
    json_object_set_new(out, "capacity",
                        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "vcpus", (json_int_t)cap->vcpus,
                                  "memory_mib", (json_int_t)cap->memory_mib, "memory_free_mib",
                                  (json_int_t)cap->memory_free_mib, "pool_bytes",
                                  (json_int_t)cap->pool_bytes, "pool_free_bytes",
                                  (json_int_t)cap->pool_free_bytes, "warm", (json_int_t)cap->warm));
    add_told(out, row);
    *ret = out;
    return 0;
}

static int reply_node(struct http_request *req, int status, const char *name, struct err *e)
{
    cleanup_node_row struct node_row row = {0};
    json_t *out = NULL;
    int r = db_node_get(gateway_of(req)->db, name, &row, e);

    r = r < 0 ? r : node_json(req, &row, &out, e);
    return r < 0 ? r : http_reply_json_take(req, status, out, e);
}

/* Rows are read to their end before each is asked about: a reading is a transaction. */
struct rows {
    struct node_row *v; /* owned, and so are their strings */
    size_t n;
};

static void rows_done(struct rows *rows)
{
    for (size_t i = 0; i < rows->n; i++) {
        node_row_done(&rows->v[i]);
    }
    free(rows->v);
}

static int add_row(void *ctx, const struct node_row *row)
{
    struct rows *rows = ctx;

    rows->v = xrealloc(rows->v, (rows->n + 1) * sizeof(*rows->v));
    rows->v[rows->n] = *row;
    rows->v[rows->n++].told = row->told ? xstrdup(row->told) : NULL;
    return 0;
}

int nodes_list_handler(struct http_request *req, struct err *e)
{
    CLEANUP(rows_done) struct rows rows = {0};
    cleanup_json json_t *list = json_array();
    int r = db_node_list(gateway_of(req)->db, add_row, &rows, e);

    for (size_t i = 0; i < rows.n && r == 0; i++) {
        json_t *node = NULL;

        r = node_json(req, &rows.v[i], &node, e);
        if (node) {
            json_array_append_new(list, node);
        }
    }
    return r < 0 ? r : http_reply_json_take(req, 200, json_pack("{s:O}", "nodes", list), e);
}

int nodes_get_handler(struct http_request *req, struct err *e)
{
    return reply_node(req, 200, http_request_param(req, "name"), e);
}

/* ---- changing ---- */

static int check_address(const char *address, struct err *e)
{
    struct url url;

    if (strlen(address) < NODE_ADDRESS_SIZE && url_parse(address, &url) == 0 &&
        (url.scheme == URL_UNIX || url.scheme == URL_HTTPS)) {
        return 0;
    }
    return err_field(e, -EINVAL, "invalid_address", "address",
                     "'address' must be https://HOST:PORT, or unix:/PATH for this machine's own");
}

/* An operator who says that the gateway shall reach it there must have made that possible. */
static int add_to_fleet(struct http_request *req, const struct node_row *row, struct err *e)
{
    const struct fleet_news news = {.name = row->name,
                                    .url = row->address,
                                    .wanted = SCHEDULE_CORDONED, /* until it was read */
                                    .alive = false};

    return fleet_knows(gateway_of(req)->fleet, row->name)
               ? 0
               : fleet_put(gateway_of(req)->fleet, &news, e);
}

int nodes_add_handler(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, JSON_REQUIRED},
        {"address", JSON_FIELD_STRING, JSON_REQUIRED},
    };
    struct gateway *g = gateway_of(req);
    cleanup_json json_t *body = NULL;
    struct node_row row = {.leased = true, .joined_at_ms = control_now_ms(g->control)};
    const char *name;
    int r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);

    r = r < 0 ? r : json_check_object(body, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    name = json_get_string(body, "name", "");
    if (!node_name_valid(name)) {
        return err_field(e, -EINVAL, "invalid_name", "name",
                         "'name' must be 1 to 63 of a-z, 0-9, '-' and '.'");
    }
    r = check_address(json_get_string(body, "address", ""), e);
    if (r < 0) {
        return r;
    }
    snprintf(row.name, sizeof(row.name), "%s", name);
    snprintf(row.address, sizeof(row.address), "%s", json_get_string(body, "address", ""));
    r = add_to_fleet(req, &row, e);
    r = r < 0 ? r : db_node_put(g->db, &row, e);
    if (r < 0) {
        return r;
    }
    control_audit(g->control, actor_of(req), "node.add", row.name, row.address);
    return reply_node(req, 201, row.name, e);
}

int nodes_patch_handler(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"wanted", JSON_FIELD_STRING, JSON_REQUIRED}};
    struct gateway *g = gateway_of(req);
    const char *name = http_request_param(req, "name");
    cleanup_json json_t *body = NULL;
    enum node_wanted wanted;
    int r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);

    r = r < 0 ? r : json_check_object(body, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    if (!node_wanted_parse(json_get_string(body, "wanted", ""), &wanted) ||
        wanted == NODE_REMOVED) {
        return err_field(e, -EINVAL, "invalid_wanted", "wanted",
                         "'wanted' must be ready, cordoned or draining");
    }
    r = db_node_want(g->db, name, wanted, e);
    if (r < 0) {
        return r;
    }
    control_audit(g->control, actor_of(req), "node.want", name, node_wanted_name(wanted));
    return reply_node(req, 200, name, e);
}

int nodes_delete_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    const char *name = http_request_param(req, "name");
    struct err why = {0};
    int r = db_node_delete(g->db, name, e);

    if (r < 0) {
        return r;
    }
    control_audit(g->control, actor_of(req), "node.remove", name, "");
    if (control_release_node(g->control, name, &why) < 0) {
        log_warn(NULL, "node '%s' was removed, and could not be told: %s", name, why.msg);
    }
    return http_reply_empty(req, 204, e);
}
