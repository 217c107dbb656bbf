/* SPDX-License-Identifier: Apache-2.0 */
#include "http/client.h"
#include "http/route.h"
#include "http/test-support.h"

#include <semaphore.h>
#include <stdatomic.h>

static atomic_int n_accepted;
static sem_t entered;
static sem_t released;

static int hello(struct http_request *req, struct err *e)
{
    http_reply_header(req, "X-Peer", http_request_peer_name(req));
    return http_reply_bytes(req, 200, "text/plain", "hello", 5, e);
}

static int headers(struct http_request *req, struct err *e)
{
    json_t *j = json_object();
    const struct http_headers *h = http_request_headers(req);

    for (size_t i = 0; i < h->n; i++) {
        json_object_set_new(j, h->v[i].name, json_string(h->v[i].value));
    }
    return http_reply_json_take(req, 200, j, e);
}

static int echo_json(struct http_request *req, struct err *e)
{
    json_t *j = NULL;
    int r = http_body_json(req, 1 << 20, &j, e);

    return r < 0 ? r : http_reply_json_take(req, 201, j, e);
}

static int fail(struct http_request *req, struct err *e)
{
    (void)req;
    return err_field(e, -EEXIST, "taken", "name", "this name is taken");
}

static int break_off(struct http_request *req, struct err *e)
{
    int r = http_reply_begin(req, 200, "text/plain", 10, e);

    return r < 0 ? r : http_write(req, "half", 4, e);
}

static int wait_here(struct http_request *req, struct err *e)
{
    sem_post(&entered);
    sem_wait(&released);
    return hello(req, e);
}

static int refuse(struct http_request *req, struct err *e)
{
    (void)req;
    return err_set(e, -ENOSPC, "no_space", "the disk is full");
}

static int empty(struct http_request *req, struct err *e)
{
    return http_reply_empty(req, 204, e);
}

static const struct http_route routes[] = {
    {"GET", "/hello", hello, 0},     {"GET", "/headers", headers, 0},
    {"POST", "/echo", test_echo, 0}, {"POST", "/json", echo_json, 0},
    {"GET", "/fail", fail, 0},       {"GET", "/break", break_off, 0},
    {"GET", "/wait", wait_here, 0},  {"PUT", "/refuse", refuse, 0},
    {"DELETE", "/empty", empty, 0},
};

static int handle(struct http_request *req, struct err *e)
{
    static const struct http_router router = {.routes = routes, .n_routes = ARRAY_SIZE(routes)};

    return http_router_handle(&router, req, e);
}

static struct http_client *connect_to(const char *url)
{
    struct http_client *c = NULL;
    struct err e = {0};
    int r = http_client_new(url, NULL, &c, &e);

    ASSERT(r == 0);
    return c;
}

/* One GET; the answer's body, which the caller frees, or NULL. */
static char *get(struct http_client *c, const char *target, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct http_call_opts o = {.target = target, .deadline_ns = deadline_in_ms(TEST_DEADLINE_MS)};
    char *body = NULL;
    size_t len;

    if (http_call_new(c, &o, &call, e) < 0 || http_call_all(call, 100000, &body, &len, e) < 0) {
        return NULL;
    }
    return body;
}

static void answers_are_read(void)
{
    TEST_SERVER(t, .handler = handle);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(t.url);
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct err e = {0};
    char data[64];

    REQUIRE(http_call_new(c, &(struct http_call_opts){.target = "/hello"}, &call, &e) == 0);
    CHECK_INT(http_call_head(call, &e), 0);
    CHECK_INT(http_call_status(call), 200);
    CHECK_INT(http_call_length(call), 5);
    CHECK_STR(http_call_header(call, "content-type"), "text/plain");
    CHECK_INT(http_call_read(call, data, 3, &e), 3);
    CHECK_MEM(data, "hel", 3);
    CHECK_INT(http_call_read(call, data, sizeof(data), &e), 2);
    CHECK_INT(http_call_read(call, data, sizeof(data), &e), 0);
    CHECK_INT(http_call_read(call, data, sizeof(data), &e), 0);
}

