/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A secret and a text, cut into pieces by what the input says: the result has the same length, does not depend on the cuts, and
 * holds no needle any more.
 */
#include <stdint.h>
#include <string.h>

#include "credential/redact.h"
#include "credential/secret.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(const char *secret, const char *text, size_t len, size_t piece, struct buf *out)
{
    struct redact r;

    redact_init(&r);
    ASSERT(redact_add(&r, secret) == 0);
    for (size_t i = 0; i < len; i += piece) {
        size_t n = MIN(piece, len - i);

        ASSERT(redact_next(&r, text + i, n, i + n == len, out) == 0);
    }
    ASSERT(out->len == len);
    for (size_t i = 0; i < r.n; i++) {
        /* One with a star may come about by masking its neighbour. */
        ASSERT(len < r.lens[i] || memchr(r.needles[i], '*', r.lens[i]) ||
               !memmem(out->data, out->len, r.needles[i], r.lens[i]));
    }
    redact_done(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_buf struct buf whole = BUF_INIT(1u << 20);
    cleanup_buf struct buf cut = BUF_INIT(1u << 20);
    char secret[64];
    size_t n;

    if (size < 3) {
        return 0;
    }
    n = MIN((size_t)data[0] % 40 + 6, size - 2);
    memcpy(secret, data + 2, n);
    secret[n] = '\0';
    if (strlen(secret) < REDACT_MIN || size > 65536) {
        return 0;
    }
    /* The secret is in the text, too. */
    run(secret, (const char *)data + 2, size - 2, size, &whole);
    run(secret, (const char *)data + 2, size - 2, (size_t)data[1] % 16 + 1, &cut);
    ASSERT(whole.len == cut.len && memcmp(whole.data, cut.data, whole.len) == 0);
    return 0;
}
