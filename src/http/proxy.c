/* SPDX-License-Identifier: Apache-2.0 */
#include "http/proxy.h"

#include "http/client-internal.h"
#include "http/server-internal.h"

#include <string.h>
#include <strings.h>

#define PROXY_BUFFER (64u * 1024)

/* ---- fields ---- */

static bool is_hop_by_hop(const char *name)
{
    static const char *const names[] = {
        "connection", "keep-alive", "te",     "trailer",        "transfer-encoding",
        "upgrade",    "host",       "expect", "content-length",
    };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcasecmp(names[i], name) == 0) {
            return true;
        }
    }
    return strncasecmp(name, "proxy-", 6) == 0;
}

static bool passes(const struct http_headers *all, const char *name,
                   bool (*filter)(const char *name))
{
    return !is_hop_by_hop(name) && !http_headers_has_token(all, "connection", name) &&
           (!filter || filter(name));
}

void http_proxy_headers(const struct http_request *req, const struct http_proxy_opts *opts,
                        struct http_headers *ret)
{
    for (size_t i = 0; i < req->headers.n; i++) {
        const struct http_header *h = &req->headers.v[i];

        if (passes(&req->headers, h->name, opts ? opts->request_header : NULL)) {
            http_headers_add(ret, h->name, h->value);
        }
    }
}

/* ---- moving ---- */

struct proxy {
    struct http_request *req;
    const struct http_upstream_ops *ops;
    void *up;
    struct http_proxy_opts opts;
    char *body; /* owned: a piece of the request's body on its way */
    size_t body_pos;
    size_t body_len;
    bool body_read; /* to its end */
    bool body_sent; /* all of it, or the upstream takes no more */
    bool want_send; /* the upstream said: later */
    bool head_done;
    bool answer_read; /* to its end */
    bool moved;       /* something happened in this round */
    uint64_t answer_deadline_ns;
    char *answer; /* owned: scratch */
};

static int stop(struct proxy *p, int code)
{
    p->ops->abort(p->up);
    if (p->head_done) {
        http_reply_abort(p->req);
    }
    return code;
}

/* The client's next bytes. */
static int read_body(struct proxy *p, struct err *e)
{
    ssize_t n;

    if (p->body_read || p->body_len > 0) {
        return 0;
    }
    n = request_try_read(p->req, p->body, PROXY_BUFFER, e);
    if (n == -EAGAIN) {
        return 0;
    }
    if (n < 0) {
        return stop(p, (int)n);
    }
    p->moved = true;
    p->body_pos = 0;
    p->body_len = (size_t)n;
    p->body_read = n == 0;
    return 0;
}

static int send_body(struct proxy *p, struct err *e)
{
    ssize_t n;
    int r;

    p->want_send = false;
    if (p->body_sent) {
        return 0;
    }
    r = read_body(p, e);
    if (r < 0) {
        return r;
    }
    if (p->body_len > 0) {
        n = p->ops->send(p->up, p->body + p->body_pos, p->body_len, NULL);
    } else if (p->body_read) {
        n = p->ops->send_end(p->up, NULL);
    } else {
        return 0;
    }
    if (n == -EAGAIN) {
        p->want_send = true;
        return 0;
    }
    p->moved = true;
    if (n > 0) {
        p->body_pos += (size_t)n;
        p->body_len -= (size_t)n;
        return 0;
    }
    p->body_sent = true; /* or refused: the answer will tell */
    if (p->opts.answer_timeout_ms) {
        p->answer_deadline_ns = deadline_in_ms(p->opts.answer_timeout_ms);
    }
    return 0;
}

static int begin_answer(struct proxy *p, struct err *e)
{
    struct http_upstream_head head = {.length = -1};
    int r = p->ops->head(p->up, &head, e);

    if (r == -EAGAIN) {
        return r;
    }
    if (r < 0) {
        return stop(p, r == -EBADMSG ? err_wrap(e, -EPROTO, "upstream") : r);
    }
    ASSERT(head.headers);
    for (size_t i = 0; i < head.headers->n; i++) {
        const struct http_header *h = &head.headers->v[i];

        if (passes(head.headers, h->name, p->opts.response_header) &&
            strcasecmp(h->name, "date") != 0) {
            http_reply_header(p->req, h->name, h->value);
        }
    }
    r = reply_prepare(p->req, head.status, /* content_type */ NULL, head.length, e);
    if (r < 0) {
        return stop(p, r);
    }
    p->head_done = true;
    p->moved = true;
    return 0;
}

