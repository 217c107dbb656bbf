/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HashiCorp Vault and OpenBao, KV version 2 (their published HTTP API):
 *
 *     GET    /v1/MOUNT/data/PATH       {"data":{"data":{FIELD: VALUE, ...},"metadata":{...}}}; 404: none or deleted
 *     POST   /v1/MOUNT/data/PATH       {"data":{...}}: a new version
 *     DELETE /v1/MOUNT/metadata/PATH   all versions
 *
 * Writing one field of several reads the others first and writes with "cas", the version that was read, so that a
 * change by somebody else in between is seen and tried again.
 */
#include "credential/vault.h"

#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "http/client.h"

#define KV_MS 10000u
#define TOKEN_MAX 4096u
#define TRIES 5u

struct vault_kv {
    struct vault base;
    struct http_client *http; /* owned */
    char *mount;              /* owned, as the next three */
    char *prefix;
    char *token_file;
    char *name_space; /* "": none */
};

/* A reference as what the API wants. */
struct place {
    char path[VAULT_REF_MAX + 1];
    char field[VAULT_REF_MAX + 1];
};

static void place_of(const char *ref, struct place *ret)
{
    const char *mark = strchr(ref, '#');

    snprintf(ret->path, sizeof(ret->path), "%.*s", mark ? (int)(mark - ref) : (int)strlen(ref),
             ref);
    snprintf(ret->field, sizeof(ret->field), "%s", mark ? mark + 1 : "value");
}

static int add_token(const struct vault_kv *v, struct http_headers *headers, struct err *e)
{
    cleanup_secret_buf struct buf token = BUF_INIT(TOKEN_MAX);
    int r = fs_read_file(AT_FDCWD, v->token_file, &token);

    if (r < 0) {
        return err_set(e, -EHOSTDOWN, "vault_unavailable", "the vault's token cannot be read");
    }
    while (token.len > 0 && strchr(" \r\n", token.data[token.len - 1])) {
        token.data[--token.len] = '\0';
    }
    http_headers_set(headers, "X-Vault-Token", buf_str(&token));
    http_headers_set(headers, "X-Vault-Request", "true");
    if (v->name_space[0]) {
        http_headers_set(headers, "X-Vault-Namespace", v->name_space);
    }
    return 0;
}

/* What a failure means to our callers. status 0: no answer. */
static int translate(int r, int status, struct err *e)
{
    if (status == 404) {
        return err_set(e, -ENOENT, "no_value", "the vault has no such value");
    }
    if (status == 401 || status == 403) {
        return err_set(e, -EACCES, "vault_refused",
                       "the vault refuses our token for this reference");
    }
    if (r == -ETIMEDOUT) {
        return err_set(e, r, "vault_unavailable", "the vault does not answer in time");
    }
    return err_set(e, -EHOSTDOWN, "vault_unavailable", "the vault does not answer properly (%d)",
                   status);
}

/* kind: "data" or "metadata". *ret may be NULL. -ESTALE: somebody else wrote (cas). */
static int call(struct vault_kv *v, const char *method, const char *kind, const struct place *p,
                const json_t *body, json_t **ret, struct err *e)
{
    cleanup_free char *target =
        xasprintf("/v1/%s/%s/%s%s%s", v->mount, kind, v->prefix, v->prefix[0] ? "/" : "", p->path);
    cleanup_secret_headers struct http_headers headers = HTTP_HEADERS_INIT;
    int status = 0;
    struct http_json_opts opts = {
        .method = method,
        .target = target,
        .body = body,
        .headers = &headers,
        .deadline_ns = deadline_in_ms(KV_MS),
        .ret_status = &status,
    };
    struct err why = {0};
    int r = add_token(v, &headers, e);

    if (r < 0) {
        return r;
    }
    r = http_client_json(v->http, &opts, ret, &why);
    if (r < 0 && status == 400 && body) {
        return -ESTALE;
    }
    return r < 0 ? translate(r, status, e) : 0;
}

/* The fields and their version; an empty object and 0 when there is none. */
static int read_all(struct vault_kv *v, const struct place *p, json_t **ret_answer,
                    json_t **ret_fields, int64_t *ret_version, struct err *e)
{
    json_t *data;
    int r = call(v, "GET", "data", p, NULL, ret_answer, e);

    if (r < 0) {
        return r;
    }
    data = json_object_get(*ret_answer, "data");
    *ret_fields = json_object_get(data, "data");
    *ret_version = json_get_int(json_object_get(data, "metadata"), "version", 0);
    if (!json_is_object(*ret_fields)) {
        return err_set(e, -ENOENT, "no_value", "the vault has no such value");
    }
    return 0;
}

