/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that has been taken over: a peer that does the handshake by hand and then sends what it likes. The
 * host must end each request with a typed error in time, stay within its memory, and serve the next session.
 */
#include "base/clock.h"
#include "base/sock.h"
#include "base/test.h"
#include "channel/host.h"
#include "channel/link.h"

#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOON deadline_in_ms(20000)

enum {
    DATA,
    HEADERS,
    PRIORITY,
    RST,
    SETTINGS,
    PUSH,
    PING,
    GOAWAY,
    WINDOW,
    CONTINUATION
};

struct hostile {
    struct channel *ch; /* owned */
    int fd;             /* owned: the guest's end */
    struct link_decoder decoder;
};

/* Reads from the host until a HELLO, answers it; the payload is not looked at. */
static bool answer_hello(struct hostile *h)
{
    uint8_t in[4096];
    uint8_t record[LINK_CONTROL_LEN];
    ssize_t n;

    while ((n = sock_recv(h->fd, in, sizeof(in), SOON)) > 0) {
        uint8_t *p = in;
        size_t left = (size_t)n;
        bool said = false;

        while (left > 0) {
            size_t used = 0;
            size_t payload = 0;

            said |= link_decode(&h->decoder, p, left, &used, &payload) == LINK_HELLO;
            p += used;
            left -= used;
        }
        if (said) {
            link_control(LINK_ACK, h->decoder.nonce, record);
            return sock_send_all(h->fd, record, sizeof(record), SOON) == 0;
        }
    }
    return false;
}

static bool hostile_new_with(struct hostile *h, struct channel_options options)
{
    int fds[2];

    *h = (struct hostile){0};
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    options.fd = fds[0];
    ASSERT(channel_new(&options, &h->ch, NULL) == 0);
    h->fd = fds[1];
    return answer_hello(h) && channel_wait(h->ch, SOON, NULL) == 0;
}

static bool hostile_new(struct hostile *h)
{
    return hostile_new_with(h, (struct channel_options){0});
}

static void hostile_done(struct hostile *h)
{
    channel_free(h->ch);
    close(h->fd);
}

/* Sends raw HTTP/2 bytes. False: the host does not read, or has gone. */
static bool say(struct hostile *h, const void *data, size_t len)
{
    cleanup_free uint8_t *wire = xmalloc(LINK_ENCODED_MAX(len) + 1);

    return sock_send_all(h->fd, wire, link_encode(data, len, wire), SOON) == 0;
}

static size_t frame(uint8_t *out, int type, uint8_t flags, uint32_t stream, const void *payload,
                    size_t len)
{
    const uint8_t head[9] = {(uint8_t)(len >> 16),
                             (uint8_t)(len >> 8),
                             (uint8_t)len,
                             (uint8_t)type,
                             flags,
                             (uint8_t)(stream >> 24),
                             (uint8_t)(stream >> 16),
                             (uint8_t)(stream >> 8),
                             (uint8_t)stream};

    memcpy(out, head, sizeof(head));
    if (len > 0) {
        memcpy(out + sizeof(head), payload, len);
    }
    return sizeof(head) + len;
}

static bool say_frame(struct hostile *h, int type, uint8_t flags, uint32_t stream,
                      const void *payload, size_t len)
{
    cleanup_free uint8_t *out = xmalloc(9 + len);

    return say(h, out, frame(out, type, flags, stream, payload, len));
}

/* Reads until the host's request has come: preface, then frames up to the first HEADERS. */
static bool await_request(struct hostile *h)
{
    uint8_t in[4096];
    size_t have = 0;
    size_t at = 24;

    while (have < sizeof(in)) {
        size_t used = 0;
        size_t payload = 0;
        ssize_t n = sock_recv(h->fd, in + have, sizeof(in) - have, SOON);

        if (n <= 0 ||
            link_decode(&h->decoder, in + have, (size_t)n, &used, &payload) != LINK_NONE) {
            return false;
        }
        have += payload;
        while (have >= at + 9) {
            if (in[at + 3] == HEADERS) {
                return true;
            }
            at += 9 + ((size_t)in[at] << 16 | (size_t)in[at + 1] << 8 | in[at + 2]);
        }
    }
    return false;
}

static struct channel_stream *ask(struct hostile *h)
{
    struct channel_request q = {.method = "GET", .target = "/x"};
    struct channel_stream *s = NULL;

    CHECK_INT(channel_request(h->ch, &q, SOON, &s, NULL), 0);
    CHECK(await_request(h));
    return s;
}

