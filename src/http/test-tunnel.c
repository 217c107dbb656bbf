/* SPDX-License-Identifier: Apache-2.0 */
/* Raw bytes over an exchange, HTTP and other protocols over these. The far servers are handlers of ours. */
#include "http/tunnel.h"

#include "http/proxy.h"
#include "http/route.h"
#include "http/test-support.h"

#include <fcntl.h>
#include <string.h>

#define BULK (6u * 1024 * 1024)

static int begin(struct http_request *req, struct err *e)
{
    int r;

    http_body_limit(req, UINT64_MAX);
    r = http_reply_begin(req, 200, "application/octet-stream", -1, e);
    return r == 0 ? http_flush(req, e) : r;
}

/* Says everything again, until the client has ended. */
static int echo(struct http_request *req, struct err *e)
{
    char data[20000];
    int r = begin(req, e);

    while (r == 0) {
        ssize_t n = http_body_read(req, data, sizeof(data), e);

        if (n <= 0) {
            return n < 0 ? (int)n : http_end(req, e);
        }
        r = http_write(req, data, (size_t)n, e);
    }
    return r;
}

/* Breaks off after the first bytes. */
static int cut(struct http_request *req, struct err *e)
{
    char data[100];
    int r = begin(req, e);
    ssize_t n = r == 0 ? http_body_read(req, data, sizeof(data), e) : r;

    if (n > 0) {
        r = http_write(req, data, (size_t)n, e);
    }
    return r < 0 ? r : -EIO;
}

/* Ends although the client goes on. */
static int farewell(struct http_request *req, struct err *e)
{
    int r = begin(req, e);

    return r == 0 ? http_write(req, "farewell", 8, e) : r;
}

static int refuse(struct http_request *req, struct err *e)
{
    (void)req;
    return err_set(e, -ECONNREFUSED, "port_closed", "nothing listens there");
}

static bool read_head(struct http_request *req, struct buf *head)
{
    while (!strstr(buf_str(head), "\r\n\r\n")) {
        void *room = NULL;
        ssize_t n;

        if (buf_reserve(head, 1000, &room) < 0) {
            return false;
        }
        n = http_body_read(req, room, 1000, NULL);
        if (n <= 0) {
            return false;
        }
        buf_commit(head, (size_t)n);
    }
    return true;
}

/* A small HTTP server at the end of the tunnel: another protocol (echo) when asked for it. */
static int inner(struct http_request *req, struct err *e)
{
    static const char switching[] =
        "HTTP/1.1 101 Switching\r\nUpgrade: shout\r\nConnection: Upgrade\r\n\r\nhi!";
    cleanup_buf struct buf head = BUF_INIT(20000);
    cleanup_free char *answer = NULL;
    const char *rest;
    char data[5000];
    ssize_t n = 1;
    int r = begin(req, e);

    if (r < 0 || !read_head(req, &head)) {
        return -EIO;
    }
    if (!strstr(buf_str(&head), "Upgrade: shout") || strstr(buf_str(&head), "GET /no ")) {
        answer = xasprintf("HTTP/1.1 %s\r\nContent-Length: %zu\r\nX-Inner: 1\r\n\r\n%s",
                           strstr(buf_str(&head), "GET /no ") ? "403 Forbidden" : "200 OK",
                           head.len, buf_str(&head));
        return http_write(req, answer, strlen(answer), e);
    }
    r = http_write(req, switching, strlen(switching), e);
    rest = strstr(buf_str(&head), "\r\n\r\n") + 4;
    if (r == 0 && *rest) {
        r = http_write(req, rest, strlen(rest), e);
    }
    while (r == 0 && n > 0) {
        n = http_body_read(req, data, sizeof(data), e);
        r = n > 0 ? http_write(req, data, (size_t)n, e) : (int)n;
    }
    return r;
}

static const struct http_route far_routes[] = {
    {"POST", "/echo", echo, 0},         {"POST", "/cut", cut, 0},
    {"POST", "/farewell", farewell, 0}, {"POST", "/refuse", refuse, 0},
    {"POST", "/inner", inner, 0},
};
static const struct http_router far_router = {far_routes, ARRAY_SIZE(far_routes), NULL};

