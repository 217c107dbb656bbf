/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both directions of one exchange in one thread: each round does what can be done without waiting, then waits for whichever of the
 * two sockets can go on. Each direction holds at most one chunk, so a slow reader slows the other end.
 */
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "credential/secret.h"
#include "network/intercept-internal.h"

/* For how long a tunnel keeps back what may be the beginning of a secret. */
#define TUNNEL_KEPT_MS 100

/* What a round found out. */
struct round {
    bool moved;
    bool guest_in; /* waits for */
    bool guest_out;
    bool server_in;
    bool server_out;
};

/* ---- trailers ---- */

/* What came behind the last chunk, printed afresh. plan NULL: an answer's. -EBADMSG: it belongs into a head. */
static int pass_trailers(const struct buf *came, const struct plan *plan, struct http_out *out)
{
    struct http1_head head;
    int r = 0;

    if (came->len == 0) {
        return 0;
    }
    if (http1_parse_trailers(came->data, came->len, &head) != HTTP1_OK) {
        return -EBADMSG;
    }
    for (size_t i = 0; i < head.n_fields && r == 0 && out->framing == HTTP1_BODY_CHUNKED; i++) {
        const struct http1_field *f = &head.fields[i];
        cleanup_free char *name = xstrndup(f->name.p, f->name.len);
        cleanup_free char *value = xstrndup(f->value.p, f->value.len);

        if (!plan || !inject_replaces(plan, f->name)) {
            r = http1_print_field(&out->trailers, name, value);
        }
    }
    return r < 0 ? -EBADMSG : 0;
}

/* ---- the request ---- */

static int up_next(struct exchange *x, struct out_data *ret)
{
    struct intercept_conn *c = x->c;
    ssize_t n;

    if (x->body_known) {
        *ret = (struct out_data){.data = x->body.data, .len = x->body.len, .end = true};
        return 0;
    }
    n = in_read(&x->up_in, &c->guest, x->chunk, INTERCEPT_CHUNK);
    if (n < 0) {
        return (int)n;
    }
    if (n == 0 && pass_trailers(&x->up_trailers, &x->plan, &x->up_out) < 0) {
        return -EBADMSG;
    }
    c->result.bytes_up += (uint64_t)n;
    *ret = (struct out_data){.data = x->chunk, .len = (size_t)n, .end = n == 0 || x->up_in.done};
    return 0;
}

/* A gathered body may be larger than what one write takes. */
static int up_write(struct exchange *x, struct out_data d)
{
    struct io_wait wait = intercept_wait(x->c, INTERCEPT_QUIET_MS);

    if (d.len <= INTERCEPT_CHUNK) {
        return out_try_write(&x->up_out, &x->c->server, d);
    }
    return out_write(&x->up_out, &x->c->server, d, &wait);
}

/* 0; a negative errno when the guest's side broke. That the server reads no more is noted only. */
static int move_up(struct exchange *x, struct round *round)
{
    struct out_data d;
    int r;

    if (x->up_done || x->up_broken) {
        return 0;
    }
    if (x->up_out.pending.len > 0) {
        r = out_try_flush(&x->up_out, &x->c->server);
        if (r == -EAGAIN) {
            round->server_out = true;
            return 0;
        }
        round->moved = true;
        x->up_broken = r < 0;
        x->up_done = r == 0 && x->up_out.done;
        return 0;
    }
    /* The head does not wait for the body: the server may answer to it alone. */
    if (x->up_out.head.len > 0 && x->head.expect_continue && !x->body_known) {
        d = (struct out_data){.data = "", .len = 0, .end = false};
    } else {
        r = up_next(x, &d);
        if (r == -EAGAIN && x->up_out.head.len > 0) {
            d = (struct out_data){.data = "", .len = 0, .end = false};
        } else if (r == -EAGAIN) {
            round->guest_in = true;
            return 0;
        } else if (r < 0) {
            return r == -ECANCELED ? r : -ECONNABORTED;
        }
    }
    round->moved = true;
    r = up_write(x, d);
    x->up_broken = r < 0;
    x->up_done = r == 0 && x->up_out.done && x->up_out.pending.len == 0;
    return r == -ECANCELED ? r : 0;
}

/* ---- the answer ---- */

