/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/time.h"

#include <stdio.h>
#include <string.h>

#include "gateway/gateway.h"
#include "model/json-text.h"

#define NAME_MAX_BYTES 64
#define LIST_MAX (8u << 20) /* 4096 snapshots, or all of a history */

/* --- bodies --- */

int pause_body_from_json(json_t *body, struct pause_body *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"durable", JSON_FIELD_BOOL, JSON_NULLABLE},
        {"wake_on_request", JSON_FIELD_BOOL, JSON_NULLABLE},
    };
    int r = json_check_object(body, fields, ARRAY_SIZE(fields), e);

    if (r == 0) {
        ret->durable = json_get_bool(body, "durable", true);
        ret->wakes = json_get_bool(body, "wake_on_request", false);
    }
    return r;
}

static int check_name(json_t *body, struct err *e)
{
    const char *name = json_get_string(body, "name", "");

    if (strlen(name) > NAME_MAX_BYTES) {
        return err_field(e, -EINVAL, "too_long", "name", "name may have at most %d bytes",
                         NAME_MAX_BYTES);
    }
    for (const char *p = name; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            return err_field(e, -EINVAL, "invalid_name", "name",
                             "name must not hold control characters");
        }
    }
    return 0;
}

int snapshot_body_check(json_t *body, struct err *e)
{
    static const struct json_field fields[] = {
        {"kind", JSON_FIELD_STRING, 0},
        {"name", JSON_FIELD_STRING, 0},
        {"keep", JSON_FIELD_BOOL, 0},
    };
    const char *kind;
    int r = json_check_object(body, fields, ARRAY_SIZE(fields), e);

    if (r < 0) {
        return r;
    }
    kind = json_get_string(body, "kind", "disk");
    if (!str_eq(kind, "disk") && !str_eq(kind, "full")) {
        return err_field(e, -EINVAL, "invalid_field", "kind",
                         "kind must be 'disk', or 'full' for memory and processes too");
    }
    return check_name(body, e);
}

int snapshot_patch_check(json_t *body, struct err *e)
{
    static const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, 0},
        {"keep", JSON_FIELD_BOOL, 0},
    };
    int r = json_check_object(body, fields, ARRAY_SIZE(fields), e);

    if (r < 0) {
        return r;
    }
    if (json_object_size(body) == 0) {
        return err_set(e, -EINVAL, "nothing_to_change", "give name, keep, or both");
    }
    return check_name(body, e);
}

int rollback_body_from_json(json_t *body, const char **ret, struct err *e)
{
    static const struct json_field fields[] = {{"snapshot", JSON_FIELD_STRING, JSON_REQUIRED}};
    int r = json_check_object(body, fields, ARRAY_SIZE(fields), e);

    if (r < 0) {
        return r;
    }
    *ret = json_get_string(body, "snapshot", "");
    return id_valid(ID_SNAPSHOT, *ret) ? 0
                                       : err_field(e, -EINVAL, "invalid_field", "snapshot",
                                                   "snapshot must be the id of a snapshot");
}

/* --- what the node says, field by field --- */

static int print_text(struct buf *out, const char *name, const char *text)
{
    int r = buf_printf(out, ",\"%s\":", name);

    if (r < 0) {
        return r;
    }
    return text[0] ? json_text_string(out, text) : buf_add_str(out, "null");
}