static int far_handle(struct http_request *req, struct err *e)
{
    return http_router_handle(&far_router, req, e);
}

/* ---- the near server: everything goes through a tunnel ---- */

static int near_handle(struct http_request *req, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    CLEANUP(http_headers_done) struct http_headers headers = HTTP_HEADERS_INIT;
    struct http_client *far = http_request_ctx(req);
    const char *upgrade = http_request_header(req, "Upgrade");
    struct http_io io;
    struct http_call_opts opts = {
        .method = http_request_method(req),
        .target = http_request_path(req),
        .headers = &headers,
        .body_length = http_body_length(req),
        .over = &io,
    };
    int r = http_tunnel_open(far, &(struct http_tunnel_opts){.target = "/inner"}, &io, e);

    if (r < 0) {
        return r;
    }
    http_request_io_timeout(req, 0);
    http_proxy_headers(req, NULL, &headers);
    http_headers_set(&headers, "Host", http_request_host(req));
    if (upgrade) {
        http_headers_set(&headers, "Connection", "Upgrade");
        http_headers_set(&headers, "Upgrade", upgrade);
    }
    r = http_call_new(far, &opts, &call, e);
    if (r == 0 && upgrade) {
        r = http_call_head(call, e);
    }
    if (r < 0) {
        return r;
    }
    return upgrade && http_call_status(call) == 101 ? http_tunnel_upgrade(req, call, e)
                                                    : http_proxy_answer(req, call, NULL, e);
}

#define FAR(client_, name_) \
    TEST_SERVER(name_, .handler = far_handle); \
    CLEANUP(http_client_freep) struct http_client *client_ = NULL; \
    CHECK_INT(http_client_new(name_.url, NULL, &client_, NULL), 0)

/* ---- one end in a thread ---- */

struct pumping {
    struct http_io client;
    struct http_io server;
    pthread_t thread;
    struct err e;
    int result;
};

static void *pumping_main(void *arg)
{
    struct pumping *p = arg;

    p->result = http_pump(&p->client, &p->server, &p->e);
    io_done(&p->server);
    io_done(&p->client);
    return NULL;
}

/* The socket that is pumped to the path of the far server. */
static int pump_start(struct pumping *p, struct http_client *far, const char *path)
{
    int fds[2];
    int r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);

    ASSERT(r == 0);
    *p = (struct pumping){.result = 1};
    r = http_tunnel_open(far, &(struct http_tunnel_opts){.target = path}, &p->server, &p->e);
    ASSERT(r == 0);
    r = fcntl(fds[0], F_SETFL, O_NONBLOCK);
    ASSERT(r == 0);
    io_init_take(&p->client, fds[0]);
    r = pthread_create(&p->thread, NULL, pumping_main, p);
    ASSERT(r == 0);
    return fds[1];
}

static void *send_bulk(void *arg)
{
    cleanup_free char *data = xmalloc(BULK);
    const int *fd = arg;

    for (size_t i = 0; i < BULK; i++) {
        data[i] = (char)(i * 2654435761u >> 13);
    }
    CHECK_INT(sock_send_all(*fd, data, BULK, deadline_in_ms(TEST_DEADLINE_MS)), 0);
    CHECK_INT(shutdown(*fd, SHUT_WR), 0);
    return NULL;
}

static void both_ways_at_once_and_to_the_end(void)
{
    FAR(far, server);
    struct pumping p;
    cleanup_close int fd = pump_start(&p, far, "/echo");
    static char data[65536];
    pthread_t sender;
    size_t got = 0;
    ssize_t n;
    int r = pthread_create(&sender, NULL, send_bulk, &fd);

    ASSERT(r == 0);
    while ((n = sock_recv(fd, data, sizeof(data), deadline_in_ms(TEST_DEADLINE_MS))) > 0) {
        for (size_t i = 0; i < (size_t)n; i++, got++) {
            if (data[i] != (char)(got * 2654435761u >> 13)) {
                TEST_FAIL("byte %zu is another", got);
                break;
            }
        }
    }
    CHECK_INT(n, 0);
    CHECK_INT(got, BULK);
    pthread_join(sender, NULL);
    pthread_join(p.thread, NULL);
    CHECK_INT(p.result, 0);
}

