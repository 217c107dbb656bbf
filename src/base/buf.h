/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing run of bytes with a ceiling. A buf cannot be made without its maximum, so that no size
 * from outside decides how much memory we ask for:
 *
 *     cleanup_buf struct buf b = BUF_INIT(HTTP_BODY_MAX);
 *
 * The bytes are followed by a NUL that does not count, so that data may be read as a string (data is
 * never NULL after a successful add; buf_str() is always a string). Consuming from the front is cheap.
 */
#pragma once

#include "base/util.h"

#include <stdarg.h>

struct buf {
    char *data; /* owned; may be NULL while empty; first unread byte */
    size_t len; /* bytes at data */
    size_t max; /* ceiling for len */
    size_t cap; /* private: allocated from base */
    char *base; /* private: owned */
};

#define BUF_INIT(max_) ((struct buf){.max = (max_)})
#define cleanup_buf CLEANUP(buf_done)

void buf_done(struct buf *b);
/* Empty, memory kept. */
void buf_reset(struct buf *b);
/* All return 0 or -E2BIG (then nothing was added). */
MUST_CHECK int buf_add(struct buf *b, const void *data, size_t len);
MUST_CHECK int buf_add_str(struct buf *b, const char *s);
MUST_CHECK int buf_printf(struct buf *b, const char *fmt, ...) PRINTF(2, 3);
MUST_CHECK int buf_vprintf(struct buf *b, const char *fmt, va_list ap) PRINTF(2, 0);
/* Room for len more bytes at the end; write there, then buf_commit() what was written. */
MUST_CHECK int buf_reserve(struct buf *b, size_t len, void **ret);
void buf_commit(struct buf *b, size_t len);
/* Drops n bytes from the front; n <= len. */
void buf_consume(struct buf *b, size_t n);
/* The content as a string; "" when empty. Borrowed until the next change. */
const char *buf_str(const struct buf *b);
/* The content as a heap string (NUL added); the buf is empty afterwards. */
char *buf_take(struct buf *b);
