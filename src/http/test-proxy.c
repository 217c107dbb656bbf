/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A front server that forwards everything to a back server; both are ours, the client is a raw
 * socket.
 */
#include "http/proxy.h"
#include "http/route.h"
#include "http/test-support.h"

#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/eventfd.h>

static sem_t entered;
static sem_t noticed_gone;
static sem_t cut_now;

static int hello(struct http_request *req, struct err *e)
{
    http_reply_header(req, "X-Back", "yes");
    http_reply_header(req, "Set-Cookie", "a=1");
    return http_reply_bytes(req, 200, "text/plain", "hello", 5, e);
}

static int show(struct http_request *req, struct err *e)
{
    cleanup_buf struct buf b = BUF_INIT(10000);
    const struct http_headers *h = http_request_headers(req);
    int r = buf_printf(&b, "%s %s?%s\n", http_request_method(req), http_request_path(req),
                       http_request_query_raw(req) ? http_request_query_raw(req) : "");

    for (size_t i = 0; r == 0 && i < h->n; i++) {
        r = buf_printf(&b, "%s=%s\n", h->v[i].name, h->v[i].value);
    }
    return r < 0 ? r : http_reply_bytes(req, 200, NULL, b.data, b.len, e);
}

static int break_off(struct http_request *req, struct err *e)
{
    int r = http_reply_begin(req, 200, NULL, -1, e);

    if (r == 0) {
        r = http_write(req, "half", 4, e);
    }
    sem_wait(&cut_now);
    return r < 0 ? r : -EIO;
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

static int refuse(struct http_request *req, struct err *e)
{
    (void)req;
    return err_set(e, -ENOSPC, "no_space", "the disk is full");
}

static int empty(struct http_request *req, struct err *e)
{
    return http_reply_empty(req, 204, e);
}

static int big(struct http_request *req, struct err *e)
{
    static char block[100000];
    int r = http_reply_begin(req, 200, NULL, 10000000, e);

    for (int i = 0; r == 0 && i < 100; i++) {
        r = http_write(req, block, sizeof(block), e);
    }
    return r;
}

static const struct http_route back_routes[] = {
    {"GET", "/hello", hello, 0},        {"*", "/show{rest...}", show, 0},
    {"POST", "/echo", test_echo, 0},    {"GET", "/break", break_off, 0},
    {"*", "/gone", wait_for_client, 0}, {"PUT", "/refuse", refuse, 0},
    {"DELETE", "/empty", empty, 0},     {"GET", "/big", big, 0},
};

static int back(struct http_request *req, struct err *e)
{
    static const struct http_router router = {.routes = back_routes,
                                              .n_routes = ARRAY_SIZE(back_routes)};

    return http_router_handle(&router, req, e);
}

static bool not_cookie(const char *name)
{
    return strcasecmp(name, "set-cookie") != 0;
}

static bool not_authorization(const char *name)
{
    return strcasecmp(name, "authorization") != 0;
}

/* Forwards /front/... to /... */
static int front(struct http_request *req, struct err *e)
{
    CLEANUP(http_headers_done) struct http_headers extra = HTTP_HEADERS_INIT;
    const struct http_proxy_opts opts = {.request_header = not_authorization,
                                         .response_header = not_cookie};
    const char *query = http_request_query_raw(req);
    cleanup_free char *target = xasprintf("%s%s%s", http_request_path(req) + strlen("/front"),
                                          query ? "?" : "", query ? query : "");

    http_headers_add(&extra, "X-Front", "added");
    return http_proxy_call(req, http_request_ctx(req), target, &extra, &opts, e);
}

struct pair {
    struct test_server back;
    struct http_client *client;
    struct test_server front;
};

static void pair_start(struct pair *p)
{
    struct err e = {0};
    int r;

    test_server_start(&p->back, &(struct http_server_opts){.handler = back});
    r = http_client_new(p->back.url, NULL, &p->client, &e);
    ASSERT(r == 0);
    test_server_start(&p->front, &(struct http_server_opts){.handler = front, .ctx = p->client});
}

static void pair_stop(struct pair *p)
{
    test_server_stop(&p->front);
    http_client_free(p->client);
    test_server_stop(&p->back);
}

#define PAIR(p_) \
    CLEANUP(pair_stop) struct pair p_ = {0}; \
    pair_start(&p_)

/* ---- an upstream of another kind: a thread feeds it, an eventfd tells ---- */

#define FED_PIECES 2000

struct fed {
    pthread_mutex_t lock;
    int event_fd;
    struct buf waiting; /* guarded by lock, as the following */
    bool over;
    bool aborted;
    struct http_headers headers;
};

static void fed_clear(void *up)
{
    struct fed *f = up;
    uint64_t count;

    IGNORE_RESULT(read(f->event_fd, &count, sizeof(count))); /* only to empty it */
}

static ssize_t fed_send(void *up, const void *data, size_t len, struct err *e)
{
    (void)up;
    (void)data;
    (void)e;
    return (ssize_t)len;
}

static int fed_send_end(void *up, struct err *e)
{
    (void)up;
    (void)e;
    return 0;
}

static int fed_head(void *up, struct http_upstream_head *ret, struct err *e)
{
    struct fed *f = up;

    (void)e;
    *ret = (struct http_upstream_head){200, -1, &f->headers};
    return 0;
}

static ssize_t fed_recv(void *up, void *data, size_t len, struct err *e)
{
    struct fed *f = up;
    ssize_t n;

    (void)e;
    pthread_mutex_lock(&f->lock);
    n = (ssize_t)MIN(len, f->waiting.len);
    if (n > 0) {
        memcpy(data, f->waiting.data, (size_t)n);
        buf_consume(&f->waiting, (size_t)n);
    } else if (!f->over) {
        n = -EAGAIN;
    }
    pthread_mutex_unlock(&f->lock);
    return n;
}

static struct pollfd fed_pollfd(void *up, bool want_recv, bool want_send)
{
    struct fed *f = up;

    (void)want_recv;
    (void)want_send;
    return (struct pollfd){.fd = f->event_fd, .events = POLLIN};
}

static void fed_abort(void *up)
{
    struct fed *f = up;

    pthread_mutex_lock(&f->lock);
    f->aborted = true;
    pthread_mutex_unlock(&f->lock);
}

static void *feed(void *arg)
{
    struct fed *f = arg;

    for (int i = 0; i <= FED_PIECES; i++) {
        uint64_t one = 1;
        int r = 0;

        pthread_mutex_lock(&f->lock);
        f->over = i == FED_PIECES;
        if (!f->over) {
            r = buf_printf(&f->waiting, "%d,", i);
        }
        pthread_mutex_unlock(&f->lock);
        ASSERT(r == 0 && write(f->event_fd, &one, sizeof(one)) == sizeof(one));
        sched_yield();
    }
    return NULL;
}

static int serve_fed(struct http_request *req, struct err *e)
{
    static const struct http_upstream_ops ops = {
        .clear = fed_clear,
        .send = fed_send,
        .send_end = fed_send_end,
        .head = fed_head,
        .recv = fed_recv,
        .pollfd = fed_pollfd,
        .abort = fed_abort,
    };
    struct fed f = {.lock = PTHREAD_MUTEX_INITIALIZER, .waiting = BUF_INIT(1 << 20)};
    pthread_t thread;
    int r;

    f.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = pthread_create(&thread, NULL, feed, &f);
    ASSERT(r == 0);
    r = http_proxy_run(req, &ops, &f, NULL, e);
    pthread_join(thread, NULL);
    CHECK(!f.aborted);
    close(f.event_fd);
    buf_done(&f.waiting);
    return r;
}

#define CLOSE "Host: h\r\nConnection: close\r\n\r\n"

static void small_requests_pass(void)
{
    PAIR(p);

    for (int i = 0; i < 3; i++) {
        cleanup_free char *answer = raw_exchange(&p.front, "GET /front/hello HTTP/1.1\r\n" CLOSE);

        CHECK(strncmp(answer, "HTTP/1.1 200 OK\r\n", 17) == 0);
        CHECK(strstr(answer, "Content-Length: 5\r\n"));
        CHECK(strstr(answer, "X-Back: yes\r\n"));
        CHECK(!strstr(answer, "Set-Cookie"));
        CHECK(strstr(answer, "\r\n\r\nhello"));
    }
}

static void statuses_and_errors_pass(void)
{
    static const struct {
        const char *request;
        const char *want;
    } cases[] = {
        {"HEAD /front/hello HTTP/1.1\r\n" CLOSE, "HTTP/1.1 200 "},
        {"DELETE /front/empty HTTP/1.1\r\n" CLOSE, "HTTP/1.1 204 "},
        {"GET /front/nowhere HTTP/1.1\r\n" CLOSE, "HTTP/1.1 404 "},
        {"PUT /front/refuse HTTP/1.1\r\nContent-Length: 3\r\n" CLOSE "abc", "HTTP/1.1 507 "},
    };
    PAIR(p);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *answer = raw_exchange(&p.front, cases[i].request);

        if (strncmp(answer, cases[i].want, strlen(cases[i].want)) != 0) {
            TEST_FAIL("%s: %s", cases[i].request, answer);
        }
    }
}

