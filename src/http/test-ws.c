/* SPDX-License-Identifier: Apache-2.0 */
#include "http/test-support.h"
#include "http/ws.h"
#include "wire/websocket.h"

#include <semaphore.h>

static sem_t ended;
static int end_code;

/* Echoes messages until the peer closes; "bye" makes us close. */
static int serve(struct http_request *req, struct err *e)
{
    CLEANUP(ws_freep) struct ws *ws = NULL;
    struct ws_message m;
    int r = ws_accept(req, &(struct ws_opts){.max_message = 100000, .protocol = "echo"}, &ws, e);

    if (r < 0) {
        return r;
    }
    while ((r = ws_read(ws, &m, deadline_in_ms(TEST_DEADLINE_MS), e)) == 0 && m.type != WS_CLOSE) {
        if (m.len == 3 && memcmp(m.data, "bye", 3) == 0) {
            r = ws_close(ws, WS_CLOSE_GOING_AWAY, "as you wish", deadline_in_ms(TEST_DEADLINE_MS),
                         e);
            break;
        }
        r = ws_write(ws, m.type, m.data, m.len, deadline_in_ms(TEST_DEADLINE_MS), e);
        if (r < 0) {
            break;
        }
    }
    end_code = r < 0 ? r : (int)m.close_code;
    sem_post(&ended);
    return r;
}

static void await_end(int want)
{
    sem_wait(&ended);
    CHECK_INT(end_code, want);
}

static struct http_client *client_to(const struct test_server *t)
{
    struct http_client *c = NULL;
    int r = http_client_new(t->url, NULL, &c, NULL);

    ASSERT(r == 0);
    return c;
}

static void messages_go_there_and_back(void)
{
    TEST_SERVER(t, .handler = serve);
    CLEANUP(http_client_freep) struct http_client *c = client_to(&t);
    CLEANUP(ws_freep) struct ws *ws = NULL;
    struct ws_message m = {0};
    struct err e = {0};
    static char big[100000];
    static const size_t sizes[] = {0, 1, 125, 126, 127, 65535, 65536, 100000};

    REQUIRE(ws_connect(c, "/", &(struct ws_opts){.protocol = "echo"}, &ws, &e) == 0);
    memset(big, 'x', sizeof(big));
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        enum ws_type type = i % 2 ? WS_TEXT : WS_BINARY;

        CHECK_INT(ws_write(ws, type, big, sizes[i], 0, &e), 0);
        REQUIRE(ws_read(ws, &m, deadline_in_ms(TEST_DEADLINE_MS), &e) == 0);
        CHECK_INT(m.type, type);
        CHECK_INT(m.len, sizes[i]);
        CHECK_MEM(m.data, big, MIN(m.len, sizeof(big)));
    }
    CHECK_INT(ws_ping(ws, 0, &e), 0);
    CHECK_INT(ws_read_try(ws, &m, &e), -EAGAIN);
    CHECK_INT(ws_close(ws, WS_CLOSE_NORMAL, NULL, deadline_in_ms(TEST_DEADLINE_MS), &e), 0);
    CHECK_INT(ws_write(ws, WS_TEXT, "x", 1, 0, &e), -EPIPE);
    await_end(1000);
}

static void server_closes_first(void)
{
    TEST_SERVER(t, .handler = serve);
    CLEANUP(http_client_freep) struct http_client *c = client_to(&t);
    CLEANUP(ws_freep) struct ws *ws = NULL;
    struct ws_message m = {0};
    struct err e = {0};

    REQUIRE(ws_connect(c, "/", NULL, &ws, &e) == 0);
    CHECK_INT(ws_write(ws, WS_TEXT, "bye", 3, 0, &e), 0);
    REQUIRE(ws_read(ws, &m, deadline_in_ms(TEST_DEADLINE_MS), &e) == 0);
    CHECK_INT(m.type, WS_CLOSE);
    CHECK_INT(m.close_code, WS_CLOSE_GOING_AWAY);
    CHECK_STR(m.data, "as you wish");
    CHECK_INT(ws_read(ws, &m, deadline_in_ms(TEST_DEADLINE_MS), &e), -EPIPE);
    await_end(0);
}

static void other_answers_are_errors(void)
{
    TEST_SERVER(t, .handler = serve);
    CLEANUP(http_client_freep) struct http_client *c = client_to(&t);
    struct err e = {0};

    CHECK_INT(http_client_json(c, &(struct http_json_opts){.target = "/"}, NULL, &e), e.code);
    CHECK_STR(e.reason, "websocket_expected");
    CHECK_INT(err_http_status(&e), 426);
}

#define UPGRADE \
    "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n" \
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

static int open_raw(const struct test_server *t)
{
    cleanup_buf struct buf b = BUF_INIT(100000);
    int fd = raw_connect(t);

    raw_send(fd, UPGRADE "\r\n");
    CHECK(raw_read(fd, "\r\n\r\n", &b, NULL));
    CHECK(strncmp(buf_str(&b), "HTTP/1.1 101 Switching Protocols\r\n", 34) == 0);
    CHECK(strstr(buf_str(&b),
                 "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n")); /* RFC 6455, 1.3 */
    CHECK(!strstr(buf_str(&b), "Sec-WebSocket-Protocol"));
    return fd;
}

