/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of this folder share: a server in a thread, and a raw socket to speak to it byte
 * by byte.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/sock.h"
#include "base/test.h"
#include "http/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

/* No step of a test takes that long unless it hangs. */
#define TEST_DEADLINE_MS 20000u

struct test_server {
    struct http_server *server;
    pthread_t thread;
    bool running;
    int result;
    char url[64];
};

static inline void *test_server_main(void *arg)
{
    struct test_server *t = arg;

    t->result = http_server_run(t->server, NULL);
    return NULL;
}

static inline void test_server_start(struct test_server *t, const struct http_server_opts *opts)
{
    struct err e = {0};
    int r;

    t->server = http_server_new(opts);
    r = http_server_listen_tcp(t->server, "127.0.0.1:0", &e);
    ASSERT(r == 0);
    snprintf(t->url, sizeof(t->url), "http://127.0.0.1:%u", http_server_port(t->server));
    r = pthread_create(&t->thread, NULL, test_server_main, t);
    ASSERT(r == 0);
    t->running = true;
}

static inline void test_server_stop(struct test_server *t)
{
    if (t->running) {
        http_server_stop(t->server);
        pthread_join(t->thread, NULL);
        t->running = false;
        CHECK_INT(t->result, 0);
    }
    http_server_free(t->server);
    t->server = NULL;
}

#define TEST_SERVER(name_, ...) \
    CLEANUP(test_server_stop) struct test_server name_ = {0}; \
    test_server_start(&name_, &(struct http_server_opts){__VA_ARGS__})

static inline int raw_connect_port(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT(fd >= 0);
    r = connect(fd, (struct sockaddr *)&a, sizeof(a));
    ASSERT(r == 0);
    return fd;
}

static inline int raw_connect(const struct test_server *t)
{
    return raw_connect_port(http_server_port(t->server));
}

static inline void raw_send(int fd, const char *text)
{
    CHECK_INT(sock_send_all(fd, text, strlen(text), deadline_in_ms(TEST_DEADLINE_MS)), 0);
}

/*
 * Reads until `until` has been seen (or the end, when NULL). False at a premature end; *ret_code,
 * when asked for, is the errno or 0 of the last read.
 */
static inline bool raw_read(int fd, const char *until, struct buf *b, int *ret_code)
{
    uint64_t deadline_ns = deadline_in_ms(TEST_DEADLINE_MS);

    while (!until || !strstr(buf_str(b), until)) {
        void *room;
        ssize_t n;

        if (buf_reserve(b, 4096, &room) < 0) {
            return false;
        }
        n = sock_recv(fd, room, 4096, deadline_ns);
        if (n <= 0) {
            if (ret_code) {
                *ret_code = (int)n;
            }
            return !until && n == 0;
        }
        buf_commit(b, (size_t)n);
    }
    return true;
}

/* Sends and reads until the server closes. */
static inline char *raw_exchange(const struct test_server *t, const char *request)
{
    cleanup_close int fd = raw_connect(t);
    cleanup_buf struct buf b = BUF_INIT(8 * 1024 * 1024);

    raw_send(fd, request);
    raw_read(fd, NULL, &b, NULL);
    return buf_take(&b);
}

/* A handler that answers each piece as it comes. */
static inline int test_echo(struct http_request *req, struct err *e)
{
    char data[20000];
    ssize_t n;
    int r;

    http_body_limit(req, UINT64_MAX);
    r = http_reply_begin(req, 200, NULL, -1, e);
    if (r == 0) {
        r = http_flush(req, e);
    }
    while (r == 0) {
        n = http_body_read(req, data, sizeof(data), e);
        if (n <= 0) {
            return n < 0 ? (int)n : http_end(req, e);
        }
        r = http_write(req, data, (size_t)n, e);
    }
    return r;
}
