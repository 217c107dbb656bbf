/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/aws.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/json.h"
#include "credential/secret.h"
#include "credential/sigv4.h"

#define CREDENTIALS_MAX 16384u
#define HEADERS_MAX 5u

struct credentials {
    json_t *json; /* owned: wiped when freed, see secret_process() */
    const char *id;
    const char *secret;
    const char *token; /* "": none */
};

static void credentials_done(struct credentials *c)
{
    json_decref(c->json);
}

static int read_credentials(const char *file, struct credentials *ret, struct err *e)
{
    cleanup_secret_buf struct buf text = BUF_INIT(CREDENTIALS_MAX);
    int r = fs_read_file(AT_FDCWD, file, &text);

    if (r == 0) {
        r = json_parse_object(buf_str(&text), text.len, &ret->json, NULL);
    }
    if (r < 0) {
        return err_set(e, -EACCES, NULL, "credentials cannot be read from '%s'", file);
    }
    ret->id = json_get_string(ret->json, "access_key_id", "");
    ret->secret = json_get_string(ret->json, "secret_access_key", "");
    ret->token = json_get_string(ret->json, "session_token", "");
    return ret->id[0] && ret->secret[0]
               ? 0
               : err_set(e, -EACCES, NULL, "'%s' has no access_key_id, or no secret_access_key",
                         file);
}

/* The fields that are signed, sorted by name. */
struct signing {
    char date[SIGV4_TIME_SIZE];
    char payload[2 * SHA256_DIGEST_LENGTH + 1];
    struct sigv4_header headers[HEADERS_MAX];
    size_t n;
    struct sigv4_scope scope;
};

static void prepare(const struct aws_service *s, const struct aws_request *req,
                    const struct credentials *c, struct signing *ret)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    time_t now = (time_t)(clock_wall_ms() / 1000);
    struct tm tm;

    *ret = (struct signing){0};
    ASSERT(gmtime_r(&now, &tm) &&
           strftime(ret->date, sizeof(ret->date), "%Y%m%dT%H%M%SZ", &tm) > 0);
    snprintf(ret->scope.date, sizeof(ret->scope.date), "%.8s", ret->date);
    snprintf(ret->scope.region, sizeof(ret->scope.region), "%s", s->region);
    snprintf(ret->scope.service, sizeof(ret->scope.service), "%s", s->service);
    ASSERT(SHA256(req->body ? req->body : "", req->body_len, digest));
    hex_encode(digest, sizeof(digest), ret->payload);
    ret->headers[ret->n++] = (struct sigv4_header){"host", s->host};
    ret->headers[ret->n++] = (struct sigv4_header){"x-amz-content-sha256", ret->payload};
    ret->headers[ret->n++] = (struct sigv4_header){"x-amz-date", ret->date};
    if (c->token[0]) {
        ret->headers[ret->n++] = (struct sigv4_header){"x-amz-security-token", c->token};
    }
    if (req->action) {
        ret->headers[ret->n++] = (struct sigv4_header){"x-amz-target", req->action};
    }
}

int aws_sign(const struct aws_service *s, const struct aws_request *req,
             struct http_headers *headers, struct err *e)
{
    CLEANUP(credentials_done) struct credentials c = {0};
    cleanup_buf struct buf names = BUF_INIT(500);
    cleanup_free char *authorization = NULL;
    unsigned char key[PLAN_KEY_SIZE];
    char signature[SIGV4_SIGNATURE_SIZE];
    struct sigv4_request request = {.method = req->method, .path = req->path, .query = req->query};
    struct signing sig;
    int r = read_credentials(s->credentials_file, &c, e);

    if (r < 0) {
        return r;
    }
    prepare(s, req, &c, &sig);
    request.headers = sig.headers;
    request.n_headers = sig.n;
    request.payload = sig.payload;
    request.time = sig.date;
    sigv4_key(c.secret, &sig.scope, key);
    r = sigv4_sign(&request, &sig.scope, key, signature, &names);
    explicit_bzero(key, sizeof(key));
    if (r < 0) {
        return err_wrap(e, r, "signing a request");
    }
    for (size_t i = 0; i < sig.n; i++) {
        http_headers_set(headers, i == 0 ? "Host" : sig.headers[i].name, sig.headers[i].value);
    }
    authorization = xasprintf(
        "AWS4-HMAC-SHA256 Credential=%s/%s/%s/%s/aws4_request, SignedHeaders=%s, Signature=%s",
        c.id, sig.scope.date, sig.scope.region, s->service, buf_str(&names), signature);
    http_headers_set(headers, "Authorization", authorization);
    return 0;
}
