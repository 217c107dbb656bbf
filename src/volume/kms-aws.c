/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AWS Key Management Service (its published API, version 2014-11-01: JSON 1.1 over POST, signed). The key of an organisation
 * is whatever the alias "alias/PREFIXORGANISATION" points to: a symmetric key that the customer made, with imported material or
 * in a key store of their own if they like, or one that is made here when there is no such alias.
 *
 *     Encrypt              under the alias; the encryption context names organisation and data key
 *     Decrypt              the same; KMS looks for the version of the key itself
 *     RotateKeyOnDemand    new material, old texts go on unwrapping
 *     ScheduleKeyDeletion  refuses all use at once; then DeleteAlias, so that a new key can take the name
 *
 * A wrapped text is "awskms:" and KMS's blob in base64. What KMS refuses (key disabled, pending deletion, policy or grant
 * withdrawn, another key, another context) is refused here. Busy answers are asked again, but never those of CreateKey,
 * which may have made one.
 */
#include "volume/kms-aws.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/json.h"
#include "http/client.h"
#include "volume/aws.h"
#include "volume/kms-json.h"

#define CALL_MS 10000u
#define TRIES 4u
#define FIRST_PAUSE_MS 100
#define ANSWER_MAX 65536u
#define TYPE_SIZE 64u
#define ALIAS_SIZE 256u
#define MARK "awskms:"
/* The least that KMS takes; until then the customer can take the deletion back. */
#define DELETION_DAYS 7

struct kms_aws {
    struct kms base;
    struct http_client *http; /* owned */
    char *host;               /* owned, as the rest */
    char *region;
    char *prefix;
    char *credentials_file;
};

struct answer {
    int status;
    char type[TYPE_SIZE]; /* of an error: "NotFoundException"; "": none */
    json_t *json;         /* owned */
};

static void answer_done(struct answer *a)
{
    json_decref(a->json);
    *a = (struct answer){0};
}

/* ---- one exchange ---- */

/* "com.amazonaws.kms#NotFoundException:http://..." is NotFoundException. */
static void take_type(struct answer *a)
{
    const char *text = json_get_string(a->json, "__type", "");
    const char *hash = strchr(text, '#');

    text = hash ? hash + 1 : text;
    snprintf(a->type, sizeof(a->type), "%.*s", (int)MIN(strcspn(text, ":"), (size_t)TYPE_SIZE),
             text);
}

static int exchange(struct kms_aws *k, const char *action, const char *body, struct answer *ret,
                    struct err *e)
{
    const struct aws_service service = {.service = "kms",
                                        .region = k->region,
                                        .host = k->host,
                                        .credentials_file = k->credentials_file};
    cleanup_free char *target = xasprintf("TrentService.%s", action);
    const struct aws_request request = {.method = "POST",
                                        .path = "/",
                                        .query = "",
                                        .action = target,
                                        .body = body,
                                        .body_len = strlen(body)};
    cleanup_secret_headers struct http_headers headers = HTTP_HEADERS_INIT;
    const struct http_call_opts opts = {.method = "POST",
                                        .target = "/",
                                        .headers = &headers,
                                        .body_length = (int64_t)request.body_len,
                                        .deadline_ns = deadline_in_ms(CALL_MS)};
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *text =
        NULL; /* may hold a key; what is freed is wiped, see secret_process() */
    size_t len = 0;
    int r = aws_sign(&service, &request, &headers, e);

    http_headers_set(&headers, "Content-Type", "application/x-amz-json-1.1");
    r = r < 0 ? r : http_call_new(k->http, &opts, &call, e);
    r = r < 0 ? r : http_call_write(call, body, request.body_len, e);
    r = r < 0 ? r : http_call_end(call, e);
    r = r < 0 ? r : http_call_head(call, e);
    r = r < 0 ? r : http_call_all(call, ANSWER_MAX, &text, &len, e);
    if (r < 0) {
        return r;
    }
    ret->status = http_call_status(call);
    /* Some actions answer nothing; where something is wanted, it is looked for by who wants it. */
    IGNORE_RESULT(len > 0 ? json_parse_object(text, len, &ret->json, NULL) : 0);
    take_type(ret);
    return 0;
}