/* What the request comes to: 0 when it ended well. */
static int outcome(struct channel_stream *s, struct err *e)
{
    const struct channel_head *head = NULL;
    static char buf[65536];
    ssize_t n;
    int r = channel_stream_read_head(s, SOON, &head, e);

    if (r < 0) {
        return r;
    }
    while ((n = channel_stream_read(s, buf, sizeof(buf), SOON, e)) > 0) {
    }
    return (int)n;
}

/* After whatever was done to it the channel makes a new session and takes requests. */
static void check_heals(struct hostile *h)
{
    CHECK(answer_hello(h));
    CHECK_INT(channel_wait(h->ch, SOON, NULL), 0);
}

/* ---- one attack each: what is sent after a request was made ---- */

static void send_garbage(struct hostile *h)
{
    static uint8_t junk[100000];
    unsigned seed = 7;

    for (size_t i = 0; i < sizeof(junk); i++) {
        junk[i] = (uint8_t)rand_r(&seed);
    }
    IGNORE_RESULT(sock_send_all(h->fd, junk, sizeof(junk), SOON)); /* not even link-encoded */
}

static void send_settings_first(struct hostile *h)
{
    IGNORE_RESULT(say_frame(h, SETTINGS, 0, 0, NULL, 0));
}

static void flood(struct hostile *h, int type, uint32_t stream, const void *payload, size_t len)
{
    static uint8_t many[64 * 1024];
    uint8_t one[128];
    size_t one_len = frame(one, type, 0, stream, payload, len);
    size_t n = 0;

    send_settings_first(h);
    while (n + one_len <= sizeof(many)) {
        memcpy(many + n, one, one_len);
        n += one_len;
    }
    for (int i = 0; i < 2000; i++) {
        struct pollfd pfd = {.fd = h->fd, .events = POLLOUT};

        /* Until the host has had enough: it then says HELLO, which we leave unread. */
        if (poll(&pfd, 1, 2000) <= 0 || channel_is_up(h->ch) == false) {
            return;
        }
        if (!say(h, many, n)) {
            return;
        }
    }
}

static void flood_pings(struct hostile *h)
{
    flood(h, PING, 0, "12345678", 8);
}

static void flood_settings(struct hostile *h)
{
    flood(h, SETTINGS, 0, "\0\4\0\1\0\0", 6);
}

static void flood_unknown(struct hostile *h)
{
    flood(h, 0x77, 0, "", 0);
}

static void flood_priority(struct hostile *h)
{
    flood(h, PRIORITY, 1, "\0\0\0\0\x10", 5);
}

static void too_many_settings(struct hostile *h)
{
    static uint8_t payload[6 * 100];

    for (size_t i = 0; i < sizeof(payload); i += 6) {
        payload[i + 1] = 4;
    }
    IGNORE_RESULT(say_frame(h, SETTINGS, 0, 0, payload, sizeof(payload)));
}

static void push_promise(struct hostile *h)
{
    send_settings_first(h);
    IGNORE_RESULT(say_frame(h, PUSH, 4, 1, "\0\0\0\2\x82", 5));
}

static void data_before_head(struct hostile *h)
{
    send_settings_first(h);
    IGNORE_RESULT(say_frame(h, DATA, 1, 1, "body", 4));
}

static void frame_too_long(struct hostile *h)
{
    static uint8_t big[CHANNEL_FRAME_MAX + 1];

    send_settings_first(h);
    IGNORE_RESULT(say_frame(h, DATA, 0, 1, big, sizeof(big)));
}

static void bad_hpack(struct hostile *h)
{
    send_settings_first(h);
    IGNORE_RESULT(say_frame(h, HEADERS, 4, 1, "\xff\xff\xff\xff\xff", 5));
}

static void goaway(struct hostile *h)
{
    send_settings_first(h);
    IGNORE_RESULT(say_frame(h, GOAWAY, 0, 0, "\0\0\0\0\0\0\0\0", 8));
}

static void window_overflow(struct hostile *h)
{
    send_settings_first(h);
    IGNORE_RESULT(say_frame(h, WINDOW, 0, 0, "\x7f\xff\xff\xff", 4));
    IGNORE_RESULT(say_frame(h, WINDOW, 0, 0, "\x7f\xff\xff\xff", 4));
}

static void more_than_the_window(struct hostile *h)
{
    static uint8_t body[CHANNEL_FRAME_MAX];

    send_settings_first(h);
    IGNORE_RESULT(say_frame(h, HEADERS, 4, 1, "\x88", 1)); /* :status 200 */
    for (unsigned i = 0; i < CHANNEL_STREAM_WINDOW / CHANNEL_FRAME_MAX + 1; i++) {
        IGNORE_RESULT(say_frame(h, DATA, 0, 1, body, sizeof(body)));
    }
}

