/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to services of AWS, and to those that speak like them, signed with Signature Version 4 (credential/sigv4.h).
 *
 * Credentials are read from their file for each request, so that they can be replaced at any time: a JSON object with
 * "access_key_id", "secret_access_key", and maybe "session_token". Thread-safe.
 */
#pragma once

#include "base/err.h"
#include "http/headers.h"

/* All borrowed for the call. */
struct aws_service {
    const char *service; /* "s3" */
    const char *region;
    const char *host; /* as in the Host field */
    const char *credentials_file;
};

struct aws_request {
    const char *method;
    const char *path;   /* encoded, as sent */
    const char *query;  /* sorted and encoded; "" for none */
    const char *action; /* X-Amz-Target of services that speak JSON; NULL: none */
    const void *body;
    size_t body_len;
};

/*
 * Puts Host, X-Amz-* and Authorization into headers, which hold secrets from then on. -EACCES: the credentials cannot be read;
 * no reason is set, only the sentence.
 */
MUST_CHECK int aws_sign(const struct aws_service *s, const struct aws_request *req,
                        struct http_headers *headers, struct err *e);
