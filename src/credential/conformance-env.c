/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>

#include "credential/conformance.h"

static struct vault *open_env(void)
{
    return vault_env_new("TEST_VAULT");
}

static void plant(const char *ref, const char *value)
{
    cleanup_free char *name = xasprintf("TEST_VAULT_%s", ref);

    for (char *s = name; *s; s++) {
        *s = isalnum((unsigned char)*s) ? (char)toupper((unsigned char)*s) : '_';
    }
    ASSERT(setenv(name, value, 1) == 0);
}

struct conformance conformance = {.open = open_env, .read_only = true, .plant = plant};
