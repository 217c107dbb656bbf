/* SPDX-License-Identifier: Apache-2.0 */
/* The server's https with a certificate of our own authority, against our client and a bare OpenSSL. */
#include "http/authority.h"
#include "http/client.h"
#include "http/test-support.h"
#include "http/tls.h"

#include "base/fs.h"

#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/stat.h>

#define BULK (3u * 1024 * 1024)

static char dir[] = "/tmp/test-tls-server-XXXXXX";
static int dir_fd;
static const char *const names[] = {"space.localhost", "*.space.localhost", "127.0.0.1"};
static const struct authority_names all_names = {names, ARRAY_SIZE(names)};

static char *path_of(const char *name)
{
    return xasprintf("%s/%s", dir, name);
}

static struct http_tls *tls_new(void)
{
    cleanup_free char *cert = path_of(AUTHORITY_CERT);
    cleanup_free char *key = path_of(AUTHORITY_KEY);
    struct http_tls *t = NULL;
    struct err e = {0};
    int r = http_tls_new(cert, key, &t, &e);

    if (r < 0) {
        TEST_FAIL("%s", e.msg);
    }
    ASSERT(r == 0);
    return t;
}

static int echo(struct http_request *req, struct err *e)
{
    cleanup_free char *body = NULL;
    size_t len = 0;
    int r = http_body_all(req, 2 * BULK, &body, &len, e);

    http_reply_header(req, "X-Secure", http_request_secure(req) ? "yes" : "no");
    return r < 0 ? r : http_reply_bytes(req, 200, "text/plain", body, len, e);
}

struct tls_server {
    struct http_tls *tls;
    struct test_server t;
};

static void server_start(struct tls_server *s)
{
    int r;

    s->tls = tls_new();
    s->t.server = http_server_new(&(struct http_server_opts){.handler = echo});
    r = http_server_listen_tls(s->t.server, "127.0.0.1:0", s->tls, NULL);
    ASSERT(r == 0);
    snprintf(s->t.url, sizeof(s->t.url), "https://127.0.0.1:%u", http_server_port(s->t.server));
    r = pthread_create(&s->t.thread, NULL, test_server_main, &s->t);
    ASSERT(r == 0);
    s->t.running = true;
}

static void server_stop(struct tls_server *s)
{
    test_server_stop(&s->t);
    http_tls_free(s->tls);
}

#define TLS_SERVER(name_) \
    CLEANUP(server_stop) struct tls_server name_ = {0}; \
    server_start(&name_)

/* ---- a bare client ---- */

struct bare {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
};

