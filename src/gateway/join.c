/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How nodes get certificates: a token once, from an operator; after that the certificate itself, before it ends.
 *
 * A node that joins is in the table of nodes when it has its certificate, and is asked as soon as it serves. Everything about
 * the request is checked before the token is used up.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/id.h"
#include "database/nodes.h"
#include "gateway/auth.h"
#include "gateway/gateway.h"
#include "gateway/node-authority.h"
#include "wire/url.h"

#define TOKEN_PREFIX "nt_"
#define TOKEN_BYTES 24u
#define LIVES_S_DEFAULT 3600
#define LIVES_S_MAX 86400

static int authority_of(const struct http_request *req, struct node_authority **ret, struct err *e)
{
    *ret = gateway_of(req)->node_authority;
    return *ret ? 0
                : err_set(e, -EOPNOTSUPP, "no_node_authority",
                          "this gateway signs no certificates: start it with --node-authority, or "
                          "make certificates with space-certificates");
}

int node_token_handler(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"lives_s", JSON_FIELD_INT, 0}};
    struct gateway *g = gateway_of(req);
    struct node_authority *authority;
    cleanup_json json_t *body = NULL;
    unsigned char bytes[TOKEN_BYTES];
    char hex[2 * TOKEN_BYTES + 1];
    char hash[KEY_HASH_SIZE];
    cleanup_free char *token = NULL;
    int64_t lives_s;
    int r = authority_of(req, &authority, e);

    r = r < 0 ? r : http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    r = r < 0 ? r : json_check_object(body, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    lives_s = json_get_int(body, "lives_s", LIVES_S_DEFAULT);
    if (lives_s < 1 || lives_s > LIVES_S_MAX) {
        return err_field(e, -EINVAL, "invalid_lives_s", "lives_s",
                         "'lives_s' must be 1 to %d seconds", LIVES_S_MAX);
    }
    random_bytes(bytes, sizeof(bytes));
    hex_encode(bytes, sizeof(bytes), hex);
    token = xasprintf(TOKEN_PREFIX "%s", hex);
    auth_hash(token, strlen(token), hash);
    r = db_node_token_add(g->db, hash, lives_s * 1000, e);
    if (r < 0) {
        return r;
    }
    control_audit(g->control, actor_of(req), "node.token", "", "");
    return http_reply_json_take(
        req, 201, json_pack("{s:s, s:I}", "token", token, "lives_s", (json_int_t)lives_s), e);
}

/* A text of at most so many bytes, out of a body whose fields were checked. */
static int text_of(json_t *body, const char *name, size_t max, const char **ret, struct err *e)
{
    *ret = json_get_string(body, name, "");
    return strlen(*ret) > 0 && strlen(*ret) <= max
               ? 0
               : err_field(e, -EINVAL, "invalid_field", name, "'%s' must be 1 to %zu bytes", name,
                           max);
}

/* Nodes let in who is called "space-gateway": nobody else gets that name, though it would be for a server. */
static bool is_reserved(const char *name)
{
    return strcasecmp(name, "space-gateway") == 0;
}

static int read_name(json_t *body, const char **ret, struct err *e)
{
    *ret = json_get_string(body, "name", "");
    return node_name_valid(*ret) && !is_reserved(*ret)
               ? 0
               : err_field(e, -EINVAL, "invalid_name", "name",
                           "'name' must be 1 to 63 of a-z, 0-9, '-' and '.'");
}

/* The host of "https://HOST:PORT". */
static int host_of(const char *address, struct url *ret, struct err *e)
{
    return url_parse(address, ret) == 0 && ret->scheme == URL_HTTPS && !is_reserved(ret->host)
               ? 0
               : err_field(e, -EINVAL, "invalid_address", "address",
                           "'address' must be https://HOST:PORT");
}

