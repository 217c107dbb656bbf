/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "gateway/e2b/box.h"
#include "gateway/e2b/change.h"
#include "gateway/e2b/event.h"
#include "gateway/e2b/list.h"
#include "wire/connect.h"
#include "wire/frames.h"

static void times_go_both_ways(void)
{
    static const struct {
        const char *text;
        int64_t ms; /* -1: refused */
    } cases[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-11-30T11:59:22.497Z", 1796039962497},
        {"2026-11-30T11:59:22.4979999Z", 1796039962497},
        {"2026-11-30T12:59:22.497+01:00", 1796039962497},
        {"2026-11-30T12:59:22.497 01:00", 1796039962497}, /* a '+' that was not escaped */
        {"2026-11-30T10:29:22.497-01:30", 1796039962497},
        {"2026-11-30", -1},
        {"2026-11-30T11:59:22", -1},
        {"2026-11-30T11:59:22Zx", -1},
        {"2026-11-30T11:59:22*01:00", -1},
        {"", -1},
    };
    char text[E2B_TIME_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int64_t ms = -1;

        CHECK_INT(e2b_time_parse(cases[i].text, &ms), cases[i].ms < 0 ? -EINVAL : 0);
        CHECK_INT(ms, cases[i].ms);
    }
    e2b_time(1796039962497, text);
    CHECK_STR(text, "2026-11-30T11:59:22.497Z");
    e2b_time(-5, text);
    CHECK_STR(text, "1970-01-01T00:00:00.000Z");
    e2b_time(INT64_MAX, text);
    CHECK_STR(text, "9999-12-31T23:59:59.000Z");
}

/* As the SDK encodes them; the parameter is decoded once by then. */
static void metadata_is_unpacked(void)
{
    static const char *const bad[] = {"%", "a", "a=%2", "a=b&c", "a=%2500"};
    CLEANUP(e2b_filters_done) struct e2b_filters f = {0};
    struct err e = {0};

    CHECK_INT(e2b_filters_parse("a=b%2520c&k%252F%2526%253D=%25C3%25BC", &f, NULL), 0);
    CHECK_INT(f.n, 2);
    CHECK_STR(f.filters[0].key, "a");
    CHECK_STR(f.filters[0].value, "b c");
    CHECK_STR(f.filters[1].key, "k/&=");
    CHECK_STR(f.filters[1].value, "\xc3\xbc");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CLEANUP(e2b_filters_done) struct e2b_filters none = {0};

        CHECK_INT(e2b_filters_parse(bad[i], &none, &e), -EINVAL);
        CHECK_STR(e.field, "metadata");
    }
    {
        CLEANUP(e2b_filters_done) struct e2b_filters none = {0};

        CHECK_INT(e2b_filters_parse("a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1", &none, NULL), -EINVAL);
    }
}

static void what_is_remembered_comes_back(void)
{
    struct e2b_box in = {.alias = "base",
                         .auto_resume = true,
                         .private_traffic = true,
                         .mask_host = "a:${PORT}",
                         .killed = true,
                         .internet = E2B_INTERNET_DENIED};
    struct sandbox sb = {.surface = e2b_box_text(&in)};
    struct e2b_box out;

    e2b_box_read(&sb, &out);
    CHECK_STR(out.alias, "base");
    CHECK(out.auto_resume && out.private_traffic && out.killed && !out.secure);
    CHECK_STR(out.mask_host, "a:${PORT}");
    CHECK_INT(out.internet, E2B_INTERNET_DENIED);
    free(sb.surface);
    sb.surface = NULL;
    e2b_box_read(&sb, &out);
    CHECK(out.secure && !out.killed && !out.private_traffic);
}

static void check_event(const char *end, const char *want)
{
    cleanup_buf struct buf frames = BUF_INIT(4096);
    struct event_stream s;
    struct connect_envelope env;
    size_t used = 0;

    event_stream_init(&s);
    CHECK_INT(frame_add(&frames, FRAME_END, end, strlen(end)), 0);
    for (size_t i = 0; i < frames.len; i++) {
        CHECK_INT(event_stream_feed(&s, frames.data + i, 1), 0);
    }
    CHECK(s.ended);
    CHECK_INT(connect_parse(buf_str(&s.out), s.out.len, 65536, &env, &used), 0);
    CHECK_INT(env.len, strlen(want));
    CHECK(env.len == strlen(want) && memcmp(env.payload, want, env.len) == 0);
    event_stream_done(&s);
}

static void ends_of_commands(void)
{
    check_event("{\"exit_code\":0}",
                "{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}");
    check_event("{\"exit_code\":127,\"error\":\"no such program\"}",
                "{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status "
                "127\",\"exitCode\":127,\"error\":\"no such program\"}}}");
    check_event("{\"exit_code\":143,\"signal\":\"TERM\"}",
                "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: "
                "terminated\",\"error\":\"signal: terminated\"}}}");
    check_event("{\"exit_code\":1,\"signal\":\"RTMIN+3\"}",
                "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: "
                "SIGRTMIN+3\",\"error\":\"signal: SIGRTMIN+3\"}}}");
    check_event("{\"exit_code\":143,\"signal\":\"TERM\",\"timed_out\":true}",
                "{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"the process was "
                "ended: the time for it was over\"}}");
}

static int changes(const char *line, struct fs_change ret[static FS_CHANGES_MAX], json_t **keep)
{
    struct err e = {0};

    ASSERT(json_parse_object(line, strlen(line), keep, NULL) == 0);
    return fs_changes_of(*keep, ret, &e);
}

static void renames_are_two_events(void)
{
    struct fs_change c[FS_CHANGES_MAX];
    cleanup_json json_t *rename = NULL;
    cleanup_json json_t *removed = NULL;
    cleanup_json json_t *lost = NULL;
    cleanup_json json_t *other = NULL;

    CHECK_INT(changes("{\"type\":\"rename\",\"path\":\"/d/a\",\"name\":\"a\",\"to\":\"/d/b\","
                      "\"to_name\":\"b\"}",
                      c, &rename),
              2);
    CHECK_STR(c[0].type, "EVENT_TYPE_RENAME");
    CHECK_STR(c[0].name, "a");
    CHECK(!c[0].path);
    CHECK_STR(c[1].type, "EVENT_TYPE_CREATE");
    CHECK_STR(c[1].path, "/d/b");
    CHECK_INT(changes("{\"type\":\"remove\",\"path\":\"/d\",\"name\":\"\"}", c, &removed), 1);
    CHECK_STR(c[0].name, ".");
    CHECK_INT(changes("{\"type\":\"overflow\"}", c, &lost), -EIO);
    CHECK_INT(changes("{\"type\":\"something\"}", c, &other), 0);
}

TEST_MAIN(T(times_go_both_ways), T(metadata_is_unpacked), T(what_is_remembered_comes_back),
          T(ends_of_commands), T(renames_are_two_events))
