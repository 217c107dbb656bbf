/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/node-cert.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "http/authority.h"

#define PEM_MAX 65536u
#define NAME_SIZE 64
#define DAY_S 86400

int node_cert_request(EVP_PKEY *key, const char *name, char **ret_pem, struct err *e)
{
    CLEANUP(X509_REQ_freep) X509_REQ *req = X509_REQ_new();
    CLEANUP(BIO_free_allp) BIO *bio = BIO_new(BIO_s_mem());

    ASSERT(req && bio);
    if (!X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(req), "CN", MBSTRING_UTF8,
                                    (const unsigned char *)name, -1, -1, 0) ||
        !X509_REQ_set_pubkey(req, key) ||
        X509_REQ_sign(req, key, EVP_PKEY_is_a(key, "ED25519") ? NULL : EVP_sha256()) <= 0 ||
        !PEM_write_bio_X509_REQ(bio, req)) {
        return issue_failed(e, "making a certificate request");
    }
    *ret_pem = issue_text(bio);
    return 0;
}

/* ---- reading ---- */

static int read_text(int dir_fd, const char *name, char **ret, struct err *e)
{
    struct buf b = BUF_INIT(PEM_MAX);
    int r = fs_read_file(dir_fd, name, &b);

    if (r == 0) {
        *ret = xstrdup(buf_str(&b));
        explicit_bzero(b.data, b.len);
    }
    buf_done(&b);
    return r < 0 ? err_wrap(e, r, "reading '%s'", name) : 0;
}

static int days_left(const X509 *cert)
{
    int days = 0;
    int seconds = 0;

    return ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(cert)) == 1 ? days : -1;
}

int node_cert_read(int dir_fd, char **ret_pem, EVP_PKEY **ret_key, char **ret_name,
                   int *ret_days_left, struct err *e)
{
    cleanup_free char *pem = NULL;
    cleanup_free char *key_pem = NULL;
    CLEANUP(X509_freep) X509 *cert = NULL;
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    CLEANUP(BIO_free_allp) BIO *bio = NULL;
    char name[NAME_SIZE] = "";
    int r = read_text(dir_fd, AUTHORITY_CERT, &pem, e);

    r = r < 0 ? r : read_text(dir_fd, AUTHORITY_KEY, &key_pem, e);
    if (r < 0) {
        return r;
    }
    cert = issue_parse(pem);
    bio = issue_bio(key_pem);
    key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    explicit_bzero(key_pem, strlen(key_pem));
    if (!cert || !key || X509_check_private_key(cert, key) != 1 ||
        X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, name,
                                  sizeof(name)) <= 0) {
        ERR_clear_error();
        return err_set(e, -EBADMSG, NULL,
                       "'" AUTHORITY_CERT "' and '" AUTHORITY_KEY
                       "' are no certificate and its key: join again");
    }
    *ret_days_left = days_left(cert);
    *ret_pem = TAKE_PTR(pem);
    *ret_key = TAKE_PTR(key);
    *ret_name = xstrdup(name);
    return 0;
}

/* ---- writing ---- */

static int put(int dir_fd, const char *name, const char *text, mode_t mode, uid_t uid,
               struct err *e)
{
    int r = fs_write_file_durable(dir_fd, name, text, strlen(text), mode);

    if (r == 0 && uid != (uid_t)-1 &&
        fchownat(dir_fd, name, uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0) {
        r = -errno;
    }
    return r < 0 ? err_wrap(e, r, "writing '%s'", name) : 0;
}

static int put_key(int dir_fd, EVP_PKEY *key, uid_t uid, struct err *e)
{
    CLEANUP(BIO_free_allp) BIO *bio = BIO_new(BIO_s_secmem());
    char *text;
    int r;

    ASSERT(bio);
    if (!PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL)) {
        return issue_failed(e, "printing a key");
    }
    text = issue_text(bio);
    r = put(dir_fd, AUTHORITY_KEY, text, 0600, uid, e);
    explicit_bzero(text, strlen(text));
    free(text);
    return r;
}

int node_cert_write(int dir_fd, const struct node_cert_answer *answer, EVP_PKEY *key, struct err *e)
{
    CLEANUP(X509_freep) X509 *cert = issue_parse(answer->certificate);
    CLEANUP(X509_freep) X509 *ca = issue_parse(answer->authority);
    int r;

    if (!cert || !ca || X509_check_private_key(cert, key) != 1 ||
        X509_verify(cert, X509_get0_pubkey(ca)) != 1) {
        ERR_clear_error();
        return err_set(e, -EBADMSG, "bad_answer",
                       "the gateway's answer is no certificate for our key");
    }
    r = answer->with_key ? put_key(dir_fd, key, answer->uid, e) : 0;
    r = r < 0 ? r : put(dir_fd, AUTHORITY_CA, answer->authority, 0644, answer->uid, e);
    return r < 0 ? r : put(dir_fd, AUTHORITY_CERT, answer->certificate, 0644, answer->uid, e);
}
