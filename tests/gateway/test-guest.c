/* SPDX-License-Identifier: Apache-2.0 */

/* What goes through to a sandbox and back: commands, files, output as lines, run, terminals. */
#include "harness.h"

#include <stdio.h>

#include "http/ws.h"
#include "wire/frames.h"

#define CID "c0000000000000000000"
#define COMMAND "{\"id\":\"" CID "\",\"state\":\"running\",\"exit_code\":null,\"signal\":null}"
#define ENDED \
    "{\"id\":\"" CID "\",\"state\":\"exited\",\"exit_code\":7,\"signal\":null,\"timed_out\":" \
    "false}"

static void add(struct buf *b, enum frame_type type, const char *payload, size_t len)
{
    ASSERT(frame_add(b, type, payload, len) == 0);
}

static void add_text(struct buf *b, enum frame_type type, const char *text)
{
    add(b, type, text, strlen(text));
}

/* The daemon answers with these frames. */
static void answer_frames(struct world *w, const struct buf *frames)
{
    fake_node_guest_answer(w->node, 200, FRAMES_CONTENT_TYPE, buf_str(frames), frames->len);
}

static char *target_of(const char *id, const char *rest)
{
    return xasprintf("/v1/sandboxes/%s%s", id, rest);
}

static void requests_pass_with_query_and_without_secrets(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    cleanup_free char *seen = NULL;
    cleanup_free char *want = NULL;
    cleanup_answer struct answer a = {0};

    world_make(&w, ALICE, id);
    target = target_of(id, "/files?path=%2Ftmp%2Fa%20b&user=user");
    fake_node_guest_answer(w.node, 200, "application/octet-stream", "a\0b", 3);
    a = alice(&w, "GET", target, NULL);
    CHECK_INT(a.status, 200);
    CHECK_INT(a.len, 3);
    CHECK_MEM(a.text, "a\0b", 3);
    seen = fake_node_guest_seen(w.node);
    want = xasprintf("GET /v1/sandboxes/%s/guest/files?path=%%2Ftmp%%2Fa%%20b&user=user\n", id);
    CHECK(str_starts(seen, want));
    CHECK(strcasestr(seen, "e2b_") == NULL);
    CHECK(strcasestr(seen, "x-api-key") == NULL);
    CHECK(strcasestr(seen, "x-request-id: ") != NULL);
    CHECK(strstr(seen, a.request_id) != NULL);
}

static void only_harmless_fields_come_back(void)
{
    WORLD(w);
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct http_headers headers = HTTP_HEADERS_INIT;
    char id[ID_SIZE];
    cleanup_free char *target = NULL;

    world_make(&w, ALICE, id);
    target = target_of(id, "/files?path=x");
    http_headers_add(&headers, "X-API-Key", w.keys[ALICE]);
    REQUIRE(http_call_new(w.http, &(struct http_call_opts){.target = target, .headers = &headers},
                          &call, NULL) == 0);
    REQUIRE(http_call_head(call, NULL) == 0);
    CHECK_STR(http_call_header(call, "X-Space-Mode"), "0644");
    CHECK(http_call_header(call, "Set-Cookie") == NULL);
    CHECK(http_call_header(call, "Access-Control-Allow-Origin") == NULL);
    CHECK_STR(http_call_header(call, "X-Content-Type-Options"), "nosniff");
    CHECK(http_call_header(call, "Content-Security-Policy") != NULL);
    http_headers_done(&headers);
}

static void set_up_of_the_guest_is_out_of_reach(void)
{
    static const char *const paths[] = {
        "/setup",  "/teardown",       "/identity",          "/sync",
        "/freeze", "/guest/setup",    "/guest/commands",    "/files/../setup",
        "/thaw",   "/commands/setup", "/files/%2e%2e/setup"};
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        cleanup_free char *target = target_of(id, paths[i]);
        cleanup_answer struct answer a = alice(&w, "POST", target, "{}");

        CHECK(a.status == 404 || a.status == 405);
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_GUEST), 0);
}

static void stopped_sandboxes_say_so(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *stop = NULL;
    cleanup_free char *target = NULL;
    cleanup_answer struct answer stopped = {0};
    cleanup_answer struct answer a = {0};

    world_make(&w, ALICE, id);
    stop = target_of(id, "/stop");
    target = target_of(id, "/commands");
    stopped = alice(&w, "POST", stop, NULL);
    a = alice(&w, "GET", target, NULL);
    CHECK_INT(a.status, 409);
    CHECK_STR(answer_code(&a), "sandbox_not_running");
    CHECK_INT(fake_node_asked(w.node, FAKE_GUEST), 0);
}