static int down_write(struct exchange *x, ssize_t n)
{
    cleanup_buf struct buf clean = BUF_INIT(INTERCEPT_CHUNK + 2 * REDACT_NEEDLE_MAX + 65536);
    bool end = n == 0 || x->down_in.done;
    struct out_data d = {.data = x->chunk, .len = (size_t)n, .end = end};
    int r;

    if (redact_active(&x->redact)) {
        r = redact_next(&x->redact, x->chunk, (size_t)n, end, &clean);
        if (r < 0) {
            return r;
        }
        d.data = clean.data;
        d.len = clean.len;
    }
    if (n == 0 && x->down_trailers.len > 0) {
        redact_text(&x->redact, x->down_trailers.data, x->down_trailers.len);
        if (pass_trailers(&x->down_trailers, NULL, &x->down_out) < 0) {
            return -EPROTO;
        }
    }
    x->c->result.bytes_down += d.len;
    if (d.len == 0 && !end && x->down_out.head.len == 0) {
        return 0; /* kept back for now */
    }
    return out_try_write(&x->down_out, &x->c->guest, d);
}

static int move_down(struct exchange *x, struct round *round)
{
    struct intercept_conn *c = x->c;
    ssize_t n;
    int r;

    if (x->down_out.pending.len > 0) {
        r = out_try_flush(&x->down_out, &c->guest);
        if (r == -EAGAIN) {
            round->guest_out = true;
            return 0;
        }
        round->moved = true;
        x->down_done = r == 0 && x->down_out.done;
        return r < 0 ? -ECONNABORTED : 0;
    }
    if (!x->head_done) {
        r = exchange_answer_head(x);
        round->server_in = r == -EAGAIN;
        round->moved = round->moved || r == 0;
        return r == -EAGAIN ? 0 : r;
    }
    n = in_read(&x->down_in, &c->server, x->chunk, INTERCEPT_CHUNK);
    if (n == -EAGAIN && x->down_out.head.len > 0) {
        /* An event stream's head may be all there is for long. */
        r = out_try_write(&x->down_out, &c->guest, (struct out_data){.data = "", .len = 0});
        round->moved = true;
        return r < 0 ? -ECONNABORTED : 0;
    }
    if (n == -EAGAIN) {
        round->server_in = true;
        return 0;
    }
    if (n < 0) {
        return (int)n;
    }
    round->moved = true;
    r = down_write(x, n);
    x->down_done = r == 0 && x->down_out.done && x->down_out.pending.len == 0;
    return r < 0 ? (r == -EPROTO ? -EBADMSG : -ECONNABORTED) : 0;
}

/* ---- waiting ---- */

/* An end of the guest's that cannot be told from a half-closed one by reading is seen here. */
static bool is_gone(const struct pollfd *p)
{
    return (p->revents & (POLLERR | POLLHUP)) != 0;
}

static int wait_for(struct exchange *x, const struct round *round, uint64_t deadline_ns)
{
    struct intercept_conn *c = x->c;
    struct pollfd p[3] = {
        {.fd = c->guest.fd},
        {.fd = c->server.fd},
        {.fd = c->stop_fd, .events = POLLIN},
    };
    int n;

    if (round->guest_in) {
        p[0].events |= io_pollfd(&c->guest, POLLIN).events;
    }
    if (round->guest_out) {
        p[0].events |= io_pollfd(&c->guest, POLLOUT).events;
    }
    if (round->server_in) {
        p[1].events |= io_pollfd(&c->server, POLLIN).events;
    }
    if (round->server_out) {
        p[1].events |= io_pollfd(&c->server, POLLOUT).events;
    }
    if (p[1].events == 0) {
        p[1].fd = FD_NONE; /* its end, once it has come, would wake us again and again */
    }
    n = poll(p, 3, deadline_poll_ms(deadline_ns));
    if (n < 0) {
        return errno == EINTR ? 0 : -errno;
    }
    if (n == 0) {
        return -ETIMEDOUT;
    }
    if (p[2].revents) {
        return -ECANCELED;
    }
    return is_gone(&p[0]) && !round->guest_in ? -ECONNABORTED : 0;
}

/* Nothing of an answer came, over a connection that had served before: nobody has acted on it. */
static bool may_repeat(const struct exchange *x, int r)
{
    bool nothing_sent_twice = x->body_known || x->head.framing == HTTP1_BODY_NONE;
    bool harmless = http1_view_is(x->head.method, "GET") || http1_view_is(x->head.method, "HEAD") ||
                    http1_view_is(x->head.method, "OPTIONS") ||
                    http1_view_is(x->head.method, "PUT") || http1_view_is(x->head.method, "DELETE");

    return x->c->server_used && !x->answered && nothing_sent_twice && harmless &&
           (r == -ECONNRESET || r == -EPIPE || x->up_broken);
}

