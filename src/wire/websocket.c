/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/websocket.h"

#include <string.h>

static uint64_t read_be(const unsigned char *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

static int parse_first_bytes(const unsigned char *p, size_t len, struct websocket_frame *f)
{
    unsigned opcode = p[0] & 0x0fu;
    bool control = opcode >= WEBSOCKET_CLOSE;

    if ((p[0] & 0x70) || (opcode > WEBSOCKET_BINARY && opcode < WEBSOCKET_CLOSE) ||
        opcode > WEBSOCKET_PONG) {
        return -EBADMSG;
    }
    f->fin = p[0] & 0x80;
    f->opcode = (enum websocket_opcode)opcode;
    if (control && !f->fin) {
        return -EBADMSG;
    }
    if (len < 2) {
        return -EAGAIN;
    }
    f->masked = p[1] & 0x80;
    f->len = p[1] & 0x7f;
    return control && f->len > WEBSOCKET_MAX_CONTROL ? -EBADMSG : 0;
}

int websocket_parse(const void *data, size_t len, struct websocket_frame *ret)
{
    const unsigned char *p = data;
    struct websocket_frame f = {0};
    size_t at = 2;
    int r;

    if (len == 0) {
        return -EAGAIN;
    }
    r = parse_first_bytes(p, len, &f);
    if (r < 0) {
        return r;
    }
    if (f.len >= 126) {
        size_t n = f.len == 126 ? 2 : 8;
        uint64_t shortest = n == 2 ? 126 : 65536;

        if (len < at + n) {
            return -EAGAIN;
        }
        f.len = read_be(p + at, n);
        at += n;
        if (f.len < shortest || f.len > INT64_MAX) {
            return -EBADMSG;
        }
    }
    if (f.masked) {
        if (len < at + sizeof(f.mask)) {
            return -EAGAIN;
        }
        memcpy(f.mask, p + at, sizeof(f.mask));
        at += sizeof(f.mask);
    }
    f.header_len = at;
    *ret = f;
    return 0;
}

size_t websocket_print(const struct websocket_frame *f,
                       unsigned char ret[static WEBSOCKET_MAX_HEADER])
{
    size_t n_len = f->len < 126 ? 0 : f->len < 65536 ? 2 : 8;
    size_t at = 2;

    ASSERT(f->len <= INT64_MAX);
    ret[0] = (unsigned char)((f->fin ? 0x80u : 0u) | (unsigned)f->opcode);
    ret[1] = (unsigned char)((f->masked ? 0x80u : 0u) | (n_len == 0   ? (unsigned)f->len
                                                         : n_len == 2 ? 126u
                                                                      : 127u));
    for (size_t i = 0; i < n_len; i++) {
        ret[at++] = (unsigned char)(f->len >> (8 * (n_len - 1 - i)));
    }
    if (f->masked) {
        memcpy(ret + at, f->mask, sizeof(f->mask));
        at += sizeof(f->mask);
    }
    return at;
}

void websocket_mask(void *data, size_t len, const unsigned char mask[static 4], uint64_t offset)
{
    unsigned char *p = data;
    unsigned char turned[8];
    uint64_t word_mask;
    size_t i = 0;

    for (size_t k = 0; k < sizeof(turned); k++) {
        turned[k] = mask[(offset + k) & 3];
    }
    memcpy(&word_mask, turned, sizeof(word_mask));
    for (; i + 8 <= len; i += 8) {
        uint64_t word;

        memcpy(&word, p + i, sizeof(word));
        word ^= word_mask;
        memcpy(p + i, &word, sizeof(word));
    }
    for (; i < len; i++) {
        p[i] ^= turned[i & 7];
    }
}

bool websocket_close_code_valid(unsigned code)
{
    return (code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006) ||
           (code >= 3000 && code <= 4999);
}

/* Length of the sequence at p, 0 if it is none. */
static size_t utf8_sequence(const unsigned char *p, size_t len)
{
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : 4;

    if (n > len || (n == 4 && (p[0] < 0xf0 || p[0] > 0xf4))) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) {
        return 0;
    }
    return n;
}

bool websocket_utf8_valid(const void *data, size_t len)
{
    const unsigned char *p = data;
    size_t i = 0;

    while (i < len) {
        size_t n = utf8_sequence(p + i, len - i);

        if (n == 0) {
            return false;
        }
        i += n;
    }
    return true;
}
