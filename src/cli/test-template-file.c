/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "cli/template-file.h"

#include <string.h>

static void a_file_becomes_what_the_api_takes(void)
{
    static const char text[] = "# comment\n"
                               "FROM debian\n"
                               "RUN apt-get update && \\\n"
                               "  apt-get install -y make\r\n"
                               "\n"
                               "COPY src /app/\n"
                               "ENV A=b c=d\n"
                               "  WORKDIR /app\n"
                               "USER root\n"
                               "START ./server --listen\n"
                               "READY true";
    static const char wanted[] =
        "{\"from\":\"debian\",\"ready\":\"true\",\"start\":\"./server --listen\",\"steps\":["
        "{\"args\":[\"apt-get update &&   apt-get install -y make\"],\"type\":\"RUN\"},"
        "{\"args\":[\"src\",\"/app/\",\"\",\"\"],\"type\":\"COPY\"},"
        "{\"args\":[\"A\",\"b c=d\"],\"type\":\"ENV\"},"
        "{\"args\":[\"/app\"],\"type\":\"WORKDIR\"},{\"args\":[\"root\"],\"type\":\"USER\"}]}";
    cleanup_json json_t *recipe = NULL;
    cleanup_json json_t *right = NULL;
    struct err e = {0};

    CHECK_INT(template_file_parse(text, &recipe, &e), 0);
    CHECK_INT(json_parse_object(wanted, strlen(wanted), &right, NULL), 0);
    CHECK(json_equal(recipe, right));
}

static void wrong_lines_are_named(void)
{
    static const struct {
        const char *text;
        const char *line;
    } cases[] = {{"RUN", "line 1:"},
                 {"RUN a\nADD b c", "line 2:"},
                 {"RUN a \\\nb\nCOPY x", "line 3:"},
                 {"COPY a b c", "line 1:"},
                 {"ENV =x", "line 1:"},
                 {"ENV x", "line 1:"},
                 {"FROM a\nFROM b", "line 2:"},
                 {"USER \xff", "line 1:"}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *recipe = NULL;
        struct err e = {0};

        CHECK_INT(template_file_parse(cases[i].text, &recipe, &e), -EINVAL);
        CHECK(str_starts(e.msg, cases[i].line));
    }
}

TEST_MAIN(T(a_file_becomes_what_the_api_takes), T(wrong_lines_are_named))
