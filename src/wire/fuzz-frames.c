/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of frames: what parses prints as it was, and lengths add up. */
#include "wire/frames.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_buf struct buf again = BUF_INIT(2 * FRAME_PAYLOAD_MAX);
    size_t at = 0;
    size_t used = 0;
    struct frame f;

    while (frame_parse(data + at, size - at, &f, &used) == 0) {
        ASSERT(used == f.len + FRAME_HEAD_LEN && used <= size - at);
        buf_reset(&again);
        ASSERT(frame_add(&again, f.type, f.payload, f.len) == 0);
        ASSERT(again.len == used && memcmp(again.data, data + at, used) == 0);
        at += used;
    }
    return 0;
}
