/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http1.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Decodes in pieces of `step`: the result, the bytes used, the body. */
static int decode(const char *data, size_t size, size_t step, size_t *ret_used,
                  struct buf ret[static 2])
{
    struct buf *body = &ret[0];
    struct http1_chunked c = {.trailers = &ret[1]};
    size_t at = 0;
    int r = 0;

    while (at < size && r == 0) {
        size_t n = MIN(step, size - at);
        size_t used = 0;
        size_t body_len = 0;

        r = http1_chunked_next(&c, data + at, n, &used, &body_len);
        if (r < 0) {
            return r;
        }
        ASSERT(used <= n && body_len <= used && (used > 0 || r == 1));
        ASSERT(buf_add(body, data + at + used - body_len, body_len) == 0);
        at += used;
    }
    *ret_used = at;
    return r;
}

static bool same(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

/* What http1_parse_trailers accepts, printed: a body of one chunk with them behind it. */
static int print_trailers(const struct buf *trailers, struct buf *ret)
{
    struct http1_head head;

    if (trailers->len == 0 ||
        http1_parse_trailers(trailers->data, trailers->len, &head) != HTTP1_OK) {
        return 0;
    }
    for (size_t i = 0; i < head.n_fields; i++) {
        cleanup_free char *name = xstrndup(head.fields[i].name.p, head.fields[i].name.len);
        cleanup_free char *value = xstrndup(head.fields[i].value.p, head.fields[i].value.len);

        ASSERT(!http1_is_head_only(head.fields[i].name));
        ASSERT(http1_print_field(ret, name, value) == 0);
    }
    return (int)head.n_fields;
}

/* The same however it arrives; and what was decoded, encoded again, decodes to the same. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *data = (const char *)bytes;
    struct buf whole[2] = {BUF_INIT(1 << 20), BUF_INIT(HTTP1_MAX_TRAILER)};
    struct buf slow[2] = {BUF_INIT(1 << 20), BUF_INIT(HTTP1_MAX_TRAILER)};
    struct buf again[2] = {BUF_INIT(1 << 20), BUF_INIT(HTTP1_MAX_TRAILER)};
    cleanup_buf struct buf text = BUF_INIT(1 << 21);
    cleanup_buf struct buf trailers = BUF_INIT(2 * HTTP1_MAX_TRAILER);
    char line[HTTP1_CHUNK_LINE_SIZE];
    struct http1_head head;
    size_t used = 0;
    size_t slow_used = 0;
    int n;
    int r;

    if (size > 1 << 19) {
        return 0;
    }
    r = decode(data, size, size + 1, &used, whole);
    ASSERT(decode(data, size, 1, &slow_used, slow) == r);
    ASSERT(used == slow_used && same(&whole[0], &slow[0]) && same(&whole[1], &slow[1]));
    if (whole[0].len > 0) {
        ASSERT(buf_add(&text, line, http1_print_chunk(line, whole[0].len)) == 0);
        ASSERT(buf_add(&text, whole[0].data, whole[0].len) == 0 && buf_add_str(&text, "\r\n") == 0);
    }
    n = r == 1 ? print_trailers(&whole[1], &trailers) : 0;
    if (trailers.len > HTTP1_MAX_TRAILER) {
        buf_reset(&trailers); /* "a:b" is printed with a space */
        n = 0;
    }
    ASSERT(buf_add_str(&text, "0\r\n") == 0);
    ASSERT(buf_add(&text, trailers.data, trailers.len) == 0 && buf_add_str(&text, "\r\n") == 0);
    ASSERT(decode(text.data, text.len, 3, &used, again) == 1 && used == text.len);
    ASSERT(same(&again[0], &whole[0]) && same(&again[1], &trailers));
    ASSERT(n == 0 || (http1_parse_trailers(again[1].data, again[1].len, &head) == HTTP1_OK &&
                      head.n_fields == (size_t)n));
    for (size_t i = 0; i < 2; i++) {
        buf_done(&whole[i]);
        buf_done(&slow[i]);
        buf_done(&again[i]);
    }
    return 0;
}
