/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server-http2.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUND_EVENTS 64
/* Taken per round and listener, so that those who are connected already get their turn. */
#define ACCEPT_BATCH 64
/* Out of descriptors: try again after that. */
#define ACCEPT_PAUSE_MS 100
/* A client that goes on sending after our last word is heard no longer than that. */
#define LINGER_MAX_BYTES (16u * 1024 * 1024)

/* epoll's data: a listener's number, this, or the address of a connection. */
#define TAG_WAKE SERVER_MAX_LISTENERS

static void watch(struct http_server *s, int op, int fd, uint32_t events, uint64_t tag)
{
    struct epoll_event ev = {.events = events, .data.u64 = tag};

    if (epoll_ctl(s->epoll_fd, op, fd, &ev) < 0) {
        log_error(NULL, "cannot watch a descriptor: %m");
    }
}

static void set_accepting(struct http_server *s, bool on)
{
    if (s->accepting == on) {
        return;
    }
    for (size_t i = 0; i < s->n_listeners; i++) {
        watch(s, EPOLL_CTL_MOD, s->listeners[i].fd, on ? EPOLLIN : 0, i);
    }
    s->accepting = on;
}

/* The loop thread's way to end a connection: freed when the round is over. */
static void bury_locked(struct http_conn *c)
{
    conn_move_locked(c, &c->server->dead);
    c->state = CONN_DEAD;
}

static void bury(struct http_conn *c)
{
    pthread_mutex_lock(&c->server->lock);
    bury_locked(c);
    pthread_mutex_unlock(&c->server->lock);
}

static void free_dead(struct http_server *s)
{
    while (!TAILQ_EMPTY(&s->dead)) {
        conn_free(TAILQ_FIRST(&s->dead));
    }
}

/* ---- what arrives ---- */

static void refuse(struct http_conn *c, enum http1_error why)
{
    conn_refuse(c, http1_error_status(why), "bad_request", http1_error_text(why));
    conn_linger(c);
}

static void submit(struct http_conn *c)
{
    bool queued;

    pthread_mutex_lock(&c->server->lock);
    queued = pool_submit_locked(c->server, c);
    pthread_mutex_unlock(&c->server->lock);
    if (!queued && c->http2) {
        bury(c);
    } else if (!queued) {
        conn_refuse(c, 503, "overloaded", "the server has too much to do, try again soon");
        conn_linger(c);
    }
}

/* Bytes have come: which protocol was agreed on? False: one for which there is no room any more. */
static bool agree(struct http_conn *c)
{
    c->http2 = c->io.ssl && c->io.alpn == IO_ALPN_BOTH && io_tls_is_http2(&c->io);
    return !c->http2 || http2_has_room(c->server, HTTP2_SHARE_TAKEN);
}

static void on_head_bytes(struct http_conn *c)
{
    for (;;) {
        int r =
            http1_scan(&c->scan, c->io.in_len ? io_data(&c->io) : "", c->io.in_len, &c->head_len);
        ssize_t n;

        if (r == 0) {
            submit(c);
            return;
        }
        if (r == -E2BIG) {
            refuse(c, c->scan.line == 0 ? HTTP1_TARGET_TOO_LONG : HTTP1_TOO_LARGE);
            return;
        }
        n = io_fill(&c->io, HTTP1_MAX_HEAD);
        if (n == -EAGAIN) {
            pthread_mutex_lock(&c->server->lock);
            io_trim(&c->io);
            conn_arm_locked(c, CONN_HEAD);
            pthread_mutex_unlock(&c->server->lock);
            return;
        }
        if (n == -EPROTO && c->io.is_plain) {
            io_tls_drop(&c->io);
            conn_refuse(c, 400, "https_expected",
                        "this port speaks TLS: write https:// for http://");
            conn_linger(c);
            return;
        }
        if (n <= 0 || !agree(c)) {
            bury(c);
            return;
        }
        if (c->http2) {
            submit(c);
            return;
        }
    }
}

static void on_linger_bytes(struct http_conn *c)
{
    char sink[16 * 1024];

    for (;;) {
        ssize_t n = io_recv(&c->io, sink, sizeof(sink));

        if (n == -EAGAIN) {
            break;
        }
        if (n <= 0 || (c->lingered += (uint64_t)n) > LINGER_MAX_BYTES) {
            bury(c);
            return;
        }
    }
    pthread_mutex_lock(&c->server->lock);
    conn_arm_locked(c, CONN_LINGER);
    pthread_mutex_unlock(&c->server->lock);
}

/* ---- new connections ---- */

