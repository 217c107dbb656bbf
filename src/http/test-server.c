/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "http/route.h"
#include "http/test-support.h"

#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

static sem_t entered;      /* a handler has begun to wait */
static sem_t released;     /* it may go on */
static sem_t noticed_gone; /* it has seen that its client is gone */
static atomic_int n_done;
static atomic_int last_status;

static void on_done(void *ctx, struct http_request *req, const struct http_done *done)
{
    (void)ctx;
    (void)req;
    atomic_store(&last_status, done->status);
    atomic_fetch_add(&n_done, 1);
}

static int hello(struct http_request *req, struct err *e)
{
    return http_reply_bytes(req, 200, "text/plain", "hello", 5, e);
}

static int echo(struct http_request *req, struct err *e)
{
    cleanup_free char *body = NULL;
    size_t len = 0;
    int r = http_body_all(req, 1000, &body, &len, e);

    return r < 0 ? r : http_reply_bytes(req, 200, "application/octet-stream", body, len, e);
}

static int describe(struct http_request *req, struct err *e)
{
    json_t *j = json_pack("{s:s, s:s, s:s?, s:s?}", "method", http_request_method(req), "id",
                          http_request_param(req, "id"), "q", http_query_get(req, "q"), "x",
                          http_request_header(req, "x-thing"));

    return http_reply_json_take(req, 200, j, e);
}

static int rest(struct http_request *req, struct err *e)
{
    const char *text = http_request_param(req, "rest");

    return http_reply_bytes(req, 200, NULL, text, strlen(text), e);
}

static int stream(struct http_request *req, struct err *e)
{
    int r = http_reply_begin(req, 200, "text/plain", -1, e);

    for (int i = 0; r == 0 && i < 3; i++) {
        r = http_write(req, "abc", 3, e);
    }
    return r < 0 ? r : http_end(req, e);
}

static int break_off(struct http_request *req, struct err *e)
{
    int r = http_reply_begin(req, 200, "text/plain", -1, e);

    if (r == 0) {
        r = http_write(req, "half", 4, e);
    }
    return r < 0 ? r : err_set(e, -EIO, NULL, "it broke");
}

static int fail(struct http_request *req, struct err *e)
{
    (void)req;
    return err_field(e, -ENOENT, "thing_not_found", "thing", "there is no \"thing\"");
}

static int say_nothing(struct http_request *req, struct err *e)
{
    (void)req;
    (void)e;
    return 0;
}

static int wait_here(struct http_request *req, struct err *e)
{
    sem_post(&entered);
    sem_wait(&released);
    return hello(req, e);
}

static int wait_for_client(struct http_request *req, struct err *e)
{
    struct pollfd p = http_client_pollfd(req);

    sem_post(&entered);
    while (!http_client_gone(req)) {
        poll(&p, 1, -1);
    }
    sem_post(&noticed_gone);
    return err_set(e, -ECANCELED, "client_gone", "gone");
}

static int parse_json(struct http_request *req, struct err *e)
{
    json_t *j = NULL;
    int r = http_body_json(req, 1000, &j, e);

    return r < 0 ? r : http_reply_json_take(req, 200, j, e);
}

static int parse_large_json(struct http_request *req, struct err *e)
{
    json_t *j = NULL;
    int r = http_body_json(req, 1u << 20, &j, e);

    json_decref(j);
    return r < 0 ? r : http_reply_empty(req, 200, e);
}

static int count(struct http_request *req, struct err *e)
{
    int64_t n = 0;
    char text[32];
    int r = http_query_int(req, "n", (struct http_query_bounds){-5, 10, 7}, &n, e);

    snprintf(text, sizeof(text), "%lld", (long long)n);
    return r < 0 ? r : http_reply_bytes(req, 200, NULL, text, strlen(text), e);
}

/* Reads the body piece by piece and answers with its length. */
static int swallow(struct http_request *req, struct err *e)
{
    char data[10000];
    char text[32];
    uint64_t total = 0;
    ssize_t n;

    http_body_limit(req, UINT64_MAX);
    while ((n = http_body_read(req, data, sizeof(data), e)) > 0) {
        total += (uint64_t)n;
    }
    snprintf(text, sizeof(text), "%llu", (unsigned long long)total);
    return n < 0 ? (int)n : http_reply_bytes(req, 200, NULL, text, strlen(text), e);
}