static void errors_of_the_daemon_pass_as_they_are(void)
{
    static const char text[] = "{\"error\":{\"code\":\"file_not_found\",\"message\":\"No.\"}}";
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    cleanup_answer struct answer a = {0};

    world_make(&w, ALICE, id);
    target = target_of(id, "/files/stat?path=x");
    fake_node_guest_answer(w.node, 404, "application/json", text, strlen(text));
    a = alice(&w, "GET", target, NULL);
    CHECK_INT(a.status, 404);
    CHECK_STR(a.text, text);
}

static void output_becomes_lines_on_request(void)
{
    WORLD(w);
    cleanup_buf struct buf frames = BUF_INIT(65536);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    struct ask ask = {.method = "POST", .body = "{\"shell\":\"x\"}", .key = w.keys[ALICE]};
    cleanup_answer struct answer raw = {0};
    cleanup_answer struct answer lines = {0};

    add_text(&frames, FRAME_START, COMMAND);
    add_text(&frames, FRAME_STDOUT, "hi\n");
    add(&frames, FRAME_STDERR, "\xff\x00", 2);
    add(&frames, FRAME_STDOUT, "\xe2\x82", 2); /* half a euro sign ... */
    add_text(&frames, FRAME_KEEPALIVE, "");
    add(&frames, FRAME_STDOUT, "\xac!", 2); /* ... and the rest */
    add_text(&frames, FRAME_END, ENDED);
    world_make(&w, ALICE, id);
    answer_frames(&w, &frames);
    target = target_of(id, "/commands?stream=1");
    ask.target = target;
    raw = world_ask(&w, &ask);
    CHECK_STR(raw.type, FRAMES_CONTENT_TYPE);
    CHECK_INT(raw.len, frames.len);
    ask.accept = "application/x-ndjson";
    lines = world_ask(&w, &ask);
    CHECK_INT(lines.status, 200);
    CHECK_STR(lines.type, "application/x-ndjson");
    CHECK_STR(lines.text,
              "{\"type\":\"start\",\"command\":" COMMAND "}\n"
              "{\"type\":\"stdout\",\"data_base64\":\"aGkK\",\"text\":\"hi\\n\"}\n"
              "{\"type\":\"stderr\",\"data_base64\":\"/wA=\"}\n"
              "{\"type\":\"keepalive\"}\n"
              "{\"type\":\"stdout\",\"data_base64\":\"4oKsIQ==\",\"text\":\"\xe2\x82\xac!\"}\n"
              "{\"type\":\"end\",\"command\":" ENDED "}\n");
}

static void cut_output_is_never_a_proper_end(void)
{
    WORLD(w);
    cleanup_buf struct buf frames = BUF_INIT(65536);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    struct ask ask = {.method = "GET", .key = w.keys[ALICE]};

    add_text(&frames, FRAME_STDOUT, "hi\n");
    world_make(&w, ALICE, id);
    target = target_of(id, "/commands/" CID "/output?follow=1");
    ask.target = target;
    for (int cut = 0; cut < 2; cut++) {
        fake_node_guest_cut(w.node, cut);
        answer_frames(&w, &frames);
        for (int lines = !cut; lines < 2;
             lines++) { /* raw frames without their end are the client's to notice */
            cleanup_answer struct answer a = {0};

            ask.accept = lines ? "application/x-ndjson" : NULL;
            a = world_ask(&w, &ask);
            CHECK_INT(a.status, 200);
            CHECK(a.error < 0);
        }
    }
}

static void nonsense_from_the_daemon_is_a_cut_not_a_crash(void)
{
    static const struct {
        const char *data;
        size_t len;
    } nonsense[] = {{"Zxxxyyyyzzzz", 12}, {"S\1\0\0\0\0\0\1x", 9}, {"hello, world", 12}};
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    cleanup_free char *run = NULL;
    struct ask ask = {.method = "GET", .key = w.keys[ALICE], .accept = "application/x-ndjson"};

    world_make(&w, ALICE, id);
    target = target_of(id, "/commands/" CID "/output");
    run = target_of(id, "/run");
    ask.target = target;
    for (size_t i = 0; i < ARRAY_SIZE(nonsense); i++) {
        cleanup_answer struct answer a = {0};
        cleanup_answer struct answer b = {0};

        fake_node_guest_answer(w.node, 200, FRAMES_CONTENT_TYPE, nonsense[i].data, nonsense[i].len);
        a = world_ask(&w, &ask);
        CHECK(a.error < 0);
        b = alice(&w, "POST", run, "{\"shell\":\"x\"}");
        CHECK_INT(b.status, 502);
    }
}

