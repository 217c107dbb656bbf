/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "sandbox/usage.h"

static void add(struct usage *u, int64_t at_ms)
{
    cleanup_json json_t *guest =
        json_pack("{s:{s:i, s:I}, s:{s:i}, s:{s:i}}", "cpu", "count", 2, "user_ms",
                  (json_int_t)at_ms / 2, "memory", "total_bytes", 7, "disk", "free_bytes", 9);

    usage_add(u, at_ms, guest);
}

/* The times of the window's samples as text, "-" before the one that lies before it. */
static void check_window(const struct usage *u, int64_t from_ms, int64_t to_ms, const char *want)
{
    cleanup_json json_t *all = usage_to_json(u, &(struct usage_window){from_ms, to_ms});
    cleanup_buf struct buf got = BUF_INIT(65536);
    json_t *one;
    size_t i;

    json_array_foreach(all, i, one)
    {
        CHECK_INT(buf_printf(&got, "%s%s%lld", i > 0 ? " " : "",
                             json_get_bool(one, "before", false) ? "-" : "",
                             (long long)json_get_int(one, "at_ms", -1)),
                  0);
    }
    CHECK_STR(buf_str(&got), want);
}

static void windows(void)
{
    struct usage u = {0};

    check_window(&u, 0, INT64_MAX, "");
    for (int64_t at = 100; at <= 500; at += 100) {
        add(&u, at);
    }
    check_window(&u, 0, INT64_MAX, "100 200 300 400 500");
    check_window(&u, 200, 400, "-100 200 300 400");
    check_window(&u, 201, 399, "-200 300");
    check_window(&u, 0, 99, "");
    check_window(&u, 600, 700, "-500");
    check_window(&u, 250, 260, "-200");
    usage_done(&u);
}

static void the_oldest_is_forgotten(void)
{
    struct usage u = {0};

    for (int64_t at = 0; at < (int64_t)USAGE_KEPT + 3; at++) {
        add(&u, at);
    }
    check_window(&u, 0, 5, "3 4 5");
    check_window(&u, USAGE_KEPT + 1, INT64_MAX, "-480 481 482");
    usage_done(&u);
}

static void a_clock_that_was_set_back(void)
{
    struct usage u = {0};

    add(&u, 200);
    add(&u, 100);
    add(&u, 200);
    add(&u, 300);
    check_window(&u, 0, INT64_MAX, "200 200 300");
    usage_done(&u);
}

static void figures(void)
{
    struct usage u = {0};
    cleanup_json json_t *none = json_object();
    cleanup_json json_t *all = NULL;
    json_t *cpu;

    add(&u, 1000);
    usage_add(&u, 2000, none);
    all = usage_to_json(&u, &(struct usage_window){0, INT64_MAX});
    cpu = json_object_get(json_array_get(all, 0), "cpu");
    CHECK_INT(json_get_int(cpu, "count", 0), 2);
    CHECK_INT(json_get_int(cpu, "user_ms", 0), 500);
    CHECK_INT(json_get_int(json_object_get(json_array_get(all, 0), "memory"), "total_bytes", 0), 7);
    CHECK_INT(json_get_int(json_object_get(json_array_get(all, 0), "disk"), "free_bytes", 0), 9);
    CHECK_INT(json_get_int(json_object_get(json_array_get(all, 1), "cpu"), "user_ms", -1), 0);
    usage_done(&u);
}

TEST_MAIN(T(windows), T(the_oldest_is_forgotten), T(a_clock_that_was_set_back), T(figures))