int exchange_pump(struct exchange *x)
{
    uint64_t deadline_ns = deadline_in_ms(INTERCEPT_QUIET_MS);

    for (;;) {
        struct round round = {0};
        int r = move_up(x, &round);

        r = r < 0 ? r : move_down(x, &round);
        if (r < 0) {
            return may_repeat(x, r) ? -EAGAIN : r;
        }
        if (x->down_done || x->upgraded) {
            return 0;
        }
        if (round.moved) {
            deadline_ns = deadline_in_ms(INTERCEPT_QUIET_MS);
            continue;
        }
        r = wait_for(x, &round, deadline_ns);
        if (r < 0) {
            return r;
        }
    }
}

/* ---- after 101 ---- */

/* One direction of a tunnel. */
struct pipe {
    struct http_io *from;
    struct http_io *to;
    struct buf waiting;    /* owned: not taken yet */
    struct redact *redact; /* NULL: as it is */
    uint64_t *count;
    bool read_all; /* from has ended */
    bool done;
};

static int pipe_flush(struct pipe *p)
{
    while (p->waiting.len > 0) {
        struct iovec iov = {p->waiting.data, p->waiting.len};
        ssize_t n = io_send(p->to, &iov, 1);

        if (n < 0) {
            return (int)n;
        }
        buf_consume(&p->waiting, (size_t)n);
    }
    return 0;
}

/* 0: it waits or is done. *ret_moved: it did something. */
static int pipe_move(struct pipe *p, char *chunk, bool *ret_moved, bool *ret_in, bool *ret_out)
{
    ssize_t n;
    int r;

    if (p->done) {
        return 0;
    }
    r = pipe_flush(p);
    if (r == -EAGAIN) {
        *ret_out = true;
        return 0;
    }
    if (r < 0) {
        return r;
    }
    if (p->read_all) {
        p->done = true;
        io_shutdown_send(p->to);
        *ret_moved = true;
        return 0;
    }
    n = io_recv(p->from, chunk, INTERCEPT_CHUNK);
    if (n == -EAGAIN) {
        *ret_in = true;
        return 0;
    }
    if (n < 0) {
        return (int)n;
    }
    *ret_moved = true;
    *p->count += (uint64_t)n;
    p->read_all = n == 0;
    return p->redact ? redact_next(p->redact, chunk, (size_t)n, n == 0, &p->waiting)
                     : buf_add(&p->waiting, chunk, (size_t)n);
}

/* What looks like the beginning of a secret waits for the rest, but not for ever: a message may end so. */
static int wait_or_release(struct exchange *x, const struct round *round, struct pipe *down)
{
    bool kept = down->redact && down->redact->kept.len > 0;
    int r = wait_for(x, round, kept ? deadline_in_ms(TUNNEL_KEPT_MS) : DEADLINE_NEVER);

    return r == -ETIMEDOUT ? redact_next(down->redact, "", 0, /* end */ true, &down->waiting) : r;
}

void exchange_tunnel(struct exchange *x)
{
    struct intercept_conn *c = x->c;
    size_t room = INTERCEPT_CHUNK + 2 * REDACT_NEEDLE_MAX + 65536;
    struct pipe up = {&c->guest, &c->server, BUF_INIT(room), NULL, &c->result.bytes_up};
    struct pipe down = {&c->server, &c->guest, BUF_INIT(room),
                        redact_active(&x->redact) ? &x->redact : NULL, &c->result.bytes_down};
    int r = 0;

    while (r == 0 && !(up.done && down.done)) {
        struct round round = {0};

        r = pipe_move(&up, x->chunk, &round.moved, &round.guest_in, &round.server_out);
        r = r < 0 ? r
                  : pipe_move(&down, x->chunk, &round.moved, &round.server_in, &round.guest_out);
        if (r == 0 && !round.moved && !(up.done && down.done)) {
            /* Silence is no reason to end it: the other end may be thinking. */
            r = wait_or_release(x, &round, &down);
        }
    }
    secret_wipe_buf(&up.waiting);
    secret_wipe_buf(&down.waiting);
}
