/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/connect.h"

#include <string.h>

int connect_parse(const void *data, size_t len, size_t max, struct connect_envelope *ret,
                  size_t *ret_used)
{
    const uint8_t *p = data;
    size_t size;

    ASSERT((data || len == 0) && ret && ret_used);

    if (len < 1) {
        return -EAGAIN;
    }
    if (p[0] != 0 && p[0] != CONNECT_END_STREAM) {
        return -EPROTO;
    }
    if (len < CONNECT_HEAD_LEN) {
        return -EAGAIN;
    }
    size = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    if (size > max) {
        return -E2BIG;
    }
    if (len - CONNECT_HEAD_LEN < size) {
        return -EAGAIN;
    }
    *ret = (struct connect_envelope){p[0], (const char *)data + CONNECT_HEAD_LEN, size};
    *ret_used = CONNECT_HEAD_LEN + size;
    return 0;
}

static void put_head(char *at, unsigned flags, size_t len)
{
    at[0] = (char)flags;
    at[1] = (char)(len >> 24);
    at[2] = (char)(len >> 16);
    at[3] = (char)(len >> 8);
    at[4] = (char)len;
}

int connect_add(struct buf *b, unsigned flags, const void *payload, size_t len)
{
    char head[CONNECT_HEAD_LEN];

    if (len > UINT32_MAX || b->max - b->len < CONNECT_HEAD_LEN ||
        b->max - b->len - CONNECT_HEAD_LEN < len) {
        return -E2BIG;
    }
    put_head(head, flags, len);
    IGNORE_RESULT(buf_add(b, head, sizeof(head))); /* there is room */
    return buf_add(b, payload, len);
}

int connect_begin(struct buf *b, size_t *ret_at)
{
    static const char head[CONNECT_HEAD_LEN];
    size_t at = b->len;
    int r = buf_add(b, head, sizeof(head));

    if (r == 0) {
        *ret_at = at;
    }
    return r;
}

void connect_finish(struct buf *b, size_t at, unsigned flags)
{
    size_t len = b->len - at - CONNECT_HEAD_LEN;

    ASSERT(b->len >= at + CONNECT_HEAD_LEN && len <= UINT32_MAX);
    put_head(b->data + at, flags, len);
}

static const struct {
    const char *name;
    int status;
} codes[CONNECT_CODE_COUNT_] = {
    [CONNECT_CANCELED] = {"canceled", 499},
    [CONNECT_UNKNOWN] = {"unknown", 500},
    [CONNECT_INVALID_ARGUMENT] = {"invalid_argument", 400},
    [CONNECT_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
    [CONNECT_NOT_FOUND] = {"not_found", 404},
    [CONNECT_ALREADY_EXISTS] = {"already_exists", 409},
    [CONNECT_PERMISSION_DENIED] = {"permission_denied", 403},
    [CONNECT_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
    [CONNECT_FAILED_PRECONDITION] = {"failed_precondition", 400},
    [CONNECT_UNIMPLEMENTED] = {"unimplemented", 501},
    [CONNECT_INTERNAL] = {"internal", 500},
    [CONNECT_UNAVAILABLE] = {"unavailable", 503},
    [CONNECT_UNAUTHENTICATED] = {"unauthenticated", 401},
};

const char *connect_code_name(enum connect_code code)
{
    ASSERT(code < CONNECT_CODE_COUNT_);
    return codes[code].name;
}

int connect_code_status(enum connect_code code)
{
    ASSERT(code < CONNECT_CODE_COUNT_);
    return codes[code].status;
}
