/* SPDX-License-Identifier: Apache-2.0 */
/* The port route of the whole daemon, through the real channel, against servers of ours on this host's loopback. */
#include "base/clock.h"
#include "base/json.h"
#include "base/sock.h"
#include "base/test.h"
#include "daemon/guest-harness.h"
#include "daemon/port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BULK (5u * 1024 * 1024)

/* A listening socket on a free port of loopback. */
static int listener(int family, uint16_t *ret_port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr *a = family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
    socklen_t len = family == AF_INET ? sizeof(v4) : sizeof(v6);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, a, len) < 0) {
        return fd_close(fd);
    }
    ASSERT(listen(fd, 16) == 0 && getsockname(fd, a, &len) == 0);
    *ret_port = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
    return fd;
}

static struct channel_stream *dial(struct guest *g, const char *target)
{
    struct channel_request q = {.method = "POST", .target = target, .has_body = true};
    struct channel_stream *s = NULL;

    ASSERT(channel_request(g->ch, &q, SOON, &s, NULL) == 0);
    return s;
}

static struct channel_stream *dial_port(struct guest *g, uint16_t port)
{
    char target[64];

    snprintf(target, sizeof(target), "/ports/%u", port);
    return dial(g, target);
}

/* The word of a refusal. */
static void check_refused(struct channel_stream *s, int status, const char *code)
{
    cleanup_json json_t *json = NULL;
    char text[1000];
    size_t len = 0;
    ssize_t n;

    CHECK_INT(status_of(s), status);
    while ((n = channel_stream_read(s, text + len, sizeof(text) - len, SOON, NULL)) > 0) {
        len += (size_t)n;
    }
    CHECK_INT(n, 0);
    CHECK_INT(json_parse_object(text, len, &json, NULL), 0);
    CHECK_STR(json_get_string(json_object_get(json, "error"), "code", ""), code);
}

static char pattern(size_t i)
{
    return (char)(i * 2654435761u >> 11);
}

/* Everything is said again, until the client has ended. */
static void *echo_main(void *arg)
{
    const int *listen_fd = arg;
    cleanup_close int fd = accept4(*listen_fd, NULL, NULL, SOCK_CLOEXEC);
    static char data[65536];
    ssize_t n;

    while ((n = recv(fd, data, sizeof(data), 0)) > 0) {
        if (sock_send_all(fd, data, (size_t)n, SOON) < 0) {
            break;
        }
    }
    return NULL;
}

static void *send_main(void *arg)
{
    static char data[BULK];

    for (size_t i = 0; i < BULK; i++) {
        data[i] = pattern(i);
    }
    CHECK_INT(channel_stream_write(arg, data, BULK, SOON, NULL), 0);
    channel_stream_finish(arg);
    return NULL;
}

static void check_echo(int family)
{
    struct guest g = guest_start();
    uint16_t port = 0;
    cleanup_close int fd = listener(family, &port);
    struct channel_stream *s;
    pthread_t server;
    pthread_t sender;
    static char data[65536];
    size_t got = 0;
    ssize_t n = 0;
    bool same = true;

    if (fd < 0) { /* a host without IPv6 */
        guest_stop(&g);
        return;
    }
    ASSERT(pthread_create(&server, NULL, echo_main, &fd) == 0);
    s = dial_port(&g, port);
    CHECK_INT(status_of(s), 200);
    ASSERT(pthread_create(&sender, NULL, send_main, s) == 0);
    while ((n = channel_stream_read(s, data, sizeof(data), SOON, NULL)) > 0) {
        for (size_t i = 0; i < (size_t)n; i++, got++) {
            same = same && data[i] == pattern(got);
        }
    }
    CHECK_INT(n, 0);
    CHECK_INT(got, BULK);
    CHECK(same);
    pthread_join(sender, NULL);
    pthread_join(server, NULL);
    channel_stream_free(s);
    guest_stop(&g);
}

static void bytes_go_both_ways_and_ends_are_passed_on(void)
{
    check_echo(AF_INET);
}

static void a_server_on_the_other_loopback_is_found(void)
{
    check_echo(AF_INET6);
}