static void endless_continuation(struct hostile *h)
{
    static uint8_t part[16000];

    send_settings_first(h);
    memset(part, 0x40, sizeof(part)); /* literal headers with empty names */
    IGNORE_RESULT(say_frame(h, HEADERS, 0, 1, "\x88", 1));
    for (int i = 0; i < 200 && channel_is_up(h->ch); i++) {
        IGNORE_RESULT(say_frame(h, CONTINUATION, 0, 1, part, sizeof(part)));
    }
}

static void control_records(struct hostile *h)
{
    uint8_t record[LINK_CONTROL_LEN];

    link_control(LINK_READY, "00000000000000000000000000000000", record);
    IGNORE_RESULT(sock_send_all(h->fd, record, sizeof(record), SOON));
}

static const struct attack {
    const char *name;
    void (*run)(struct hostile *h);
    int code;
    const char *reason;
} attacks[] = {
    {"garbage", send_garbage, -ECONNRESET, "guest_gone"},
    {"ping flood", flood_pings, -EPROTO, "guest_protocol"},
    {"settings flood", flood_settings, -EPROTO, "guest_protocol"},
    {"flood of unknown frames", flood_unknown, -EPROTO, "guest_protocol"},
    {"flood of priorities", flood_priority, -EPROTO, "guest_protocol"},
    {"too many settings", too_many_settings, -EPROTO, "guest_protocol"},
    {"push promise", push_promise, -EPROTO, "guest_protocol"},
    {"frame too long", frame_too_long, -EPROTO, "guest_protocol"},
    {"broken header compression", bad_hpack, -EPROTO, "guest_protocol"},
    {"goaway", goaway, -EPROTO, "guest_protocol"},
    {"window overflow", window_overflow, -EPROTO, "guest_protocol"},
    {"endless continuation", endless_continuation, -EPROTO, "guest_protocol"},
    {"control records", control_records, -ECONNRESET, "guest_gone"},
};

static void *attack_thread(void *arg)
{
    struct {
        struct hostile *h;
        const struct attack *a;
    } *x = arg;

    x->a->run(x->h);
    return NULL;
}

static void attacks_end_the_session_and_nothing_else(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(attacks); i++) {
        struct hostile h;
        struct channel_stream *s;
        struct err e = {0};
        pthread_t t;
        struct {
            struct hostile *h;
            const struct attack *a;
        } x = {&h, &attacks[i]};

        REQUIRE(hostile_new(&h));
        s = ask(&h);
        REQUIRE(s);
        ASSERT(pthread_create(&t, NULL, attack_thread, &x) == 0);
        if (outcome(s, &e) != attacks[i].code || !str_eq(e.reason, attacks[i].reason)) {
            TEST_FAIL("%s: ended with %d '%s' (%s)", attacks[i].name, e.code, e.reason, e.msg);
        }
        pthread_join(t, NULL);
        channel_stream_free(s);
        check_heals(&h);
        hostile_done(&h);
    }
}

/* These cost one stream; the session, and another stream of it, go on. */
static const struct {
    const char *name;
    void (*run)(struct hostile *h);
} stream_attacks[] = {
    {"data before the head", data_before_head},
    {"more than the window", more_than_the_window},
};

static void attacks_on_a_stream_end_it(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(stream_attacks); i++) {
        struct hostile h;
        struct channel_stream *s;
        struct err e = {0};
        int r;

        REQUIRE(hostile_new(&h));
        s = ask(&h);
        REQUIRE(s);
        stream_attacks[i].run(&h);
        r = outcome(s, &e);
        if (r != -EPROTO) {
            TEST_FAIL("%s: ended with %d (%s)", stream_attacks[i].name, r, e.msg);
        }
        channel_stream_free(s);
        hostile_done(&h);
    }
}

