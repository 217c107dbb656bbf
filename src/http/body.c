/* SPDX-License-Identifier: Apache-2.0 */
#include "http/body.h"

#include <string.h>

/* Read-ahead while taking chunk lines off; large reads bypass the buffer. */
#define IN_BUFFER (16u * 1024)

void in_init(struct http_in *in, enum http1_framing framing, uint64_t length)
{
    *in = (struct http_in){.framing = framing};
    in->left = framing == HTTP1_BODY_LENGTH ? length : 0;
    in->done = framing == HTTP1_BODY_NONE || (framing == HTTP1_BODY_LENGTH && length == 0);
}

static ssize_t read_length(struct http_in *in, struct http_io *io, void *data, size_t len)
{
    ssize_t n = io_recv(io, data, (size_t)MIN((uint64_t)len, in->left));

    if (n > 0) {
        in->left -= (uint64_t)n;
        in->done = in->left == 0;
    }
    return n == 0 ? -EBADMSG : n;
}

/* In the middle of a chunk with nothing read ahead: straight into the caller's memory. */
static ssize_t read_chunk_data(struct http_in *in, struct http_io *io, void *data, size_t len)
{
    ssize_t n = io_recv(io, data, (size_t)MIN((uint64_t)len, in->chunked.left));
    size_t used;
    size_t body_len;

    if (n <= 0) {
        return n == 0 ? -EBADMSG : n;
    }
    if (http1_chunked_next(&in->chunked, data, (size_t)n, &used, &body_len) < 0 ||
        body_len != (size_t)n) {
        return -EBADMSG;
    }
    return n;
}

static ssize_t read_chunked(struct http_in *in, struct http_io *io, void *data, size_t len)
{
    for (;;) {
        size_t used;
        size_t body_len;
        int r;

        if (io->in_len == 0) {
            ssize_t n;

            if (in->chunked.state == HTTP1_CHUNK_DATA) {
                return read_chunk_data(in, io, data, len);
            }
            n = io_fill(io, IN_BUFFER);
            if (n <= 0) {
                return n == 0 ? -EBADMSG : n;
            }
        }
        /* Never more than len in, so that never more than len of body can come out. */
        r = http1_chunked_next(&in->chunked, io_data(io), MIN(len, io->in_len), &used, &body_len);
        if (r < 0) {
            return r;
        }
        memcpy(data, io_data(io) + used - body_len, body_len);
        io_consume(io, used);
        if (r == 1) {
            in->done = true;
            return 0;
        }
        if (body_len > 0) {
            return (ssize_t)body_len;
        }
    }
}

ssize_t in_read(struct http_in *in, struct http_io *io, void *data, size_t len)
{
    ssize_t n;

    ASSERT(len > 0);
    if (in->done) {
        return 0;
    }
    switch (in->framing) {
    case HTTP1_BODY_LENGTH:
        n = read_length(in, io, data, len);
        break;
    case HTTP1_BODY_CHUNKED:
        n = read_chunked(in, io, data, len);
        break;
    default:
        ASSERT(in->framing == HTTP1_BODY_CLOSE);
        n = io_recv(io, data, len);
        in->done = n == 0;
        break;
    }
    if (n > 0) {
        in->n_read += (uint64_t)n;
    }
    return n;
}

/* ---- sending ---- */

void out_init(struct http_out *out)
{
    *out = (struct http_out){.head = BUF_INIT(HTTP1_MAX_HEAD * 2),
                             .trailers = BUF_INIT(HTTP1_MAX_TRAILER),
                             .pending = BUF_INIT(OUT_PENDING_MAX)};
}

void out_done(struct http_out *out)
{
    buf_done(&out->head);
    buf_done(&out->trailers);
    buf_done(&out->pending);
}

void out_begin(struct http_out *out, enum http1_framing framing, uint64_t length)
{
    ASSERT(out->head.len > 0);
    out->framing = framing;
    out->left = framing == HTTP1_BODY_LENGTH ? length : 0;
}

/* What one write of `len` bytes becomes on the wire. Pointers into out and data. */
struct out_pieces {
    struct iovec iov[7]; /* head, chunk line, data, CR LF, "0", trailers, CR LF */
    int n;
    char line[HTTP1_CHUNK_LINE_SIZE];
};

static void add_piece(struct out_pieces *p, const void *data, size_t len)
{
    if (len > 0) {
        memcpy(&p->iov[p->n].iov_base, &data, sizeof(data)); /* iovec is not const, sending is */
        p->iov[p->n++].iov_len = len;
    }
}

static int encode(struct http_out *out, struct out_data d, struct out_pieces *ret)
{
    bool chunked = out->framing == HTTP1_BODY_CHUNKED && !out->mute;
    size_t len = out->mute ? 0 : d.len;

    ASSERT(!out->done && out->pending.len == 0);
    if (out->framing == HTTP1_BODY_LENGTH) {
        ASSERT(d.len <= out->left);
        out->left -= d.len;
        if (d.end && out->left > 0 && !out->mute) {
            return -EPROTO;
        }
    }
    ASSERT(d.len == 0 || out->framing != HTTP1_BODY_NONE);
    out->n_written += d.len;
    out->done = d.end;
    ret->n = 0;
    add_piece(ret, out->head.data, out->head.len);
    if (len > 0) {
        if (chunked) {
            add_piece(ret, ret->line, http1_print_chunk(ret->line, len));
        }
        add_piece(ret, d.data, len);
        if (chunked) {
            add_piece(ret, "\r\n", 2);
        }
    }
    if (d.end && chunked) {
        add_piece(ret, HTTP1_LAST_CHUNK, strlen(HTTP1_LAST_CHUNK));
        add_piece(ret, out->trailers.data, out->trailers.len);
        add_piece(ret, "\r\n", 2);
    }
    return 0;
}

int out_write(struct http_out *out, struct http_io *io, struct out_data d,
              const struct io_wait *wait)
{
    struct out_pieces p;
    int r = encode(out, d, &p);

    if (r == 0 && p.n > 0) {
        r = io_send_all(io, p.iov, p.n, wait);
    }
    buf_reset(&out->head);
    return r;
}

int out_try_write(struct http_out *out, struct http_io *io, struct out_data d)
{
    struct out_pieces p;
    size_t sent = 0;
    int r = encode(out, d, &p);

    if (r < 0) {
        return r;
    }
    if (p.n > 0) {
        ssize_t n = io_send(io, p.iov, p.n);

        if (n < 0 && n != -EAGAIN) {
            return (int)n;
        }
        sent = n > 0 ? (size_t)n : 0;
    }
    for (int i = 0; i < p.n; i++) {
        size_t skip = MIN(sent, p.iov[i].iov_len);

        r = buf_add(&out->pending, (const char *)p.iov[i].iov_base + skip, p.iov[i].iov_len - skip);
        ASSERT(r == 0);
        sent -= skip;
    }
    buf_reset(&out->head);
    return 0;
}

int out_try_flush(struct http_out *out, struct http_io *io)
{
    while (out->pending.len > 0) {
        struct iovec iov = {out->pending.data, out->pending.len};
        ssize_t n = io_send(io, &iov, 1);

        if (n < 0) {
            return (int)n;
        }
        buf_consume(&out->pending, (size_t)n);
    }
    return 0;
}
