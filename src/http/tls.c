/* SPDX-License-Identifier: Apache-2.0 */
#include "http/tls.h"

#include "http/io.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <string.h>

struct http_tls {
    char *cert_file; /* owned */
    char *key_file;  /* owned */
    pthread_mutex_t lock;
    SSL_CTX *ctx; /* owned; guarded by lock; connections hold references of their own */
};

/* http/1.1 or nothing; a client that offers only other protocols is refused (RFC 7301 3.2). */
static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                           const unsigned char *offered, unsigned len, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen = NULL;

    (void)ssl;
    (void)arg;
    if (SSL_select_next_proto(&chosen, ret_len, ours, sizeof(ours) - 1, offered, len) !=
        OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    *ret = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int failed(struct err *e, const char *what, const char *file)
{
    unsigned long number = ERR_peek_last_error();
    const char *text = number ? ERR_reason_error_string(number) : NULL;
    int code = ERR_GET_LIB(number) == ERR_LIB_SYS ? -(int)ERR_GET_REASON(number) : -EINVAL;

    ERR_clear_error();
    return err_set(e, code, "bad_certificate", "%s '%s': %s", what, file,
                   text ? text : "no reason was given");
}

static int load(const struct http_tls *t, SSL_CTX **ret, struct err *e)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    int r = 0;

    ASSERT(ctx);
    ERR_clear_error();
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, /* arg */ NULL);
    if (!SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION)) {
        r = failed(e, "preparing TLS with", t->cert_file);
    } else if (SSL_CTX_use_certificate_chain_file(ctx, t->cert_file) != 1) {
        r = failed(e, "reading the certificate", t->cert_file);
    } else if (SSL_CTX_use_PrivateKey_file(ctx, t->key_file, SSL_FILETYPE_PEM) != 1) {
        r = failed(e, "reading the key", t->key_file); /* also when it does not fit */
    }
    if (r < 0) {
        SSL_CTX_free(ctx);
        return r;
    }
    *ret = ctx;
    return 0;
}

int http_tls_new(const char *cert_file, const char *key_file, struct http_tls **ret, struct err *e)
{
    CLEANUP(http_tls_freep) struct http_tls *t = xnew(struct http_tls);
    int r;

    ASSERT(cert_file && key_file);
    t->cert_file = xstrdup(cert_file);
    t->key_file = xstrdup(key_file);
    pthread_mutex_init(&t->lock, NULL);
    r = load(t, &t->ctx, e);
    if (r == 0) {
        *ret = TAKE_PTR(t);
    }
    return r;
}

int http_tls_reload(struct http_tls *t, struct err *e)
{
    SSL_CTX *fresh = NULL;
    SSL_CTX *old;
    int r = load(t, &fresh, e);

    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&t->lock);
    old = t->ctx;
    t->ctx = fresh;
    pthread_mutex_unlock(&t->lock);
    SSL_CTX_free(old);
    return 0;
}

void http_tls_free(struct http_tls *t)
{
    if (t) {
        SSL_CTX_free(t->ctx);
        pthread_mutex_destroy(&t->lock);
        free(t->cert_file);
        free(t->key_file);
        free(t);
    }
}

void io_tls_begin(struct http_io *io, struct http_tls *t)
{
    pthread_mutex_lock(&t->lock);
    io_tls_server(io, t->ctx);
    pthread_mutex_unlock(&t->lock);
}
