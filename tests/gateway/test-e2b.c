/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The E2B surface before the fake node: what is kept of a request, what is refused, whose is what; how the daemon's answers
 * become E2B's; and docs/e2b.md (the first argument) against the routes.
 */
#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "gateway/e2b/e2b.h"
#include "gateway/e2b/rpc.h"
#include "gateway/tokens.h"
#include "wire/connect.h"
#include "wire/frames.h"

#define BASE "{\"templateID\":\"base\"}"

static const char *docs_path;

static void make(struct world *w, const char *body, char ret[static ID_SIZE])
{
    cleanup_answer struct answer a = alice(w, "POST", "/v2/sandboxes", body);

    if (a.status != 201) {
        printf("# %d %s\n", a.status, a.text ? a.text : "");
    }
    ASSERT(a.status == 201);
    snprintf(ret, ID_SIZE, "%s", json_get_string(a.json, "sandboxID", ""));
}

static struct answer on(struct world *w, const char *id, const char *method, const char *rest,
                        const char *body)
{
    cleanup_free char *target = xasprintf("/sandboxes/%s%s", id, rest);

    return alice(w, method, target, body);
}

static int status_of(struct world *w, const char *id, const char *method, const char *rest,
                     const char *body)
{
    cleanup_answer struct answer a = on(w, id, method, rest, body);

    if (a.status >= 400) {
        CHECK_INT(json_get_int(a.json, "code", 0), a.status);
        CHECK(json_get_string(a.json, "message", "")[0]);
    }
    return a.status;
}

/* --- the control API --- */

static void a_sandbox_from_create_to_kill(void)
{
    WORLD(w);
    cleanup_answer struct answer made =
        alice(&w, "POST", "/v2/sandboxes",
              "{\"templateID\":\"base\",\"metadata\":{\"a\":\"b c\"},\"autoPause\":true,"
              "\"autoResume\":{\"enabled\":true},\"allow_internet_access\":false,\"unknown\":1}");
    const char *id = json_get_string(made.json, "sandboxID", "");
    char token[TOKEN_SIZE];

    CHECK_INT(made.status, 201);
    CHECK_STR(json_get_string(made.json, "alias", ""), "base");
    CHECK_STR(json_get_string(made.json, "templateID", ""), "debian");
    tokens_make(w.tokens, TOKEN_ENVD, id, token);
    CHECK_STR(json_get_string(made.json, "envdAccessToken", ""), token);
    {
        cleanup_answer struct answer a = on(&w, id, "GET", "", NULL);

        CHECK_STR(json_get_string(a.json, "state", ""), "running");
        CHECK_STR(json_get_string(json_object_get(a.json, "metadata"), "a", ""), "b c");
        CHECK_STR(json_get_string(json_object_get(a.json, "lifecycle"), "onTimeout", ""), "pause");
        CHECK(json_get_bool(json_object_get(a.json, "lifecycle"), "autoResume", false));
        CHECK(json_is_false(json_object_get(a.json, "allowInternetAccess")));
    }
    CHECK_INT(status_of(&w, id, "POST", "/pause", "{}"), 204);
    CHECK_INT(status_of(&w, id, "POST", "/pause", NULL), 409);
    CHECK_INT(status_of(&w, id, "POST", "/timeout", "{\"timeout\":5}"), 404);
    CHECK_INT(status_of(&w, id, "POST", "/connect", "{\"timeout\":60}"), 201);
    CHECK_INT(status_of(&w, id, "POST", "/connect", "{\"timeout\":60}"), 200);
    CHECK_INT(status_of(&w, id, "POST", "/connect", "{}"), 400);
    CHECK_INT(status_of(&w, id, "DELETE", "", NULL), 204);
    CHECK_INT(status_of(&w, id, "DELETE", "", NULL), 404);
    CHECK_INT(world_rows(&w), 0);
}

