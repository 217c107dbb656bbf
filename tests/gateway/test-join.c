/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, certificates and their renewal, with an authority as space-certificates makes it. */
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/proc.h"
#include "database/nodes.h"
#include "gateway/node-authority.h"
#include "harness.h"
#include "http/issue.h"

#define ADDRESS "https://192.0.2.11:7443"

struct yard {
    struct world w;
    struct node_authority *authority; /* owned */
};

static void make_authority(const char *dir)
{
    const char *const argv[] = {SPACE_TEST_CERTIFICATES, dir, "gateway", NULL};
    struct proc_spec spec = {.argv = argv, .stdin_fd = FD_NONE, .stdout_fd = 2, .stderr_fd = 2};
    struct proc p;
    int status = -1;

    ASSERT(proc_spawn(&spec, &p, NULL) == 0);
    ASSERT(proc_wait(&p, deadline_in_ms(TEST_MS), &status) == 0 && status == 0);
    fd_close(p.pidfd);
}

static void yard_init(struct yard *y)
{
    *y = (struct yard){0};
    world_init(&y->w);
    make_authority(y->w.dir);
    ASSERT(node_authority_open(y->w.dir, &y->authority, NULL) == 0);
    y->w.gateway->node_authority = y->authority;
}

static void yard_done(struct yard *y)
{
    world_done(&y->w);
    node_authority_free(y->authority);
}
#define YARD(y_) \
    CLEANUP(yard_done) struct yard y_; \
    yard_init(&y_)

static EVP_PKEY *p256(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");

    ASSERT(key);
    return key;
}

/* A request with more in it than counts. */
static char *csr_of(EVP_PKEY *key, const char *name)
{
    CLEANUP(X509_REQ_freep) X509_REQ *req = X509_REQ_new();
    CLEANUP(BIO_free_allp) BIO *bio = BIO_new(BIO_s_mem());
    STACK_OF(X509_EXTENSION) *exts = sk_X509_EXTENSION_new_null();

    ASSERT(req && bio && exts);
    sk_X509_EXTENSION_push(exts, X509V3_EXT_conf_nid(NULL, NULL, NID_basic_constraints, "CA:TRUE"));
    sk_X509_EXTENSION_push(
        exts, X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "DNS:space-gateway"));
    ASSERT(X509_REQ_add_extensions(req, exts) == 1);
    sk_X509_EXTENSION_pop_free(exts, X509_EXTENSION_free);
    ASSERT(X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(req), "CN", MBSTRING_UTF8,
                                      (const unsigned char *)name, -1, -1, 0) == 1);
    ASSERT(X509_REQ_set_pubkey(req, key) == 1);
    ASSERT(X509_REQ_sign(req, key, EVP_PKEY_is_a(key, "ED25519") ? NULL : EVP_sha256()) > 0);
    ASSERT(PEM_write_bio_X509_REQ(bio, req) == 1);
    return issue_text(bio);
}

static void make_token(struct yard *y, const char *body, char ret[static 80])
{
    cleanup_answer struct answer a = asks(&y->w, OPERATOR, "POST", "/v1/node-tokens", body);

    CHECK_INT(a.status, 201);
    snprintf(ret, 80, "%s", json_get_string(a.json, "token", ""));
    CHECK(strlen(ret) > 40);
}

static struct answer ask_json(struct yard *y, const char *target, json_t *body_take)
{
    cleanup_json json_t *body = body_take;
    cleanup_free char *text = json_text(body);

    return world_ask(&y->w, &(struct ask){.method = "POST", .target = target, .body = text});
}

static struct answer join(struct yard *y, const char *token, const char *name, const char *csr)
{
    return ask_json(y, "/v1/node-join",
                    json_pack("{s:s, s:s, s:s, s:s}", "token", token, "name", name, "address",
                              ADDRESS, "csr", csr));
}

static struct answer renew(struct yard *y, const char *name, const char *certificate,
                           const char *csr)
{
    return ask_json(
        y, "/v1/node-renew",
        json_pack("{s:s, s:s, s:s}", "name", name, "certificate", certificate, "csr", csr));
}