static const struct http_route routes[] = {
    {"GET", "/hello", hello, 0},
    {"POST", "/echo", echo, 0},
    {"POST", "/json-large", parse_large_json, 0},
    {"POST", "/json", parse_json, 0},
    {"POST", "/swallow", swallow, 0},
    {"GET", "/things/{id}", describe, 0},
    {"PUT", "/things/{id}", describe, 0},
    {"*", "/rest{rest...}", rest, 0},
    {"GET", "/stream", stream, 0},
    {"GET", "/break", break_off, 0},
    {"GET", "/fail", fail, 0},
    {"GET", "/nothing", say_nothing, 0},
    {"GET", "/wait", wait_here, 0},
    {"GET", "/gone", wait_for_client, 0},
    {"GET", "/count", count, 0},
};

static int handle(struct http_request *req, struct err *e)
{
    static const struct http_router router = {.routes = routes, .n_routes = ARRAY_SIZE(routes)};

    return http_router_handle(&router, req, e);
}

static const char *body_of(const char *answer)
{
    const char *end = strstr(answer, "\r\n\r\n");

    return end ? end + 4 : "";
}

#define CLOSE "Host: h\r\nConnection: close\r\n\r\n"

static void requests_are_answered(void)
{
    static const struct {
        const char *name;
        const char *request;
        const char *status;
        const char *body;
    } cases[] = {
        {"plain", "GET /hello HTTP/1.1\r\n" CLOSE, "200", "hello"},
        {"head", "HEAD /hello HTTP/1.1\r\n" CLOSE, "200", ""},
        {"one point oh", "GET /hello HTTP/1.0\r\n\r\n", "200", "hello"},
        {"absolute", "GET http://h/hello HTTP/1.1\r\n" CLOSE, "200", "hello"},
        {"capture", "GET /things/a%2Fb%20c?q=x+y%26 HTTP/1.1\r\nX-Thing:  t \r\n" CLOSE, "200",
         "{\"method\":\"GET\",\"id\":\"a/b c\",\"q\":\"x y&\",\"x\":\"t\"}"},
        {"rest", "PATCH /rest/a%2fb/c?x=1 HTTP/1.1\r\n" CLOSE, "200", "/a%2fb/c"},
        {"empty rest", "GET /rest HTTP/1.1\r\n" CLOSE, "200", ""},
        {"body", "POST /echo HTTP/1.1\r\nContent-Length: 3\r\n" CLOSE "xyz", "200", "xyz"},
        {"chunked body",
         "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" CLOSE
         "2\r\nxy\r\n1\r\nz\r\n0\r\n\r\n",
         "200", "xyz"},
        {"stream", "GET /stream HTTP/1.1\r\n" CLOSE, "200",
         "3\r\nabc\r\n3\r\nabc\r\n3\r\nabc\r\n0\r\n\r\n"},
        {"stream to 1.0", "GET /stream HTTP/1.0\r\n\r\n", "200", "abcabcabc"},
        {"default of a parameter", "GET /count HTTP/1.1\r\n" CLOSE, "200", "7"},
        {"negative parameter", "GET /count?n=-5 HTTP/1.1\r\n" CLOSE, "200", "-5"},
        {"empty json", "POST /json HTTP/1.1\r\nContent-Length: 0\r\n" CLOSE, "200", "{}"},
    };
    TEST_SERVER(t, .handler = handle);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *answer = raw_exchange(&t, cases[i].request);

        if (strncmp(answer, "HTTP/1.1 ", 9) != 0 || strncmp(answer + 9, cases[i].status, 3) != 0 ||
            strcmp(body_of(answer), cases[i].body) != 0) {
            TEST_FAIL("%s: %s", cases[i].name, answer);
        }
    }
}

