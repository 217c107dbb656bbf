/* SPDX-License-Identifier: Apache-2.0 */
/* The command routes of the whole daemon, through the real channel; the host's own root is the sandbox's. */
#include "base/json.h"
#include "base/test.h"
#include "daemon/guest-harness.h"
#include "wire/frames.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MAX ((size_t)64 * 1024 * 1024)

/* The id that the node gives the next command; NULL: none. */
static const char *given_id;

static struct channel_stream *ask(struct guest *g, const char *method, const char *target,
                                  const char *body, size_t len)
{
    char length[24];
    const struct channel_header headers[] = {{"content-length", length},
                                             {"x-space-command", given_id}};
    struct channel_request q = {.method = method,
                                .target = target,
                                .headers = headers,
                                .n_headers = body ? (given_id ? 2 : 1) : 0,
                                .has_body = body};
    struct channel_stream *s = NULL;
    struct err e = {0};

    snprintf(length, sizeof(length), "%zu", len);
    ASSERT(channel_request(g->ch, &q, SOON, &s, &e) == 0);
    if (body) {
        IGNORE_RESULT(channel_stream_write(s, body, len, SOON,
                                           &e)); /* the answer may come before all is taken */
        channel_stream_finish(s);
    }
    return s;
}

/* One request, its whole answer as JSON in *ret (NULL when it has none). */
static int call(struct guest *g, const char *method, const char *target, const char *body,
                json_t **ret)
{
    CLEANUP(channel_stream_freep)
    struct channel_stream *s = ask(g, method, target, body, body ? strlen(body) : 0);
    cleanup_buf struct buf text = BUF_INIT(ANSWER_MAX);
    static char piece[65536];
    struct err e = {0};
    int status = status_of(s);
    ssize_t n;

    while ((n = channel_stream_read(s, piece, sizeof(piece), SOON, &e)) > 0) {
        ASSERT(buf_add(&text, piece, (size_t)n) == 0);
    }
    CHECK_INT(n, 0);
    if (ret && json_parse_any(buf_str(&text), text.len, ret, &e) < 0) {
        *ret = NULL;
    }
    return status;
}

/* A daemon for which everybody is whoever runs the test. */
static struct guest guest_ready(void)
{
    struct guest g = guest_start();
    cleanup_free char *setup = xasprintf("{\"default_user\":\"%u\"}", geteuid());

    CHECK_INT(call(&g, "POST", "/setup", setup, NULL), 200);
    return g;
}

/* What a stream of frames says. */
struct seen {
    struct buf out;
    struct buf err;
    struct buf raw;
    char order[64]; /* the types, without repetition */
    json_t *start;  /* owned */
    json_t *end;    /* owned */
    size_t n_gaps;
};

static void seen_done(struct seen *seen)
{
    buf_done(&seen->out);
    buf_done(&seen->err);
    buf_done(&seen->raw);
    json_decref(seen->start);
    json_decref(seen->end);
}
#define SEEN CLEANUP(seen_done) struct seen
#define SEEN_INIT \
    { \
        .out = BUF_INIT(ANSWER_MAX), .err = BUF_INIT(ANSWER_MAX), .raw = BUF_INIT(ANSWER_MAX) \
    }

static void see(struct seen *seen, const struct frame *f)
{
    size_t n = strlen(seen->order);
    struct err e = {0};
    int r = 0;

    if (n + 1 < sizeof(seen->order) && (n == 0 || seen->order[n - 1] != (char)f->type)) {
        seen->order[n] = (char)f->type;
    }
    if (f->type == FRAME_STDOUT || f->type == FRAME_PTY) {
        r = buf_add(&seen->out, f->payload, f->len);
    } else if (f->type == FRAME_STDERR) {
        r = buf_add(&seen->err, f->payload, f->len);
    } else if (f->type == FRAME_START) {
        r = json_parse_object(f->payload, f->len, &seen->start, &e);
    } else if (f->type == FRAME_END) {
        r = json_parse_object(f->payload, f->len, &seen->end, &e);
    } else if (f->type == FRAME_GAP) {
        seen->n_gaps++;
    }
    CHECK_INT(r, 0);
}

