/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that has agreed on HTTP/2, against any client: the input is what the client says, then it ends. The server's
 * loop does not run, so that what its streams have become waits there: each must begin with a request that the strict parser takes.
 */
#include "http/server-http2.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define INPUT_MAX 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int no_handler(struct http_request *req, struct err *e)
{
    (void)req;
    return err_set(e, -ENOSYS, NULL, "nothing is served");
}

static void check_stream(struct http_conn *c)
{
    struct http1_scan scan = {0};
    struct http1_head head;
    size_t len = 0;

    ASSERT(c->secure && !c->http2);
    while (io_fill(&c->io, HTTP1_MAX_HEAD * 2) > 0) {
    }
    if (c->io.in_len > 0 && http1_scan(&scan, io_data(&c->io), c->io.in_len, &len) == 0) {
        ASSERT(http1_parse_request(io_data(&c->io), len, &head) == HTTP1_OK);
        ASSERT(head.form != HTTP1_FORM_AUTHORITY && !head.upgrade);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_server *s =
        http_server_new(&(struct http_server_opts){.handler = no_handler, .http2 = true});
    struct http_conn *c = xnew(struct http_conn);
    int fds[2];

    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    ASSERT(size == 0 || write(fds[1], data, MIN(size, (size_t)INPUT_MAX)) > 0);
    ASSERT(shutdown(fds[1], SHUT_WR) == 0);
    c->server = s;
    c->http2 = true;
    s->n_conns = 1;
    io_init_take(&c->io, fds[0]);
    IGNORE_RESULT((int)http2_run(c)); /* any end is fine */
    ASSERT(s->n_http2 == 0);
    conn_free(c);
    while (!TAILQ_EMPTY(&s->waiting)) {
        check_stream(TAILQ_FIRST(&s->waiting));
        conn_free(TAILQ_FIRST(&s->waiting));
    }
    ASSERT(s->n_conns == 0);
    http_server_free(s);
    close(fds[1]);
    return 0;
}
