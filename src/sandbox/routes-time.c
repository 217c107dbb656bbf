/* SPDX-License-Identifier: Apache-2.0 */
/* The node API's routes for what moves a sandbox through time: pause, snapshots, rollback, fork, history. */
#include "sandbox/fork.h"
#include "sandbox/history.h"
#include "sandbox/lineage.h"
#include "sandbox/pause.h"
#include "sandbox/rollback.h"
#include "sandbox/routes.h"

#include <string.h>

#define BODY_MAX (64u * 1024)

static int body_of(struct http_request *req, const struct json_field *fields, size_t n,
                   json_t **ret, struct err *e)
{
    cleanup_json json_t *body = NULL;
    int r = http_body_json(req, BODY_MAX, &body, e);

    if (r == 0) {
        r = json_check_object(body, fields, n, e);
    }
    if (r == 0) {
        *ret = TAKE_PTR(body);
    }
    return r;
}

int route_pause(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"durable", JSON_FIELD_BOOL, 0},
                                               {"wake_on_request", JSON_FIELD_BOOL, 0}};
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_json json_t *body = NULL;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = body_of(req, fields, ARRAY_SIZE(fields), &body, e);
    }
    if (r == 0) {
        r = pause_sandbox(
            res,
            &(struct pause_wish){.durable = json_get_bool(body, "durable", true),
                                 .wake_on_request = json_get_bool(body, "wake_on_request", false)},
            e);
    }
    return r < 0 ? r : http_reply_json_take(req, 200, resident_to_json(res), e);
}

int route_resume(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = resume_sandbox(res, e);
    }
    return r < 0 ? r : http_reply_json_take(req, 200, resident_to_json(res), e);
}

static int wish_from(json_t *body, struct snapshot_wish *ret, struct err *e)
{
    const char *kind = json_get_string(body, "kind", "disk");

    if (!str_eq(kind, "disk") && !str_eq(kind, "full")) {
        return err_field(e, -EINVAL, "invalid_field", "kind", "'kind' must be 'disk' or 'full'");
    }
    *ret = (struct snapshot_wish){.kind = str_eq(kind, "full") ? SNAPSHOT_FULL : SNAPSHOT_DISK,
                                  .made_by = "request",
                                  .name = json_get_string(body, "name", ""),
                                  .keep = json_get_bool(body, "keep", false)};
    return snapshot_name_check(ret->name, e);
}

/* With the op lock held: its object, and which one it came after, by id. */
static json_t *show_snapshot(const struct resident *res, const struct snapshot *snap)
{
    json_t *out = snapshot_to_json(snap);

    json_object_set_new(out, "past", json_boolean(lineage_is_past(res, snap)));
    for (const struct snapshot *s = res->snapshots; s; s = s->next) {
        if (s->n == snap->parent_n) {
            json_object_set_new(out, "parent_id", json_string(s->id));
        }
    }
    return out;
}

int route_snapshot_take(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"kind", JSON_FIELD_STRING, 0},
                                               {"name", JSON_FIELD_STRING, 0},
                                               {"keep", JSON_FIELD_BOOL, 0}};
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_json json_t *body = NULL;
    struct snapshot_wish wish;
    struct snapshot *snap = NULL;
    json_t *out = NULL;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = body_of(req, fields, ARRAY_SIZE(fields), &body, e);
    }
    if (r == 0) {
        r = wish_from(body, &wish, e);
    }
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&res->op);
    trace_begin(&res->trace, wish.kind == SNAPSHOT_FULL ? "full snapshot" : "disk snapshot");
    r = res->gone ? err_set(e, -ENOENT, "sandbox_not_found", "the sandbox has been deleted")
                  : snapshot_take(res, &wish, &snap, e);
    trace_mark(&res->trace, "manifest stored");
    trace_end(&res->trace, r);
    out = r == 0 ? show_snapshot(res, snap) : NULL;
    pthread_mutex_unlock(&res->op);
    return r < 0 ? r : http_reply_json_take(req, 201, out, e);
}

