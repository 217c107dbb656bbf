/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of /setup and /identity: refused with a sentence, or within their bounds. */
#include "daemon/setup-spec.h"

#include "base/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct setup_spec *s)
{
    size_t n = 0;

    ASSERT(s->epoch_ns >= 0 && s->disk_bytes >= 0 && s->n_entropy <= SETUP_ENTROPY_MAX);
    ASSERT(strlen(s->machine_id) == 0 || strlen(s->machine_id) == 32);
    ASSERT(!strchr(s->hostname, '/') && !strstr(s->device, ".."));
    while (s->env && s->env[n]) {
        ASSERT(strchr(s->env[n], '=') > s->env[n]);
        n++;
    }
    ASSERT(n <= SETUP_ENV_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_json json_t *body = NULL;
    struct setup_spec s = {0};
    struct err e = {0};

    if (json_parse_object(data, size, &body, NULL) < 0) {
        return 0;
    }
    if (setup_spec_parse(body, &s, &e) == 0) {
        check(&s);
        setup_spec_done(&s);
    } else {
        ASSERT(e.code == -EINVAL && e.msg[0]);
    }
    if (identity_spec_parse(body, &s, &e) == 0) {
        check(&s);
        setup_spec_done(&s);
    }
    return 0;
}