static void what_cannot_be_kept_is_refused(void)
{
    static const char *const bad[] = {
        "{}",
        "{\"templateID\":1}",
        "{\"templateID\":\"base\",\"timeout\":0}",
        "{\"templateID\":\"base\",\"timeout\":\"x\"}",
        "{\"templateID\":\"base\",\"envVars\":{\"a\":1}}",
        "{\"templateID\":\"base\",\"autoPauseMemory\":false}",
        ("{\"templateID\":\"base\",\"autoPause\":true,\"autoPauseMemory\":false,"
         "\"autoResume\":{\"enabled\":true}}"),
        "{\"templateID\":\"base\",\"volumeMounts\":[{\"name\":\"v\",\"path\":\"/v\"}]}",
        "{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"example.test\"]}}",
        "{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"::1\"]}}",
        "{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"1.1.1.1/99\"]}}",
        "{\"templateID\":\"base\",\"network\":{\"allowOut\":[5]}}",
        "{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"a "
        "b\"],\"denyOut\":[\"0.0.0.0/0\"]}}",
        "{\"templateID\":\"base\",\"network\":{\"denyOut\":[\"example.test\"]}}",
        "{\"templateID\":\"base\",\"network\":{\"egressProxy\":{\"address\":\"a:1\"}}}",
        "{\"templateID\":\"base\",\"network\":{\"maskRequestHost\":\"a b\"}}",
        "{\"templateID\":\"base\",\"iam\":{\"tokens\":{\"t\":{}}}}",
        "{\"templateID\":\"base\",\"allow_internet_access\":1}",
    };
    WORLD(w);

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_answer struct answer a = alice(&w, "POST", "/v2/sandboxes", bad[i]);

        if (a.status != 400 || json_get_int(a.json, "code", 0) != 400) {
            TEST_FAIL("%s is %d", bad[i], a.status);
        }
    }
    {
        cleanup_answer struct answer a =
            alice(&w, "POST", "/v2/sandboxes", "{\"templateID\":\"nothing\"}");

        CHECK_INT(a.status, 404);
    }
    CHECK_INT(fake_node_made(w.node), 0);
}

static void others_see_nothing(void)
{
    static const struct {
        const char *method;
        const char *rest;
    } asks[] = {{"GET", ""},          {"DELETE", ""},         {"POST", "/pause"},
                {"POST", "/connect"}, {"POST", "/resume"},    {"POST", "/timeout"},
                {"POST", "/fork"},    {"POST", "/snapshots"}, {"GET", "/metrics"},
                {"GET", "/logs"},     {"PUT", "/network"},    {"POST", "/refreshes"}};
    WORLD(w);
    char id[ID_SIZE];

    make(&w, BASE, id);
    for (size_t i = 0; i < ARRAY_SIZE(asks); i++) {
        cleanup_free char *mine = xasprintf("/sandboxes/%s%s", id, asks[i].rest);
        cleanup_free char *nobodys = xasprintf("/sandboxes/s0123456789abcdefghj%s", asks[i].rest);
        struct ask ask = {.method = asks[i].method, .target = mine, .key = w.keys[BOB]};
        cleanup_answer struct answer theirs = world_ask(&w, &ask);

        ask.target = nobodys;
        {
            cleanup_answer struct answer none = world_ask(&w, &ask);

            CHECK_INT(theirs.status, 404);
            CHECK_INT(none.status, 404);
            CHECK_INT(theirs.len, none.len);
        }
    }
    CHECK(fake_node_has(w.node, id));
}

/* Killed while it has a snapshot, it is not shown any more and goes with the snapshot. */
static void snapshots_outlive_their_sandbox(void)
{
    WORLD(w);
    char id[ID_SIZE];

    make(&w, BASE, id);
    CHECK_INT(status_of(&w, id, "POST", "/snapshots", "{\"name\":\"a/b:default\"}"), 201);
    CHECK_INT(status_of(&w, id, "POST", "/snapshots", "{\"name\":\"a b\"}"), 400);
    {
        cleanup_answer struct answer list = alice(&w, "GET", "/snapshots?name=b", NULL);

        CHECK_STR(list.text, "[{\"snapshotID\":\"b:default\",\"names\":[\"b\"]}]");
    }
    CHECK_INT(status_of(&w, id, "DELETE", "", NULL), 204);
    CHECK_INT(status_of(&w, id, "GET", "", NULL), 404);
    CHECK_INT(world_rows(&w), 1);
    {
        cleanup_answer struct answer list = alice(&w, "GET", "/v2/sandboxes", NULL);
        cleanup_answer struct answer gone = alice(&w, "DELETE", "/templates/b%3Adefault", NULL);
        cleanup_answer struct answer again = alice(&w, "DELETE", "/templates/b%3Adefault", NULL);

        CHECK_STR(list.text, "[]");
        CHECK_INT(gone.status, 204);
        CHECK_INT(again.status, 404);
    }
    CHECK_INT(world_rows(&w), 0);
}

