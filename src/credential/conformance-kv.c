/* SPDX-License-Identifier: Apache-2.0 */
/* Against a server that speaks the published API of KV version 2; tests/network/kv-server.py starts it and runs this. */
#include <stdlib.h>

#include "credential/conformance.h"

static struct vault *open_kv(void)
{
    const struct vault_kv_opts opts = {.url = getenv("TEST_KV_URL"),
                                       .token_file = getenv("TEST_KV_TOKEN_FILE"),
                                       .name_space = "team/a"};
    struct vault *v = NULL;
    struct err e = {0};

    if (!opts.url || !opts.token_file) {
        conformance.why = "started without a server: run tests/network/kv-server.py";
        return NULL;
    }
    ASSERT(vault_kv_new(&opts, &v, &e) == 0);
    return v;
}

struct conformance conformance = {.open = open_kv};
