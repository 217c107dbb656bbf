/* SPDX-License-Identifier: Apache-2.0 */
/* See kms-transit.c. */
#pragma once

#include "volume/kms.h"

/* All borrowed for the call. */
struct kms_transit_opts {
    const char *url;
    const char *mount;      /* "transit" */
    const char *prefix;     /* before the organisation in a key's name: "space-" */
    const char *token_file; /* read for each request */
    const char *name_space; /* NULL: none */
    const char *ca_file;    /* NULL: the system's */
};

/* Does not connect. */
MUST_CHECK int kms_transit_open(const struct kms_transit_opts *opts, struct kms **ret,
                                struct err *e);