static int write_answer(struct proxy *p, struct out_data d, struct err *e)
{
    struct http_request *req = p->req;
    int r;

    if (req->out.framing == HTTP1_BODY_LENGTH && d.len > req->out.left && !req->out.mute) {
        return stop(
            p, err_set(e, -EPROTO, "bad_answer", "the upstream sent more than it had announced"));
    }
    if (req->out.framing == HTTP1_BODY_NONE || req->out.mute) {
        d.len = 0;
    }
    r = out_try_write(&req->out, &req->conn->io, d);
    if (r < 0) {
        return stop(p, err_wrap(e, r == -EPROTO ? -EPROTO : -ECANCELED, "passing the answer on"));
    }
    return 0;
}

/* One piece of the answer. */
static int move_answer(struct proxy *p, struct err *e)
{
    struct http_out *out = &p->req->out;
    ssize_t n;
    int r;

    if (!p->head_done) {
        r = begin_answer(p, e);
        if (r < 0) {
            return r == -EAGAIN ? 0 : r;
        }
    }
    if (out->pending.len > 0) {
        r = out_try_flush(out, &p->req->conn->io);
        if (r == -EAGAIN) {
            return 0;
        }
        if (r < 0) {
            return stop(p, err_wrap(e, -ECANCELED, "passing the answer on"));
        }
        p->moved = true;
    }
    if (p->answer_read) {
        return 0;
    }
    n = p->ops->recv(p->up, p->answer, PROXY_BUFFER, e);
    if (n == -EAGAIN) {
        return out->head.len > 0 ? write_answer(p, (struct out_data){0}, e) : 0;
    }
    if (n < 0) {
        return stop(p, (int)n);
    }
    p->moved = true;
    p->answer_read = n == 0;
    return write_answer(p, (struct out_data){p->answer, (size_t)n, /* end */ n == 0}, e);
}

static uint64_t wait_deadline(const struct proxy *p, uint64_t idle_ns)
{
    return p->body_sent && !p->head_done ? MIN(idle_ns, p->answer_deadline_ns) : idle_ns;
}

