/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/authority.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <string.h>

#include "base/id.h"
#include "credential/credential.h"

#define DAY_S 86400L
/* Guests whose clock is a little behind. */
#define BACKDATE_DAYS 2

struct issuer {
    char organisation[ID_SIZE];
    EVP_PKEY *key; /* owned */
    X509 *cert;    /* owned */
};

struct authority {
    pthread_mutex_t lock;    /* guards issuers; an issuer in the list never changes */
    struct vault *vault;     /* borrowed */
    struct issuer **issuers; /* owned, and what they point to */
    size_t n;
};

static void issuer_free(struct issuer *i)
{
    if (i) {
        EVP_PKEY_free(i->key);
        X509_free(i->cert);
        free(i);
    }
}
DEFINE_CLEANUP(struct issuer *, issuer_free);

struct authority *authority_new(struct vault *vault)
{
    struct authority *a = xnew(struct authority);

    pthread_mutex_init(&a->lock, NULL);
    a->vault = vault;
    return a;
}

void authority_free(struct authority *a)
{
    if (a) {
        for (size_t i = 0; i < a->n; i++) {
            issuer_free(a->issuers[i]);
        }
        free(a->issuers);
        pthread_mutex_destroy(&a->lock);
        free(a);
    }
}

static int failed(struct err *e, const char *what)
{
    unsigned long number = ERR_get_error();
    const char *text = number ? ERR_reason_error_string(number) : NULL;

    ERR_clear_error();
    return err_set(e, -EIO, NULL, "%s: %s", what, text ? text : "no reason was given");
}

/* ---- making certificates ---- */

static bool set_serial(X509 *cert)
{
    unsigned char bytes[16];
    BIGNUM *number;
    bool done;

    random_bytes(bytes, sizeof(bytes));
    bytes[0] &= 0x7f;
    number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    done = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return done;
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *ext;
    bool done;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    done = ext && X509_add_ext(cert, ext, -1);
    X509_EXTENSION_free(ext);
    return done;
}

static bool add_name(X509_NAME *name, const char *field, const char *text)
{
    return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, (const unsigned char *)text, -1,
                                      -1, 0);
}

static X509 *blank(long days, EVP_PKEY *subject)
{
    X509 *cert = X509_new();

    if (cert && X509_set_version(cert, X509_VERSION_3) && set_serial(cert) &&
        X509_gmtime_adj(X509_getm_notBefore(cert), -BACKDATE_DAYS * DAY_S) &&
        X509_gmtime_adj(X509_getm_notAfter(cert), days * DAY_S) && X509_set_pubkey(cert, subject)) {
        return cert;
    }
    X509_free(cert);
    return NULL;
}

