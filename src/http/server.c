/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/sock.h"
#include "http/server-internal.h"
#include "wire/url.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LISTEN_BACKLOG 1024

static void fill_defaults(struct http_server_opts *o)
{
    const struct {
        unsigned *field;
        unsigned value;
    } defaults[] = {
        {&o->max_threads, 1024},       {&o->max_connections, 4096},  {&o->max_queue, 1024},
        {&o->idle_timeout_ms, 75000},  {&o->head_timeout_ms, 10000}, {&o->io_timeout_ms, 30000},
        {&o->drain_timeout_ms, 10000},
    };

    for (size_t i = 0; i < ARRAY_SIZE(defaults); i++) {
        if (*defaults[i].field == 0) {
            *defaults[i].field = defaults[i].value;
        }
    }
    if (o->max_body_bytes == 0) {
        o->max_body_bytes = 1024 * 1024;
    }
    if (!o->name) {
        o->name = "space";
    }
}

struct http_server *http_server_new(const struct http_server_opts *opts)
{
    struct http_server *s = xnew(struct http_server);

    ASSERT(opts && opts->handler);
    s->opts = *opts;
    fill_defaults(&s->opts);
    TAILQ_INIT(&s->dead);
    TAILQ_INIT(&s->waiting);
    TAILQ_INIT(&s->heads);
    TAILQ_INIT(&s->queue);
    TAILQ_INIT(&s->running);
    TAILQ_INIT(&s->lingers);
    SLIST_INIT(&s->finished);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT(s->epoll_fd >= 0 &&
           s->wake_fd >= 0); /* at start: nothing can have used the descriptors up */
    return s;
}

void listener_done(struct listener *l)
{
    /* The file first: once the socket is closed, another process may put its own there. */
    if (l->unlink_path && unlink(l->unlink_path) < 0 && errno != ENOENT) {
        log_warn(NULL, "cannot remove the socket '%s', ignoring: %m", l->unlink_path);
    }
    free(l->unlink_path);
    l->unlink_path = NULL;
    l->fd = fd_close(l->fd);
}

static struct listener *add_listener(struct http_server *s, int fd,
                                     http_peer_allowed_fn *peer_allowed)
{
    struct listener *l;
    int r = fd_set_nonblock(fd, true);

    ASSERT(r == 0 && s->n_listeners < SERVER_MAX_LISTENERS);
    l = &s->listeners[s->n_listeners++];
    *l = (struct listener){.fd = fd, .peer_allowed = peer_allowed};
    return l;
}

void http_server_listen_fd_take(struct http_server *s, int fd, http_peer_allowed_fn *peer_allowed)
{
    int domain = 0;
    socklen_t len = sizeof(domain);

    ASSERT(fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0);
    add_listener(s, fd, peer_allowed)->tcp = domain != AF_UNIX;
}

static int bind_tcp(const struct addrinfo *a)
{
    cleanup_close int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;

    if (fd < 0) {
        return -errno;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, LISTEN_BACKLOG) < 0) {
        return -errno;
    }
    return TAKE_FD(fd);
}

static int listen_tcp(struct http_server *s, const char *address, struct http_tls *tls,
                      struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char port[8];
    struct url url;
    int r;

    if (url_parse(address, &url) < 0 || url.scheme != URL_HTTP || url.path[0]) {
        return err_set(e, -EINVAL, "invalid_address", "'%s' is not an address: write HOST:PORT",
                       address);
    }
    snprintf(port, sizeof(port), "%u", url.port);
    r = getaddrinfo(url.host[0] ? url.host : NULL, port, &hints, &found);
    if (r != 0) {
        return err_set(e, -EINVAL, "invalid_address", "looking up '%s': %s", address,
                       gai_strerror(r));
    }
    r = bind_tcp(found);
    freeaddrinfo(found);
    if (r == -EADDRINUSE) {
        return err_set(e, r, "address_in_use", "another process already listens on %s", address);
    }
    if (r < 0) {
        return err_wrap(e, r, "listening on %s", address);
    }
    http_server_listen_fd_take(s, r, /* peer_allowed */ NULL);
    s->listeners[s->n_listeners - 1].tls = tls;
    return 0;
}

int http_server_listen_tcp(struct http_server *s, const char *address, struct err *e)
{
    return listen_tcp(s, address, /* tls */ NULL, e);
}

int http_server_listen_tls(struct http_server *s, const char *address, struct http_tls *tls,
                           struct err *e)
{
    ASSERT(tls);
    return listen_tcp(s, address, tls, e);
}

int http_server_listen_unix(struct http_server *s, const char *path, mode_t mode,
                            http_peer_allowed_fn *peer_allowed, struct err *e)
{
    int fd = sock_listen_unix(path, SOCK_STREAM, mode, e);

    if (fd < 0) {
        return fd;
    }
    if (listen(fd, LISTEN_BACKLOG) < 0) {
        log_warn(NULL, "cannot lengthen the queue of '%s', ignoring: %m", path);
    }
    add_listener(s, fd, peer_allowed)->unlink_path = xstrdup(path);
    return 0;
}

uint16_t http_server_port(const struct http_server *s)
{
    for (size_t i = 0; i < s->n_listeners; i++) {
        union {
            struct sockaddr any;
            struct sockaddr_in v4;
            struct sockaddr_in6 v6;
        } a;
        socklen_t len = sizeof(a);

        if (s->listeners[i].tcp && getsockname(s->listeners[i].fd, &a.any, &len) == 0) {
            return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
        }
    }
    return 0;
}

int http_server_run(struct http_server *s, struct err *e)
{
    if (s->n_listeners == 0) {
        return err_set(e, -EINVAL, NULL, "the server has nothing to listen on");
    }
    server_loop_run(s);
    pool_join(s);
    return 0;
}

void server_wake(struct http_server *s)
{
    uint64_t one = 1;
    ssize_t n = write(s->wake_fd, &one, sizeof(one)); /* full: a wake is pending already */

    ASSERT(n == sizeof(one) || errno == EAGAIN);
}

void http_server_stop(struct http_server *s)
{
    int saved = errno; /* we may be in a signal handler */

    atomic_store(&s->stopping, true);
    server_wake(s);
    errno = saved;
}

void http_server_free(struct http_server *s)
{
    if (!s) {
        return;
    }
    ASSERT(s->n_conns == 0 && s->n_threads == 0);
    for (size_t i = 0; i < s->n_listeners; i++) {
        listener_done(&s->listeners[i]);
    }
    fd_close(s->epoll_fd);
    fd_close(s->wake_fd);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
