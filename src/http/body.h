/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two directions of a message's body over one connection, the same for server and client:
 * http_in takes framing off what is received, http_out puts it onto what is sent.
 */
#pragma once

#include "http/io.h"
#include "wire/http1.h"

struct http_in {
    enum http1_framing framing;
    uint64_t left;                /* HTTP1_BODY_LENGTH */
    struct http1_chunked chunked; /* HTTP1_BODY_CHUNKED */
    uint64_t n_read;              /* body bytes given out */
    bool done;
};

/* Trailers are dropped, unless in->chunked.trailers is set afterwards. */
void in_init(struct http_in *in, enum http1_framing framing, uint64_t length);
/* n > 0; 0 at the proper end; -EAGAIN; -EBADMSG: bad framing or cut short; errno of the socket. */
ssize_t in_read(struct http_in *in, struct http_io *io, void *data, size_t len);

struct http_out {
    enum http1_framing framing;
    uint64_t left;       /* HTTP1_BODY_LENGTH: announced and not yet written */
    bool mute;           /* answer to HEAD: framing is announced, the body is not sent */
    bool done;           /* the end was written (maybe still pending) */
    uint64_t n_written;  /* body bytes taken */
    struct buf head;     /* not yet sent: leaves with the first body bytes */
    struct buf trailers; /* checked lines, for HTTP1_BODY_CHUNKED: leave behind the last chunk */
    struct buf pending;  /* encoded, not yet taken by the socket (non-blocking use) */
};

/* A head, then a chunk line, data, CR LF, trailers: what may be left behind by one non-blocking write. */
#define OUT_PENDING_MAX (HTTP1_MAX_HEAD * 2 + HTTP1_MAX_TRAILER + 1024u * 1024)

void out_init(struct http_out *out);
void out_done(struct http_out *out);
/* After the head was printed to out->head. */
void out_begin(struct http_out *out, enum http1_framing framing, uint64_t length);
/* Bytes of the body. `end`: it is over with them. */
struct out_data {
    const void *data;
    size_t len;
    bool end;
};
/* Blocking: everything, encoded, with the head if that is still here, in one write if the socket
 * takes it. -EPROTO: ended with fewer bytes than announced. */
int out_write(struct http_out *out, struct http_io *io, struct out_data d,
              const struct io_wait *wait);
/*
 * Non-blocking: takes all of it (at most 1 MiB, and only when nothing is pending); what the socket
 * does not take is kept pending.
 */
int out_try_write(struct http_out *out, struct http_io *io, struct out_data d);
/* Sends what is pending: 0, -EAGAIN, or another negative errno. */
int out_try_flush(struct http_out *out, struct http_io *io);
