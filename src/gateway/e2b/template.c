/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Templates by the names that E2B's clients use: ID, NAME, NAMESPACE/NAME, each with ":TAG" or without. The node's templates are known by
 * their names; other names stand for one of them as long as the node has none of that name itself. There is one tag,
 * "default". Snapshots are templates in that API, too.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/e2b/private.h"

static const struct {
    const char *alias;
    const char *name;
} aliases[] = {
    {"base", "debian"}, /* what clients ask for when their user names nothing */
};

/* The templates of the node; the caller ends *ret with json_decref(). */
static int node_templates(struct http_request *req, json_t **ret, struct err *e)
{
    struct pollfd watch = http_client_pollfd(req);
    struct node_call call = {.deadline_ns = deadline_in_ms(GATEWAY_NODE_MS), .watch = &watch};
    cleanup_json json_t *answer = NULL;
    json_t *list;
    int r = node_client_get(gateway_of(req)->node, "/v1/templates", &call, &answer, e);

    if (r < 0) {
        return r;
    }
    list = json_object_get(answer, "templates");
    if (!json_is_array(list)) {
        return err_set(e, -EPROTO, "bad_answer", "the node's list of templates cannot be read");
    }
    *ret = json_incref(list);
    return 0;
}

static json_t *find_template(json_t *list, const char *name)
{
    json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry)
    {
        if (str_eq(json_get_string(entry, "name", ""), name)) {
            return entry;
        }
    }
    return NULL;
}

static const char *alias_target(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(aliases); i++) {
        if (str_eq(aliases[i].alias, name)) {
            return aliases[i].name;
        }
    }
    return name;
}

static int no_template(const char *text, struct err *e)
{
    return err_field(e, -ENOENT, "not_found", "templateID", "template '%.100s' not found", text);
}

/* NAME of [NAMESPACE/]NAME[:TAG]; another tag than the default one names nothing. */
static int plain_name(const char *text, char *ret, size_t size, struct err *e)
{
    const char *slash = strchr(text, '/');
    const char *name = slash ? slash + 1 : text;
    const char *colon = strchr(name, ':');
    size_t len = colon ? (size_t)(colon - name) : strlen(name);

    if ((colon && !str_eq(colon + 1, E2B_TAG)) || len == 0 || len >= size) {
        return no_template(text, e);
    }
    memcpy(ret, name, len);
    ret[len] = '\0';
    return 0;
}

static int find_snapshot(struct http_request *req, const char *text, const char *name,
                         struct snapshot_row *ret, struct err *e)
{
    int r = db_snapshot_find(gateway_of(req)->db, actor_of(req)->project, name, ret, e);

    return r == -ENOENT ? no_template(text, e) : r;
}

int e2b_template_find(struct http_request *req, const char *text, struct e2b_template *ret,
                      struct err *e)
{
    cleanup_json json_t *list = NULL;
    char name[SNAPSHOT_NAME_SIZE];
    const char *found = name;
    int r = plain_name(text, name, sizeof(name), e);

    if (r == 0) {
        r = node_templates(req, &list, e);
    }
    if (r < 0) {
        return r;
    }
    *ret = (struct e2b_template){0};
    if (!find_template(list, found)) {
        found = alias_target(name);
    }
    if (!find_template(list, found)) {
        return find_snapshot(req, text, name, &ret->snapshot, e);
    }
    if (str_copy(ret->name, sizeof(ret->name), found) < 0 ||
        str_copy(ret->alias, sizeof(ret->alias), name) < 0) {
        return no_template(text, e);
    }
    return 0;
}

/* --- routes --- */

static void add_alias_names(json_t *names, const char *name, json_t *list)
{
    for (size_t i = 0; i < ARRAY_SIZE(aliases); i++) {
        if (str_eq(aliases[i].name, name) && !find_template(list, aliases[i].alias)) {
            json_array_append_new(names, json_string(aliases[i].alias));
        }
    }
}