static int status_of(struct answer a)
{
    int status = a.status;

    answer_done(&a);
    return status;
}

/* What the certificate of an answer is good for. */
static void check_certificate(struct answer *a, EVP_PKEY *key)
{
    CLEANUP(X509_freep) X509 *cert = issue_parse(json_get_string(a->json, "certificate", ""));
    CLEANUP(X509_freep) X509 *ca = issue_parse(json_get_string(a->json, "authority", ""));
    int days = 0;
    int seconds = 0;

    REQUIRE(cert && ca);
    CHECK_INT(X509_verify(cert, X509_get0_pubkey(ca)), 1);
    CHECK_INT(EVP_PKEY_eq(X509_get0_pubkey(cert), key), 1);
    CHECK_INT(X509_check_ca(cert), 0);
    CHECK_INT(X509_check_ip_asc(cert, "192.0.2.11", 0), 1);
    CHECK_INT(X509_check_host(cert, "space-gateway", 0, 0, NULL), 0);
    CHECK_INT(X509_get_extended_key_usage(cert), XKU_SSL_SERVER);
    CHECK_INT(ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(cert)), 1);
    CHECK(days >= NODE_CERT_DAYS - 1 && days <= NODE_CERT_DAYS);
}

static void a_token_is_good_once(void)
{
    YARD(y);
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = p256();
    cleanup_free char *csr = csr_of(key, "space-gateway");
    cleanup_answer struct answer joined = {0};
    cleanup_answer struct answer list = {0};
    cleanup_node_row struct node_row row = {0};
    char token[80];

    CHECK_INT(status_of(alice(&y.w, "POST", "/v1/node-tokens", "{}")), 403);
    CHECK_INT(status_of(join(&y, "nt_wrong", "node-b", csr)), 403);
    make_token(&y, "{}", token);
    joined = join(&y, token, "node-b", csr);
    CHECK_INT(joined.status, 201);
    check_certificate(&joined, key);
    CHECK_INT(status_of(join(&y, token, "node-c", csr)), 403);
    CHECK_INT(db_node_get(y.w.db, "node-b", &row, NULL), 0);
    CHECK_STR(row.address, ADDRESS);
    CHECK(row.leased);
    list = asks(&y.w, OPERATOR, "GET", "/v1/nodes", NULL);
    CHECK_INT(json_array_size(json_object_get(list.json, "nodes")), 1);
}

static void a_token_ends(void)
{
    YARD(y);
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = p256();
    cleanup_free char *csr = csr_of(key, "a");
    char token[80];

    CHECK_INT(status_of(asks(&y.w, OPERATOR, "POST", "/v1/node-tokens", "{\"lives_s\":0}")), 400);
    CHECK_INT(status_of(asks(&y.w, OPERATOR, "POST", "/v1/node-tokens", "{\"lives_s\":86401}")),
              400);
    make_token(&y, "{\"lives_s\":1}", token);
    IGNORE_RESULT(poll(NULL, 0, 1100));
    CHECK_INT(status_of(join(&y, token, "node-b", csr)), 403);
}

static char *changed(const char *csr)
{
    char *copy = xstrdup(csr);
    char *at = copy + strlen(copy) / 2; /* in the key, or what is signed */

    *at = *at == 'A' ? 'B' : 'A';
    return copy;
}

