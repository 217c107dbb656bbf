/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/conformance.h"
#include "base/test.h"

static int put(struct vault *v, const char *ref, const char *value, size_t len)
{
    cleanup_secret struct secret s = {0};

    if (conformance.read_only) {
        conformance.plant(ref, value);
        return 0;
    }
    ASSERT(secret_init(&s, value, len) == 0);
    return vault_put(v, ref, &s, NULL);
}

static void check_value(struct vault *v, const char *ref, const char *want)
{
    cleanup_secret struct secret s = {0};
    struct err e = {0};

    CHECK_INT(vault_get(v, ref, &s, &e), 0);
    CHECK_STR(e.msg, "");
    CHECK_STR(s.p, want);
    CHECK_INT(s.len, strlen(want));
}

#define OPEN(v_) \
    CLEANUP(vault_freep) struct vault *v_ = conformance.open(); \
    if (!v_) { \
        TEST_SKIP(conformance.why); \
    }

static void a_value_is_what_was_put(void)
{
    OPEN(v);
    CHECK_INT(put(v, "a", "value-1", 7), 0);
    CHECK_INT(put(v, "a/b.c_d-e", "with \"quotes\" and \xc3\xa4", 20), 0);
    check_value(v, "a", "value-1");
    check_value(v, "a/b.c_d-e", "with \"quotes\" and \xc3\xa4");
}

static void what_is_not_there_is_said_so(void)
{
    struct secret s = {0};
    struct err e = {0};
    OPEN(v);

    CHECK_INT(vault_get(v, "never/put", &s, &e), -ENOENT);
    CHECK_STR(e.reason, "no_value");
    CHECK(s.p == NULL);
}

static void the_last_put_counts(void)
{
    OPEN(v);
    CHECK_INT(put(v, "again", "first", 5), 0);
    CHECK_INT(put(v, "again", "second", 6), 0);
    check_value(v, "again", "second");
}

static void removed_is_gone_and_may_be_removed_again(void)
{
    cleanup_secret struct secret s = {0};
    OPEN(v);

    if (conformance.read_only) {
        CHECK_INT(vault_remove(v, "gone", NULL), -EROFS);
        return;
    }
    CHECK_INT(put(v, "gone", "value-1", 7), 0);
    CHECK_INT(vault_remove(v, "gone", NULL), 0);
    CHECK_INT(vault_get(v, "gone", &s, NULL), -ENOENT);
    CHECK_INT(vault_remove(v, "gone", NULL), 0);
    CHECK_INT(put(v, "gone", "value-2", 7), 0);
    check_value(v, "gone", "value-2");
}

static void neighbours_stay(void)
{
    OPEN(v);
    CHECK_INT(put(v, "n/one", "value-1", 7), 0);
    CHECK_INT(put(v, "n/two", "value-2", 7), 0);
    if (!conformance.read_only) {
        CHECK_INT(vault_remove(v, "n/one", NULL), 0);
    }
    check_value(v, "n/two", "value-2");
}

static void large_values(void)
{
    cleanup_free char *large = xcalloc(1, 16385);
    OPEN(v);

    memset(large, 'x', 16384);
    CHECK_INT(put(v, "large", large, 16384), 0);
    check_value(v, "large", large);
}

static void bytes_that_are_no_text(void)
{
    cleanup_secret struct secret s = {0};
    OPEN(v);

    if (!conformance.bytes) {
        return;
    }
    CHECK_INT(put(v, "bytes", "\0\xff\n\x80", 4), 0);
    CHECK_INT(vault_get(v, "bytes", &s, NULL), 0);
    CHECK_INT(s.len, 4);
    CHECK_MEM(s.p, "\0\xff\n\x80", 4);
}

static void references_are_checked_before_anybody_is_asked(void)
{
    static const char *const bad[] = {"",    "/",   "a//b", "../a",  "a/..", "a/./b", "a b",
                                      "a\n", "a?b", "a%2e", "a#b#c", "#a",   "a#",    "a#b/c"};
    struct secret s = {0};
    OPEN(v);

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (vault_get(v, bad[i], &s, NULL) != -EINVAL) {
            TEST_FAIL("'%s' is taken for a reference", bad[i]);
        }
    }
}

static void what_was_put_is_there_for_the_next_process(void)
{
    struct vault *v = conformance.open();

    if (!v) {
        TEST_SKIP(conformance.why);
    }
    CHECK_INT(put(v, "kept", "value-1", 7), 0);
    vault_free(v);
    v = conformance.open();
    REQUIRE(v);
    check_value(v, "kept", "value-1");
    vault_free(v);
}

TEST_MAIN(T(a_value_is_what_was_put), T(what_is_not_there_is_said_so), T(the_last_put_counts),
          T(removed_is_gone_and_may_be_removed_again), T(neighbours_stay), T(large_values),
          T(bytes_that_are_no_text), T(references_are_checked_before_anybody_is_asked),
          T(what_was_put_is_there_for_the_next_process))
