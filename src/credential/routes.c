/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/routes.h"

#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "credential/secret.h"

#define FOR_GATEWAY (1u << 0)
#define FOR_NETWORK (1u << 1)
#define FOR_SANDBOX (1u << 2)
#define FOR_ROOT (1u << 3)

#define BODY_MAX (256u * 1024)
/* While it waits for a change: how often it looks whether we stop or nobody waits any more. */
#define TARGETS_LOOK_MS 500u

static struct manager *manager_of(const struct http_request *req)
{
    return ((struct service *)http_request_ctx(req))->manager;
}

static unsigned kinds_of(const struct service *s, uid_t uid)
{
    return (uid == s->gateway_uid ? FOR_GATEWAY : 0) | (uid == s->network_uid ? FOR_NETWORK : 0) |
           (uid == s->sandbox_uid ? FOR_SANDBOX : 0) | (uid == 0 ? FOR_ROOT : 0);
}

bool service_peer_allowed(const struct ucred *peer, void *service)
{
    return kinds_of(service, peer->uid) != 0;
}

static int check_peer(struct http_request *req, const struct http_route *route, struct err *e)
{
    const struct service *s = http_request_ctx(req);
    struct ucred peer;

    if (!http_request_peer(req, &peer) || !(kinds_of(s, peer.uid) & route->flags)) {
        return err_set(e, -EPERM, "not_for_you", "this is not for the user that asks");
    }
    return 0;
}

/* ---- what the API gateway asks ---- */

/* {"actor":{...},"body":{...}} */
static int read_asked(struct http_request *req, struct manager_actor *who, json_t **ret_root,
                      json_t **ret_body, struct err *e)
{
    char *text = NULL;
    size_t len = 0;
    json_t *actor;
    int r = http_body_all(req, BODY_MAX, &text, &len, e);

    r = r < 0 ? r : json_parse_untrusted(text, len, ret_root, e);
    secret_free(text);
    if (r < 0) {
        return r;
    }
    actor = json_object_get(*ret_root, "actor");
    *ret_body = json_object_get(*ret_root, "body");
    *who = (struct manager_actor){
        .organisation = json_get_string(actor, "organisation", ""),
        .project = json_get_string(actor, "project", ""),
        .key = json_get_string(actor, "key", ""),
        .whole_organisation = json_get_bool(actor, "whole_organisation", false),
    };
    if (!id_valid(ID_ORGANISATION, who->organisation) || !id_valid(ID_PROJECT, who->project)) {
        return err_set(e, -EINVAL, NULL, "an actor has an organisation and a project");
    }
    return 0;
}

static int add_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *root = NULL;
    json_t *body = NULL;
    json_t *answer = NULL;
    struct manager_actor who;
    int r = read_asked(req, &who, &root, &body, e);

    r = r < 0 ? r : manager_add(manager_of(req), &who, body, &answer, e);
    return r < 0 ? r : http_reply_json_take(req, 201, answer, e);
}

static int list_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *root = NULL;
    json_t *body = NULL;
    struct manager_actor who;
    int r = read_asked(req, &who, &root, &body, e);

    return r < 0 ? r
                 : http_reply_json_take(
                       req, 200,
                       json_pack("{s:o}", "credentials", manager_list(manager_of(req), &who)), e);
}

static int get_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *root = NULL;
    json_t *body = NULL;
    json_t *answer = NULL;
    struct manager_actor who;
    int r = read_asked(req, &who, &root, &body, e);

    r = r < 0 ? r : manager_get(manager_of(req), &who, http_request_param(req, "id"), &answer, e);
    return r < 0 ? r : http_reply_json_take(req, 200, answer, e);
}

static int change_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *root = NULL;
    json_t *body = NULL;
    json_t *answer = NULL;
    struct manager_actor who;
    int r = read_asked(req, &who, &root, &body, e);

    r = r < 0 ? r
              : manager_change(manager_of(req), &who, http_request_param(req, "id"), body, &answer,
                               e);
    return r < 0 ? r : http_reply_json_take(req, 200, answer, e);
}

