/* SPDX-License-Identifier: Apache-2.0 */
#include "network/leaf.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/id.h"
#include "http/io.h"

struct leaf {
    char organisation[ID_SIZE];
    char name[CREDENTIAL_HOST_SIZE];
    SSL_CTX *ctx; /* owned: one reference */
    uint64_t until_ns;
    TAILQ_ENTRY(leaf) entry;
};
TAILQ_HEAD(leaf_list, leaf);

struct leaves {
    struct credential_client *client; /* borrowed */
    EVP_PKEY *key;                    /* owned */
    unsigned char *spki;              /* owned */
    size_t n_spki;
    pthread_mutex_t lock;  /* guards list and n */
    struct leaf_list list; /* most recently used first */
    size_t n;
};

int leaves_new(struct credential_client *client, struct leaves **ret, struct err *e)
{
    struct leaves *l = xnew(struct leaves);
    int len;

    l->client = client;
    pthread_mutex_init(&l->lock, NULL);
    TAILQ_INIT(&l->list);
    l->key = EVP_EC_gen("P-256");
    len = l->key ? i2d_PUBKEY(l->key, &l->spki) : -1;
    if (len <= 0) {
        leaves_free(l);
        return err_set(e, -EIO, NULL, "making a key failed");
    }
    l->n_spki = (size_t)len;
    *ret = l;
    return 0;
}

static void leaf_free(struct leaf *leaf)
{
    SSL_CTX_free(leaf->ctx);
    free(leaf);
}

void leaves_free(struct leaves *l)
{
    if (l) {
        while (!TAILQ_EMPTY(&l->list)) {
            struct leaf *leaf = TAILQ_FIRST(&l->list);

            TAILQ_REMOVE(&l->list, leaf, entry);
            leaf_free(leaf);
        }
        pthread_mutex_destroy(&l->lock);
        OPENSSL_free(l->spki);
        EVP_PKEY_free(l->key);
        free(l);
    }
}

static int make_context(const struct leaves *l, const char *pem, SSL_CTX **ret, struct err *e)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    bool done = ctx && cert && SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) &&
                SSL_CTX_use_certificate(ctx, cert) && SSL_CTX_use_PrivateKey(ctx, l->key) &&
                SSL_CTX_check_private_key(ctx);

    X509_free(cert);
    BIO_free(bio);
    if (!done) {
        SSL_CTX_free(ctx);
        ERR_clear_error();
        return err_set(e, -EPROTO, NULL, "the credential manager's certificate cannot be used");
    }
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(ctx, io_tls_choose, NULL);
    *ret = ctx;
    return 0;
}

/* With the lock held; the caller gets a reference. */
static SSL_CTX *find(struct leaves *l, const char *organisation, const char *name)
{
    struct leaf *leaf;

    TAILQ_FOREACH(leaf, &l->list, entry)
    {
        if (str_eq(leaf->name, name) && str_eq(leaf->organisation, organisation)) {
            break;
        }
    }
    if (!leaf) {
        return NULL;
    }
    TAILQ_REMOVE(&l->list, leaf, entry);
    if (deadline_passed(leaf->until_ns)) {
        l->n--;
        leaf_free(leaf);
        return NULL;
    }
    TAILQ_INSERT_HEAD(&l->list, leaf, entry);
    SSL_CTX_up_ref(leaf->ctx);
    return leaf->ctx;
}

static void keep(struct leaves *l, const char *organisation, const char *name, SSL_CTX *ctx)
{
    struct leaf *leaf = xnew(struct leaf);

    snprintf(leaf->organisation, sizeof(leaf->organisation), "%s", organisation);
    snprintf(leaf->name, sizeof(leaf->name), "%s", name);
    leaf->ctx = ctx;
    SSL_CTX_up_ref(ctx);
    leaf->until_ns = deadline_in_ms(LEAF_KEEP_S * 1000ull);
    TAILQ_INSERT_HEAD(&l->list, leaf, entry);
    if (++l->n > LEAVES_MAX) {
        leaf = TAILQ_LAST(&l->list, leaf_list);
        TAILQ_REMOVE(&l->list, leaf, entry);
        l->n--;
        leaf_free(leaf);
    }
}

int leaves_get(struct leaves *l, const char *organisation, const char *name, SSL_CTX **ret,
               struct err *e)
{
    cleanup_free char *pem = NULL;
    SSL_CTX *ctx;
    int r;

    pthread_mutex_lock(&l->lock);
    ctx = find(l, organisation, name);
    pthread_mutex_unlock(&l->lock);
    if (ctx) {
        *ret = ctx;
        return 0;
    }
    /* Two that need the same one may both ask: the later one replaces nothing, it is only found later. */
    r = credential_client_leaf(l->client, organisation, name, l->spki, l->n_spki, &pem, e);
    r = r < 0 ? r : make_context(l, pem, &ctx, e);
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&l->lock);
    keep(l, organisation, name, ctx);
    pthread_mutex_unlock(&l->lock);
    *ret = ctx;
    return 0;
}
