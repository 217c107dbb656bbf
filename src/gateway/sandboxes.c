/* SPDX-License-Identifier: Apache-2.0 */

/* /v1/sandboxes: requests to control, records to JSON. */
#include <stdio.h>
#include <string.h>

#include "gateway/gateway.h"
#include "gateway/query.h"
#include "gateway/template/find.h"

/* What an Idempotency-Key is bound to: method, path and the body without the order of its fields. */
static void fingerprint(const struct http_request *req, const json_t *body,
                        char ret[static KEY_HASH_SIZE])
{
    cleanup_free char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
    cleanup_free char *all = NULL;

    ASSERT(text);
    all = xasprintf("%s %s\n%s", http_request_method(req), http_request_path(req), text);
    auth_hash(all, strlen(all), ret);
}

int idempotency_of(const struct http_request *req, const json_t *body,
                   char print[static KEY_HASH_SIZE], struct control_create *what, struct err *e)
{
    const char *key = http_request_header(req, "Idempotency-Key");
    int r = key ? idempotency_key_check(key, e) : 0;

    if (r < 0) {
        return r;
    }
    fingerprint(req, body, print);
    what->idempotency_key = key;
    what->fingerprint = print;
    return 0;
}

int reply_answer(struct http_request *req, struct control_answer *answer, struct err *e)
{
    cleanup_free char *text = TAKE_PTR(answer->body);

    if (answer->replayed) {
        http_reply_header(req, "Idempotent-Replayed", "true");
    }
    return http_reply_bytes(req, answer->status, "application/json", text, strlen(text), e);
}

/* From a template of the project's when there is one of that name, else from one of the node's. */
static int create(struct http_request *req, json_t *body, struct control_create *what,
                  struct control_answer *ret, struct err *e)
{
    cleanup_template_found struct template_found from = {0};
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    bool known = false;
    int r = template_find_built(req, json_get_string(body, "template", SANDBOX_TEMPLATE_DEFAULT),
                                &from, &known, e);

    if (r == 0) {
        return template_spawn(req, body, &from, what, ret, e);
    }
    if (r == -ENOENT && !known) {
        r = sandbox_spec_from_json(body, &spec, e);
    }
    what->spec = &spec;
    return r < 0 ? r : control_create(gateway_of(req)->control, actor_of(req), what, ret, e);
}

int sandbox_create_handler(struct http_request *req, struct err *e)
{
    struct pollfd watch = http_client_pollfd(req);
    cleanup_json json_t *body = NULL;
    struct control_create what = {.watch = &watch};
    struct control_answer answer = {0};
    char print[KEY_HASH_SIZE];
    int r;

    r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    if (r == 0) {
        r = idempotency_of(req, body, print, &what, e);
    }
    if (r == 0) {
        r = create(req, body, &what, &answer, e);
    }
    return r < 0 ? r : reply_answer(req, &answer, e);
}

int reply_sandbox(struct http_request *req, int status, const struct sandbox *sb, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(GATEWAY_BODY_MAX);
    int r = sandbox_print(sb, &text);

    return r < 0 ? err_wrap(e, r, "showing the sandbox") : reply_text(req, status, &text, e);
}

struct page {
    struct buf text;
    int64_t limit;
    int64_t n;
    int64_t last_ms;
    char last_id[ID_SIZE];
    bool more;
};

/* One more than the page is asked for, to know whether there is a next one. */
static int add_to_page(void *ctx, const struct sandbox *sb)
{
    struct page *p = ctx;
    int r;

    if (p->n == p->limit) {
        p->more = true;
        return 0;
    }
    r = buf_add_str(&p->text, p->n ? "," : "");
    if (r == 0) {
        r = sandbox_print(sb, &p->text);
    }
    p->n++;
    p->last_ms = sb->created_at_ms;
    snprintf(p->last_id, sizeof(p->last_id), "%s", sb->id);
    return r;
}

int sandbox_list_handler(struct http_request *req, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(GATEWAY_ANSWER_MAX);
    struct list_query list = {0};
    struct page page = {0};
    char cursor[LIST_CURSOR_SIZE];
    int r;

    r = list_query_from_request(req, &list, e);
    if (r < 0) {
        return r;
    }
    list.query.project = actor_of(req)->project;
    page.limit = list.query.limit;
    list.query.limit++;
    page.text = text;
    r = buf_add_str(&page.text, "{\"sandboxes\":[");
    if (r == 0) {
        r = db_sandbox_list(gateway_of(req)->db, &list.query, add_to_page, &page, e);
    }
    if (r == 0 && page.more) {
        list_cursor_print(page.last_ms, page.last_id, cursor);
        r = buf_printf(&page.text, "],\"next_cursor\":\"%s\"}", cursor);
    } else if (r == 0) {
        r = buf_add_str(&page.text, "],\"next_cursor\":null}");
    }
    text = page.text;
    return r < 0 ? r : reply_text(req, 200, &text, e);
}

int sandbox_get_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    int r = get_sandbox(req, http_request_param(req, "id"), &sb, e);

    return r < 0 ? r : reply_sandbox(req, 200, &sb, e);
}

int sandbox_delete_handler(struct http_request *req, struct err *e)
{
    const char *id = http_request_param(req, "id");
    cleanup_buf struct buf text = BUF_INIT(256);
    bool done = false;
    int r;

    r = control_delete(gateway_of(req)->control, actor_of(req), id, &done, e);
    if (r < 0) {
        return r;
    }
    if (done) {
        return http_reply_empty(req, 204, e);
    }
    r = buf_printf(&text, "{\"id\":\"%s\",\"state\":\"deleting\"}",
                   id); /* an id: control knew it */
    return r < 0 ? r : reply_text(req, 202, &text, e);
}

int sandbox_patch_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    const char *id = http_request_param(req, "id");
    cleanup_json json_t *body = NULL;
    cleanup_sandbox_patch struct sandbox_patch patch = {0};
    cleanup_sandbox struct sandbox sb = {0};
    int r;

    r = control_get(g->control, actor_of(req), id, &sb, e);
    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = sandbox_patch_from_json(body, &patch, e);
    }
    if (r == 0) {
        r = control_patch(g->control, actor_of(req), id, &patch, &sb, e);
    }
    return r < 0 ? r : reply_sandbox(req, 200, &sb, e);
}

int sandbox_stop_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    int r = control_stop(gateway_of(req)->control, actor_of(req), http_request_param(req, "id"),
                         &sb, e);

    return r < 0 ? r : reply_sandbox(req, 200, &sb, e);
}

int sandbox_start_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    int r = control_start(gateway_of(req)->control, actor_of(req), http_request_param(req, "id"),
                          &sb, e);

    return r < 0 ? r : reply_sandbox(req, 200, &sb, e);
}
