/* SPDX-License-Identifier: Apache-2.0 */
/* See kms-aws.c. */
#pragma once

#include "volume/kms.h"

/* All borrowed for the call. */
struct kms_aws_opts {
    const char *region;           /* "eu-central-1" */
    const char *endpoint;         /* NULL: that of the region */
    const char *prefix;           /* after "alias/", before the organisation: "space-" */
    const char *credentials_file; /* see aws.h */
    const char *ca_file;          /* NULL: the system's */
};

/* Does not connect. -EINVAL: something is missing or no address. */
MUST_CHECK int kms_aws_open(const struct kms_aws_opts *opts, struct kms **ret, struct err *e);