static void head_has_a_length_and_no_body(void)
{
    TEST_SERVER(t, .handler = handle);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(t.url);
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct err e = {0};
    char data[64];

    REQUIRE(http_call_new(c, &(struct http_call_opts){.method = "HEAD", .target = "/hello"}, &call,
                          &e) == 0);
    CHECK_INT(http_call_read(call, data, sizeof(data), &e), 0);
    CHECK_INT(http_call_length(call), 5);
}

static void connection_is_reused(void)
{
    TEST_SERVER(t, .handler = handle);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(t.url);
    char first[64] = "";
    struct err e = {0};

    for (int i = 0; i < 3; i++) {
        CLEANUP(http_call_freep) struct http_call *call = NULL;
        char data[64];

        REQUIRE(http_call_new(c, &(struct http_call_opts){.target = "/hello"}, &call, &e) == 0);
        CHECK_INT(http_call_read(call, data, sizeof(data), &e), 5);
        if (i == 0) {
            snprintf(first, sizeof(first), "%s", http_call_header(call, "X-Peer"));
        } else {
            CHECK_STR(http_call_header(call, "X-Peer"), first);
        }
    }
}

static void restarted_server_is_reached(void)
{
    CLEANUP(http_client_freep) struct http_client *c = NULL;
    char dir[] = "/tmp/test-http-XXXXXX";
    cleanup_free char *path = NULL;
    cleanup_free char *url = NULL;

    REQUIRE(mkdtemp(dir));
    path = xasprintf("%s/sock", dir);
    url = xasprintf("unix:%s", path);
    c = connect_to(url);
    for (int i = 0; i < 3; i++) {
        struct test_server t = {.server =
                                    http_server_new(&(struct http_server_opts){.handler = handle})};
        cleanup_free char *body = NULL;
        struct err e = {0};

        REQUIRE(http_server_listen_unix(t.server, path, 0600, NULL, &e) == 0);
        REQUIRE(pthread_create(&t.thread, NULL, test_server_main, &t) == 0);
        t.running = true;
        body = get(c, "/hello", &e);
        CHECK_STR(body, "hello");
        test_server_stop(&t);
    }
    CHECK_INT(rmdir(dir), 0);
}

/*
 * A server that answers its first request, waits for the second and closes on it without an answer.
 */
static void *closing_server(void *arg)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
    int listen_fd = *(int *)arg;

    for (int i = 0; i < 2; i++) {
        cleanup_close int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        cleanup_buf struct buf b = BUF_INIT(100000);

        ASSERT(fd >= 0);
        atomic_fetch_add(&n_accepted, 1);
        CHECK(raw_read(fd, "\r\n\r\n", &b, NULL));
        raw_send(fd, answer);
        raw_send(fd, i == 0 ? "1" : "2");
        if (i == 0) {
            buf_reset(&b);
            CHECK(raw_read(fd, "\r\n\r\n", &b, NULL));
        }
    }
    return NULL;
}

static int listen_loopback(char url[static 64])
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r = bind(fd, (struct sockaddr *)&a, sizeof(a));
    ASSERT(r == 0);
    r = listen(fd, 8);
    ASSERT(r == 0);
    r = getsockname(fd, (struct sockaddr *)&a, &len);
    ASSERT(r == 0);
    snprintf(url, 64, "http://127.0.0.1:%u", ntohs(a.sin_port));
    return fd;
}

static void call_on_a_dying_connection_is_repeated(void)
{
    char url[64];
    cleanup_close int fd = listen_loopback(url);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(url);
    pthread_t thread;

    atomic_store(&n_accepted, 0);
    REQUIRE(pthread_create(&thread, NULL, closing_server, &fd) == 0);
    for (int i = 0; i < 2; i++) {
        struct err e = {0};
        cleanup_free char *body = get(c, "/", &e);

        CHECK_STR(body, i == 0 ? "1" : "2");
    }
    pthread_join(thread, NULL);
    CHECK_INT(atomic_load(&n_accepted), 2);
}

