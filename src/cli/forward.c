/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preview and forward: servers inside a sandbox, for a browser and for everything else.
 *
 * forward listens on local ports; each connection becomes a tunnel (http/tunnel.h) in a thread of its own. The main
 * thread accepts, takes signals, and joins what has ended; at the end it cuts what is left and joins that too.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/sigs.h"
#include "cli/verbs.h"
#include "http/tunnel.h"

#define PORTS_MAX 32u
/* The gateway has fewer for one sandbox. */
#define CONNECTIONS_MAX 256u
#define BACKLOG 64
/* A server that is just starting gets so long. */
#define WAIT_MS 1000
#define OPEN_MS 60000u

static int failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_FAILED;
}

static int port_parse(const char *text, uint16_t min, uint16_t *ret, struct err *e)
{
    uint64_t port = 0;

    if (str_to_u64(text, UINT16_MAX, &port) < 0 || port < min) {
        return err_set(e, -EINVAL, "usage", "'%s' is not a port: a number from %u to %d", text, min,
                       UINT16_MAX);
    }
    *ret = (uint16_t)port;
    return 0;
}

/* ---- preview ---- */

static int address_of(struct cli *cli, const char *id, uint16_t port, json_t **ret, struct err *e)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/ports/%u", id, port);

    return cli_call(cli, "GET", target, /* body */ NULL, ret, e);
}

int verb_preview(struct cli *cli)
{
    cleanup_json json_t *answer = NULL;
    const char *token;
    struct err e = {0};
    uint16_t port = 0;
    char id[ID_SIZE];
    int r = port_parse(cli->args->operands[1], 1, &port, &e);

    if (r < 0) {
        ui_error(&cli->ui, &e);
        return CLI_EXIT_USAGE;
    }
    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_sandbox_id(cli, cli->args->operands[0], id, &e);
    r = r < 0 ? r : address_of(cli, id, port, &answer, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
        return CLI_EXIT_OK;
    }
    printf("%s\n", json_get_string(answer, "url", ""));
    token = json_get_string(answer, "token", NULL);
    if (token) {
        ui_note(&cli->ui, "private: requests need the header 'e2b-traffic-access-token: %s'",
                token);
    }
    return CLI_EXIT_OK;
}

/* ---- forward ---- */

struct forward;

struct connection {
    struct forward *forward; /* borrowed: lives longer */
    uint16_t port;           /* in the sandbox */
    int fd; /* owned; closed by the thread, cut by main; guarded by the forward's lock */
    pthread_t thread;
    atomic_bool ended;
    TAILQ_ENTRY(connection) entry;
};
TAILQ_HEAD(connections, connection);

struct forward {
    struct cli *cli; /* borrowed */
    char id[ID_SIZE];
    struct {
        int fd; /* owned; listens */
        uint16_t port;
    } ports[PORTS_MAX];
    size_t n_ports;
    struct connections connections; /* owned */
    size_t n_connections;
    pthread_mutex_t lock;
    struct sigs sigs;
};

/* A break is no end: the other side is told by a reset. */
static void connection_close(struct connection *c, bool broken)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    pthread_mutex_lock(&c->forward->lock);
    if (broken) {
        IGNORE_RESULT(setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now,
                                 sizeof(now))); /* then it ends in order */
    }
    c->fd = fd_close(c->fd);
    pthread_mutex_unlock(&c->forward->lock);
}

static void *connection_main(void *arg)
{
    struct connection *c = arg;
    const struct forward *f = c->forward;
    cleanup_free char *target =
        xasprintf("/v1/sandboxes/%s/ports/%u?wait_ms=%d", f->id, c->port, WAIT_MS);
    struct pollfd watch = {.fd = f->sigs.end_fd, .events = POLLIN};
    struct http_tunnel_opts opts = {
        .target = target, .deadline_ns = deadline_in_ms(OPEN_MS), .watch = &watch};
    struct http_io local;
    struct http_io server;
    struct err e = {0};
    int fd = fd_dup(c->fd);
    int r = fd < 0 ? err_wrap(&e, fd, "taking a connection")
                   : http_tunnel_open(f->cli->client, &opts, &server, &e);

    if (r == 0) {
        io_init_take(&local, TAKE_FD(fd));
        r = http_pump(&local, &server, &e);
        io_done(&server);
        io_done(&local);
    }
    fd_close(fd);
    if (r < 0 && r != -ECANCELED) {
        cli_explain(f->cli, &e);
        ui_warn(&f->cli->ui, "port %u: %s", c->port, e.msg);
    }
    connection_close(c, r < 0);
    atomic_store(&c->ended, true);
    return NULL;
}

static void connection_join(struct forward *f, struct connection *c)
{
    pthread_join(c->thread, NULL);
    TAILQ_REMOVE(&f->connections, c, entry);
    f->n_connections--;
    free(c);
}

static void join_ended(struct forward *f)
{
    struct connection *next;

    for (struct connection *c = TAILQ_FIRST(&f->connections); c; c = next) {
        next = TAILQ_NEXT(c, entry);
        if (atomic_load(&c->ended)) {
            connection_join(f, c);
        }
    }
}