static int bare_open(struct bare *b, uint16_t port, const char *alpn)
{
    b->ctx = SSL_CTX_new(TLS_client_method());
    b->fd = raw_connect_port(port);
    b->ssl = SSL_new(b->ctx);
    ASSERT(b->ctx && b->ssl && SSL_set_fd(b->ssl, b->fd));
    if (alpn) {
        SSL_set_alpn_protos(b->ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    }
    return SSL_connect(b->ssl);
}

static void bare_close(struct bare *b)
{
    SSL_free(b->ssl);
    SSL_CTX_free(b->ctx);
    close(b->fd);
}

static char *serial_of(const struct bare *b)
{
    X509 *cert = SSL_get1_peer_certificate(b->ssl);
    char *text;

    ASSERT(cert);
    text = i2s_ASN1_INTEGER(NULL, X509_get0_serialNumber(cert));
    X509_free(cert);
    return text;
}

/* ---- cases ---- */

static void an_authority_is_made_once(void)
{
    struct stat st = {0};
    struct err e = {0};
    bool made = false;

    CHECK_INT(authority_ensure(dir_fd, &all_names, &made, &e), 0);
    if (e.code) {
        TEST_FAIL("%s", e.msg);
    }
    CHECK(made);
    CHECK_INT(authority_ensure(dir_fd, &all_names, &made, &e), 0);
    CHECK(!made);
    CHECK(fstatat(dir_fd, AUTHORITY_KEY, &st, 0) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(fstatat(dir_fd, AUTHORITY_CA_KEY, &st, 0) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(fstatat(dir_fd, AUTHORITY_CA, &st, 0) == 0 && (st.st_mode & 0777) == 0644);
}

static void large_bodies_both_ways_on_one_connection(void)
{
    TLS_SERVER(s);
    cleanup_free char *ca = path_of(AUTHORITY_CA);
    CLEANUP(http_client_freep) struct http_client *c = NULL;
    static char body[BULK];

    memset(body, 'x', sizeof(body));
    CHECK_INT(http_client_new(s.t.url, &(struct http_client_opts){.ca_file = ca}, &c, NULL), 0);
    for (int i = 0; i < 3; i++) {
        CLEANUP(http_call_freep) struct http_call *call = NULL;
        struct http_call_opts o = {.method = "POST", .target = "/", .body_length = BULK};
        cleanup_free char *got = NULL;
        struct err e = {0};
        size_t len = 0;

        CHECK_INT(http_call_new(c, &o, &call, &e), 0);
        CHECK_INT(http_call_write(call, body, BULK, &e), 0);
        CHECK_INT(http_call_end(call, &e), 0);
        CHECK_INT(http_call_all(call, BULK, &got, &len, &e), 0);
        CHECK_STR(http_call_header(call, "X-Secure"), "yes");
        CHECK_INT(len, BULK);
        if (e.code) {
            TEST_FAIL("%s", e.msg);
        }
    }
}

static void requests_in_one_record_are_all_answered(void)
{
    TLS_SERVER(s);
    static const char two[] = "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n"
                              "POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
                              "Connection: close\r\n\r\nend";
    struct bare b;
    char data[4096];
    size_t have = 0;
    int n;

    CHECK_INT(bare_open(&b, http_server_port(s.t.server), "\x02h2\x08http/1.1"), 1);
    CHECK_INT(SSL_write(b.ssl, two, sizeof(two) - 1), sizeof(two) - 1);
    while (have < sizeof(data) - 1 &&
           (n = SSL_read(b.ssl, data + have, (int)(sizeof(data) - 1 - have))) > 0) {
        have += (size_t)n;
    }
    data[have] = '\0';
    CHECK(strstr(data, "\r\n\r\nend"));
    n = 0;
    for (const char *p = data; (p = strstr(p, "HTTP/1.1 200")); p++) {
        n++;
    }
    CHECK_INT(n, 3);
    bare_close(&b);
}

static void who_does_not_speak_tls_is_told(void)
{
    TLS_SERVER(s);
    cleanup_free char *answer = raw_exchange(&s.t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");

    CHECK(str_starts(answer, "HTTP/1.1 400 "));
    CHECK(strstr(answer, "https_expected"));
}

static void rubbish_and_silence_cost_nobody_else(void)
{
    TLS_SERVER(s);
    cleanup_close int silent = raw_connect(&s.t);
    cleanup_close int rubbish = raw_connect(&s.t);
    struct bare b;
    char data[16];

    raw_send(rubbish, "\x16\x03\x01\xff\xff rubbish that is no hello at all");
    raw_send(silent, "\x16");
    CHECK_INT(bare_open(&b, http_server_port(s.t.server), NULL), 1);
    CHECK(SSL_write(b.ssl, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27) == 27);
    CHECK(SSL_read(b.ssl, data, sizeof(data)) > 0);
    bare_close(&b);
}

static void only_other_protocols_are_refused(void)
{
    TLS_SERVER(s);
    struct bare b;

    CHECK(bare_open(&b, http_server_port(s.t.server), "\x02h2") != 1);
    bare_close(&b);
}

static void a_new_certificate_is_used_without_a_restart(void)
{
    TLS_SERVER(s);
    static const char *const more[] = {"space.localhost", "*.space.localhost", "127.0.0.1",
                                       "more.space.localhost"};
    static const char *const wrong_key[] = {"-----BEGIN PRIVATE KEY-----\nrubbish\n"};
    cleanup_free char *before = NULL;
    cleanup_free char *after = NULL;
    cleanup_free char *still = NULL;
    struct err e = {0};
    bool made = false;
    struct bare b;

    CHECK_INT(bare_open(&b, http_server_port(s.t.server), NULL), 1);
    before = serial_of(&b);
    CHECK_INT(
        authority_ensure(dir_fd, &(struct authority_names){more, ARRAY_SIZE(more)}, &made, &e), 0);
    CHECK(made);
    CHECK_INT(http_tls_reload(s.tls, &e), 0);
    bare_close(&b);
    CHECK_INT(bare_open(&b, http_server_port(s.t.server), NULL), 1);
    after = serial_of(&b);
    CHECK(strcmp(before, after) != 0);
    bare_close(&b);

    CHECK_INT(
        fs_write_file_durable(dir_fd, AUTHORITY_KEY, wrong_key[0], strlen(wrong_key[0]), 0600), 0);
    CHECK(http_tls_reload(s.tls, &e) < 0);
    CHECK_STR(e.reason, "bad_certificate");
    CHECK_INT(bare_open(&b, http_server_port(s.t.server), NULL), 1);
    still = serial_of(&b);
    CHECK_STR(still, after);
    bare_close(&b);
    CHECK_INT(authority_ensure(dir_fd, &all_names, &made, &e),
              0); /* the damaged pair is made anew */
    CHECK(made);
}

/* The chain with the names as a strict verifier sees it. */
static bool verifies(const char *host)
{
    cleanup_free char *ca = path_of(AUTHORITY_CA);
    cleanup_free char *cert_path = path_of(AUTHORITY_CERT);
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    FILE *f = fopen(cert_path, "re");
    X509 *cert = f ? PEM_read_X509(f, NULL, NULL, NULL) : NULL;
    bool fine;

    ASSERT(store && ctx && cert && X509_STORE_load_file(store, ca));
    fclose(f);
    ASSERT(X509_STORE_CTX_init(ctx, store, cert, NULL));
    X509_STORE_CTX_set_flags(ctx, X509_V_FLAG_X509_STRICT);
    X509_STORE_CTX_set_purpose(ctx, X509_PURPOSE_SSL_SERVER);
    fine = X509_verify_cert(ctx) == 1 && X509_check_host(cert, host, 0, 0, NULL) == 1;
    X509_free(cert);
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    return fine;
}

static void the_names_are_good_and_others_are_not(void)
{
    static const char *const foreign[] = {"bank.example"};
    bool made = false;

    CHECK(verifies("space.localhost"));
    CHECK(verifies("8080-s2345abcdefghijkmnpq.space.localhost"));
    CHECK(!verifies("a.b.space.localhost"));
    CHECK(!verifies("bank.example"));
    /* The authority's key may be stolen: what it signs for others is worth nothing. */
    CHECK_INT(authority_ensure(dir_fd, &(struct authority_names){foreign, 1}, &made, NULL), 0);
    CHECK(made);
    CHECK(!verifies("bank.example"));
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        T(an_authority_is_made_once),
        T(large_bodies_both_ways_on_one_connection),
        T(requests_in_one_record_are_all_answered),
        T(who_does_not_speak_tls_is_told),
        T(rubbish_and_silence_cost_nobody_else),
        T(only_other_protocols_are_refused),
        T(a_new_certificate_is_used_without_a_restart),
        T(the_names_are_good_and_others_are_not),
    };
    bool made = false;
    int r;

    signal(SIGPIPE, SIG_IGN); /* the bare client's; the server's side raises none */
    ASSERT(mkdtemp(dir));
    dir_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    ASSERT(dir_fd >= 0);
    if (argc > 1) { /* one case alone needs what the first one makes */
        ASSERT(authority_ensure(dir_fd, &all_names, &made, NULL) == 0);
    }
    r = test_run_all(cases, ARRAY_SIZE(cases), argc, argv);
    close(dir_fd);
    ASSERT(fs_remove_tree(AT_FDCWD, dir) == 0);
    return r;
}