static int remove_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *root = NULL;
    json_t *body = NULL;
    struct manager_actor who;
    int r = read_asked(req, &who, &root, &body, e);

    r = r < 0 ? r : manager_remove(manager_of(req), &who, http_request_param(req, "id"), e);
    return r < 0 ? r : http_reply_empty(req, 204, e);
}

/* ---- secrets of a project, for the API gateway ---- */

typedef int secret_fn(struct manager *m, const struct manager_actor *who, json_t *body,
                      json_t **ret, struct err *e);
typedef int secret_which_fn(struct manager *m, const struct manager_actor *who, const char *which,
                            json_t **ret, struct err *e);

/* One of the two. */
static int secret_answer(struct http_request *req, secret_fn *fn, secret_which_fn *which,
                         struct err *e)
{
    cleanup_json json_t *root = NULL;
    json_t *body = NULL;
    json_t *answer = NULL;
    struct manager_actor who;
    int r = read_asked(req, &who, &root, &body, e);

    if (r == 0) {
        r = fn ? fn(manager_of(req), &who, body, &answer, e)
               : which(manager_of(req), &who, json_get_string(body, "secret", ""), &answer, e);
    }
    return r < 0 ? r : http_reply_json_take(req, 200, answer, e);
}

static int secret_add_handler(struct http_request *req, struct err *e)
{
    return secret_answer(req, manager_secret_add, NULL, e);
}

static int secret_change_handler(struct http_request *req, struct err *e)
{
    return secret_answer(req, manager_secret_change, NULL, e);
}

static int secret_get_handler(struct http_request *req, struct err *e)
{
    return secret_answer(req, NULL, manager_secret_get, e);
}

static int secret_remove_handler(struct http_request *req, struct err *e)
{
    return secret_answer(req, NULL, manager_secret_remove, e);
}

static int secret_list_handler(struct http_request *req, struct err *e)
{
    struct json_bounds bounds = {.min = 1, .max = NAMED_PROJECT_MAX, .fallback = 100};
    cleanup_json json_t *root = NULL;
    json_t *body = NULL;
    json_t *list;
    struct manager_actor who;
    int64_t limit = 0;
    bool more = false;
    int r = read_asked(req, &who, &root, &body, e);

    r = r < 0 ? r : json_get_bounded(body, "limit", bounds, &limit, e);
    if (r < 0) {
        return r;
    }
    list = manager_secret_list(manager_of(req), &who, json_get_string(body, "after", ""),
                               (size_t)limit, &more);
    return http_reply_json_take(req, 200, json_pack("{s:o, s:b}", "secrets", list, "more", more),
                                e);
}

static int log_handler(struct http_request *req, struct err *e)
{
    struct json_bounds bounds = {.min = 1, .max = AUDIT_LIST_MAX, .fallback = 100};
    cleanup_json json_t *root = NULL;
    json_t *body = NULL;
    json_t *rows = NULL;
    struct manager_actor who;
    int64_t limit = 0;
    int r = read_asked(req, &who, &root, &body, e);

    r = r < 0 ? r : json_get_bounded(body, "limit", bounds, &limit, e);
    r = r < 0 ? r
              : audit_list(manager_of(req)->audit, who.organisation,
                           who.whole_organisation ? NULL : who.project, (size_t)limit, &rows, e);
    return r < 0 ? r : http_reply_json_take(req, 200, json_pack("{s:o}", "events", rows), e);
}

static int verify_handler(struct http_request *req, struct err *e)
{
    struct audit_check c;
    int r = audit_verify(manager_of(req)->state_dir, &c, e);

    return r < 0 ? r
                 : http_reply_json_take(req, 200,
                                        json_pack("{s:b, s:I, s:I, s:s, s:s*}", "intact", c.intact,
                                                  "first", (json_int_t)c.first, "last",
                                                  (json_int_t)c.last, "hash", c.hash, "problem",
                                                  c.intact ? NULL : c.what),
                                        e);
}

