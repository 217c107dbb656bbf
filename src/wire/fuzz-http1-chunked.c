/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http1.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Decodes in pieces of `step`: the result, the bytes used, the body. */
static int decode(const char *data, size_t size, size_t step, size_t *ret_used, struct buf *body)
{
    struct http1_chunked c = {0};
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

/* The same however it arrives; and what was decoded, encoded again, decodes to the same. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *data = (const char *)bytes;
    cleanup_buf struct buf whole = BUF_INIT(1 << 20);
    cleanup_buf struct buf slow = BUF_INIT(1 << 20);
    cleanup_buf struct buf again = BUF_INIT(1 << 20);
    cleanup_buf struct buf text = BUF_INIT(1 << 21);
    char line[HTTP1_CHUNK_LINE_SIZE];
    size_t used = 0;
    size_t slow_used = 0;
    int r;

    if (size > 1 << 19) {
        return 0;
    }
    r = decode(data, size, size + 1, &used, &whole);
    ASSERT(decode(data, size, 1, &slow_used, &slow) == r);
    ASSERT(used == slow_used && whole.len == slow.len &&
           strcmp(buf_str(&whole), buf_str(&slow)) == 0);
    if (whole.len > 0) {
        ASSERT(buf_add(&text, line, http1_print_chunk(line, whole.len)) == 0);
        ASSERT(buf_add(&text, whole.data, whole.len) == 0 && buf_add_str(&text, "\r\n") == 0);
    }
    ASSERT(buf_add_str(&text, HTTP1_LAST_CHUNK) == 0);
    ASSERT(decode(text.data, text.len, 3, &used, &again) == 1 && used == text.len);
    ASSERT(again.len == whole.len &&
           (again.len == 0 || memcmp(again.data, whole.data, again.len) == 0));
    return 0;
}
