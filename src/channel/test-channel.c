/* SPDX-License-Identifier: Apache-2.0 */
/* Both real ends against each other over a socket pair. */
#include "base/test.h"
#include "channel/host.h"
#include "channel/test-peer.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOON deadline_in_ms(20000)

struct pair {
    struct channel *ch;     /* owned */
    struct test_peer *peer; /* owned */
};

static struct pair pair_new(bool announce)
{
    struct pair p = {0};
    int fds[2];

    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    ASSERT(channel_new(&(struct channel_options){.fd = fds[0]}, &p.ch, NULL) == 0);
    p.peer = test_peer_new(fds[1], announce);
    return p;
}

static void pair_done(struct pair *p)
{
    channel_free(p->ch);
    if (p->peer) {
        close(test_peer_free(p->peer));
    }
}

static struct channel_stream *request(struct channel *ch, const char *target, bool has_body)
{
    struct channel_request q = {
        .method = has_body ? "POST" : "GET", .target = target, .has_body = has_body};
    struct channel_stream *s = NULL;
    struct err e = {0};

    if (channel_request(ch, &q, SOON, &s, &e) < 0) {
        TEST_FAIL("request failed: %s", e.msg);
    }
    return s;
}

static int status_of(struct channel_stream *s)
{
    const struct channel_head *head = NULL;
    struct err e = {0};

    if (channel_stream_read_head(s, SOON, &head, &e) < 0) {
        TEST_FAIL("no head: %s", e.msg);
        return -1;
    }
    return head->status;
}

/* Reads all; checks the pattern of /bytes; returns the count or the error. */
static ssize_t read_bytes(struct channel_stream *s, struct err *e)
{
    static __thread uint8_t buf[100000];
    size_t total = 0;
    ssize_t n;

    while ((n = channel_stream_read(s, buf, sizeof(buf), SOON, e)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            if (buf[i] != (uint8_t)((total + (size_t)i) * 7)) {
                TEST_FAIL("byte %zu is wrong", total + (size_t)i);
                return -EIO;
            }
        }
        total += (size_t)n;
    }
    return n < 0 ? n : (ssize_t)total;
}

static void check_bytes(struct channel *ch, size_t want)
{
    char target[64];
    struct channel_stream *s;
    struct err e = {0};

    snprintf(target, sizeof(target), "/bytes?%zu", want);
    s = request(ch, target, false);
    REQUIRE(s);
    CHECK_INT(status_of(s), 200);
    CHECK_INT(read_bytes(s, &e), want);
    CHECK_STR(e.msg, "");
    channel_stream_free(s);
}

static void a_request_is_answered(void)
{
    struct pair p = pair_new(true);
    struct channel_stream *s = request(p.ch, "/bytes?10", false);
    const struct channel_head *head = NULL;

    REQUIRE(s);
    CHECK_INT(channel_stream_read_head(s, SOON, &head, NULL), 0);
    CHECK_INT(head->status, 200);
    CHECK_INT(head->n_headers, 2);
    CHECK_STR(head->headers[1].name, "x-test");
    CHECK_STR(head->headers[1].value, "yes");
    CHECK_INT(read_bytes(s, NULL), 10);
    channel_stream_free(s);
    s = request(p.ch, "/nothing", false);
    CHECK_INT(status_of(s), 404);
    CHECK_INT(read_bytes(s, NULL), 0);
    channel_stream_free(s);
    pair_done(&p);
}

static void much_data_comes_through_whole(void)
{
    struct pair p = pair_new(false);

    check_bytes(p.ch, 30 * 1000 * 1000 + 1);
    pair_done(&p);
}

struct echo {
    struct channel_stream *s;
    size_t len;
};

static void *echo_writer(void *arg)
{
    struct echo *x = arg;
    uint8_t chunk[30011];
    size_t sent = 0;

    while (sent < x->len) {
        size_t n = MIN(sizeof(chunk), x->len - sent);

        for (size_t i = 0; i < n; i++) {
            chunk[i] = (uint8_t)((sent + i) * 7);
        }
        if (channel_stream_write(x->s, chunk, n, SOON, NULL) < 0) {
            break;
        }
        sent += n;
    }
    channel_stream_finish(x->s);
    return NULL;
}

static void *echo_once(void *arg)
{
    struct channel *ch = arg;
    struct echo x = {.s = request(ch, "/echo", true), .len = 3 * 1000 * 1000};
    pthread_t writer;

    if (!x.s) {
        return NULL;
    }
    ASSERT(pthread_create(&writer, NULL, echo_writer, &x) == 0);
    CHECK_INT(status_of(x.s), 200);
    CHECK_INT(read_bytes(x.s, NULL), x.len);
    pthread_join(writer, NULL);
    channel_stream_free(x.s);
    return NULL;
}

