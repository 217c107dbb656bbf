/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-text.h"

#include "base/base64.h"

#include <stdio.h>
#include <string.h>

/*
 * Length of the valid UTF-8 sequence at s, 0 when there is none. No overlong forms, no surrogates.
 */
static size_t utf8_sequence(const unsigned char *s, size_t len)
{
    unsigned char lead = s[0];
    size_t need = lead < 0x80   ? 1
                  : lead < 0xc2 ? 0
                  : lead < 0xe0 ? 2
                  : lead < 0xf0 ? 3
                  : lead < 0xf5 ? 4
                                : 0;

    if (need == 0 || need > len) {
        return 0;
    }
    for (size_t i = 1; i < need; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if ((lead == 0xe0 && s[1] < 0xa0) || (lead == 0xed && s[1] > 0x9f) ||
        (lead == 0xf0 && s[1] < 0x90) || (lead == 0xf4 && s[1] > 0x8f)) {
        return 0;
    }
    return need;
}

bool file_text_is_utf8(const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = utf8_sequence((const unsigned char *)s + i, len - i);

        if (n == 0) {
            return false;
        }
        i += n;
    }
    return true;
}

static int json_char(struct buf *b, unsigned char c)
{
    switch (c) {
    case '"':
        return buf_add_str(b, "\\\"");
    case '\\':
        return buf_add_str(b, "\\\\");
    case '\n':
        return buf_add_str(b, "\\n");
    default:
        return buf_printf(b, "\\u%04x", c);
    }
}

int file_text_json(struct buf *b, const char *s)
{
    size_t len = strlen(s);
    size_t plain = 0; /* start of the run that needs no escape */
    int r = buf_add(b, "\"", 1);

    for (size_t i = 0; r == 0 && i < len;) {
        unsigned char c = (unsigned char)s[i];
        size_t n = utf8_sequence((const unsigned char *)s + i, len - i);

        if (n > 0 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            i += n;
            continue;
        }
        r = buf_add(b, s + plain, i - plain);
        if (r == 0) {
            r = n == 0 ? buf_add_str(b, "\xef\xbf\xbd") : json_char(b, c);
        }
        plain = ++i;
    }
    if (r == 0) {
        r = buf_add(b, s + plain, len - plain);
    }
    return r < 0 ? r : buf_add(b, "\"", 1);
}

int file_text_member(struct buf *b, const char *key, const char *s)
{
    size_t len = strlen(s);
    int r = buf_printf(b, "\"%s\":", key);

    if (r == 0) {
        r = file_text_json(b, s);
    }
    if (r < 0 || file_text_is_utf8(s, len)) {
        return r;
    }
    r = buf_printf(b, ",\"%s_base64\":\"", key);
    if (r == 0) {
        r = base64_encode(s, len, b);
    }
    return r < 0 ? r : buf_add(b, "\"", 1);
}

const char *file_text_show(char *dst, size_t size, const char *path)
{
    size_t len = strlen(path);
    size_t used = 0;

    ASSERT(size > 8);
    for (size_t i = 0; i < len;) {
        size_t n = utf8_sequence((const unsigned char *)path + i, len - i);
        unsigned char c = (unsigned char)path[i];

        if (used + 8 > size) {
            memcpy(dst + used, "...", 4);
            return dst;
        }
        if (n == 0 || c < 0x20 || c == 0x7f) {
            used += (size_t)snprintf(dst + used, size - used, "\\x%02x", c);
            i++;
            continue;
        }
        memcpy(dst + used, path + i, n);
        used += n;
        i += n;
    }
    dst[used] = '\0';
    return dst;
}
