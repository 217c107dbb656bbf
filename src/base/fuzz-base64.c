/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What decodes must encode to the same text again; what is encoded must decode to the same bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_buf struct buf bytes = BUF_INIT(1 << 20);
    cleanup_buf struct buf text = BUF_INIT(1 << 21);
    cleanup_buf struct buf again = BUF_INIT(1 << 20);

    if (size > 1 << 18) {
        return 0;
    }
    if (base64_decode((const char *)data, size, &bytes) == 0) {
        ASSERT(base64_encode(bytes.data, bytes.len, &text) == 0);
        ASSERT(text.len == size && (size == 0 || memcmp(text.data, data, size) == 0));
        buf_reset(&text);
    }
    ASSERT(base64_encode(data, size, &text) == 0);
    ASSERT(base64_decode(buf_str(&text), text.len, &again) == 0);
    ASSERT(again.len == size && (size == 0 || memcmp(again.data, data, size) == 0));
    return 0;
}
