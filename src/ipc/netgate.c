/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/netgate.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sock.h"
#include "ipc/seqpacket.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>

struct netgate {
    char *path;           /* owned */
    pthread_mutex_t lock; /* one call at a time on the connection */
    int fd;               /* owned; FD_NONE while not connected */
};

struct netgate *netgate_new(const char *socket_path)
{
    struct netgate *c = xnew(struct netgate);

    c->path = xstrdup(socket_path);
    c->fd = FD_NONE;
    ASSERT(pthread_mutex_init(&c->lock, NULL) == 0);
    return c;
}

void netgate_free(struct netgate *c)
{
    if (c) {
        fd_close(c->fd);
        pthread_mutex_destroy(&c->lock);
        free(c->path);
        free(c);
    }
}

static int connected(struct netgate *c, struct err *e)
{
    int r;

    if (c->fd >= 0) {
        return 0;
    }
    r = sock_connect_unix(c->path, SOCK_SEQPACKET, e);
    if (r < 0) {
        return err_wrap(e, r, "reaching the network gateway");
    }
    c->fd = r;
    return 0;
}

static int lost(struct netgate *c, int code, struct err *e)
{
    c->fd = fd_close(c->fd);
    return err_set(e, code, "network_gateway_lost", "the network gateway does not answer: %s",
                   strerror(-code));
}

static int exchange(struct netgate *c, const struct buf *request, const int *fds, size_t n_fds,
                    struct buf *answer, struct err *e)
{
    cleanup_fds struct seqpacket_fds in = {.max = 0};
    uint64_t deadline_ns = clock_now_ns() + NETGATE_CALL_TIMEOUT_NS;
    void *room;
    ssize_t n;
    int r = connected(c, e);

    if (r < 0) {
        return r;
    }
    r = seqpacket_send(c->fd, request->data, request->len, fds, n_fds, deadline_ns);
    if (r < 0) {
        return lost(c, r, e);
    }
    buf_reset(answer);
    r = buf_reserve(answer, NETGATE_PACKET_MAX, &room);
    n = r < 0 ? r : seqpacket_recv(c->fd, room, NETGATE_PACKET_MAX, &in, deadline_ns);
    if (n < 0) {
        return lost(c, (int)n, e);
    }
    buf_commit(answer, (size_t)n);
    return 0;
}

static int read_answer(const struct buf *text, json_t **ret, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    json_t *error;
    int r = json_parse_object(buf_str(text), text->len, &answer, e);

    if (r < 0) {
        return err_wrap(e, r, "reading the network gateway's answer");
    }
    error = json_object_get(answer, "error");
    if (error) {
        int code = (int)json_get_int(error, "errno", EIO);

        return err_set(e, code > 0 && code < 4096 ? -code : -EIO,
                       json_get_string(error, "code", ""), "%s",
                       json_get_string(error, "message", "the network gateway refused"));
    }
    if (ret) {
        *ret = TAKE_PTR(answer);
    }
    return 0;
}

int netgate_call_take(struct netgate *c, json_t *request, const int *fds, size_t n_fds,
                      json_t **ret, struct err *e)
{
    cleanup_json json_t *owned = request;
    cleanup_buf struct buf text = BUF_INIT(NETGATE_PACKET_MAX);
    cleanup_buf struct buf answer = BUF_INIT(NETGATE_PACKET_MAX);
    int r;

    if (log_request()->id[0]) {
        json_object_set_new(owned, "request", json_string(log_request()->id));
    }
    r = json_write(owned, &text);
    if (r < 0) {
        return err_set(e, r, "invalid_request", "too much for the network gateway");
    }
    pthread_mutex_lock(&c->lock);
    r = exchange(c, &text, fds, n_fds, &answer, e);
    if (r < 0 && r != -ETIMEDOUT) {
        r = exchange(c, &text, fds, n_fds, &answer, e);
    }
    pthread_mutex_unlock(&c->lock);
    return r < 0 ? r : read_answer(&answer, ret, e);
}

int netgate_watch(struct netgate *c, uint64_t deadline_ns, struct err *e)
{
    int fd;
    int r;

    pthread_mutex_lock(&c->lock);
    r = connected(c, e);
    fd = c->fd;
    pthread_mutex_unlock(&c->lock);
    if (r < 0) {
        return r;
    }
    r = sock_wait(fd, POLLIN, deadline_ns);
    if (r == 0) { /* nothing comes unasked but the end */
        pthread_mutex_lock(&c->lock);
        c->fd = fd_close(c->fd);
        pthread_mutex_unlock(&c->lock);
    }
    return r;
}