int snapshot_print(json_t *snapshot, struct buf *out)
{
    static const char *const texts[] = {"name", "made_by", "command", "parent_id"};
    static const char *const shown[] = {"name", "made_by", "command", "parent"};
    static const char *const numbers[] = {"created_at_ms", "private_bytes", "pause_us",
                                          "exclusive_bytes"};
    const char *id = json_get_string(snapshot, "id", "");
    const char *kind = json_get_string(snapshot, "kind", "");
    int r;

    if (!id_valid(ID_SNAPSHOT, id) || (!str_eq(kind, "disk") && !str_eq(kind, "full"))) {
        return -EPROTO;
    }
    r = buf_printf(out, "{\"id\":\"%s\",\"kind\":\"%s\",\"keep\":%s,\"past\":%s", id, kind,
                   json_get_bool(snapshot, "keep", false) ? "true" : "false",
                   json_get_bool(snapshot, "past", false) ? "true" : "false");
    for (size_t i = 0; i < ARRAY_SIZE(texts) && r == 0; i++) {
        r = print_text(out, shown[i], json_get_string(snapshot, texts[i], ""));
    }
    for (size_t i = 0; i < ARRAY_SIZE(numbers) && r == 0; i++) {
        if (json_is_integer(json_object_get(snapshot, numbers[i]))) {
            r = buf_printf(out, ",\"%s\":%lld", numbers[i],
                           (long long)json_get_int(snapshot, numbers[i], 0));
        }
    }
    return r < 0 ? r : buf_add_str(out, "}");
}

static int history_entry_print(json_t *entry, struct buf *out)
{
    int r;

    if (!json_is_object(entry)) {
        return -EPROTO;
    }
    r = buf_printf(out, "{\"at_ms\":%lld", (long long)json_get_int(entry, "at_ms", 0));
    if (r == 0) {
        r = print_text(out, "event", json_get_string(entry, "event", ""));
    }
    if (r == 0) {
        r = print_text(out, "text", json_get_string(entry, "text", ""));
    }
    return r < 0 ? r : buf_add_str(out, "}");
}

static int list_print(json_t *list, int (*print)(json_t *one, struct buf *out), struct buf *out)
{
    json_t *one;
    size_t i;
    int r;

    if (!json_is_array(list)) {
        return -EPROTO;
    }
    r = buf_add_str(out, "[");
    json_array_foreach(list, i, one)
    {
        if (r == 0) {
            r = buf_add_str(out, i ? "," : "");
        }
        if (r == 0) {
            r = print(one, out);
        }
    }
    return r < 0 ? r : buf_add_str(out, "]");
}

int history_print(json_t *history, struct buf *out)
{
    return list_print(history, history_entry_print, out);
}

static int bad_node(int r, struct err *e)
{
    if (r == -EPROTO) {
        return err_set(e, r, "bad_answer", "the node's answer cannot be used");
    }
    return err_wrap(e, r, "showing what the node says");
}

/* --- pause, resume, rollback --- */

static const char *id_of(const struct http_request *req)
{
    return http_request_param(req, "id");
}

/* Whose it is comes before what is wrong with the body. */
static int owned_body(struct http_request *req, json_t **ret, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    int r = control_get(gateway_of(req)->control, actor_of(req), id_of(req), &sb, e);

    return r < 0 ? r : http_body_json(req, GATEWAY_BODY_MAX, ret, e);
}

int sandbox_pause_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    struct pause_body how = {0};
    int r = owned_body(req, &body, e);

    if (r == 0) {
        r = pause_body_from_json(body, &how, e);
    }
    if (r == 0) {
        r = control_pause(gateway_of(req)->control, actor_of(req), id_of(req),
                          &(struct control_pause){how.durable, how.wakes}, &sb, e);
    }
    return r < 0 ? r : reply_sandbox(req, 200, &sb, e);
}

int sandbox_resume_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    int r = control_resume(gateway_of(req)->control, actor_of(req), id_of(req), &sb, e);

    return r < 0 ? r : reply_sandbox(req, 200, &sb, e);
}

int sandbox_suspend_handler(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {
        {"wake_on_request", JSON_FIELD_BOOL, JSON_NULLABLE},
        {"drop_snapshots", JSON_FIELD_BOOL, JSON_NULLABLE},
    };
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    int r = owned_body(req, &body, e);

    if (r == 0) {
        r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
    }
    if (r == 0) {
        const struct control_suspend how = {json_get_bool(body, "wake_on_request", false),
                                            json_get_bool(body, "drop_snapshots", false)};

        r = control_suspend(gateway_of(req)->control, actor_of(req), id_of(req), &how, &sb, e);
    }
    return r < 0 ? r : reply_sandbox(req, 200, &sb, e);
}