/* Sends a frame with payload, masked with zeroes when `masked`. */
static void send_frame(int fd, unsigned first, const char *payload, bool masked)
{
    cleanup_buf struct buf b = BUF_INIT(1000);
    unsigned char head[] = {(unsigned char)first,
                            (unsigned char)(strlen(payload) | (masked ? 0x80u : 0u))};

    ASSERT(strlen(payload) < 126);
    CHECK_INT(buf_add(&b, head, sizeof(head)), 0);
    CHECK_INT(buf_add(&b, "\0\0\0", masked ? 4 : 0), 0);
    CHECK_INT(buf_add_str(&b, payload), 0);
    CHECK_INT(sock_send_all(fd, b.data, b.len, deadline_in_ms(TEST_DEADLINE_MS)), 0);
}

static void expect_bytes(int fd, const char *want, size_t len)
{
    size_t have = 0;
    char data[256];

    while (have < len) {
        ssize_t n = sock_recv(fd, data + have, len - have, deadline_in_ms(TEST_DEADLINE_MS));

        REQUIRE(n > 0);
        have += (size_t)n;
    }
    CHECK_MEM(data, want, len);
}

static void fragments_are_joined_and_pings_answered_between(void)
{
    TEST_SERVER(t, .handler = serve);
    cleanup_close int fd = open_raw(&t);

    send_frame(fd, 0x01, "one ", true);
    send_frame(fd, 0x89, "ping", true);
    send_frame(fd, 0x00, "two ", true);
    send_frame(fd, 0x80, "three", true);
    expect_bytes(fd, "\x8a\x04ping", 6);
    expect_bytes(fd, "\x81\x0done two three", 15);
    send_frame(fd, 0x88, "\x03\xe8", true);
    expect_bytes(fd, "\x88\x02\x03\xe8", 4);
    await_end(1000);
}

static void protocol_errors_close_with_their_code(void)
{
    static const struct {
        const char *name;
        unsigned first;
        const char *payload;
        bool masked;
        unsigned close_code;
        int code;
    } cases[] = {
        {"not masked", 0x81, "x", false, 1002, -EBADMSG},
        {"reserved bit", 0xc1, "x", true, 1002, -EBADMSG},
        {"reserved opcode", 0x83, "x", true, 1002, -EBADMSG},
        {"continuation of nothing", 0x80, "x", true, 1002, -EBADMSG},
        {"fragmented ping", 0x09, "x", true, 1002, -EBADMSG},
        {"text that is not utf-8", 0x81, "\xc0\x80", true, 1007, -EBADMSG},
        {"close code that may not be sent", 0x88, "\x03\xed", true, 1002, -EBADMSG},
        {"close of one byte", 0x88, "\x03", true, 1002, -EBADMSG},
    };
    TEST_SERVER(t, .handler = serve);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_close int fd = open_raw(&t);
        cleanup_buf struct buf b = BUF_INIT(100000);

        send_frame(fd, cases[i].first, cases[i].payload, cases[i].masked);
        raw_read(fd, NULL, &b, NULL);
        if (b.len < 4 || (unsigned char)b.data[0] != 0x88 ||
            ((unsigned)(unsigned char)b.data[2] << 8 | (unsigned char)b.data[3]) !=
                cases[i].close_code) {
            TEST_FAIL("%s: %zu bytes", cases[i].name, b.len);
        }
        await_end(cases[i].code);
    }
}

static void too_large_message_is_refused_by_its_head(void)
{
    static const char head[] = "\x82\xff\0\0\0\0\0\x01\x86\xa1\0\0\0"; /* 100001 bytes, masked */
    TEST_SERVER(t, .handler = serve);
    cleanup_close int fd = open_raw(&t);

    CHECK_INT(sock_send_all(fd, head, sizeof(head), deadline_in_ms(TEST_DEADLINE_MS)), 0);
    expect_bytes(fd, "\x88\x1a\x03\xf1", 4); /* 1009 and a sentence of 24 bytes */
    await_end(-E2BIG);
}

static void vanished_client_is_seen(void)
{
    TEST_SERVER(t, .handler = serve);
    int fd = open_raw(&t);

    send_frame(fd, 0x01, "half", true);
    close(fd);
    await_end(-ECONNRESET);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        T(messages_go_there_and_back),
        T(server_closes_first),
        T(other_answers_are_errors),
        T(fragments_are_joined_and_pings_answered_between),
        T(protocol_errors_close_with_their_code),
        T(too_large_message_is_refused_by_its_head),
        T(vanished_client_is_seen),
    };

    sem_init(&ended, 0, 0);
    return test_run_all(cases, ARRAY_SIZE(cases), argc, argv);
}