static int reply_certificate(struct http_request *req, int status, struct node_authority *a,
                             const char *name, const char *pem, struct err *e)
{
    return http_reply_json_take(req, status,
                                json_pack("{s:s, s:s, s:s}", "name", name, "certificate", pem,
                                          "authority", node_authority_pem(a)),
                                e);
}

static int admit(struct gateway *g, const char *token, struct node_row *row, struct err *e)
{
    char hash[KEY_HASH_SIZE];
    int r;

    auth_hash(token, strlen(token), hash);
    r = db_node_token_use(g->db, hash, e);
    return r < 0 ? r : db_node_put(g->db, row, e);
}

int node_join_handler(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {
        {"token", JSON_FIELD_STRING, JSON_REQUIRED},
        {"name", JSON_FIELD_STRING, JSON_REQUIRED},
        {"address", JSON_FIELD_STRING, JSON_REQUIRED},
        {"csr", JSON_FIELD_STRING, JSON_REQUIRED},
    };
    struct gateway *g = gateway_of(req);
    struct node_row row = {.leased = true, .joined_at_ms = control_now_ms(g->control)};
    struct node_authority *a;
    cleanup_json json_t *body = NULL;
    cleanup_free char *pem = NULL;
    struct node_request want = {0};
    const char *address;
    const char *token;
    struct url url;
    int r = authority_of(req, &a, e);

    r = r < 0 ? r : http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    r = r < 0 ? r : json_check_object(body, fields, ARRAY_SIZE(fields), e);
    r = r < 0 ? r : read_name(body, &want.name, e);
    r = r < 0 ? r : text_of(body, "address", NODE_ADDRESS_SIZE - 1, &address, e);
    r = r < 0 ? r : text_of(body, "token", 2 * TOKEN_BYTES + strlen(TOKEN_PREFIX), &token, e);
    r = r < 0 ? r : text_of(body, "csr", NODE_PEM_MAX, &want.csr, e);
    r = r < 0 ? r : host_of(address, &url, e);
    if (r < 0) {
        return r;
    }
    want.host = url.host;
    snprintf(row.name, sizeof(row.name), "%s", want.name);
    snprintf(row.address, sizeof(row.address), "%s", address);
    r = node_authority_issue(a, &want, &pem, e);
    r = r < 0 ? r : admit(g, token, &row, e);
    if (r < 0) {
        return r;
    }
    control_audit(g->control, /* actor */ NULL, "node.join", row.name, row.address);
    return reply_certificate(req, 201, a, row.name, pem, e);
}

int node_renew_handler(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, JSON_REQUIRED},
        {"certificate", JSON_FIELD_STRING, JSON_REQUIRED},
        {"csr", JSON_FIELD_STRING, JSON_REQUIRED},
    };
    struct gateway *g = gateway_of(req);
    cleanup_node_row struct node_row row = {0};
    struct node_authority *a;
    cleanup_json json_t *body = NULL;
    cleanup_free char *pem = NULL;
    struct node_request want = {0};
    const char *certificate;
    struct url url;
    int r = authority_of(req, &a, e);

    r = r < 0 ? r : http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    r = r < 0 ? r : json_check_object(body, fields, ARRAY_SIZE(fields), e);
    r = r < 0 ? r : read_name(body, &want.name, e);
    r = r < 0 ? r : text_of(body, "certificate", NODE_PEM_MAX, &certificate, e);
    r = r < 0 ? r : text_of(body, "csr", NODE_PEM_MAX, &want.csr, e);
    r = r < 0 ? r : node_authority_knows(a, &want, certificate, e);
    r = r < 0 ? r : db_node_get(g->db, want.name, &row, e); /* one that was removed gets none */
    r = r < 0 ? r : host_of(row.address, &url, e);
    if (r < 0) {
        return r;
    }
    want.host = url.host;
    r = node_authority_issue(a, &want, &pem, e);
    return r < 0 ? r : reply_certificate(req, 200, a, row.name, pem, e);
}
