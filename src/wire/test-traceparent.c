/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "wire/traceparent.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static void what_is_printed_is_read(void)
{
    struct traceparent got = {0};
    char text[TRACEPARENT_SIZE];

    traceparent_print(TRACE, SPAN, text);
    CHECK_STR(text, "00-" TRACE "-" SPAN "-01");
    REQUIRE(traceparent_parse(text, &got) == 0);
    CHECK_STR(got.trace, TRACE);
    CHECK_STR(got.span, SPAN);
    CHECK(got.sampled);
}

static void later_versions_and_other_flags_are_read(void)
{
    struct traceparent got = {0};

    REQUIRE(traceparent_parse("cc-" TRACE "-" SPAN "-00-what-else", &got) == 0);
    CHECK(!got.sampled);
    CHECK_INT(traceparent_parse("00-" TRACE "-" SPAN "-03", &got), 0);
    CHECK(got.sampled);
}

static void what_is_malformed_is_refused(void)
{
    static const char *const bad[] = {
        NULL,
        "",
        "00",
        "00-" TRACE "-" SPAN,
        "00-" TRACE "-" SPAN "-1",
        "00-" TRACE "-" SPAN "-01-more",
        "cc-" TRACE "-" SPAN "-01more",
        "ff-" TRACE "-" SPAN "-01",
        "00-" TRACE "x" SPAN "-01",
        "0g-" TRACE "-" SPAN "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" TRACE "-" SPAN "-0z",
    };
    struct traceparent got = {.trace = "untouched"};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK_INT(traceparent_parse(bad[i], &got), -EINVAL);
    }
    CHECK_STR(got.trace, "untouched");
}

TEST_MAIN(T(what_is_printed_is_read), T(later_versions_and_other_flags_are_read),
          T(what_is_malformed_is_refused))