static int make_issuer(const char *organisation, struct issuer **ret, struct err *e)
{
    CLEANUP(issuer_freep) struct issuer *i = xnew(struct issuer);
    X509_NAME *name;

    snprintf(i->organisation, sizeof(i->organisation), "%s", organisation);
    i->key = EVP_EC_gen("P-256");
    i->cert = i->key ? blank(AUTHORITY_YEARS * 365L, i->key) : NULL;
    if (!i->cert) {
        return failed(e, "making an authority");
    }
    name = X509_get_subject_name(i->cert);
    if (!add_name(name, "O", "SPACE") || !add_name(name, "CN", "SPACE sandbox authority") ||
        !add_name(name, "OU", organisation) || !X509_set_issuer_name(i->cert, name) ||
        !add_extension(i->cert, i->cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !add_extension(i->cert, i->cert, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        !add_extension(i->cert, i->cert, NID_subject_key_identifier, "hash") ||
        !X509_sign(i->cert, i->key, EVP_sha256())) {
        return failed(e, "making an authority");
    }
    *ret = TAKE_PTR(i);
    return 0;
}

/* ---- keeping them ---- */

static int issuer_store(struct authority *a, const struct issuer *i, struct err *e)
{
    BIO *bio = BIO_new(BIO_s_secmem());
    cleanup_free char *ref = xasprintf("authority/%s", i->organisation);
    cleanup_secret struct secret pem = {0};
    char *data = NULL;
    long len;
    int r;

    ASSERT(bio);
    if (!PEM_write_bio_PrivateKey(bio, i->key, NULL, NULL, 0, NULL, NULL) ||
        !PEM_write_bio_X509(bio, i->cert)) {
        BIO_free(bio);
        return failed(e, "writing an authority");
    }
    len = BIO_get_mem_data(bio, &data);
    r = secret_init(&pem, data, (size_t)len);
    explicit_bzero(data, (size_t)len);
    BIO_free(bio);
    return r < 0 ? r : vault_put(a->vault, ref, &pem, e);
}

static int issuer_load(struct authority *a, const char *organisation, struct issuer **ret,
                       struct err *e)
{
    CLEANUP(issuer_freep) struct issuer *i = xnew(struct issuer);
    cleanup_free char *ref = xasprintf("authority/%s", organisation);
    cleanup_secret struct secret pem = {0};
    BIO *bio;
    int r = vault_get(a->vault, ref, &pem, e);

    if (r < 0) {
        return r;
    }
    snprintf(i->organisation, sizeof(i->organisation), "%s", organisation);
    bio = BIO_new_mem_buf(pem.p, (int)pem.len);
    ASSERT(bio);
    i->key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    i->cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    if (!i->key || !i->cert || !X509_check_private_key(i->cert, i->key)) {
        return failed(e, "reading an authority");
    }
    *ret = TAKE_PTR(i);
    return 0;
}

/* With the lock held. */
static int issuer_get(struct authority *a, const char *organisation, struct issuer **ret,
                      bool *ret_new, struct err *e)
{
    struct err why = {0};
    int r;

    *ret_new = false;
    for (size_t i = 0; i < a->n; i++) {
        if (str_eq(a->issuers[i]->organisation, organisation)) {
            *ret = a->issuers[i];
            return 0;
        }
    }
    r = issuer_load(a, organisation, ret, &why);
    if (r == -ENOENT || (r == 0 && X509_cmp_current_time(X509_get0_notAfter((*ret)->cert)) < 0)) {
        if (r == 0) {
            issuer_free(*ret);
        }
        r = make_issuer(organisation, ret, &why);
        r = r < 0 ? r : issuer_store(a, *ret, &why);
        *ret_new = r == 0;
    }
    if (r < 0) {
        if (e) {
            *e = why;
        }
        return r;
    }
    a->issuers = xrealloc(a->issuers, (a->n + 1) * sizeof(struct issuer *));
    a->issuers[a->n++] = *ret;
    return 0;
}

static int find_issuer(struct authority *a, const char *organisation, struct issuer **ret,
                       bool *ret_new, struct err *e)
{
    int r;

    if (!id_valid(ID_ORGANISATION, organisation)) {
        return err_set(e, -EINVAL, NULL, "that is no organisation");
    }
    pthread_mutex_lock(&a->lock);
    r = issuer_get(a, organisation, ret, ret_new, e);
    pthread_mutex_unlock(&a->lock);
    return r;
}

static int print_certificate(X509 *cert, struct buf *ret, struct err *e)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *data = NULL;
    long len;
    int r;

    ASSERT(bio);
    if (!PEM_write_bio_X509(bio, cert)) {
        BIO_free(bio);
        return failed(e, "writing a certificate");
    }
    len = BIO_get_mem_data(bio, &data);
    r = buf_add(ret, data, (size_t)len);
    BIO_free(bio);
    return r < 0 ? err_wrap(e, r, "writing a certificate") : 0;
}

int authority_certificate(struct authority *a, const char *organisation, struct buf *ret,
                          bool *ret_new, struct err *e)
{
    struct issuer *issuer = NULL;
    int r = find_issuer(a, organisation, &issuer, ret_new, e);

    return r < 0 ? r : print_certificate(issuer->cert, ret, e);
}

/* ---- leaves ---- */

/* Only a P-256 key: whatever else would be a mistake of ours, or somebody else's. */
static EVP_PKEY *read_spki(const void *spki, size_t len)
{
    const unsigned char *p = spki;
    EVP_PKEY *key = len <= AUTHORITY_SPKI_MAX ? d2i_PUBKEY(NULL, &p, (long)len) : NULL;
    char group[32] = "";

    if (key && (p != (const unsigned char *)spki + len ||
                !EVP_PKEY_get_group_name(key, group, sizeof(group), NULL) ||
                !str_eq(group, "prime256v1"))) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    ERR_clear_error();
    return key;
}

static bool fill_leaf(X509 *cert, const struct issuer *issuer, const char *name)
{
    unsigned char address[4];
    bool is_address = inet_pton(AF_INET, name, address) == 1;
    cleanup_free char *san = xasprintf("%s:%s", is_address ? "IP" : "DNS", name);

    /* A common name has room for 64 characters; nobody reads it any more but people. */
    return (strlen(name) > 64 || add_name(X509_get_subject_name(cert), "CN", name)) &&
           X509_set_issuer_name(cert, X509_get_subject_name(issuer->cert)) &&
           add_extension(cert, issuer->cert, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, issuer->cert, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, issuer->cert, NID_ext_key_usage, "serverAuth") &&
           add_extension(cert, issuer->cert, NID_authority_key_identifier, "keyid:always") &&
           add_extension(cert, issuer->cert, NID_subject_alt_name, san) &&
           X509_sign(cert, issuer->key, EVP_sha256());
}

int authority_sign(struct authority *a, const char *organisation, const char *name,
                   const void *spki, size_t len, struct buf *ret, struct err *e)
{
    struct issuer *issuer = NULL;
    EVP_PKEY *key;
    X509 *cert;
    bool made;
    int r = find_issuer(a, organisation, &issuer, &made, e);

    if (r < 0) {
        return r;
    }
    /* The name goes into a text that OpenSSL parses: nothing but a host's characters. */
    if (!credential_host_valid(name) || name[0] == '*') {
        return err_set(e, -EINVAL, "invalid_name", "there are no certificates for '%.80s'", name);
    }
    key = read_spki(spki, len);
    if (!key) {
        return err_set(e, -EINVAL, "invalid_key", "that is no public key of the kind we sign");
    }
    cert = blank(AUTHORITY_LEAF_DAYS, key);
    EVP_PKEY_free(key);
    r = cert && fill_leaf(cert, issuer, name) ? print_certificate(cert, ret, e)
                                              : failed(e, "making a certificate");
    X509_free(cert);
    return r;
}
