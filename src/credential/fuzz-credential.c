/* SPDX-License-Identifier: Apache-2.0 */
/* What a client says about a credential. What is taken can be written and read back to the same. */
#include <stdint.h>
#include <string.h>

#include "credential/credential.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_json json_t *json = NULL;
    cleanup_json json_t *written = NULL;
    struct credential c;
    struct credential back;

    if (json_parse_untrusted(data, size, &json, NULL) < 0 ||
        credential_from_json(json, &c, NULL) < 0) {
        return 0;
    }
    id_new(ID_CREDENTIAL, c.id);
    id_new(ID_ORGANISATION, c.organisation);
    if (c.scope != CREDENTIAL_ORGANISATION) {
        id_new(ID_PROJECT, c.project);
    }
    written = credential_json(&c, /* private */ true);
    ASSERT(credential_from_private(written, &back, NULL) == 0);
    ASSERT(str_eq(back.name, c.name) && str_eq(back.target.host, c.target.host) &&
           str_eq(back.target.path, c.target.path) && back.inject.type == c.inject.type &&
           back.inject.surfaces == c.inject.surfaces && back.scope == c.scope);
    return 0;
}
