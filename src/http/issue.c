/* SPDX-License-Identifier: Apache-2.0 */
#include "http/issue.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/id.h"

#define DAY_S 86400
#define EARLIER_DAYS 1

int issue_failed(struct err *e, const char *what)
{
    unsigned long number = ERR_peek_last_error();
    const char *text = number ? ERR_reason_error_string(number) : NULL;

    ERR_clear_error();
    return err_set(e, -EIO, "authority_failed", "%s: %s", what,
                   text ? text : "no reason was given");
}

BIO *issue_bio(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);

    ASSERT(bio);
    return bio;
}

char *issue_text(BIO *bio)
{
    char *data = NULL;
    long len = BIO_get_mem_data(bio, &data);

    return xstrndup(data, (size_t)len);
}

X509 *issue_parse(const char *pem)
{
    CLEANUP(BIO_free_allp) BIO *bio = issue_bio(pem);
    X509 *cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);

    ERR_clear_error();
    return cert;
}

bool issue_is_address(const char *name)
{
    unsigned char a[16];

    return inet_pton(AF_INET, name, a) == 1 || inet_pton(AF_INET6, name, a) == 1;
}

static bool add_extension(X509 *cert, X509V3_CTX *ctx, int nid, const char *value)
{
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, ctx, nid, value);
    bool fine = ext && X509_add_ext(cert, ext, -1);

    X509_EXTENSION_free(ext);
    return fine;
}

static bool set_serial(X509 *cert)
{
    unsigned char serial[16];
    BIGNUM *number;
    bool fine;

    random_bytes(serial, sizeof(serial));
    serial[0] &= 0x7f;
    number = BN_bin2bn(serial, sizeof(serial), NULL);
    fine = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return fine;
}

static bool fill(X509 *cert, EVP_PKEY *key, const struct issue *what)
{
    X509_NAME *name = X509_get_subject_name(cert);
    EVP_PKEY *signer = what->issuer_key ? what->issuer_key : key;
    X509V3_CTX ctx;
    bool fine =
        X509_set_version(cert, X509_VERSION_3) && set_serial(cert) &&
        X509_gmtime_adj(X509_getm_notBefore(cert), -(long)EARLIER_DAYS * DAY_S) &&
        X509_gmtime_adj(X509_getm_notAfter(cert), (long)(what->days - EARLIER_DAYS) * DAY_S) &&
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                   (const unsigned char *)what->common_name, -1, -1, 0) &&
        X509_set_issuer_name(cert, what->issuer ? X509_get_subject_name(what->issuer) : name) &&
        X509_set_pubkey(cert, key);

    X509V3_set_ctx(&ctx, what->issuer ? what->issuer : cert, cert, NULL, NULL, 0);
    for (size_t i = 0; fine && i < ARRAY_SIZE(what->extensions) && what->extensions[i].value; i++) {
        fine = add_extension(cert, &ctx, what->extensions[i].nid, what->extensions[i].value);
    }
    /* EdDSA has a digest of its own. */
    return fine && X509_sign(cert, signer,
                             EVP_PKEY_is_a(signer, "ED25519") || EVP_PKEY_is_a(signer, "ED448")
                                 ? NULL
                                 : EVP_sha256()) > 0;
}

int issue_certificate(const struct issue *what, EVP_PKEY *key, X509 **ret, struct err *e)
{
    CLEANUP(X509_freep) X509 *cert = X509_new();

    ERR_clear_error();
    if (!cert || !fill(cert, key, what)) {
        return issue_failed(e, "making a certificate");
    }
    *ret = TAKE_PTR(cert);
    return 0;
}
