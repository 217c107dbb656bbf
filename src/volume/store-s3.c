/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/s3-request.h"

#include <stdio.h>
#include <string.h>

#include "volume/s3-xml.h"
#include "wire/url.h"

#define ANSWER_MAX (1u << 20) /* a page of 1000 objects */
#define UPLOAD_ID_MAX 512u
#define TOKEN_MAX 2048u
#define PARTS_MAX 10000u

static int failed(int r, const char *what, const char *key, struct err *e)
{
    return r == -ENOENT ? store_missing(key, e) : err_wrap(e, r, "%s object '%s'", what, key);
}

/* ---- in parts ---- */

struct parts {
    struct s3 *s;
    const char *key;
    char *upload;    /* owned: encoded */
    struct buf done; /* owned: XML of the parts that are there */
};

static void parts_done(struct parts *p)
{
    free(p->upload);
    buf_done(&p->done);
}

static int begin_parts(struct parts *p, struct err *e)
{
    struct s3_answer a = {.body = BUF_INIT(ANSWER_MAX)};
    cleanup_buf struct buf encoded = BUF_INIT(3 * UPLOAD_ID_MAX);
    char id[UPLOAD_ID_MAX];
    int r = s3_do(p->s, &(struct s3_request){"POST", p->key, "uploads=", NULL, 0}, &a, e);

    if (r == 0 &&
        (s3_xml_text((struct s3_xml){a.body.data, a.body.len}, "UploadId", id, sizeof(id)) < 0 ||
         url_encode(&encoded, id, strlen(id), 0) < 0)) {
        r = err_set(e, -EHOSTDOWN, "store_unavailable",
                    "the object store gave no id for an upload");
    }
    buf_done(&a.body);
    if (r == 0) {
        p->upload = buf_take(&encoded);
    }
    return r;
}

static int put_part(struct parts *p, unsigned number, const void *data, size_t len, struct err *e)
{
    struct s3_answer a = {.body = BUF_INIT(ANSWER_MAX)};
    cleanup_free char *query = xasprintf("partNumber=%u&uploadId=%s", number, p->upload);
    int r = s3_do(p->s, &(struct s3_request){"PUT", p->key, query, data, len}, &a, e);

    buf_done(&a.body);
    if (r == 0 && strpbrk(a.etag, "<&>")) {
        r = -EBADMSG;
    }
    return r < 0 ? r
                 : buf_printf(&p->done, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>",
                              number, a.etag);
}

static int end_parts(struct parts *p, struct err *e)
{
    struct s3_answer a = {.body = BUF_INIT(ANSWER_MAX)};
    cleanup_free char *query = xasprintf("uploadId=%s", p->upload);
    cleanup_free char *body =
        xasprintf("<CompleteMultipartUpload>%s</CompleteMultipartUpload>", buf_str(&p->done));
    int r = s3_do(p->s, &(struct s3_request){"POST", p->key, query, body, strlen(body)}, &a, e);

    buf_done(&a.body);
    return r;
}

static void abort_parts(struct parts *p)
{
    struct s3_answer a = {.body = BUF_INIT(ANSWER_MAX)};
    cleanup_free char *query = xasprintf("uploadId=%s", p->upload);

    /* The first error counts; what stays is for the bucket's rule on unfinished uploads. */
    IGNORE_RESULT(s3_do(p->s, &(struct s3_request){"DELETE", p->key, query, NULL, 0}, &a, NULL));
    buf_done(&a.body);
}

static int put_in_parts(struct s3 *s, const char *key, const char *data, size_t len, struct err *e)
{
    CLEANUP(parts_done) struct parts p = {.s = s, .key = key, .done = BUF_INIT(ANSWER_MAX)};
    unsigned number = 1;
    int r = begin_parts(&p, e);

    if (r < 0) {
        return r;
    }
    for (size_t at = 0; at < len && r == 0; at += S3_PART, number++) {
        r = put_part(&p, number, data + at, MIN(len - at, (size_t)S3_PART), e);
    }
    if (r == 0) {
        r = end_parts(&p, e);
    }
    if (r < 0) {
        abort_parts(&p);
    }
    return r;
}

/* ---- the interface ---- */