/* ---- what the network gateway asks ---- */

static int authority_handler(struct http_request *req, struct err *e)
{
    cleanup_buf struct buf pem = BUF_INIT(AUTHORITY_PEM_MAX);
    cleanup_buf struct buf ssh = BUF_INIT(AUTHORITY_PEM_MAX);
    const char *organisation = http_query_get(req, "organisation");
    int r;

    organisation = organisation ? organisation : "";
    r = manager_authority(manager_of(req), organisation, &pem, e);
    r = r < 0 ? r : manager_ssh_host(manager_of(req), organisation, &ssh, e);
    return r < 0 ? r
                 : http_reply_json_take(req, 200,
                                        json_pack("{s:s, s:s}", "certificate", buf_str(&pem),
                                                  "ssh_host_key", buf_str(&ssh)),
                                        e);
}

static int leaf_handler(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {
        {"organisation", JSON_FIELD_STRING, JSON_REQUIRED},
        {"name", JSON_FIELD_STRING, JSON_REQUIRED},
        {"key", JSON_FIELD_STRING, JSON_REQUIRED},
    };
    cleanup_json json_t *body = NULL;
    cleanup_buf struct buf spki = BUF_INIT(AUTHORITY_SPKI_MAX);
    cleanup_buf struct buf pem = BUF_INIT(AUTHORITY_PEM_MAX);
    const char *key;
    int r = http_body_json(req, BODY_MAX, &body, e);

    r = r < 0 ? r : json_check_object(body, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    key = json_get_string(body, "key", "");
    if (base64_decode(key, strlen(key), &spki) < 0) {
        return err_set(e, -EINVAL, "invalid_key", "'key' is not base64 of a public key");
    }
    r = authority_sign(manager_of(req)->authority, json_get_string(body, "organisation", ""),
                       json_get_string(body, "name", ""), spki.data, spki.len, &pem, e);
    return r < 0 ? r
                 : http_reply_json_take(req, 200, json_pack("{s:s}", "certificate", buf_str(&pem)),
                                        e);
}

static int targets_handler(struct http_request *req, struct err *e)
{
    struct store *s = manager_of(req)->store;
    struct http_query_bounds bounds = {.min = 0, .max = INT64_MAX, .fallback = 0};
    uint64_t deadline_ns = deadline_in_ms(TARGETS_WAIT_MS);
    uint64_t generation = 0;
    int64_t known = 0;
    json_t *list;
    int r = http_query_int(req, "known", bounds, &known, e);

    if (r < 0) {
        return r;
    }
    while (known > 0 && !deadline_passed(deadline_ns) && !http_request_stopping(req) &&
           !http_client_gone(req) &&
           store_wait(s, (uint64_t)known, deadline_in_ms(TARGETS_LOOK_MS)) == (uint64_t)known) {
    }
    list = store_targets(s, &generation);
    return http_reply_json_take(
        req, 200, json_pack("{s:I, s:o}", "generation", (json_int_t)generation, "targets", list),
        e);
}

static int read_use(json_t *body, struct manager_use *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"organisation", JSON_FIELD_STRING, JSON_REQUIRED},
        {"project", JSON_FIELD_STRING, JSON_REQUIRED},
        {"sandbox", JSON_FIELD_STRING, JSON_REQUIRED},
        {"host", JSON_FIELD_STRING, JSON_REQUIRED},
        {"port", JSON_FIELD_INT, JSON_REQUIRED},
        {"method", JSON_FIELD_STRING, JSON_REQUIRED},
        {"path", JSON_FIELD_STRING, JSON_REQUIRED},
        {"placeholders", JSON_FIELD_ARRAY, 0},
        {"region", JSON_FIELD_STRING, 0},
        {"service", JSON_FIELD_STRING, 0},
    };
    int r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
    json_t *names = json_object_get(body, "placeholders");

    if (r < 0) {
        return r;
    }
    *ret = (struct manager_use){
        .q = {.organisation = json_get_string(body, "organisation", ""),
              .project = json_get_string(body, "project", ""),
              .sandbox = json_get_string(body, "sandbox", ""),
              .host = json_get_string(body, "host", ""),
              .port = (uint16_t)json_get_int(body, "port", 0),
              .method = json_get_string(body, "method", ""),
              .path = json_get_string(body, "path", "")},
    };
    for (size_t i = 0; i < json_array_size(names) && ret->n_names < ARRAY_SIZE(ret->names); i++) {
        const char *name = json_string_value(json_array_get(names, i));

        if (name) {
            ret->names[ret->n_names++] = name;
        }
    }
    /* A region that does not fit is none. */
    if (str_copy(ret->sign.region, sizeof(ret->sign.region), json_get_string(body, "region", "")) <
            0 ||
        str_copy(ret->sign.service, sizeof(ret->sign.service),
                 json_get_string(body, "service", "")) < 0) {
        ret->sign = (struct sigv4_scope){0};
    }
    return 0;
}

