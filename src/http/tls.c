/* SPDX-License-Identifier: Apache-2.0 */
#include "http/tls.h"

#include "base/clock.h"
#include "base/log.h"
#include "http/io.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* How often files are looked at, at most. */
#define LOOK_MS 5000

struct http_tls {
    char *cert_file; /* owned */
    char *key_file;  /* owned */
    char *ca_file;   /* owned; NULL: not mutual */
    char *peer;      /* owned; NULL: any */
    bool client;
    pthread_mutex_t lock; /* guards what follows */
    SSL_CTX *ctx;         /* owned; connections hold references of their own */
    uint64_t next_look_ns;
    struct timespec seen[3]; /* when the files were written that ctx is made of */
};

/* http/1.1 or nothing; a client that offers only other protocols is refused (RFC 7301 3.2). */
static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                           const unsigned char *offered, unsigned len, void *arg)
{
    int r = io_tls_choose(ssl, ret, ret_len, offered, len, arg);

    return r == SSL_TLSEXT_ERR_NOACK ? SSL_TLSEXT_ERR_ALERT_FATAL : r;
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

/* What the other end has to show. */
static int require_peer(const struct http_tls *t, SSL_CTX *ctx, struct err *e)
{
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(ctx);

    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | (t->client ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT),
                       /* callback */ NULL);
    if (!SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) ||
        !SSL_CTX_load_verify_file(ctx, t->ca_file)) {
        return failed(e, "reading the authority", t->ca_file);
    }
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (t->peer && !X509_VERIFY_PARAM_set1_host(param, t->peer, 0)) {
        return failed(e, "expecting the name", t->peer);
    }
    /* A resumed session would not show its certificate again, which may have been replaced for a reason. */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    return SSL_CTX_set_num_tickets(ctx, 0) ? 0 : failed(e, "preparing TLS with", t->cert_file);
}

static int load(const struct http_tls *t, SSL_CTX **ret, struct err *e)
{
    SSL_CTX *ctx = SSL_CTX_new(t->client ? TLS_client_method() : TLS_server_method());
    int r = 0;

    ASSERT(ctx);
    ERR_clear_error();
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    if (!t->client) {
        SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, /* arg */ NULL);
    }
    if (!SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION)) {
        r = failed(e, "preparing TLS with", t->cert_file);
    } else if (SSL_CTX_use_certificate_chain_file(ctx, t->cert_file) != 1) {
        r = failed(e, "reading the certificate", t->cert_file);
    } else if (SSL_CTX_use_PrivateKey_file(ctx, t->key_file, SSL_FILETYPE_PEM) != 1) {
        r = failed(e, "reading the key", t->key_file); /* also when it does not fit */
    } else if (t->ca_file) {
        r = require_peer(t, ctx, e);
    }
    if (r < 0) {
        SSL_CTX_free(ctx);
        return r;
    }
    *ret = ctx;
    return 0;
}

/* When the files were written; a file that is not there counts as written never. */
static void look(const struct http_tls *t, struct timespec ret[static 3])
{
    const char *const files[] = {t->cert_file, t->key_file, t->ca_file};
    struct stat st;

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        ret[i] = files[i] && stat(files[i], &st) == 0 ? st.st_mtim : (struct timespec){0};
    }
}

int http_tls_open(const struct http_tls_opts *opts, struct http_tls **ret, struct err *e)
{
    CLEANUP(http_tls_freep) struct http_tls *t = xnew(struct http_tls);
    int r;

    ASSERT(opts && opts->cert_file && opts->key_file && ret);
    t->cert_file = xstrdup(opts->cert_file);
    t->key_file = xstrdup(opts->key_file);
    t->ca_file = opts->ca_file ? xstrdup(opts->ca_file) : NULL;
    t->peer = opts->peer ? xstrdup(opts->peer) : NULL;
    t->client = opts->client;
    t->next_look_ns = deadline_in_ms(LOOK_MS);
    pthread_mutex_init(&t->lock, NULL);
    look(t, t->seen);
    r = load(t, &t->ctx, e);
    if (r == 0) {
        *ret = TAKE_PTR(t);
    }
    return r;
}

int http_tls_new(const char *cert_file, const char *key_file, struct http_tls **ret, struct err *e)
{
    return http_tls_open(&(struct http_tls_opts){.cert_file = cert_file, .key_file = key_file}, ret,
                         e);
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
        free(t->ca_file);
        free(t->peer);
        free(t);
    }
}

/* With the lock held: has anything been replaced since? What cannot be used yet is looked at again. */
static void look_again(struct http_tls *t)
{
    struct timespec now[3];
    struct err e = {0};
    SSL_CTX *fresh = NULL;

    t->next_look_ns = deadline_in_ms(LOOK_MS);
    look(t, now);
    if (memcmp(now, t->seen, sizeof(now)) == 0) {
        return;
    }
    if (load(t, &fresh, &e) < 0) {
        log_warn(NULL, "cannot use the new certificate yet, going on with the old one: %s", e.msg);
        return;
    }
    SSL_CTX_free(t->ctx);
    t->ctx = fresh;
    memcpy(t->seen, now, sizeof(now));
    log_info(NULL, "the certificate '%s' was read again", t->cert_file);
}

SSL_CTX *io_tls_current(struct http_tls *t)
{
    SSL_CTX *ctx;

    pthread_mutex_lock(&t->lock);
    if (t->ca_file && deadline_passed(t->next_look_ns)) {
        look_again(t);
    }
    ctx = t->ctx;
    SSL_CTX_up_ref(ctx);
    pthread_mutex_unlock(&t->lock);
    return ctx;
}

void http_tls_look_now(struct http_tls *t)
{
    pthread_mutex_lock(&t->lock);
    t->next_look_ns = 0;
    pthread_mutex_unlock(&t->lock);
}

void io_tls_begin(struct http_io *io, struct http_tls *t)
{
    SSL_CTX *ctx = io_tls_current(t);

    io_tls_server(io, ctx);
    SSL_CTX_free(ctx);
}
