/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/ndjson.h"

#include <string.h>

#include "base/base64.h"
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every line is one JSON object with a type; text, where there is one, is exactly the bytes beside it. */
static void check_line(const char *line, size_t len)
{
    cleanup_json json_t *json = NULL;
    cleanup_buf struct buf bytes = BUF_INIT(1u << 20);
    json_t *encoded;
    json_t *text;

    ASSERT(json_parse_object(line, len, &json, NULL) == 0 || memmem(line, len, "\\u0000", 6));
    if (!json) {
        return; /* a NUL in output is right in JSON, but our own parser refuses it */
    }
    ASSERT(json_get_string(json, "type", "")[0]);
    encoded = json_object_get(json, "data_base64");
    text = json_object_get(json, "text");
    if (encoded) {
        ASSERT(base64_decode(json_string_value(encoded), json_string_length(encoded), &bytes) == 0);
        ASSERT(bytes.len > 0);
    }
    if (encoded && text) {
        ASSERT(json_string_length(text) == bytes.len);
        ASSERT(memcmp(json_string_value(text), bytes.data, bytes.len) == 0);
    }
}

static void check_lines(struct ndjson *lines)
{
    const char *p = buf_str(&lines->out);

    while (*p) {
        const char *end = strchr(p, '\n');

        ASSERT(end);
        check_line(p, (size_t)(end - p));
        p = end + 1;
    }
}

/* The same lines come out however the bytes are cut. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(ndjson_done) struct ndjson whole = NDJSON_INIT;
    CLEANUP(ndjson_done) struct ndjson cut = NDJSON_INIT;
    int r = ndjson_feed(&whole, data, size);
    int r_cut = 0;

    for (size_t i = 0; i < size && r_cut == 0; i += 3) {
        r_cut = ndjson_feed(&cut, data + i, MIN((size_t)3, size - i));
    }
    ASSERT(r == r_cut);
    ASSERT(whole.ended == cut.ended);
    ASSERT(str_eq(buf_str(&whole.out), buf_str(&cut.out)));
    check_lines(&whole);
    if (r == 0) {
        buf_reset(&whole.out);
        ASSERT(ndjson_cut(&whole) == 0);
        check_lines(&whole);
    }
    return 0;
}
