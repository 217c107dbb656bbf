/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unit tests in TAP. One program per module, each case a function with a name that says what holds:
 *
 *     static void empty_buf_is_a_string(void) { ... CHECK_STR(buf_str(&b), ""); }
 *     TEST_MAIN(T(empty_buf_is_a_string), T(...))
 *
 * A failed CHECK prints where and what and the case goes on; ASSERT_OK ends the program. TEST_SKIP(why)
 * is a failure when MUST_WORK=1 is set, as CI does.
 */
#pragma once

#include "base/util.h"

#include <stdio.h>
#include <string.h>

struct test_case {
    const char *name;
    void (*run)(void);
};

static int test_failures __attribute__((unused));
static const char *test_skipped __attribute__((unused));

#define T(fn) \
    { \
#fn, fn \
    }
#define TEST_FAIL(...) \
    do { \
        test_failures++; \
        printf("# %s:%d: ", __FILE__, __LINE__); \
        printf(__VA_ARGS__); \
        printf("\n"); \
    } while (0)
#define CHECK(cond) \
    do { \
        if (!(cond)) { \
            TEST_FAIL("not true: %s", #cond); \
        } \
    } while (0)
#define CHECK_INT(got, want) \
    do { \
        long long got_ = (long long)(got); \
        long long want_ = (long long)(want); \
        if (got_ != want_) { \
            TEST_FAIL("%s is %lld, not %lld", #got, got_, want_); \
        } \
    } while (0)
#define CHECK_STR(got, want) \
    do { \
        const char *got_ = (got); \
        const char *want_ = (want); \
        if (!got_ || !want_ || strcmp(got_, want_) != 0) { \
            TEST_FAIL("%s is '%s', not '%s'", #got, got_ ? got_ : "(null)", \
                      want_ ? want_ : "(null)"); \
        } \
    } while (0)
#define CHECK_MEM(got, want, len) CHECK(memcmp((got), (want), (len)) == 0)
/* For what the case cannot go on without. */
#define REQUIRE(cond) \
    do { \
        if (!(cond)) { \
            TEST_FAIL("needed but not true: %s", #cond); \
            return; \
        } \
    } while (0)
/* Under a sanitizer everything takes many times as long: bounds of time are for other builds. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_TIMES_COUNT false
#else
#define TEST_TIMES_COUNT true
#endif

#define TEST_SKIP(why) \
    do { \
        test_skipped = (why); \
        return; \
    } while (0)

static inline int test_run_all(const struct test_case *cases, size_t n, int argc, char **argv)
{
    const char *must_work = getenv("MUST_WORK");
    bool strict = must_work && strcmp(must_work, "1") == 0;
    int failed = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..%zu\n", n);
    for (size_t i = 0; i < n; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0) {
            printf("ok %zu - %s # SKIP not asked for\n", i + 1, cases[i].name);
            continue;
        }
        test_failures = 0;
        test_skipped = NULL;
        cases[i].run();
        if (test_skipped && strict) {
            TEST_FAIL("may not be skipped here: %s", test_skipped);
        }
        failed += test_failures > 0;
        printf("%s %zu - %s%s%s\n", test_failures ? "not ok" : "ok", i + 1, cases[i].name,
               test_skipped && !strict ? " # SKIP " : "",
               test_skipped && !strict ? test_skipped : "");
    }
    return failed ? 1 : 0;
}

#define TEST_MAIN(...) \
    int main(int argc, char **argv) \
    { \
        static const struct test_case cases[] = {__VA_ARGS__}; \
        return test_run_all(cases, ARRAY_SIZE(cases), argc, argv); \
    }