/* While it is being stopped its last snapshot is deleted, and it goes with that: both are answered as done. */
static void kill_while_its_snapshot_is_deleted(void)
{
    WORLD(w);
    struct running kill;
    cleanup_free char *target = NULL;
    char id[ID_SIZE];

    make(&w, BASE, id);
    CHECK_INT(status_of(&w, id, "POST", "/snapshots", "{\"name\":\"b\"}"), 201);
    target = xasprintf("/sandboxes/%s", id);
    fake_node_hold(w.node, FAKE_STOP);
    ask_start(&kill, &w, &(struct ask){.method = "DELETE", .target = target, .key = w.keys[ALICE]});
    fake_node_await_held(w.node, FAKE_STOP, 1);
    {
        cleanup_answer struct answer gone = alice(&w, "DELETE", "/templates/b%3Adefault", NULL);

        CHECK_INT(gone.status, 204);
    }
    fake_node_release(w.node, FAKE_STOP);
    ask_join(&kill);
    CHECK_INT(kill.answer.status, 204);
    answer_done(&kill.answer);
    CHECK_INT(world_rows(&w), 0);
    CHECK(!fake_node_has(w.node, id));
}

/* A stop that a deletion overtakes is a conflict, not a client that has gone. */
static void stop_that_a_deletion_overtakes(void)
{
    WORLD(w);
    struct running stop;
    cleanup_free char *target = NULL;
    cleanup_free char *stop_target = NULL;
    char id[ID_SIZE];

    make(&w, BASE, id);
    target = xasprintf("/sandboxes/%s", id);
    stop_target = xasprintf("/v1/sandboxes/%s/stop", id);
    fake_node_hold(w.node, FAKE_STOP);
    ask_start(&stop, &w,
              &(struct ask){.method = "POST", .target = stop_target, .key = w.keys[ALICE]});
    fake_node_await_held(w.node, FAKE_STOP, 1);
    {
        cleanup_answer struct answer gone = alice(&w, "DELETE", target, NULL);

        CHECK_INT(gone.status, 204);
    }
    fake_node_release(w.node, FAKE_STOP);
    ask_join(&stop);
    CHECK_INT(stop.answer.status, 409);
    CHECK_STR(answer_code(&stop.answer), "sandbox_deleted");
    answer_done(&stop.answer);
}

static void at_its_end_it_is_paused(void)
{
    WORLD(w);
    char id[ID_SIZE];

    make(&w, "{\"templateID\":\"base\",\"autoPause\":true,\"timeout\":60}", id);
    world_advance_ms(&w, 61000);
    CHECK_INT(control_expire(w.control, NULL), 0);
    {
        cleanup_answer struct answer a = on(&w, id, "GET", "", NULL);

        CHECK_STR(json_get_string(a.json, "state", ""), "paused");
    }
    CHECK_INT(status_of(&w, id, "POST", "/connect", "{\"timeout\":30}"), 201);
    CHECK_INT(control_expire(w.control, NULL), 0);
    {
        cleanup_answer struct answer a = on(&w, id, "GET", "", NULL);

        CHECK_STR(json_get_string(a.json, "state", ""), "running");
    }
}

static void templates_are_public_or_not(void)
{
    static const struct {
        const char *template;
        const char *body;
        int status;
    } cases[] = {
        {"debian", "{\"public\":true}", 200},
        {"debian", "{\"public\":false}", 403},
        {"debian", "{}", 200},
        {"debian", "{\"public\":\"x\"}", 400},
        {"mine", "{\"public\":false}", 200},
        {"mine", "{\"public\":true}", 403},
        {"nothing", "{\"public\":true}", 404},
    };
    WORLD(w);
    cleanup_answer struct answer begun = alice(&w, "POST", "/v3/templates", "{\"name\":\"mine\"}");

    CHECK_INT(begun.status, 202);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *target = xasprintf("/v2/templates/%s", cases[i].template);
        cleanup_answer struct answer a = alice(&w, "PATCH", target, cases[i].body);
        json_t *names = json_object_get(a.json, "names");

        if (a.status != cases[i].status || (json_array_size(names) > 0) != (a.status == 200)) {
            TEST_FAIL("%s %s is %d %s", target, cases[i].body, a.status, a.text ? a.text : "");
        }
    }
}