static void many_threads_echo_at_once(void)
{
    struct pair p = pair_new(true);
    pthread_t threads[8];

    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        ASSERT(pthread_create(&threads[i], NULL, echo_once, p.ch) == 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    pair_done(&p);
}

static void slow_readers_hold_up_nobody(void)
{
    struct pair p = pair_new(true);
    struct channel_stream *slow[40];

    for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
        slow[i] = request(p.ch, "/bytes?3000000", false);
        REQUIRE(slow[i]);
        CHECK_INT(status_of(slow[i]), 200);
    }
    for (size_t i = 8; i < ARRAY_SIZE(slow); i++) {
        channel_stream_free(slow[i]); /* given up with bytes waiting */
    }
    check_bytes(p.ch, 5000000);
    for (size_t i = 0; i < 8; i++) {
        CHECK_INT(read_bytes(slow[i], NULL), 3000000);
        channel_stream_free(slow[i]);
    }
    pair_done(&p);
}

static void failures_are_typed(void)
{
    struct pair p = pair_new(true);
    struct channel_stream *s = request(p.ch, "/fail", false);
    char buf[16];
    struct err e = {0};
    ssize_t n = 0;

    REQUIRE(s);
    while ((n = channel_stream_read(s, buf, sizeof(buf), SOON, &e)) > 0) {
    }
    CHECK_INT(n, -EIO);
    CHECK_STR(e.reason, "stream_broken");
    channel_stream_free(s);

    s = request(p.ch, "/hang", false);
    CHECK_INT(channel_stream_read(s, buf, sizeof(buf), 0, &e), -EAGAIN);
    CHECK_INT(channel_stream_read(s, buf, sizeof(buf), deadline_in_ms(1), &e), -ETIMEDOUT);
    CHECK_STR(e.reason, "guest_timeout");
    channel_stream_cancel(s);
    CHECK_INT(channel_stream_read(s, buf, sizeof(buf), SOON, &e), -ECANCELED);
    channel_stream_free(s);

    s = request(p.ch, "bad target", false);
    CHECK(!s);
    test_failures = 0; /* that one had to fail */
    pair_done(&p);
}

static void an_early_answer_stops_the_writer(void)
{
    struct pair p = pair_new(true);
    struct channel_stream *s = request(p.ch, "/early", true);
    static char chunk[65536];
    struct err e = {0};
    int r;

    REQUIRE(s);
    do {
        r = channel_stream_write(s, chunk, sizeof(chunk), SOON, &e);
    } while (r == 0);
    CHECK_INT(r, -EPIPE);
    CHECK_INT(status_of(s), 413);
    CHECK_INT(channel_stream_read(s, chunk, sizeof(chunk), SOON, &e), 0);
    channel_stream_free(s);
    pair_done(&p);
}

static void polling_works_without_threads(void)
{
    struct pair p = pair_new(true);
    struct channel_stream *s = request(p.ch, "/echo", true);
    static uint8_t buf[65536];
    size_t sent = 0;
    size_t got = 0;
    const size_t all = 2000000;
    ssize_t n;

    REQUIRE(s);
    do {
        struct pollfd pfd = {.fd = channel_stream_fd(s), .events = POLLIN};

        CHECK_INT(poll(&pfd, 1, 20000), 1);
        channel_stream_clear(s);
        while (sent < all &&
               (n = channel_stream_write_some(s, buf, MIN(sizeof(buf), all - sent), NULL)) > 0) {
            sent += (size_t)n;
            if (sent == all) {
                channel_stream_finish(s);
            }
        }
        while ((n = channel_stream_read(s, buf, sizeof(buf), 0, NULL)) > 0) {
            got += (size_t)n;
        }
    } while (n == -EAGAIN);
    CHECK_INT(n, 0);
    CHECK_INT(got, all);
    channel_stream_free(s);
    pair_done(&p);
}

static void too_many_requests_are_refused(void)
{
    struct pair p = pair_new(true);
    static struct channel_stream *s[CHANNEL_STREAMS_MAX];
    struct channel_request q = {.method = "GET", .target = "/hang"};
    struct channel_stream *one = NULL;
    struct err e = {0};

    for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
        s[i] = request(p.ch, "/hang", false);
        REQUIRE(s[i]);
    }
    CHECK_INT(channel_request(p.ch, &q, SOON, &one, &e), -EBUSY);
    CHECK_STR(e.reason, "guest_busy");
    for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
        channel_stream_free(s[i]);
    }
    check_bytes(p.ch, 1000);
    pair_done(&p);
}

static void a_new_guest_ends_old_streams_and_serves_new_ones(void)
{
    struct pair p = pair_new(true);
    struct channel_stream *s = request(p.ch, "/hang", false);
    const struct channel_head *head = NULL;
    struct err e = {0};
    int fd;

    REQUIRE(s);
    check_bytes(p.ch, 1000); /* so that the other request is there too */
    fd = test_peer_free(p.peer);
    p.peer = test_peer_new(fd, true);
    CHECK_INT(channel_stream_read_head(s, SOON, &head, &e), -ECONNRESET);
    CHECK_STR(e.reason, "guest_gone");
    channel_stream_free(s);
    check_bytes(p.ch, 100000);
    pair_done(&p);
}