static void a_break_is_no_end(void)
{
    FAR(far, server);
    struct pumping p;
    cleanup_close int fd = pump_start(&p, far, "/cut");

    raw_send(fd, "some");
    pthread_join(p.thread, NULL);
    CHECK_INT(p.result, -ECONNRESET);
}

static void the_server_ends_while_the_client_goes_on(void)
{
    FAR(far, server);
    struct pumping p;
    cleanup_close int fd = pump_start(&p, far, "/farewell");
    cleanup_buf struct buf b = BUF_INIT(10000);

    CHECK(raw_read(fd, NULL, &b, NULL));
    CHECK_STR(buf_str(&b), "farewell");
    pthread_join(p.thread, NULL);
    CHECK_INT(p.result, 0);
}

static void a_client_that_is_gone_ends_it(void)
{
    FAR(far, server);
    struct pumping p;
    int fd = pump_start(&p, far, "/echo");
    cleanup_buf struct buf b = BUF_INIT(10000);

    raw_send(fd, "x");
    CHECK(raw_read(fd, "x", &b, NULL));
    close(fd);
    pthread_join(p.thread, NULL);
    CHECK(p.result == 0 || p.result == -ECANCELED); /* it was told "end", and answered or not */
}

static void a_refusal_says_why(void)
{
    FAR(far, server);
    struct http_io io;
    struct err e = {0};

    CHECK(http_tunnel_open(far, &(struct http_tunnel_opts){.target = "/refuse"}, &io, &e) < 0);
    CHECK_STR(e.reason, "port_closed");
    CHECK_INT(err_http_status(&e), 502);
}

static void http_through_it(void)
{
    FAR(far, server);
    TEST_SERVER(near, .handler = near_handle, .ctx = far);
    cleanup_free char *answer =
        raw_exchange(&near, "GET /hello HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\n\r\n");

    CHECK(str_starts(answer, "HTTP/1.1 200 OK\r\n"));
    CHECK(strstr(answer, "X-Inner: 1\r\n"));
    CHECK(strstr(answer, "GET /hello HTTP/1.1\r\nHost: a.b\r\n\r\n")); /* and nothing of our own */
}

static void another_protocol_through_it(void)
{
    FAR(far, server);
    TEST_SERVER(near, .handler = near_handle, .ctx = far);
    cleanup_close int fd = raw_connect(&near);
    cleanup_buf struct buf b = BUF_INIT(10000);

    raw_send(
        fd,
        "GET /x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: shout\r\n\r\n"
        "with the head|");
    CHECK(raw_read(fd, "with the head|", &b, NULL));
    CHECK(str_starts(buf_str(&b), "HTTP/1.1 101 "));
    CHECK(strstr(buf_str(&b), "Upgrade: shout\r\n"));
    CHECK(strstr(buf_str(&b), "\r\n\r\nhi!with the head|"));
    raw_send(fd, "more|");
    CHECK(raw_read(fd, "more|", &b, NULL));
    CHECK_INT(shutdown(fd, SHUT_WR), 0);
    buf_reset(&b);
    CHECK(raw_read(fd, NULL, &b, NULL)); /* its end comes back in order */
}

static void a_refused_protocol_is_an_answer(void)
{
    FAR(far, server);
    TEST_SERVER(near, .handler = near_handle, .ctx = far);
    cleanup_free char *answer = raw_exchange(
        &near,
        "GET /no HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: shout\r\n\r\n");

    CHECK(str_starts(answer, "HTTP/1.1 403 Forbidden\r\n"));
    CHECK(strstr(answer, "X-Inner: 1\r\n"));
}

TEST_MAIN(T(both_ways_at_once_and_to_the_end), T(a_break_is_no_end),
          T(the_server_ends_while_the_client_goes_on), T(a_client_that_is_gone_ends_it),
          T(a_refusal_says_why), T(http_through_it), T(another_protocol_through_it),
          T(a_refused_protocol_is_an_answer))
