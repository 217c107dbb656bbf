/* SPDX-License-Identifier: Apache-2.0 */
#include "http/tunnel.h"

#include "http/client-internal.h"
#include "http/server-internal.h"

#include <string.h>
#include <strings.h>

/* One chunk; small pieces are joined up to the second. */
#define TUNNEL_PIECE (64u * 1024)
#define TUNNEL_JOIN (16u * 1024)
#define PUMP_BUFFER (64u * 1024)

/* ---- an exchange as a connection ---- */

struct tunnel {
    struct http_call *call; /* owned */
    size_t claimed; /* bytes offered to us that are in the call, but not yet all on the wire */
};

static ssize_t tunnel_recv(void *under, void *data, size_t len)
{
    const struct tunnel *t = under;
    ssize_t n = http_call_try_read(t->call, data, len, /* e */ NULL);

    return n >= 0 || n == -EAGAIN ? n : -ECONNRESET;
}

/* What the call holds goes first. */
static int tunnel_flush(const struct tunnel *t)
{
    int r;

    if (!t->call->conn) {
        return -EPIPE;
    }
    r = out_try_flush(&t->call->out, &t->call->conn->io);
    return r < 0 && r != -EAGAIN ? -EPIPE : r;
}

static ssize_t tunnel_send(void *under, const struct iovec *iov, int n_iov)
{
    struct tunnel *t = under;
    struct out_data d = {.data = iov[0].iov_base, .len = MIN(iov[0].iov_len, (size_t)TUNNEL_PIECE)};
    char joined[TUNNEL_JOIN];
    ssize_t n;
    int r = tunnel_flush(t);

    if (r < 0 || t->call->out.done) {
        return r < 0 ? r : -EPIPE;
    }
    if (t->claimed == 0) {
        if (n_iov > 1 && d.len < sizeof(joined)) {
            d = (struct out_data){.data = joined};
            for (int i = 0; i < n_iov && d.len < sizeof(joined); i++) {
                size_t part = MIN(iov[i].iov_len, sizeof(joined) - d.len);

                memcpy(joined + d.len, iov[i].iov_base, part);
                d.len += part;
            }
        }
        if (d.len == 0) {
            return 0;
        }
        r = call_try_send(t->call, d, /* e */ NULL);
        if (r < 0) {
            return -EPIPE;
        }
        t->claimed = d.len;
        if (t->call->out.pending.len > 0) {
            return -EAGAIN;
        }
    }
    n = (ssize_t)t->claimed;
    t->claimed = 0;
    return n;
}

static int tunnel_end_send(void *under)
{
    const struct tunnel *t = under;
    int r = tunnel_flush(t);

    if (r == 0 && !t->call->out.done) {
        r = call_try_send(t->call, (struct out_data){.end = true}, /* e */ NULL);
        if (r == 0 && t->call->out.pending.len > 0) {
            r = -EAGAIN;
        }
    }
    return r == -EAGAIN ? r : 0; /* it reads no more: that, too, is the end */
}

static struct pollfd tunnel_pollfd(const void *under, short events)
{
    const struct tunnel *t = under;

    return events && t->call->conn ? io_pollfd(&t->call->conn->io, events)
                                   : (struct pollfd){.fd = FD_NONE};
}

static void tunnel_done(void *under)
{
    struct tunnel *t = under;

    http_call_free(t->call);
    free(t);
}

static const struct http_io_layer tunnel_layer = {
    .recv = tunnel_recv,
    .send = tunnel_send,
    .end_send = tunnel_end_send,
    .pollfd = tunnel_pollfd,
    .done = tunnel_done,
};

int http_tunnel_open(struct http_client *c, const struct http_tunnel_opts *opts,
                     struct http_io *ret, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct http_call_opts call_opts = {
        .method = "POST",
        .target = opts->target,
        .headers = opts->headers,
        .body_length = HTTP_BODY_STREAM,
        .content_type = "application/octet-stream",
        .deadline_ns = opts->deadline_ns,
        .watch = opts->watch,
    };
    struct tunnel *t;
    int r = http_call_new(c, &call_opts, &call, e);

    if (r == 0) {
        r = http_call_check(call, e);
    }
    if (r < 0) {
        return r;
    }
    if (call->status != 200) {
        return err_set(e, -EPROTO, "bad_answer",
                       "the server answered %d where a tunnel should begin", call->status);
    }
    http_call_deadline(call, 0);
    call->wait.watch.fd = FD_NONE;
    t = xnew(struct tunnel);
    t->call = TAKE_PTR(call);
    io_init_layer_take(ret, &tunnel_layer, t);
    return 0;
}

/* ---- moving ---- */

