/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http2-head.h"

#include <stdio.h>
#include <string.h>

#include "wire/http1.h"

void http2_head_init(struct http2_head *h)
{
    *h = (struct http2_head){.fields = BUF_INIT(HTTP1_MAX_HEAD * 2),
                             .cookies = BUF_INIT(HTTP1_MAX_HEAD * 2)};
}

void http2_head_done(struct http2_head *h)
{
    free(h->method);
    free(h->scheme);
    free(h->authority);
    free(h->path);
    free(h->host);
    buf_done(&h->fields);
    buf_done(&h->cookies);
    http2_head_init(h);
}

static bool is(struct http2_bytes b, const char *s)
{
    return b.len == strlen(s) && memcmp(b.p, s, b.len) == 0;
}

/* Once, and something. */
static int set_once(char **at, struct http2_bytes value)
{
    if (*at || value.len == 0) {
        return -EBADMSG;
    }
    *at = xstrndup(value.p, value.len);
    return 0;
}

static int set_status(struct http2_head *h, struct http2_bytes value)
{
    cleanup_free char *text = xstrndup(value.p, value.len);
    uint64_t status = 0;

    if (h->status || value.len != 3 || str_to_u64(text, 999, &status) < 0 || status < 100 ||
        status > 599) {
        return -EBADMSG;
    }
    h->status = (unsigned)status;
    return 0;
}

static int add_pseudo(struct http2_head *h, struct http2_bytes name, struct http2_bytes value)
{
    if (h->n_fields > 0 || h->host || h->te_trailers) {
        return -EBADMSG; /* plain ones have begun */
    }
    if (is(name, ":method")) {
        return set_once(&h->method, value);
    }
    if (is(name, ":scheme")) {
        return set_once(&h->scheme, value);
    }
    if (is(name, ":authority")) {
        return set_once(&h->authority, value);
    }
    if (is(name, ":path")) {
        return set_once(&h->path, value);
    }
    return is(name, ":status") ? set_status(h, value) : -EBADMSG;
}

static bool has_upper(struct http2_bytes b)
{
    const char *p = b.p;

    for (size_t i = 0; i < b.len; i++) {
        if (p[i] >= 'A' && p[i] <= 'Z') {
            return true;
        }
    }
    return false;
}

static bool is_hop(struct http2_bytes name)
{
    static const char *const hops[] = {"connection", "keep-alive", "proxy-connection",
                                       "transfer-encoding", "upgrade"};

    for (size_t i = 0; i < ARRAY_SIZE(hops); i++) {
        if (is(name, hops[i])) {
            return true;
        }
    }
    return false;
}

static bool has_space_at_ends(struct http2_bytes b)
{
    const char *p = b.p;

    return b.len > 0 && (strchr(" \t", p[0]) || strchr(" \t", p[b.len - 1]));
}

static int add_line(struct http2_head *h, struct http2_bytes name, struct http2_bytes value)
{
    int r = buf_add(&h->fields, name.p, name.len);

    r = r < 0 ? r : buf_add(&h->fields, ": ", 2);
    r = r < 0 ? r : buf_add(&h->fields, value.p, value.len);
    return r < 0 ? r : buf_add(&h->fields, "\r\n", 2);
}

int http2_head_add(struct http2_head *h, struct http2_bytes name, struct http2_bytes value)
{
    const char *p = name.p;
    int r;

    h->bytes += name.len + value.len + 4;
    if (h->bytes > HTTP1_MAX_HEAD || h->n_fields >= HTTP1_MAX_FIELDS) {
        return -E2BIG;
    }
    if (!http1_is_value(value.p, value.len) || has_space_at_ends(value)) {
        return -EBADMSG;
    }
    if (name.len > 0 && p[0] == ':') {
        return add_pseudo(h, name, value);
    }
    if (!http1_is_token(p, name.len) || has_upper(name) || is_hop(name)) {
        return -EBADMSG;
    }
    if (is(name, "host")) {
        return set_once(&h->host, value);
    }
    if (is(name, "te")) {
        h->te_trailers = is(value, "trailers");
        return h->te_trailers ? 0 : -EBADMSG;
    }
    h->n_fields++;
    if (is(name, "cookie")) {
        r = h->cookies.len ? buf_add(&h->cookies, "; ", 2) : 0;
        return r < 0 ? r : buf_add(&h->cookies, value.p, value.len);
    }
    return add_line(h, name, value);
}

