/* SPDX-License-Identifier: Apache-2.0 */
#include "http/authority.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "http/issue.h"

#define PEM_MAX (64u * 1024)
#define NAMES_MAX 4096u
#define DAY_S 86400
#define CA_DAYS 3650
#define CERT_DAYS 397
#define RENEW_DAYS 30

/* ---- files ---- */

static int read_pem(int dir_fd, const char *name, BIO **ret, struct err *e)
{
    struct buf b = BUF_INIT(PEM_MAX);
    int r = fs_read_file(dir_fd, name, &b);
    BIO *bio = NULL;

    if (r == 0) {
        bio = BIO_new(BIO_s_mem());
        ASSERT(bio && BIO_write(bio, b.data, (int)b.len) == (int)b.len);
        *ret = bio;
    }
    buf_done(&b);
    return r < 0 && r != -ENOENT ? err_wrap(e, r, "reading '%s'", name) : r;
}

static int write_pem(int dir_fd, const char *name, BIO *bio, mode_t mode, struct err *e)
{
    char *data = NULL;
    long len = BIO_get_mem_data(bio, &data);
    int r = fs_write_file_durable(dir_fd, name, data, (size_t)len, mode);

    return r < 0 ? err_wrap(e, r, "writing '%s'", name) : 0;
}

static int write_key(int dir_fd, const char *name, const EVP_PKEY *key, struct err *e)
{
    CLEANUP(BIO_free_allp) BIO *bio = BIO_new(BIO_s_secmem());

    ASSERT(bio);
    if (!PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL)) {
        return issue_failed(e, "printing a key");
    }
    return write_pem(dir_fd, name, bio, 0600, e);
}

/* One certificate, and the one behind it when there is one. */
static int write_cert(int dir_fd, const char *name, X509 *cert, X509 *behind, struct err *e)
{
    CLEANUP(BIO_free_allp) BIO *bio = BIO_new(BIO_s_mem());

    ASSERT(bio);
    if (!PEM_write_bio_X509(bio, cert) || (behind && !PEM_write_bio_X509(bio, behind))) {
        return issue_failed(e, "printing a certificate");
    }
    return write_pem(dir_fd, name, bio, 0644, e);
}

/* -ENOENT when one of the two files is not there. */
static int read_pair(int dir_fd, const char *cert_name, const char *key_name, X509 **ret_cert,
                     EVP_PKEY **ret_key, struct err *e)
{
    CLEANUP(BIO_free_allp) BIO *cert_bio = NULL;
    CLEANUP(BIO_free_allp) BIO *key_bio = NULL;
    CLEANUP(X509_freep) X509 *cert = NULL;
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    int r = read_pem(dir_fd, cert_name, &cert_bio, e);

    r = r < 0 ? r : read_pem(dir_fd, key_name, &key_bio, e);
    if (r < 0) {
        return r;
    }
    cert = PEM_read_bio_X509(cert_bio, NULL, NULL, NULL);
    key = PEM_read_bio_PrivateKey(key_bio, NULL, NULL, NULL);
    if (!cert || !key || X509_check_private_key(cert, key) != 1) {
        ERR_clear_error();
        return err_set(e, -EBADMSG, "authority_damaged",
                       "'%s' and '%s' are no certificate and its key: remove both", cert_name,
                       key_name);
    }
    *ret_cert = TAKE_PTR(cert);
    *ret_key = TAKE_PTR(key);
    return 0;
}

/* ---- certificates ---- */

/* "DNS:a, DNS:*.a, IP:127.0.0.1": as OpenSSL prints and reads it. */
static int alternative_names(const struct authority_names *names, struct buf *out)
{
    int r = 0;

    for (size_t i = 0; i < names->n && r == 0; i++) {
        r = buf_printf(out, "%s%s:%s", i ? ", " : "",
                       issue_is_address(names->names[i]) ? "IP" : "DNS", names->names[i]);
    }
    return r;
}

/* A name stands for itself and all below it; an address for itself. */
static int constraints(const struct authority_names *names, struct buf *out)
{
    int r = buf_add_str(out, "critical");

    for (size_t i = 0; i < names->n && r == 0; i++) {
        const char *name = names->names[i];

        if (str_starts(name, "*.")) {
            continue;
        }
        r = !issue_is_address(name) ? buf_printf(out, ",permitted;DNS:%s", name)
            : strchr(name, ':')
                ? buf_printf(out, ",permitted;IP:%s/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", name)
                : buf_printf(out, ",permitted;IP:%s/255.255.255.255", name);
    }
    return r;
}

static int make(const struct issue *plan, X509 **ret_cert, EVP_PKEY **ret_key, struct err *e)
{
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = EVP_EC_gen("P-256");
    int r = key ? issue_certificate(plan, key, ret_cert, e) : issue_failed(e, "making a key");

    if (r == 0) {
        *ret_key = TAKE_PTR(key);
    }
    return r;
}