int route_snapshot_list(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    char origin_snapshot[ID_SIZE];
    char origin[ID_SIZE];
    json_t *all;
    json_t *out;
    int r = route_find(req, &res, e);

    if (r < 0) {
        return r;
    }
    all = json_array();
    pthread_mutex_lock(&res->op);
    for (const struct snapshot *s = res->snapshots; s; s = s->next) {
        json_array_append_new(all, show_snapshot(res, s));
    }
    pthread_mutex_unlock(&res->op);
    out = json_pack("{s:o}", "snapshots", all);
    if (lineage_origin(res, origin, origin_snapshot)) {
        json_object_set_new(
            out, "origin", json_pack("{s:s, s:s}", "sandbox", origin, "snapshot", origin_snapshot));
    }
    return http_reply_json_take(req, 200, out, e);
}

/* With the op lock held on success. */
static int find_snapshot(struct http_request *req, struct resident **ret_res, struct snapshot **ret,
                         struct err *e)
{
    int r = route_find(req, ret_res, e);

    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&(*ret_res)->op);
    *ret = snapshot_find(*ret_res, http_request_param(req, "snapshot"));
    if (!*ret) {
        pthread_mutex_unlock(&(*ret_res)->op);
        return err_set(e, -ENOENT, "snapshot_not_found", "the sandbox has no such snapshot");
    }
    return 0;
}

int route_snapshot_get(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    struct snapshot *snap = NULL;
    uint64_t bytes = 0;
    json_t *out;
    int r = find_snapshot(req, &res, &snap, e);

    if (r < 0) {
        return r;
    }
    out = show_snapshot(res, snap);
    if (snapshot_exclusive_bytes(res, snap, &bytes) == 0) {
        json_object_set_new(out, "exclusive_bytes", json_integer((json_int_t)bytes));
    }
    pthread_mutex_unlock(&res->op);
    return http_reply_json_take(req, 200, out, e);
}

int route_snapshot_change(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"name", JSON_FIELD_STRING, 0},
                                               {"keep", JSON_FIELD_BOOL, 0}};
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_json json_t *body = NULL;
    struct snapshot *snap = NULL;
    struct snapshot changed;
    json_t *out = NULL;
    int r = body_of(req, fields, ARRAY_SIZE(fields), &body, e);

    if (r == 0) {
        r = snapshot_name_check(json_get_string(body, "name", ""), e);
    }
    if (r == 0) {
        r = find_snapshot(req, &res, &snap, e);
    }
    if (r < 0) {
        return r;
    }
    changed = *snap;
    changed.keep = json_get_bool(body, "keep", snap->keep);
    r = str_copy(changed.name, sizeof(changed.name), json_get_string(body, "name", snap->name));
    if (r == 0) {
        r = snapshot_save(res, &changed, e);
    }
    if (r == 0) {
        *snap = changed;
        out = show_snapshot(res, snap);
    }
    pthread_mutex_unlock(&res->op);
    return r < 0 ? r : http_reply_json_take(req, 200, out, e);
}

int route_snapshot_delete(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    struct snapshot *snap = NULL;
    int r = find_snapshot(req, &res, &snap, e);

    if (r < 0) {
        return r;
    }
    r = snapshot_delete(res, snap, e);
    pthread_mutex_unlock(&res->op);
    return r < 0 ? r : http_reply_empty(req, 204, e);
}

int route_rollback(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"snapshot", JSON_FIELD_STRING, JSON_REQUIRED}};
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_json json_t *body = NULL;
    struct rollback_result result = {0};
    json_t *out;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = body_of(req, fields, ARRAY_SIZE(fields), &body, e);
    }
    if (r == 0) {
        r = rollback_to(res, json_get_string(body, "snapshot", ""), &result, e);
    }
    if (r < 0) {
        return r;
    }
    out = resident_to_json(res);
    json_object_set_new(out, "cold", json_boolean(result.cold));
    json_object_set_new(out, "before", json_string(result.before_id));
    return http_reply_json_take(req, 200, out, e);
}

static int read_children(json_t *body, char ids[FORK_CHILDREN_MAX][ID_SIZE], size_t *ret_n,
                         struct err *e)
{
    json_t *list = json_object_get(body, "children");
    json_t *id;
    size_t i;

    if (json_array_size(list) < 1 || json_array_size(list) > FORK_CHILDREN_MAX) {
        return err_field(e, -EINVAL, "out_of_range", "children", "'children' must have 1 to %d ids",
                         FORK_CHILDREN_MAX);
    }
    json_array_foreach(list, i, id)
    {
        const char *text = json_string_value(id);

        if (!text || !id_valid(ID_SANDBOX, text)) {
            return err_field(e, -EINVAL, "invalid_field", "children",
                             "'children' must be sandbox ids");
        }
        memcpy(ids[i], text, ID_SIZE);
    }
    *ret_n = json_array_size(list);
    return 0;
}