static int use_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    cleanup_plan struct plan plan = {0};
    struct manager_use use;
    int r = http_body_json(req, BODY_MAX, &body, e);

    r = r < 0 ? r : read_use(body, &use, e);
    r = r < 0 ? r : manager_use(manager_of(req), &use, &plan, e);
    return r < 0 ? r : http_reply_json_take(req, 200, plan_json(&plan), e);
}

/* {"organisation","project","sandbox","text"}: text is what is sent, byte for byte, so that the signature is over what was made. */
static int notify_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    struct credential_request q = {.host = "", .method = "POST", .path = "/"};
    int r = http_body_json(req, BODY_MAX, &body, e);

    if (r < 0) {
        return r;
    }
    q.organisation = json_get_string(body, "organisation", "");
    q.project = json_get_string(body, "project", "");
    q.sandbox = json_get_string(body, "sandbox", "");
    r = manager_notify(manager_of(req), &q, json_get_string(body, "text", ""), e);
    return r < 0 ? r : http_reply_json_take(req, 200, json_pack("{s:b}", "sent", true), e);
}

/* ---- SSH ---- */

static int read_ssh(struct http_request *req, json_t **ret_body, struct credential_request *ret,
                    struct err *e)
{
    int r = http_body_json(req, BODY_MAX, ret_body, e);

    if (r == 0) {
        *ret = (struct credential_request){
            .organisation = json_get_string(*ret_body, "organisation", ""),
            .project = json_get_string(*ret_body, "project", ""),
            .sandbox = json_get_string(*ret_body, "sandbox", ""),
            .host = json_get_string(*ret_body, "host", ""),
            .port = (uint16_t)json_get_int(*ret_body, "port", 0),
            .method = "SSH",
            .path = "/",
        };
    }
    return r;
}

static int ssh_open_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    struct credential_request q;
    json_t *answer = NULL;
    int r = read_ssh(req, &body, &q, e);

    r = r < 0 ? r : manager_ssh_open(manager_of(req), &q, &answer, e);
    return r < 0 ? r : http_reply_json_take(req, 200, answer, e);
}

static int ssh_sign_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    cleanup_buf struct buf data = BUF_INIT(SSH_AGENT_MAX);
    cleanup_buf struct buf signature = BUF_INIT(SSH_AGENT_MAX);
    cleanup_buf struct buf text = BUF_INIT(2 * SSH_AGENT_MAX);
    struct credential_request q;
    const char *base64;
    int r = read_ssh(req, &body, &q, e);

    if (r < 0) {
        return r;
    }
    base64 = json_get_string(body, "data", "");
    if (base64_decode(base64, strlen(base64), &data) < 0) {
        return err_set(e, -EINVAL, "invalid_field", "'data' is not base64 of a login");
    }
    r = manager_ssh_sign(manager_of(req), &q,
                         (struct ssh_view){(const uint8_t *)data.data, data.len}, &signature, e);
    r = r < 0 ? r : base64_encode(signature.data, signature.len, &text);
    return r < 0
               ? r
               : http_reply_json_take(req, 200, json_pack("{s:s}", "signature", buf_str(&text)), e);
}

