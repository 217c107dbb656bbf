/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metric.h"
#include "base/test.h"

#include <errno.h>

static const char *const colours[] = {"red", "with \"quotes\", \\ and\nline", "other"};

static struct metric counter = {
    .name = "test_things_total",
    .help = "A line\nand a \\.",
    .type = METRIC_COUNTER,
    .labels = {{"colour", colours, ARRAY_SIZE(colours)}},
};
static struct metric quiet = {
    .name = "test_quiet_total",
    .help = "Shown once it counts.",
    .type = METRIC_COUNTER,
    .labels = {{"colour", colours, ARRAY_SIZE(colours)}, METRIC_OUTCOMES},
    .quiet = true,
};
static struct metric gauge = {.name = "test_level", .help = "A level.", .type = METRIC_GAUGE};
static struct metric histogram = {
    .name = "test_seconds",
    .help = "Durations.",
    .type = METRIC_HISTOGRAM,
    .labels = {METRIC_OUTCOMES},
    .quiet = true,
};

static bool has_line(const struct buf *text, const char *line)
{
    const char *at = strstr(buf_str(text), line);

    return at && (at == buf_str(text) || at[-1] == '\n') && at[strlen(line)] == '\n';
}

static void what_is_not_registered_counts_nothing(void)
{
    cleanup_buf struct buf out = BUF_INIT(4096);

    metric_add(&counter, METRIC_AT(0), 1);
    metric_observe(&histogram, METRIC_AT(0), 1);
    CHECK_INT(metric_print_all(&out), 0);
    CHECK_STR(buf_str(&out), "");
}

static void all_is_printed_and_escaped(void)
{
    cleanup_buf struct buf out = BUF_INIT(1 << 16);

    metric_register(&counter);
    metric_register(&counter); /* twice is once */
    metric_register(&quiet);
    metric_register(&gauge);
    metric_add(&counter, METRIC_AT(metric_index(&counter, 0, "red")), 2);
    metric_add(&counter, METRIC_AT(metric_index(&counter, 0, "blue")), 3);
    metric_add(&counter, METRIC_AT(99), 1);
    metric_add(&gauge, METRIC_ONLY, 5);
    metric_add(&gauge, METRIC_ONLY, -7);
    metric_add(&quiet, METRIC_AT(0, METRIC_NO_ROOM), 1);
    REQUIRE(metric_print_all(&out) == 0);
    CHECK(has_line(&out, "# HELP test_things_total A line\\nand a \\\\."));
    CHECK(has_line(&out, "# TYPE test_things_total counter"));
    CHECK(has_line(&out, "test_things_total{colour=\"red\"} 2"));
    CHECK(has_line(&out, "test_things_total{colour=\"other\"} 4"));
    CHECK(has_line(&out, "test_things_total{colour=\"with \\\"quotes\\\", \\\\ and\\nline\"} 0"));
    CHECK(has_line(&out, "# TYPE test_level gauge"));
    CHECK(has_line(&out, "test_level -2"));
    CHECK(has_line(&out, "test_quiet_total{colour=\"red\",outcome=\"no_room\"} 1"));
    CHECK(!strstr(buf_str(&out), "test_quiet_total{colour=\"red\",outcome=\"ok\"}"));
    CHECK(strstr(buf_str(&out), "# HELP test_things_total") ==
          buf_str(&out)); /* in order, and once */
    CHECK(!strstr(buf_str(&out) + 1, "# HELP test_things_total"));
}

static void a_histogram_adds_up(void)
{
    cleanup_buf struct buf out = BUF_INIT(1 << 16);

    metric_register(&histogram);
    metric_observe(&histogram, METRIC_AT(METRIC_OK), 500000);           /* at a bound: within it */
    metric_observe(&histogram, METRIC_AT(METRIC_OK), 500001);           /* just beyond */
    metric_observe(&histogram, METRIC_AT(METRIC_OK), 3600000000000ull); /* beyond the last */
    REQUIRE(metric_print_all(&out) == 0);
    CHECK(has_line(&out, "test_seconds_bucket{outcome=\"ok\",le=\"0.0005\"} 1"));
    CHECK(has_line(&out, "test_seconds_bucket{outcome=\"ok\",le=\"0.001\"} 2"));
    CHECK(has_line(&out, "test_seconds_bucket{outcome=\"ok\",le=\"300\"} 2"));
    CHECK(has_line(&out, "test_seconds_bucket{outcome=\"ok\",le=\"+Inf\"} 3"));
    CHECK(has_line(&out, "test_seconds_sum{outcome=\"ok\"} 3600.001000001"));
    CHECK(has_line(&out, "test_seconds_count{outcome=\"ok\"} 3"));
    CHECK(!strstr(buf_str(&out), "test_seconds_count{outcome=\"failed\"}"));
}

static void a_text_too_long_is_an_error(void)
{
    cleanup_buf struct buf out = BUF_INIT(64);

    metric_register(&counter);
    CHECK_INT(metric_print_all(&out), -E2BIG);
}

static void outcomes_are_told_apart(void)
{
    static const struct {
        int r;
        enum metric_outcome want;
    } cases[] = {{0, METRIC_OK},
                 {7, METRIC_OK},
                 {-ENOENT, METRIC_REFUSED},
                 {-EDQUOT, METRIC_NO_ROOM},
                 {-ECANCELED, METRIC_CANCELED},
                 {-ETIMEDOUT, METRIC_TIMED_OUT},
                 {-EHOSTDOWN, METRIC_UNAVAILABLE},
                 {-EIO, METRIC_FAILED}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CHECK_INT(metric_outcome(cases[i].r), cases[i].want);
    }
}

TEST_MAIN(T(what_is_not_registered_counts_nothing), T(all_is_printed_and_escaped),
          T(a_histogram_adds_up), T(a_text_too_long_is_an_error), T(outcomes_are_told_apart))