/* Reads frames until the end of the answer or until one of this type has been seen; negative errno when it broke. */
static int follow(struct channel_stream *s, struct seen *seen, char until)
{
    static char piece[65536];
    struct err e = {0};
    struct frame f;
    size_t used;

    for (;;) {
        ssize_t n;

        while (frame_parse(seen->raw.len ? seen->raw.data : "", seen->raw.len, &f, &used) == 0) {
            see(seen, &f);
            buf_consume(&seen->raw, used);
            if ((char)f.type == until) {
                return 0;
            }
        }
        n = channel_stream_read(s, piece, sizeof(piece), SOON, &e);
        if (n <= 0) {
            CHECK_INT(seen->raw.len, 0);
            return (int)n;
        }
        ASSERT(buf_add(&seen->raw, piece, (size_t)n) == 0);
    }
}

static const char *path_of(json_t *command, const char *rest)
{
    static char out[4][128];
    static unsigned n;
    char *p = out[n++ % ARRAY_SIZE(out)];

    snprintf(p, sizeof(out[0]), "/commands/%s%s", json_get_string(command, "id", "?"), rest);
    return p;
}

static json_t *start(struct guest *g, const char *body)
{
    json_t *command = NULL;

    CHECK_INT(call(g, "POST", "/commands", body, &command), 201);
    return command;
}

static void mistakes_are_named(void)
{
    static const struct {
        const char *method;
        const char *target;
        const char *body;
        int status;
        const char *code;
        const char *field;
    } cases[] = {
        {"POST", "/commands", "{}", 400, "missing_field", "argv"},
        {"POST", "/commands", "[]", 400, "invalid_json", ""},
        {"POST", "/commands", "{\"argv\":[\"true\"],\"shell\":\"x\"}", 400, "invalid_field",
         "shell"},
        {"POST", "/commands", "{\"argv\":[\"true\"],\"user\":\"nosuchuser\"}", 400,
         "user_not_found", "user"},
        {"POST", "/commands", "{\"argv\":[\"true\"],\"cwd\":\"/no/such\"}", 400, "cwd_not_usable",
         "cwd"},
        {"POST", "/commands?stream=1", "{\"argv\":[\"true\"],\"cwd\":\"/no\"}", 400,
         "cwd_not_usable", "cwd"},
        {"POST", "/commands?stream=2", "{\"argv\":[\"true\"]}", 400, "invalid_request", "stream"},
        {"POST", "/commands", "{\"argv\":[\"true\"],\"pty\":{\"rows\":0}}", 400, "out_of_range",
         "rows"},
        {"POST", "/commands", "{\"argv\":[\"true\"],\"color\":1}", 400, "unknown_field", "color"},
        {"GET", "/commands/c0000000000000000000", NULL, 404, "command_not_found", ""},
        {"DELETE", "/commands/x", NULL, 404, "command_not_found", ""},
        {"GET", "/commands/x/output", NULL, 404, "command_not_found", ""},
        {"POST", "/commands/x/stdin", "", 404, "command_not_found", ""},
        {"POST", "/commands/x/signal", "{\"signal\":9}", 404, "command_not_found", ""},
        {"POST", "/commands/x/resize", "{}", 404, "command_not_found", ""},
    };
    struct guest g = guest_ready();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_json json_t *answer = NULL;
        json_t *error;

        printf("# %s %s %s\n", cases[i].method, cases[i].target,
               cases[i].body ? cases[i].body : "");
        CHECK_INT(call(&g, cases[i].method, cases[i].target, cases[i].body, &answer),
                  cases[i].status);
        error = json_object_get(answer, "error");
        CHECK_STR(json_get_string(error, "code", ""), cases[i].code);
        CHECK_STR(json_get_string(error, "field", ""), cases[i].field);
    }
    guest_stop(&g);
}

