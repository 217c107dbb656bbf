/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/frames.h"

#include "base/test.h"

static void what_is_printed_is_parsed(void)
{
    cleanup_buf struct buf b = BUF_INIT(1000);
    struct frame f;
    size_t used = 0;

    CHECK_INT(frame_add(&b, FRAME_STDERR, "a\0b", 3), 0);
    CHECK_INT(frame_add(&b, FRAME_KEEPALIVE, NULL, 0), 0);
    CHECK_MEM(b.data, "R\0\0\0\0\0\0\3a\0bK\0\0\0\0\0\0\0", 19);
    for (size_t len = 0; len < 11; len++) {
        CHECK_INT(frame_parse(b.data, len, &f, &used), -EAGAIN);
    }
    CHECK_INT(frame_parse(b.data, b.len, &f, &used), 0);
    CHECK_INT(f.type, FRAME_STDERR);
    CHECK_INT(f.len, 3);
    CHECK_MEM(f.payload, "a\0b", 3);
    CHECK_INT(used, 11);
    CHECK_INT(frame_parse(b.data + used, b.len - used, &f, &used), 0);
    CHECK_INT(f.type, FRAME_KEEPALIVE);
}

static void what_is_no_frame_is_refused(void)
{
    static const char *const bad[] = {"A\0\0\0\0\0\0\0",   "S\1\0\0\0\0\0\0", "S\0\0\1\0\0\0\0",
                                      "S\0\0\0\x7f\0\0\0", "K\0\0\0\0\0\0\1", "S\0\0\0\0\x08\0\1"};
    struct frame f;
    size_t used = 0;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK_INT(frame_parse(bad[i], 8, &f, &used), -EPROTO);
    }
    CHECK_INT(frame_parse("x", 1, &f, &used), -EPROTO);
}

static void ceilings_hold(void)
{
    cleanup_buf struct buf b = BUF_INIT(10);
    static char big[FRAME_PAYLOAD_MAX + 1];

    CHECK_INT(frame_add(&b, FRAME_STDOUT, "abc", 3), -E2BIG);
    CHECK_INT(b.len, 0);
    b.max = 2 * FRAME_PAYLOAD_MAX;
    CHECK_INT(frame_add(&b, FRAME_STDOUT, big, sizeof(big)), -E2BIG);
    CHECK_INT(frame_add(&b, FRAME_STDOUT, big, sizeof(big) - 1), 0);
}

static int count_until_end(void *ctx, const struct frame *f)
{
    *(int *)ctx += 1;
    return f->type == FRAME_END ? 7 : 0;
}

static void whole_frames_are_taken_and_the_rest_stays(void)
{
    cleanup_buf struct buf b = BUF_INIT(1000);
    int n = 0;

    CHECK_INT(frames_take(&b, count_until_end, &n), 0);
    CHECK_INT(frame_add(&b, FRAME_STDOUT, "ab", 2), 0);
    CHECK_INT(frame_add(&b, FRAME_STDERR, "", 0), 0);
    CHECK_INT(buf_add(&b, "E\0\0\0\0\0\0\2{", 9), 0);
    CHECK_INT(frames_take(&b, count_until_end, &n), 0);
    CHECK_INT(n, 2);
    CHECK_MEM(b.data, "E\0\0\0\0\0\0\2{", 9);
    CHECK_INT(buf_add(&b, "}O", 2), 0);
    CHECK_INT(frames_take(&b, count_until_end, &n), 7);
    CHECK_INT(n, 3);
    CHECK_INT(b.len, 1); /* what comes after it was not looked at */
    CHECK_INT(buf_add(&b, "\1\0\0\0\0\0\0", 7), 0);
    CHECK_INT(frames_take(&b, count_until_end, &n), -EPROTO);
    CHECK_INT(n, 3);
}

TEST_MAIN(T(what_is_printed_is_parsed), T(what_is_no_frame_is_refused), T(ceilings_hold),
          T(whole_frames_are_taken_and_the_rest_stays))
