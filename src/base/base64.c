/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_encode(const void *data, size_t len, struct buf *b)
{
    const uint8_t *p = data;
    void *end = NULL;
    char *out;
    int r;

    if (len > SIZE_MAX / 2) {
        return -E2BIG;
    }
    r = buf_reserve(b, (len + 2) / 3 * 4, &end);
    if (r < 0) {
        return r;
    }
    out = end;
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16;

        v |= i + 1 < len ? (uint32_t)p[i + 1] << 8 : 0;
        v |= i + 2 < len ? (uint32_t)p[i + 2] : 0;
        *out++ = alphabet[v >> 18];
        *out++ = alphabet[(v >> 12) & 63];
        *out++ = i + 1 < len ? alphabet[(v >> 6) & 63] : '=';
        *out++ = i + 2 < len ? alphabet[v & 63] : '=';
    }
    buf_commit(b, (len + 2) / 3 * 4);
    return 0;
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* One group of four; padding only where last allows it. Returns the bytes written or -EINVAL. */
static int decode_group(const char *in, bool last, uint8_t out[static 3])
{
    int n = 3;
    uint32_t v = 0;

    if (last && in[3] == '=') {
        n = in[2] == '=' ? 1 : 2;
    }
    for (int i = 0; i < 4; i++) {
        int bits = i <= n ? value_of(in[i]) : 0;

        if (bits < 0) {
            return -EINVAL;
        }
        v = v << 6 | (uint32_t)bits;
    }
    if ((n == 1 && (v & 0xffff)) || (n == 2 && (v & 0xff))) {
        return -EINVAL;
    }
    out[0] = (uint8_t)(v >> 16);
    out[1] = (uint8_t)(v >> 8);
    out[2] = (uint8_t)v;
    return n;
}

int base64_decode(const char *text, size_t len, struct buf *b)
{
    size_t before = b->len;

    if (len % 4 != 0) {
        return -EINVAL;
    }
    for (size_t i = 0; i < len; i += 4) {
        uint8_t out[3];
        int n = decode_group(text + i, i + 4 == len, out);
        int r = n < 0 ? n : buf_add(b, out, (size_t)n);

        if (r < 0) {
            b->len = before;
            return r;
        }
    }
    return 0;
}