static int wait_for_something(struct proxy *p, struct err *e)
{
    bool want_body = !p->body_sent && !p->body_read && p->body_len == 0;
    bool want_room = p->req->out.pending.len > 0;
    uint64_t idle_ns =
        p->opts.idle_timeout_ms ? deadline_in_ms(p->opts.idle_timeout_ms) : DEADLINE_NEVER;
    uint64_t deadline_ns = wait_deadline(p, idle_ns);
    struct pollfd fds[2];
    int n;

    fds[0] =
        io_pollfd(&p->req->conn->io, (short)((want_body ? POLLIN : 0) | (want_room ? POLLOUT : 0)));
    fds[0].events |= POLLRDHUP;
    fds[1] = p->ops->pollfd(p->up, !want_room && !p->answer_read, p->want_send);
    do {
        n = poll(fds, fds[1].fd >= 0 ? 2 : 1, deadline_poll_ms(deadline_ns));
    } while ((n < 0 && errno == EINTR) || (n == 0 && !deadline_passed(deadline_ns)));
    ASSERT(n >= 0);
    if (n == 0) {
        return stop(
            p, err_set(e, -ETIMEDOUT, "upstream_timeout", "the upstream did not answer in time"));
    }
    if (fds[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) {
        return stop(p, err_set(e, -ECANCELED, "client_gone", "the client has gone"));
    }
    return 0;
}

static int run(struct proxy *p, struct err *e)
{
    for (;;) {
        int r;

        p->moved = false;
        if (p->ops->clear) {
            p->ops->clear(p->up);
        }
        r = send_body(p, e);
        if (r == 0) {
            r = move_answer(p, e);
        }
        if (r < 0) {
            return r;
        }
        if (p->answer_read && p->req->out.pending.len == 0) {
            return 0;
        }
        if (!p->moved) {
            r = wait_for_something(p, e);
            if (r < 0) {
                return r;
            }
        }
    }
}

int http_proxy_run(struct http_request *req, const struct http_upstream_ops *ops, void *up,
                   const struct http_proxy_opts *opts, struct err *e)
{
    struct proxy p = {
        .req = req,
        .ops = ops,
        .up = up,
        .opts = opts ? *opts : (struct http_proxy_opts){0},
        .answer_deadline_ns = DEADLINE_NEVER,
    };
    int r;

    ASSERT(!http_reply_begun(req));
    http_body_limit(req, p.opts.body_limit ? p.opts.body_limit : UINT64_MAX);
    p.body = http_body_length(req) != 0 ? xmalloc(PROXY_BUFFER) : NULL;
    p.body_read = !p.body;
    p.answer = xmalloc(PROXY_BUFFER);
    r = run(&p, e);
    free(p.body);
    free(p.answer);
    return r;
}

/* ---- an HTTP client's call as upstream ---- */

static void call_flush(struct http_call *call)
{
    if (call->conn && call->out.pending.len > 0) {
        int r = out_try_flush(&call->out, &call->conn->io);

        if (r < 0 && r != -EAGAIN) {
            buf_reset(
                &call->out.pending); /* it will not be read any more; the answer may say why */
        }
    }
}

static ssize_t call_send(void *up, const void *data, size_t len, struct err *e)
{
    struct http_call *call = up;
    int r;

    call_flush(call);
    if (call->out.pending.len > 0) {
        return -EAGAIN;
    }
    r = call_try_send(call, (struct out_data){data, len, /* end */ false}, e);
    return r < 0 ? r : (ssize_t)len;
}

static int call_send_end(void *up, struct err *e)
{
    struct http_call *call = up;
    int r = 0;

    call_flush(call);
    if (call->out.pending.len > 0) {
        return -EAGAIN;
    }
    if (!call->out.done) {
        r = call_try_send(call, (struct out_data){.end = true}, e);
    }
    return r == 0 && call->out.pending.len > 0 ? -EAGAIN : r;
}

static int call_head(void *up, struct http_upstream_head *ret, struct err *e)
{
    struct http_call *call = up;
    int r = 0;

    call_flush(call);
    if (!call->sent) {
        r = call_try_send(call, (struct out_data){0},
                          e); /* the server may answer before there is a body */
    }
    if (r == 0) {
        r = call_try_head(call, e);
    }
    if (r < 0 && r != -EAGAIN) {
        r = call_try_repeat(call, r, e);
        r = r == 0 ? -EAGAIN : r;
    }
    if (r == 0) {
        *ret = (struct http_upstream_head){call->status, call->length, &call->headers};
    }
    return r;
}

static ssize_t call_recv(void *up, void *data, size_t len, struct err *e)
{
    call_flush(up);
    return http_call_try_read(up, data, len, e);
}

static struct pollfd call_pollfd(void *up, bool want_recv, bool want_send)
{
    const struct http_call *call = up;
    bool room = want_send || call->out.pending.len > 0;

    if (!call->conn || (!want_recv && !room)) {
        return (struct pollfd){.fd = FD_NONE};
    }
    return io_pollfd(&call->conn->io, (short)((want_recv ? POLLIN : 0) | (room ? POLLOUT : 0)));
}

static void call_abort(void *up)
{
    struct http_call *call = up;

    client_conn_free(call->conn);
    call->conn = NULL;
}

static const struct http_upstream_ops call_ops = {
    .send = call_send,
    .send_end = call_send_end,
    .head = call_head,
    .recv = call_recv,
    .pollfd = call_pollfd,
    .abort = call_abort,
};

int http_proxy_answer(struct http_request *req, struct http_call *call,
                      const struct http_proxy_opts *opts, struct err *e)
{
    return http_proxy_run(req, &call_ops, call, opts, e);
}

int http_proxy_call(struct http_request *req, struct http_client *client, const char *target,
                    const struct http_headers *extra, const struct http_proxy_opts *opts,
                    struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    CLEANUP(http_headers_done) struct http_headers headers = HTTP_HEADERS_INIT;
    struct pollfd watch = http_client_pollfd(req);
    struct http_call_opts call_opts = {
        .method = http_request_method(req),
        .target = target,
        .headers = &headers,
        .body_length = http_body_length(req),
        .watch = &watch,
    };
    int r;

    http_proxy_headers(req, opts, &headers);
    for (size_t i = 0; extra && i < extra->n; i++) {
        http_headers_set(&headers, extra->v[i].name, extra->v[i].value);
    }
    r = http_call_new(client, &call_opts, &call, e);
    if (r < 0) {
        return r;
    }
    return http_proxy_run(req, &call_ops, call, opts, e);
}