static void forward_accept(struct forward *f, int listen_fd, uint16_t port)
{
    cleanup_close int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct connection *c;
    int one = 1;
    int r;

    join_ended(f);
    if (fd < 0) {
        fd = FD_NONE;
        return; /* it is gone already */
    }
    if (f->n_connections >= CONNECTIONS_MAX) {
        ui_warn(&f->cli->ui, "port %u: %u connections are open already", port, CONNECTIONS_MAX);
        return;
    }
    IGNORE_RESULT(
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))); /* only slower without */
    c = xnew(struct connection);
    c->forward = f;
    c->port = port;
    c->fd = fd;
    r = pthread_create(&c->thread, NULL, connection_main, c);
    if (r != 0) {
        ui_warn(&f->cli->ui, "port %u: cannot start a thread: %s", port, strerrordesc_np(r));
        free(c);
        return;
    }
    fd = FD_NONE; /* the connection's */
    TAILQ_INSERT_TAIL(&f->connections, c, entry);
    f->n_connections++;
}

static void forward_done(struct forward *f)
{
    struct connection *c;

    for (size_t i = 0; i < f->n_ports; i++) {
        fd_close(f->ports[i].fd);
    }
    pthread_mutex_lock(&f->lock);
    TAILQ_FOREACH(c, &f->connections, entry)
    {
        if (c->fd >= 0) {
            shutdown(c->fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&f->lock);
    while (!TAILQ_EMPTY(&f->connections)) {
        connection_join(f, TAILQ_FIRST(&f->connections));
    }
    sigs_done(&f->sigs);
    pthread_mutex_destroy(&f->lock);
}

static int listen_local(const char *address, uint16_t port, uint16_t *ret_port, struct err *e)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr *a = (struct sockaddr *)&v4;
    socklen_t len = sizeof(v4);
    cleanup_close int fd = FD_NONE;
    int one = 1;

    if (inet_pton(AF_INET6, address, &v6.sin6_addr) == 1) {
        a = (struct sockaddr *)&v6;
        len = sizeof(v6);
    } else if (inet_pton(AF_INET, address, &v4.sin_addr) != 1) {
        return err_set(e, -EINVAL, "usage", "'%s' is not an address, as 127.0.0.1 is one", address);
    }
    fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(fd, a, len) < 0 || listen(fd, BACKLOG) < 0 || getsockname(fd, a, &len) < 0) {
        return err_wrap(e, -errno, "listening on %s, port %u", address, port);
    }
    *ret_port = ntohs(a->sa_family == AF_INET6 ? v6.sin6_port : v4.sin_port);
    return TAKE_FD(fd);
}

/* "LOCAL:PORT", "PORT" for the same one twice; LOCAL 0 or nothing: any that is free. */
static int forward_add(struct forward *f, const char *text, struct err *e)
{
    const char *address = f->cli->args->address ? f->cli->args->address : "127.0.0.1";
    cleanup_json json_t *answer = NULL;
    cleanup_free char *first = xstrdup(text);
    char *colon = strchr(first, ':');
    uint16_t local = 0;
    uint16_t port = 0;
    int r = port_parse(colon ? colon + 1 : first, 1, &port, e);

    if (colon) {
        *colon = '\0';
    }
    if (r == 0 && first[0]) {
        r = port_parse(first, 0, &local, e);
    }
    if (r == 0) { /* is there such a sandbox, and is it ours? */
        r = address_of(f->cli, f->id, port, &answer, e);
    }
    if (r == 0) {
        r = listen_local(address, local, &local, e);
    }
    if (r < 0) {
        return r;
    }
    f->ports[f->n_ports].fd = r;
    f->ports[f->n_ports].port = port;
    f->n_ports++;
    printf(strchr(address, ':') ? "[%s]:%u -> %u\n" : "%s:%u -> %u\n", address, local, port);
    fflush(stdout);
    return 0;
}

static void forward_run(struct forward *f)
{
    struct pollfd fds[PORTS_MAX + 1];

    for (;;) {
        for (size_t i = 0; i < f->n_ports; i++) {
            fds[i] = (struct pollfd){.fd = f->ports[i].fd, .events = POLLIN};
        }
        fds[f->n_ports] = (struct pollfd){.fd = f->sigs.end_fd, .events = POLLIN};
        if (poll(fds, f->n_ports + 1, -1) < 0) {
            continue; /* EINTR */
        }
        if (fds[f->n_ports].revents) {
            return;
        }
        for (size_t i = 0; i < f->n_ports; i++) {
            if (fds[i].revents) {
                forward_accept(f, f->ports[i].fd, f->ports[i].port);
            }
        }
    }
}

int verb_forward(struct cli *cli)
{
    struct forward f = {.cli = cli, .sigs = SIGS_INIT};
    const struct args *args = cli->args;
    struct err e = {0};
    int r = 0;

    TAILQ_INIT(&f.connections);
    pthread_mutex_init(&f.lock, NULL);
    if (args->n_operands - 1 > PORTS_MAX) {
        r = err_set(&e, -EINVAL, "usage", "at most %u ports at once", PORTS_MAX);
    }
    r = r < 0 ? r : cli_connect(cli, &e);
    r = r < 0 ? r : cli_sandbox_id(cli, args->operands[0], f.id, &e);
    r = r < 0 ? r : sigs_open(&f.sigs, /* with_window */ false, &e);
    for (size_t i = 1; i < args->n_operands && r >= 0; i++) {
        r = forward_add(&f, args->operands[i], &e);
    }
    if (r >= 0) {
        forward_run(&f);
    }
    forward_done(&f);
    if (r < 0) {
        ui_error(&cli->ui, &e);
        return str_eq(e.reason, "usage") ? CLI_EXIT_USAGE : CLI_EXIT_FAILED;
    }
    return CLI_EXIT_OK;
}