static void name_peer(struct http_conn *c, const struct sockaddr *a)
{
    char text[INET6_ADDRSTRLEN] = "?";

    if (c->has_peer) {
        snprintf(c->peer_name, sizeof(c->peer_name), "uid %u pid %d", c->peer.uid, c->peer.pid);
    } else if (a->sa_family == AF_INET) {
        struct sockaddr_in v4;

        memcpy(&v4, a, sizeof(v4));
        inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
        snprintf(c->peer_name, sizeof(c->peer_name), "%s:%u", text, ntohs(v4.sin_port));
    } else if (a->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;

        memcpy(&v6, a, sizeof(v6));
        inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
        snprintf(c->peer_name, sizeof(c->peer_name), "[%s]:%u", text, ntohs(v6.sin6_port));
    }
}

/* Reads who it is; false when that one may not come in. */
static bool admit(struct http_server *s, const struct listener *l, struct http_conn *c)
{
    socklen_t len = sizeof(c->peer);
    int one = 1;

    if (l->tcp) {
        if (setsockopt(c->io.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0) {
            log_debug(NULL, "cannot set TCP_NODELAY, ignoring: %m");
        }
        return true;
    }
    if (getsockopt(c->io.fd, SOL_SOCKET, SO_PEERCRED, &c->peer, &len) < 0) {
        return false;
    }
    c->has_peer = true;
    return !l->peer_allowed || l->peer_allowed(&c->peer, s->opts.ctx);
}

/*
 * Room for one more: at the limit the connection that has been silent longest goes; when none is silent, the
 * one whose head has been on its way longest. An honest head is whole after a moment, so those that
 * dribble theirs to fill every place push out each other.
 */
static bool make_room(struct http_server *s)
{
    bool room = true;

    pthread_mutex_lock(&s->lock);
    if (s->n_conns >= s->opts.max_connections) {
        struct conn_list *from = TAILQ_EMPTY(&s->waiting) ? &s->heads : &s->waiting;

        room = !TAILQ_EMPTY(from);
        if (room) {
            bury_locked(TAILQ_FIRST(from));
        }
    }
    s->n_conns++;
    pthread_mutex_unlock(&s->lock);
    return room;
}

static void add_connection(struct http_server *s, const struct listener *l, int fd,
                           const struct sockaddr *a)
{
    struct http_conn *c = xnew(struct http_conn);
    bool room = make_room(s);

    c->server = s;
    io_init_take(&c->io, fd);
    if (!admit(s, l, c)) {
        name_peer(c, a);
        log_warn(NULL, "refusing a connection: %s may not use this socket", c->peer_name);
        conn_refuse(c, 403, "peer_not_allowed", "this user may not use this socket");
        conn_free(c);
        return;
    }
    if (!room) { /* in plain text also where TLS is spoken: it is closed in any case */
        conn_refuse(c, 503, "overloaded", "the server has too many connections, try again soon");
        conn_free(c);
        return;
    }
    name_peer(c, a);
    if (l->tls) {
        c->secure = true;
        c->io.alpn =
            s->opts.http2 && http2_has_room(s, HTTP2_SHARE_OFFERED) ? IO_ALPN_BOTH : IO_ALPN_HTTP1;
        io_tls_begin(&c->io, l->tls);
    }
    on_head_bytes(c);
}

static void on_accept(struct http_server *s, const struct listener *l)
{
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        struct sockaddr_storage a = {0};
        socklen_t len = sizeof(a);
        int fd = accept4(l->fd, (struct sockaddr *)&a, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            add_connection(s, l, fd, (struct sockaddr *)&a);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            log_warn(NULL, "cannot accept a connection, retrying: %m");
            s->accept_again_ns = deadline_in_ms(ACCEPT_PAUSE_MS);
            set_accepting(s, false);
            return;
        }
        /* Else: that connection is gone already; the next one. */
    }
}

/* ---- time ---- */

static void expire_list_locked(struct http_server *s, struct conn_list *list, uint64_t now_ns)
{
    while (!TAILQ_EMPTY(list) && TAILQ_FIRST(list)->deadline_ns <= now_ns) {
        struct http_conn *c = TAILQ_FIRST(list);

        if (list == &s->heads && !c->http2) {
            conn_refuse(c, 408, "request_timeout", "the request did not arrive in time");
        }
        bury_locked(c);
    }
}

static void expire(struct http_server *s)
{
    uint64_t now_ns = clock_now_ns();

    pthread_mutex_lock(&s->lock);
    expire_list_locked(s, &s->waiting, now_ns);
    expire_list_locked(s, &s->heads, now_ns);
    expire_list_locked(s, &s->lingers, now_ns);
    pthread_mutex_unlock(&s->lock);
    if (s->accept_again_ns && s->accept_again_ns <= now_ns) {
        s->accept_again_ns = 0;
        set_accepting(s, true);
    }
}

