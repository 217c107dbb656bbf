/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/port.h"

#include "base/clock.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

/* Read in one go, and so often before others get their turn. */
#define PIECE (64u * 1024)
#define TURNS 4

struct tunnel {
    struct ports *ports; /* borrowed: lives longer */
    struct request *req; /* borrowed: until on_close */
    TAILQ_ENTRY(tunnel) entry;
    uint16_t port;
    uint64_t deadline_ns;     /* no further attempt after this */
    int family;               /* of the attempt under way */
    int fd;                   /* owned */
    struct loop_io *io;       /* owned */
    struct loop_timer *timer; /* owned: the next attempt, or the end of this one */
    bool connected;
    bool input_ended;  /* the server was told so */
    bool input_broken; /* the server takes no more */
    bool want_out;     /* the server's buffer is full */
    bool full;         /* ours to the client is */
};

TAILQ_HEAD(tunnels, tunnel);

struct ports {
    struct loop *loop; /* borrowed: lives longer */
    struct tunnels open;
    unsigned n_open;
    uint64_t n_opened;
};

static void tunnel_hang_up(struct tunnel *t)
{
    loop_io_free(t->io);
    t->io = NULL;
    t->fd = fd_close(t->fd);
}

static void tunnel_free(struct tunnel *t)
{
    tunnel_hang_up(t);
    loop_timer_free(t->timer);
    TAILQ_REMOVE(&t->ports->open, t, entry);
    t->ports->n_open--;
    free(t);
}

/* ---- moving bytes ---- */

/* Full is not asked at all: a hang-up is reported whether it is asked for or not, and would be for ever. */
static void tunnel_watch(struct tunnel *t)
{
    if (t->io) {
        loop_io_set(t->io, (t->full ? 0 : EPOLLIN) | (t->want_out ? EPOLLOUT : 0));
    }
}

static void tunnel_write(struct tunnel *t)
{
    size_t len = 0;
    const void *data = request_body_peek(t->req, &len);

    t->want_out = false;
    while (len > 0 && !t->want_out) {
        ssize_t n =
            t->input_broken ? (ssize_t)len : send(t->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EAGAIN) {
            t->want_out = true;
        } else if (n < 0 && errno != EINTR) {
            t->input_broken = true; /* what it has said before is still read */
        } else if (n > 0) {
            request_body_consume(t->req, (size_t)n);
            data = request_body_peek(t->req, &len);
        }
    }
    if (request_body_ended(t->req) && !t->input_ended) {
        t->input_ended = true;
        if (shutdown(t->fd, SHUT_WR) < 0) {
            t->input_broken = true;
        }
    }
}

static void tunnel_read(struct tunnel *t)
{
    for (int i = 0; i < TURNS; i++) {
        size_t room = 0;
        void *to = request_write_reserve(t->req, PIECE, &room);
        ssize_t n;

        t->full = room == 0;
        if (t->full) {
            return;
        }
        n = recv(t->fd, to, room, MSG_DONTWAIT);
        if (n > 0) {
            request_write_commit(t->req, (size_t)n);
        } else if (n == 0) {
            tunnel_hang_up(t);
            request_end(t->req);
            return;
        } else if (errno != EINTR) {
            if (errno != EAGAIN) {
                tunnel_hang_up(t);
                request_abort(t->req);
            }
            return;
        }
    }
}

static void on_readable(struct request *req)
{
    struct tunnel *t = request_state(req);

    if (t->io && t->connected) {
        tunnel_write(t);
        tunnel_watch(t);
    }
}

static void on_writable(struct request *req)
{
    struct tunnel *t = request_state(req);

    if (t->io && t->connected) {
        tunnel_read(t);
        tunnel_watch(t);
    }
}

static void on_close(struct request *req)
{
    tunnel_free(request_state(req));
}

/* ---- connecting ---- */

static void attempt(struct tunnel *t, int family);

static void refuse(struct tunnel *t)
{
    struct err e = {0};

    tunnel_hang_up(t);
    loop_timer_set(t->timer, DEADLINE_NEVER);
    err_set(&e, -ECONNREFUSED, "port_closed", "nothing in the sandbox listens on port %u", t->port);
    request_reply_error(t->req, &e);
}

/* This address does not take the connection: the other one, or both again in a moment. */
static void attempt_failed(struct tunnel *t)
{
    bool first = t->family == AF_INET;

    tunnel_hang_up(t);
    if (first) {
        attempt(t, AF_INET6);
    } else if (deadline_passed(t->deadline_ns)) {
        refuse(t);
    } else {
        loop_timer_set(t->timer, MIN(deadline_in_ms(PORT_RETRY_MS), t->deadline_ns));
    }
}

static void connected(struct tunnel *t)
{
    t->connected = true;
    t->ports->n_opened++;
    loop_timer_set(t->timer, DEADLINE_NEVER);
    request_begin(t->req, 200, "application/octet-stream", /* headers */ NULL, 0);
    tunnel_write(t);
    tunnel_watch(t);
}