static json_int_t percent_of(const struct answer *a, size_t i)
{
    return (json_int_t)json_real_value(json_object_get(json_array_get(a->json, i), "cpuUsedPct"));
}

static void metrics_are_of_the_window(void)
{
    static const char now[] = "{\"cpu\":{\"count\":2,\"user_ms\":850,\"idle_ms\":2150},"
                              "\"memory\":{\"total_bytes\":-5},\"disk\":{\"free_bytes\":9e99}}";
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *seen = NULL;

    make(&w, BASE, id);
    fake_node_guest_answer(w.node, 200, "application/json", now, strlen(now));
    {
        cleanup_answer struct answer a = on(&w, id, "GET", "/metrics", NULL);
        json_t *first = json_array_get(a.json, 0);

        CHECK_INT(a.status, 200);
        CHECK_INT(json_array_size(a.json), 2);
        CHECK_INT(json_get_int(first, "timestampUnix", 0), 16);
        CHECK_INT(json_get_int(first, "memUsed", 0), 600);
        CHECK_INT(json_get_int(first, "diskUsed", 0), 30);
        CHECK_INT(percent_of(&a, 0), 25); /* 250 of 1000 ms since the sample before */
        CHECK_INT(percent_of(&a, 1), 50);
        CHECK_INT(json_get_int(json_array_get(a.json, 1), "memUsed", -1), 0);
    }
    {
        cleanup_answer struct answer a = on(&w, id, "GET", "/metrics?start=10&end=20", NULL);

        seen = fake_node_guest_seen(w.node);
        CHECK(strstr(seen, "/usage?from_ms=10000&to_ms=20999"));
        CHECK_INT(json_array_size(a.json), 1);
    }
    CHECK_INT(status_of(&w, id, "GET", "/metrics?start=20&end=10", NULL), 400);
    CHECK_INT(status_of(&w, id, "GET", "/metrics?start=x", NULL), 400);
    CHECK_INT(status_of(&w, id, "GET", "/metrics?end=9223372036854775807", NULL), 400);
    CHECK_INT(status_of(&w, id, "POST", "/pause", "{}"), 204);
    {
        cleanup_answer struct answer a = on(&w, id, "GET", "/metrics", NULL);

        CHECK_INT(json_array_size(a.json), 1); /* what was; nothing is now */
    }
}

/* --- the daemon's API --- */

struct inside_answer {
    int status;
    char *body; /* owned */
    size_t len;
};
static void inside_answer_done(struct inside_answer *a)
{
    free(a->body);
}
#define cleanup_inside CLEANUP(inside_answer_done)

/* A request to port 49983 of a sandbox; token NULL: the right one. */
static struct inside_answer inside(struct world *w, const char *id, const char *method,
                                   const char *target, const char *type, const void *body,
                                   size_t len, const char *token)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    CLEANUP(http_headers_done) struct http_headers headers = HTTP_HEADERS_INIT;
    struct http_call_opts opts = {.method = method,
                                  .target = target,
                                  .headers = &headers,
                                  .body_length = (int64_t)len,
                                  .content_type = type,
                                  .deadline_ns = deadline_in_ms(TEST_MS)};
    struct inside_answer ret = {0};
    char mine[TOKEN_SIZE];

    tokens_make(w->tokens, TOKEN_ENVD, id, mine);
    http_headers_add(&headers, "E2b-Sandbox-Id", id);
    http_headers_add(&headers, "E2b-Sandbox-Port", "49983");
    http_headers_add(&headers, "X-Access-Token", token ? token : mine);
    ASSERT(http_call_new(w->http, &opts, &call, NULL) == 0);
    ASSERT(len == 0 ||
           (http_call_write(call, body, len, NULL) == 0 && http_call_end(call, NULL) == 0));
    ASSERT(http_call_head(call, NULL) == 0);
    ret.status = http_call_status(call);
    ASSERT(http_call_all(call, 1 << 20, &ret.body, &ret.len, NULL) == 0);
    return ret;
}