static void fields_are_filtered(void)
{
    PAIR(p);
    cleanup_free char *answer = raw_exchange(
        &p.front,
        "GET /front/show/a%2Fb?x=%20 HTTP/1.1\r\nHost: outer\r\nConnection: close, x-hop\r\nX-Hop: "
        "1\r\n"
        "Keep-Alive: 5\r\nProxy-Authorization: p\r\nAuthorization: secret\r\nX-Front: forged\r\n"
        "X-Kept: k\r\n\r\n");

    CHECK(strstr(answer, "GET /show/a%2Fb?x=%20\n"));
    CHECK(strstr(answer, "X-Kept=k\n"));
    CHECK(strstr(answer, "X-Front=added\n"));
    CHECK(!strstr(answer, "forged"));
    CHECK(!strstr(answer, "X-Hop"));
    CHECK(!strstr(answer, "Keep-Alive"));
    CHECK(!strstr(answer, "Proxy-"));
    CHECK(!strstr(answer, "secret"));
    CHECK(!strstr(answer, "outer"));
}

static void both_directions_stream_at_once(void)
{
    PAIR(p);
    cleanup_close int fd = raw_connect(&p.front);
    cleanup_buf struct buf b = BUF_INIT(100000);

    raw_send(fd, "POST /front/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    CHECK(raw_read(fd, "Transfer-Encoding: chunked\r\n", &b,
                   NULL)); /* the answer begins before the body */
    raw_send(fd, "4\r\nping\r\n");
    CHECK(raw_read(fd, "4\r\nping\r\n", &b, NULL));
    raw_send(fd, "4\r\npong\r\n");
    CHECK(raw_read(fd, "4\r\npong\r\n", &b, NULL));
    raw_send(fd, "0\r\n\r\n");
    CHECK(raw_read(fd, "0\r\n\r\n", &b, NULL));
    buf_reset(&b);
    raw_send(fd, "GET /front/hello HTTP/1.1\r\n" CLOSE); /* and the connection goes on */
    CHECK(raw_read(fd, "\r\n\r\nhello", &b, NULL));
}

