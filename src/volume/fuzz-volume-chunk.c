/* SPDX-License-Identifier: Apache-2.0 */
/* What a chunk says, once it was decrypted: its pieces lie within the file, in order, and use up its bytes. */
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "volume/chunk.h"

#define FILE_SIZE (32u << 20)

struct seen {
    uint64_t end;
    const unsigned char *next;
};

static int see(void *ctx, uint64_t offset, const unsigned char *data, size_t length)
{
    struct seen *s = ctx;

    ASSERT(length > 0 && offset >= s->end && offset + length <= FILE_SIZE);
    ASSERT(!s->next || data == s->next);
    s->end = offset + length;
    s->next = data + length;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_free unsigned char *plain = xmalloc(CHUNK_PLAIN_MAX);
    struct seen seen = {0};
    size_t len = 0;

    if (chunk_parse(data, size, FILE_SIZE, see, &seen) == 0) {
        ASSERT(seen.next == data + size);
    }
    seen = (struct seen){0};
    if (chunk_unpack(data, size, plain, &len) == 0) {
        ASSERT(len <= CHUNK_PLAIN_MAX);
        if (chunk_parse(plain, len, FILE_SIZE, see, &seen) == 0) {
            ASSERT(seen.next == plain + len);
        }
    }
    return 0;
}
