/* SPDX-License-Identifier: Apache-2.0 */

/* Templates as E2B's clients list, find and delete them. How they are built: build.c. Snapshots are templates in that API, too. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/e2b/private.h"
#include "gateway/template/set.h"

/* Of the node: its operator has built it, there is no build to tell of. */
static json_t *show_node_template(json_t *entry, json_t *list)
{
    const char *name = json_get_string(entry, "name", "");
    const struct shape shape = shape_default();
    cleanup_json json_t *names = json_pack("[s]", name);
    char uuid[BUILD_UUID_SIZE];
    char at[E2B_TIME_SIZE];

    template_build_uuid(name, uuid);
    template_node_aliases(names, name, list);
    e2b_time(json_get_int(entry, "built_at_ms", 0), at);
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:b, s:O, s:O, s:s, s:s, s:n, s:n, s:i, s:i, s:s, s:s}",
        "templateID", name, "buildID", uuid, "cpuCount", (int)shape.vcpus, "memoryMB",
        (int)shape.memory_mib, "diskSizeMB", (int)shape.disk_mib, "public", 1, "aliases", names,
        "names", names, "createdAt", at, "updatedAt", at, "createdBy", "lastSpawnedAt",
        "spawnCount", 0, "buildCount", 1, "envdVersion", E2B_ENVD_VERSION, "buildStatus", "ready");
}

static json_t *or_null(json_t *value_take, bool shown)
{
    if (shown) {
        return value_take;
    }
    json_decref(value_take);
    return json_null();
}

static int keep_newest(void *ctx, const struct build_row *row)
{
    struct build_row *newest = ctx;

    *newest = *row;
    newest->config = newest->reason = newest->log = NULL;
    return 1;
}

/* One that was built here, with what its newest build says. */
static int show_built(struct http_request *req, const struct template_row *t, json_t **ret,
                      struct err *e)
{
    struct build_row newest = {.shape = shape_default()};
    char created[E2B_TIME_SIZE];
    char updated[E2B_TIME_SIZE];
    char spawned[E2B_TIME_SIZE];
    char uuid[BUILD_UUID_SIZE];
    json_t *shown;
    int r = db_build_list(gateway_of(req)->db, t->project, t->id, keep_newest, &newest, e);

    if (r < 0) {
        return r;
    }
    template_build_uuid(newest.id, uuid);
    e2b_time(t->created_at_ms, created);
    e2b_time(MAX(t->updated_at_ms, t->created_at_ms), updated);
    e2b_time(t->spawned_at_ms, spawned);
    shown = json_pack("{s:s, s:s, s:i, s:i, s:i, s:b, s:[s], s:[s], s:s, s:s, s:n, s:o, s:I, s:I, "
                      "s:s, s:s}",
                      "templateID", t->id, "buildID", uuid, "cpuCount", (int)newest.shape.vcpus,
                      "memoryMB", (int)newest.shape.memory_mib, "diskSizeMB",
                      (int)newest.shape.disk_mib, "public", 0, "aliases", t->name, "names", t->name,
                      "createdAt", created, "updatedAt", updated, "createdBy", "lastSpawnedAt",
                      or_null(json_string(spawned), t->spawned_at_ms > 0), "spawnCount",
                      (json_int_t)t->spawned, "buildCount", (json_int_t)t->builds, "envdVersion",
                      E2B_ENVD_VERSION, "buildStatus", e2b_build_status_name(newest.status));
    ASSERT(shown);
    *ret = shown;
    return 0;
}

#define TEMPLATES_MAX 1024 /* more than a project may have */

struct templates {
    struct template_row *rows; /* owned */
    size_t n;
};

static int keep_template(void *ctx, const struct template_row *row)
{
    struct templates *all = ctx;

    if (all->n < TEMPLATES_MAX) {
        all->rows[all->n++] = *row;
    }
    return 0;
}

static int add_built(struct http_request *req, json_t *shown, struct err *e)
{
    struct templates all = {.rows = xnew_n(struct template_row, TEMPLATES_MAX)};
    int r = db_template_list(gateway_of(req)->db, actor_of(req)->project, keep_template, &all, e);

    for (size_t i = 0; r == 0 && i < all.n; i++) {
        json_t *one = NULL;

        r = show_built(req, &all.rows[i], &one, e);
        if (r == 0) {
            json_array_append_new(shown, one);
        }
    }
    free(all.rows);
    return r;
}

int e2b_templates_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *list = NULL;
    cleanup_json json_t *shown = json_array();
    json_t *entry;
    size_t i;
    int r = template_node_list(req, &list, e);

    if (r == 0) {
        r = add_built(req, shown, e);
    }
    if (r < 0) {
        return r;
    }
    json_array_foreach(list, i, entry)
    {
        json_array_append_new(shown, show_node_template(entry, list));
    }
    return e2b_reply_json_take(req, 200, json_incref(shown), e);
}

/* What an id or alias in the path names. */
static int find_of_path(struct http_request *req, const char *param, struct template_found *ret,
                        struct err *e)
{
    return template_find(req, http_request_param(req, param), ret, e);
}

/* One of the project's, ready or not. */
static int find_row_of_path(struct http_request *req, const char *param, struct template_row *ret)
{
    struct template_ref ref;

    return template_find_row(req, http_request_param(req, param), ret, &ref, NULL);
}

