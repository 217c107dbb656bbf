/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes, cut as the first byte says: the cuts change nothing, and what is encoded decodes to itself. */
#include "channel/link.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
    uint8_t *payload; /* owned */
    size_t len;
    unsigned events; /* a hash of them and their nonces */
};

static struct run decode(const uint8_t *data, size_t size, size_t piece)
{
    struct link_decoder d = LINK_DECODER_INIT;
    struct run r = {.payload = xmalloc(size + 1)};

    while (size > 0) {
        size_t n = MIN(piece, size);
        cleanup_free uint8_t *in = xmemdup(data, n);
        size_t at = 0;

        while (at < n) {
            size_t used = 0;
            size_t payload = 0;
            enum link_event ev = link_decode(&d, in + at, n - at, &used, &payload);

            ASSERT(used > 0 && payload <= used && used <= n - at);
            ASSERT(ev != LINK_NONE || used == n - at);
            memcpy(r.payload + r.len, in + at, payload);
            r.len += payload;
            if (ev != LINK_NONE) {
                r.events = r.events * 31 + ev;
            }
            if (ev == LINK_HELLO || ev == LINK_ACK || ev == LINK_READY) {
                ASSERT(strlen(d.nonce) == LINK_NONCE_LEN);
                r.events = r.events * 31 + (unsigned)d.nonce[0];
            }
            at += used;
        }
        data += n;
        size -= n;
    }
    return r;
}

static void check_encoding(const uint8_t *data, size_t size)
{
    cleanup_free uint8_t *wire = xmalloc(LINK_ENCODED_MAX(size) + 1);
    size_t n = link_encode(data, size, wire);
    struct run r = decode(wire, n, 3);

    ASSERT(n >= size && n <= LINK_ENCODED_MAX(size));
    ASSERT(r.events == 0 && r.len == size && memcmp(r.payload, data, size) == 0);
    free(r.payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct run whole;
    struct run cut;

    if (size < 1 || size > 10000) {
        return 0;
    }
    whole = decode(data + 1, size - 1, size);
    cut = decode(data + 1, size - 1, (size_t)data[0] % 16 + 1);
    ASSERT(whole.len == cut.len && whole.events == cut.events);
    ASSERT(memcmp(whole.payload, cut.payload, whole.len) == 0);
    free(whole.payload);
    free(cut.payload);
    check_encoding(data, size);
    return 0;
}