static void post_on_a_dying_connection_is_not_repeated(void)
{
    char url[64];
    cleanup_close int fd = listen_loopback(url);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(url);
    struct http_json_opts o = {.method = "POST", .target = "/"};
    cleanup_free char *body = NULL;
    pthread_t thread;
    struct err e = {0};

    atomic_store(&n_accepted, 0);
    REQUIRE(pthread_create(&thread, NULL, closing_server, &fd) == 0);
    body = get(c, "/", &e);
    CHECK_STR(body, "1");
    CHECK_INT(http_client_json(c, &o, NULL, &e), -ECONNRESET);
    CHECK_INT(atomic_load(&n_accepted), 1);
    free(TAKE_PTR(body));
    body = get(c, "/", &e); /* lets the server end */
    CHECK_STR(body, "2");
    pthread_join(thread, NULL);
}

static void fields_are_sent(void)
{
    TEST_SERVER(t, .handler = handle);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(t.url);
    CLEANUP(http_headers_done) struct http_headers more = HTTP_HEADERS_INIT;
    struct http_json_opts o = {.target = "/headers", .headers = &more};
    json_t *j = NULL;
    struct err e = {0};

    http_client_header(c, "Authorization", "Bearer x");
    http_client_header(c, "X-Both", "client");
    http_headers_add(&more, "X-Both", "call");
    http_headers_add(&more, "X-Split", "a\r\nb");
    REQUIRE(http_client_json(c, &o, &j, &e) == 0);
    CHECK_STR(json_string_value(json_object_get(j, "Authorization")), "Bearer x");
    CHECK_STR(json_string_value(json_object_get(j, "X-Both")), "call");
    CHECK_STR(json_string_value(json_object_get(j, "X-Split")), "a??b");
    CHECK_STR(json_string_value(json_object_get(j, "Host")), t.url + strlen("http://"));
    json_decref(j);
}

static void json_goes_there_and_back(void)
{
    TEST_SERVER(t, .handler = handle);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(t.url);
    json_t *body = json_pack("{s:[i,i], s:s}", "list", 1, 2, "text", "h\xc3\xa4");
    struct http_json_opts o = {.method = "POST", .target = "/json", .body = body};
    int status = 0;
    json_t *j = NULL;
    struct err e = {0};

    o.ret_status = &status;
    CHECK_INT(http_client_json(c, &o, &j, &e), 0);
    CHECK_INT(status, 201);
    CHECK(json_equal(body, j));
    json_decref(j);
    json_decref(body);
    j = NULL;
    CHECK_INT(http_client_json(c, &(struct http_json_opts){.method = "DELETE", .target = "/empty"},
                               &j, &e),
              0);
    CHECK(!j);
}

static void errors_come_back_as_errors(void)
{
    TEST_SERVER(t, .handler = handle);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(t.url);
    struct err e = {0};
    int status = 0;

    CHECK_INT(http_client_json(
                  c, &(struct http_json_opts){.target = "/fail", .ret_status = &status}, NULL, &e),
              e.code);
    CHECK_INT(status, 409);
    CHECK_INT(err_http_status(&e), 409);
    CHECK_STR(e.reason, "taken");
    CHECK_STR(e.field, "name");
    CHECK_STR(e.msg, "this name is taken");
}

static void body_and_answer_stream_at_once(void)
{
    TEST_SERVER(t, .handler = handle);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(t.url);
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct http_call_opts o = {.method = "POST",
                               .target = "/echo",
                               .body_length = HTTP_BODY_STREAM,
                               .deadline_ns = deadline_in_ms(TEST_DEADLINE_MS)};
    struct err e = {0};
    char data[64];

    REQUIRE(http_call_new(c, &o, &call, &e) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(http_call_write(call, "ping", 4, &e), 0);
        CHECK_INT(http_call_read(call, data, sizeof(data), &e), 4);
        CHECK_MEM(data, "ping", 4);
    }
    CHECK_INT(http_call_end(call, &e), 0);
    CHECK_INT(http_call_read(call, data, sizeof(data), &e), 0);
}