static void command_is_started_waited_for_listed_and_deleted(void)
{
    struct guest g = guest_ready();
    cleanup_json json_t *command =
        start(&g, "{\"shell\":\"read x; echo $x >&2; exit 3\",\"stdin\":true,\"tag\":\"mine\"}");
    cleanup_json json_t *end = NULL;
    cleanup_json json_t *list = NULL;
    cleanup_json json_t *refused = NULL;
    cleanup_json json_t *no_terminal = NULL;

    CHECK_STR(json_get_string(command, "state", ""), "running");
    CHECK(json_is_null(json_object_get(command, "exit_code")));
    CHECK_INT(call(&g, "GET", path_of(command, "?wait_ms=1"), NULL, NULL), 200);
    CHECK_INT(call(&g, "POST", path_of(command, "/stdin?eof=1"), "hello\n", NULL), 200);
    CHECK_INT(call(&g, "GET", path_of(command, "?wait_ms=60000"), NULL, &end), 200);
    CHECK_STR(json_get_string(end, "state", ""), "exited");
    CHECK_INT(json_get_int(end, "exit_code", -1), 3);
    CHECK_STR(json_get_string(end, "tag", ""), "mine");
    CHECK_INT(json_get_int(end, "output_bytes", -1), 6);
    CHECK_INT(call(&g, "POST", path_of(command, "/stdin"), "x", &refused), 409);
    CHECK_STR(json_get_string(json_object_get(refused, "error"), "code", ""), "stdin_not_open");
    CHECK_INT(call(&g, "GET", "/commands", NULL, &list), 200);
    CHECK_INT(json_array_size(json_object_get(list, "commands")), 1);
    CHECK_INT(call(&g, "GET", path_of(command, "/output?offset=7"), NULL, NULL), 400);
    CHECK_INT(call(&g, "GET", path_of(command, "/output?pty=1"), NULL, &no_terminal), 409);
    CHECK_STR(json_get_string(json_object_get(no_terminal, "error"), "code", ""), "no_terminal");
    CHECK_INT(call(&g, "POST", path_of(command, "/signal"), "{\"signal\":\"TERM\"}", NULL), 409);
    CHECK_INT(call(&g, "POST", path_of(command, "/resize"), "{\"rows\":1,\"cols\":1}", NULL), 409);
    CHECK_INT(call(&g, "DELETE", path_of(command, ""), NULL, NULL), 204);
    CHECK_INT(call(&g, "GET", path_of(command, ""), NULL, NULL), 404);
    guest_stop(&g);
}

static void the_node_may_name_a_command(void)
{
    static const char body[] = "{\"argv\":[\"true\"]}";
    static const char id[] = "cabcdefghijklmnopqrs";
    struct guest g = guest_ready();
    cleanup_json json_t *command = NULL;
    cleanup_json json_t *taken = NULL;
    cleanup_json json_t *wrong = NULL;

    given_id = id;
    command = start(&g, body);
    CHECK_STR(json_get_string(command, "id", ""), id);
    CHECK_INT(call(&g, "POST", "/commands", body, &taken), 409);
    CHECK_STR(json_get_string(json_object_get(taken, "error"), "code", ""), "command_exists");
    given_id = "sabcdefghijklmnopqrs";
    CHECK_INT(call(&g, "POST", "/commands", body, &wrong), 400);
    given_id = NULL;
    CHECK_INT(call(&g, "GET", path_of(command, "?wait_ms=60000"), NULL, NULL), 200);
    guest_stop(&g);
}

