/* SPDX-License-Identifier: Apache-2.0 */
#include "http/client-internal.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

void client_conn_free(struct client_conn *conn)
{
    if (conn) {
        io_done(&conn->io);
        free(conn);
    }
}

/* ---- the pool ---- */

/*
 * A server says nothing to an idle connection but that it is closed; TLS has things of its own to
 * say.
 */
static bool looks_alive(struct client_conn *conn)
{
    struct pollfd p = {.fd = conn->io.fd, .events = POLLIN | POLLRDHUP};

    if (conn->io.in_len > 0) {
        return false;
    }
    if (poll(&p, 1, 0) == 0) {
        return true;
    }
    return conn->io.ssl && p.revents == POLLIN && io_fill(&conn->io, 1) == -EAGAIN;
}

static struct client_conn *take_idle(struct http_client *c)
{
    uint64_t oldest_ns = clock_now_ns() - (uint64_t)c->opts.idle_timeout_ms * NS_PER_MS;
    struct client_conn *conn;

    for (;;) {
        pthread_mutex_lock(&c->lock);
        conn = TAILQ_FIRST(&c->idle);
        if (conn) {
            TAILQ_REMOVE(&c->idle, conn, entry);
            c->n_idle--;
        }
        pthread_mutex_unlock(&c->lock);
        if (!conn || (conn->idle_since_ns >= oldest_ns && looks_alive(conn))) {
            return conn;
        }
        client_conn_free(conn);
    }
}

void client_release_take(struct http_client *c, struct client_conn *conn)
{
    struct client_conn *surplus = NULL;

    conn->idle_since_ns = clock_now_ns();
    io_trim(&conn->io);
    pthread_mutex_lock(&c->lock);
    TAILQ_INSERT_HEAD(&c->idle, conn, entry);
    if (++c->n_idle > c->opts.max_idle) {
        surplus = TAILQ_LAST(&c->idle, client_conns);
        TAILQ_REMOVE(&c->idle, surplus, entry);
        c->n_idle--;
    }
    pthread_mutex_unlock(&c->lock);
    client_conn_free(surplus);
}

void http_client_drop_idle(struct http_client *c)
{
    struct client_conns dropped = TAILQ_HEAD_INITIALIZER(dropped);

    pthread_mutex_lock(&c->lock);
    TAILQ_CONCAT(&dropped, &c->idle, entry);
    c->n_idle = 0;
    pthread_mutex_unlock(&c->lock);
    while (!TAILQ_EMPTY(&dropped)) {
        struct client_conn *conn = TAILQ_FIRST(&dropped);

        TAILQ_REMOVE(&dropped, conn, entry);
        client_conn_free(conn);
    }
}

/* ---- connecting ---- */

/*
 * Nobody is there: never to be mistaken for an answer that says "not found" or "permission denied".
 */
static int unavailable(struct err *e, int code, const char *server)
{
    const char *text = strerrordesc_np(-code);

    if (code == -ECANCELED) {
        return err_set(e, code, "client_gone", "the call was given up");
    }
    return err_set(e, code == -ENOENT ? -ECONNREFUSED : code, "unavailable",
                   "cannot connect to %s: %s", server, text ? text : "unknown error");
}

/*
 * connect(2) on a unix socket waits only while the listener's queue is full; the send timeout
 * bounds that.
 */
static int connect_unix(const struct http_client *c, const struct io_wait *wait, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int ms = deadline_poll_ms(wait->deadline_ns);
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000 + 1};

    if (str_copy(a.sun_path, sizeof(a.sun_path), c->url.path) < 0) {
        return err_set(e, -ENAMETOOLONG, NULL, "the socket path '%s' is longer than %zu bytes",
                       c->url.path, sizeof(a.sun_path) - 1);
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) < 0) {
        return err_wrap(e, -errno, "making a socket");
    }
    while (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        if (errno != EINTR) {
            return unavailable(e, errno == EAGAIN ? -ETIMEDOUT : -errno, c->url.path);
        }
    }
    return TAKE_FD(fd);
}

static int connect_address(const struct addrinfo *a, const struct io_wait *wait)
{
    cleanup_close int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1;
    int failure = 0;
    socklen_t len = sizeof(failure);

    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0) {
        return -errno;
    }
    if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
        struct http_io io = {.fd = fd};
        int r;

        if (errno != EINPROGRESS && errno != EINTR) {
            return -errno;
        }
        r = io_wait(&io, POLLOUT, wait);
        if (r < 0) {
            return r;
        }
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len) < 0 || failure != 0) {
            return failure ? -failure : -errno;
        }
    }
    return TAKE_FD(fd);
}