int sandbox_stored_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *stored = NULL;
    int64_t at_ms;
    int r = control_stored(gateway_of(req)->control, actor_of(req), id_of(req), &stored, e);

    if (r < 0) {
        return r;
    }
    at_ms = json_get_int(stored, "modified_ms", 0);
    return http_reply_json_take(
        req, 200,
        json_pack("{s:I, s:I}", "stored_at_ms", (json_int_t)at_ms, "age_ms",
                  (json_int_t)MAX(control_now_ms(gateway_of(req)->control) - at_ms, (int64_t)0)),
        e);
}

/* The sandbox object with two fields more. */
static int reply_rollback(struct http_request *req, const struct sandbox *sb,
                          const struct control_rollback *how, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(GATEWAY_BODY_MAX);
    int r = sandbox_print(sb, &text);

    if (r == 0) {
        ASSERT(text.data[text.len - 1] == '}');
        text.data[--text.len] = '\0'; /* two fields more */
        r = print_text(&text, "before", id_valid(ID_SNAPSHOT, how->before) ? how->before : "");
    }
    if (r == 0) {
        r = buf_printf(&text, ",\"cold\":%s}", how->cold ? "true" : "false");
    }
    return r < 0 ? err_wrap(e, r, "showing the sandbox") : reply_text(req, 200, &text, e);
}

int sandbox_rollback_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    struct control_rollback how = {0};
    const char *snapshot = NULL;
    int r = owned_body(req, &body, e);

    if (r == 0) {
        r = rollback_body_from_json(body, &snapshot, e);
    }
    if (r == 0) {
        r = control_rollback(gateway_of(req)->control, actor_of(req), id_of(req), snapshot, &sb,
                             &how, e);
    }
    return r < 0 ? r : reply_rollback(req, &sb, &how, e);
}

/* --- fork --- */

int sandbox_fork_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox_fork struct sandbox_fork fork = {0};
    cleanup_json json_t *body = NULL;
    struct pollfd watch = http_client_pollfd(req);
    struct control_create what = {.fork = &fork, .watch = &watch};
    struct control_answer answer = {0};
    char print[KEY_HASH_SIZE];
    int r = owned_body(req, &body, e);

    if (r == 0) {
        r = sandbox_fork_from_json(body, &fork, e);
    }
    if (r == 0) {
        r = idempotency_of(req, body, print, &what, e);
    }
    if (r == 0) {
        r = control_fork(gateway_of(req)->control, actor_of(req), id_of(req), &what, &answer, e);
    }
    return r < 0 ? r : reply_answer(req, &answer, e);
}

/* --- snapshots and history: the node has them --- */

static int ask_node(struct http_request *req, struct control_ask *ask, json_t **ret, struct err *e)
{
    struct pollfd watch = http_client_pollfd(req);

    ask->watch = &watch;
    return control_ask(gateway_of(req)->control, actor_of(req), id_of(req), ask, ret, e);
}

static int reply_snapshot(struct http_request *req, int status, json_t *snapshot, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(GATEWAY_BODY_MAX);
    int r = snapshot_print(snapshot, &text);

    return r < 0 ? bad_node(r, e) : reply_text(req, status, &text, e);
}

int snapshot_create_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *answer = NULL;
    struct control_ask ask = {.method = "POST", .rest = "/snapshots", .action = "snapshot.create"};
    int r = owned_body(req, &body, e);

    if (r == 0) {
        r = snapshot_body_check(body, e);
    }
    ask.body = body;
    if (r == 0) {
        r = ask_node(req, &ask, &answer, e);
    }
    return r < 0 ? r : reply_snapshot(req, 201, answer, e);
}

static int reply_list(struct http_request *req, const char *name, json_t *list,
                      int (*print)(json_t *one, struct buf *out), struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(LIST_MAX);
    int r = buf_printf(&text, "{\"%s\":", name);

    if (r == 0) {
        r = list_print(list, print, &text);
    }
    if (r == 0) {
        r = buf_add_str(&text, "}");
    }
    return r < 0 ? bad_node(r, e) : reply_text(req, 200, &text, e);
}