static uint64_t next_deadline(struct http_server *s)
{
    const struct conn_list *lists[] = {&s->waiting, &s->heads, &s->lingers};
    uint64_t next = s->accept_again_ns ? s->accept_again_ns : DEADLINE_NEVER;

    pthread_mutex_lock(&s->lock);
    if (s->n_conns > 0) {
        /*
         * A pool thread may give a connection back while we sleep: it cannot time out before this.
         */
        next = MIN(next, deadline_in_ms(MIN(s->opts.idle_timeout_ms, s->opts.head_timeout_ms)));
    }
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        if (!TAILQ_EMPTY(lists[i])) {
            next = MIN(next, TAILQ_FIRST(lists[i])->deadline_ns);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return next;
}

/* The event makes c ours; the lock makes us see what the pool thread that armed it has written. */
static enum conn_state claim(struct http_conn *c)
{
    enum conn_state state;

    pthread_mutex_lock(&c->server->lock);
    state = c->state;
    pthread_mutex_unlock(&c->server->lock);
    return state;
}

static void handle_connection(struct http_conn *c)
{
    switch (claim(c)) {
    case CONN_HEAD:
        on_head_bytes(c);
        break;
    case CONN_LINGER:
        on_linger_bytes(c);
        break;
    default:
        ASSERT(c->state == CONN_DEAD); /* buried in this round */
        break;
    }
}

static void handle_event(struct http_server *s, const struct epoll_event *ev)
{
    if (ev->data.u64 < SERVER_MAX_LISTENERS) {
        if (s->accepting) {
            on_accept(s, &s->listeners[ev->data.u64]);
        }
    } else if (ev->data.u64 == TAG_WAKE) {
        uint64_t count;

        IGNORE_RESULT(read(s->wake_fd, &count, sizeof(count))); /* only to empty it */
    } else {
        handle_connection(ev->data.ptr);
    }
}

static void run_round(struct http_server *s, uint64_t deadline_ns)
{
    struct epoll_event events[ROUND_EVENTS];
    int n = epoll_wait(s->epoll_fd, events, ROUND_EVENTS,
                       deadline_poll_ms(MIN(deadline_ns, next_deadline(s))));

    ASSERT(n >= 0 || errno == EINTR);
    for (int i = 0; i < n; i++) {
        handle_event(s, &events[i]);
    }
    expire(s);
    free_dead(s);
}

/* ---- the end ---- */

static void close_listeners(struct http_server *s)
{
    for (size_t i = 0; i < s->n_listeners; i++) {
        listener_done(&s->listeners[i]);
    }
    s->n_listeners = 0;
    s->accepting = false;
    s->accept_again_ns = 0;
}

static void bury_list_locked(struct conn_list *list)
{
    while (!TAILQ_EMPTY(list)) {
        bury_locked(TAILQ_FIRST(list));
    }
}

/* Whoever has no request running is not waited for. */
static void drop_idle(struct http_server *s)
{
    pthread_mutex_lock(&s->lock);
    bury_list_locked(&s->waiting);
    bury_list_locked(&s->heads);
    pthread_mutex_unlock(&s->lock);
    free_dead(s);
}

static void cut_running(struct http_server *s)
{
    struct http_conn *c;

    pthread_mutex_lock(&s->lock);
    bury_list_locked(&s->queue);
    bury_list_locked(&s->lingers);
    TAILQ_FOREACH(c, &s->running, entry)
    {
        shutdown(c->io.fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&s->lock);
    free_dead(s);
}

static size_t count_conns(struct http_server *s)
{
    size_t n;

    pthread_mutex_lock(&s->lock);
    n = s->n_conns;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void drain(struct http_server *s)
{
    uint64_t deadline_ns = deadline_in_ms(s->opts.drain_timeout_ms);

    close_listeners(s);
    drop_idle(s);
    while (count_conns(s) > 0) {
        if (deadline_passed(deadline_ns)) {
            cut_running(s);
            deadline_ns = DEADLINE_NEVER; /* the handlers see it and return */
        }
        run_round(s, deadline_ns);
        drop_idle(s);
    }
}

void server_loop_run(struct http_server *s)
{
    for (size_t i = 0; i < s->n_listeners; i++) {
        watch(s, EPOLL_CTL_ADD, s->listeners[i].fd, 0, i);
    }
    watch(s, EPOLL_CTL_ADD, s->wake_fd, EPOLLIN, TAG_WAKE);
    set_accepting(s, true);
    while (!atomic_load(&s->stopping)) {
        run_round(s, DEADLINE_NEVER);
    }
    drain(s);
}
