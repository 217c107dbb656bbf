/* SPDX-License-Identifier: Apache-2.0 */
/* Input: host, id, port and domain, each ended by a NUL; an empty one counts as absent. */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "gateway/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *take(char **at)
{
    const char *text = *at;

    *at += strlen(text) + 1;
    return *text ? text : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_free char *copy = xcalloc(size + 4, 1); /* four ends, whatever is missing */
    char *at = copy;
    struct address_source src;
    struct address found = {.port = 1};
    struct address again = {0};
    struct err e = {0};
    char port[8];
    int r;

    if (size > 0) {
        memcpy(copy, data, size);
    }
    src.host = take(&at);
    src.id = take(&at);
    src.port = take(&at);
    src.domain = take(&at);
    r = address_find(&src, &found, &e);
    ASSERT(r == 0 || r == 1 || (r == -EINVAL && e.field[0]));
    if (r != 1) {
        return 0;
    }
    ASSERT(found.port > 0 && found.id[0] && strlen(found.id) <= ADDRESS_LABEL_MAX);
    ASSERT(strspn(found.id, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(found.id));
    /* What came out, put in again, comes out. */
    snprintf(port, sizeof(port), "%u", found.port);
    src = (struct address_source){.id = found.id, .port = port};
    ASSERT(address_find(&src, &again, NULL) == 1);
    ASSERT(str_eq(again.id, found.id) && again.port == found.port);
    return 0;
}
