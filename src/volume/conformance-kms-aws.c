/* SPDX-License-Identifier: Apache-2.0 */
/* Run by tests/volume/kmsserver.py. */
#include "base/clock.h"
#include "http/client.h"
#include "volume/conformance-kms.h"
#include "volume/kms-aws.h"

struct kms *conformance_open(void)
{
    const struct kms_aws_opts opts = {.region = "eu-north-1",
                                      .endpoint = getenv("KMS_TEST_URL"),
                                      .prefix = "space-",
                                      .credentials_file = getenv("KMS_TEST_CREDENTIALS")};
    struct kms *k = NULL;

    ASSERT(kms_aws_open(&opts, &k, NULL) == 0);
    return k;
}

void conformance_revoke(const char *organisation, bool revoked)
{
    CLEANUP(http_client_freep) struct http_client *c = NULL;
    cleanup_free char *target =
        xasprintf("/-/%s?alias=alias/space-%s", revoked ? "DisableKey" : "EnableKey", organisation);
    const struct http_json_opts opts = {.target = target, .deadline_ns = deadline_in_ms(10000)};

    ASSERT(http_client_new(getenv("KMS_TEST_URL"), NULL, &c, NULL) == 0);
    ASSERT(http_client_json(c, &opts, NULL, NULL) == 0);
}
