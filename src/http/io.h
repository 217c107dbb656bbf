/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection's bytes: a non-blocking socket, with or without TLS, and what was read ahead.
 * Everything above it (heads, bodies, WebSocket) is written against the non-blocking calls; io_wait
 * turns them into blocking ones. One thread at a time.
 */
#pragma once

#include "base/err.h"
#include "base/util.h"

#include <openssl/ssl.h>
#include <poll.h>
#include <sys/types.h>
#include <sys/uio.h>

#define IO_MAX_IOV 8

/* What is offered, or taken, in a TLS handshake (RFC 7301). */
enum io_alpn {
    IO_ALPN_HTTP1,
    IO_ALPN_HTTP2,
    IO_ALPN_BOTH, /* HTTP/2 first; for who connects */
};

struct http_io;

/*
 * A connection whose bytes travel inside something else, as in an exchange of another connection (tunnel.h). All
 * functions are non-blocking; results as of io_recv and io_send below.
 */
struct http_io_layer {
    ssize_t (*recv)(void *under, void *data, size_t len);
    /* After -EAGAIN the same bytes are offered again, as with TLS: some of them may be on their way already. */
    ssize_t (*send)(void *under, const struct iovec *iov, int n_iov);
    /* Nothing more is sent; the other end sees the end. 0, or -EAGAIN: call again. */
    int (*end_send)(void *under);
    struct pollfd (*pollfd)(const void *under, short events); /* FD_NONE when events is 0 */
    void (*done)(void *under);
};

struct http_io {
    int fd;                            /* owned; FD_NONE with a layer */
    const struct http_io_layer *layer; /* static; NULL: the socket itself */
    void *under;                       /* owned; of the layer */
    SSL *ssl;                          /* owned; NULL: plain */
    char *in;                          /* owned; read ahead of the parser */
    size_t in_pos;
    size_t in_len; /* unread bytes at in + in_pos */
    size_t in_cap;
    char *early; /* owned; what somebody else has read from the socket before; NULL: nothing */
    size_t early_pos;
    size_t n_early;
    enum io_alpn alpn; /* TLS: set before the handshake */
    bool want_out;     /* TLS: the last recv waits for room to send */
    bool want_in;      /* TLS: the last send waits for bytes to read */
    bool is_plain;     /* TLS: the peer does not speak it, but HTTP */
};

/* Who bounds a wait. */
struct io_wait {
    uint64_t deadline_ns; /* DEADLINE_NEVER: none */
    struct pollfd watch;  /* fd < 0: none; when ready the wait ends with -ECANCELED */
};

void io_init_take(struct http_io *io, int fd);
void io_init_layer_take(struct http_io *io, const struct http_io_layer *layer, void *under);
/* Bytes that were read from the socket already: they come first, below TLS. Before anything else. */
void io_early(struct http_io *io, const void *data, size_t len);
/* For those who read the socket: some of the early bytes; 0 when there are none (left). */
size_t io_take_early(struct http_io *io, void *data, size_t len);
/* Closes. TLS says goodbye if it can without waiting. */
void io_done(struct http_io *io);
/* Both sides of a TLS connection that is to be closed in order. Not with a layer. */
void io_shutdown_send(struct http_io *io);
/* Nothing more is sent; the peer sees the end, and may still speak. 0, or -EAGAIN: call again. */
int io_end_send(struct http_io *io);

/*
 * From the buffer first, then from the socket. n > 0; 0 at the end; -EAGAIN; another negative
 * errno.
 */
ssize_t io_recv(struct http_io *io, void *data, size_t len);
/*
 * Reads more into the buffer, which grows up to max unread bytes. As io_recv; -E2BIG when it is
 * full.
 */
ssize_t io_fill(struct http_io *io, size_t max);
void io_consume(struct http_io *io, size_t n);
/* Takes the buffered bytes' memory back when nothing is buffered. */
void io_trim(struct http_io *io);
static inline const char *io_data(const struct http_io *io)
{
    return io->in + io->in_pos;
}

/* Sends some of it: n > 0, -EAGAIN, or another negative errno. Never raises SIGPIPE. */
ssize_t io_send(struct http_io *io, const struct iovec *iov, int n_iov);
/* Sends all of it. */
int io_send_all(struct http_io *io, struct iovec *iov, int n_iov, const struct io_wait *wait);

/* What to poll for after -EAGAIN of a recv (POLLIN) or a send (POLLOUT). */
struct pollfd io_pollfd(const struct http_io *io, short events);
/* Bytes that poll cannot see. */
bool io_buffered(const struct http_io *io);
/* 0, -ETIMEDOUT, -ECANCELED. */
int io_wait(struct http_io *io, short events, const struct io_wait *wait);

/* ---- io-tls.c ---- */

ssize_t io_tls_recv(struct http_io *io, void *data, size_t len);
ssize_t io_tls_send(struct http_io *io, const struct iovec *iov, int n_iov);
void io_tls_goodbye(struct http_io *io);
void io_tls_done(struct http_io *io);
/* A context that verifies; ca_file NULL: the system's authorities. */
int io_tls_client_context(const char *ca_file, SSL_CTX **ret, struct err *e);
/* Server side: wraps the accepted socket. ctx has certificate and key. */
int io_tls_accept(struct http_io *io, SSL_CTX *ctx, const struct io_wait *wait, struct err *e);
/* Client side: wraps the connected socket. name is checked against the certificate. */
int io_tls_connect(struct http_io *io, SSL_CTX *ctx, const char *name, const struct io_wait *wait,
                   struct err *e);

/* What io->alpn says to who accepts: for SSL_CTX_set_alpn_select_cb(). A client that offers other things may still speak HTTP/1. */
int io_tls_choose(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                  const unsigned char *offered, unsigned n_offered, void *arg);
/* After the handshake: have both agreed on HTTP/2? */
bool io_tls_is_http2(const struct http_io *io);

/* Server side: the handshake is made by the first calls of io_recv. */
void io_tls_server(struct http_io *io, SSL_CTX *ctx);
/* The same with the certificate of the moment (tls.h). */
struct http_tls;
void io_tls_begin(struct http_io *io, struct http_tls *t);
/* The caller frees its reference. */
SSL_CTX *io_tls_current(struct http_tls *t);
/* Back to the bare socket, without a word; for answering who does not speak TLS. */
void io_tls_drop(struct http_io *io);
