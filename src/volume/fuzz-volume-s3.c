/* SPDX-License-Identifier: Apache-2.0 */
/* What an object store answers. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"
#include "volume/s3-xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct s3_xml x = {(const char *)data, size};
    struct s3_xml one;
    char text[100];
    uint64_t ms;

    while (s3_xml_next(&x, "Contents", &one)) {
        ASSERT(one.at >= (const char *)data && one.at + one.len <= (const char *)data + size);
        ASSERT(x.at + x.len == (const char *)data + size);
        if (s3_xml_text(one, "Key", text, sizeof(text)) == 0) {
            ASSERT(strlen(text) < sizeof(text));
        }
        if (s3_xml_text(one, "LastModified", text, sizeof(text)) == 0 &&
            s3_xml_time(text, &ms) == 0) {
            ASSERT(ms < (1ull << 50));
        }
    }
    return 0;
}
