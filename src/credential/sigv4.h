/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AWS Signature Version 4 (documented in AWS's "Signature Version 4 signing process"). Pure. The credential manager
 * derives a key for one day, region and service from the secret; whoever holds the request signs with that key.
 */
#pragma once

#include "base/buf.h"
#include "credential/plan.h"

#define SIGV4_SIGNATURE_SIZE 65u
/* "20150830T123600Z" */
#define SIGV4_TIME_SIZE 17u
#define SIGV4_UNSIGNED "UNSIGNED-PAYLOAD"
#define SIGV4_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

void sigv4_key(const char *secret, const struct sigv4_scope *scope,
               unsigned char ret[static PLAN_KEY_SIZE]);

struct sigv4_header {
    const char *name; /* lower case */
    const char *value;
};

struct sigv4_request {
    const char *method;
    const char *path;                   /* as sent, without the query */
    const char *query;                  /* as sent, without '?'; "" when there is none */
    const struct sigv4_header *headers; /* sorted by name, "host" among them */
    size_t n_headers;
    const char *payload; /* hex of SHA-256, or one of the words that stand for it */
    const char *time;    /* as in x-amz-date */
    /* Encodes the path a second time, as every service but S3 wants it. */
    bool encode_twice;
};

/*
 * The signature and, in signed_headers, the list of names. -EINVAL: path or query are not properly encoded; -E2BIG.
 */
MUST_CHECK int sigv4_sign(const struct sigv4_request *req, const struct sigv4_scope *scope,
                          const unsigned char key[static PLAN_KEY_SIZE],
                          char ret[static SIGV4_SIGNATURE_SIZE], struct buf *signed_headers);
/* Region and service out of the guest's own "AWS4-HMAC-SHA256 Credential=ID/DATE/REGION/SERVICE/aws4_request". */
MUST_CHECK int sigv4_scope_of(const char *authorization, size_t len, struct sigv4_scope *ret);
