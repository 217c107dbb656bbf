/* SPDX-License-Identifier: Apache-2.0 */
#include "model/json-text.h"

#include <stdbool.h>
#include <string.h>

/* Length of the valid UTF-8 character at p, or 0. */
static size_t utf8_char(const unsigned char *p, size_t len)
{
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        return len >= 2 && (p[1] & 0xc0) == 0x80 ? 2 : 0;
    }
    if (p[0] >= 0xe0 && p[0] <= 0xef) {
        bool overlong = p[0] == 0xe0 && len >= 2 && p[1] < 0xa0;
        bool surrogate = p[0] == 0xed && len >= 2 && p[1] > 0x9f;

        return len >= 3 && (p[1] & 0xc0) == 0x80 && (p[2] & 0xc0) == 0x80 && !overlong && !surrogate
                   ? 3
                   : 0;
    }
    if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        bool overlong = p[0] == 0xf0 && len >= 2 && p[1] < 0x90;
        bool above = p[0] == 0xf4 && len >= 2 && p[1] > 0x8f;

        return len >= 4 && (p[1] & 0xc0) == 0x80 && (p[2] & 0xc0) == 0x80 &&
                       (p[3] & 0xc0) == 0x80 && !overlong && !above
                   ? 4
                   : 0;
    }
    return 0;
}

size_t utf8_valid_prefix(const char *data, size_t len)
{
    const unsigned char *p = (const unsigned char *)data;
    size_t i = 0;

    while (i < len) {
        size_t n = utf8_char(p + i, len - i);

        if (n == 0) {
            break;
        }
        i += n;
    }
    return i;
}

/* Bytes from p on that go into a JSON string as they are. */
static size_t plain_run(const unsigned char *p, size_t len)
{
    size_t i = 0;

    while (i < len && p[i] >= 0x20 && p[i] < 0x7f && p[i] != '"' && p[i] != '\\') {
        i++;
    }
    return i;
}

static int add_special(struct buf *out, const unsigned char *p, size_t len, size_t *ret_used)
{
    size_t n = utf8_char(p, len);

    *ret_used = n ? n : 1;
    if (n > 1) {
        return buf_add(out, p, n);
    }
    if (n == 0) {
        return buf_add_str(out, "\xef\xbf\xbd");
    }
    switch (p[0]) {
    case '"':
        return buf_add_str(out, "\\\"");
    case '\\':
        return buf_add_str(out, "\\\\");
    case '\n':
        return buf_add_str(out, "\\n");
    case '\r':
        return buf_add_str(out, "\\r");
    case '\t':
        return buf_add_str(out, "\\t");
    default:
        return buf_printf(out, "\\u%04x", p[0]);
    }
}

int json_text_bytes(struct buf *out, const char *data, size_t len)
{
    const unsigned char *p = (const unsigned char *)data;
    int r;

    ASSERT(out && (data || len == 0));

    r = buf_add(out, "\"", 1);
    for (size_t i = 0; r == 0 && i < len;) {
        size_t n = plain_run(p + i, len - i);

        if (n > 0) {
            r = buf_add(out, p + i, n);
        } else {
            r = add_special(out, p + i, len - i, &n);
        }
        i += n;
    }
    return r < 0 ? r : buf_add(out, "\"", 1);
}

int json_text_string(struct buf *out, const char *s)
{
    ASSERT(s);
    return json_text_bytes(out, s, strlen(s));
}
