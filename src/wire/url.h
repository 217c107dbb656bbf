/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Percent-encoding, queries and the few kinds of address we are given. Pure. Bytes stay bytes: a
 * decoded string may hold anything but NUL, in whatever encoding the sender used.
 */
#pragma once

#include "base/buf.h"
#include "base/util.h"

#define URL_PLUS_IS_SPACE (1u << 0) /* decode: in queries */
#define URL_KEEP_SLASH (1u << 1)    /* encode: for whole paths */

/*
 * Decodes len bytes into ret, which has room for len + 1, and adds a NUL. -EINVAL: a bad escape or
 * a NUL, also an encoded one. ret may be the same memory as s, or NULL: only checks.
 */
MUST_CHECK int url_decode(const char *s, size_t len, unsigned flags, char *ret, size_t *ret_len);

/* Appends; everything but unreserved characters (RFC 3986) is escaped. -E2BIG. */
MUST_CHECK int url_encode(struct buf *b, const void *data, size_t len, unsigned flags);
/* Appends "?name=value" or "&name=value", by whether b already has a '?'. */
MUST_CHECK int url_add_query(struct buf *b, const char *name, const char *value);

/* Iterates over "a=1&b&c=": views are still encoded; empty pairs ("&&") are skipped. */
struct url_query {
    const char *rest; /* borrowed */
    size_t len;
};
struct url_pair {
    const char *name; /* borrowed: the query's bytes */
    size_t name_len;
    const char *value;
    size_t value_len;
};
bool url_query_next(struct url_query *q, struct url_pair *ret);

enum url_scheme {
    URL_HTTP,
    URL_HTTPS,
    URL_UNIX
};

#define URL_HOST_SIZE 256u
#define URL_PATH_SIZE 4096u

/* "http://host[:port][/base]", "https://...", "unix:/path", "host:port", ":port", "[v6]:port". */
struct url {
    enum url_scheme scheme;
    char host[URL_HOST_SIZE]; /* without brackets; may be empty for ":port" */
    uint16_t port;            /* 80 or 443 by default */
    char path[URL_PATH_SIZE]; /* base path without '/' at its end, or the socket's path */
};
/* -EINVAL. Refuses user names, queries, fragments and controls. */
MUST_CHECK int url_parse(const char *s, struct url *ret);