/* --- run --- */

static void run_gives_everything_in_one_answer(void)
{
    WORLD(w);
    cleanup_buf struct buf frames = BUF_INIT(65536);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    cleanup_free char *seen = NULL;
    cleanup_answer struct answer a = {0};

    add_text(&frames, FRAME_START, COMMAND);
    add(&frames, FRAME_STDOUT, "\xe2\x82", 2);
    add(&frames, FRAME_STDOUT, "\xac\n", 2);
    add(&frames, FRAME_STDERR, "\xff", 1);
    add_text(&frames, FRAME_END, ENDED);
    world_make(&w, ALICE, id);
    answer_frames(&w, &frames);
    target = target_of(id, "/run");
    a = alice(&w, "POST", target,
              "{\"argv\":[\"a\",\"b\"],\"env\":{\"X\":\"y\"},\"timeout_ms\":5}");
    CHECK_INT(a.status, 200);
    CHECK_INT(json_get_int(a.json, "exit_code", -1), 7);
    CHECK(json_is_null(json_object_get(a.json, "signal")));
    CHECK_STR(json_get_string(a.json, "stdout", ""), "\xe2\x82\xac\n");
    CHECK(json_object_get(a.json, "stderr") == NULL);
    CHECK_STR(json_get_string(a.json, "stderr_base64", ""), "/w==");
    CHECK(json_is_false(json_object_get(a.json, "truncated")));
    seen = fake_node_guest_seen(w.node);
    CHECK(strstr(seen, "kill_on_disconnect=1") != NULL);
    CHECK(strstr(seen, "\"argv\":[\"a\",\"b\"]") != NULL);
    CHECK(strstr(seen, "\"stdin\":false") != NULL);
    CHECK(strstr(seen, "max_output") == NULL);
}

static void run_feeds_stdin(void)
{
    WORLD(w);
    cleanup_buf struct buf frames = BUF_INIT(65536);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    cleanup_free char *input = NULL;
    cleanup_free char *seen = NULL;
    cleanup_answer struct answer a = {0};

    add_text(&frames, FRAME_START, COMMAND);
    add_text(&frames, FRAME_END, ENDED);
    world_make(&w, ALICE, id);
    answer_frames(&w, &frames);
    target = target_of(id, "/run");
    fake_node_guest_after_stdin(w.node, 5); /* "cat" ends when its input does */
    a = alice(&w, "POST", target, "{\"shell\":\"cat\",\"stdin_base64\":\"aGVsbG8=\"}");
    CHECK_INT(a.status, 200);
    input = fake_node_stdin_seen(w.node, 5);
    CHECK_STR(input, "hello");
    seen = fake_node_guest_seen(w.node);
    CHECK(strstr(seen, "\"stdin\":true") != NULL);
}

static void run_cuts_what_is_too_much(void)
{
    WORLD(w);
    cleanup_buf struct buf frames = BUF_INIT(65536);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    cleanup_answer struct answer a = {0};

    add_text(&frames, FRAME_START, COMMAND);
    add_text(&frames, FRAME_STDOUT,
             "abc\xe2\x82\xac"
             "def");
    add_text(&frames, FRAME_END, ENDED);
    world_make(&w, ALICE, id);
    answer_frames(&w, &frames);
    target = target_of(id, "/run");
    a = alice(&w, "POST", target, "{\"shell\":\"x\",\"max_output_bytes\":5}");
    CHECK_INT(a.status, 200);
    CHECK_STR(json_get_string(a.json, "stdout", ""), "abc");
    CHECK(json_is_true(json_object_get(a.json, "truncated")));
}

static void run_checks_its_body(void)
{
    static const char *const bad[] = {
        "{}",
        "{\"argv\":[\"a\"],\"shell\":\"a\"}",
        "{\"argv\":\"a\"}",
        "{\"shell\":\"a\",\"stdin\":\"x\",\"stdin_base64\":\"eA==\"}",
        "{\"shell\":\"a\",\"stdin_base64\":\"!\"}",
        "{\"shell\":\"a\",\"max_output_bytes\":-1}",
        "{\"shell\":\"a\",\"pty\":{}}",
    };
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;

    world_make(&w, ALICE, id);
    target = target_of(id, "/run");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_answer struct answer a = alice(&w, "POST", target, bad[i]);

        CHECK_INT(a.status, 400);
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_GUEST), 0);
}