static int health_handler(struct http_request *req, struct err *e)
{
    return http_reply_json_take(req, 200, json_pack("{s:s}", "status", "ok"), e);
}

static int metrics_handler(struct http_request *req, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(BODY_MAX);
    int r = metric_print_all(&text);

    return r < 0 ? err_wrap(e, r, "printing the metrics")
                 : http_reply_json_take(req, 200, json_pack("{s:s}", "text", buf_str(&text)), e);
}

static const struct http_route routes[] = {
    {"GET", "/v1/metrics", metrics_handler, FOR_ROOT | FOR_GATEWAY | FOR_SANDBOX},
    {"GET", "/v1/health", health_handler, FOR_ROOT | FOR_GATEWAY | FOR_NETWORK | FOR_SANDBOX},
    {"POST", "/v1/secrets/add", secret_add_handler, FOR_ROOT | FOR_GATEWAY},
    {"POST", "/v1/secrets/list", secret_list_handler, FOR_ROOT | FOR_GATEWAY},
    {"POST", "/v1/secrets/get", secret_get_handler, FOR_ROOT | FOR_GATEWAY},
    {"POST", "/v1/secrets/change", secret_change_handler, FOR_ROOT | FOR_GATEWAY},
    {"POST", "/v1/secrets/remove", secret_remove_handler, FOR_ROOT | FOR_GATEWAY},
    {"POST", "/v1/credentials/add", add_handler, FOR_ROOT | FOR_GATEWAY},
    {"POST", "/v1/credentials/list", list_handler, FOR_ROOT | FOR_GATEWAY},
    {"POST", "/v1/credentials/{id}/get", get_handler, FOR_ROOT | FOR_GATEWAY},
    {"POST", "/v1/credentials/{id}/change", change_handler, FOR_ROOT | FOR_GATEWAY},
    {"POST", "/v1/credentials/{id}/remove", remove_handler, FOR_ROOT | FOR_GATEWAY},
    {"POST", "/v1/log", log_handler, FOR_ROOT | FOR_GATEWAY},
    {"GET", "/v1/verify", verify_handler, FOR_ROOT | FOR_GATEWAY},
    {"GET", "/v1/authority", authority_handler, FOR_ROOT | FOR_GATEWAY | FOR_NETWORK | FOR_SANDBOX},
    {"POST", "/v1/leaf", leaf_handler, FOR_NETWORK},
    {"POST", "/v1/use", use_handler, FOR_NETWORK},
    {"POST", "/v1/notify", notify_handler, FOR_NETWORK},
    {"GET", "/v1/targets", targets_handler, FOR_NETWORK | FOR_GATEWAY},
    {"POST", "/v1/ssh/open", ssh_open_handler, FOR_NETWORK},
    {"POST", "/v1/ssh/sign", ssh_sign_handler, FOR_NETWORK},
};

static const struct http_router router = {routes, ARRAY_SIZE(routes), check_peer};

void service_done(void *ctx, struct http_request *req, const struct http_done *done)
{
    (void)ctx;
    (void)req;
    log_debug(NULL, "access method=%s path=%.200s status=%d error=%d ms=%.1f", done->method,
              done->path, done->status, -done->error,
              (double)done->duration_ns / (double)NS_PER_MS);
}

int service_handle(struct http_request *req, struct err *e)
{
    http_request_adopt(req);
    return http_router_handle(&router, req, e);
}