/* The object of the lists. Templates are built by the node's operator: there is no build to tell of. */
static json_t *show_template(json_t *entry, json_t *list)
{
    const char *name = json_get_string(entry, "name", "");
    const struct shape shape = shape_default();
    cleanup_json json_t *names = json_pack("[s]", name);
    char at[E2B_TIME_SIZE];

    add_alias_names(names, name, list);
    e2b_time(json_get_int(entry, "built_at_ms", 0), at);
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:b, s:O, s:O, s:s, s:s, s:n, s:n, s:i, s:i, s:s, s:s}",
        "templateID", name, "buildID", name, "cpuCount", (int)shape.vcpus, "memoryMB",
        (int)shape.memory_mib, "diskSizeMB", (int)shape.disk_mib, "public", 1, "aliases", names,
        "names", names, "createdAt", at, "updatedAt", at, "createdBy", "lastSpawnedAt",
        "spawnCount", 0, "buildCount", 1, "envdVersion", E2B_ENVD_VERSION, "buildStatus", "ready");
}

int e2b_templates_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *list = NULL;
    json_t *shown;
    json_t *entry;
    size_t i;
    int r = node_templates(req, &list, e);

    if (r < 0) {
        return r;
    }
    shown = json_array();
    json_array_foreach(list, i, entry)
    {
        json_array_append_new(shown, show_template(entry, list));
    }
    return e2b_reply_json_take(req, 200, shown, e);
}

/* What an id or alias in the path names. */
static int find_of_path(struct http_request *req, const char *param, struct e2b_template *ret,
                        struct err *e)
{
    return e2b_template_find(req, http_request_param(req, param), ret, e);
}

int e2b_template_alias_handler(struct http_request *req, struct err *e)
{
    struct e2b_template t;
    int r = find_of_path(req, "alias", &t, e);

    if (r < 0) {
        return r;
    }
    return e2b_reply_json_take(req, 200,
                               json_pack("{s:s, s:b}", "templateID",
                                         t.name[0] ? t.name : t.snapshot.id, "public",
                                         t.name[0] != '\0'),
                               e);
}

int e2b_template_get_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *list = NULL;
    struct e2b_template t;
    int r = find_of_path(req, "id", &t, e);

    if (r == 0 && !t.name[0]) {
        return no_template(http_request_param(req, "id"), e);
    }
    if (r == 0) {
        r = node_templates(req, &list, e);
    }
    if (r == 0 && !find_template(list, t.name)) {
        return no_template(t.name, e); /* gone in between */
    }
    return r < 0
               ? r
               : e2b_reply_json_take(req, 200, show_template(find_template(list, t.name), list), e);
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
    struct e2b_template t;
    int r = find_of_path(req, "id", &t, e);

    if (r < 0) {
        return r;
    }
    if (t.name[0]) {
        return err_set(e, -EPERM, "forbidden",
                       "template '%s' belongs to the operator of this node: it cannot be deleted "
                       "by this API",
                       t.name);
    }
    r = delete_snapshot(req, &t.snapshot, e);
    return r < 0 ? r : http_reply_empty(req, 204, e);
}

int e2b_template_tags_handler(struct http_request *req, struct err *e)
{
    struct e2b_template t;
    char at[E2B_TIME_SIZE];
    int r = find_of_path(req, "id", &t, e);

    if (r < 0) {
        return r;
    }
    e2b_time(t.snapshot.created_at_ms, at);
    return e2b_reply_json_take(req, 200,
                               json_pack("[{s:s, s:s, s:s}]", "tag", E2B_TAG, "buildID",
                                         t.name[0] ? t.name : t.snapshot.id, "createdAt", at),
                               e);
}

int e2b_tags_refused_handler(struct http_request *req, struct err *e)
{
    (void)req;
    return err_set(e, -EINVAL, "not_supported",
                   "templates have one tag here, '" E2B_TAG "': others cannot be set or removed");
}
