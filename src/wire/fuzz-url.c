/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/url.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_decode(const char *data, size_t size, unsigned flags)
{
    cleanup_free char *plain = xmalloc(size + 1);
    cleanup_free char *again = xmalloc(size + 1);
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    size_t len = 0;
    size_t len_again = 0;

    if (url_decode(data, size, flags, plain, &len) < 0) {
        return;
    }
    ASSERT(len <= size && strlen(plain) == len);
    ASSERT(url_encode(&text, plain, len, 0) == 0);
    again = xrealloc(again, text.len + 1);
    ASSERT(url_decode(buf_str(&text), text.len, flags, again, &len_again) == 0);
    ASSERT(len_again == len && strcmp(plain, again) == 0);
}

static void check_query(const char *data, size_t size)
{
    struct url_query q = {data, size};
    struct url_pair pair;
    size_t total = 0;

    while (url_query_next(&q, &pair)) {
        ASSERT(pair.name >= data && pair.value >= pair.name + pair.name_len &&
               pair.value + pair.value_len <= data + size);
        ASSERT(!memchr(pair.name, '=', pair.name_len) && !memchr(pair.value, '&', pair.value_len));
        total += pair.name_len + pair.value_len;
    }
    ASSERT(total <= size && q.len == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *data = (const char *)bytes;
    cleanup_free char *text = NULL;
    struct url u;

    if (size > 1 << 16) {
        return 0;
    }
    check_decode(data, size, 0);
    check_decode(data, size, URL_PLUS_IS_SPACE);
    check_query(data, size);
    text = xstrndup(data, size);
    if (url_parse(text, &u) == 0) {
        ASSERT(memchr(u.host, '\0', sizeof(u.host)) && memchr(u.path, '\0', sizeof(u.path)));
        ASSERT(!strpbrk(u.host, "/@?# ") && !strpbrk(u.path, " \r\n"));
    }
    return 0;
}
