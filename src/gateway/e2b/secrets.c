/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Secrets: values with a name that a project keeps once, and that 'rules' of a sandbox's network fill into headers
 * (rules.c). They are the credential manager's (credential/named.h): a value goes in, and nowhere out but into requests. Ids and
 * names do for each other; names are in lower case.
 */
#include "gateway/e2b/private.h"

#define LIMIT_MAX 100

static json_t *shown(json_t *secret)
{
    char created[E2B_TIME_SIZE];
    char updated[E2B_TIME_SIZE];

    e2b_time(json_get_int(secret, "created_at_ms", 0), created);
    e2b_time(json_get_int(secret, "updated_at_ms", 0), updated);
    return json_pack("{s:s, s:s, s:I, s:O, s:s, s:s}", "secretID",
                     json_get_string(secret, "id", ""), "name", json_get_string(secret, "name", ""),
                     "currentVersion", (json_int_t)json_get_int(secret, "version", 1), "metadata",
                     json_object_get(secret, "metadata"), "createdAt", created, "updatedAt",
                     updated);
}

static int bad_answer(struct err *e)
{
    return err_set(e, -EPROTO, "bad_answer", "the credential manager's answer cannot be read");
}

/* Asks, and answers with the one secret that comes back. action is for our own log; "": there is nothing to log. */
static int change(struct http_request *req, const char *target, json_t *body_take,
                  const char *action, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    json_t *secret;
    int r = credentials_ask(req, target, body_take, &answer, e);

    if (r < 0) {
        return r;
    }
    if (action[0]) {
        control_audit(gateway_of(req)->control, actor_of(req), action,
                      json_get_string(answer, "id", ""), json_get_string(answer, "name", ""));
    }
    if (str_eq(action, "secret.remove")) {
        return http_reply_empty(req, 204, e);
    }
    secret = shown(answer);
    return secret ? e2b_reply_json_take(req, str_eq(action, "secret.add") ? 201 : 200, secret, e)
                  : bad_answer(e);
}

/* What is known of the request's body; what else stands in it is ignored, as everywhere in this API. */
static int read_secret(struct http_request *req, const char *which, json_t **ret, struct err *e)
{
    cleanup_json json_t *asked = json_object();
    cleanup_json json_t *body = NULL;
    const char *const fields[] = {which ? NULL : "name", "value", "metadata"};
    int r = credentials_body(req, &body, e);

    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        if (fields[i] && json_object_get(body, fields[i])) {
            json_object_set(asked, fields[i], json_object_get(body, fields[i]));
        }
    }
    if (which && json_object_set_new(asked, "secret", json_string(which)) < 0) {
        return err_set(e, -ENOENT, "secret_not_found", "there is no such secret");
    }
    *ret = TAKE_PTR(asked);
    return 0;
}

static json_t *named(const struct http_request *req)
{
    return json_pack("{s:o*}", "secret", json_string(http_request_param(req, "id")));
}

int e2b_secret_create_handler(struct http_request *req, struct err *e)
{
    json_t *asked = NULL;
    int r = read_secret(req, /* which */ NULL, &asked, e);

    return r < 0 ? r : change(req, "/v1/secrets/add", asked, "secret.add", e);
}

int e2b_secret_update_handler(struct http_request *req, struct err *e)
{
    json_t *asked = NULL;
    int r = read_secret(req, http_request_param(req, "id"), &asked, e);

    return r < 0 ? r : change(req, "/v1/secrets/change", asked, "secret.change", e);
}

int e2b_secret_get_handler(struct http_request *req, struct err *e)
{
    return change(req, "/v1/secrets/get", named(req), "", e);
}

int e2b_secret_delete_handler(struct http_request *req, struct err *e)
{
    return change(req, "/v1/secrets/remove", named(req), "secret.remove", e);
}

/* A page's token is the name that the last one ended with. */
int e2b_secrets_handler(struct http_request *req, struct err *e)
{
    struct http_query_bounds bounds = {1, LIMIT_MAX, LIMIT_MAX};
    const char *token = http_query_get(req, "nextToken");
    cleanup_json json_t *answer = NULL;
    cleanup_json json_t *list = json_array();
    json_t *secret;
    int64_t limit = 0;
    size_t i;
    int r = http_query_int(req, "limit", bounds, &limit, e);

    if (r == 0 && token && !credential_name_valid(token)) {
        return err_field(e, -EINVAL, "invalid_field", "nextToken",
                         "'nextToken' is none that was given out");
    }
    r = r < 0 ? r
              : credentials_ask(req, "/v1/secrets/list",
                                json_pack("{s:I, s:s}", "limit", (json_int_t)limit, "after",
                                          token ? token : ""),
                                &answer, e);
    if (r < 0) {
        return r;
    }
    json_array_foreach(json_object_get(answer, "secrets"), i, secret)
    {
        json_t *one = shown(secret);

        if (!one) {
            return bad_answer(e);
        }
        json_array_append_new(list, one);
        token = json_get_string(secret, "name", "");
    }
    if (json_get_bool(answer, "more", false) && token && credential_name_valid(token)) {
        http_reply_header(req, "X-Next-Token", token);
    }
    return e2b_reply_json_take(req, 200, TAKE_PTR(list), e);
}
