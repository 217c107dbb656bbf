/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http1.h"

/* Sizes stay below 2^60, so that nothing that adds to them overflows. */
#define CHUNK_MAX_DIGITS 15u

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int step_size(struct http1_chunked *c, char byte)
{
    int digit = hex_value(byte);

    if (digit >= 0 && c->digits < CHUNK_MAX_DIGITS) {
        c->left = c->left * 16 + (uint64_t)digit;
        c->digits++;
        return 0;
    }
    if (byte != '\r' || c->digits == 0) {
        return -EBADMSG;
    }
    c->state = HTTP1_CHUNK_SIZE_LF;
    return 0;
}

static int take_trailer(struct http1_chunked *c, char byte)
{
    if (++c->trailer_bytes > HTTP1_MAX_TRAILER) {
        return -EBADMSG;
    }
    return c->trailers && buf_add(c->trailers, &byte, 1) < 0 ? -EBADMSG : 0;
}

/* A trailer line is checked like a field. */
static int step_trailer(struct http1_chunked *c, char byte)
{
    if (c->state == HTTP1_CHUNK_TRAILER && byte == '\r') {
        c->state = HTTP1_CHUNK_END_LF;
        return 0;
    }
    if (take_trailer(c, byte) < 0) {
        return -EBADMSG;
    }
    switch (c->state) {
    case HTTP1_CHUNK_TRAILER:
        c->state = HTTP1_CHUNK_TRAILER_NAME;
        return http1_is_token(&byte, 1) ? 0 : -EBADMSG;
    case HTTP1_CHUNK_TRAILER_NAME:
        if (byte == ':') {
            c->state = HTTP1_CHUNK_TRAILER_VALUE;
            return 0;
        }
        return http1_is_token(&byte, 1) ? 0 : -EBADMSG;
    default:
        ASSERT(c->state == HTTP1_CHUNK_TRAILER_VALUE);
        if (byte == '\r') {
            c->state = HTTP1_CHUNK_TRAILER_LF;
            return 0;
        }
        return http1_is_value(&byte, 1) ? 0 : -EBADMSG;
    }
}

/* One byte that is not chunk data. */
static int step(struct http1_chunked *c, char byte)
{
    static const struct {
        char want;
        enum http1_chunk_state next;
    } fixed[] = {
        [HTTP1_CHUNK_SIZE_LF] = {'\n', HTTP1_CHUNK_DATA},
        [HTTP1_CHUNK_DATA_CR] = {'\r', HTTP1_CHUNK_DATA_LF},
        [HTTP1_CHUNK_DATA_LF] = {'\n', HTTP1_CHUNK_SIZE},
        [HTTP1_CHUNK_TRAILER_LF] = {'\n', HTTP1_CHUNK_TRAILER},
        [HTTP1_CHUNK_END_LF] = {'\n', HTTP1_CHUNK_DONE},
    };

    if (c->state == HTTP1_CHUNK_SIZE) {
        return step_size(c, byte);
    }
    if (c->state >= HTTP1_CHUNK_TRAILER && c->state <= HTTP1_CHUNK_TRAILER_VALUE) {
        return step_trailer(c, byte);
    }
    ASSERT(c->state < ARRAY_SIZE(fixed) && fixed[c->state].want);
    if (byte != fixed[c->state].want ||
        (c->state == HTTP1_CHUNK_TRAILER_LF && take_trailer(c, byte) < 0)) {
        return -EBADMSG;
    }
    c->digits = 0;
    if (c->state == HTTP1_CHUNK_SIZE_LF && c->left == 0) {
        c->state = HTTP1_CHUNK_TRAILER;
    } else {
        c->state = fixed[c->state].next;
    }
    return 0;
}

int http1_chunked_next(struct http1_chunked *c, const char *data, size_t len, size_t *ret_used,
                       size_t *ret_body_len)
{
    size_t i = 0;

    while (i < len && c->state != HTTP1_CHUNK_DONE && c->state != HTTP1_CHUNK_DATA) {
        int r = step(c, data[i++]);

        if (r < 0) {
            return r;
        }
    }
    *ret_body_len = 0;
    if (c->state == HTTP1_CHUNK_DATA) {
        size_t n = (size_t)MIN((uint64_t)(len - i), c->left);

        *ret_body_len = n;
        i += n;
        c->left -= n;
        if (c->left == 0) {
            c->state = HTTP1_CHUNK_DATA_CR;
        }
    }
    *ret_used = i;
    return c->state == HTTP1_CHUNK_DONE ? 1 : 0;
}