static struct inside_answer call(struct world *w, const char *id, const char *method,
                                 const char *message)
{
    return inside(w, id, "POST", method, "application/json", message, strlen(message), NULL);
}

static void the_token_decides(void)
{
    WORLD(w);
    char id[ID_SIZE];

    make(&w, BASE, id);
    {
        cleanup_inside struct inside_answer health =
            inside(&w, id, "GET", "/health", NULL, NULL, 0, "wrong");
        cleanup_inside struct inside_answer envs =
            inside(&w, id, "GET", "/envs", NULL, NULL, 0, NULL);
        cleanup_inside struct inside_answer wrong =
            inside(&w, id, "GET", "/envs", NULL, NULL, 0, "wrong");
        cleanup_inside struct inside_answer hidden =
            inside(&w, id, "POST", "/init", NULL, NULL, 0, NULL);
        cleanup_inside struct inside_answer gone =
            inside(&w, "s0123456789abcdefghj", "GET", "/health", NULL, NULL, 0, NULL);

        CHECK_INT(health.status, 204);
        CHECK_INT(envs.status, 200);
        CHECK(strstr(envs.body, id) != NULL);
        CHECK_INT(wrong.status, 401);
        CHECK_INT(hidden.status, 404);
        CHECK_INT(gone.status, 502);
        CHECK_STR(gone.body,
                  "{\"sandboxId\":\"s0123456789abcdefghj\",\"message\":\"The sandbox was "
                  "not found\",\"code\":502}");
    }
}

static void add_frame(struct buf *b, enum frame_type type, const char *payload)
{
    ASSERT(frame_add(b, type, payload, strlen(payload)) == 0);
}

static void frames_become_envelopes(void)
{
    static const char start[] =
        "{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"x\"]},\"stdin\":false}";
    WORLD(w);
    cleanup_buf struct buf frames = BUF_INIT(4096);
    cleanup_buf struct buf request = BUF_INIT(4096);
    cleanup_buf struct buf want = BUF_INIT(4096);
    cleanup_free char *seen = NULL;
    char id[ID_SIZE];

    make(&w, BASE, id);
    add_frame(&frames, FRAME_START, "{\"id\":\"c0123456789abcdefghj\",\"pid\":77}");
    add_frame(&frames, FRAME_STDOUT, "hi\n");
    add_frame(&frames, FRAME_KEEPALIVE, "");
    add_frame(&frames, FRAME_END, "{\"exit_code\":137,\"signal\":\"KILL\"}");
    fake_node_guest_answer(w.node, 200, FRAMES_CONTENT_TYPE, frames.data, frames.len);
    ASSERT(connect_add(&request, 0, start, strlen(start)) == 0);
    {
        static const char *const messages[] = {"{\"event\":{\"start\":{\"pid\":77}}}",
                                               "{\"event\":{\"data\":{\"stdout\":\"aGkK\"}}}",
                                               "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":"
                                               "\"signal: killed\",\"error\":\"signal: "
                                               "killed\"}}}"};
        cleanup_inside struct inside_answer a =
            inside(&w, id, "POST", "/process.Process/Start", "application/connect+json",
                   request.data, request.len, NULL);

        for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
            ASSERT(connect_add(&want, 0, messages[i], strlen(messages[i])) == 0);
        }
        ASSERT(connect_add(&want, CONNECT_END_STREAM, "{}", 2) == 0);
        CHECK_INT(a.status, 200);
        CHECK_INT(a.len, want.len);
        CHECK(a.len == want.len && memcmp(a.body, want.data, want.len) == 0);
    }
    seen = fake_node_guest_seen(w.node);
    CHECK(strstr(seen, "\"argv\":[\"sh\",\"-c\",\"x\"]") != NULL);
    CHECK(strstr(seen, "\"E2B_SANDBOX_ID\"") != NULL);
    CHECK(strstr(seen, "envd_") == NULL); /* the token stays out of the sandbox */
}

