/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HashiCorp Vault and OpenBao, secrets engine Transit (their published HTTP API). The key of an organisation is
 * MOUNT/keys/PREFIXORGANISATION, of type aes256-gcm96:
 *
 *     POST MOUNT/encrypt/KEY       {"plaintext", "associated_data"}   {"data": {"ciphertext": "vault:v3:..."}}
 *     POST MOUNT/decrypt/KEY       {"ciphertext", "associated_data"}  {"data": {"plaintext"}}
 *     POST MOUNT/keys/KEY          makes it
 *     POST MOUNT/keys/KEY/rotate
 *     POST MOUNT/keys/KEY/config   {"deletion_allowed": true}, then DELETE MOUNT/keys/KEY
 *
 * A key that the service has archived, whose min_decryption_version has passed ours, or that our policy does not let us use, is
 * refused there, and so is what it has wrapped.
 */
#include "volume/kms-transit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "http/client.h"
#include "volume/kms-json.h"

#define CALL_MS 10000u
#define TOKEN_MAX 4096u

struct kms_transit {
    struct kms base;
    struct http_client *http; /* owned */
    char *mount;              /* owned, as the rest */
    char *prefix;
    char *token_file;
    char *name_space; /* "": none */
};

static int add_token(const struct kms_transit *k, struct http_headers *headers, struct err *e)
{
    cleanup_secret_buf struct buf token = BUF_INIT(TOKEN_MAX);
    int r = fs_read_file(AT_FDCWD, k->token_file, &token);

    if (r < 0) {
        return err_set(e, -EHOSTDOWN, "key_service_unavailable",
                       "the key service's token cannot be read from '%s'", k->token_file);
    }
    while (token.len > 0 && strchr(" \r\n", token.data[token.len - 1])) {
        token.data[--token.len] = '\0';
    }
    http_headers_set(headers, "X-Vault-Token", buf_str(&token));
    http_headers_set(headers, "X-Vault-Request", "true");
    if (k->name_space[0]) {
        http_headers_set(headers, "X-Vault-Namespace", k->name_space);
    }
    return 0;
}

/* What a failure means to our callers. status 0: no answer. */
static int translate(int status, const char *organisation, const struct err *why, struct err *e)
{
    switch (status) {
    case 400: /* a version that is too old, another key, or a text that was changed */
    case 403:
    case 404:
        return kms_refused(organisation,
                           status == 404   ? "the key service has no such key"
                           : status == 403 ? "the key service does not let us"
                                           : "the key service refuses it",
                           e);
    default:
        return err_set(e, -EHOSTDOWN, "key_service_unavailable",
                       "the key service does not answer properly (%d): %.200s", status, why->msg);
    }
}

/* what: "encrypt", "keys"; rest: after the key's name. *ret may be NULL. *ret_status too. */
static int call(struct kms_transit *k, const char *method, const char *what,
                const char *organisation, const char *rest, const json_t *body, json_t **ret,
                int *ret_status, struct err *e)
{
    cleanup_free char *target =
        xasprintf("/v1/%s/%s/%s%s%s", k->mount, what, k->prefix, organisation, rest);
    cleanup_secret_headers struct http_headers headers = HTTP_HEADERS_INIT;
    int status = 0;
    const struct http_json_opts opts = {.method = method,
                                        .target = target,
                                        .body = body,
                                        .headers = &headers,
                                        .deadline_ns = deadline_in_ms(CALL_MS),
                                        .ret_status = &status};
    struct err why = {0};
    int r = add_token(k, &headers, e);

    if (r < 0) {
        return r;
    }
    r = http_client_json(k->http, &opts, ret, &why);
    if (ret_status) {
        *ret_status = status;
    }
    return r < 0 ? translate(status, organisation, &why, e) : 0;
}

/* What a wrapped key is bound to. */
static json_t *bound_to(const struct kms_use *use)
{
    cleanup_free char *text = xasprintf("%s/%s", use->organisation, use->key_id);

    return kms_json_bytes(text, strlen(text));
}

static int make_key(struct kms_transit *k, const char *organisation, struct err *e)
{
    cleanup_json json_t *body = json_pack("{s:s}", "type", "aes256-gcm96");

    return call(k, "POST", "keys", organisation, "", body, NULL, NULL, e);
}

static int encrypt(struct kms_transit *k, const struct kms_use *use, const struct secret *key,
                   json_t **ret, struct err *e)
{
    cleanup_json json_t *body =
        json_pack("{s:o, s:o}", "plaintext", kms_json_bytes(key->p, key->len), "associated_data",
                  bound_to(use));

    return call(k, "POST", "encrypt", use->organisation, "", body, ret, NULL, e);
}