static int s3_put(struct store *store, const char *key, const void *data, size_t len, struct err *e)
{
    struct s3 *s = (struct s3 *)store;
    struct s3_answer a = {.body = BUF_INIT(ANSWER_MAX)};
    int r;

    if (len > S3_PART) {
        r = put_in_parts(s, key, data, len, e);
    } else {
        r = s3_do(s, &(struct s3_request){"PUT", key, "", data, len}, &a, e);
        buf_done(&a.body);
    }
    if (r == -ENOENT) { /* of an upload in parts, or of a bucket */
        r = err_set(e, -EHOSTDOWN, "store_unavailable", "the object store has no such bucket");
    }
    return r < 0 ? failed(r, "putting", key, e) : 0;
}

static int s3_get(struct store *store, const char *key, struct buf *ret, struct err *e)
{
    struct s3 *s = (struct s3 *)store;
    struct s3_answer a = {.body = BUF_INIT(MAX(ret->max, (size_t)4096))};
    int r = s3_do(s, &(struct s3_request){"GET", key, "", NULL, 0}, &a, e);

    if (r == 0) {
        r = buf_add(ret, buf_str(&a.body), a.body.len);
    }
    buf_done(&a.body);
    return r < 0 ? failed(r, "getting", key, e) : 0;
}

static int s3_stat(struct store *store, const char *key, struct store_object *ret, struct err *e)
{
    struct s3 *s = (struct s3 *)store;
    struct s3_answer a = {.body = BUF_INIT(0)};
    int r = s3_do(s, &(struct s3_request){"HEAD", key, "", NULL, 0}, &a, e);

    if (r < 0) {
        return failed(r, "looking at", key, e);
    }
    ASSERT(str_copy(ret->key, sizeof(ret->key), key) == 0);
    ret->size = a.length;
    ret->modified_ms = a.modified_ms;
    return 0;
}

static int s3_remove(struct store *store, const char *key, struct err *e)
{
    struct s3 *s = (struct s3 *)store;
    struct s3_answer a = {.body = BUF_INIT(ANSWER_MAX)};
    int r = s3_do(s, &(struct s3_request){"DELETE", key, "", NULL, 0}, &a, e);

    buf_done(&a.body);
    return r < 0 && r != -ENOENT ? failed(r, "removing", key, e) : 0;
}

/* ---- listing ---- */

static int list_object(struct s3 *s, struct s3_xml x, store_list_fn *each, void *ctx)
{
    struct store_object object = {0};
    char key[STORE_KEY_MAX + 256];
    char text[64];

    if (s3_xml_text(x, "Key", key, sizeof(key)) < 0 || !str_starts(key, s->prefix) ||
        !store_key_valid(key + strlen(s->prefix))) {
        return 0; /* not ours */
    }
    ASSERT(str_copy(object.key, sizeof(object.key), key + strlen(s->prefix)) == 0);
    if (s3_xml_text(x, "Size", text, sizeof(text)) < 0 ||
        str_to_u64(text, INT64_MAX, &object.size) < 0 ||
        s3_xml_text(x, "LastModified", text, sizeof(text)) < 0 ||
        s3_xml_time(text, &object.modified_ms) < 0) {
        return -EBADMSG;
    }
    return each(ctx, &object);
}

/* 1: there is more, and *ret_token says where. */
static int read_page(struct s3 *s, const struct buf *body, char ret_token[static TOKEN_MAX],
                     store_list_fn *each, void *ctx)
{
    struct s3_xml all = {body->data, body->len};
    struct s3_xml one;
    char more[16];
    int r = s3_xml_text(all, "IsTruncated", more, sizeof(more));

    if (r < 0) {
        return -EBADMSG; /* an answer that cannot be read is not an empty one */
    }
    if (str_eq(more, "true") &&
        s3_xml_text(all, "NextContinuationToken", ret_token, TOKEN_MAX) < 0) {
        return -EBADMSG;
    }
    while (r == 0 && s3_xml_next(&all, "Contents", &one)) {
        r = list_object(s, one, each, ctx);
    }
    return r != 0 ? r : str_eq(more, "true");
}

