/* SPDX-License-Identifier: Apache-2.0 */
/* Signing a request that is about to leave, in place of the guest's own signature. */
#include "credential/inject-internal.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/id.h"
#include "credential/sigv4.h"

#define SIGNED_MAX 32u

static const char *const replaced[] = {"authorization", "x-amz-date", "date",
                                       "x-amz-security-token", "x-amz-content-sha256"};

bool inject_is_signed_by_us(struct http1_view name)
{
    for (size_t i = 0; i < ARRAY_SIZE(replaced); i++) {
        if (http1_view_is(name, replaced[i])) {
            return true;
        }
    }
    return false;
}

static const struct injection *signature_of(const struct plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->v[i].kind == INJECTION_SIGV4) {
            return &plan->v[i];
        }
    }
    return NULL;
}

/* The hash of the body, or the word that stands for one. */
static int payload_of(const struct inject_request *req, const struct injection *in, char *ret,
                      size_t size, struct err *e)
{
    static const char chunks[] = "STREAMING-AWS4-";
    const struct http1_field *given = http1_field_get(req->head, "x-amz-content-sha256");
    unsigned char digest[SHA256_DIGEST_LENGTH];

    if (given && given->value.len >= sizeof(chunks) - 1 &&
        strncmp(given->value.p, chunks, sizeof(chunks) - 1) == 0) {
        return err_set(e, -EINVAL, "chunks_signed",
                       "the body is signed chunk by chunk with a key that is not the real one: "
                       "turn payload signing off in the client");
    }
    if (req->body_known) {
        SHA256(req->body_len ? req->body : (const unsigned char *)"", req->body_len, digest);
        hex_encode(digest, sizeof(digest), ret);
    } else if (given && given->value.len > 0 && given->value.len < size) {
        snprintf(ret, size, "%.*s", (int)given->value.len, given->value.p);
    } else {
        snprintf(ret, size, "%s",
                 req->head->framing == HTTP1_BODY_NONE ? SIGV4_EMPTY : SIGV4_UNSIGNED);
    }
    (void)in;
    return 0;
}

struct signing {
    char names[SIGNED_MAX][128];
    char *values[SIGNED_MAX]; /* owned */
    size_t n;
};

static int signing_add(struct signing *s, const char *name, const char *value, size_t len)
{
    size_t at = s->n;

    if (s->n == SIGNED_MAX || strlen(name) >= sizeof(s->names[0])) {
        return -E2BIG;
    }
    while (at > 0 && strcasecmp(s->names[at - 1], name) > 0) {
        at--;
    }
    memmove(s->names + at + 1, s->names + at, (s->n - at) * sizeof(s->names[0]));
    memmove(s->values + at + 1, s->values + at, (s->n - at) * sizeof(s->values[0]));
    for (size_t i = 0; i <= strlen(name); i++) {
        s->names[at][i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
    }
    s->values[at] = xstrndup(value, len);
    s->n++;
    return 0;
}

static void signing_done(struct signing *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->values[i]);
    }
}

/* Host, ours, and what the service reads besides: the guest's own x-amz- fields and the content type. */
static int gather(const struct inject_request *req, const char *time, const char *payload,
                  struct signing *s)
{
    int r = signing_add(s, "host", req->host, strlen(req->host));

    r = r < 0 ? r : signing_add(s, "x-amz-date", time, strlen(time));
    r = r < 0 ? r : signing_add(s, "x-amz-content-sha256", payload, strlen(payload));
    for (size_t i = 0; i < req->head->n_fields && r == 0; i++) {
        const struct http1_field *f = &req->head->fields[i];
        cleanup_free char *name = xstrndup(f->name.p, f->name.len);

        if (strncasecmp(name, "x-amz-", 6) == 0 && !inject_is_signed_by_us(f->name) &&
            !inject_is_hop(req->head, f)) {
            if (!http1_field_get(req->head, name)) {
                return -EINVAL; /* twice: which one counts is nobody's business but the service's */
            }
            r = signing_add(s, name, f->value.p, f->value.len);
        }
    }
    return r;
}

static int print(const struct injection *in, const struct sigv4_request *sig, struct buf *ret)
{
    cleanup_buf struct buf names = BUF_INIT(HTTP1_MAX_HEAD);
    cleanup_buf struct buf line = BUF_INIT(HTTP1_MAX_HEAD);
    char signature[SIGV4_SIGNATURE_SIZE];
    int r = sigv4_sign(sig, &in->scope, in->key, signature, &names);

    r = r < 0
            ? r
            : buf_printf(&line,
                         "AWS4-HMAC-SHA256 Credential=%s/%s/%s/%s/aws4_request, SignedHeaders=%s, "
                         "Signature=%s",
                         in->name, in->scope.date, in->scope.region, in->scope.service,
                         buf_str(&names), signature);
    r = r < 0 ? r : http1_print_field(ret, "x-amz-date", sig->time);
    r = r < 0 ? r : http1_print_field(ret, "x-amz-content-sha256", sig->payload);
    return r < 0 ? r : http1_print_field(ret, "Authorization", buf_str(&line));
}

int inject_sign(const struct inject_request *req, const char *target, struct buf *ret,
                struct err *e)
{
    const struct injection *in = signature_of(req->plan);
    CLEANUP(signing_done) struct signing s = {0};
    struct sigv4_header headers[SIGNED_MAX];
    cleanup_free char *method = xstrndup(req->head->method.p, req->head->method.len);
    cleanup_free char *path = xstrdup(target);
    char *query = strchr(path, '?');
    time_t now = (time_t)req->time_s;
    char when[SIGV4_TIME_SIZE];
    char payload[128];
    struct tm tm;
    int r;

    gmtime_r(&now, &tm);
    strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &tm);
    if (strncmp(when, in->scope.date, 8) != 0) {
        return err_set(e, -EINVAL, "request_not_injectable", "the day has changed: try again");
    }
    r = payload_of(req, in, payload, sizeof(payload), e);
    r = r < 0 ? r : gather(req, when, payload, &s);
    if (query) {
        *query++ = '\0';
    }
    for (size_t i = 0; i < s.n; i++) {
        headers[i] = (struct sigv4_header){s.names[i], s.values[i]};
    }
    return r < 0 ? r
                 : print(in,
                         &(struct sigv4_request){
                             .method = method,
                             .path = path,
                             .query = query ? query : "",
                             .headers = headers,
                             .n_headers = s.n,
                             .payload = payload,
                             .time = when,
                             .encode_twice = !str_eq(in->scope.service, "s3"),
                         },
                         ret);
}
