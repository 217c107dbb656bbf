/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Snapshots and forks. A snapshot is the node's, of disk and memory; what it is called, and which sandbox it is of, stands
 * in the database, so that it is found when its sandbox has been killed.
 */
#include <stdio.h>
#include <string.h>

#include "gateway/e2b/private.h"
#include "gateway/query.h"

#define LIMIT_MAX 100
#define FORK_MAX SANDBOX_FORK_MAX

/* NAME or NAMESPACE/NAME or NAME:TAG; what is kept is NAME. */
static int read_name(json_t *body, char ret[static SNAPSHOT_NAME_SIZE], struct err *e)
{
    const char *text = NULL;
    const char *slash;
    int r = e2b_string(body, "name", &text, e);

    ret[0] = '\0';
    if (r < 0 || str_empty(text)) {
        return r;
    }
    slash = strrchr(text, '/');
    text = slash ? slash + 1 : text;
    r = (int)strcspn(text, ":");
    if (r == 0 || r >= SNAPSHOT_NAME_SIZE ||
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") <
            (size_t)r ||
        (text[r] == ':' && !str_eq(text + r + 1, E2B_TAG))) {
        return err_field(e, -EINVAL, "invalid_field", "name",
                         "'name' must be made of letters, digits, '-', '_' and '.', at most %d, "
                         "with no tag but '" E2B_TAG "'",
                         SNAPSHOT_NAME_SIZE - 1);
    }
    snprintf(ret, SNAPSHOT_NAME_SIZE, "%.*s", r, text);
    return 0;
}

static json_t *show(const struct snapshot_row *row)
{
    cleanup_free char *id = xasprintf("%s:" E2B_TAG, row->name[0] ? row->name : row->id);
    json_t *names = row->name[0] ? json_pack("[s]", row->name) : json_array();

    return json_pack("{s:s, s:o}", "snapshotID", id, "names", names);
}

/* Takes it on the node; *ret_id is its name there. */
static int take(struct http_request *req, const char *sandbox, const char *name,
                char ret_id[static ID_SIZE], struct err *e)
{
    cleanup_json json_t *body = json_pack("{s:s, s:b}", "kind", "full", "keep", 1);
    cleanup_json json_t *answer = NULL;
    struct pollfd watch = http_client_pollfd(req);
    struct control_ask ask = {.method = "POST",
                              .rest = "/snapshots",
                              .body = body,
                              .action = "snapshot.create",
                              .watch = &watch};
    const char *id;
    int r;

    if (name[0] && strlen(name) <= 64) {
        json_object_set_new(body, "name", json_string(name)); /* for whoever lists them natively */
    }
    r = control_ask(gateway_of(req)->control, actor_of(req), sandbox, &ask, &answer, e);
    if (r < 0) {
        return r;
    }
    id = json_get_string(answer, "id", "");
    if (!id_valid(ID_SNAPSHOT, id)) {
        return err_set(e, -EPROTO, "bad_answer", "the node's answer cannot be used");
    }
    snprintf(ret_id, ID_SIZE, "%s", id);
    return 0;
}

int e2b_snapshot_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    struct snapshot_row row = {0};
    char was[ID_SIZE];
    struct e2b_box box;
    int r = e2b_find(req, &sb, &box, e);

    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = read_name(body, row.name, e);
    }
    if (r == 0 && sb.observed != SANDBOX_STATE_RUNNING) {
        return err_set(e, -ESTALE, "conflict", "Sandbox \"%s\" is not running", sb.id);
    }
    if (r == 0) {
        r = take(req, sb.id, row.name, row.id, e);
    }
    if (r < 0) {
        return r;
    }
    snprintf(row.project, sizeof(row.project), "%s", sb.project);
    snprintf(row.sandbox, sizeof(row.sandbox), "%s", sb.id);
    row.created_at_ms = control_now_ms(gateway_of(req)->control);
    r = db_snapshot_put(gateway_of(req)->db, &row, was, e);
    return r < 0 ? r : e2b_reply_json_take(req, 201, show(&row), e);
}

struct page {
    json_t *found; /* owned: an array */
    int64_t limit;
    int64_t last_ms;
    char last_id[ID_SIZE];
    bool more;
};

static int add_to_page(void *ctx, const struct snapshot_row *row)
{
    struct page *p = ctx;

    if ((int64_t)json_array_size(p->found) == p->limit) {
        p->more = true;
        return 0;
    }
    json_array_append_new(p->found, show(row));
    p->last_ms = row->created_at_ms;
    snprintf(p->last_id, sizeof(p->last_id), "%s", row->id);
    return 0;
}

