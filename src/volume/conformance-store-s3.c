/* SPDX-License-Identifier: Apache-2.0 */
/* Run by tests/volume/s3server.py. */
#include "volume/conformance-store.h"
#include "volume/s3.h"

struct store *conformance_open(void)
{
    const struct s3_opts opts = {.endpoint = getenv("S3_TEST_URL"),
                                 .bucket = getenv("S3_TEST_BUCKET"),
                                 .prefix = "below/this",
                                 .region = "eu-test-1",
                                 .credentials_file = getenv("S3_TEST_CREDENTIALS"),
                                 .path_style = true};
    struct store *s = NULL;

    ASSERT(opts.endpoint && opts.bucket && opts.credentials_file);
    ASSERT(store_s3_open(&opts, &s, NULL) == 0);
    return s;
}
