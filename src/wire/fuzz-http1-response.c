/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte says whether the request was a HEAD. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *data = (const char *)bytes + 1;
    struct http1_scan scan = {0};
    struct http1_head head;
    bool to_head;
    size_t len = 0;

    if (size < 1) {
        return 0;
    }
    to_head = bytes[0] == 'h';
    if (http1_scan(&scan, data, size - 1, &len) != 0 ||
        http1_parse_response(data, len, to_head, &head) != HTTP1_OK) {
        return 0;
    }
    ASSERT(head.status >= 100 && head.status <= 599);
    ASSERT(!to_head || head.framing == HTTP1_BODY_NONE);
    ASSERT(head.framing != HTTP1_BODY_CLOSE || !head.keep_alive);
    ASSERT(head.framing != HTTP1_BODY_LENGTH || (head.has_length && head.content_length > 0));
    for (size_t i = 0; i < head.n_fields; i++) {
        const struct http1_field *f = &head.fields[i];

        ASSERT(f->name.p >= data && f->value.p + f->value.len <= data + len);
        ASSERT(http1_is_token(f->name.p, f->name.len) && http1_is_value(f->value.p, f->value.len));
    }
    return 0;
}