static int transit_wrap(struct kms *kms, const struct kms_use *use, const struct secret *key,
                        struct buf *ret, struct err *e)
{
    struct kms_transit *k = (struct kms_transit *)kms;
    cleanup_json json_t *answer = NULL;
    const char *text;
    struct err why = {0};
    int status = 0;
    int r = call(k, "GET", "keys", use->organisation, "", NULL, NULL, &status, &why);

    if (r < 0 && status == 404) {
        r = make_key(k, use->organisation, &why);
    }
    if (r < 0 && status != 403) { /* who may encrypt need not be allowed to look */
        if (e) {
            *e = why;
        }
        return r;
    }
    r = encrypt(k, use, key, &answer, e);
    if (r < 0) {
        return r;
    }
    text = json_get_string(json_object_get(answer, "data"), "ciphertext", "");
    if (!str_starts(text, "vault:") || buf_add_str(ret, text) < 0) {
        return err_set(e, -EHOSTDOWN, "key_service_unavailable",
                       "the key service gave no wrapped key");
    }
    return 0;
}

static int transit_unwrap(struct kms *kms, const struct kms_use *use, const char *wrapped,
                          struct secret *ret, struct err *e)
{
    struct kms_transit *k = (struct kms_transit *)kms;
    cleanup_json json_t *answer = NULL;
    cleanup_json json_t *body = NULL;
    int r;

    if (!str_starts(wrapped, "vault:v")) {
        return kms_damaged(e);
    }
    body = json_pack("{s:s, s:o}", "ciphertext", wrapped, "associated_data", bound_to(use));
    if (!body) {
        return kms_damaged(e); /* no UTF-8 */
    }
    r = call(k, "POST", "decrypt", use->organisation, "", body, &answer, NULL, e);
    if (r < 0) {
        return r;
    }
    return kms_json_secret(json_object_get(answer, "data"), "plaintext", ret) < 0
               ? err_set(e, -EHOSTDOWN, "key_service_unavailable", "the key service gave no key")
               : 0;
}

static int transit_rotate(struct kms *kms, const char *organisation, struct err *e)
{
    struct kms_transit *k = (struct kms_transit *)kms;
    cleanup_json json_t *nothing = json_object();
    struct err why = {0};
    int status = 0;
    int r = call(k, "POST", "keys", organisation, "/rotate", nothing, NULL, &status, &why);

    if (r < 0 && status == 404) {
        return make_key(k, organisation, e);
    }
    if (r < 0 && e) {
        *e = why;
    }
    return r;
}

static int transit_destroy(struct kms *kms, const char *organisation, struct err *e)
{
    struct kms_transit *k = (struct kms_transit *)kms;
    cleanup_json json_t *allow = json_pack("{s:b}", "deletion_allowed", 1);
    struct err why = {0};
    int status = 0;
    int r = call(k, "POST", "keys", organisation, "/config", allow, NULL, &status, &why);

    if (r == 0) {
        r = call(k, "DELETE", "keys", organisation, "", NULL, NULL, &status, &why);
    }
    if (r < 0 && status == 404) {
        return 0;
    }
    if (r < 0 && e) {
        *e = why;
    }
    return r;
}

static void transit_free(struct kms *kms)
{
    struct kms_transit *k = (struct kms_transit *)kms;

    http_client_free(k->http);
    free(k->mount);
    free(k->prefix);
    free(k->token_file);
    free(k->name_space);
    free(k);
}

static const struct kms_ops ops = {
    .name = "transit",
    .wrap = transit_wrap,
    .unwrap = transit_unwrap,
    .rotate = transit_rotate,
    .destroy = transit_destroy,
    .free = transit_free,
};

int kms_transit_open(const struct kms_transit_opts *o, struct kms **ret, struct err *e)
{
    const struct http_client_opts client = {.ca_file = o->ca_file};
    struct kms_transit *k;
    int r;

    if (!o->url || !o->token_file) {
        return err_set(e, -EINVAL, NULL,
                       "keys in 'transit' need transit-url and transit-token-file");
    }
    k = xnew(struct kms_transit);
    k->base.ops = &ops;
    k->mount = xstrdup(o->mount);
    k->prefix = xstrdup(o->prefix);
    k->token_file = xstrdup(o->token_file);
    k->name_space = xstrdup(o->name_space ? o->name_space : "");
    r = http_client_new(o->url, &client, &k->http, e);
    if (r < 0) {
        transit_free(&k->base);
        return r;
    }
    *ret = &k->base;
    return 0;
}
