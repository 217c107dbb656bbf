/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials: authenticated here, decided in the credential manager. What a client says goes there with who it is; values go in
 * and never come out. They are wiped here once they were passed on.
 */
#include <stdio.h>
#include <string.h>

#include "credential/secret.h"
#include "gateway/gateway.h"

#define LOG_LIMIT_MAX 1000

static json_t *actor_json(const struct http_request *req)
{
    const struct caller *caller = &request_of(req)->caller;
    json_t *json = json_pack("{s:s, s:s, s:s, s:b}", "organisation", caller->actor.organisation,
                             "project", caller->actor.project, "key", caller->actor.key,
                             "whole_organisation", caller->scope == KEY_SCOPE_ORGANISATION);

    ASSERT(json);
    return json;
}

static int not_here(struct err *e)
{
    return err_set(e, -EHOSTDOWN, "credentials_unavailable",
                   "the credential manager cannot be reached just now: try again");
}

int credentials_ask(struct http_request *req, const char *target, json_t *body_take, json_t **ret,
                    struct err *e)
{
    struct credential_client *client = gateway_of(req)->credentials;
    cleanup_json json_t *body = json_pack("{s:o, s:o}", "actor", actor_json(req), "body",
                                          body_take ? body_take : json_object());
    int r;

    ASSERT(body);
    if (!client) {
        return not_here(e);
    }
    r = credential_client_call(client, "POST", target, body, ret, e);
    return r < 0 && e && str_eq(e->reason, "unavailable") ? not_here(e) : r;
}

/* The body as it is: the credential manager checks it. Our copy of the text is wiped. */
int credentials_body(struct http_request *req, json_t **ret, struct err *e)
{
    char *text = NULL;
    size_t len = 0;
    int r = http_body_all(req, GATEWAY_BODY_MAX, &text, &len, e);

    r = r < 0 ? r : json_parse_untrusted(text, len, ret, e);
    secret_free(text);
    return r;
}

static int target_of(const struct http_request *req, const char *what, char *ret, size_t size,
                     struct err *e)
{
    const char *id = http_request_param(req, "id");

    if (!id_valid(ID_CREDENTIAL, id)) {
        return err_set(e, -ENOENT, "credential_not_found", "there is no such credential");
    }
    snprintf(ret, size, "/v1/credentials/%s/%s", id, what);
    return 0;
}

int credential_create_handler(struct http_request *req, struct err *e)
{
    json_t *body = NULL;
    json_t *answer = NULL;
    int r = credentials_body(req, &body, e);

    r = r < 0 ? r : credentials_ask(req, "/v1/credentials/add", body, &answer, e);
    if (r < 0) {
        return r;
    }
    control_audit(gateway_of(req)->control, actor_of(req), "credential.add",
                  json_get_string(answer, "id", ""), json_get_string(answer, "name", ""));
    return http_reply_json_take(req, 201, answer, e);
}

int credential_list_handler(struct http_request *req, struct err *e)
{
    json_t *answer = NULL;
    int r = credentials_ask(req, "/v1/credentials/list", NULL, &answer, e);

    return r < 0 ? r : http_reply_json_take(req, 200, answer, e);
}

int credential_get_handler(struct http_request *req, struct err *e)
{
    json_t *answer = NULL;
    char target[96];
    int r = target_of(req, "get", target, sizeof(target), e);

    r = r < 0 ? r : credentials_ask(req, target, NULL, &answer, e);
    return r < 0 ? r : http_reply_json_take(req, 200, answer, e);
}

int credential_patch_handler(struct http_request *req, struct err *e)
{
    json_t *body = NULL;
    json_t *answer = NULL;
    char target[96];
    bool rotates;
    int r = target_of(req, "change", target, sizeof(target), e);

    r = r < 0 ? r : credentials_body(req, &body, e);
    if (r < 0) {
        return r;
    }
    rotates = json_object_get(body, "value") != NULL;
    r = credentials_ask(req, target, body, &answer, e);
    if (r < 0) {
        return r;
    }
    control_audit(gateway_of(req)->control, actor_of(req),
                  rotates ? "credential.rotate" : "credential.change",
                  json_get_string(answer, "id", ""), json_get_string(answer, "name", ""));
    return http_reply_json_take(req, 200, answer, e);
}

int credential_delete_handler(struct http_request *req, struct err *e)
{
    char target[96];
    int r = target_of(req, "remove", target, sizeof(target), e);

    r = r < 0 ? r : credentials_ask(req, target, NULL, /* ret */ NULL, e);
    if (r < 0) {
        return r;
    }
    control_audit(gateway_of(req)->control, actor_of(req), "credential.remove",
                  http_request_param(req, "id"), "");
    return http_reply_empty(req, 204, e);
}

int credential_log_handler(struct http_request *req, struct err *e)
{
    struct http_query_bounds bounds = {.min = 1, .max = LOG_LIMIT_MAX, .fallback = 100};
    json_t *answer = NULL;
    int64_t limit = 0;
    int r = http_query_int(req, "limit", bounds, &limit, e);

    r = r < 0 ? r
              : credentials_ask(req, "/v1/log", json_pack("{s:I}", "limit", (json_int_t)limit),
                                &answer, e);
    return r < 0 ? r : http_reply_json_take(req, 200, answer, e);
}

/* Of the whole log, whose lines are everybody's: how many, and whether they are what was written. */
int credential_verify_handler(struct http_request *req, struct err *e)
{
    struct credential_client *client = gateway_of(req)->credentials;
    json_t *answer = NULL;
    int r = client ? credential_client_call(client, "GET", "/v1/verify", NULL, &answer, e)
                   : not_here(e);

    if (r < 0) {
        return e && str_eq(e->reason, "unavailable") ? not_here(e) : r;
    }
    return http_reply_json_take(req, 200, answer, e);
}

int credential_authority_handler(struct http_request *req, struct err *e)
{
    struct credential_client *client = gateway_of(req)->credentials;
    cleanup_free char *pem = NULL;
    cleanup_free char *ssh = NULL;
    int r = client ? credential_client_authority(client, actor_of(req)->organisation,
                                                 GATEWAY_NODE_MS, &pem, &ssh, e)
                   : not_here(e);

    if (r < 0) {
        return e && str_eq(e->reason, "unavailable") ? not_here(e) : r;
    }
    return http_reply_json_take(
        req, 200, json_pack("{s:s, s:s*}", "certificate", pem, "ssh_host_key", ssh), e);
}
