/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS under http_io. The socket is reached through a BIO of our own, because OpenSSL's raises
 * SIGPIPE.
 */
#include "http/io.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#define TLS_RECORD 16384u

static int bio_write(BIO *bio, const char *data, int len)
{
    const struct http_io *io = BIO_get_data(bio);
    ssize_t n = send(io->fd, data, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);

    BIO_clear_retry_flags(bio);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_retry_write(bio);
    }
    return (int)n;
}

static int bio_read(BIO *bio, char *data, int len)
{
    struct http_io *io = BIO_get_data(bio);
    ssize_t n = (ssize_t)io_take_early(io, data, (size_t)len);

    BIO_clear_retry_flags(bio);
    if (n > 0) {
        return (int)n;
    }
    n = recv(io->fd, data, (size_t)len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_retry_read(bio);
    }
    return (int)n;
}

static long bio_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
    (void)bio;
    (void)num;
    (void)ptr;
    return cmd == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *method; /* made once, never freed */
static pthread_once_t method_once = PTHREAD_ONCE_INIT;

static void make_method(void)
{
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "http_io");
    ASSERT(method && BIO_meth_set_write(method, bio_write) && BIO_meth_set_read(method, bio_read) &&
           BIO_meth_set_ctrl(method, bio_ctrl));
}

static ssize_t tls_result(struct http_io *io, int n, bool sending)
{
    int saved = errno;

    io->want_in = io->want_out = false;
    switch (SSL_get_error(io->ssl, n)) {
    case SSL_ERROR_WANT_READ:
        io->want_in = sending;
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        io->want_out = !sending;
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        return saved > 0 ? -saved : -ECONNRESET;
    default:
        io->is_plain = ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST;
        return -EPROTO;
    }
}

ssize_t io_tls_recv(struct http_io *io, void *data, size_t len)
{
    int n;

    ERR_clear_error();
    errno = 0;
    n = SSL_read(io->ssl, data, (int)MIN(len, (size_t)INT32_MAX));
    if (n > 0) {
        io->want_out = false;
        return n;
    }
    return tls_result(io, n, /* sending */ false);
}

/* Small pieces go into one record. */
ssize_t io_tls_send(struct http_io *io, const struct iovec *iov, int n_iov)
{
    char joined[TLS_RECORD];
    const void *data = iov[0].iov_base;
    size_t len = MIN(iov[0].iov_len, (size_t)TLS_RECORD);
    int n;

    if (n_iov > 1 && len < sizeof(joined)) {
        len = 0;
        for (int i = 0; i < n_iov && len < sizeof(joined); i++) {
            size_t part = MIN(iov[i].iov_len, sizeof(joined) - len);

            memcpy(joined + len, iov[i].iov_base, part);
            len += part;
        }
        data = joined;
    }
    ERR_clear_error();
    errno = 0;
    n = SSL_write(io->ssl, data, (int)len);
    if (n > 0) {
        io->want_in = false;
        return n;
    }
    n = (int)tls_result(io, n, /* sending */ true);
    return n == 0 ? -EPIPE : n;
}

void io_tls_goodbye(struct http_io *io)
{
    ERR_clear_error();
    if (SSL_is_init_finished(io->ssl)) {
        SSL_shutdown(io->ssl); /* best effort: the socket is closed next in any case */
    }
}

void io_tls_drop(struct http_io *io)
{
    SSL_free(io->ssl);
    io->ssl = NULL;
    io->want_in = io->want_out = false;
    ERR_clear_error();
}

void io_tls_done(struct http_io *io)
{
    io_tls_goodbye(io);
    io_tls_drop(io);
}

static int tls_error(struct err *e, int code, const char *what)
{
    unsigned long number = ERR_get_error();
    const char *text = number ? ERR_reason_error_string(number) : NULL;

    ERR_clear_error();
    return err_set(e, code, NULL, "%s: %s", what, text ? text : "no reason was given");
}

int io_tls_client_context(const char *ca_file, SSL_CTX **ret, struct err *e)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

    ASSERT(ctx);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (!SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) ||
        !(ca_file ? SSL_CTX_load_verify_file(ctx, ca_file)
                  : SSL_CTX_set_default_verify_paths(ctx))) {
        SSL_CTX_free(ctx);
        return tls_error(e, -EINVAL, "loading the certificate authorities");
    }
    *ret = ctx;
    return 0;
}

static int set_peer_name(SSL *ssl, const char *name)
{
    cleanup_free char *copy = xstrdup(name); /* OpenSSL's macro wants it writable */
    unsigned char address[16];

    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
    }
    return SSL_set1_host(ssl, name) && SSL_set_tlsext_host_name(ssl, copy);
}

