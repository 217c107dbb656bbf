/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever parses can be written and parsed again to an equal value. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct json_field fields[] = {
        {"template", JSON_FIELD_STRING, JSON_REQUIRED},
        {"vcpus", JSON_FIELD_INT, 0},
        {"env", JSON_FIELD_STRING_MAP, JSON_NULLABLE},
    };
    cleanup_buf struct buf text = BUF_INIT(1 << 24);
    cleanup_json json_t *value = NULL;
    cleanup_json json_t *again = NULL;
    struct err e = {0};
    int r = json_parse_object(data, size, &value, &e);

    if (r < 0) {
        ASSERT(e.code == r && e.msg[0]);
        return 0;
    }
    IGNORE_RESULT(
        json_check_object(value, fields, ARRAY_SIZE(fields), &e)); /* only must not crash */
    ASSERT(json_write(value, &text) == 0);
    ASSERT(json_parse_object(text.data, text.len, &again, &e) == 0);
    ASSERT(json_equal(value, again));
    return 0;
}