/* ---- what it means ---- */

static bool is_busy(int r, const struct answer *a)
{
    static const char *const busy[] = {"ThrottlingException", "KMSInternalException",
                                       "DependencyTimeoutException", "KeyUnavailableException"};

    if (r < 0) {
        return r != -EACCES;
    }
    for (size_t i = 0; i < ARRAY_SIZE(busy); i++) {
        if (str_eq(a->type, busy[i])) {
            return true;
        }
    }
    return a->status == 429 || a->status >= 500;
}

static const char *refusal(const char *type)
{
    static const struct {
        const char *type;
        const char *why;
    } refusals[] = {
        {"NotFoundException", "the key service has no such key"},
        {"DisabledException", "its key is disabled"},
        {"KMSInvalidStateException", "its key is disabled or will be deleted"},
        {"AccessDeniedException", "the key service does not let us"},
        {"InvalidCiphertextException", "the key service refuses it"},
        {"IncorrectKeyException", "another key wrapped it"},
        {"InvalidKeyUsageException", "its key cannot encrypt"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
        if (str_eq(type, refusals[i].type)) {
            return refusals[i].why;
        }
    }
    return NULL;
}

/* *ret is emptied, and holds KMS's answer, also when that is an error (then *e says what it means). */
static int ask(struct kms_aws *k, const char *organisation, const char *action, const json_t *asked,
               struct answer *ret, struct err *e)
{
    cleanup_free char *body = json_text(asked);
    unsigned tries = str_eq(action, "CreateKey") ? 1 : TRIES;
    int pause_ms = FIRST_PAUSE_MS;
    struct err why = {0};
    int r;

    for (unsigned i = 1;; i++) {
        answer_done(ret);
        why = (struct err){0};
        r = exchange(k, action, body, ret, &why);
        if (!is_busy(r, ret) || i == tries) {
            break;
        }
        IGNORE_RESULT(poll(NULL, 0, pause_ms));
        pause_ms *= 2;
    }
    explicit_bzero(body, strlen(body));
    if (r == 0 && ret->status == 200) {
        return 0;
    }
    if (r == 0 && refusal(ret->type)) {
        return kms_refused(organisation, refusal(ret->type), e);
    }
    return err_set(e, -EHOSTDOWN, "key_service_unavailable",
                   "the key service does not answer properly: %s %s: %.200s", action, ret->type,
                   r < 0 ? why.msg : json_get_string(ret->json, "message", ""));
}

/* For where one failure is no failure of the whole: *e is written by the one that counts. */
static int give(const struct err *why, int r, struct err *e)
{
    if (e) {
        *e = *why;
    }
    return r;
}

/* ---- keys ---- */

static void alias_of(const struct kms_aws *k, const char *organisation, char ret[static ALIAS_SIZE])
{
    snprintf(ret, ALIAS_SIZE, "alias/%s%s", k->prefix, organisation);
}

static int delete_key(struct kms_aws *k, const char *organisation, const char *id, struct err *e)
{
    cleanup_json json_t *asked =
        json_pack("{s:s, s:i}", "KeyId", id, "PendingWindowInDays", DELETION_DAYS);
    CLEANUP(answer_done) struct answer a = {0};
    struct err why = {0};
    int r = ask(k, organisation, "ScheduleKeyDeletion", asked, &a, &why);

    if (r < 0 && !str_eq(a.type, "KMSInvalidStateException")) { /* it was before */
        return give(&why, r, e);
    }
    return 0;
}

/* The id of the key that has the organisation's alias. */
static int find_key(struct kms_aws *k, const char *organisation, struct answer *ret,
                    const char **ret_id, struct err *e)
{
    char alias[ALIAS_SIZE];
    cleanup_json json_t *asked = NULL;
    int r;

    alias_of(k, organisation, alias);
    asked = json_pack("{s:s}", "KeyId", alias);
    r = ask(k, organisation, "DescribeKey", asked, ret, e);
    *ret_id = json_get_string(json_object_get(ret->json, "KeyMetadata"), "KeyId", "");
    return r;
}

static int create_key(struct kms_aws *k, const char *organisation, struct answer *ret,
                      const char **ret_id, struct err *e)
{
    cleanup_json json_t *how =
        json_pack("{s:s, s:s, s:s, s:[{s:s, s:s}]}", "KeyUsage", "ENCRYPT_DECRYPT", "KeySpec",
                  "SYMMETRIC_DEFAULT", "Description", "wraps data keys of sandboxes", "Tags",
                  "TagKey", "space:organisation", "TagValue", organisation);
    int r = ask(k, organisation, "CreateKey", how, ret, e);

    *ret_id = json_get_string(json_object_get(ret->json, "KeyMetadata"), "KeyId", "");
    return r;
}

/*
 * Makes one and names it. Whatever was answered to that: the alias tells whose key it has become. What is another's makes ours
 * superfluous; a key that has the name is never deleted here.
 */
static int make_key(struct kms_aws *k, const char *organisation, struct err *e)
{
    char alias[ALIAS_SIZE];
    CLEANUP(answer_done) struct answer made = {0};
    CLEANUP(answer_done) struct answer named = {0};
    CLEANUP(answer_done) struct answer found = {0};
    cleanup_json json_t *name = NULL;
    struct err why = {0};
    const char *id;
    const char *named_id;
    int r = create_key(k, organisation, &made, &id, e);

    if (r < 0) {
        return r;
    }
    alias_of(k, organisation, alias);
    name = json_pack("{s:s, s:s}", "AliasName", alias, "TargetKeyId", id);
    r = ask(k, organisation, "CreateAlias", name, &named, &why);
    if (r == 0) {
        return 0;
    }
    if (find_key(k, organisation, &found, &named_id, NULL) == 0) {
        return str_eq(named_id, id) ? 0 : delete_key(k, organisation, id, e);
    }
    if (str_eq(found.type, "NotFoundException")) {
        IGNORE_RESULT(delete_key(k, organisation, id, NULL)); /* what failed first is told */
    }
    return give(&why, r, e);
}

/* ---- the interface ---- */

/* A request about the organisation's key and one data key; name: of what is given. */
static json_t *about(const struct kms_aws *k, const struct kms_use *use, const char *name,
                     json_t *value_take)
{
    char alias[ALIAS_SIZE];

    alias_of(k, use->organisation, alias);
    return json_pack("{s:s, s:o, s:{s:s, s:s}}", "KeyId", alias, name, value_take,
                     "EncryptionContext", "space:organisation", use->organisation, "space:key",
                     use->key_id);
}

static int aws_wrap(struct kms *kms, const struct kms_use *use, const struct secret *key,
                    struct buf *ret, struct err *e)
{
    struct kms_aws *k = (struct kms_aws *)kms;
    cleanup_json json_t *asked = about(k, use, "Plaintext", kms_json_bytes(key->p, key->len));
    CLEANUP(answer_done) struct answer a = {0};
    struct err why = {0};
    const char *text;
    int r = ask(k, use->organisation, "Encrypt", asked, &a, &why);

    if (r < 0 && str_eq(a.type, "NotFoundException")) {
        why = (struct err){0};
        r = make_key(k, use->organisation, &why);
        r = r < 0 ? r : ask(k, use->organisation, "Encrypt", asked, &a, &why);
    }
    if (r < 0) {
        return give(&why, r, e);
    }
    text = json_get_string(a.json, "CiphertextBlob", "");
    if (!text[0] || buf_add_str(ret, MARK) < 0 || buf_add_str(ret, text) < 0) {
        return err_set(e, -EHOSTDOWN, "key_service_unavailable",
                       "the key service gave no wrapped key");
    }
    return 0;
}

static int aws_unwrap(struct kms *kms, const struct kms_use *use, const char *wrapped,
                      struct secret *ret, struct err *e)
{
    struct kms_aws *k = (struct kms_aws *)kms;
    cleanup_buf struct buf blob = BUF_INIT(KMS_WRAPPED_MAX);
    cleanup_json json_t *asked = NULL;
    CLEANUP(answer_done) struct answer a = {0};
    const char *text = str_starts(wrapped, MARK) ? wrapped + strlen(MARK) : "";
    int r;

    if (!text[0] || base64_decode(text, strlen(text), &blob) < 0) {
        return kms_damaged(e);
    }
    asked = about(k, use, "CiphertextBlob", json_string(text));
    r = ask(k, use->organisation, "Decrypt", asked, &a, e);
    if (r < 0) {
        return r;
    }
    return kms_json_secret(a.json, "Plaintext", ret) < 0
               ? err_set(e, -EHOSTDOWN, "key_service_unavailable", "the key service gave no key")
               : 0;
}

static int aws_rotate(struct kms *kms, const char *organisation, struct err *e)
{
    struct kms_aws *k = (struct kms_aws *)kms;
    CLEANUP(answer_done) struct answer found = {0};
    CLEANUP(answer_done) struct answer a = {0};
    cleanup_json json_t *asked = NULL;
    const char *id;
    struct err why = {0};
    int r = find_key(k, organisation, &found, &id, &why);

    if (r < 0 && str_eq(found.type, "NotFoundException")) {
        return make_key(k, organisation, e);
    }
    if (r < 0) {
        return give(&why, r, e);
    }
    asked = json_pack("{s:s}", "KeyId", id);
    r = ask(k, organisation, "RotateKeyOnDemand", asked, &a, e);
    if (r < 0 && str_eq(a.type, "LimitExceededException")) {
        return err_set(e, -EDQUOT, "key_rotated_too_often",
                       "the key service does not rotate this key again on demand; point its alias "
                       "to a new key");
    }
    return r;
}

static int aws_destroy(struct kms *kms, const char *organisation, struct err *e)
{
    struct kms_aws *k = (struct kms_aws *)kms;
    char alias[ALIAS_SIZE];
    CLEANUP(answer_done) struct answer found = {0};
    CLEANUP(answer_done) struct answer a = {0};
    cleanup_json json_t *asked = NULL;
    struct err why = {0};
    const char *id;
    int r = find_key(k, organisation, &found, &id, &why);

    if (r < 0 && str_eq(found.type, "NotFoundException")) {
        return 0;
    }
    r = r < 0 ? r : delete_key(k, organisation, id, &why);
    if (r == 0) {
        alias_of(k, organisation, alias);
        asked = json_pack("{s:s}", "AliasName", alias);
        r = ask(k, organisation, "DeleteAlias", asked, &a, &why);
    }
    return r < 0 && !str_eq(a.type, "NotFoundException") ? give(&why, r, e) : 0;
}

static void aws_free(struct kms *kms)
{
    struct kms_aws *k = (struct kms_aws *)kms;

    http_client_free(k->http);
    free(k->host);
    free(k->region);
    free(k->prefix);
    free(k->credentials_file);
    free(k);
}

static const struct kms_ops ops = {
    .name = "aws",
    .wrap = aws_wrap,
    .unwrap = aws_unwrap,
    .rotate = aws_rotate,
    .destroy = aws_destroy,
    .free = aws_free,
};

int kms_aws_open(const struct kms_aws_opts *o, struct kms **ret, struct err *e)
{
    const struct http_client_opts client = {.ca_file = o->ca_file};
    cleanup_free char *endpoint = NULL;
    struct kms_aws *k;
    int r;

    if (!o->region || !o->credentials_file) {
        return err_set(e, -EINVAL, NULL, "keys in 'aws' need aws-region and aws-credentials");
    }
    endpoint =
        o->endpoint ? xstrdup(o->endpoint) : xasprintf("https://kms.%s.amazonaws.com", o->region);
    k = xnew(struct kms_aws);
    k->base.ops = &ops;
    k->region = xstrdup(o->region);
    k->prefix = xstrdup(o->prefix);
    k->credentials_file = xstrdup(o->credentials_file);
    k->host = xstrdup(strstr(endpoint, "://") ? strstr(endpoint, "://") + 3 : endpoint);
    k->host[strcspn(k->host, "/")] = '\0';
    r = http_client_new(endpoint, &client, &k->http, e);
    if (r < 0) {
        aws_free(&k->base);
        return r;
    }
    *ret = &k->base;
    return 0;
}