static bool await_streams(struct test_peer *peer, unsigned n)
{
    uint64_t deadline_ns = SOON;

    while (test_peer_streams(peer) != n && !deadline_passed(deadline_ns)) {
        sched_yield();
    }
    return test_peer_streams(peer) == n;
}

static void reset_starts_afresh(void)
{
    struct pair p = pair_new(true);
    struct channel_stream *s = request(p.ch, "/hang", false);
    const struct channel_head *head = NULL;
    struct err e = {0};

    REQUIRE(s);
    check_bytes(p.ch, 1000);
    CHECK(await_streams(p.peer, 1));
    channel_reset(p.ch);
    CHECK(await_streams(p.peer, 0)); /* the guest has let go of it too */
    CHECK_INT(channel_stream_read_head(s, SOON, &head, &e), -ECONNRESET);
    CHECK_STR(e.reason, "guest_gone");
    channel_stream_free(s);
    check_bytes(p.ch, 1000);
    pair_done(&p);
}

/* The host's bytes are lost anywhere, then it starts afresh, as after a restart or restore. */
static void cuts_at_random_places_heal(void)
{
    struct pair p = pair_new(true);
    unsigned seed = 1;

    for (int i = 0; i < 60; i++) {
        struct channel_stream *s = request(p.ch, "/echo", true);
        struct channel_stream *t = request(p.ch, "/bytes?1000000", false);
        static uint8_t data[200000];
        ssize_t n;

        REQUIRE(s && t);
        test_peer_drop(p.peer, (size_t)rand_r(&seed) % 3000);
        memset(data, i % 2 ? 0xf9 : 'x', sizeof(data));
        n = channel_stream_write_some(s, data, 1 + (size_t)rand_r(&seed) % sizeof(data), NULL);
        CHECK(n > 0 || n == -ECONNRESET || n == -EPROTO || n == -EIO);
        channel_reset(p.ch);
        channel_stream_free(s);
        channel_stream_free(t);
        test_peer_drop(p.peer,
                       i % 3 == 0 ? (size_t)rand_r(&seed) % 50 : 0); /* the HELLO itself is cut */
        CHECK_INT(channel_wait(p.ch, SOON, NULL), 0);
        test_peer_drop(p.peer, 0);
        channel_reset(p.ch);
        check_bytes(p.ch, 5000);
    }
    pair_done(&p);
}

static void without_a_guest_requests_wait_until_their_deadline(void)
{
    int fds[2];
    struct channel *ch = NULL;
    struct channel_request q = {.method = "GET", .target = "/"};
    struct channel_stream *s = NULL;
    struct err e = {0};

    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    ASSERT(channel_new(&(struct channel_options){.fd = fds[0]}, &ch, NULL) == 0);
    CHECK_INT(channel_request(ch, &q, deadline_in_ms(30), &s, &e), -ETIMEDOUT);
    CHECK_STR(e.reason, "guest_unreachable");
    close(fds[1]);
    CHECK_INT(channel_wait(ch, SOON, &e), -ECONNRESET);
    CHECK_STR(e.reason, "guest_gone");
    channel_free(ch);
}

static void *wait_for_head(void *arg)
{
    const struct channel_head *head = NULL;

    CHECK_INT(channel_stream_read_head(arg, SOON, &head, NULL), -ECONNRESET);
    return NULL;
}

static void closing_frees_those_who_wait(void)
{
    struct pair p = pair_new(true);
    struct channel_stream *s = request(p.ch, "/hang", false);
    pthread_t t;

    REQUIRE(s);
    ASSERT(pthread_create(&t, NULL, wait_for_head, s) == 0);
    channel_close(p.ch);
    pthread_join(t, NULL);
    channel_free(p.ch); /* the stream outlives it */
    p.ch = NULL;
    channel_stream_free(s);
    close(test_peer_free(p.peer));
}

static void a_reference_outlives_its_owner(void)
{
    struct pair p = pair_new(true);
    const struct channel_request q = {.method = "GET", .target = "/echo"};
    struct channel *mine = channel_ref(p.ch);
    struct channel_stream *s = request(p.ch, "/hang", false);
    struct channel_stream *late = NULL;
    struct err e = {0};

    REQUIRE(s);
    channel_free(p.ch); /* does not wait for us */
    CHECK_INT(channel_request(mine, &q, SOON, &late, &e), -ECONNRESET);
    CHECK_STR(e.reason, "guest_gone");
    channel_stream_free(s);
    channel_unref(mine);
    close(test_peer_free(p.peer));
}

TEST_MAIN(T(a_request_is_answered), T(much_data_comes_through_whole), T(many_threads_echo_at_once),
          T(slow_readers_hold_up_nobody), T(failures_are_typed),
          T(an_early_answer_stops_the_writer), T(polling_works_without_threads),
          T(too_many_requests_are_refused), T(a_new_guest_ends_old_streams_and_serves_new_ones),
          T(reset_starts_afresh), T(cuts_at_random_places_heal),
          T(without_a_guest_requests_wait_until_their_deadline), T(closing_frees_those_who_wait),
          T(a_reference_outlives_its_owner))