static void run_that_loses_its_sandbox_is_an_error(void)
{
    WORLD(w);
    cleanup_buf struct buf frames = BUF_INIT(65536);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;

    add_text(&frames, FRAME_START, COMMAND);
    add_text(&frames, FRAME_STDOUT, "so far");
    world_make(&w, ALICE, id);
    target = target_of(id, "/run");
    for (int cut = 0; cut < 2; cut++) {
        cleanup_answer struct answer a = {0};

        fake_node_guest_cut(w.node, cut);
        answer_frames(&w, &frames);
        a = alice(&w, "POST", target, "{\"shell\":\"x\"}");
        CHECK_INT(a.status, 502);
    }
}

/* --- terminals --- */

static int open_terminal(struct world *w, const char *id, struct ws **ret)
{
    cleanup_free char *target = target_of(id, "/commands/" CID "/terminal?offset=3");
    struct http_headers headers = HTTP_HEADERS_INIT;
    struct ws_opts opts = {.headers = &headers, .deadline_ns = deadline_in_ms(TEST_MS)};
    int r;

    http_headers_add(&headers, "X-API-Key", w->keys[ALICE]);
    r = ws_connect(w->http, target, &opts, ret, NULL);
    http_headers_done(&headers);
    return r;
}

static void terminal_shows_output_and_its_end(void)
{
    WORLD(w);
    cleanup_buf struct buf frames = BUF_INIT(65536);
    CLEANUP(ws_freep) struct ws *ws = NULL;
    struct ws_message m;
    char id[ID_SIZE];
    cleanup_free char *seen = NULL;

    add_text(&frames, FRAME_GAP, "{\"from\":3,\"to\":9}");
    add_text(&frames, FRAME_PTY, "$ ");
    add_text(&frames, FRAME_END, ENDED);
    world_make(&w, ALICE, id);
    answer_frames(&w, &frames);
    REQUIRE(open_terminal(&w, id, &ws) == 0);
    REQUIRE(ws_read(ws, &m, deadline_in_ms(TEST_MS), NULL) == 0);
    CHECK_INT(m.type, WS_TEXT);
    CHECK_STR(m.data, "{\"type\":\"gap\",\"from\":3,\"to\":9}");
    REQUIRE(ws_read(ws, &m, deadline_in_ms(TEST_MS), NULL) == 0);
    CHECK_INT(m.type, WS_BINARY);
    CHECK_STR(m.data, "$ ");
    REQUIRE(ws_read(ws, &m, deadline_in_ms(TEST_MS), NULL) == 0);
    CHECK_INT(m.type, WS_TEXT);
    CHECK(strstr(m.data, "\"type\":\"end\"") != NULL);
    REQUIRE(ws_read(ws, &m, deadline_in_ms(TEST_MS), NULL) == 0);
    CHECK_INT(m.type, WS_CLOSE);
    CHECK_INT(m.close_code, 1000);
    seen = fake_node_guest_seen(w.node);
    CHECK(strstr(seen, "/commands/" CID "/output?offset=3&follow=1&pty=1\n") != NULL);
}

/* More than the gateway's queue holds: it must not be lost, and must not lock up. */
#define TYPED (3u << 20)

static void terminal_passes_input(void)
{
    static const char resize[] = "{\"resize\":{\"rows\":50,\"cols\":132}}";
    static char typed[65536];
    WORLD(w);
    cleanup_buf struct buf frames = BUF_INIT(65536);
    CLEANUP(ws_freep) struct ws *ws = NULL;
    struct ws_message m;
    char id[ID_SIZE];
    cleanup_free char *input = NULL;
    int r;

    memset(typed, 'x', sizeof(typed));
    add_text(&frames, FRAME_END, ENDED);
    world_make(&w, ALICE, id);
    answer_frames(&w, &frames);
    fake_node_guest_after_stdin(w.node, TYPED); /* the program reads all of it, then ends */
    REQUIRE(open_terminal(&w, id, &ws) == 0);
    for (size_t i = 0; i < TYPED / sizeof(typed); i++) {
        REQUIRE(ws_write(ws, WS_BINARY, typed, sizeof(typed), deadline_in_ms(TEST_MS), NULL) == 0);
    }
    REQUIRE(ws_write(ws, WS_TEXT, resize, strlen(resize), deadline_in_ms(TEST_MS), NULL) == 0);
    while ((r = ws_read(ws, &m, deadline_in_ms(TEST_MS), NULL)) == 0 && m.type != WS_CLOSE) {
        CHECK_INT(m.type, WS_TEXT);
    }
    CHECK_INT(r, 0);
    CHECK_INT(m.close_code, 1000);
    input = fake_node_stdin_seen(w.node, TYPED);
    CHECK_INT(strlen(input), TYPED);
}

