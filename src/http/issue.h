/* SPDX-License-Identifier: Apache-2.0 */
/* Making an X.509 certificate: what this machine's authority (authority.h) and the authority for nodes share. */
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include "base/err.h"
#include "base/util.h"

DEFINE_CLEANUP(X509 *, X509_free);
DEFINE_CLEANUP(X509_REQ *, X509_REQ_free);
DEFINE_CLEANUP(EVP_PKEY *, EVP_PKEY_free);
DEFINE_CLEANUP(BIO *, BIO_free_all);

/* All borrowed. */
struct issue {
    const char *common_name;
    int days;             /* from a day ago on: clocks differ */
    X509 *issuer;         /* NULL: itself */
    EVP_PKEY *issuer_key; /* NULL: its own */
    struct {
        int nid;
        const char *value; /* as OpenSSL's configuration has it */
    } extensions[6];       /* up to the first without a value */
};

/* For the public half of key. -EIO: OpenSSL says why. */
MUST_CHECK int issue_certificate(const struct issue *what, EVP_PKEY *key, X509 **ret,
                                 struct err *e);
/* -EIO "authority_failed" with what OpenSSL said last. */
int issue_failed(struct err *e, const char *what);
/* To read PEM from; the text is borrowed as long as the BIO lives. */
BIO *issue_bio(const char *pem);
/* What was printed into one of memory; the caller frees it. */
char *issue_text(BIO *bio);
/* The first certificate; NULL: there is none. */
X509 *issue_parse(const char *pem);
/* An IPv4 or IPv6 address, rather than a name? */
bool issue_is_address(const char *name);
