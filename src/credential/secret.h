/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that holds a secret.
 *
 * A struct secret lives in pages of its own: locked (never swapped), left out of core dumps, empty in a forked child,
 * followed by a page that cannot be touched, wiped when freed. Locking can fail where the limit of locked memory is
 * low; the rest holds all the same and secret_process() says so once.
 *
 * Secrets that travel in JSON pass through ordinary memory. secret_process() makes that memory wiped when it is
 * freed (jansson's allocator), makes the process unreadable for others of its user, and forbids core dumps. Buffers
 * are wiped by secret_wipe_buf().
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "http/headers.h"

#define SECRET_MAX 65536u

struct secret {
    char *p; /* owned: len bytes and a NUL; NULL: none */
    size_t len;
    size_t map; /* private: bytes mapped */
};

#define cleanup_secret CLEANUP(secret_done)

/* A copy of the bytes. -E2BIG: more than SECRET_MAX. */
MUST_CHECK int secret_init(struct secret *s, const void *data, size_t len);
void secret_done(struct secret *s);
/* buf_done(), with all memory that the buffer has now overwritten first. */
void secret_wipe_buf(struct buf *b);
#define cleanup_secret_buf CLEANUP(secret_wipe_buf)
/* http_headers_done(), with all values overwritten first. */
void secret_wipe_headers(struct http_headers *h);
#define cleanup_secret_headers CLEANUP(secret_wipe_headers)
/* free(), overwritten first. NULL is fine. */
void secret_free(char *s);
void secret_freep(char **s);
#define cleanup_secret_free CLEANUP(secret_freep)

/* Once, at the start of a program that holds secrets, before the first JSON value is made. */
MUST_CHECK int secret_process(struct err *e);
