/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's https against a server made of OpenSSL alone, with a certificate made for the
 * occasion.
 */
#include "http/client.h"
#include "http/test-support.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>

static EVP_PKEY *key;
static X509 *cert;
static char ca_file[] = "/tmp/test-http-tls-XXXXXX";

static void add_name(X509 *x, const char *text)
{
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, text);

    ASSERT(ext && X509_add_ext(x, ext, -1));
    X509_EXTENSION_free(ext);
}

static void make_certificate(void)
{
    X509_NAME *name;
    FILE *f;
    int fd = mkstemp(ca_file);

    ASSERT(fd >= 0);
    key = EVP_EC_gen("P-256");
    cert = X509_new();
    ASSERT(key && cert);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    name = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
    X509_set_issuer_name(cert, name);
    X509_set_pubkey(cert, key);
    add_name(cert, "IP:127.0.0.1");
    ASSERT(X509_sign(cert, key, EVP_sha256()) > 0);
    f = fdopen(fd, "w");
    ASSERT(f && PEM_write_X509(f, cert));
    fclose(f);
}

struct tls_server {
    int listen_fd;
    unsigned n_connections; /* to be served */
    size_t body;
    bool cut; /* end without a goodbye, in the middle of the body */
};

static void serve_requests(SSL *ssl, const struct tls_server *s)
{
    cleanup_free char *block = xcalloc(1, s->body + 1);
    char data[4096];
    size_t have = 0;
    int n;

    while ((n = SSL_read(ssl, data + have, (int)(sizeof(data) - have - 1))) > 0) {
        char head[100];

        have += (size_t)n;
        data[have] = '\0';
        if (!strstr(data, "\r\n\r\n")) {
            continue;
        }
        have = 0;
        n = snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", s->body);
        SSL_write(ssl, head, n);
        SSL_write(ssl, block, (int)(s->cut ? s->body / 2 : s->body));
        if (s->cut) {
            return;
        }
    }
    SSL_shutdown(ssl);
}

static void *tls_main(void *arg)
{
    const struct tls_server *s = arg;
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

    ASSERT(SSL_CTX_use_certificate(ctx, cert) && SSL_CTX_use_PrivateKey(ctx, key));
    for (unsigned i = 0; i < s->n_connections; i++) {
        cleanup_close int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        SSL *ssl = SSL_new(ctx);

        ASSERT(fd >= 0 && SSL_set_fd(ssl, fd));
        if (SSL_accept(ssl) == 1) {
            serve_requests(ssl, s);
        }
        SSL_free(ssl);
    }
    SSL_CTX_free(ctx);
    return NULL;
}

static uint16_t start(struct tls_server *s, pthread_t *thread)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof(a);
    int r;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    r = bind(s->listen_fd, (struct sockaddr *)&a, sizeof(a));
    ASSERT(r == 0 && listen(s->listen_fd, 8) == 0);
    r = getsockname(s->listen_fd, (struct sockaddr *)&a, &len);
    ASSERT(r == 0);
    r = pthread_create(thread, NULL, tls_main, s);
    ASSERT(r == 0);
    return ntohs(a.sin_port);
}

static void finish(struct tls_server *s, pthread_t thread)
{
    pthread_join(thread, NULL);
    close(s->listen_fd);
}

/* GETs n times; the code of the first failure, or 0 when each answer had `want` bytes. */
static int get(const char *host, uint16_t port, const char *ca, unsigned n, size_t want,
               struct err *e)
{
    CLEANUP(http_client_freep) struct http_client *c = NULL;
    char url[64];
    int r;

    snprintf(url, sizeof(url), "https://%s:%u", host, port);
    r = http_client_new(url, &(struct http_client_opts){.ca_file = ca}, &c, e);
    for (unsigned i = 0; r == 0 && i < n; i++) {
        CLEANUP(http_call_freep) struct http_call *call = NULL;
        struct http_call_opts o = {.target = "/", .deadline_ns = deadline_in_ms(TEST_DEADLINE_MS)};
        cleanup_free char *body = NULL;
        size_t len = 0;

        r = http_call_new(c, &o, &call, e);
        if (r == 0) {
            r = http_call_all(call, 10000000, &body, &len, e);
        }
        if (r == 0) {
            CHECK_INT(len, want);
        }
    }
    return r;
}

static void trusted_server_is_used_on_one_connection(void)
{
    struct tls_server s = {.n_connections = 1, .body = 1000000};
    pthread_t thread;
    uint16_t port = start(&s, &thread);
    struct err e = {0};

    if (get("127.0.0.1", port, ca_file, 3, 1000000, &e) != 0) {
        TEST_FAIL("%s", e.msg);
    }
    finish(&s, thread);
}

static void unknown_authority_is_refused(void)
{
    struct tls_server s = {.n_connections = 1, .body = 1};
    pthread_t thread;
    uint16_t port = start(&s, &thread);
    struct err e = {0};

    CHECK(get("127.0.0.1", port, NULL, 1, 1, &e) < 0);
    CHECK_STR(e.reason, "tls_not_trusted");
    finish(&s, thread);
}

static void other_name_is_refused(void)
{
    struct tls_server s = {.n_connections = 1, .body = 1};
    pthread_t thread;
    uint16_t port = start(&s, &thread);
    struct err e = {0};

    CHECK(get("localhost", port, ca_file, 1, 1, &e) < 0);
    CHECK_STR(e.reason, "tls_not_trusted");
    finish(&s, thread);
}

static void cut_connection_is_no_end_of_the_answer(void)
{
    struct tls_server s = {.n_connections = 1, .body = 100000, .cut = true};
    pthread_t thread;
    uint16_t port = start(&s, &thread);
    struct err e = {0};

    CHECK(get("127.0.0.1", port, ca_file, 1, 100000, &e) < 0);
    finish(&s, thread);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        T(trusted_server_is_used_on_one_connection),
        T(unknown_authority_is_refused),
        T(other_name_is_refused),
        T(cut_connection_is_no_end_of_the_answer),
    };
    int r;

    signal(SIGPIPE, SIG_DFL); /* the client must not raise it */
    make_certificate();
    r = test_run_all(cases, ARRAY_SIZE(cases), argc, argv);
    unlink(ca_file);
    X509_free(cert);
    EVP_PKEY_free(key);
    return r;
}
