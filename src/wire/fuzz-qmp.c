/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/qmp.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Names and texts end within their fields, whatever comes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qmp_message m;

    if (qmp_parse((const char *)data, size, &m) == 0) {
        ASSERT(memchr(m.name, 0, sizeof(m.name)) && memchr(m.text, 0, sizeof(m.text)));
        ASSERT(m.kind != QMP_EVENT || m.name[0]);
        qmp_message_done(&m);
    }
    return 0;
}