static int ensure_ca(int dir_fd, const struct authority_names *names, X509 **ret_cert,
                     EVP_PKEY **ret_key, struct err *e)
{
    cleanup_buf struct buf allowed = BUF_INIT(NAMES_MAX);
    struct issue plan = {.common_name = "SPACE on this machine", .days = CA_DAYS};
    int r = read_pair(dir_fd, AUTHORITY_CA, AUTHORITY_CA_KEY, ret_cert, ret_key, e);

    if (r != -ENOENT) {
        return r;
    }
    r = constraints(names, &allowed);
    if (r < 0) {
        return err_wrap(e, r, "the names of the certificate");
    }
    plan.extensions[0].nid = NID_basic_constraints;
    plan.extensions[0].value = "critical,CA:TRUE,pathlen:0";
    plan.extensions[1].nid = NID_key_usage;
    plan.extensions[1].value = "critical,keyCertSign,cRLSign";
    plan.extensions[2].nid = NID_subject_key_identifier;
    plan.extensions[2].value = "hash";
    plan.extensions[3].nid = NID_name_constraints;
    plan.extensions[3].value = buf_str(&allowed);
    r = make(&plan, ret_cert, ret_key, e);
    r = r < 0 ? r : write_key(dir_fd, AUTHORITY_CA_KEY, *ret_key, e);
    return r < 0 ? r : write_cert(dir_fd, AUTHORITY_CA, *ret_cert, /* behind */ NULL, e);
}

/* Its names, as alternative_names() prints them. */
static bool names_are(const X509 *cert, const char *want)
{
    CLEANUP(BIO_free_allp) BIO *bio = BIO_new(BIO_s_mem());
    int at = X509_get_ext_by_NID(cert, NID_subject_alt_name, -1);
    cleanup_buf struct buf plain = BUF_INIT(NAMES_MAX);
    char *text = NULL;
    long len;

    ASSERT(bio);
    if (at < 0 || !X509V3_EXT_print(bio, X509_get_ext(cert, at), 0, 0)) {
        return false;
    }
    len = BIO_get_mem_data(bio, &text);
    for (long i = 0; i < len; i++) { /* it prints "IP Address:" for what it reads as "IP:" */
        bool skip = strncmp(text + i, " Address:", MIN((size_t)(len - i), (size_t)9)) == 0;

        i += skip ? 8 : 0;
        if (buf_add(&plain, skip ? ":" : text + i, 1) < 0) {
            return false;
        }
    }
    return str_eq(buf_str(&plain), want);
}

/* The names it was made for are all that one can sign. */
static bool still_good(X509 *cert, X509 *ca, EVP_PKEY *ca_key, const char *names)
{
    time_t then = time(NULL) + (time_t)RENEW_DAYS * DAY_S;

    return X509_cmp_time(X509_get0_notAfter(cert), &then) > 0 && X509_verify(cert, ca_key) == 1 &&
           X509_NAME_cmp(X509_get_issuer_name(cert), X509_get_subject_name(ca)) == 0 &&
           names_are(cert, names);
}

static int ensure_cert(int dir_fd, const struct authority_names *names, X509 *ca, EVP_PKEY *ca_key,
                       bool *ret_made, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(NAMES_MAX);
    CLEANUP(X509_freep) X509 *cert = NULL;
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    struct issue plan = {
        .common_name = names->names[0], .days = CERT_DAYS, .issuer = ca, .issuer_key = ca_key};
    int r = alternative_names(names, &text);

    if (r < 0) {
        return err_wrap(e, r, "the names of the certificate");
    }
    r = read_pair(dir_fd, AUTHORITY_CERT, AUTHORITY_KEY, &cert, &key, NULL);
    if (r == 0 && still_good(cert, ca, ca_key, buf_str(&text))) {
        *ret_made = false;
        return 0;
    }
    ERR_clear_error();
    X509_free(TAKE_PTR(cert));
    EVP_PKEY_free(TAKE_PTR(key));
    plan.extensions[0].nid = NID_basic_constraints;
    plan.extensions[0].value = "critical,CA:FALSE";
    plan.extensions[1].nid = NID_key_usage;
    plan.extensions[1].value = "critical,digitalSignature";
    plan.extensions[2].nid = NID_ext_key_usage;
    plan.extensions[2].value = "serverAuth";
    plan.extensions[3].nid = NID_authority_key_identifier;
    plan.extensions[3].value = "keyid";
    plan.extensions[4].nid = NID_subject_alt_name;
    plan.extensions[4].value = buf_str(&text);
    r = make(&plan, &cert, &key, e);
    r = r < 0 ? r : write_key(dir_fd, AUTHORITY_KEY, key, e);
    r = r < 0 ? r : write_cert(dir_fd, AUTHORITY_CERT, cert, ca, e);
    *ret_made = r == 0;
    return r;
}

int authority_ensure(int dir_fd, const struct authority_names *names, bool *ret_made, struct err *e)
{
    CLEANUP(X509_freep) X509 *ca = NULL;
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *ca_key = NULL;
    int r;

    ASSERT(names && names->n > 0 && ret_made);
    r = ensure_ca(dir_fd, names, &ca, &ca_key, e);
    return r < 0 ? r : ensure_cert(dir_fd, names, ca, ca_key, ret_made, e);
}