static void stream_begins_with_start_and_ends_with_end(void)
{
    static const char body[] = "{\"shell\":\"echo out; sleep 0.1; echo err >&2; exit 4\"}";
    struct guest g = guest_ready();
    CLEANUP(channel_stream_freep)
    struct channel_stream *s = ask(&g, "POST", "/commands?stream=1", body, strlen(body));
    CLEANUP(channel_stream_freep) struct channel_stream *again = NULL;
    SEEN seen = SEEN_INIT;
    SEEN rest = SEEN_INIT;

    CHECK_INT(status_of(s), 200);
    CHECK_INT(follow(s, &seen, 0), 0);
    CHECK_STR(seen.order, "SORE");
    CHECK_STR(buf_str(&seen.out), "out\n");
    CHECK_STR(buf_str(&seen.err), "err\n");
    CHECK_INT(json_get_int(seen.end, "exit_code", -1), 4);
    again = ask(&g, "GET", path_of(seen.start, "/output?offset=2"), NULL, 0);
    CHECK_INT(follow(again, &rest, 0), 0);
    CHECK_STR(rest.order, "ORE");
    CHECK_STR(buf_str(&rest.out), "t\n");
    channel_stream_free(TAKE_PTR(s));
    channel_stream_free(TAKE_PTR(again));
    guest_stop(&g);
}

static void client_that_goes_leaves_the_command_unless_it_said_otherwise(void)
{
    static const char body[] = "{\"shell\":\"echo first; read x; echo second\",\"stdin\":true}";
    struct guest g = guest_ready();

    for (int kill = 0; kill <= 1; kill++) {
        CLEANUP(channel_stream_freep) struct channel_stream *s = NULL;
        CLEANUP(channel_stream_freep) struct channel_stream *again = NULL;
        cleanup_json json_t *end = NULL;
        SEEN seen = SEEN_INIT;
        SEEN rest = SEEN_INIT;

        s = ask(&g, "POST", kill ? "/commands?stream=1&kill_on_disconnect=1" : "/commands?stream=1",
                body, strlen(body));
        CHECK_INT(follow(s, &seen, FRAME_STDOUT), 0);
        channel_stream_free(TAKE_PTR(s));
        if (!kill) {
            CHECK_INT(call(&g, "POST", path_of(seen.start, "/stdin"), "x\n", NULL), 200);
        }
        again = ask(&g, "GET", path_of(seen.start, "/output?offset=6&follow=1"), NULL, 0);
        CHECK_INT(follow(again, &rest, 0), 0);
        CHECK_STR(buf_str(&rest.out), kill ? "" : "second\n");
        CHECK_STR(json_get_string(rest.end, "signal", "none"), kill ? "KILL" : "none");
        CHECK_INT(call(&g, "GET", path_of(seen.start, "?wait_ms=60000"), NULL, &end), 200);
        CHECK_INT(json_get_int(end, "exit_code", -1), kill ? 137 : 0);
    }
    guest_stop(&g);
}

static void large_output_passes_a_slow_reader_whole(void)
{
    static const char body[] = "{\"shell\":\"yes abcdefghi | head -c 20000000\"}";
    struct guest g = guest_ready();
    CLEANUP(channel_stream_freep)
    struct channel_stream *s = ask(&g, "POST", "/commands?stream=1", body, strlen(body));
    cleanup_json json_t *other = NULL;
    cleanup_json json_t *end = NULL;
    SEEN seen = SEEN_INIT;

    CHECK_INT(follow(s, &seen, FRAME_START), 0);
    other = start(&g, "{\"argv\":[\"echo\",\"ok\"]}"); /* while nobody reads the flood */
    CHECK_INT(call(&g, "GET", path_of(other, "?wait_ms=60000"), NULL, &end), 200);
    CHECK_INT(json_get_int(end, "exit_code", -1), 0);
    CHECK_INT(follow(s, &seen, 0), 0);
    CHECK_INT(seen.n_gaps, 0);
    CHECK_INT(seen.out.len, 20000000);
    for (size_t i = 0; i < seen.out.len; i++) {
        REQUIRE(seen.out.data[i] == "abcdefghi\n"[i % 10]);
    }
    CHECK_STR(seen.order, "SOE");
    channel_stream_free(TAKE_PTR(s));
    guest_stop(&g);
}