static void early_refusal_is_seen(void)
{
    TEST_SERVER(t, .handler = handle);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(t.url);
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct http_call_opts o = {.method = "PUT", .target = "/refuse", .body_length = 100000000};
    static char block[1000000];
    struct err e = {0};
    int r = 0;

    REQUIRE(http_call_new(c, &o, &call, &e) == 0);
    for (int i = 0; r == 0 && i < 100; i++) {
        r = http_call_write(call, block, sizeof(block), &e);
    }
    CHECK_INT(r, -EPIPE);
    CHECK_INT(http_call_check(call, &e), -ENOSPC);
    CHECK_STR(e.reason, "no_space");
}

static void cut_answer_is_an_error(void)
{
    TEST_SERVER(t, .handler = handle);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(t.url);
    struct err e = {0};
    char *body = get(c, "/break", &e);

    CHECK(!body);
    CHECK_INT(e.code, -EBADMSG);
    CHECK_STR(e.reason, "answer_cut");
}

static void deadline_and_watch_end_a_call(void)
{
    TEST_SERVER(t, .handler = handle);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(t.url);
    int fds[2];
    struct err e = {0};
    struct pollfd watch;

    REQUIRE(pipe(fds) == 0);
    watch = (struct pollfd){.fd = fds[0], .events = POLLIN};
    {
        CLEANUP(http_call_freep) struct http_call *call = NULL;
        struct http_call_opts o = {
            .target = "/wait", .deadline_ns = deadline_in_ms(20), .watch = &watch};

        REQUIRE(http_call_new(c, &o, &call, &e) == 0);
        CHECK_INT(http_call_head(call, &e), -ETIMEDOUT);
        CHECK(write(fds[1], "x", 1) == 1);
        http_call_deadline(call, 0);
        CHECK_INT(http_call_head(call, &e), -ECANCELED);
    }
    close(fds[0]);
    close(fds[1]);
    sem_post(&released);
}

static void nobody_listening_is_said(void)
{
    char url[64];
    int fd = listen_loopback(url);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(url);
    CLEANUP(http_client_freep) struct http_client *u = connect_to("unix:/nonexistent/sock");
    struct err e = {0};

    close(fd);
    CHECK(!get(c, "/", &e));
    CHECK_INT(e.code, -ECONNREFUSED);
    CHECK(!get(u, "/", &e));
    CHECK_INT(e.code, -ECONNREFUSED); /* never -ENOENT: that would be an answer */
    CHECK_STR(e.reason, "unavailable");
    CHECK(strstr(e.msg, "/nonexistent/sock"));
}

static void bad_addresses_are_refused(void)
{
    struct http_client *c = NULL;
    struct err e = {0};

    CHECK_INT(http_client_new("ftp://h/", NULL, &c, &e), -EINVAL);
    CHECK_STR(e.reason, "invalid_url");
}

static void *caller_main(void *arg)
{
    struct http_client *c = arg;

    for (int i = 0; i < 100; i++) {
        struct err e = {0};
        cleanup_free char *body = get(c, "/hello", &e);

        if (!body || !str_eq(body, "hello")) {
            return c;
        }
    }
    return NULL;
}

static void one_client_serves_many_threads(void)
{
    enum {
        N = 8
    };
    TEST_SERVER(t, .handler = handle);
    CLEANUP(http_client_freep) struct http_client *c = connect_to(t.url);
    pthread_t threads[N];

    for (int i = 0; i < N; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, caller_main, c) == 0);
    }
    for (int i = 0; i < N; i++) {
        void *failed = NULL;

        pthread_join(threads[i], &failed);
        CHECK(!failed);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        T(answers_are_read),
        T(head_has_a_length_and_no_body),
        T(connection_is_reused),
        T(restarted_server_is_reached),
        T(call_on_a_dying_connection_is_repeated),
        T(post_on_a_dying_connection_is_not_repeated),
        T(fields_are_sent),
        T(json_goes_there_and_back),
        T(errors_come_back_as_errors),
        T(body_and_answer_stream_at_once),
        T(early_refusal_is_seen),
        T(cut_answer_is_an_error),
        T(deadline_and_watch_end_a_call),
        T(nobody_listening_is_said),
        T(bad_addresses_are_refused),
        T(one_client_serves_many_threads),
    };

    sem_init(&entered, 0, 0);
    sem_init(&released, 0, 0);
    return test_run_all(cases, ARRAY_SIZE(cases), argc, argv);
}