static void entries_become_theirs(void)
{
    static const char entry[] = "{\"name\":\"l\",\"path\":\"/home/user/"
                                "l\",\"type\":\"symlink\",\"size\":3,\"mode\":\"0777\","
                                "\"owner\":\"user\",\"group\":\"user\",\"mtime_ms\":0,\"target\":"
                                "\"x\",\"resolved\":{\"path\":"
                                "\"/x\",\"type\":\"dir\",\"mode\":\"1755\"}}";
    static const char refusal[] = "{\"error\":{\"code\":\"not_empty\",\"message\":\"m\"}}";
    WORLD(w);
    char id[ID_SIZE];

    make(&w, BASE, id);
    fake_node_guest_answer(w.node, 200, "application/json", entry, strlen(entry));
    {
        cleanup_inside struct inside_answer a =
            call(&w, id, "/filesystem.Filesystem/Stat", "{\"path\":\"l\"}");

        CHECK_INT(a.status, 200);
        CHECK_STR(
            a.body,
            "{\"entry\":{\"name\":\"l\",\"path\":\"/home/user/l\",\"size\":\"3\",\"mode\":493,"
            "\"permissions\":\"Lrwxrwxrwx\",\"owner\":\"user\",\"group\":\"user\","
            "\"modifiedTime\":\"1970-01-01T00:00:00.000Z\",\"type\":\"FILE_TYPE_DIRECTORY\","
            "\"symlinkTarget\":\"/x\"}}");
    }
    fake_node_guest_answer(w.node, 409, "application/json", refusal, strlen(refusal));
    {
        cleanup_inside struct inside_answer a =
            call(&w, id, "/filesystem.Filesystem/Remove", "{\"path\":\"l\"}");

        CHECK_INT(a.status, 400);
        CHECK_STR(a.body, "{\"code\":\"failed_precondition\",\"message\":\"m\"}");
    }
}

/* Whatever stands in a request or an answer, the gateway lives on and says what is wrong. */
static void hostile_texts_are_told_of(void)
{
    WORLD(w);
    cleanup_free char *long_path = xcalloc(100001, 1);
    cleanup_free char *message = NULL;
    cleanup_free char *bad_cursor = NULL;
    char id[ID_SIZE];

    memset(long_path, 'p', 100000);
    message = xasprintf("{\"path\":\"%s\"}", long_path);
    bad_cursor = xasprintf("{\"entries\":[],\"next_cursor\":\"%s\"}", long_path);
    make(&w, BASE, id);
    {
        cleanup_inside struct inside_answer a =
            call(&w, id, "/filesystem.Filesystem/Stat", message);

        CHECK_INT(a.status, 400);
    }
    fake_node_guest_answer(w.node, 200, "application/json", bad_cursor, strlen(bad_cursor));
    {
        cleanup_inside struct inside_answer a =
            call(&w, id, "/filesystem.Filesystem/ListDir", "{\"path\":\"/\"}");

        CHECK_INT(a.status, 500);
    }
    fake_node_guest_answer(w.node, 404, "application/json",
                           "{\"error\":{\"code\":\"not_found\",\"message\":\"m\"}}",
                           strlen("{\"error\":{\"code\":\"not_found\",\"message\":\"m\"}}"));
    {
        cleanup_inside struct inside_answer bytes =
            inside(&w, id, "GET", "/files?path=%FF%FE", NULL, NULL, 0, NULL);
        cleanup_inside struct inside_answer user =
            inside(&w, id, "GET", "/files?path=a&username=%FF", NULL, NULL, 0, NULL);
        cleanup_inside struct inside_answer tag =
            call(&w, id, "/process.Process/SendSignal",
                 "{\"process\":{\"tag\":\"\xc3\xbc\xc3\xbc\"},\"signal\":9}");
        cleanup_answer struct answer made =
            alice(&w, "POST", "/v2/sandboxes", "{\"templateID\":\"\xf0\x9f\x98\x80\"}");

        CHECK_INT(bytes.status, 404);
        CHECK(strstr(bytes.body, "path '?") != NULL);
        CHECK_INT(user.status, 401);
        CHECK(tag.status >= 400);
        CHECK_INT(made.status, 404);
    }
}

