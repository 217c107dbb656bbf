/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of a worker that the workload has taken over. */
#include "daemon/file-proto.h"
#include "daemon/file-text.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * What the answer's head is made of must not be able to end a header line or a JSON string badly.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct file_msg m;

    if (file_msg_parse(data, size, &m) < 0) {
        return 0;
    }
    switch (m.type) {
    case FILE_MSG_HEAD:
        ASSERT(strnlen(m.head.owner, sizeof(m.head.owner)) < sizeof(m.head.owner));
        ASSERT(!strpbrk(m.head.owner, "\r\n: \t"));
        ASSERT(m.head.mode <= 07777);
        if (m.head.flags & FILE_HEAD_RANGE) {
            ASSERT(m.head.length > 0 && m.head.range_start + m.head.length <= m.head.total);
        }
        break;
    case FILE_MSG_BODY:
        ASSERT(m.body_len > 0 && m.body_len <= FILE_BODY_CHUNK);
        ASSERT((const uint8_t *)m.body + m.body_len == data + size);
        break;
    case FILE_MSG_END:
        ASSERT(size == sizeof(uint32_t));
        break;
    case FILE_MSG_ERROR:
        ASSERT(m.err.code < 0 && err_http_status(&m.err) >= 400);
        ASSERT(file_text_is_utf8(m.err.msg, strlen(m.err.msg)) && !strpbrk(m.err.reason, "\" \n"));
        break;
    }
    return 0;
}
