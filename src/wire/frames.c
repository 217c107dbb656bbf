/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/frames.h"

#include <string.h>

static bool frame_type_known(uint8_t type)
{
    switch (type) {
    case FRAME_START:
    case FRAME_STDOUT:
    case FRAME_STDERR:
    case FRAME_PTY:
    case FRAME_GAP:
    case FRAME_END:
    case FRAME_KEEPALIVE:
    case FRAME_ERROR:
        return true;
    default:
        return false;
    }
}

int frame_parse(const void *data, size_t len, struct frame *ret, size_t *ret_used)
{
    const uint8_t *p = data;
    size_t n;

    ASSERT((data || len == 0) && ret && ret_used);

    if (len > 0 && !frame_type_known(p[0])) {
        return -EPROTO; /* at once, however little has come */
    }
    if (len < FRAME_HEAD_LEN) {
        return -EAGAIN;
    }
    n = (size_t)p[4] << 24 | (size_t)p[5] << 16 | (size_t)p[6] << 8 | p[7];
    if (p[1] || p[2] || p[3] || n > FRAME_PAYLOAD_MAX || (p[0] == FRAME_KEEPALIVE && n > 0)) {
        return -EPROTO;
    }
    if (len - FRAME_HEAD_LEN < n) {
        return -EAGAIN;
    }
    *ret = (struct frame){(enum frame_type)p[0], (const char *)p + FRAME_HEAD_LEN, n};
    *ret_used = FRAME_HEAD_LEN + n;
    return 0;
}

int frames_take(struct buf *b, frame_fn *each, void *ctx)
{
    struct frame f;
    size_t used = 0;
    int r = 0;

    ASSERT(b && each);
    while (r == 0 && b->len > 0) {
        r = frame_parse(b->data, b->len, &f, &used);
        if (r < 0) {
            return r == -EAGAIN ? 0 : r;
        }
        r = each(ctx, &f);
        buf_consume(b, used);
    }
    return r;
}

void frame_head(enum frame_type type, size_t len, uint8_t ret[static FRAME_HEAD_LEN])
{
    ASSERT(frame_type_known((uint8_t)type) && len <= FRAME_PAYLOAD_MAX);
    ret[0] = (uint8_t)type;
    ret[1] = ret[2] = ret[3] = 0;
    ret[4] = (uint8_t)(len >> 24);
    ret[5] = (uint8_t)(len >> 16);
    ret[6] = (uint8_t)(len >> 8);
    ret[7] = (uint8_t)len;
}

int frame_add(struct buf *b, enum frame_type type, const void *payload, size_t len)
{
    void *end = NULL;
    int r;

    if (len > FRAME_PAYLOAD_MAX) {
        return -E2BIG;
    }
    r = buf_reserve(b, FRAME_HEAD_LEN + len, &end);
    if (r < 0) {
        return r;
    }
    frame_head(type, len, end);
    if (len > 0) {
        memcpy((uint8_t *)end + FRAME_HEAD_LEN, payload, len);
    }
    buf_commit(b, FRAME_HEAD_LEN + len);
    return 0;
}
