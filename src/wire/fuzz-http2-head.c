/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a byte of flags, then fields: length of the name, length of the value, both. */
#include "wire/http2-head.h"

#include <string.h>

#include "wire/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool view_eq(struct http1_view v, const char *s)
{
    return v.len == strlen(s) && memcmp(v.p, s, v.len) == 0;
}

/* It is one head and nothing behind it, and says what the fields said. */
static void check_request(const struct http2_head *h, bool more)
{
    cleanup_buf struct buf b = BUF_INIT(HTTP1_MAX_HEAD * 4);
    struct http1_scan scan = {0};
    struct http1_head head;
    size_t len = 0;

    if (http2_head_request(h, "https", more, &b) < 0 ||
        http1_scan(&scan, b.data, b.len, &len) < 0) {
        return;
    }
    ASSERT(len == b.len);
    if (http1_parse_request(b.data, len, &head) != HTTP1_OK) {
        return;
    }
    ASSERT(view_eq(head.method, h->method));
    ASSERT(view_eq(head.authority, h->authority ? h->authority : h->host));
    ASSERT(!h->path || view_eq(head.target, h->path));
    ASSERT(!head.upgrade && head.keep_alive);
    ASSERT(more || head.framing != HTTP1_BODY_CHUNKED);
}

static void check_answer(const struct http2_head *h)
{
    cleanup_buf struct buf b = BUF_INIT(HTTP1_MAX_HEAD * 4);
    struct http1_scan scan = {0};
    struct http1_head head;
    size_t len = 0;

    if (http2_head_answer(h, &b) == 0 && http1_scan(&scan, b.data, b.len, &len) == 0) {
        ASSERT(len == b.len);
        if (http1_parse_response(b.data, len, false, &head) == HTTP1_OK) {
            ASSERT(head.status == h->status && head.framing != HTTP1_BODY_CHUNKED);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_http2_head struct http2_head h;
    cleanup_buf struct buf b = BUF_INIT(HTTP1_MAX_HEAD * 4);
    bool more = size > 0 && (data[0] & 1);
    int r = 0;

    http2_head_init(&h);
    for (size_t at = 1; at + 2 <= size && r == 0;) {
        struct http2_bytes name = {.len = data[at]};
        struct http2_bytes value = {.len = data[at + 1]};

        at += 2;
        if (at + name.len + value.len > size) {
            break;
        }
        name.p = data + at;
        value.p = data + at + name.len;
        at += name.len + value.len;
        r = http2_head_add(&h, name, value);
    }
    if (r == 0) {
        check_request(&h, more);
        check_answer(&h);
        IGNORE_RESULT(http2_head_trailers(&h, &b)); /* most are none */
    }
    return 0;
}
