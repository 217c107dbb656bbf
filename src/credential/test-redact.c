/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "credential/redact.h"
#include "credential/secret.h"

/* The text through a redactor, cut into pieces of that size. */
static char *through(const char *const *secrets, const char *text, size_t len, size_t piece)
{
    struct redact r;
    struct buf out = BUF_INIT(1u << 20);

    redact_init(&r);
    for (size_t i = 0; secrets[i]; i++) {
        ASSERT(redact_add(&r, secrets[i]) == 0);
    }
    for (size_t i = 0; i < len; i += piece) {
        size_t n = MIN(piece, len - i);

        ASSERT(redact_next(&r, text + i, n, i + n == len, &out) == 0);
    }
    CHECK_INT(out.len, len);
    redact_done(&r);
    return buf_take(&out);
}

static void check_through(const char *const *secrets, const char *text, const char *want)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        cleanup_free char *got = through(secrets, text, strlen(text), piece);

        CHECK_STR(got, want);
    }
}

static void found_wherever_it_is_cut(void)
{
    const char *const one[] = {"secret-4711", NULL};
    const char *const two[] = {"secret-4711", "other-secret", NULL};

    check_through(one, "a secret-4711 b", "a *********** b");
    check_through(one, "secret-4711secret-4711", "**********************");
    check_through(one, "secret-471 secret-4711", "secret-471 ***********");
    check_through(one, "secret-secret-4711", "secret-***********");
    check_through(two, "other-secret-4711", "*****************");
    check_through(one, "secret-471", "secret-471");
}

static void overlapping_ones_are_all_masked(void)
{
    const char *const both[] = {"abcabcab", "cabcabdd", NULL};

    check_through(both, "xabcabcabddx", "x**********x");
    check_through(both, "abcabcabcabdd", "*************");
}

static void forms(void)
{
    const char *const secret[] = {"k/e+y=\"1\"&x", NULL};
    static const char *const hidden[] = {"k/e+y=\"1\"&x",           "k/e+y=\\\"1\\\"&x",
                                         "k\\/e+y=\\\"1\\\"&x",     "k%2Fe%2By%3D%221%22%26x",
                                         "k%2fe%2by%3d%221%22%26x", "6b2f652b793d2231222678",
                                         "6B2F652B793D2231222678"};

    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++) {
        cleanup_free char *got = through(secret, hidden[i], strlen(hidden[i]), 3);

        if (strspn(got, "*") != strlen(got)) {
            TEST_FAIL("'%s' became '%s'", hidden[i], got);
        }
    }
}

static void an_event_stream_is_not_held_back(void)
{
    struct redact r;
    cleanup_buf struct buf out = BUF_INIT(1u << 20);

    redact_init(&r);
    CHECK_INT(redact_add(&r, "secret-4711"), 0);
    CHECK_INT(redact_next(&r, "data: 1\n\n", 9, /* end */ false, &out), 0);
    CHECK_STR(buf_str(&out), "data: 1\n\n");
    CHECK_INT(redact_next(&r, "data: se", 8, /* end */ false, &out), 0);
    CHECK_STR(buf_str(&out), "data: 1\n\ndata: ");
    CHECK_INT(redact_next(&r, "t x\n", 4, /* end */ false, &out), 0);
    CHECK_STR(buf_str(&out), "data: 1\n\ndata: set x\n");
    redact_done(&r);
}

static void short_secrets_are_not_searched_for(void)
{
    const char *const tiny[] = {"abc", NULL};

    check_through(tiny, "abc", "abc");
}

/* A trailer is looked at while a mask of the body before it has still to go on. */
static void a_text_apart_leaves_the_stream_alone(void)
{
    char apart[] = "grpc-status: 0 secret-4711";
    struct redact r;
    cleanup_buf struct buf out = BUF_INIT(1u << 20);

    redact_init(&r);
    CHECK_INT(redact_add(&r, "secret-4711"), 0);
    CHECK_INT(redact_add(&r, "4711secret"), 0);
    CHECK_INT(redact_next(&r, "secret-4711sec", 14, /* end */ false, &out), 0);
    redact_text(&r, apart, strlen(apart));
    CHECK_STR(apart, "grpc-status: 0 ***********");
    CHECK_INT(redact_next(&r, "-4712", 5, /* end */ true, &out), 0);
    CHECK_STR(buf_str(&out), "***********sec-4712");
    redact_done(&r);
}

TEST_MAIN(T(found_wherever_it_is_cut), T(overlapping_ones_are_all_masked), T(forms),
          T(an_event_stream_is_not_held_back), T(a_text_apart_leaves_the_stream_alone),
          T(short_secrets_are_not_searched_for))