static void large_input_is_taken_whole_or_refused_clearly(void)
{
    cleanup_free char *big = xcalloc(5, 1 << 20);
    struct guest g = guest_ready();
    cleanup_json json_t *sum = start(&g, "{\"argv\":[\"sha256sum\"],\"stdin\":true}");
    cleanup_json json_t *none = start(&g, "{\"shell\":\"exec <&-; sleep 600\",\"stdin\":true}");
    CLEANUP(channel_stream_freep) struct channel_stream *s = NULL;
    SEEN seen = SEEN_INIT;

    s = ask(&g, "POST", path_of(sum, "/stdin?eof=1"), big, 5 << 20);
    CHECK_INT(status_of(s), 200);
    channel_stream_free(s);
    s = ask(&g, "GET", path_of(sum, "/output?follow=1"), NULL, 0);
    CHECK_INT(follow(s, &seen, 0), 0);
    CHECK_STR(buf_str(&seen.out),
              "c036cbb7553a909f8b8877d4461924307f27ecb66cff928eeeafd569c3887e29  -\n");
    channel_stream_free(s);
    s = ask(&g, "POST", path_of(none, "/stdin"), big, 5 << 20);
    CHECK_INT(status_of(s), 409);
    channel_stream_free(TAKE_PTR(s));
    CHECK_INT(call(&g, "DELETE", path_of(none, ""), NULL, NULL), 204);
    guest_stop(&g);
}

static void terminal_is_typed_into_resized_and_hung_up(void)
{
    struct guest g = guest_ready();
    cleanup_json json_t *shell =
        start(&g, "{\"argv\":[\"sh\",\"-c\",\"stty -echo; exec sh\"],\"pty\":{\"rows\":24}}");
    CLEANUP(channel_stream_freep)
    struct channel_stream *s = ask(&g, "GET", path_of(shell, "/output?follow=1&pty=1"), NULL, 0);
    SEEN seen = SEEN_INIT;

    CHECK_INT(call(&g, "POST", path_of(shell, "/resize"), "{\"rows\":50,\"cols\":132}", NULL), 204);
    CHECK_INT(call(&g, "POST", path_of(shell, "/stdin"), "stty size; echo do''ne\n", NULL), 200);
    while (!strstr(buf_str(&seen.out), "done") && follow(s, &seen, FRAME_PTY) == 0 && !seen.end) {
    }
    CHECK(strstr(buf_str(&seen.out), "50 132"));
    CHECK_INT(call(&g, "DELETE", path_of(shell, ""), NULL, NULL), 204);
    CHECK_INT(follow(s, &seen, 0), 0);
    CHECK_STR(json_get_string(seen.end, "signal", "none"), "HUP");
    channel_stream_free(TAKE_PTR(s));
    guest_stop(&g);
}

/* F29: a stream that breaks is an error, never success. */
static void killed_daemon_is_an_error_for_the_client(void)
{
    static const char body[] = "{\"shell\":\"echo up; sleep 3\"}";
    struct guest g = guest_ready();
    CLEANUP(channel_stream_freep)
    struct channel_stream *s = ask(&g, "POST", "/commands?stream=1", body, strlen(body));
    SEEN seen = SEEN_INIT;
    int status = 0;

    CHECK_INT(follow(s, &seen, FRAME_STDOUT), 0);
    kill(g.pid, SIGKILL);
    CHECK(follow(s, &seen, 0) < 0);
    CHECK(!seen.end);
    channel_stream_free(TAKE_PTR(s));
    channel_free(g.ch);
    CHECK_INT(waitpid(g.pid, &status, 0), g.pid);
}

TEST_MAIN(T(mistakes_are_named), T(command_is_started_waited_for_listed_and_deleted),
          T(the_node_may_name_a_command), T(stream_begins_with_start_and_ends_with_end),
          T(client_that_goes_leaves_the_command_unless_it_said_otherwise),
          T(large_output_passes_a_slow_reader_whole),
          T(large_input_is_taken_whole_or_refused_clearly),
          T(terminal_is_typed_into_resized_and_hung_up),
          T(killed_daemon_is_an_error_for_the_client))
