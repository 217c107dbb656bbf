/* SPDX-License-Identifier: Apache-2.0 */
/* What is a hello stays one, with the same name, whatever follows; a beginning of it wants more. */
#include "wire/tls-hello.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tls_hello hello;
    struct tls_hello again;
    uint8_t *longer;
    int r = tls_hello_parse(data, size, &hello);

    ASSERT(r == 0 || r == -EAGAIN || r == -EBADMSG || r == -E2BIG);
    if (r != 0) {
        return 0;
    }
    ASSERT(tls_hello_begins(data, size) && strlen(hello.name) < TLS_HELLO_NAME_SIZE);
    longer = xmalloc(size + 1);
    memcpy(longer, data, size);
    longer[size] = 'x';
    ASSERT(tls_hello_parse(longer, size + 1, &again) == 0 && str_eq(hello.name, again.name));
    free(longer);
    ASSERT(tls_hello_parse(data, 4, &again) == -EAGAIN);
    return 0;
}
