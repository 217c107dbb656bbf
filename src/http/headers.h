/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of header fields, as both the server and the client hand them out and take them in. It
 * knows nothing of HTTP/1 or HTTP/2: names compare without regard to case, order is kept.
 *
 * Fields that come from outside were checked by the parser. Fields that we add go through
 * http_headers_add, which makes response splitting impossible: a name must be a token (ASSERT,
 * names are ours), and a byte that a value cannot carry (controls, DEL) becomes '?'.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct http_header {
    const char *name;
    const char *value;
};

struct http_headers {
    struct http_header *v; /* owned, and so are the strings */
    size_t n;
    size_t cap;
};

#define HTTP_HEADERS_INIT \
    { \
        0 \
    }

void http_headers_done(struct http_headers *h);
void http_headers_add(struct http_headers *h, const char *name, const char *value);
/* Replaces every field of that name. */
void http_headers_set(struct http_headers *h, const char *name, const char *value);
void http_headers_remove(struct http_headers *h, const char *name);
/* The first field of that name, or NULL. Borrowed until the list changes. */
const char *http_headers_get(const struct http_headers *h, const char *name);
/* True when some field of that name has the token in its comma list ("Connection: a, close"). */
bool http_headers_has_token(const struct http_headers *h, const char *name, const char *token);
/* The token in the value of "Authorization: Bearer TOKEN", maybe empty; NULL: it is another scheme, or value is NULL. Borrowed. */
const char *http_bearer(const char *value);
