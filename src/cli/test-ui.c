/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "cli/table.h"

static void check_clean(const char *text, size_t len, bool lines, const char *want)
{
    cleanup_free char *clean = ui_clean(text, len, lines);

    CHECK_STR(clean, want);
}

static void foreign_text_is_cleaned(void)
{
    check_clean("plain", 5, false, "plain");
    check_clean("\033[31m", 5, false, "\\x1b[31m");
    check_clean("a\nb\tc", 5, false, "a\\x0ab\\x09c");
    check_clean("a\nb\tc", 5, true, "a\nb\tc");
    check_clean("a\0b", 3, true, "a\\x00b");
    check_clean("\r\177", 2, true, "\\x0d\\x7f");
    check_clean("caf\xc3\xa9 \xe2\x98\x95 \xf0\x9f\x98\x80", 14, false,
                "caf\xc3\xa9 \xe2\x98\x95 \xf0\x9f\x98\x80");
    check_clean("\xc2\x9b", 2, false, "\\xc2\\x9b");
    check_clean("\xe2\x80\xae", 3, false, "\\xe2\\x80\\xae");
    check_clean("\xff\xc3", 2, false, "\\xff\\xc3");
    check_clean("\xc0\xaf", 2, false, "\\xc0\\xaf");
    check_clean("\xed\xa0\x80", 3, false, "\\xed\\xa0\\x80");
    check_clean("\xf4\x90\x80\x80", 4, false, "\\xf4\\x90\\x80\\x80");
    check_clean("\xe2\x98", 2, false, "\\xe2\\x98");
}

static void long_text_is_cut(void)
{
    cleanup_free char *text = xmalloc(100000);
    cleanup_free char *clean = NULL;

    memset(text, '\001', 100000);
    clean = ui_clean(text, 100000, false);
    CHECK(strlen(clean) <= UI_TEXT_MAX + 16);
}

static void columns_are_counted(void)
{
    struct ui ui;

    ui_init(&ui);
    CHECK_INT(ui_columns("abc"), 3);
    CHECK_INT(ui_columns("caf\xc3\xa9"), 4);
    CHECK_INT(ui_columns("\xe6\x97\xa5\xe6\x9c\xac"), 4);
    CHECK_INT(ui_prefix("\xe6\x97\xa5\xe6\x9c\xac", 3), 3);
    CHECK_INT(ui_prefix("abc", 9), 3);
}

static void sizes_and_ages(void)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {1536, "1.5 KiB"},
                 {100 << 10, "100 KiB"},
                 {256 << 20, "256 MiB"},
                 {UINT64_MAX, "16384 PiB"}};
    static const struct {
        uint64_t seconds;
        const char *text;
    } ages[] = {{0, "0s"}, {59, "59s"}, {61, "1m01s"}, {3661, "1h01m"}, {200000, "2d"}};
    char text[32];

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        ui_size(sizes[i].bytes, text, sizeof(text));
        CHECK_STR(text, sizes[i].text);
    }
    for (size_t i = 0; i < ARRAY_SIZE(ages); i++) {
        ui_age(ages[i].seconds, text, sizeof(text));
        CHECK_STR(text, ages[i].text);
    }
}

static char *table_text(unsigned width)
{
    static const struct table_column columns[] = {
        {.title = "ID"}, {.title = "SIZE", .right = true}, {.title = "NOTE", .cut = true}};
    const struct ui ui = {0};
    struct table t;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    table_init(&t, columns, ARRAY_SIZE(columns));
    table_cell(&t, "a");
    table_cellf(&t, "%d", 1234567);
    table_cell(&t, NULL);
    table_cell(&t, "bbbb");
    table_cell(&t, "2");
    table_cell(&t, "a long note that goes on\n");
    table_print(&t, &ui, out, width);
    table_done(&t);
    fclose(out);
    return text;
}

static void tables_are_aligned(void)
{
    cleanup_free char *text = table_text(0);

    CHECK_STR(text, "ID       SIZE  NOTE\n"
                    "a     1234567  -\n"
                    "bbbb        2  a long note that goes on\\x0a\n");
}

static void tables_are_cut_to_the_width(void)
{
    cleanup_free char *text = table_text(27);
    cleanup_free char *tiny = table_text(5);

    CHECK_STR(text, "ID       SIZE  NOTE\n"
                    "a     1234567  -\n"
                    "bbbb        2  a long no...\n");
    CHECK_STR(tiny, "ID       SIZE  NOTE\n"
                    "a     1234567  -\n"
                    "bbbb        2  a ...\n");
}

TEST_MAIN(T(foreign_text_is_cleaned), T(long_text_is_cut), T(columns_are_counted),
          T(sizes_and_ages), T(tables_are_aligned), T(tables_are_cut_to_the_width))
