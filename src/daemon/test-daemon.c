/* SPDX-License-Identifier: Apache-2.0 */
/* The whole daemon on this host, through the real channel. */
#include "base/fs.h"
#include "base/json.h"
#include "base/test.h"
#include "daemon/guest-harness.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

struct rooted {
    struct guest guest;
    char root[64]; /* a folder of its own */
};

static void rooted_start(struct rooted *g)
{
    *g = (struct rooted){.root = "/tmp/test-daemon-XXXXXX"};
    ASSERT(mkdtemp(g->root));
    g->guest = guest_start_in(g->root);
}

static void rooted_stop(struct rooted *g)
{
    guest_stop(&g->guest);
    CHECK_INT(fs_remove_tree(AT_FDCWD, g->root), 0);
}

struct answer {
    int status;
    json_t *json; /* owned; NULL: none */
};

static struct answer ask(struct guest *g, const char *method, const char *target, const char *body)
{
    struct channel_request q = {.method = method, .target = target, .has_body = body != NULL};
    CLEANUP(channel_stream_freep) struct channel_stream *s = NULL;
    const struct channel_head *head = NULL;
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    struct answer a = {0};
    struct err e = {0};
    char piece[4096];
    ssize_t n;

    if (channel_request(g->ch, &q, SOON, &s, &e) < 0 ||
        (body && channel_stream_write(s, body, strlen(body), SOON, &e) < 0 && e.code != -EPIPE)) {
        TEST_FAIL("%s %s: %s", method, target, e.msg);
        return a;
    }
    if (body) {
        channel_stream_finish(s);
    }
    if (channel_stream_read_head(s, SOON, &head, &e) < 0) {
        TEST_FAIL("%s %s: %s", method, target, e.msg);
        return a;
    }
    a.status = head->status;
    while ((n = channel_stream_read(s, piece, sizeof(piece), SOON, &e)) > 0) {
        CHECK_INT(buf_add(&text, piece, (size_t)n), 0);
    }
    CHECK_INT(n, 0);
    if (text.len > 0 && json_parse_any(text.data, text.len, &a.json, &e) < 0) {
        TEST_FAIL("%s %s: %s", method, target, e.msg);
    }
    return a;
}

static void check(struct guest *g, const char *method, const char *target, const char *body,
                  int status)
{
    struct answer a = ask(g, method, target, body);

    if (a.status != status) {
        cleanup_free char *text = a.json ? json_text(a.json) : NULL;

        TEST_FAIL("%s %s is %d, not %d: %s", method, target, a.status, status, text ? text : "");
    }
    if (status >= 400) {
        CHECK(json_is_string(json_object_get(json_object_get(a.json, "error"), "code")));
        CHECK(json_is_string(json_object_get(json_object_get(a.json, "error"), "message")));
    }
    json_decref(a.json);
}

static void health_and_figures(void)
{
    struct rooted g;
    struct answer a;

    rooted_start(&g);
    a = ask(&g.guest, "GET", "/health", NULL);
    CHECK_INT(a.status, 200);
    CHECK(json_is_true(json_object_get(a.json, "ok")));
    CHECK(json_is_true(json_object_get(a.json, "ready")));
    CHECK_STR(json_get_string(a.json, "version", ""), SPACE_VERSION);
    CHECK_INT(strlen(json_get_string(a.json, "boot_id", "")), 36);
    json_decref(a.json);
    a = ask(&g.guest, "GET", "/metrics", NULL);
    CHECK_INT(a.status, 200);
    CHECK(json_get_int(json_object_get(a.json, "memory"), "total_bytes", 0) > 0);
    CHECK(json_get_int(json_object_get(a.json, "cpu"), "count", 0) > 0);
    CHECK(json_get_int(json_object_get(a.json, "disk"), "total_bytes", 0) > 0);
    CHECK_INT(json_get_int(json_object_get(a.json, "activity"), "requests", -1),
              0); /* these do not count */
    CHECK_INT(json_get_int(json_object_get(a.json, "activity"), "connections", -1), 0);
    json_decref(a.json);
    check(&g.guest, "GET", "/commands", NULL, 200);
    a = ask(&g.guest, "GET", "/metrics", NULL);
    CHECK_INT(json_get_int(json_object_get(a.json, "activity"), "requests", -1), 1);
    json_decref(a.json);
    rooted_stop(&g);
}

static void mistakes_are_answered(void)
{
    struct rooted g;
    cleanup_free char *large = xmalloc(400000);

    rooted_start(&g);
    check(&g.guest, "GET", "/", NULL, 404);
    check(&g.guest, "GET", "/nothing", NULL, 404);
    check(&g.guest, "DELETE", "/health", NULL, 405);
    check(&g.guest, "GET", "/health/", NULL, 400);
    check(&g.guest, "GET", "/%zz", NULL, 400);
    check(&g.guest, "GET", "/health?x=%00", NULL, 400);
    check(&g.guest, "POST", "/setup", "not json", 400);
    check(&g.guest, "POST", "/setup", "[]", 400);
    check(&g.guest, "POST", "/setup", "{\"a\":1}", 400);
    check(&g.guest, "POST", "/setup", "{\"hostname\":\"x\",\"hostname\":\"y\"}", 400);
    check(&g.guest, "POST", "/freeze", "{}", 501); /* a folder */
    memset(large, ' ', 399999);
    large[399999] = '\0';
    check(&g.guest, "POST", "/setup", large, 413);
    check(&g.guest, "GET", "/health", NULL, 200);
    rooted_stop(&g);
}

static void setup_teardown_identity_sync(void)
{
    struct rooted g;

    rooted_start(&g);
    check(&g.guest, "POST", "/setup", "{\"env\":{\"A\":\"b\"},\"default_user\":\"root\"}", 200);
    check(&g.guest, "POST", "/setup", "", 200);
    check(&g.guest, "POST", "/identity", "{\"hostname\":\"x\",\"env\":{\"B\":\"c\"}}", 204);
    check(&g.guest, "POST", "/identity", "{\"disk\":{}}", 400);
    check(&g.guest, "POST", "/thaw", NULL, 204);
    check(&g.guest, "POST", "/teardown", NULL, 204);
    rooted_stop(&g);
}

/* The client goes away with requests in all states; the daemon serves on. */
static void sessions_end_without_trace(void)
{
    struct rooted g;
    struct channel_request q = {.method = "POST", .target = "/setup", .has_body = true};
    struct answer a;

    rooted_start(&g);
    for (int i = 0; i < 5; i++) {
        struct channel_stream *s[10] = {0};

        for (size_t k = 0; k < ARRAY_SIZE(s); k++) {
            CHECK_INT(channel_request(g.guest.ch, &q, SOON, &s[k], NULL), 0);
            CHECK_INT(channel_stream_write(s[k], "{\"half", 6, SOON, NULL), 0);
        }
        check(&g.guest, "GET", "/health", NULL, 200);
        channel_reset(g.guest.ch);
        for (size_t k = 0; k < ARRAY_SIZE(s); k++) {
            channel_stream_free(s[k]);
        }
    }
    a = ask(&g.guest, "GET", "/metrics", NULL);
    CHECK_INT(json_get_int(json_object_get(a.json, "activity"), "connections", -1), 0);
    json_decref(a.json);
    rooted_stop(&g);
}

TEST_MAIN(T(health_and_figures), T(mistakes_are_answered), T(setup_teardown_identity_sync),
          T(sessions_end_without_trace))
