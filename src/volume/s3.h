/* SPDX-License-Identifier: Apache-2.0 */
/*
 * S3 over its published HTTP API, on our own HTTP client: signed (aws.h), path or
 * virtual-host style, own authorities for TLS, session tokens.
 *
 * A request is tried S3_TRIES times, with a growing pause, when the store does not answer, breaks off, asks for patience (429, 500, 502,
 * 503, 504), or answers 200 with an error in the body. All that is asked for may be repeated.
 *
 * Objects of more than S3_PART bytes go up in parts; a part that fails is sent again, not the others. Chunks are smaller, so
 * that an upload that was interrupted goes on at the chunk where it stopped: those before are found by their names.
 *
 * Credentials are those of aws.h.
 */
#pragma once

#include "volume/store.h"

#define S3_TRIES 6u
#define S3_TRY_MS 60000u
#define S3_FIRST_PAUSE_MS 100u
#define S3_PART (8u << 20)

/* All borrowed for the call. */
struct s3_opts {
    const char *endpoint; /* "https://s3.example.org" */
    const char *bucket;
    const char *prefix; /* before all keys; NULL or "": none */
    const char *region;
    const char *credentials_file;
    const char *ca_file; /* NULL: the system's authorities */
    bool path_style;     /* endpoint/BUCKET/KEY; else BUCKET.endpoint/KEY */
};

/* -EINVAL: something is no name. Does not connect. */
MUST_CHECK int store_s3_open(const struct s3_opts *opts, struct store **ret, struct err *e);
