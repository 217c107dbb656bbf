/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/node-authority.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <string.h>

#include "base/fs.h"
#include "http/authority.h"
#include "http/issue.h"

struct node_authority {
    X509 *cert;           /* owned */
    EVP_PKEY *key;        /* owned */
    char *pem;            /* owned */
    pthread_mutex_t lock; /* signing */
};

/* ---- opening ---- */

static int read_file(int dir_fd, const char *name, struct buf *ret, struct err *e)
{
    int r = fs_read_file(dir_fd, name, ret);

    return r < 0 ? err_wrap(e, r, "reading '%s'", name) : 0;
}

static int load(struct node_authority *a, int dir_fd, struct err *e)
{
    cleanup_buf struct buf cert = BUF_INIT(NODE_PEM_MAX);
    struct buf key = BUF_INIT(NODE_PEM_MAX);
    CLEANUP(BIO_free_allp) BIO *bio = NULL;
    int r = read_file(dir_fd, AUTHORITY_CA, &cert, e);

    r = r < 0 ? r : read_file(dir_fd, AUTHORITY_CA_KEY, &key, e);
    if (r == 0) {
        a->pem = xstrdup(buf_str(&cert));
        a->cert = issue_parse(a->pem);
        bio = issue_bio(buf_str(&key));
        a->key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    }
    if (key.data) {
        explicit_bzero(key.data, key.len);
    }
    buf_done(&key);
    if (r < 0) {
        return r;
    }
    if (!a->cert || !a->key || X509_check_private_key(a->cert, a->key) != 1 ||
        X509_check_ca(a->cert) != 1) {
        ERR_clear_error();
        return err_set(e, -EINVAL, NULL,
                       "its " AUTHORITY_CA " and " AUTHORITY_CA_KEY
                       " are no authority and its key");
    }
    return 0;
}

int node_authority_open(const char *dir, struct node_authority **ret, struct err *e)
{
    cleanup_close int dir_fd = fs_open(dir, O_PATH | O_DIRECTORY, 0);
    struct node_authority *a;
    int r;

    if (dir_fd < 0) {
        return err_wrap(e, dir_fd, "opening --node-authority '%s'", dir);
    }
    a = xnew(struct node_authority);
    *a = (struct node_authority){0};
    pthread_mutex_init(&a->lock, NULL);
    r = load(a, dir_fd, e);
    if (r < 0) {
        node_authority_free(a);
        return err_wrap(e, r, "--node-authority '%s'", dir);
    }
    *ret = a;
    return 0;
}

void node_authority_free(struct node_authority *a)
{
    if (!a) {
        return;
    }
    X509_free(a->cert);
    EVP_PKEY_free(a->key);
    free(a->pem);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

const char *node_authority_pem(const struct node_authority *a)
{
    return a->pem;
}

/* ---- requests ---- */

static int bad_csr(struct err *e, const char *why)
{
    ERR_clear_error();
    return err_field(e, -EINVAL, "invalid_csr", "csr", "'csr' %s", why);
}

static bool key_is_fine(EVP_PKEY *key)
{
    char group[32] = "";

    if (EVP_PKEY_is_a(key, "ED25519")) {
        return true;
    }
    if (EVP_PKEY_is_a(key, "RSA")) {
        return EVP_PKEY_get_bits(key) >= 3072 && EVP_PKEY_get_bits(key) <= 8192;
    }
    return EVP_PKEY_is_a(key, "EC") &&
           EVP_PKEY_get_group_name(key, group, sizeof(group), NULL) == 1 &&
           (str_eq(group, "prime256v1") || str_eq(group, "secp384r1"));
}

/* The key of a request that was signed with it. */
static int read_csr(const char *pem, EVP_PKEY **ret, struct err *e)
{
    CLEANUP(BIO_free_allp) BIO *bio = issue_bio(pem);
    CLEANUP(X509_REQ_freep) X509_REQ *req = PEM_read_bio_X509_REQ(bio, NULL, NULL, NULL);
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = req ? X509_REQ_get_pubkey(req) : NULL;

    if (!key) {
        return bad_csr(e, "is no certificate request in PEM");
    }
    if (!key_is_fine(key)) {
        return bad_csr(
            e, "has a key that is none of P-256, P-384, Ed25519 and RSA of 3072 to 8192 bits");
    }
    if (X509_REQ_verify(req, key) != 1) {
        return bad_csr(e, "was not signed with its key");
    }
    *ret = TAKE_PTR(key);
    return 0;
}

static int sign(struct node_authority *a, const struct node_request *req, EVP_PKEY *key, X509 **ret,
                struct err *e)
{
    cleanup_free char *names =
        xasprintf("%s:%s", issue_is_address(req->host) ? "IP" : "DNS", req->host);
    const struct issue what = {
        .common_name = req->name,
        .days = NODE_CERT_DAYS + 1,
        .issuer = a->cert,
        .issuer_key = a->key,
        .extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                       {NID_key_usage, "critical,digitalSignature"},
                       {NID_ext_key_usage, "serverAuth"},
                       {NID_subject_alt_name, names}},
    };
    int r;

    pthread_mutex_lock(&a->lock);
    r = issue_certificate(&what, key, ret, e);
    pthread_mutex_unlock(&a->lock);
    return r;
}

int node_authority_issue(struct node_authority *a, const struct node_request *req, char **ret_pem,
                         struct err *e)
{
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    CLEANUP(X509_freep) X509 *cert = NULL;
    CLEANUP(BIO_free_allp) BIO *bio = BIO_new(BIO_s_mem());
    int r = read_csr(req->csr, &key, e);

    ASSERT(bio);
    r = r < 0 ? r : sign(a, req, key, &cert, e);
    if (r < 0) {
        return r;
    }
    if (!PEM_write_bio_X509(bio, cert)) {
        return issue_failed(e, "printing a certificate");
    }
    *ret_pem = issue_text(bio);
    return 0;
}

/* ---- renewals ---- */

static bool is_ours(const struct node_authority *a, X509 *cert, const char *name)
{
    char common_name[64] = "";
    X509_NAME *subject = X509_get_subject_name(cert);

    return X509_NAME_cmp(X509_get_issuer_name(cert), X509_get_subject_name(a->cert)) == 0 &&
           X509_verify(cert, a->key) == 1 && X509_cmp_current_time(X509_get0_notAfter(cert)) > 0 &&
           X509_cmp_current_time(X509_get0_notBefore(cert)) < 0 &&
           (X509_get_extended_key_usage(cert) & XKU_SSL_SERVER) &&
           X509_NAME_get_text_by_NID(subject, NID_commonName, common_name, sizeof(common_name)) >
               0 &&
           str_eq(common_name, name);
}

int node_authority_knows(struct node_authority *a, const struct node_request *req,
                         const char *certificate, struct err *e)
{
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    CLEANUP(X509_freep) X509 *cert = issue_parse(certificate);
    bool knows;
    int r = read_csr(req->csr, &key, e);

    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&a->lock);
    knows = cert && is_ours(a, cert, req->name) && EVP_PKEY_eq(X509_get0_pubkey(cert), key) == 1;
    pthread_mutex_unlock(&a->lock);
    ERR_clear_error();
    return knows ? 0
                 : err_set(
                       e, -EACCES, "certificate_refused",
                       "this is no certificate of ours that is good still, for node '%s' and this "
                       "key: join again with a token",
                       req->name);
}
