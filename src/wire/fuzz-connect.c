/* SPDX-License-Identifier: Apache-2.0 */
/* Envelopes parse or are refused; what was parsed, printed, is the same bytes again. */
#include "wire/connect.h"

#include <string.h>

#define PAYLOAD_MAX 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct connect_envelope env;
    size_t used = 0;

    while (connect_parse(data, size, PAYLOAD_MAX, &env, &used) == 0) {
        cleanup_buf struct buf b = BUF_INIT(PAYLOAD_MAX + CONNECT_HEAD_LEN);
        cleanup_buf struct buf steps = BUF_INIT(PAYLOAD_MAX + CONNECT_HEAD_LEN);
        size_t at = 1;

        ASSERT(used == CONNECT_HEAD_LEN + env.len && used <= size);
        ASSERT(connect_add(&b, env.flags, env.payload, env.len) == 0);
        ASSERT(b.len == used && memcmp(b.data, data, used) == 0);
        ASSERT(connect_begin(&steps, &at) == 0 && at == 0);
        ASSERT(buf_add(&steps, env.payload, env.len) == 0);
        connect_finish(&steps, at, env.flags);
        ASSERT(steps.len == used && memcmp(steps.data, data, used) == 0);
        data += used;
        size -= used;
    }
    return 0;
}
