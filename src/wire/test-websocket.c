/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "wire/websocket.h"

static void frames_survive_printing_and_parsing(void)
{
    static const uint64_t lens[] = {0, 1, 125, 126, 127, 65535, 65536, INT64_MAX};

    for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
        for (int masked = 0; masked < 2; masked++) {
            struct websocket_frame f = {.fin = i % 2,
                                        .opcode = WEBSOCKET_BINARY,
                                        .masked = masked,
                                        .mask = {1, 2, 3, 4},
                                        .len = lens[i]};
            unsigned char head[WEBSOCKET_MAX_HEADER];
            size_t len = websocket_print(&f, head);
            struct websocket_frame back;

            for (size_t n = 0; n < len; n++) {
                CHECK_INT(websocket_parse(head, n, &back), -EAGAIN);
            }
            CHECK_INT(websocket_parse(head, len, &back), 0);
            CHECK_INT(back.header_len, len);
            CHECK(back.fin == f.fin && back.opcode == f.opcode && back.masked == f.masked &&
                  back.len == f.len);
            CHECK(!masked || memcmp(back.mask, f.mask, 4) == 0);
        }
    }
}

static void malformed_frames_are_refused(void)
{
    static const struct {
        const char *name;
        const char *bytes;
        size_t len;
    } cases[] = {
        {"reserved bit", "\xc0", 1},
        {"opcode 3", "\x83", 1},
        {"opcode 11", "\x8b", 1},
        {"fragmented ping", "\x09", 1},
        {"long close", "\x88\x7e", 2},
        {"16 bits not shortest", "\x82\x7e\x00\x7d", 4},
        {"64 bits not shortest", "\x82\x7f\0\0\0\0\0\0\xff\xff", 10},
        {"top bit of the length", "\x82\x7f\x80\0\0\0\0\0\0\0", 10},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct websocket_frame f;

        if (websocket_parse(cases[i].bytes, cases[i].len, &f) != -EBADMSG) {
            TEST_FAIL("%s", cases[i].name);
        }
    }
}

static void masking_twice_gives_the_same(void)
{
    static const unsigned char mask[4] = {0xde, 0xad, 0xbe, 0xef};
    char data[37];
    char copy[37];

    memset(data, 'x', sizeof(data));
    memcpy(copy, data, sizeof(data));
    websocket_mask(copy, sizeof(copy), mask, 0);
    CHECK_INT((unsigned char)copy[6], 'x' ^ 0xbe);
    for (size_t at = 0; at < sizeof(copy);) { /* in odd pieces */
        size_t n = MIN(sizeof(copy) - at, (size_t)11);

        websocket_mask(copy + at, n, mask, at);
        at += n;
    }
    CHECK_MEM(copy, data, sizeof(data));
}

static void close_codes_are_checked(void)
{
    static const unsigned good[] = {1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 4999};
    static const unsigned bad[] = {0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        CHECK(websocket_close_code_valid(good[i]));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK(!websocket_close_code_valid(bad[i]));
    }
}

static void utf8_is_checked(void)
{
    static const char *const good[] = {"",
                                       "a",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xe2\x82",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "a\xe2(\xa1"};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        CHECK(websocket_utf8_valid(good[i], strlen(good[i])));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK(!websocket_utf8_valid(bad[i], strlen(bad[i])));
    }
}

TEST_MAIN(T(frames_survive_printing_and_parsing), T(malformed_frames_are_refused),
          T(masking_twice_gives_the_same), T(close_codes_are_checked), T(utf8_is_checked))