static void on_socket(void *arg, uint32_t events)
{
    struct tunnel *t = arg;
    socklen_t len = sizeof(int);
    int failure = 0;

    if (!t->connected) {
        if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &failure, &len) < 0 || failure != 0) {
            attempt_failed(t);
        } else {
            connected(t);
        }
        return;
    }
    if (events & EPOLLOUT) {
        tunnel_write(t);
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        tunnel_read(t);
    }
    tunnel_watch(t);
}

static void on_timer(void *arg)
{
    struct tunnel *t = arg;

    if (t->io) {
        attempt_failed(t); /* it has had its time */
    } else {
        attempt(t, AF_INET);
    }
}

static int loopback(struct sockaddr_storage *ret, int family, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};

    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (family == AF_INET) {
        memcpy(ret, &v4, sizeof(v4));
        return sizeof(v4);
    }
    memcpy(ret, &v6, sizeof(v6));
    return sizeof(v6);
}

static void attempt(struct tunnel *t, int family)
{
    struct sockaddr_storage a = {0};
    int len = loopback(&a, family, t->port);
    int one = 1;

    t->family = family;
    t->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->fd < 0) { /* a kernel without IPv6, or no descriptor is left */
        t->fd = FD_NONE;
        attempt_failed(t);
        return;
    }
    if (setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
        (connect(t->fd, (struct sockaddr *)&a, (socklen_t)len) < 0 && errno != EINPROGRESS)) {
        attempt_failed(t);
        return;
    }
    loop_timer_set(t->timer, deadline_in_ms(PORT_CONNECT_MS));
    t->io = loop_add_io(t->ports->loop, t->fd, EPOLLOUT, on_socket, t);
}

/* ---- the route ---- */

static int port_of(const struct request *req, uint16_t *ret, struct err *e)
{
    uint64_t port = 0;

    if (str_to_u64(request_capture(req, 0), UINT16_MAX, &port) < 0 || port == 0) {
        return err_field(e, -EINVAL, "invalid_request", "port",
                         "'port' must be a number from 1 to %d", UINT16_MAX);
    }
    *ret = (uint16_t)port;
    return 0;
}

static int tunnel_new(struct request *req, struct tunnel **ret, struct err *e)
{
    struct ports *ports = module_state(request_daemon(req), &port_module);
    struct tunnel *t;
    uint64_t wait_ms = 0;
    uint16_t port = 0;
    int r = port_of(req, &port, e);

    if (r == 0) {
        r = request_query_u64(req, "wait_ms", 0, PORT_WAIT_MS_MAX, &wait_ms, e);
    }
    if (r == 0 && ports->n_open >= PORT_TUNNELS_MAX) {
        r = err_set(e, -EUSERS, "too_many_connections",
                    "%u connections to the ports of this sandbox are open already", ports->n_open);
    }
    if (r < 0) {
        return r;
    }
    t = xnew(struct tunnel);
    t->ports = ports;
    t->req = req;
    t->port = port;
    t->deadline_ns = deadline_in_ms((unsigned)wait_ms);
    t->fd = FD_NONE;
    t->timer = loop_add_timer(ports->loop, on_timer, t);
    TAILQ_INSERT_TAIL(&ports->open, t, entry);
    ports->n_open++;
    *ret = t;
    return 0;
}

static void post_port(struct request *req)
{
    static const struct request_callbacks callbacks = {on_readable, on_writable, on_close};
    struct tunnel *t = NULL;
    struct err e = {0};

    if (tunnel_new(req, &t, &e) < 0) {
        request_reply_error(req, &e);
        return;
    }
    request_set_state(req, t, &callbacks);
    attempt(t, AF_INET);
}

static const struct route routes[] = {
    {"POST", "/ports/{port}", ROUTE_NEEDS_WORKLOAD, post_port},
};

/* ---- the module ---- */

static int port_init(struct daemon *d, void **ret_state, struct err *e)
{
    struct ports *ports = xnew(struct ports);

    (void)e;
    ports->loop = d->loop;
    TAILQ_INIT(&ports->open);
    *ret_state = ports;
    return 0;
}

static void port_teardown(struct daemon *d, void *state)
{
    const struct ports *ports = state;
    struct tunnel *t;

    (void)d;
    TAILQ_FOREACH(t, &ports->open, entry)
    {
        tunnel_hang_up(t);
        loop_timer_set(t->timer, DEADLINE_NEVER);
        request_abort(t->req);
    }
}

static void port_metrics(struct daemon *d, void *state, json_t *obj)
{
    const struct ports *ports = state;

    (void)d;
    json_object_set_new(
        obj, "ports",
        json_pack("{s:i, s:I}", "open", (int)ports->n_open, "opened", (json_int_t)ports->n_opened));
}

static void port_done(struct daemon *d, void *state)
{
    const struct ports *ports = state;

    (void)d;
    ASSERT(TAILQ_EMPTY(&ports->open)); /* the channel has gone before */
    free(state);
}

const struct module port_module = {
    .name = "ports",
    .routes = routes,
    .n_routes = ARRAY_SIZE(routes),
    .init = port_init,
    .teardown = port_teardown,
    .metrics = port_metrics,
    .done = port_done,
};