static void bad_requests_are_refused(void)
{
    static const struct {
        const char *name;
        const char *request;
        const char *status;
        const char *code;
    } cases[] = {
        {"length and chunked",
         "POST /echo HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n" CLOSE "xyz",
         "400", "bad_request"},
        {"two lengths",
         "POST /echo HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n" CLOSE "xyz", "400",
         "bad_request"},
        {"no host", "GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n", "400", "bad_request"},
        {"version", "GET /hello HTTP/2.0\r\n" CLOSE, "505", "bad_request"},
        {"coding", "POST /echo HTTP/1.1\r\nTransfer-Encoding: gzip\r\n" CLOSE, "501",
         "bad_request"},
        {"not http", "\x16\x03\x01 hello", "400", "bad_request"},
        {"bare lf", "GET /hello HTTP/1.1\nHost: h\n\n", "400", "bad_request"},
        {"bad escape in the path", "GET /things/%zz HTTP/1.1\r\n" CLOSE, "400", "bad_request"},
        {"nul in the path", "GET /things/%00 HTTP/1.1\r\n" CLOSE, "400", "bad_request"},
        {"bad escape in the query", "GET /hello?a=% HTTP/1.1\r\n" CLOSE, "400", "bad_request"},
        {"connect", "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n", "501", "bad_request"},
        {"unknown path", "GET /nowhere HTTP/1.1\r\n" CLOSE, "404", "not_found"},
        {"dots", "GET /things/.. HTTP/1.1\r\n" CLOSE, "404", "not_found"},
        {"encoded dots", "GET /things/%2e%2E HTTP/1.1\r\n" CLOSE, "404", "not_found"},
        {"empty segment", "GET //hello HTTP/1.1\r\n" CLOSE, "404", "not_found"},
        {"wrong method", "DELETE /things/a HTTP/1.1\r\n" CLOSE, "405", "method_not_allowed"},
        {"handler's error", "GET /fail HTTP/1.1\r\n" CLOSE, "404", "thing_not_found"},
        {"handler says nothing", "GET /nothing HTTP/1.1\r\n" CLOSE, "500", "internal"},
        {"announced too much", "POST /echo HTTP/1.1\r\nContent-Length: 1001\r\n" CLOSE, "413",
         "body_too_large"},
        {"bad chunk", "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" CLOSE "zz\r\n", "400",
         "malformed_body"},
        {"bad json", "POST /json HTTP/1.1\r\nContent-Length: 2\r\n" CLOSE "{x", "400",
         "invalid_json"},
        {"parameter no number", "GET /count?n=1x HTTP/1.1\r\n" CLOSE, "400", "invalid_parameter"},
        {"parameter too large", "GET /count?n=11 HTTP/1.1\r\n" CLOSE, "400", "invalid_parameter"},
    };
    TEST_SERVER(t, .handler = handle);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *answer = raw_exchange(&t, cases[i].request);
        cleanup_free char *code = xasprintf("\"code\":\"%s\"", cases[i].code);

        if (strncmp(answer, "HTTP/1.1 ", 9) != 0 || strncmp(answer + 9, cases[i].status, 3) != 0 ||
            !strstr(body_of(answer), code)) {
            TEST_FAIL("%s: %s", cases[i].name, answer);
        }
    }
}

static void wrong_method_names_the_right_ones(void)
{
    TEST_SERVER(t, .handler = handle);
    cleanup_free char *answer = raw_exchange(&t, "DELETE /things/a HTTP/1.1\r\n" CLOSE);

    CHECK(strstr(answer, "\r\nAllow: GET, HEAD, PUT\r\n"));
}

static void too_large_heads_are_refused(void)
{
    TEST_SERVER(t, .handler = handle);
    size_t size = 40000;
    cleanup_free char *request = xmalloc(size + 100);
    cleanup_free char *answer = NULL;

    memcpy(request, "GET /", 5);
    memset(request + 5, 'a', size);
    memcpy(request + size, " HTTP/1.1\r\n" CLOSE, sizeof(" HTTP/1.1\r\n" CLOSE));
    answer = raw_exchange(&t, request);
    CHECK(strncmp(answer, "HTTP/1.1 414 ", 13) == 0);
    free(TAKE_PTR(answer));
    memcpy(request, "GET /hello HTTP/1.1\r\nX: ", 24);
    memset(request + 24, 'a', size);
    answer = raw_exchange(&t, request);
    CHECK(strncmp(answer, "HTTP/1.1 431 ", 13) == 0);
}