static void terminal_whose_output_breaks_is_closed_as_broken(void)
{
    WORLD(w);
    cleanup_buf struct buf frames = BUF_INIT(65536);
    CLEANUP(ws_freep) struct ws *ws = NULL;
    struct ws_message m;
    char id[ID_SIZE];
    int r;

    add_text(&frames, FRAME_PTY, "so far");
    world_make(&w, ALICE, id);
    answer_frames(&w, &frames);
    fake_node_guest_cut(w.node, true);
    REQUIRE(open_terminal(&w, id, &ws) == 0);
    while ((r = ws_read(ws, &m, deadline_in_ms(TEST_MS), NULL)) == 0 && m.type != WS_CLOSE) {
        CHECK_INT(m.type, WS_BINARY);
    }
    CHECK_INT(r, 0);
    CHECK_INT(m.close_code, 1011);
}

static void terminal_refuses_what_is_no_message_of_it(void)
{
    static const char *const bad[] = {"nonsense", "{}", "{\"resize\":{\"rows\":0,\"cols\":1}}",
                                      "{\"resize\":{\"rows\":1}}"};
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CLEANUP(ws_freep) struct ws *ws = NULL;
        struct ws_message m;

        fake_node_guest_answer(w.node, 200, FRAMES_CONTENT_TYPE, "", 0);
        fake_node_guest_after_stdin(w.node, 1); /* the output stays open */
        REQUIRE(open_terminal(&w, id, &ws) == 0);
        REQUIRE(ws_write(ws, WS_TEXT, bad[i], strlen(bad[i]), deadline_in_ms(TEST_MS), NULL) == 0);
        REQUIRE(ws_read(ws, &m, deadline_in_ms(TEST_MS), NULL) == 0);
        CHECK_INT(m.type, WS_CLOSE);
        CHECK_INT(m.close_code, 1008);
    }
}

static void terminal_of_nothing_is_refused_before_the_upgrade(void)
{
    static const char text[] = "{\"error\":{\"code\":\"command_not_found\",\"message\":\"No.\"}}";
    static const char piped[] = "{\"error\":{\"code\":\"no_terminal\",\"message\":\"No.\"}}";
    WORLD(w);
    CLEANUP(ws_freep) struct ws *ws = NULL;
    cleanup_free char *seen = NULL;
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    cleanup_answer struct answer plain = {0};

    world_make(&w, ALICE, id);
    fake_node_guest_answer(w.node, 404, "application/json", text, strlen(text));
    CHECK_INT(open_terminal(&w, id, &ws), -ENOENT);
    fake_node_guest_answer(w.node, 409, "application/json", piped, strlen(piped));
    CHECK(open_terminal(&w, id, &ws) < 0);
    seen = fake_node_guest_seen(w.node);
    CHECK(strstr(seen, "pty=1") != NULL);
    fake_node_guest_answer(w.node, 200, FRAMES_CONTENT_TYPE, "", 0);
    target = target_of(id, "/commands/" CID "/terminal");
    plain = alice(&w, "GET", target, NULL);
    CHECK_INT(plain.status, 426);
}

TEST_MAIN(T(requests_pass_with_query_and_without_secrets), T(only_harmless_fields_come_back),
          T(set_up_of_the_guest_is_out_of_reach), T(stopped_sandboxes_say_so),
          T(errors_of_the_daemon_pass_as_they_are), T(output_becomes_lines_on_request),
          T(cut_output_is_never_a_proper_end), T(nonsense_from_the_daemon_is_a_cut_not_a_crash),
          T(run_gives_everything_in_one_answer), T(run_feeds_stdin), T(run_cuts_what_is_too_much),
          T(run_checks_its_body), T(run_that_loses_its_sandbox_is_an_error),
          T(terminal_shows_output_and_its_end), T(terminal_passes_input),
          T(terminal_whose_output_breaks_is_closed_as_broken),
          T(terminal_refuses_what_is_no_message_of_it),
          T(terminal_of_nothing_is_refused_before_the_upgrade))
