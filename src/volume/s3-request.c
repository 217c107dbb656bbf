/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/s3-request.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/id.h"
#include "credential/secret.h"
#include "volume/aws.h"
#include "volume/s3-xml.h"

/* ---- one try ---- */

static int sign(const struct s3 *s, const struct s3_request *req, const char *path,
                struct http_headers *headers, struct err *e)
{
    const struct aws_service service = {.service = "s3",
                                        .region = s->region,
                                        .host = s->host,
                                        .credentials_file = s->credentials_file};
    const struct aws_request request = {.method = req->method,
                                        .path = path,
                                        .query = req->query,
                                        .body = req->body,
                                        .body_len = req->body_len};
    struct err why = {0};
    int r = aws_sign(&service, &request, headers, &why);

    return r < 0 ? err_set(e, r, "store_refused", "the object store: %s", why.msg) : 0;
}

static void read_head(struct http_call *call, struct s3_answer *ret)
{
    const char *modified = http_call_header(call, "Last-Modified");
    const char *etag = http_call_header(call, "ETag");
    struct tm tm = {0};

    ret->status = http_call_status(call);
    ret->length = http_call_length(call) > 0 ? (uint64_t)http_call_length(call) : 0;
    if (modified && strptime(modified, "%a, %d %b %Y %H:%M:%S GMT", &tm) && timegm(&tm) > 0) {
        ret->modified_ms = (uint64_t)timegm(&tm) * 1000;
    }
    if (etag && str_copy(ret->etag, sizeof(ret->etag), etag) < 0) {
        ret->etag[0] = '\0';
    }
}

static int read_body(struct http_call *call, struct buf *body, struct err *e)
{
    for (;;) {
        void *room = NULL;
        size_t left = body->max - body->len;
        ssize_t n;

        if (left == 0) { /* is there a byte more than may be? */
            char one;

            n = http_call_read(call, &one, 1, e);
            return n > 0 ? -E2BIG : (int)n;
        }
        left = MIN(left, (size_t)65536);
        if (buf_reserve(body, left, &room) < 0) {
            return -E2BIG;
        }
        n = http_call_read(call, room, left, e);
        if (n <= 0) {
            return (int)n;
        }
        buf_commit(body, (size_t)n);
    }
}

static int try_once(struct s3 *s, const struct s3_request *req, const char *target,
                    struct s3_answer *ret, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_secret_headers struct http_headers headers = HTTP_HEADERS_INIT;
    cleanup_free char *path = xstrndup(target, strcspn(target, "?"));
    struct http_call_opts opts = {.method = req->method,
                                  .target = target,
                                  .headers = &headers,
                                  .body_length = (int64_t)req->body_len,
                                  .deadline_ns = deadline_in_ms(S3_TRY_MS)};
    int r = sign(s, req, path, &headers, e);

    ret->status = 0;
    buf_reset(&ret->body);
    if (r == 0) {
        r = http_call_new(s->http, &opts, &call, e);
    }
    if (r < 0) {
        return r;
    }
    if (req->body_len > 0 && (r = http_call_write(call, req->body, req->body_len, e)) == 0) {
        r = http_call_end(call, e);
    }
    if (r < 0 && r != -EPIPE) {
        return r;
    }
    r = http_call_head(call, e); /* it may say why it did not read on */
    if (r < 0) {
        return r;
    }
    read_head(call, ret);
    return str_eq(req->method, "HEAD") ? 0 : read_body(call, &ret->body, e);
}

/* ---- tries ---- */

static bool has_error(const struct s3_answer *a)
{
    struct s3_xml x = {a->body.data, a->body.len};
    struct s3_xml found;

    return s3_xml_next(&x, "Error", &found);
}

/* Is a 200 one? What was asked for with GET is the object's, whatever it says. */
static bool is_good(const struct s3_request *req, const struct s3_answer *a)
{
    bool is_object = str_eq(req->method, "GET") && req->key;

    return a->status >= 200 && a->status < 300 && (is_object || !has_error(a));
}

static bool worth_another(int r, const struct s3_request *req, const struct s3_answer *a)
{
    if (r < 0) {
        return r != -EACCES && r != -E2BIG && r != -EINVAL;
    }
    return a->status == 429 || a->status == 408 || a->status >= 500 ||
           (a->status >= 200 && a->status < 300 && !is_good(req, a));
}

static int final(int r, const struct s3_answer *a, struct err *e)
{
    const struct s3_xml body = {a->body.data, a->body.len};
    char code[60] = "";

    if (r == -EACCES) {
        return r;
    }
    if (r == -E2BIG) {
        return err_set(e, r, NULL, "an object is larger than it may be");
    }
    if (a->status == 404 &&
        (a->body.len == 0 || s3_xml_text(body, "Code", code, sizeof(code)) < 0 ||
         str_eq(code, "NoSuchKey") || str_eq(code, "NoSuchUpload"))) {
        return -ENOENT;
    }
    IGNORE_RESULT(s3_xml_text(body, "Code", code, sizeof(code))); /* it may say nothing */
    if (a->status == 401 || a->status == 403) {
        return err_set(e, -EACCES, "store_refused", "the object store refuses us: %s",
                       code[0] ? code : "403");
    }
    if (r < 0) {
        return err_set(e, -EHOSTDOWN, "store_unavailable",
                       "the object store does not answer properly: %s", strerror(-r));
    }
    return err_set(e, -EHOSTDOWN, "store_unavailable",
                   "the object store does not answer properly: %d %s", a->status, code);
}

int s3_do(struct s3 *s, const struct s3_request *req, struct s3_answer *ret, struct err *e)
{
    cleanup_free char *target =
        xasprintf("%s%s%s%s%s", s->path, req->key ? s->prefix : "", req->key ? req->key : "",
                  req->query[0] ? "?" : "", req->query);
    uint32_t pause_ms = S3_FIRST_PAUSE_MS;

    for (unsigned i = 1;; i++) {
        struct err why = {0};
        int r = try_once(s, req, target, ret, &why);

        if (r == 0 && is_good(req, ret)) {
            return 0;
        }
        if (i == S3_TRIES || !worth_another(r, req, ret)) {
            if (r == -EACCES && e) {
                *e = why;
            }
            return final(r, ret, e);
        }
        /* Half of it by chance, so that those who were refused together do not come back together. */
        uint32_t chance = 0;
        random_bytes(&chance, sizeof(chance));
        IGNORE_RESULT(poll(NULL, 0, (int)(pause_ms / 2 + chance % (pause_ms / 2 + 1))));
        pause_ms *= 2;
    }
}