static void what_is_wrong_uses_no_token_up(void)
{
    YARD(y);
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = p256();
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *small = EVP_RSA_gen(2048);
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *curve = EVP_EC_gen("P-521");
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *edwards = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    cleanup_free char *good = csr_of(key, "a");
    cleanup_free char *good_too = csr_of(edwards, "a");
    char *wrong[] = {csr_of(small, "a"), csr_of(curve, "a"), changed(good), xstrdup("no PEM"),
                     xstrdup("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n"
                             "-----END CERTIFICATE REQUEST-----\n")};
    char token[80];

    make_token(&y, "{}", token);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        cleanup_answer struct answer a = join(&y, token, "node-b", wrong[i]);

        CHECK_INT(a.status, 400);
        CHECK_STR(answer_code(&a), "invalid_csr");
        free(wrong[i]);
    }
    CHECK_INT(status_of(join(&y, token, "No Name", good)), 400);
    CHECK_INT(status_of(join(&y, token, "space-gateway", good)), 400); /* whom nodes let in */
    CHECK_INT(status_of(ask_json(&y, "/v1/node-join",
                                 json_pack("{s:s, s:s, s:s, s:s}", "token", token, "name", "node-b",
                                           "address", "unix:/run/x", "csr", good))),
              400);
    CHECK_INT(status_of(join(&y, token, "node-b", good)), 201);
    make_token(&y, "{}", token);
    CHECK_INT(status_of(join(&y, token, "node-b", good_too)), 201); /* again, with another key */
}

static void a_certificate_is_renewed_by_who_has_it(void)
{
    YARD(y);
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = p256();
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *other = p256();
    cleanup_free char *csr = csr_of(key, "a");
    cleanup_free char *other_csr = csr_of(other, "a");
    cleanup_answer struct answer joined = {0};
    cleanup_answer struct answer renewed = {0};
    const char *cert;
    char token[80];

    make_token(&y, "{}", token);
    joined = join(&y, token, "node-b", csr);
    REQUIRE(joined.status == 201);
    cert = json_get_string(joined.json, "certificate", "");
    renewed = renew(&y, "node-b", cert, csr);
    CHECK_INT(renewed.status, 200);
    check_certificate(&renewed, key);
    CHECK(strcmp(json_get_string(renewed.json, "certificate", ""), cert) != 0);

    CHECK_INT(status_of(renew(&y, "node-b", cert, other_csr)), 403); /* it was only seen */
    CHECK_INT(status_of(renew(&y, "node-c", cert, csr)), 403);
    CHECK_INT(status_of(renew(&y, "node-b", node_authority_pem(y.authority), csr)), 403);
    CHECK_INT(status_of(renew(&y, "node-b", "no PEM", csr)), 403);
    CHECK_INT(status_of(asks(&y.w, OPERATOR, "DELETE", "/v1/nodes/node-b", NULL)), 204);
    CHECK_INT(status_of(renew(&y, "node-b", cert, csr)), 404);
}

/* Somebody's own authority of the same name. */
static void another_authority_s_certificate_is_refused(void)
{
    YARD(y);
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = p256();
    cleanup_free char *csr = csr_of(key, "a");
    cleanup_free char *dir = xasprintf("%s/other", y.w.dir);
    CLEANUP(node_authority_freep) struct node_authority *other = NULL;
    cleanup_free char *forged = NULL;
    char token[80];

    make_authority(dir);
    ASSERT(node_authority_open(dir, &other, NULL) == 0);
    ASSERT(node_authority_issue(
               other, &(struct node_request){.csr = csr, .name = "node-b", .host = "192.0.2.11"},
               &forged, NULL) == 0);
    make_token(&y, "{}", token);
    CHECK_INT(status_of(join(&y, token, "node-b", csr)), 201);
    CHECK_INT(status_of(renew(&y, "node-b", forged, csr)), 403);
}

static void without_an_authority_nobody_joins(void)
{
    YARD(y);

    y.w.gateway->node_authority = NULL;
    CHECK_INT(status_of(asks(&y.w, OPERATOR, "POST", "/v1/node-tokens", "{}")), 501);
    CHECK_INT(status_of(join(&y, "x", "node-b", "x")), 501);
    CHECK_INT(status_of(renew(&y, "node-b", "x", "x")), 501);
}

TEST_MAIN(T(a_token_is_good_once), T(a_token_ends), T(what_is_wrong_uses_no_token_up),
          T(a_certificate_is_renewed_by_who_has_it), T(another_authority_s_certificate_is_refused),
          T(without_an_authority_nobody_joins))
