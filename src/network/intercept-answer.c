/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of the server's answers, on their way to the guest. */
#include <stdio.h>
#include <string.h>

#include "network/intercept-internal.h"

/* A head of the server in its buffer: 0 and its length, or -EAGAIN, -EBADMSG, -E2BIG. */
static int find_head(struct exchange *x, struct http1_scan *scan, size_t *ret_len)
{
    struct http_io *io = &x->c->server;

    for (;;) {
        ssize_t n;
        int r = http1_scan(scan, io_data(io), io->in_len, ret_len);

        if (r != -EAGAIN) {
            return r;
        }
        n = io_fill(io, HTTP1_MAX_HEAD + 1);
        if (n == 0) {
            return io->in_len > 0 || x->answered ? -EBADMSG : -ECONNRESET;
        }
        if (n < 0) {
            return (int)n;
        }
        x->answered = true;
    }
}

static bool is_upgrade(const struct exchange *x, const struct http1_head *head)
{
    const struct http1_field *asked = http1_field_get(&x->head, "upgrade");
    const struct http1_field *given = http1_field_get(head, "upgrade");

    return head->status == 101 && x->head.upgrade && asked && given &&
           http1_view_is(asked->value, "websocket") && http1_view_is(given->value, "websocket");
}

static int print_fields(struct exchange *x, const struct http1_head *head, struct buf *b)
{
    int r = 0;

    for (size_t i = 0; i < head->n_fields && r == 0; i++) {
        const struct http1_field *f = &head->fields[i];

        if (inject_is_hop(head, f) || http1_view_is(f->name, "content-length") ||
            http1_view_is(f->name, "alt-svc")) {
            continue; /* Alt-Svc would send the guest to where nobody looks */
        }
        {
            cleanup_free char *name = xstrndup(f->name.p, f->name.len);
            cleanup_free char *value = xstrndup(f->value.p, f->value.len);

            redact_text(&x->redact, value, strlen(value));
            r = http1_print_field(b, name, value);
        }
    }
    return r;
}

/* An answer that cannot be searched would tell what must not be told. */
static bool is_unreadable(const struct exchange *x, const struct http1_head *head)
{
    if (!redact_active(&x->redact) || head->framing == HTTP1_BODY_NONE) {
        return false;
    }
    for (size_t i = 0; i < head->n_fields; i++) {
        if (http1_view_is(head->fields[i].name, "content-encoding") &&
            !http1_view_is(head->fields[i].value, "identity") && head->fields[i].value.len > 0) {
            return true;
        }
    }
    return false;
}

static int send_interim(struct exchange *x, const struct http1_head *head)
{
    struct io_wait wait = intercept_wait(x->c, INTERCEPT_HEAD_MS);
    cleanup_buf struct buf b = BUF_INIT(HTTP1_MAX_HEAD * 2);
    struct iovec iov;
    int r = http1_print_status(&b, 1, head->status);

    if (x->head.minor == 0) {
        return 0;
    }
    r = r < 0 ? r : print_fields(x, head, &b);
    if (r == 0 && is_upgrade(x, head)) {
        r = buf_add_str(&b, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    }
    r = r < 0 ? r : http1_print_end(&b);
    iov = (struct iovec){b.data, b.len};
    return r < 0 ? -EBADMSG : io_send_all(&x->c->guest, &iov, 1, &wait);
}

static enum http1_framing choose_framing(const struct exchange *x, const struct http1_head *head)
{
    if (head->framing == HTTP1_BODY_NONE || head->framing == HTTP1_BODY_LENGTH) {
        return head->framing;
    }
    return x->head.minor == 0 ? HTTP1_BODY_CLOSE : HTTP1_BODY_CHUNKED;
}

/* Which trailers will come, if the server says so. */
static int print_trailer_names(struct exchange *x, const struct http1_head *head, struct buf *b)
{
    const struct http1_field *names = http1_field_get(head, "trailer");
    int r = buf_add_str(b, "Transfer-Encoding: chunked\r\n");

    if (r == 0 && names && head->framing == HTTP1_BODY_CHUNKED) {
        cleanup_free char *value = xstrndup(names->value.p, names->value.len);

        redact_text(&x->redact, value, strlen(value));
        r = http1_print_field(b, "Trailer", value);
    }
    return r;
}

static int print_final(struct exchange *x, const struct http1_head *head)
{
    enum http1_framing framing = choose_framing(x, head);
    struct buf *b = &x->down_out.head;
    int r = http1_print_status(b, 1, head->status);

    x->keep_server = head->keep_alive && head->framing != HTTP1_BODY_CLOSE;
    x->keep_guest = x->head.keep_alive && framing != HTTP1_BODY_CLOSE;
    r = r < 0 ? r : print_fields(x, head, b);
    if (r == 0 && (framing == HTTP1_BODY_LENGTH || head->has_length)) {
        r = buf_printf(b, "Content-Length: %llu\r\n", (unsigned long long)head->content_length);
    } else if (r == 0 && framing == HTTP1_BODY_CHUNKED) {
        r = print_trailer_names(x, head, b);
    }
    /* Whoever answers before the body was read leaves us with the rest of it. */
    if (!x->up_done) {
        x->keep_guest = x->keep_server = false;
    }
    if (r == 0 && !x->keep_guest) {
        r = buf_add_str(b, "Connection: close\r\n");
    }
    r = r < 0 ? r : http1_print_end(b);
    out_begin(&x->down_out, framing, head->content_length);
    in_init(&x->down_in, head->framing, head->content_length);
    x->down_in.chunked.trailers = &x->down_trailers;
    return r < 0 ? -EBADMSG : 0;
}

static int take_head(struct exchange *x, const struct http1_head *head)
{
    struct intercept_conn *c = x->c;

    if (is_upgrade(x, head)) {
        x->upgraded = x->head_done = true;
        c->result.status = 101;
        exchange_tell(x, 101, NULL);
        return send_interim(x, head);
    }
    if (head->status == 101 || (head->status < 200 && ++x->n_interim > INTERCEPT_INTERIM_MAX)) {
        return -EBADMSG;
    }
    if (head->status < 200) {
        int r = send_interim(x, head);

        return r < 0 ? r : -EINPROGRESS;
    }
    if (is_unreadable(x, head)) {
        intercept_refuse(c, "answer_unreadable");
        return -EBADMSG;
    }
    c->result.status = (int)head->status;
    exchange_tell(x, c->result.status, NULL);
    x->head_done = true;
    return print_final(x, head);
}

int exchange_answer_head(struct exchange *x)
{
    struct http_io *io = &x->c->server;
    int r = -EINPROGRESS;

    while (r == -EINPROGRESS) {
        bool to_head = http1_view_is(x->head.method, "HEAD");
        struct http1_scan scan = {0};
        struct http1_head head;
        size_t len = 0;

        r = find_head(x, &scan, &len);
        if (r < 0) {
            return r == -E2BIG ? -EBADMSG : r;
        }
        if (http1_parse_response(io_data(io), len, to_head, &head) != HTTP1_OK) {
            return -EBADMSG;
        }
        r = take_head(x, &head);
        io_consume(io, len);
    }
    return r;
}
