/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A head of HTTP/2, as its fields come out of the decompressor (RFC 9113 8), written as the head of HTTP/1.1 that says the
 * same. Pure, fuzzed. What judges a request and puts secrets into it (http1.h, credential/inject.h) then knows one form
 * only, and what HTTP/1.1 could read differently is refused by the one strict parser. The network gateway never sends the result to
 * anybody: requests that came by HTTP/2 leave by HTTP/2. Our own server reads it back by that parser (http/server-http2.h).
 *
 * Refused here: pseudo fields twice, unknown, after a plain one, missing or empty, of an answer in a request; a scheme other
 * than the connection's; CONNECT with more than an authority; names in upper case; bytes that are no name or value;
 * fields that describe the hop (connection, keep-alive, proxy-connection, transfer-encoding, upgrade; te other than
 * "trailers"); a Host that differs from the authority; more than HTTP1_MAX_FIELDS fields or HTTP1_MAX_HEAD bytes.
 * Crumbs of Cookie become one field (8.2.3).
 */
#pragma once

#include "base/buf.h"
#include "base/util.h"

struct http2_head {
    char *method; /* owned, as all here; NULL: not given */
    char *scheme;
    char *authority;
    char *path;
    char *host;        /* the plain field of that name */
    unsigned status;   /* 0: not given */
    struct buf fields; /* lines of the others */
    struct buf cookies;
    size_t n_fields;
    size_t bytes;     /* of all names and values */
    bool te_trailers; /* "te: trailers" was given */
};

#define cleanup_http2_head CLEANUP(http2_head_done)

void http2_head_init(struct http2_head *h);
void http2_head_done(struct http2_head *h);

struct http2_bytes {
    const void *p; /* borrowed */
    size_t len;
};
/* The next field. -EBADMSG: refused; -E2BIG: too much. */
MUST_CHECK int http2_head_add(struct http2_head *h, struct http2_bytes name,
                              struct http2_bytes value);
/*
 * The request, whole, with Host first. More follows: it has a body, and where no length is given it is written as one in
 * chunks. -EBADMSG; -E2BIG. What http1_parse_request() makes of it is its meaning.
 */
MUST_CHECK int http2_head_request(const struct http2_head *h, const char *scheme, bool more,
                                  struct buf *ret);
/* An answer, interim or final. Never with a framing of HTTP/1.1. */
MUST_CHECK int http2_head_answer(const struct http2_head *h, struct buf *ret);
/* Trailers: fields without a start line, which may not hold what only a head can say. */
MUST_CHECK int http2_head_trailers(const struct http2_head *h, struct buf *ret);
