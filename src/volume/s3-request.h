/* SPDX-License-Identifier: Apache-2.0 */
/* One signed request to S3, tried until it has an answer that counts; see s3.h. */
#pragma once

#include "http/client.h"
#include "volume/s3.h"

struct s3 {
    struct store base;
    struct http_client *http; /* owned */
    char *host;               /* owned: as in the Host field */
    char *path;               /* owned: before the key, "/" at its end */
    char *prefix;             /* owned: "" or with '/' at its end */
    char *region;             /* owned */
    char *credentials_file;   /* owned */
};

struct s3_request {
    const char *method;
    const char *key;   /* below path and prefix; NULL: the bucket itself */
    const char *query; /* sorted and encoded; "" for none */
    const void *body;
    size_t body_len;
};

struct s3_answer {
    int status;
    struct buf body; /* the caller sets its maximum; emptied before each try */
    uint64_t length; /* as announced */
    uint64_t modified_ms;
    char etag[100];
};

/* 0 for 2xx; -ENOENT for 404, without a sentence; else an error of store.h with one. */
MUST_CHECK int s3_do(struct s3 *s, const struct s3_request *req, struct s3_answer *ret,
                     struct err *e);
