/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A POST to a server that a tenant has named: https, verified as always, and, unless the operator allows it, neither private
 * nor ours. Blocks for POST_MS at most. Thread-safe.
 */
#pragma once

#include "base/buf.h"
#include "http/client.h"

#define POST_MS 10000u

struct post_opts {
    const char *ca_file; /* NULL: the system's authorities */
    bool allow_private;
};

/* All borrowed for the call. */
struct post {
    const char *url;
    const char *more; /* after the path of the URL; NULL: nothing */
    const char *content_type;
    const struct buf *body;
    const struct http_headers *headers;
};

/* The answer's text belongs to the caller. */
MUST_CHECK int post_to(const struct post_opts *opts, const struct post *post, int *ret_status,
                       char **ret_text, size_t *ret_len, struct err *e);