static void wrap(struct http_io *io, SSL_CTX *ctx)
{
    BIO *bio;

    ASSERT(!io->ssl && !io->layer);
    pthread_once(&method_once, make_method);
    io->ssl = SSL_new(ctx);
    bio = BIO_new(method);
    ASSERT(io->ssl && bio);
    BIO_set_data(bio, io);
    BIO_set_init(bio, 1);
    SSL_set_bio(io->ssl, bio, bio);
    SSL_set_app_data(io->ssl, io);
}

/* ---- protocols ---- */

#define ALPN_HTTP1 "\x08http/1.1"
#define ALPN_HTTP2 "\x02h2"

static const struct {
    const char *list;
    unsigned len;
} alpn_lists[] = {
    [IO_ALPN_HTTP1] = {ALPN_HTTP1, sizeof(ALPN_HTTP1) - 1},
    [IO_ALPN_HTTP2] = {ALPN_HTTP2, sizeof(ALPN_HTTP2) - 1},
    [IO_ALPN_BOTH] = {ALPN_HTTP2 ALPN_HTTP1, sizeof(ALPN_HTTP2 ALPN_HTTP1) - 1},
};

int io_tls_choose(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                  const unsigned char *offered, unsigned n_offered, void *arg)
{
    const struct http_io *io = SSL_get_app_data(ssl);
    unsigned char *chosen = NULL;

    (void)arg;
    if (SSL_select_next_proto(&chosen, ret_len, (const unsigned char *)alpn_lists[io->alpn].list,
                              alpn_lists[io->alpn].len, offered,
                              n_offered) != OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_NOACK;
    }
    *ret = chosen;
    return SSL_TLSEXT_ERR_OK;
}

bool io_tls_is_http2(const struct http_io *io)
{
    const unsigned char *name = NULL;
    unsigned len = 0;

    SSL_get0_alpn_selected(io->ssl, &name, &len);
    return len == 2 && memcmp(name, "h2", 2) == 0;
}

void io_tls_server(struct http_io *io, SSL_CTX *ctx)
{
    wrap(io, ctx);
    SSL_set_accept_state(io->ssl);
}

int io_tls_accept(struct http_io *io, SSL_CTX *ctx, const struct io_wait *wait, struct err *e)
{
    wrap(io, ctx);
    for (;;) {
        ssize_t r;
        int n;

        ERR_clear_error();
        errno = 0;
        n = SSL_accept(io->ssl);
        if (n == 1) {
            io->want_in = io->want_out = false;
            return 0;
        }
        r = tls_result(io, n, /* sending */ false);
        if (r == 0) {
            return err_set(e, -ECONNRESET, NULL,
                           "the client closed the connection in the TLS handshake");
        }
        if (r != -EAGAIN) {
            return tls_error(e, (int)r, "the TLS handshake failed");
        }
        r = io_wait(io, io->want_out ? POLLOUT : POLLIN, wait);
        if (r < 0) {
            return err_wrap(e, (int)r, "waiting for the TLS handshake");
        }
    }
}

int io_tls_connect(struct http_io *io, SSL_CTX *ctx, const char *name, const struct io_wait *wait,
                   struct err *e)
{
    wrap(io, ctx);
    if (!set_peer_name(io->ssl, name) ||
        SSL_set_alpn_protos(io->ssl, (const unsigned char *)alpn_lists[io->alpn].list,
                            alpn_lists[io->alpn].len) != 0) {
        return tls_error(e, -EINVAL, "preparing the TLS handshake");
    }
    for (;;) {
        ssize_t r;
        int n;

        ERR_clear_error();
        errno = 0;
        n = SSL_connect(io->ssl);
        if (n == 1) {
            io->want_in = io->want_out = false;
            return 0;
        }
        r = tls_result(io, n, /* sending */ false);
        if (r == 0) {
            return err_set(e, -ECONNRESET, NULL,
                           "the server closed the connection in the TLS handshake");
        }
        if (r != -EAGAIN && SSL_get_verify_result(io->ssl) != X509_V_OK) {
            ERR_clear_error();
            return err_set(e, -EPROTO, "tls_not_trusted",
                           "the certificate of '%s' is not trusted: %s", name,
                           X509_verify_cert_error_string(SSL_get_verify_result(io->ssl)));
        }
        if (r != -EAGAIN) {
            return tls_error(e, (int)r, "the TLS handshake failed");
        }
        r = io_wait(io, io->want_out ? POLLOUT : POLLIN, wait);
        if (r < 0) {
            return err_wrap(e, (int)r, "waiting for the TLS handshake");
        }
    }
}