struct flow {
    struct http_io *from; /* borrowed */
    struct http_io *to;   /* borrowed */
    char *data;           /* owned */
    size_t pos;
    size_t len;
    bool ended;  /* nothing more comes */
    bool told;   /* and the other one knows */
    bool broken; /* the other one takes no more: what comes is thrown away */
};

/* n > 0: something moved; 0: nothing can. -ECONNRESET: from broke off. */
static int flow_move(struct flow *f)
{
    ssize_t n;

    if (f->len == 0 && !f->ended) {
        n = io_recv(f->from, f->data, PUMP_BUFFER);
        if (n == -EAGAIN) {
            return 0;
        }
        if (n < 0) {
            return -ECONNRESET;
        }
        f->pos = 0;
        f->len = (size_t)n;
        f->ended = n == 0;
    }
    if (f->len > 0 && !f->broken) {
        struct iovec iov = {f->data + f->pos, f->len};

        n = io_send(f->to, &iov, 1);
        if (n == -EAGAIN) {
            return 0;
        }
        f->broken = n < 0;
        f->pos += n > 0 ? (size_t)n : 0;
        f->len -= n > 0 ? (size_t)n : 0;
    }
    f->len = f->broken ? 0 : f->len;
    if (f->ended && f->len == 0 && !f->told) {
        f->told = f->broken || io_end_send(f->to) == 0;
        return f->told;
    }
    return !f->told;
}

static struct pollfd flows_pollfd(const struct flow *in, const struct flow *out)
{
    bool room = out->len > 0 || (out->ended && !out->told);
    short events = (short)((in->len == 0 && !in->ended ? POLLIN : 0) | (room ? POLLOUT : 0));

    return io_pollfd(in->from, events);
}

static int pump_wait(const struct flow *up, const struct flow *down, struct err *e)
{
    struct pollfd fds[2] = {flows_pollfd(up, down), flows_pollfd(down, up)};

    if (poll(fds, 2, -1) < 0 && errno != EINTR) {
        return err_wrap(e, -errno, "waiting for a tunnel");
    }
    if (!(fds[0].events & (POLLIN | POLLOUT)) && (fds[0].revents & (POLLERR | POLLHUP))) {
        return err_set(e, -ECANCELED, "client_gone", "the client has gone");
    }
    return 0;
}

static int pump(struct flow *up, struct flow *down, struct err *e)
{
    for (;;) {
        int moved_up = up->told ? 0 : flow_move(up);
        int moved_down = flow_move(down);
        int r;

        if (down->broken || moved_up < 0) {
            return err_set(e, -ECANCELED, "client_gone", "the client has gone");
        }
        if (moved_down < 0) {
            return err_set(e, -ECONNRESET, "connection_lost", "the server broke off");
        }
        if (down->told) {
            return 0;
        }
        if (moved_up == 0 && moved_down == 0) {
            r = pump_wait(up, down, e);
            if (r < 0) {
                return r;
            }
        }
    }
}

int http_pump(struct http_io *client, struct http_io *server, struct err *e)
{
    struct flow up = {.from = client, .to = server, .data = xmalloc(PUMP_BUFFER)};
    struct flow down = {.from = server, .to = client, .data = xmalloc(PUMP_BUFFER)};
    int r = pump(&up, &down, e);

    free(up.data);
    free(down.data);
    return r;
}

/* ---- another protocol ---- */

static void pass_fields(struct http_request *req, const struct http_call *call)
{
    static const char *const ours[] = {"connection", "keep-alive",        "date",
                                       "trailer",    "transfer-encoding", "content-length"};

    for (size_t i = 0; i < call->headers.n; i++) {
        const struct http_header *h = &call->headers.v[i];
        bool passes = strncasecmp(h->name, "proxy-", 6) != 0;

        for (size_t k = 0; k < ARRAY_SIZE(ours) && passes; k++) {
            passes = strcasecmp(ours[k], h->name) != 0;
        }
        if (passes) {
            http_reply_header(req, h->name, h->value);
        }
    }
    http_reply_header(req, "Connection", "Upgrade");
}

int http_tunnel_upgrade(struct http_request *req, struct http_call *call, struct err *e)
{
    struct io_wait wait = request_wait(req);
    int r;

    ASSERT(call->status == 101 && call->conn && req->in.done);
    pass_fields(req, call);
    req->upgraded = true;
    req->tunnelled = true;
    r = reply_prepare(req, 101, /* content_type */ NULL, /* length */ -1, e);
    if (r == 0) {
        r = out_write(&req->out, &req->conn->io, (struct out_data){.end = true}, &wait);
    }
    if (r == 0) {
        r = http_pump(&req->conn->io, &call->conn->io, e);
    }
    req->reply_broken = r < 0;
    return r;
}
