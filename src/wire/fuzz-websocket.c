/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/websocket.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct websocket_frame f;
    unsigned char head[WEBSOCKET_MAX_HEADER];
    cleanup_free unsigned char *copy = size ? xmemdup(data, size) : NULL;
    int r = websocket_parse(data, size, &f);

    if (r == 0) {
        ASSERT(f.header_len <= size && f.len <= INT64_MAX);
        ASSERT(f.opcode < WEBSOCKET_CLOSE || (f.fin && f.len <= WEBSOCKET_MAX_CONTROL));
        ASSERT(websocket_print(&f, head) == f.header_len && memcmp(head, data, f.header_len) == 0);
        websocket_mask(copy, size, f.mask, 0);
        for (size_t at = 0; at < size;) {
            size_t n = MIN(size - at, (size_t)13);

            websocket_mask(copy + at, n, f.mask, at);
            at += n;
        }
        ASSERT(memcmp(copy, data, size) == 0);
    } else {
        ASSERT(r == -EBADMSG || (r == -EAGAIN && size < WEBSOCKET_MAX_HEADER));
    }
    if (websocket_utf8_valid(data, size)) { /* valid texts stay valid when joined */
        cleanup_free unsigned char *twice = xmalloc(size * 2 + 1);

        if (size > 0) {
            memcpy(twice, data, size);
            memcpy(twice + size, data, size);
        }
        ASSERT(websocket_utf8_valid(twice, size * 2));
    }
    return 0;
}
