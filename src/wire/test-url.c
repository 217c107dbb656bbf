/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "wire/url.h"

static void escapes_are_decoded(void)
{
    static const struct {
        const char *text;
        unsigned flags;
        const char *want; /* NULL: refused */
    } cases[] = {
        {"", 0, ""},
        {"abc", 0, "abc"},
        {"a%20b%2Fc%2f", 0, "a b/c/"},
        {"%ff%C3", 0, "\xff\xc3"},
        {"a+b", 0, "a+b"},
        {"a+b", URL_PLUS_IS_SPACE, "a b"},
        {"a%2Bb", URL_PLUS_IS_SPACE, "a+b"},
        {"%", 0, NULL},
        {"%4", 0, NULL},
        {"%4g", 0, NULL},
        {"%g4", 0, NULL},
        {"%%41", 0, NULL},
        {"a%00b", 0, NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[32];
        size_t len = 0;
        size_t checked = 0;
        int r = url_decode(cases[i].text, strlen(cases[i].text), cases[i].flags, out, &len);

        CHECK_INT(url_decode(cases[i].text, strlen(cases[i].text), cases[i].flags, NULL, &checked),
                  r);
        CHECK_INT(r, cases[i].want ? 0 : -EINVAL);
        if (r == 0 && cases[i].want) {
            CHECK_STR(out, cases[i].want);
            CHECK_INT(len, strlen(cases[i].want));
            CHECK_INT(checked, len);
        }
    }
}

static void raw_nul_is_refused(void)
{
    char out[8];
    size_t len;

    CHECK_INT(url_decode("a\0b", 3, 0, out, &len), -EINVAL);
}

static void encoding_keeps_what_is_plain(void)
{
    cleanup_buf struct buf b = BUF_INIT(100);

    CHECK_INT(url_encode(&b, "aZ09-._~", 8, 0), 0);
    CHECK_STR(buf_str(&b), "aZ09-._~");
    buf_reset(&b);
    CHECK_INT(url_encode(&b, "/a b/\xff%", 7, URL_KEEP_SLASH), 0);
    CHECK_STR(buf_str(&b), "/a%20b/%FF%25");
    buf_reset(&b);
    CHECK_INT(url_encode(&b, "/", 1, 0), 0);
    CHECK_STR(buf_str(&b), "%2F");
}

static void full_buffer_is_left_as_it_was(void)
{
    cleanup_buf struct buf b = BUF_INIT(5);

    CHECK_INT(buf_add_str(&b, "ab"), 0);
    CHECK_INT(url_encode(&b, "c/d", 3, 0), -E2BIG);
    CHECK_STR(buf_str(&b), "ab");
}

static void query_is_built(void)
{
    cleanup_buf struct buf b = BUF_INIT(100);

    CHECK_INT(buf_add_str(&b, "/files"), 0);
    CHECK_INT(url_add_query(&b, "path", "/a b"), 0);
    CHECK_INT(url_add_query(&b, "user", "root&"), 0);
    CHECK_STR(buf_str(&b), "/files?path=%2Fa%20b&user=root%26");
}

static void query_is_iterated(void)
{
    static const char text[] = "a=1&&b&c=&=d&e=f=g&";
    static const char *const want[][2] = {
        {"a", "1"}, {"b", ""}, {"c", ""}, {"", "d"}, {"e", "f=g"}};
    struct url_query q = {text, strlen(text)};
    struct url_pair pair;
    size_t n = 0;

    while (url_query_next(&q, &pair)) {
        REQUIRE(n < ARRAY_SIZE(want));
        CHECK(pair.name_len == strlen(want[n][0]) &&
              memcmp(pair.name, want[n][0], pair.name_len) == 0);
        CHECK(pair.value_len == strlen(want[n][1]) &&
              memcmp(pair.value, want[n][1], pair.value_len) == 0);
        n++;
    }
    CHECK_INT(n, ARRAY_SIZE(want));
}

static void addresses_are_read(void)
{
    static const struct {
        const char *text;
        int r;
        enum url_scheme scheme;
        const char *host;
        unsigned port;
        const char *path;
    } cases[] = {
        {"http://h", 0, URL_HTTP, "h", 80, ""},
        {"http://h:81/", 0, URL_HTTP, "h", 81, ""},
        {"HTTPS://h/base/", 0, URL_HTTPS, "h", 443, "/base"},
        {"https://[::1]:8443", 0, URL_HTTPS, "::1", 8443, ""},
        {"127.0.0.1:7777", 0, URL_HTTP, "127.0.0.1", 7777, ""},
        {":7777", 0, URL_HTTP, "", 7777, ""},
        {"[::]:1", 0, URL_HTTP, "::", 1, ""},
        {"unix:/run/s.sock", 0, URL_UNIX, "", 80, "/run/s.sock"},
        {"unix:///run/s.sock", 0, URL_UNIX, "", 80, "/run/s.sock"},
        {"", -EINVAL, 0, "", 0, ""},
        {"http://", -EINVAL, 0, "", 0, ""},
        {"http://:80", -EINVAL, 0, "", 0, ""},
        {"http://h:", -EINVAL, 0, "", 0, ""},
        {"http://h:99999", -EINVAL, 0, "", 0, ""},
        {"http://h:-1", -EINVAL, 0, "", 0, ""},
        {"http://u@h", -EINVAL, 0, "", 0, ""},
        {"http://h/?q", -EINVAL, 0, "", 0, ""},
        {"http://h#f", -EINVAL, 0, "", 0, ""},
        {"http://h h", -EINVAL, 0, "", 0, ""},
        {"http://[::1", -EINVAL, 0, "", 0, ""},
        {"::1:80", -EINVAL, 0, "", 0, ""},
        {"ftp://h", -EINVAL, 0, "", 0, ""},
        {"h:1/x", -EINVAL, 0, "", 0, ""},
        {"unix:relative", -EINVAL, 0, "", 0, ""},
        {"unix:/", -EINVAL, 0, "", 0, ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct url u;
        int r = url_parse(cases[i].text, &u);

        if (r != cases[i].r ||
            (r == 0 && (u.scheme != cases[i].scheme || !str_eq(u.host, cases[i].host) ||
                        u.port != cases[i].port || !str_eq(u.path, cases[i].path)))) {
            TEST_FAIL("'%s': %d", cases[i].text, r);
        }
    }
}

TEST_MAIN(T(escapes_are_decoded), T(raw_nul_is_refused), T(encoding_keeps_what_is_plain),
          T(full_buffer_is_left_as_it_was), T(query_is_built), T(query_is_iterated),
          T(addresses_are_read))