static void connection_is_kept_and_pipelined(void)
{
    TEST_SERVER(t, .handler = handle);
    cleanup_close int fd = raw_connect(&t);
    cleanup_buf struct buf b = BUF_INIT(100000);

    raw_send(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(raw_read(fd, "hello", &b, NULL));
    buf_reset(&b);
    raw_send(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\noneGET /things/two "
                 "HTTP/1.1\r\nHost: h\r\n\r\n"
                 "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                 "chunked\r\n\r\n5\r\nthree\r\n0\r\n\r\n"
                 "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    CHECK(raw_read(fd, NULL, &b, NULL));
    CHECK(strstr(buf_str(&b), "\r\n\r\noneHTTP/1.1 200"));
    CHECK(strstr(buf_str(&b), "\"id\":\"two\""));
    CHECK(strstr(buf_str(&b), "\r\n\r\nthreeHTTP/1.1 200"));
    CHECK(strstr(buf_str(&b), "Connection: close\r\n"));
    if (b.len < 5 || !str_eq(b.data + b.len - 5, "hello")) {
        TEST_FAIL("the last answer is not complete: %s", buf_str(&b));
    }
}

static void small_unread_body_keeps_the_connection(void)
{
    TEST_SERVER(t, .handler = handle);
    cleanup_close int fd = raw_connect(&t);
    cleanup_buf struct buf b = BUF_INIT(100000);

    raw_send(fd, "GET /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nunread");
    raw_send(fd, "GET /things/next HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(raw_read(fd, "\"id\":\"next\"", &b, NULL));
}

static void large_unread_body_closes_but_the_reply_arrives(void)
{
    TEST_SERVER(t, .handler = handle);
    cleanup_close int fd = raw_connect(&t);
    cleanup_buf struct buf b = BUF_INIT(100000);
    static char block[1 << 20];

    raw_send(fd, "GET /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 5000000\r\n\r\n");
    for (int i = 0; i < 4; i++) {
        CHECK_INT(sock_send_all(fd, block, sizeof(block), deadline_in_ms(TEST_DEADLINE_MS)), 0);
    }
    CHECK(raw_read(fd, "\r\n\r\nhello", &b, NULL));
    CHECK(strstr(buf_str(&b), "Connection: close"));
    CHECK(raw_read(fd, NULL, &b, NULL));
}

static void body_is_asked_for_when_expected(void)
{
    TEST_SERVER(t, .handler = handle);
    cleanup_close int fd = raw_connect(&t);
    cleanup_buf struct buf b = BUF_INIT(100000);

    raw_send(fd,
             "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    CHECK(raw_read(fd, "HTTP/1.1 100 Continue\r\n\r\n", &b, NULL));
    raw_send(fd, "abc");
    CHECK(raw_read(fd, "\r\n\r\nabc", &b, NULL));
    buf_reset(&b);
    raw_send(
        fd,
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\nExpect: 100-continue\r\n\r\n");
    CHECK(raw_read(fd, NULL, &b, NULL));
    CHECK(strncmp(buf_str(&b), "HTTP/1.1 413", 12) == 0);
}

static void broken_reply_is_not_ended(void)
{
    TEST_SERVER(t, .handler = handle, .done = on_done);
    cleanup_free char *answer = raw_exchange(&t, "GET /break HTTP/1.1\r\nHost: h\r\n\r\n");

    CHECK(strstr(answer, "4\r\nhalf\r\n"));
    CHECK(!strstr(answer, "0\r\n\r\n"));
    {
        cleanup_close int fd = raw_connect(&t);
        cleanup_buf struct buf b = BUF_INIT(100000);
        int code = 0;

        raw_send(fd, "GET /break HTTP/1.0\r\n\r\n"); /* no chunks: only a reset can tell */
        CHECK(!raw_read(fd, NULL, &b, &code));
        CHECK_INT(code, -ECONNRESET);
    }
}

static void slow_head_is_cut_off(void)
{
    TEST_SERVER(t, .handler = handle, .head_timeout_ms = 50);
    cleanup_close int fd = raw_connect(&t);
    cleanup_buf struct buf b = BUF_INIT(100000);

    raw_send(fd, "GET /hello HT");
    CHECK(raw_read(fd, NULL, &b, NULL));
    CHECK(strncmp(buf_str(&b), "HTTP/1.1 408 ", 13) == 0);
}

static void idle_connection_is_closed(void)
{
    TEST_SERVER(t, .handler = handle, .idle_timeout_ms = 50);
    cleanup_close int fd = raw_connect(&t);
    cleanup_buf struct buf b = BUF_INIT(100000);

    raw_send(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(raw_read(fd, NULL, &b, NULL));
    CHECK(strstr(buf_str(&b), "hello"));
}

static void slow_body_is_cut_off(void)
{
    TEST_SERVER(t, .handler = handle, .io_timeout_ms = 50);
    cleanup_free char *answer =
        raw_exchange(&t, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");

    CHECK(strncmp(answer, "HTTP/1.1 408 ", 13) == 0);
}

/* Small bytes, large values: what would take two hundred times the memory is not parsed. */
static void json_of_many_values_is_refused(void)
{
    static const char head[] = "POST /json-large HTTP/1.1\r\nConnection: close\r\nHost: h\r\n";
    const size_t n = JSON_UNTRUSTED_VALUES_MAX;

    for (size_t more = 0; more < 2; more++) {
        TEST_SERVER(t, .handler = handle);
        cleanup_buf struct buf body = BUF_INIT(8u * JSON_UNTRUSTED_VALUES_MAX);
        cleanup_buf struct buf all = BUF_INIT(9u * JSON_UNTRUSTED_VALUES_MAX);
        cleanup_free char *answer = NULL;

        CHECK_INT(buf_add_str(&body, "{\"a,[{\\\",\":["), 0); /* no value in a string counts */
        for (size_t i = 0; i < n - 3 + more; i++) {
            CHECK_INT(buf_add_str(&body, "1,"), 0);
        }
        CHECK_INT(buf_add_str(&body, "1]}"), 0);
        CHECK_INT(buf_printf(&all, "%sContent-Length: %zu\r\n\r\n", head, body.len), 0);
        CHECK_INT(buf_add(&all, body.data, body.len), 0);
        answer = raw_exchange(&t, buf_str(&all));
        CHECK(strncmp(answer, more ? "HTTP/1.1 413 " : "HTTP/1.1 200 ", 13) == 0);
    }
}

/* Half a head holds a place only until somebody else needs it. */
static void unfinished_heads_make_room(void)
{
    TEST_SERVER(t, .handler = handle, .max_connections = 2, .head_timeout_ms = TEST_DEADLINE_MS);
    cleanup_close int first = raw_connect(&t);
    cleanup_close int second = raw_connect(&t);
    cleanup_free char *answer = NULL;

    raw_send(first, "GET /hello HT");
    raw_send(second, "GET /hello HT");
    answer = raw_exchange(&t, "GET /hello HTTP/1.1\r\n" CLOSE);
    CHECK(strstr(answer, "hello"));
}

static void idle_connection_makes_room(void)
{
    TEST_SERVER(t, .handler = handle, .max_connections = 2);
    cleanup_close int first = raw_connect(&t);
    cleanup_close int second = raw_connect(&t);
    cleanup_buf struct buf b = BUF_INIT(100000);
    struct pollfd p[2] = {{.fd = first, .events = POLLIN}, {.fd = second, .events = POLLIN}};
    bool served = false;

    raw_send(first, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(raw_read(first, "hello", &b, NULL));
    raw_send(second, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    buf_reset(&b);
    CHECK(raw_read(second, "hello", &b, NULL));
    while (!served) { /* refused while the server is still putting the others to rest */
        cleanup_free char *answer = raw_exchange(&t, "GET /hello HTTP/1.1\r\n" CLOSE);

        served = strstr(answer, "hello");
        CHECK(served || strstr(answer, "503"));
    }
    CHECK_INT(poll(p, 2, (int)TEST_DEADLINE_MS), 1);
    buf_reset(&b);
    CHECK(raw_read(p[0].revents ? first : second, NULL, &b, NULL));
    CHECK_INT(b.len, 0);
}

static void full_server_says_so(void)
{
    TEST_SERVER(t, .handler = handle, .max_threads = 1, .max_queue = 1);
    cleanup_close int running = raw_connect(&t);
    cleanup_close int queued = raw_connect(&t);
    cleanup_free char *answer = NULL;
    cleanup_buf struct buf b = BUF_INIT(100000);

    raw_send(running, "GET /wait HTTP/1.1\r\n" CLOSE);
    sem_wait(&entered);
    raw_send(queued, "GET /wait HTTP/1.1\r\n" CLOSE);
    do { /* until the queued one has been seen by the server, this one is queued before it */
        free(TAKE_PTR(answer));
        answer = NULL;
        {
            cleanup_close int fd = raw_connect(&t);
            struct pollfd p = {.fd = fd, .events = POLLIN};

            buf_reset(&b);
            raw_send(fd, "GET /hello HTTP/1.1\r\n" CLOSE);
            if (poll(&p, 1, 2000) > 0) {
                CHECK(raw_read(fd, NULL, &b, NULL));
                answer = xstrdup(buf_str(&b));
            }
        }
    } while (!answer);
    CHECK(strncmp(answer, "HTTP/1.1 503 ", 13) == 0);
    sem_post(&released);
    sem_post(&released);
    buf_reset(&b);
    CHECK(raw_read(running, "\r\n\r\nhello", &b, NULL));
    buf_reset(&b);
    CHECK(raw_read(queued, "\r\n\r\nhello", &b, NULL));
    sem_wait(&entered);
}

static void client_gone_is_noticed(void)
{
    TEST_SERVER(t, .handler = handle);
    int fd = raw_connect(&t);

    raw_send(fd, "GET /gone HTTP/1.1\r\nHost: h\r\n\r\n");
    sem_wait(&entered);
    close(fd);
    sem_wait(&noticed_gone);
}

static void stop_finishes_what_runs(void)
{
    TEST_SERVER(t, .handler = handle);
    cleanup_close int busy = raw_connect(&t);
    cleanup_close int idle = raw_connect(&t);
    cleanup_buf struct buf b = BUF_INIT(100000);

    raw_send(idle, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(raw_read(idle, "hello", &b, NULL));
    raw_send(busy, "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    sem_wait(&entered);
    http_server_stop(t.server);
    buf_reset(&b);
    CHECK(raw_read(idle, NULL, &b, NULL)); /* closed at once */
    CHECK_INT(b.len, 0);
    sem_post(&released);
    CHECK(raw_read(busy, NULL, &b, NULL));
    CHECK(strstr(buf_str(&b), "\r\n\r\nhello"));
    CHECK(strstr(buf_str(&b), "Connection: close"));
}

static void stop_cuts_what_does_not_end(void)
{
    TEST_SERVER(t, .handler = handle, .drain_timeout_ms = 20);
    cleanup_close int fd = raw_connect(&t);

    raw_send(fd, "GET /gone HTTP/1.1\r\nHost: h\r\n\r\n");
    sem_wait(&entered);
    http_server_stop(t.server);
    sem_wait(&noticed_gone);
}

static bool nobody(const struct ucred *peer, void *ctx)
{
    (void)ctx;
    return peer->uid != getuid();
}

static bool myself(const struct ucred *peer, void *ctx)
{
    (void)ctx;
    return peer->uid == getuid() && peer->pid == getpid();
}

static void check_unix(const char *path, http_peer_allowed_fn *allowed, const char *want)
{
    struct test_server t = {.server =
                                http_server_new(&(struct http_server_opts){.handler = handle})};
    cleanup_buf struct buf b = BUF_INIT(100000);
    struct err e = {0};
    struct stat st;
    int fd;

    REQUIRE(http_server_listen_unix(t.server, path, 0600, allowed, &e) == 0);
    CHECK(stat(path, &st) == 0 && S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0600);
    REQUIRE(pthread_create(&t.thread, NULL, test_server_main, &t) == 0);
    t.running = true;
    fd = sock_connect_unix(path, SOCK_STREAM, &e);
    REQUIRE(fd >= 0);
    raw_send(fd, "GET /hello HTTP/1.1\r\n" CLOSE);
    raw_read(fd, NULL, &b, NULL);
    CHECK(strncmp(buf_str(&b), want, strlen(want)) == 0);
    close(fd);
    test_server_stop(&t);
    CHECK(stat(path, &st) < 0 && errno == ENOENT);
}

static void unix_socket_checks_its_peers(void)
{
    char dir[] = "/tmp/test-http-XXXXXX";
    cleanup_free char *path = NULL;

    REQUIRE(mkdtemp(dir));
    path = xasprintf("%s/sock", dir);
    check_unix(path, myself, "HTTP/1.1 200 ");
    check_unix(path, nobody, "HTTP/1.1 403 ");
    CHECK_INT(rmdir(dir), 0);
}

static void taken_port_is_reported(void)
{
    TEST_SERVER(t, .handler = handle);
    struct http_server *other = http_server_new(&(struct http_server_opts){.handler = handle});
    char address[32];
    struct err e = {0};

    snprintf(address, sizeof(address), "127.0.0.1:%u", http_server_port(t.server));
    CHECK_INT(http_server_listen_tcp(other, address, &e), -EADDRINUSE);
    CHECK(strstr(e.msg, address));
    CHECK_INT(http_server_listen_tcp(other, "127.0.0.1:http", &e), -EINVAL);
    http_server_free(other);
}

struct load {
    const struct test_server *server;
    unsigned n;
    int failures;
};

static void *load_main(void *arg)
{
    struct load *l = arg;
    cleanup_close int fd = raw_connect(l->server);
    cleanup_buf struct buf b = BUF_INIT(100000);

    for (unsigned i = 0; i < l->n; i++) {
        char request[200];
        char want[32];

        snprintf(want, sizeof(want), "\r\n\r\nbody-%u.", i);
        snprintf(request, sizeof(request),
                 "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
                 strlen(want) - 4, want + 4);
        buf_reset(&b);
        if (sock_send_all(fd, request, strlen(request), deadline_in_ms(TEST_DEADLINE_MS)) < 0 ||
            !raw_read(fd, want, &b, NULL)) {
            l->failures++;
            break;
        }
    }
    return NULL;
}

/* Without descriptors nothing can be accepted; with some again the waiting client is served. */
static void accepting_goes_on_after_descriptors_run_out(void)
{
    TEST_SERVER(t, .handler = handle);
    cleanup_buf struct buf b = BUF_INIT(100000);
    struct rlimit before;
    struct rlimit tight;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    REQUIRE(fd >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    close(fd);
    tight = (struct rlimit){(rlim_t)fd + 1, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    fd = raw_connect(&t); /* takes the last one */
    raw_send(fd, "GET /hello HTTP/1.1\r\n" CLOSE);
    CHECK_INT(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 30),
              0); /* nobody can serve it */
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(raw_read(fd, "\r\n\r\nhello", &b, NULL));
    close(fd);
}

static void many_clients_at_once(void)
{
    enum {
        N = 16
    };
    TEST_SERVER(t, .handler = handle, .max_threads = 4, .done = on_done);
    pthread_t threads[N];
    struct load loads[N];

    atomic_store(&n_done, 0);
    for (int i = 0; i < N; i++) {
        loads[i] = (struct load){.server = &t, .n = 100};
        REQUIRE(pthread_create(&threads[i], NULL, load_main, &loads[i]) == 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(loads[i].failures, 0);
    }
    test_server_stop(&t);
    CHECK_INT(atomic_load(&n_done), N * 100);
    CHECK_INT(atomic_load(&last_status), 200);
}

static void large_bodies_arrive_whole(void)
{
    enum {
        BLOCKS = 64
    };
    TEST_SERVER(t, .handler = handle);
    cleanup_close int fd = raw_connect(&t);
    cleanup_buf struct buf b = BUF_INIT(100000);
    static char block[100000];

    raw_send(fd, "POST /swallow HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < BLOCKS; i++) {
        raw_send(fd, "186A0\r\n");
        CHECK_INT(sock_send_all(fd, block, sizeof(block), deadline_in_ms(TEST_DEADLINE_MS)), 0);
        raw_send(fd, "\r\n");
    }
    raw_send(fd, "0\r\nTrailer: ignored\r\n\r\n");
    CHECK(raw_read(fd, "\r\n\r\n6400000", &b, NULL));
}

static void set_up(void)
{
    sem_init(&entered, 0, 0);
    sem_init(&released, 0, 0);
    sem_init(&noticed_gone, 0, 0);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        T(requests_are_answered),
        T(bad_requests_are_refused),
        T(wrong_method_names_the_right_ones),
        T(too_large_heads_are_refused),
        T(connection_is_kept_and_pipelined),
        T(small_unread_body_keeps_the_connection),
        T(large_unread_body_closes_but_the_reply_arrives),
        T(body_is_asked_for_when_expected),
        T(broken_reply_is_not_ended),
        T(slow_head_is_cut_off),
        T(idle_connection_is_closed),
        T(slow_body_is_cut_off),
        T(idle_connection_makes_room),
        T(unfinished_heads_make_room),
        T(json_of_many_values_is_refused),
        T(full_server_says_so),
        T(client_gone_is_noticed),
        T(stop_finishes_what_runs),
        T(stop_cuts_what_does_not_end),
        T(unix_socket_checks_its_peers),
        T(taken_port_is_reported),
        T(accepting_goes_on_after_descriptors_run_out),
        T(many_clients_at_once),
        T(large_bodies_arrive_whole),
    };

    set_up();
    return test_run_all(cases, ARRAY_SIZE(cases), argc, argv);
}