static void nothing_listens(void)
{
    struct guest g = guest_start();
    uint16_t port = 0;
    int fd = listener(AF_INET, &port);
    struct channel_stream *s;

    close(fd);
    s = dial_port(&g, port);
    check_refused(s, 502, "port_closed");
    channel_stream_free(s);
    guest_stop(&g);
}

static void nonsense_is_refused(void)
{
    static const char *const targets[] = {"/ports/0",
                                          "/ports/65536",
                                          "/ports/x",
                                          "/ports/+1",
                                          "/ports/1.5",
                                          "/ports/1?wait_ms=-1",
                                          "/ports/1?wait_ms=30001"};
    struct guest g = guest_start();

    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        struct channel_stream *s = dial(&g, targets[i]);

        check_refused(s, 400, "invalid_request");
        channel_stream_free(s);
    }
    guest_stop(&g);
}

static void a_server_that_starts_later_is_waited_for(void)
{
    struct guest g = guest_start();
    uint16_t port = 0;
    cleanup_close int fd = listener(AF_INET, &port);
    cleanup_close int again = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct channel_stream *s;
    char target[64];
    int one = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd = fd_close(fd);
    snprintf(target, sizeof(target), "/ports/%u?wait_ms=30000", port);
    s = dial(&g, target);
    {
        const struct channel_head *head = NULL;

        CHECK_INT(channel_stream_read_head(s, deadline_in_ms(3 * PORT_RETRY_MS), &head, NULL),
                  -ETIMEDOUT); /* it has been refused, and goes on */
    }
    ASSERT(setsockopt(again, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
           bind(again, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(again, 4) == 0);
    CHECK_INT(status_of(s), 200);
    channel_stream_free(s);
    guest_stop(&g);
}

static void a_break_is_no_end(void)
{
    struct guest g = guest_start();
    uint16_t port = 0;
    cleanup_close int fd = listener(AF_INET, &port);
    struct channel_stream *s = dial_port(&g, port);
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    char data[10];
    int conn;

    CHECK_INT(status_of(s), 200);
    conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    ASSERT(conn >= 0 && setsockopt(conn, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) == 0);
    close(conn);
    CHECK_INT(channel_stream_read(s, data, sizeof(data), SOON, NULL), -EIO);
    channel_stream_free(s);
    guest_stop(&g);
}

static void the_client_going_away_closes_the_connection(void)
{
    struct guest g = guest_start();
    uint16_t port = 0;
    cleanup_close int fd = listener(AF_INET, &port);
    struct channel_stream *s = dial_port(&g, port);
    cleanup_close int conn = FD_NONE;
    char data[10];

    CHECK_INT(status_of(s), 200);
    conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    channel_stream_free(s);
    CHECK(sock_recv(conn, data, sizeof(data), SOON) <= 0);
    guest_stop(&g);
}

static void there_is_a_limit_and_it_heals(void)
{
    struct guest g = guest_start();
    uint16_t port = 0;
    cleanup_close int fd = listener(AF_INET, &port);
    struct channel_stream *all[PORT_TUNNELS_MAX];
    int conns[PORT_TUNNELS_MAX];
    struct channel_stream *more;

    for (size_t i = 0; i < PORT_TUNNELS_MAX; i++) {
        all[i] = dial_port(&g, port);
        CHECK_INT(status_of(all[i]), 200);
        conns[i] = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    }
    more = dial_port(&g, port);
    check_refused(more, 429, "too_many_connections");
    channel_stream_free(more);
    close(conns[0]); /* the server ends one: its place is free when that has been told */
    {
        char data[10];

        CHECK_INT(channel_stream_read(all[0], data, sizeof(data), SOON, NULL), 0);
    }
    more = dial_port(&g, port);
    CHECK_INT(status_of(more), 200);
    channel_stream_free(more);
    for (size_t i = 0; i < PORT_TUNNELS_MAX; i++) {
        channel_stream_free(all[i]);
        if (i > 0) {
            close(conns[i]);
        }
    }
    guest_stop(&g);
}

TEST_MAIN(T(bytes_go_both_ways_and_ends_are_passed_on), T(a_server_on_the_other_loopback_is_found),
          T(nothing_listens), T(nonsense_is_refused), T(a_server_that_starts_later_is_waited_for),
          T(a_break_is_no_end), T(the_client_going_away_closes_the_connection),
          T(there_is_a_limit_and_it_heals))
