/* SPDX-License-Identifier: Apache-2.0 */
/* A line of the audit log. One that is taken has a number and a hash, and no longer is when a byte of it changes. */
#include <stdint.h>
#include <string.h>

#include "base/util.h"
#include "credential/audit-check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char hash[AUDIT_HASH_SIZE] = "";
    cleanup_free char *changed = NULL;
    uint64_t n = 0;

    if (audit_check_line((const char *)data, size, 0, "", &n, hash) < 0) {
        return 0;
    }
    ASSERT(n >= 1 && strlen(hash) == AUDIT_HASH_SIZE - 1);
    changed = xmemdup(data, size);
    changed[n % size] ^= 1;
    ASSERT(audit_check_line(changed, size, 0, "", &n, hash) < 0);
    return 0;
}
