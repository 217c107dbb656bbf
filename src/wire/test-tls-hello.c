/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/test.h"
#include "wire/tls-hello.h"

#define SNI(len2_, len1_, len0_, name_) "\x00\x00\x00" len2_ "\x00" len1_ "\x00\x00" len0_ name_

/* A hello with these extensions, in records of at most this many bytes. */
static void make(struct buf *ret, const char *extensions, size_t n, size_t record)
{
    cleanup_buf struct buf body = BUF_INIT(TLS_HELLO_MAX * 2);
    size_t len = 2 + 32 + 1 + 2 + 2 + 2 + 2 + n;
    const uint8_t head[] = {1, (uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, 3, 3};
    const uint8_t middle[] = {0, 0, 2, 0x13, 0x01, 1, 0, (uint8_t)(n >> 8), (uint8_t)n};
    char random[32] = {7};

    ASSERT(buf_add(&body, head, sizeof(head)) == 0 && buf_add(&body, random, 32) == 0 &&
           buf_add(&body, middle, sizeof(middle)) == 0 && buf_add(&body, extensions, n) == 0);
    for (size_t at = 0; at < body.len; at += record) {
        size_t part = MIN(record, body.len - at);
        const uint8_t header[] = {22, 3, 1, (uint8_t)(part >> 8), (uint8_t)part};

        ASSERT(buf_add(ret, header, 5) == 0 && buf_add(ret, body.data + at, part) == 0);
    }
}

static int parse(const char *extensions, size_t n, size_t record, struct tls_hello *ret)
{
    cleanup_buf struct buf b = BUF_INIT(TLS_HELLO_MAX * 4);

    make(&b, extensions, n, record);
    return tls_hello_parse((const uint8_t *)b.data, b.len, ret);
}

static const char good[] = SNI("\x0a", "\x08", "\x05", "a.com") "\x00\x10\x00\x05\x00\x03\x02h2";

static void the_name_is_found(void)
{
    struct tls_hello hello;

    for (size_t record = 1; record < 200; record += 13) {
        CHECK_INT(parse(good, sizeof(good) - 1, record, &hello), 0);
        CHECK_STR(hello.name, "a.com");
        CHECK(hello.has_h2);
    }
    CHECK_INT(parse("", 0, 100, &hello), 0);
    CHECK_STR(hello.name, "");
}

static void parts_want_more(void)
{
    cleanup_buf struct buf b = BUF_INIT(TLS_HELLO_MAX * 4);
    struct tls_hello hello;

    make(&b, good, sizeof(good) - 1, 30);
    for (size_t n = 0; n < b.len; n++) {
        if (tls_hello_parse((const uint8_t *)b.data, n, &hello) != -EAGAIN) {
            TEST_FAIL("%zu bytes are not all", n);
        }
        CHECK(n == 0 || tls_hello_begins((const uint8_t *)b.data, n));
    }
}

static void damaged_hellos_are_refused(void)
{
    static const struct {
        const char *what;
        const char *extensions;
        size_t n;
    } cases[] = {
#define CASE(what_, text_) {what_, text_, sizeof(text_) - 1}
        CASE("two names", "\x00\x00\x00\x12\x00\x10\x00\x00\x05"
                          "a.com\x00\x00\x05"
                          "b.com"),
        CASE("two extensions",
             SNI("\x0a", "\x08", "\x05", "a.com") SNI("\x0a", "\x08", "\x05", "b.com")),
        CASE("an empty name", SNI("\x05", "\x03", "\x00", "")),
        CASE("a name of another kind", "\x00\x00\x00\x0a\x00\x08\x01\x00\x05"
                                       "a.com"),
        CASE("a NUL in it", SNI("\x0a", "\x08", "\x05", "a\0com")),
        CASE("a length too many", SNI("\x0b", "\x08", "\x05", "a.com")),
        CASE("a list too long", SNI("\x0a", "\x09", "\x05", "a.com")),
        CASE("a name too long", SNI("\x0a", "\x08", "\x06", "a.com")),
        CASE("half an extension", "\x00\x0a\x00"),
    };
    struct tls_hello hello;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (parse(cases[i].extensions, cases[i].n, 1000, &hello) != -EBADMSG) {
            TEST_FAIL("%s is not refused", cases[i].what);
        }
    }
    CHECK_INT(tls_hello_parse((const uint8_t *)"\x16\x03\x01\x00\x00", 5, &hello), -EBADMSG);
    CHECK_INT(tls_hello_parse((const uint8_t *)"\x15\x03\x01\x00\x02", 5, &hello), -EBADMSG);
    CHECK_INT(tls_hello_parse((const uint8_t *)"\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9, &hello),
              -E2BIG);
    CHECK_INT(tls_hello_parse((const uint8_t *)"\x16\x03\x01\x40\x00\x02", 6, &hello), -EBADMSG);
    CHECK(!tls_hello_begins((const uint8_t *)"GET ", 4));
}

TEST_MAIN(T(the_name_is_found), T(parts_want_more), T(damaged_hellos_are_refused))
