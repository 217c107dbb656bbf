/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdio.h>
#include <string.h>

void buf_done(struct buf *b)
{
    free(b->base);
    *b = BUF_INIT(b->max);
}

void buf_reset(struct buf *b)
{
    b->data = b->base;
    b->len = 0;
}

int buf_reserve(struct buf *b, size_t len, void **ret)
{
    size_t offset = b->base ? (size_t)(b->data - b->base) : 0;
    size_t need;

    if (len > b->max || b->len > b->max - len) {
        return -E2BIG;
    }
    need = b->len + len + 1;
    if (b->cap - offset < need || !b->base) {
        if (offset > 0 && b->cap >= need && offset >= b->len) {
            memmove(b->base, b->data, b->len); /* room came free at the front */
        } else {
            size_t cap = MAX(need, MIN(b->cap * 2, b->max + 1));
            char *base = xmalloc(MAX(cap, (size_t)64));

            if (b->len > 0) {
                memcpy(base, b->data, b->len);
            }
            free(b->base);
            b->base = base;
            b->cap = MAX(cap, (size_t)64);
        }
        b->data = b->base;
        b->data[b->len] = '\0'; /* still a string if nothing is committed */
    }
    *ret = b->data + b->len;
    return 0;
}

void buf_commit(struct buf *b, size_t len)
{
    ASSERT(b->base && len < b->cap - (size_t)(b->data - b->base) - b->len);
    b->len += len;
    b->data[b->len] = '\0';
}

int buf_add(struct buf *b, const void *data, size_t len)
{
    void *end = NULL;
    int r = buf_reserve(b, len, &end);

    if (r < 0) {
        return r;
    }
    if (len > 0) {
        memcpy(end, data, len);
    }
    buf_commit(b, len);
    return 0;
}

int buf_add_str(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    void *end = NULL;
    int n;
    int r;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    ASSERT(n >= 0);
    r = buf_reserve(b, (size_t)n, &end);
    if (r == 0) {
        vsnprintf(end, (size_t)n + 1, fmt, again);
        buf_commit(b, (size_t)n);
    }
    va_end(again);
    return r;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = buf_vprintf(b, fmt, ap);
    va_end(ap);
    return r;
}

void buf_consume(struct buf *b, size_t n)
{
    ASSERT(n <= b->len);
    b->len -= n;
    b->data = b->len ? b->data + n : b->base;
}

const char *buf_str(const struct buf *b)
{
    return b->len ? b->data : "";
}

char *buf_take(struct buf *b)
{
    char *s = xmalloc(b->len + 1);

    if (b->len > 0) {
        memcpy(s, b->data, b->len);
    }
    s[b->len] = '\0';
    buf_done(b);
    return s;
}
