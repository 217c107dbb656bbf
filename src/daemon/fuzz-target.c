/* SPDX-License-Identifier: Apache-2.0 */
/* A request target: what comes out has no NUL, no empty segment, and matches its own path. */
#include "daemon/target.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_free char *text = xstrndup((const char *)data, size);
    const char *captures[ROUTE_CAPTURES_MAX] = {0};
    struct target t;
    struct err e = {0};

    if (target_parse(text, &t, &e) < 0) {
        ASSERT(e.code == -EINVAL && e.msg[0]);
        return 0;
    }
    ASSERT(t.n_segments <= TARGET_SEGMENTS_MAX && t.n_params <= TARGET_PARAMS_MAX);
    for (size_t i = 0; i < t.n_segments; i++) {
        ASSERT(strlen(t.segments[i]) <= size);
    }
    for (size_t i = 0; i < t.n_params; i++) {
        const char *first = target_param(&t, t.params[i].name);

        ASSERT(first && strlen(t.params[i].value) <= size);
    }
    if (target_matches(&t, "/commands/{id}/output", captures)) {
        ASSERT(t.n_segments == 3 && captures[0] == t.segments[1]);
    }
    target_done(&t);
    return 0;
}