static int connect_tcp(const struct http_client *c, const struct io_wait *wait, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const char *host = c->url.host[0] ? c->url.host : "localhost";
    struct addrinfo *found = NULL;
    char port[8];
    int r;

    snprintf(port, sizeof(port), "%u", c->url.port);
    r = getaddrinfo(host, port, &hints, &found);
    if (r != 0) {
        return err_set(e, -EHOSTDOWN, "unavailable", "looking up '%s': %s", host, gai_strerror(r));
    }
    r = -EHOSTDOWN;
    for (const struct addrinfo *a = found; a && r < 0 && r != -ETIMEDOUT && r != -ECANCELED;
         a = a->ai_next) {
        if (!c->opts.address_allowed || c->opts.address_allowed(a->ai_addr)) {
            r = connect_address(a, wait);
        }
    }
    freeaddrinfo(found);
    return r < 0 ? unavailable(e, r, c->host_field) : r;
}

static int connect_new(struct http_client *c, const struct io_wait *call_wait,
                       struct client_conn **ret, struct err *e)
{
    struct io_wait wait = *call_wait;
    struct client_conn *conn;
    int r;

    wait.deadline_ns = MIN(wait.deadline_ns, deadline_in_ms(c->opts.connect_timeout_ms));
    r = c->url.scheme == URL_UNIX ? connect_unix(c, &wait, e) : connect_tcp(c, &wait, e);
    if (r < 0) {
        return r;
    }
    conn = xnew(struct client_conn);
    io_init_take(&conn->io, r);
    if (c->url.scheme == URL_HTTPS) {
        SSL_CTX *tls = c->opts.tls ? io_tls_current(c->opts.tls) : c->tls;

        r = io_tls_connect(&conn->io, tls, c->url.host, &wait, e);
        if (c->opts.tls) {
            SSL_CTX_free(tls);
        }
        if (r < 0) {
            client_conn_free(conn);
            return r;
        }
    }
    *ret = conn;
    return 0;
}

int client_acquire(struct http_client *c, bool fresh, const struct io_wait *wait,
                   struct client_conn **ret, bool *ret_reused, struct err *e)
{
    struct client_conn *conn = fresh ? NULL : take_idle(c);
    int r;

    if (conn) {
        *ret = conn;
        *ret_reused = true;
        return 0;
    }
    r = connect_new(c, wait, ret, e);
    if (r == 0) {
        *ret_reused = false;
    }
    return r;
}

/* ---- life ---- */

static char *make_host_field(const struct url *url)
{
    bool v6 = strchr(url->host, ':');
    bool usual = url->port == (url->scheme == URL_HTTPS ? 443 : 80);
    const char *host = url->host[0] ? url->host : "localhost";

    if (url->scheme == URL_UNIX) {
        return xstrdup("localhost");
    }
    if (usual) {
        return xasprintf("%s%s%s", v6 ? "[" : "", host, v6 ? "]" : "");
    }
    return xasprintf("%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", url->port);
}

int http_client_new(const char *url, const struct http_client_opts *opts, struct http_client **ret,
                    struct err *e)
{
    CLEANUP(http_client_freep) struct http_client *c = xnew(struct http_client);
    int r;

    c->opts = opts ? *opts : (struct http_client_opts){0};
    c->opts.max_idle = c->opts.max_idle ? c->opts.max_idle : 8;
    c->opts.connect_timeout_ms = c->opts.connect_timeout_ms ? c->opts.connect_timeout_ms : 5000;
    c->opts.idle_timeout_ms = c->opts.idle_timeout_ms ? c->opts.idle_timeout_ms : 30000;
    pthread_mutex_init(&c->lock, NULL);
    TAILQ_INIT(&c->idle);
    if (url_parse(url, &c->url) < 0) {
        return err_set(e, -EINVAL, "invalid_url",
                       "'%s' is not an address: write http://HOST:PORT or unix:/PATH", url);
    }
    c->host_field = make_host_field(&c->url);
    if (c->url.scheme == URL_HTTPS && !c->opts.tls) {
        r = io_tls_client_context(c->opts.ca_file, &c->tls, e);
        if (r < 0) {
            return r;
        }
    }
    c->opts.ca_file = NULL;
    *ret = TAKE_PTR(c);
    return 0;
}

void http_client_free(struct http_client *c)
{
    if (!c) {
        return;
    }
    http_client_drop_idle(c);
    http_headers_done(&c->fixed);
    SSL_CTX_free(c->tls);
    free(c->host_field);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void http_client_header(struct http_client *c, const char *name, const char *value)
{
    http_headers_set(&c->fixed, name, value);
}
