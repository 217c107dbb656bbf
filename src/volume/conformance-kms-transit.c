/* SPDX-License-Identifier: Apache-2.0 */
/* Run by tests/volume/transitserver.py. */
#include "base/clock.h"
#include "http/client.h"
#include "volume/conformance-kms.h"
#include "volume/kms-transit.h"

struct kms *conformance_open(void)
{
    const struct kms_transit_opts opts = {.url = getenv("TRANSIT_TEST_URL"),
                                          .mount = "transit",
                                          .prefix = "space-",
                                          .token_file = getenv("TRANSIT_TEST_TOKEN_FILE"),
                                          .name_space = "team"};
    struct kms *k = NULL;

    ASSERT(kms_transit_open(&opts, &k, NULL) == 0);
    return k;
}

void conformance_revoke(const char *organisation, bool revoked)
{
    CLEANUP(http_client_freep) struct http_client *c = NULL;
    cleanup_free char *target =
        xasprintf("/-/revoke?key=space-%s&revoked=%d", organisation, (int)revoked);
    const struct http_json_opts opts = {.target = target, .deadline_ns = deadline_in_ms(10000)};

    ASSERT(http_client_new(getenv("TRANSIT_TEST_URL"), NULL, &c, NULL) == 0);
    ASSERT(http_client_json(c, &opts, NULL, NULL) == 0);
}
