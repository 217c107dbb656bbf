/* SPDX-License-Identifier: Apache-2.0 */
/* The whole daemon on this host, through the real channel. */
#include "base/fs.h"
#include "base/json.h"
#include "base/test.h"
#include "channel/host.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOON deadline_in_ms(30000)

struct guest {
    struct channel *ch; /* owned */
    pid_t pid;
    char root[64];
};

static void guest_start(struct guest *g)
{
    int fds[2];
    char number[16];
    const char *program = getenv("DAEMON_ON_HOST");
    char *argv[] = {(char *)(uintptr_t)program, (char[]){"--fd"}, number,
                    (char[]){"--root"},         g->root,          NULL};

    ASSERT(program); /* the test runner sets it */
    *g = (struct guest){.root = "/tmp/test-daemon-XXXXXX"};
    ASSERT(mkdtemp(g->root));
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    snprintf(number, sizeof(number), "%d", fds[1]);
    g->pid = fork();
    if (g->pid == 0) {
        fcntl(fds[1], F_SETFD, 0);
        execv(program, argv);
        _exit(127);
    }
    ASSERT(g->pid > 0);
    close(fds[1]);
    ASSERT(channel_new(&(struct channel_options){.fd = fds[0]}, &g->ch, NULL) == 0);
}

/* The daemon ends when the channel does, and frees everything: under a sanitizer that is a leak check. */
static void guest_stop(struct guest *g)
{
    int status = -1;

    channel_free(g->ch);
    CHECK_INT(waitpid(g->pid, &status, 0), g->pid);
    CHECK_INT(status, 0);
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
    struct guest g;
    struct answer a;

    guest_start(&g);
    a = ask(&g, "GET", "/health", NULL);
    CHECK_INT(a.status, 200);
    CHECK(json_is_true(json_object_get(a.json, "ok")));
    CHECK(json_is_true(json_object_get(a.json, "ready")));
    CHECK_STR(json_get_string(a.json, "version", ""), SPACE_VERSION);
    CHECK_INT(strlen(json_get_string(a.json, "boot_id", "")), 36);
    json_decref(a.json);
    a = ask(&g, "GET", "/metrics", NULL);
    CHECK_INT(a.status, 200);
    CHECK(json_get_int(json_object_get(a.json, "memory"), "total_bytes", 0) > 0);
    CHECK(json_get_int(json_object_get(a.json, "cpu"), "count", 0) > 0);
    CHECK(json_get_int(json_object_get(a.json, "disk"), "total_bytes", 0) > 0);
    CHECK_INT(json_get_int(json_object_get(a.json, "activity"), "requests", -1),
              0); /* these do not count */
    CHECK_INT(json_get_int(json_object_get(a.json, "activity"), "connections", -1), 0);
    json_decref(a.json);
    check(&g, "GET", "/commands", NULL, 200);
    a = ask(&g, "GET", "/metrics", NULL);
    CHECK_INT(json_get_int(json_object_get(a.json, "activity"), "requests", -1), 1);
    json_decref(a.json);
    guest_stop(&g);
}

static void mistakes_are_answered(void)
{
    struct guest g;
    cleanup_free char *large = xmalloc(400000);

    guest_start(&g);
    check(&g, "GET", "/", NULL, 404);
    check(&g, "GET", "/nothing", NULL, 404);
    check(&g, "DELETE", "/health", NULL, 405);
    check(&g, "GET", "/health/", NULL, 400);
    check(&g, "GET", "/%zz", NULL, 400);
    check(&g, "GET", "/health?x=%00", NULL, 400);
    check(&g, "POST", "/setup", "not json", 400);
    check(&g, "POST", "/setup", "[]", 400);
    check(&g, "POST", "/setup", "{\"a\":1}", 400);
    check(&g, "POST", "/setup", "{\"hostname\":\"x\",\"hostname\":\"y\"}", 400);
    check(&g, "POST", "/freeze", "{}", 501); /* a folder */
    memset(large, ' ', 399999);
    large[399999] = '\0';
    check(&g, "POST", "/setup", large, 413);
    check(&g, "GET", "/health", NULL, 200);
    guest_stop(&g);
}

static void setup_teardown_identity_sync(void)
{
    struct guest g;

    guest_start(&g);
    check(&g, "POST", "/setup", "{\"env\":{\"A\":\"b\"},\"default_user\":\"root\"}", 200);
    check(&g, "POST", "/setup", "", 200);
    check(&g, "POST", "/identity", "{\"hostname\":\"x\",\"env\":{\"B\":\"c\"}}", 204);
    check(&g, "POST", "/identity", "{\"disk\":{}}", 400);
    check(&g, "POST", "/thaw", NULL, 204);
    check(&g, "POST", "/teardown", NULL, 204);
    guest_stop(&g);
}

/* The client goes away with requests in all states; the daemon serves on. */
static void sessions_end_without_trace(void)
{
    struct guest g;
    struct channel_request q = {.method = "POST", .target = "/setup", .has_body = true};
    struct answer a;

    guest_start(&g);
    for (int i = 0; i < 5; i++) {
        struct channel_stream *s[10] = {0};

        for (size_t k = 0; k < ARRAY_SIZE(s); k++) {
            CHECK_INT(channel_request(g.ch, &q, SOON, &s[k], NULL), 0);
            CHECK_INT(channel_stream_write(s[k], "{\"half", 6, SOON, NULL), 0);
        }
        check(&g, "GET", "/health", NULL, 200);
        channel_reset(g.ch);
        for (size_t k = 0; k < ARRAY_SIZE(s); k++) {
            channel_stream_free(s[k]);
        }
    }
    a = ask(&g, "GET", "/metrics", NULL);
    CHECK_INT(json_get_int(json_object_get(a.json, "activity"), "connections", -1), 0);
    json_decref(a.json);
    guest_stop(&g);
}

TEST_MAIN(T(health_and_figures), T(mistakes_are_answered), T(setup_teardown_identity_sync),
          T(sessions_end_without_trace))