static int kv_get(struct vault *vault, const char *ref, struct secret *ret, struct err *e)
{
    struct vault_kv *v = (struct vault_kv *)vault;
    cleanup_json json_t *answer = NULL;
    json_t *fields = NULL;
    json_t *value;
    int64_t version;
    struct place p;
    int r;

    place_of(ref, &p);
    r = read_all(v, &p, &answer, &fields, &version, e);
    if (r < 0) {
        return r;
    }
    value = json_object_get(fields, p.field);
    if (!json_is_string(value)) {
        return err_set(e, -ENOENT, "no_value", "the vault has no text in the field '%s'", p.field);
    }
    r = secret_init(ret, json_string_value(value), json_string_length(value));
    return r < 0 ? err_wrap(e, r, "reading a value") : 0;
}

/* One field set (or removed: value NULL), the others kept. -ESTALE: again. */
static int change(struct vault_kv *v, const struct place *p, const struct secret *value,
                  struct err *e)
{
    cleanup_json json_t *answer = NULL;
    cleanup_json json_t *body = NULL;
    json_t *fields = NULL;
    json_t *text = NULL;
    int64_t version = 0;
    int r = read_all(v, p, &answer, &fields, &version, e);

    if (r == -ENOENT) {
        version = answer ? version : 0;
        fields = NULL;
    } else if (r < 0) {
        return r;
    }
    fields = fields ? json_copy(fields) : json_object();
    if (value) {
        text = json_stringn(value->p, value->len);
        if (!text) {
            json_decref(fields);
            return err_field(e, -EINVAL, "invalid_field", "value",
                             "this vault keeps text in UTF-8 only");
        }
        json_object_set_new(fields, p->field, text);
    } else {
        json_object_del(fields, p->field);
    }
    if (!value && json_object_size(fields) == 0) {
        json_decref(fields);
        r = call(v, "DELETE", "metadata", p, NULL, NULL, e);
        return r == -ENOENT ? 0 : r;
    }
    /* After a deletion the version goes on where it was: then no cas. */
    body = version > 0
               ? json_pack("{s:{s:I}, s:o}", "options", "cas", (json_int_t)version, "data", fields)
               : json_pack("{s:o}", "data", fields);
    return call(v, "POST", "data", p, body, NULL, e);
}

static int change_in_the_end(struct vault *vault, const char *ref, const struct secret *value,
                             struct err *e)
{
    struct place p;
    int r = -ESTALE;

    place_of(ref, &p);
    for (unsigned i = 0; i < TRIES && r == -ESTALE; i++) {
        r = change((struct vault_kv *)vault, &p, value, e);
    }
    return r == -ESTALE ? err_set(e, -EHOSTDOWN, "vault_unavailable",
                                  "the vault takes no new version of this value")
                        : r;
}

static int kv_put(struct vault *vault, const char *ref, const struct secret *value, struct err *e)
{
    return change_in_the_end(vault, ref, value, e);
}

static int kv_remove(struct vault *vault, const char *ref, struct err *e)
{
    return change_in_the_end(vault, ref, /* value */ NULL, e);
}

static void kv_free(struct vault *vault)
{
    struct vault_kv *v = (struct vault_kv *)vault;

    http_client_free(v->http);
    free(v->mount);
    free(v->prefix);
    free(v->token_file);
    free(v->name_space);
    free(v);
}

static const struct vault_driver kv_driver = {
    .name = "kv",
    .get = kv_get,
    .put = kv_put,
    .remove = kv_remove,
    .free = kv_free,
};

int vault_kv_new(const struct vault_kv_opts *opts, struct vault **ret, struct err *e)
{
    struct http_client_opts http_opts = {.ca_file = opts->ca_file};
    struct http_client *http = NULL;
    struct vault_kv *v;
    int r;

    ASSERT(opts->url && opts->token_file);
    r = http_client_new(opts->url, &http_opts, &http, e);
    if (r < 0) {
        return r;
    }
    v = xnew(struct vault_kv);
    v->base.driver = &kv_driver;
    v->http = http;
    v->mount = xstrdup(opts->mount ? opts->mount : "secret");
    v->prefix = xstrdup(opts->prefix ? opts->prefix : "space");
    v->token_file = xstrdup(opts->token_file);
    v->name_space = xstrdup(opts->name_space ? opts->name_space : "");
    *ret = &v->base;
    return 0;
}