/* Is the field among the lines? */
static bool has_field(const struct http2_head *h, const char *name)
{
    const char *p = h->fields.data;
    const char *end = p + h->fields.len;
    size_t len = strlen(name);

    while (p && p < end) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));

        if ((size_t)(end - p) > len && memcmp(p, name, len) == 0 && p[len] == ':') {
            return true;
        }
        p = line_end ? line_end + 1 : end;
    }
    return false;
}

static int add_fields(const struct http2_head *h, struct buf *ret)
{
    int r = h->fields.len ? buf_add(ret, h->fields.data, h->fields.len) : 0;

    if (r == 0 && h->cookies.len > 0) {
        r = buf_add_str(ret, "cookie: ");
        r = r < 0 ? r : buf_add(ret, h->cookies.data, h->cookies.len);
        r = r < 0 ? r : buf_add(ret, "\r\n", 2);
    }
    return r;
}

static bool is_request(const struct http2_head *h, const char *scheme)
{
    bool connect = h->method && str_eq(h->method, "CONNECT");
    bool same_host = !h->host || !h->authority || str_eq(h->host, h->authority);

    if (!h->method || h->status || !same_host || !(h->authority || h->host)) {
        return false;
    }
    if (connect) {
        return h->authority && !h->scheme && !h->path;
    }
    return h->scheme && str_eq(h->scheme, scheme) && h->path &&
           (h->path[0] == '/' || (str_eq(h->path, "*") && str_eq(h->method, "OPTIONS")));
}

int http2_head_request(const struct http2_head *h, const char *scheme, bool more, struct buf *ret)
{
    const char *host = h->authority ? h->authority : h->host;
    int r;

    if (!is_request(h, scheme)) {
        return -EBADMSG;
    }
    r = http1_print_request(ret, h->method, h->path ? h->path : host);
    r = r < 0 ? r : http1_print_field(ret, "Host", host);
    r = r < 0 ? r : add_fields(h, ret);
    if (r == 0 && more && !has_field(h, "content-length")) {
        r = http1_print_field(ret, "Transfer-Encoding", "chunked");
    }
    r = r < 0 ? r : http1_print_end(ret);
    return r == -EINVAL ? -EBADMSG : r;
}

int http2_head_answer(const struct http2_head *h, struct buf *ret)
{
    int r;

    if (!h->status || h->method || h->scheme || h->authority || h->path || h->host ||
        h->te_trailers) {
        return -EBADMSG;
    }
    r = http1_print_status(ret, 1, h->status);
    r = r < 0 ? r : add_fields(h, ret);
    return r < 0 ? r : http1_print_end(ret);
}

static bool has_head_only(const struct http2_head *h)
{
    const char *p = h->fields.data;
    const char *end = p + h->fields.len;

    while (p && p < end) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        const char *colon = memchr(p, ':', (size_t)(end - p));

        if (colon && http1_is_head_only((struct http1_view){p, (size_t)(colon - p)})) {
            return true;
        }
        p = line_end ? line_end + 1 : end;
    }
    return false;
}

int http2_head_trailers(const struct http2_head *h, struct buf *ret)
{
    if (h->status || h->method || h->scheme || h->authority || h->path || h->host ||
        h->te_trailers || h->cookies.len > 0 || has_head_only(h)) {
        return -EBADMSG;
    }
    return add_fields(h, ret);
}