/* Where the past of a fork goes on: a snapshot of the sandbox that it was forked from. */
static int origin_print(json_t *origin, struct buf *out)
{
    const char *sandbox = json_get_string(origin, "sandbox", "");
    const char *snapshot = json_get_string(origin, "snapshot", "");

    if (!id_valid(ID_SANDBOX, sandbox) || !id_valid(ID_SNAPSHOT, snapshot)) {
        return buf_add_str(out, ",\"origin\":null}");
    }
    return buf_printf(out, ",\"origin\":{\"sandbox\":\"%s\",\"snapshot\":\"%s\"}}", sandbox,
                      snapshot);
}

int snapshot_list_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    cleanup_buf struct buf text = BUF_INIT(LIST_MAX);
    struct control_ask ask = {.method = "GET", .rest = "/snapshots"};
    int r = ask_node(req, &ask, &answer, e);

    if (r < 0) {
        return r;
    }
    r = buf_add_str(&text, "{\"snapshots\":");
    if (r == 0) {
        r = list_print(json_object_get(answer, "snapshots"), snapshot_print, &text);
    }
    if (r == 0) {
        r = origin_print(json_object_get(answer, "origin"), &text);
    }
    return r < 0 ? bad_node(r, e) : reply_text(req, 200, &text, e);
}

int history_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    struct control_ask ask = {.method = "GET", .rest = "/history"};
    int r = ask_node(req, &ask, &answer, e);

    return r < 0 ? r
                 : reply_list(req, "history", json_object_get(answer, "history"),
                              history_entry_print, e);
}

/* Names and times of our own node's steps: nothing in it comes from a guest. */
int trace_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    struct control_ask ask = {.method = "GET", .rest = "/trace"};
    json_t *operations;
    int r = ask_node(req, &ask, &answer, e);

    if (r < 0) {
        return r;
    }
    operations = json_object_get(answer, "operations");
    return json_is_array(operations)
               ? http_reply_json_take(req, 200, json_pack("{s:O}", "operations", operations), e)
               : bad_node(-EPROTO, e);
}

/* The node's path of the snapshot; *ret is the caller's to free. */
static int snapshot_path(struct http_request *req, char **ret, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    const char *snapshot = http_request_param(req, "snapshot");
    int r = control_get(gateway_of(req)->control, actor_of(req), id_of(req), &sb, e);

    if (r < 0) {
        return r;
    }
    if (!id_valid(ID_SNAPSHOT, snapshot)) {
        return err_set(
            e, -ENOENT, "snapshot_not_found",
            "the sandbox has no such snapshot; GET /v1/sandboxes/ID/snapshots lists them");
    }
    *ret = xasprintf("/snapshots/%s", snapshot);
    return 0;
}

int snapshot_get_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    cleanup_free char *path = NULL;
    struct control_ask ask = {.method = "GET"};
    int r = snapshot_path(req, &path, e);

    ask.rest = path;
    if (r == 0) {
        r = ask_node(req, &ask, &answer, e);
    }
    return r < 0 ? r : reply_snapshot(req, 200, answer, e);
}

int snapshot_patch_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *answer = NULL;
    cleanup_free char *path = NULL;
    struct control_ask ask = {.method = "PATCH", .action = "snapshot.change"};
    int r = snapshot_path(req, &path, e);

    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = snapshot_patch_check(body, e);
    }
    ask.rest = path;
    ask.body = body;
    if (r == 0) {
        r = ask_node(req, &ask, &answer, e);
    }
    return r < 0 ? r : reply_snapshot(req, 200, answer, e);
}

int snapshot_delete_handler(struct http_request *req, struct err *e)
{
    cleanup_free char *path = NULL;
    struct control_ask ask = {.method = "DELETE", .action = "snapshot.delete"};
    int r = snapshot_path(req, &path, e);

    ask.rest = path;
    if (r == 0) {
        r = ask_node(req, &ask, NULL, e);
    }
    return r < 0 ? r : http_reply_empty(req, 204, e);
}