static void a_paused_one_is_gone_unless_it_may_wake(void)
{
    WORLD(w);
    char sleeper[ID_SIZE];
    char paused[ID_SIZE];

    make(&w, BASE, paused);
    make(&w, "{\"templateID\":\"base\",\"autoPause\":true,\"autoResume\":{\"enabled\":true}}",
         sleeper);
    CHECK_INT(status_of(&w, paused, "POST", "/pause", NULL), 204);
    CHECK_INT(status_of(&w, sleeper, "POST", "/pause", NULL), 204);
    {
        cleanup_inside struct inside_answer no =
            inside(&w, paused, "GET", "/envs", NULL, NULL, 0, NULL);
        cleanup_inside struct inside_answer wrong =
            inside(&w, sleeper, "GET", "/envs", NULL, NULL, 0, "wrong");
        cleanup_inside struct inside_answer asleep =
            inside(&w, sleeper, "GET", "/health", NULL, NULL, 0, NULL);

        CHECK_INT(no.status, 502);
        CHECK_INT(wrong.status, 401);
        CHECK_INT(asleep.status, 502);
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_RESUME), 0);
    {
        cleanup_inside struct inside_answer woken =
            inside(&w, sleeper, "GET", "/envs", NULL, NULL, 0, NULL);

        CHECK_INT(woken.status, 200);
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_RESUME), 1);
}

/* --- the docs --- */

static char *docs(void)
{
    struct buf text = BUF_INIT(1 << 20);

    ASSERT(docs_path);
    ASSERT(fs_read_file(AT_FDCWD, docs_path, &text) == 0);
    return buf_take(&text);
}

/* "| `METHOD /path` |" stands in the docs. */
static void check_documented(const char *text, const char *method, const char *path)
{
    cleanup_free char *row = xasprintf("| `%s %s` |", method, path);

    if (!strstr(text, row)) {
        TEST_FAIL("docs/e2b.md has no row %s", row);
    }
}

static bool is_served(const char *method, const char *path)
{
    for (size_t i = 0; i < e2b_router.n_routes; i++) {
        if (str_eq(e2b_router.routes[i].method, method) &&
            str_eq(e2b_router.routes[i].pattern, path)) {
            return true;
        }
    }
    for (size_t i = 0; rpc_path(i); i++) {
        if (str_eq(rpc_path(i), path)) {
            return true;
        }
    }
    for (size_t i = 0; e2b_inside_path(i); i++) {
        if (str_eq(e2b_inside_path(i), path)) {
            return true;
        }
    }
    return false;
}

static void docs_and_routes_agree(void)
{
    cleanup_free char *text = docs();
    int n = 0;

    for (size_t i = 0; i < e2b_router.n_routes; i++) {
        check_documented(text, e2b_router.routes[i].method, e2b_router.routes[i].pattern);
    }
    for (size_t i = 0; rpc_path(i); i++) {
        check_documented(text, "POST", rpc_path(i));
    }
    for (const char *row = strstr(text, "\n| `"); row; row = strstr(row + 1, "\n| `")) {
        char method[8];
        char path[100];

        if (sscanf(row, "\n| `%7[A-Z] %99[^`]`", method, path) == 2 && path[0] == '/') {
            n++;
            if (!is_served(method, path)) {
                TEST_FAIL("%s %s is in docs/e2b.md and not served", method, path);
            }
        }
    }
    CHECK(n > 40);
}

static const struct test_case cases[] = {
    T(a_sandbox_from_create_to_kill),
    T(what_cannot_be_kept_is_refused),
    T(others_see_nothing),
    T(snapshots_outlive_their_sandbox),
    T(kill_while_its_snapshot_is_deleted),
    T(stop_that_a_deletion_overtakes),
    T(at_its_end_it_is_paused),
    T(templates_are_public_or_not),
    T(metrics_are_of_the_window),
    T(the_token_decides),
    T(frames_become_envelopes),
    T(entries_become_theirs),
    T(hostile_texts_are_told_of),
    T(a_paused_one_is_gone_unless_it_may_wake),
    T(docs_and_routes_agree),
};

int main(int argc, char **argv)
{
    docs_path = argc > 1 ? argv[1] : NULL;
    return test_run_all(cases, ARRAY_SIZE(cases), argc - 1, argv + 1); /* the first is ours */
}