/* The query of a page; the caller's to free. */
static char *page_query(const struct s3 *s, const char *prefix, const char *token)
{
    cleanup_buf struct buf encoded = BUF_INIT(3 * (TOKEN_MAX + 2 * STORE_KEY_MAX));
    cleanup_free char *whole = xasprintf("%s%s", s->prefix, prefix);
    int r = 0;

    if (token[0]) { /* sorted by name, as the signature wants them */
        r = buf_add_str(&encoded, "continuation-token=");
        r = r < 0 ? r : url_encode(&encoded, token, strlen(token), 0);
        r = r < 0 ? r : buf_add_str(&encoded, "&");
    }
    r = r < 0 ? r : buf_add_str(&encoded, "list-type=2&prefix=");
    r = r < 0 ? r : url_encode(&encoded, whole, strlen(whole), 0);
    ASSERT(r == 0);
    return buf_take(&encoded);
}

static int s3_list(struct store *store, const char *prefix, store_list_fn *each, void *ctx,
                   struct err *e)
{
    struct s3 *s = (struct s3 *)store;
    char token[TOKEN_MAX] = "";
    int r;

    do {
        struct s3_answer a = {.body = BUF_INIT(ANSWER_MAX)};
        cleanup_free char *query = page_query(s, prefix, token);

        r = s3_do(s, &(struct s3_request){"GET", NULL, query, NULL, 0}, &a, e);
        if (r == -ENOENT) {
            r = err_set(e, -EHOSTDOWN, "store_unavailable", "the object store has no such bucket");
        }
        if (r == 0) {
            r = read_page(s, &a.body, token, each, ctx);
            if (r == -EBADMSG) {
                r = err_set(e, -EHOSTDOWN, "store_unavailable",
                            "the object store's list cannot be read");
            }
        }
        buf_done(&a.body);
    } while (r == 1 && token[0]);
    return r < 0 ? err_wrap(e, r, "listing objects '%s'", prefix) : r;
}

static void s3_free(struct store *store)
{
    struct s3 *s = (struct s3 *)store;

    http_client_free(s->http);
    free(s->host);
    free(s->path);
    free(s->prefix);
    free(s->region);
    free(s->credentials_file);
    free(s);
}

static const struct store_ops ops = {
    .name = "s3",
    .put = s3_put,
    .get = s3_get,
    .stat = s3_stat,
    .remove = s3_remove,
    .list = s3_list,
    .free = s3_free,
};

/* ---- opening ---- */

static bool bucket_valid(const char *name)
{
    size_t len = strlen(name);

    return len >= 3 && len <= 63 && store_key_valid(name) && !strchr(name, '/');
}

static int connect_to(struct s3 *s, const struct s3_opts *o, const struct url *url, struct err *e)
{
    bool standard = url->port == (url->scheme == URL_HTTPS ? 443 : 80);
    const char *bucket = o->path_style ? "" : o->bucket;
    cleanup_free char *port = standard ? xstrdup("") : xasprintf(":%u", url->port);
    cleanup_free char *address = NULL;
    const struct http_client_opts client = {.max_idle = 32, .ca_file = o->ca_file};

    s->host = xasprintf("%s%s%s%s", bucket, bucket[0] ? "." : "", url->host, port);
    s->path =
        o->path_style ? xasprintf("%s/%s/", url->path, o->bucket) : xasprintf("%s/", url->path);
    address = xasprintf("%s://%s", url->scheme == URL_HTTPS ? "https" : "http", s->host);
    return http_client_new(address, &client, &s->http, e);
}

int store_s3_open(const struct s3_opts *o, struct store **ret, struct err *e)
{
    const char *prefix = o->prefix ? o->prefix : "";
    struct url url;
    struct s3 *s;
    int r;

    if (url_parse(o->endpoint, &url) < 0 || url.scheme == URL_UNIX || !url.host[0]) {
        return err_field(e, -EINVAL, NULL, "endpoint", "'%s' is no address of an object store",
                         o->endpoint);
    }
    if (!bucket_valid(o->bucket) || (prefix[0] && !store_key_valid(prefix)) ||
        strlen(prefix) > STORE_KEY_MAX) {
        return err_field(e, -EINVAL, NULL, "bucket",
                         "the name of the bucket or the prefix is none");
    }
    s = xnew(struct s3);
    s->base.ops = &ops;
    s->prefix = prefix[0] ? xasprintf("%s/", prefix) : xstrdup("");
    s->region = xstrdup(o->region);
    s->credentials_file = xstrdup(o->credentials_file);
    r = connect_to(s, o, &url, e);
    if (r < 0) {
        s3_free(&s->base);
        return r;
    }
    *ret = &s->base;
    return 0;
}