static int read_token(const char *token, int64_t *ret_ms, const char **ret_id, struct err *e)
{
    const char *dash = strchr(token, '-');
    uint64_t ms = 0;
    char digits[24] = "";

    if (dash && (size_t)(dash - token) < sizeof(digits)) {
        memcpy(digits, token, (size_t)(dash - token));
    }
    if (!dash || str_to_u64(digits, INT64_MAX, &ms) < 0 || !id_valid(ID_SNAPSHOT, dash + 1)) {
        return err_field(e, -EINVAL, "invalid_field", "nextToken",
                         "'nextToken' is not one that this API gave");
    }
    *ret_ms = (int64_t)ms;
    *ret_id = dash + 1;
    return 0;
}

int e2b_snapshots_handler(struct http_request *req, struct err *e)
{
    struct snapshot_query q = {
        .project = actor_of(req)->project,
        .sandbox = http_query_get(req, "sandboxID"),
        .name = http_query_get(req, "name"),
    };
    const char *token = http_query_get(req, "nextToken");
    cleanup_json json_t *found = json_array();
    struct page page = {.found = found};
    char next[LIST_CURSOR_SIZE];
    int r = http_query_int(req, "limit", (struct http_query_bounds){1, LIMIT_MAX, LIMIT_MAX},
                           &page.limit, e);

    if (r == 0 && token) {
        r = read_token(token, &q.after_ms, &q.after_id, e);
    }
    if (r == 0) {
        q.limit = page.limit + 1;
        r = db_snapshot_list(gateway_of(req)->db, &q, add_to_page, &page, e);
    }
    if (r < 0) {
        return r;
    }
    if (page.more) {
        list_cursor_print(page.last_ms, page.last_id, next);
        http_reply_header(req, "X-Next-Token", next);
    }
    return e2b_reply_json_take(req, 200, json_incref(found), e);
}

/* --- forks --- */

/* All children or none, in our own API; so each has a sandbox, and an error is one of the whole request. */
static int show_children(struct http_request *req, const char *text, json_t **ret, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    cleanup_json json_t *shown = json_array();
    json_t *child;
    size_t i;
    int r = json_parse_object(text, strlen(text), &answer, e);

    json_array_foreach(json_object_get(answer, "sandboxes"), i, child)
    {
        cleanup_sandbox struct sandbox sb = {0};

        r = control_get(gateway_of(req)->control, actor_of(req), json_get_string(child, "id", ""),
                        &sb, e);
        if (r < 0) {
            return r;
        }
        json_array_append_new(shown, json_pack("{s:o}", "sandbox", e2b_show(gateway_of(req), &sb)));
    }
    if (r == 0) {
        *ret = json_incref(shown);
    }
    return r;
}

static int fork_it(struct http_request *req, const struct sandbox *sb, json_t *native, json_t **ret,
                   struct err *e)
{
    cleanup_sandbox_fork struct sandbox_fork fork = {0};
    struct pollfd watch = http_client_pollfd(req);
    struct control_create what = {.fork = &fork, .watch = &watch};
    struct control_answer answer = {0};
    cleanup_free char *text = NULL;
    int r = sandbox_fork_from_json(native, &fork, e);

    if (r == 0) {
        r = control_fork(gateway_of(req)->control, actor_of(req), sb->id, &what, &answer, e);
    }
    if (r < 0) {
        return r;
    }
    text = answer.body;
    return show_children(req, text, ret, e);
}

int e2b_fork_handler(struct http_request *req, struct err *e)
{
    const struct json_bounds count_bounds = {1, FORK_MAX, 1};
    const struct json_bounds timeout_bounds = {1, SANDBOX_TIMEOUT_S_MAX, -1};
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *native = json_object();
    json_t *shown = NULL;
    struct e2b_box box;
    int64_t count = 1;
    int64_t timeout_s = -1;
    int r = e2b_find(req, &sb, &box, e);

    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = e2b_int(body, "count", count_bounds, &count, e);
    }
    if (r == 0) {
        r = e2b_int(body, "timeout", timeout_bounds, &timeout_s, e);
    }
    if (r == 0 && sb.observed != SANDBOX_STATE_RUNNING) {
        return err_set(e, -ESTALE, "conflict", "Sandbox \"%s\" is paused: connect to it first",
                       sb.id);
    }
    if (r < 0) {
        return r;
    }
    json_object_set_new(native, "count", json_integer(count));
    if (timeout_s > 0) {
        json_object_set_new(native, "timeout_s", json_integer(timeout_s));
    }
    r = fork_it(req, &sb, native, &shown, e);
    return r < 0 ? r : e2b_reply_json_take(req, 201, shown, e);
}
