/* SPDX-License-Identifier: Apache-2.0 */
/* The node API's routes to and from the object store: suspend, restore, what is stored. */
#include "sandbox/fetch.h"
#include "sandbox/routes.h"
#include "sandbox/suspend.h"

#define BODY_MAX 4096u

static struct node *node_of(const struct http_request *req)
{
    return http_request_ctx(req);
}

static int check_ids(const char *organisation, const char *id, struct err *e)
{
    if (!id_valid(ID_ORGANISATION, organisation)) {
        return err_field(e, -EINVAL, "invalid_field", "organisation",
                         "'organisation' must be the id of one");
    }
    return id_valid(ID_SANDBOX, id)
               ? 0
               : err_set(e, -ENOENT, "sandbox_not_found", "that is no id of a sandbox");
}

static int read_body(struct http_request *req, const struct json_field *fields, size_t n,
                     json_t **ret, struct err *e)
{
    cleanup_json json_t *body = NULL;
    int r = http_body_json(req, BODY_MAX, &body, e);

    if (r == 0) {
        r = json_check_object(body, fields, n, e);
    }
    if (r == 0) {
        r = check_ids(json_get_string(body, "organisation", ""), http_request_param(req, "id"), e);
    }
    if (r == 0) {
        *ret = TAKE_PTR(body);
    }
    return r;
}

/* It is not here: was it suspended before, and the answer was lost? */
static int suspended_before(struct http_request *req, const char *organisation, json_t **ret,
                            struct err *e)
{
    const char *id = http_request_param(req, "id");
    cleanup_json json_t *age = NULL;
    int r = suspend_age(node_of(req), organisation, id, &age, e);

    if (r == 0) {
        *ret = json_pack("{s:s, s:s, s:I}", "id", id, "state",
                         sandbox_state_name(SANDBOX_STATE_SUSPENDED), "durable_at_ms",
                         (json_int_t)json_get_int(age, "modified_ms", 0));
    }
    return r;
}

int route_suspend(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"organisation", JSON_FIELD_STRING, JSON_REQUIRED},
                                               {"drop_snapshots", JSON_FIELD_BOOL, 0}};
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *stored = NULL;
    json_t *out = NULL;
    int r = read_body(req, fields, ARRAY_SIZE(fields), &body, e);

    if (r < 0) {
        return r;
    }
    res = resident_find(node_of(req), http_request_param(req, "id"));
    if (!res) {
        r = suspended_before(req, json_get_string(body, "organisation", ""), &out, e);
    } else {
        const struct suspend_wish wish = {json_get_bool(body, "drop_snapshots", false)};

        r = suspend_sandbox(res, &wish, &stored, e);
        out = r < 0 ? NULL : resident_to_json(res);
    }
    if (r < 0) {
        return r;
    }
    if (stored) {
        json_object_set(out, "stored", stored);
    }
    return http_reply_json_take(req, 200, out, e);
}

int route_restore(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"organisation", JSON_FIELD_STRING, JSON_REQUIRED},
                                               {"need_memory", JSON_FIELD_BOOL, 0}};
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_json json_t *body = NULL;
    struct fetch_wish wish = {.id = http_request_param(req, "id")};
    int r = read_body(req, fields, ARRAY_SIZE(fields), &body, e);

    if (r == 0) {
        wish.organisation = json_get_string(body, "organisation", "");
        wish.need_memory = json_get_bool(body, "need_memory", false);
        r = fetch_sandbox(node_of(req), &wish, &res, e);
    }
    return r < 0 ? r : http_reply_json_take(req, 200, resident_to_json(res), e);
}

/* The organisation comes as a parameter. */
static int organisation_of(struct http_request *req, const char **ret, struct err *e)
{
    *ret = http_query_get(req, "organisation");
    return check_ids(*ret ? *ret : "", http_request_param(req, "id"), e);
}

int route_stored_get(struct http_request *req, struct err *e)
{
    const char *organisation = NULL;
    json_t *age = NULL;
    int r = organisation_of(req, &organisation, e);

    if (r == 0) {
        r = suspend_age(node_of(req), organisation, http_request_param(req, "id"), &age, e);
    }
    return r < 0 ? r : http_reply_json_take(req, 200, age, e);
}

int route_stored_delete(struct http_request *req, struct err *e)
{
    const char *organisation = NULL;
    int r = organisation_of(req, &organisation, e);

    if (r == 0) {
        r = suspend_forget(node_of(req), organisation, http_request_param(req, "id"), e);
    }
    return r < 0 ? r : http_reply_empty(req, 204, e);
}