struct sender {
    int fd;
    size_t n;
};

static void *send_blocks(void *arg)
{
    static char block[65536];
    struct sender *s = arg;

    for (size_t i = 0; i < s->n; i++) {
        if (sock_send_all(s->fd, block, sizeof(block), deadline_in_ms(TEST_DEADLINE_MS)) < 0) {
            return s;
        }
    }
    return NULL;
}

static void large_bodies_pass_both_ways(void)
{
    PAIR(p);
    cleanup_close int fd = raw_connect(&p.front);
    struct sender s = {.fd = fd, .n = 160};
    static char data[65536];
    size_t total = 0;
    pthread_t thread;
    void *failed = NULL;
    ssize_t n;

    raw_send(fd, "POST /front/echo HTTP/1.0\r\nContent-Length: 10485760\r\n\r\n");
    REQUIRE(pthread_create(&thread, NULL, send_blocks, &s) == 0);
    while ((n = sock_recv(fd, data, sizeof(data), deadline_in_ms(TEST_DEADLINE_MS))) > 0) {
        total += (size_t)n;
    }
    CHECK_INT(n, 0);
    pthread_join(thread, &failed);
    CHECK(!failed);
    CHECK(total > 10485760 && total < 10485760 + 1000);
}

static void broken_upstream_cuts_the_client(void)
{
    PAIR(p);
    cleanup_close int fd = raw_connect(&p.front);
    cleanup_buf struct buf b = BUF_INIT(100000);

    raw_send(fd, "GET /front/break HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(raw_read(fd, "4\r\nhalf\r\n", &b, NULL));
    sem_post(&cut_now);
    raw_read(fd, NULL, &b, NULL);
    CHECK(!strstr(buf_str(&b), "0\r\n\r\n"));
}

static void gone_client_closes_the_upstream(void)
{
    PAIR(p);
    int fd = raw_connect(&p.front);

    raw_send(fd, "GET /front/gone HTTP/1.1\r\nHost: h\r\n\r\n");
    sem_wait(&entered);
    close(fd);
    sem_wait(&noticed_gone);
}

static void gone_client_in_the_middle_of_its_body_closes_the_upstream(void)
{
    PAIR(p);
    int fd = raw_connect(&p.front);

    raw_send(fd, "POST /front/gone HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhalf");
    sem_wait(&entered);
    close(fd);
    sem_wait(&noticed_gone);
}

static void absent_upstream_is_an_error(void)
{
    CLEANUP(pair_stop) struct pair p = {0};
    struct err e = {0};
    cleanup_free char *answer = NULL;

    REQUIRE(http_client_new("unix:/nonexistent/sock", NULL, &p.client, &e) == 0);
    test_server_start(&p.back, &(struct http_server_opts){.handler = back});
    test_server_start(&p.front, &(struct http_server_opts){.handler = front, .ctx = p.client});
    answer = raw_exchange(&p.front, "GET /front/hello HTTP/1.1\r\n" CLOSE);
    CHECK(strncmp(answer, "HTTP/1.1 503 ", 13) == 0);
    CHECK(strstr(answer, "\"unavailable\""));
}

static void upstream_with_an_eventfd_loses_nothing(void)
{
    TEST_SERVER(t, .handler = serve_fed);
    cleanup_free char *answer = raw_exchange(&t, "GET / HTTP/1.0\r\n\r\n");
    cleanup_buf struct buf want = BUF_INIT(1 << 20);
    const char *body = strstr(answer, "\r\n\r\n");

    for (int i = 0; i < FED_PIECES; i++) {
        CHECK_INT(buf_printf(&want, "%d,", i), 0);
    }
    REQUIRE(body);
    CHECK(str_eq(body + 4, buf_str(&want)));
}

static void slow_reader_gets_all(void)
{
    PAIR(p);
    cleanup_close int fd = raw_connect(&p.front);
    char data[3000];
    size_t total = 0;
    ssize_t n;

    raw_send(fd, "GET /front/big HTTP/1.1\r\n" CLOSE);
    while ((n = sock_recv(fd, data, sizeof(data), deadline_in_ms(TEST_DEADLINE_MS))) > 0) {
        total += (size_t)n;
    }
    CHECK_INT(n, 0);
    CHECK(total > 10000000 && total < 10001000);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        T(small_requests_pass),
        T(statuses_and_errors_pass),
        T(fields_are_filtered),
        T(both_directions_stream_at_once),
        T(large_bodies_pass_both_ways),
        T(broken_upstream_cuts_the_client),
        T(gone_client_closes_the_upstream),
        T(gone_client_in_the_middle_of_its_body_closes_the_upstream),
        T(absent_upstream_is_an_error),
        T(upstream_with_an_eventfd_loses_nothing),
        T(slow_reader_gets_all),
    };

    sem_init(&entered, 0, 0);
    sem_init(&noticed_gone, 0, 0);
    sem_init(&cut_now, 0, 0);
    return test_run_all(cases, ARRAY_SIZE(cases), argc, argv);
}