/* :status 200 and then n headers of size bytes each, in pieces as HTTP/2 wants them. */
static void say_big_head(struct hostile *h, size_t n, size_t size)
{
    static uint8_t block[200000];
    size_t len = 0;
    size_t at;

    block[len++] = 0x88;
    for (size_t i = 0; i < n; i++) {
        block[len++] = 0; /* literal, not indexed, new name */
        block[len++] = 1;
        block[len++] = 'x';
        block[len++] = 0x7f; /* length 127 + ... */
        for (size_t rest = size - 127;; rest >>= 7) {
            block[len++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
            if (rest <= 0x7f) {
                break;
            }
        }
        memset(block + len, 'v', size);
        len += size;
    }
    at = MIN(len, (size_t)16000);
    IGNORE_RESULT(say_frame(h, HEADERS, at == len ? 4 : 0, 1, block, at));
    while (at < len) {
        size_t part = MIN(len - at, (size_t)16000);

        IGNORE_RESULT(say_frame(h, CONTINUATION, at + part == len ? 4 : 0, 1, block + at, part));
        at += part;
    }
}

static void heads_have_limits(void)
{
    static const struct {
        size_t n;
        size_t size;
        bool fine;
    } heads[] = {{2, 200, true},
                 {CHANNEL_HEADERS_MAX, 130, true},
                 {CHANNEL_HEADERS_MAX + 1, 130, false},
                 {3, CHANNEL_HEAD_BYTES_MAX / 2, false}};

    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        struct hostile h;
        struct channel_stream *s;
        struct err e = {0};
        const struct channel_head *head = NULL;

        REQUIRE(hostile_new(&h));
        s = ask(&h);
        REQUIRE(s);
        send_settings_first(&h);
        say_big_head(&h, heads[i].n, heads[i].size);
        CHECK_INT(channel_stream_read_head(s, SOON, &head, &e), heads[i].fine ? 0 : -EPROTO);
        channel_stream_free(s);
        hostile_done(&h);
    }
}

/* READY again and again: each ends a session, but the host takes its time to begin the next. */
static void a_guest_that_always_begins_afresh_does_not_make_us_spin(void)
{
    struct hostile h;
    uint64_t start = clock_now_ns();
    unsigned n = 0;

    REQUIRE(hostile_new(&h));
    while (clock_now_ns() - start < 300 * NS_PER_MS) {
        control_records(&h);
        if (!answer_hello(&h)) {
            break;
        }
        n++;
    }
    CHECK(n < 30);
    hostile_done(&h);
}

/* It took a request and says nothing more: the host asks, waits, and gives it up. */
static void a_silent_guest_is_given_up(void)
{
    struct hostile h;
    struct channel_stream *s;
    struct err e = {0};

    REQUIRE(hostile_new_with(&h, (struct channel_options){.ping_after_ms = 5, .ping_wait_ms = 20}));
    s = ask(&h);
    REQUIRE(s);
    CHECK_INT(outcome(s, &e), -ECONNRESET);
    CHECK_STR(e.reason, "guest_gone");
    channel_stream_free(s);
    check_heals(&h);
    hostile_done(&h);
}

/* A paused machine cannot answer, and is not asked. */
static void a_held_channel_is_not_given_up(void)
{
    struct hostile h;
    struct channel_stream *s;
    struct err e = {0};
    const struct channel_head *head = NULL;

    REQUIRE(hostile_new_with(&h, (struct channel_options){.ping_after_ms = 1, .ping_wait_ms = 1}));
    channel_hold(h.ch, true);
    s = ask(&h);
    REQUIRE(s);
    CHECK_INT(channel_stream_read_head(s, deadline_in_ms(100), &head, &e), -ETIMEDOUT);
    CHECK(channel_is_up(h.ch));
    channel_hold(h.ch, false);
    CHECK_INT(channel_stream_read_head(s, SOON, &head, &e), -ECONNRESET);
    channel_stream_free(s);
    hostile_done(&h);
}

/* An ACK that does not know the nonce, records of nonsense: nothing begins. */
static void a_forged_ack_begins_nothing(void)
{
    struct channel *ch = NULL;
    uint8_t record[LINK_CONTROL_LEN];
    int fds[2];

    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    ASSERT(channel_new(&(struct channel_options){.fd = fds[0]}, &ch, NULL) == 0);
    link_control(LINK_ACK, "00000000000000000000000000000000", record);
    CHECK_INT(sock_send_all(fds[1], record, sizeof(record), SOON), 0);
    CHECK_INT(channel_wait(ch, deadline_in_ms(50), NULL), -ETIMEDOUT);
    channel_free(ch);
    close(fds[1]);
}

TEST_MAIN(T(attacks_end_the_session_and_nothing_else), T(attacks_on_a_stream_end_it),
          T(heads_have_limits), T(a_guest_that_always_begins_afresh_does_not_make_us_spin),
          T(a_silent_guest_is_given_up), T(a_held_channel_is_not_given_up),
          T(a_forged_ack_begins_nothing))