int route_fork(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"children", JSON_FIELD_ARRAY, JSON_REQUIRED},
                                               {"snapshot", JSON_FIELD_STRING, JSON_NULLABLE},
                                               {"env", JSON_FIELD_STRING_MAP, JSON_NULLABLE},
                                               {"end_at_ms", JSON_FIELD_INT, 0},
                                               {"at_end", JSON_FIELD_STRING, 0}};
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    struct resident *children[FORK_CHILDREN_MAX];
    char ids[FORK_CHILDREN_MAX][ID_SIZE];
    cleanup_json json_t *body = NULL;
    struct fork_wish wish = {.ids = ids};
    json_t *all;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = body_of(req, fields, ARRAY_SIZE(fields), &body, e);
    }
    if (r == 0) {
        r = read_children(body, ids, &wish.n, e);
    }
    if (r == 0) {
        r = record_end_from_json(body, &wish.end_at_ms, &wish.at_end, e);
    }
    if (r < 0) {
        return r;
    }
    wish.snapshot = json_get_string(body, "snapshot", NULL);
    wish.env = json_is_object(json_object_get(body, "env")) ? json_object_get(body, "env") : NULL;
    r = fork_sandbox(res, &wish, children, e);
    if (r < 0) {
        return r;
    }
    all = json_array();
    for (size_t i = 0; i < wish.n; i++) {
        json_array_append_new(all, resident_to_json(children[i]));
        resident_unref(children[i]);
    }
    return http_reply_json_take(req, 201, json_pack("{s:o}", "sandboxes", all), e);
}

int route_history(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    json_t *all = NULL;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = history_read(res, &all, e);
    }
    return r < 0 ? r : http_reply_json_take(req, 200, json_pack("{s:o}", "history", all), e);
}

int route_usage(struct http_request *req, struct err *e)
{
    const struct http_query_bounds from = {0, INT64_MAX, 0};
    const struct http_query_bounds to = {0, INT64_MAX, INT64_MAX};
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    struct usage_window window;
    json_t *samples;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = http_query_int(req, "from_ms", from, &window.from_ms, e);
    }
    if (r == 0) {
        r = http_query_int(req, "to_ms", to, &window.to_ms, e);
    }
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&res->lock);
    samples = usage_to_json(&res->usage, &window);
    pthread_mutex_unlock(&res->lock);
    return http_reply_json_take(req, 200, json_pack("{s:o}", "samples", samples), e);
}

/* The whole policy anew: what the body does not name gets its default. */
int route_policy(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_json json_t *body = NULL;
    struct policy policy;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = http_body_json(req, BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = policy_from_json(body, &policy, e);
    }
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&res->op);
    r = res->gone ? err_set(e, -ENOENT, "sandbox_not_found", "the sandbox has been deleted")
                  : resident_set_policy(res, &policy, e);
    pthread_mutex_unlock(&res->op);
    return r < 0 ? r : http_reply_json_take(req, 200, policy_to_json(&policy), e);
}

/* In wall-clock time, as if the sandbox were not paused; 0: never. Waits for no operation: time may be short. */
int route_end(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"end_at_ms", JSON_FIELD_INT, JSON_REQUIRED},
                                               {"at_end", JSON_FIELD_STRING, 0}};
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_json json_t *body = NULL;
    enum sandbox_at_end at_end = SANDBOX_AT_END_DELETE;
    int64_t end_at_ms = 0;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = body_of(req, fields, ARRAY_SIZE(fields), &body, e);
    }
    if (r == 0) {
        r = record_end_from_json(body, &end_at_ms, &at_end, e);
    }
    if (r == 0) {
        r = resident_set_end(res, end_at_ms, at_end, e);
    }
    return r < 0 ? r : http_reply_json_take(req, 200, resident_to_json(res), e);
}

int route_trace(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    json_t *all;
    int r = route_find(req, &res, e);

    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&res->op);
    all = trace_to_json(&res->trace);
    pthread_mutex_unlock(&res->op);
    return http_reply_json_take(req, 200, json_pack("{s:o}", "operations", all), e);
}