int e2b_template_alias_handler(struct http_request *req, struct err *e)
{
    cleanup_template_found struct template_found t = {0};
    struct template_row row;
    const char *id;
    int r = find_row_of_path(req, "alias", &row);

    if (r == 0) {
        id = row.id;
    } else {
        r = find_of_path(req, "alias", &t, e);
        id = t.node_name[0] ? t.node_name : t.snapshot.id;
    }
    return r < 0 ? r
                 : e2b_reply_json_take(
                       req, 200,
                       json_pack("{s:s, s:b}", "templateID", id, "public", t.node_name[0] != '\0'),
                       e);
}

static int show_of_node(struct http_request *req, json_t **ret, struct err *e)
{
    cleanup_template_found struct template_found t = {0};
    cleanup_json json_t *list = NULL;
    json_t *entry;
    int r = find_of_path(req, "id", &t, e);

    if (r == 0 && !t.node_name[0]) {
        return template_not_found(http_request_param(req, "id"), e);
    }
    if (r == 0) {
        r = template_node_list(req, &list, e);
    }
    if (r < 0) {
        return r;
    }
    entry = template_node_entry(list, t.node_name);
    if (!entry) {
        return template_not_found(t.node_name, e); /* gone in between */
    }
    *ret = show_node_template(entry, list);
    return 0;
}

int e2b_template_get_handler(struct http_request *req, struct err *e)
{
    struct template_row row;
    json_t *shown = NULL;
    int r = find_row_of_path(req, "id", &row);

    r = r == 0 ? show_built(req, &row, &shown, e) : show_of_node(req, &shown, e);
    return r < 0 ? r : e2b_reply_json_take(req, 200, shown, e);
}

/* What is the node's is everybody's, what was built is its project's. To ask for what is so is no mistake. */
int e2b_template_patch_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *shown = NULL;
    struct template_row row;
    bool wanted = false;
    bool is;
    int r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);

    if (r == 0) {
        r = find_row_of_path(req, "id", &row) == 0 ? show_built(req, &row, &shown, e)
                                                   : show_of_node(req, &shown, e);
    }
    is = json_get_bool(shown, "public", false);
    if (r == 0) {
        r = e2b_bool(body, "public", is, &wanted, e);
    }
    if (r < 0) {
        return r;
    }
    if (wanted != is) {
        return err_set(
            e, -EPERM, "forbidden",
            is ? "this template belongs to the operator of this node, for all projects"
               : "a template that was built is its project's alone: it cannot be public");
    }
    return e2b_reply_json_take(req, 200,
                               json_pack("{s:O}", "names", json_object_get(shown, "names")), e);
}

/* A sandbox that was killed while it had snapshots goes with the last of them. */
static int release(struct http_request *req, const char *sandbox, struct err *e);

static int delete_snapshot(struct http_request *req, const struct snapshot_row *row, struct err *e)
{
    cleanup_free char *rest = xasprintf("/snapshots/%s", row->id);
    struct control_ask ask = {.method = "DELETE", .rest = rest, .action = "snapshot.delete"};
    int r = control_ask(gateway_of(req)->control, actor_of(req), row->sandbox, &ask, NULL, e);

    if (r < 0 && r != -ENOENT) { /* gone with its sandbox, or deleted in another way */
        return r;
    }
    r = db_snapshot_forget(gateway_of(req)->db, row->project, row->id, e);
    return r < 0 ? r : release(req, row->sandbox, e);
}

static int found_one(void *ctx, const struct snapshot_row *row)
{
    (void)row;
    *(bool *)ctx = true;
    return 0;
}

static int release(struct http_request *req, const char *sandbox, struct err *e)
{
    struct gateway *g = gateway_of(req);
    struct snapshot_query q = {.project = actor_of(req)->project, .sandbox = sandbox, .limit = 1};
    cleanup_sandbox struct sandbox sb = {0};
    struct e2b_box box;
    bool more = false;
    bool done;
    int r = db_snapshot_list(g->db, &q, found_one, &more, e);

    if (r < 0 || more) {
        return r;
    }
    r = control_get(g->control, actor_of(req), sandbox, &sb, e);
    if (r < 0) {
        return r == -ENOENT ? 0 : r;
    }
    e2b_box_read(&sb, &box);
    return box.killed ? control_delete(g->control, actor_of(req), sandbox, &done, e) : 0;
}

int e2b_template_delete_handler(struct http_request *req, struct err *e)
{
    cleanup_template_found struct template_found t = {0};
    struct template_row row;
    int r;

    if (find_row_of_path(req, "id", &row) == 0) {
        r = builds_delete_template(gateway_of(req)->builds, actor_of(req), row.id, e);
        return r < 0 ? r : http_reply_empty(req, 204, e);
    }
    r = find_of_path(req, "id", &t, e);
    if (r < 0) {
        return r;
    }
    if (t.node_name[0]) {
        return err_set(e, -EPERM, "forbidden",
                       "template '%s' belongs to the operator of this node: it cannot be deleted "
                       "by this API",
                       t.node_name);
    }
    r = delete_snapshot(req, &t.snapshot, e);
    return r < 0 ? r : http_reply_empty(req, 204, e);
}
