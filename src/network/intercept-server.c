/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the server of an intercepted connection. */
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "network/intercept-internal.h"

void intercept_disconnect(struct intercept_conn *c)
{
    if (c->connected) {
        io_done(&c->server);
        c->connected = c->server_used = false;
    }
}

static int connect_socket(struct intercept_conn *c, const struct io_wait *wait, struct err *e)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(c->target.port), .sin_addr = c->target.addr};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int failure = 0;
    int yes = 1;
    socklen_t len = sizeof(failure);
    int r;

    if (fd < 0) {
        return err_wrap(e, -errno, "making a socket");
    }
    IGNORE_RESULT(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes))); /* slower only */
    io_init_take(&c->server, fd);
    c->connected = true;
    c->server_used = false;
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        if (errno != EINPROGRESS) {
            return err_set(e, -errno, "connect_failed", "cannot connect to the server: %s",
                           strerrordesc_np(errno));
        }
        r = io_wait(&c->server, POLLOUT, wait);
        if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len) == 0) {
            r = -failure;
        }
        if (r < 0) {
            return err_set(e, r, "connect_failed", "cannot connect to the server: %s",
                           strerrordesc_np(-r));
        }
    }
    return 0;
}

/* Verified always: a server whose certificate we do not trust gets nothing. */
int intercept_connect_server(struct intercept_conn *c, enum io_alpn alpn, struct err *e)
{
    struct io_wait wait = intercept_wait(c, INTERCEPT_CONNECT_MS);
    int r = connect_socket(c, &wait, e);

    if (r == 0 && c->target.is_tls) {
        wait = intercept_wait(c, INTERCEPT_HANDSHAKE_MS);
        c->server.alpn = alpn;
        r = io_tls_connect(&c->server, c->in->client_tls, c->target.name, &wait, e);
    }
    if (r < 0) {
        intercept_disconnect(c);
    }
    return r;
}

bool intercept_server_is_stale(struct intercept_conn *c)
{
    struct pollfd p = {.fd = c->server.fd, .events = POLLIN | POLLRDHUP};

    if (c->server.in_len > 0) {
        return true;
    }
    if (poll(&p, 1, 0) == 0) {
        return false;
    }
    /* TLS has things of its own to say. */
    return !(c->server.ssl && p.revents == POLLIN && io_fill(&c->server, 1) == -EAGAIN);
}
