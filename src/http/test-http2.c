/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2 of the server, through real TLS, against a client of nghttp2 that can misbehave. */
#include "http/authority.h"
#include "http/test-support.h"
#include "http/tls.h"

#include "base/fs.h"

#include <fcntl.h>
#include <nghttp2/nghttp2.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#define BULK ((size_t)3 * 1024 * 1024)
#define ASKS_MAX 4096u

static char dir[] = "/tmp/test-http2-XXXXXX";
static int dir_fd;
static const char *const names[] = {"127.0.0.1"};
static const struct authority_names all_names = {names, ARRAY_SIZE(names)};

/* ---- the server ---- */

static atomic_int n_gone;
static atomic_int n_hanging;

static int give(struct http_request *req, struct err *e)
{
    static const char block[8192];
    int64_t left = 0;
    int r = http_query_int(req, "n", (struct http_query_bounds){0, INT32_MAX, 0}, &left, e);

    r = r < 0 ? r : http_reply_begin(req, 200, NULL, -1, e);
    while (r == 0 && left > 0) {
        size_t n = MIN((size_t)left, sizeof(block));

        r = http_write(req, block, n, e);
        left -= (int64_t)n;
    }
    return r < 0 ? r : http_end(req, e);
}

/* Its head leaves; then it waits until the client has gone, or the server stops. */
static int hang(struct http_request *req, struct err *e)
{
    int r = http_reply_begin(req, 200, NULL, -1, e);

    r = r < 0 ? r : http_flush(req, e);
    atomic_fetch_add(&n_hanging, 1);
    while (r == 0 && !http_client_gone(req) && !http_request_stopping(req)) {
        struct pollfd p = http_client_pollfd(req);

        poll(&p, 1, 50);
    }
    atomic_fetch_add(&n_gone, http_client_gone(req) ? 1 : 0);
    return r < 0 ? r : http_end(req, e);
}

static int cut(struct http_request *req, struct err *e)
{
    int r = http_reply_begin(req, 200, NULL, 100, e);

    r = r < 0 ? r : http_write(req, "some", 4, e);
    return r < 0 ? r : err_set(e, -EIO, NULL, "cut on purpose");
}

static int tell(struct http_request *req, struct err *e)
{
    cleanup_free char *text =
        xasprintf("%s %s %s %s", http_request_method(req), http_request_host(req),
                  http_request_path(req), http_request_secure(req) ? "secure" : "plain");

    CHECK(str_starts(http_request_peer_name(req), "127.0.0.1:"));
    return http_reply_bytes(req, 200, "text/plain", text, strlen(text), e);
}

static int handle(struct http_request *req, struct err *e)
{
    static const struct {
        const char *path;
        http_handler_fn *fn;
    } all[] = {{"/give", give}, {"/hang", hang}, {"/cut", cut}, {"/echo", test_echo}};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (str_eq(http_request_path(req), all[i].path)) {
            return all[i].fn(req, e);
        }
    }
    if (str_eq(http_request_path(req), "/empty")) {
        return http_reply_empty(req, 204, e);
    }
    return tell(req, e);
}

struct tls_server {
    struct http_tls *tls;
    struct test_server t;
};

static void server_start(struct tls_server *s, struct http_server_opts opts)
{
    cleanup_free char *cert = xasprintf("%s/%s", dir, AUTHORITY_CERT);
    cleanup_free char *key = xasprintf("%s/%s", dir, AUTHORITY_KEY);

    atomic_store(&n_gone, 0);
    atomic_store(&n_hanging, 0);
    opts.handler = handle;
    opts.http2 = true;
    ASSERT(http_tls_new(cert, key, &s->tls, NULL) == 0);
    s->t.server = http_server_new(&opts);
    ASSERT(http_server_listen_tls(s->t.server, "127.0.0.1:0", s->tls, NULL) == 0);
    ASSERT(pthread_create(&s->t.thread, NULL, test_server_main, &s->t) == 0);
    s->t.running = true;
}

static void server_stop(struct tls_server *s)
{
    test_server_stop(&s->t);
    http_tls_free(s->tls);
}

#define SERVER(name_, ...) \
    CLEANUP(server_stop) struct tls_server name_ = {0}; \
    server_start(&name_, (struct http_server_opts){__VA_ARGS__})

/* ---- the client ---- */

struct ask {
    int32_t id;
    size_t body_len; /* to be sent */
    size_t sent;
    bool endless; /* the body never ends */
    int status;
    size_t got;
    bool ended; /* the answer, in order */
    bool closed;
    uint32_t code;
    struct buf text; /* owned: the beginning of the answer */
};

struct client {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
    nghttp2_session *session;
    struct ask asks[ASKS_MAX];
    size_t n;
    bool over; /* the connection has ended */
    bool goaway;
    uint32_t goaway_code;
    bool holds; /* gives no windows back */
};

static struct ask *ask_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    struct ask *a = ask_of(session, frame->hd.stream_id);

    (void)flags;
    (void)arg;
    if (a && name_len == 7 && memcmp(name, ":status", 7) == 0 && value_len == 3) {
        a->status = (value[0] - '0') * 100 + (value[1] - '0') * 10 + (value[2] - '0');
    }
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct ask *a = ask_of(session, frame->hd.stream_id);
    struct client *c = arg;

    if (a && (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        a->ended = true;
    }
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        c->goaway = true;
        c->goaway_code = frame->goaway.error_code;
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t len, void *arg)
{
    struct ask *a = ask_of(session, id);
    const struct client *c = arg;

    (void)flags;
    if (a) {
        a->got += len;
        IGNORE_RESULT(buf_add(&a->text, data, len)); /* only the beginning */
    }
    if (!c->holds) {
        nghttp2_session_consume(session, id, len);
    }
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct ask *a = ask_of(session, id);

    (void)arg;
    if (a) {
        a->closed = true;
        a->code = code;
    }
    return 0;
}

static void client_open(struct client *c, uint16_t port, const char *alpn)
{
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *option = NULL;

    c->ctx = SSL_CTX_new(TLS_client_method());
    c->fd = raw_connect_port(port);
    c->ssl = SSL_new(c->ctx);
    ASSERT(c->ctx && c->ssl && SSL_set_fd(c->ssl, c->fd));
    SSL_set_alpn_protos(c->ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    ASSERT(SSL_connect(c->ssl) == 1);
    ASSERT(nghttp2_session_callbacks_new(&cb) == 0 && nghttp2_option_new(&option) == 0);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_http_messaging(option, 1); /* it may send nonsense */
    nghttp2_option_set_peer_max_concurrent_streams(option, ASKS_MAX);
    ASSERT(nghttp2_session_client_new2(&c->session, cb, c, option) == 0);
    ASSERT(nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, NULL, 0) == 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cb);
}

static void client_close(struct client *c)
{
    for (size_t i = 0; i < c->n; i++) {
        buf_done(&c->asks[i].text);
    }
    nghttp2_session_del(c->session);
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    close(c->fd);
    free(c);
}
DEFINE_CLEANUP(struct client *, client_close);

#define CLIENT(name_, server_) \
    CLEANUP(client_closep) struct client *name_ = xnew(struct client); \
    client_open(name_, http_server_port((server_).t.server), "\x02h2\x08http/1.1")

static ssize_t read_request(nghttp2_session *session, int32_t id, uint8_t *room, size_t len,
                            uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct ask *a = source->ptr;
    size_t n = MIN(len, a->body_len - a->sent);

    (void)session;
    (void)id;
    (void)arg;
    if (n == 0 && a->endless) {
        return NGHTTP2_ERR_DEFERRED;
    }
    memset(room, 'x', n);
    a->sent += n;
    *flags |= a->sent == a->body_len && !a->endless ? NGHTTP2_DATA_FLAG_EOF : 0;
    return (ssize_t)n;
}

static nghttp2_nv field(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .namelen = strlen(name),
                        .value = (uint8_t *)(uintptr_t)value,
                        .valuelen = strlen(value)};
}

struct request {
    const char *method; /* NULL: GET */
    const char *path;
    size_t body_len;
    bool endless;
    const char *name; /* one more field; NULL: none */
    const char *value;
};

static struct ask *ask(struct client *c, struct request q)
{
    struct ask *a = &c->asks[c->n++];
    nghttp2_nv nv[5] = {field(":method", q.method ? q.method : "GET"), field(":scheme", "https"),
                        field(":authority", "space.test"), field(":path", q.path)};
    nghttp2_data_provider body = {.source.ptr = a, .read_callback = read_request};

    ASSERT(c->n <= ASKS_MAX);
    if (q.name) {
        nv[4] = field(q.name, q.value);
    }
    a->body_len = q.body_len;
    a->endless = q.endless;
    a->text = BUF_INIT(200);
    a->id = nghttp2_submit_request(c->session, NULL, nv, q.name ? 5 : 4,
                                   q.body_len || q.endless ? &body : NULL, a);
    ASSERT(a->id > 0);
    return a;
}

static void client_send(struct client *c)
{
    const uint8_t *data;
    ssize_t n;

    while (!c->over && (n = nghttp2_session_mem_send(c->session, &data)) > 0) {
        c->over = SSL_write(c->ssl, data, (int)n) != n;
    }
}

/* One round: false when nothing came for a while. */
static bool client_turn(struct client *c, int ms)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    uint8_t data[16384];
    int n;

    client_send(c);
    if (c->over || (SSL_pending(c->ssl) == 0 && poll(&p, 1, ms) <= 0)) {
        return false;
    }
    n = SSL_read(c->ssl, data, sizeof(data));
    if (n <= 0 || nghttp2_session_mem_recv(c->session, data, (size_t)n) < 0) {
        c->over = true;
    }
    client_send(c);
    return true;
}

#define CLIENT_UNTIL(c_, true_) \
    do { \
        uint64_t deadline_ns_ = deadline_in_ms(TEST_DEADLINE_MS); \
        while (!(true_) && !(c_)->over && !deadline_passed(deadline_ns_)) { \
            client_turn(c_, 20); \
        } \
        CHECK(true_); \
    } while (0)

/* ---- cases ---- */

static void requests_are_what_handlers_get(void)
{
    SERVER(s, .max_body_bytes = 1);
    CLIENT(c, s);
    struct ask *got = ask(c, (struct request){.path = "/a%20b?q=1"});
    struct ask *head = ask(c, (struct request){.method = "HEAD", .path = "/x"});
    struct ask *empty = ask(c, (struct request){.path = "/empty"});
    struct ask *put = ask(c, (struct request){.method = "PUT", .path = "/y", .body_len = 10});

    CLIENT_UNTIL(c, got->closed && head->closed && empty->closed && put->closed);
    CHECK_INT(got->status, 200);
    CHECK_STR(buf_str(&got->text), "GET space.test /a%20b secure");
    CHECK_INT(head->status, 200);
    CHECK_INT(head->got, 0);
    CHECK(head->ended);
    CHECK_INT(empty->status, 204);
    CHECK_STR(buf_str(&put->text), "PUT space.test /y secure");
}

static void bodies_flow_both_ways(void)
{
    SERVER(s, .max_threads = 8);
    CLIENT(c, s);
    struct ask *a = ask(c, (struct request){.method = "POST", .path = "/echo", .body_len = BULK});
    struct ask *sized = ask(c, (struct request){.method = "POST",
                                                .path = "/echo",
                                                .body_len = BULK,
                                                .name = "content-length",
                                                .value = "3145728"});
    struct ask *given = ask(c, (struct request){.path = "/give?n=5000000"});

    CLIENT_UNTIL(c, a->closed && sized->closed && given->closed);
    CHECK_INT(a->got, BULK);
    CHECK_INT(sized->got, BULK);
    CHECK_INT(given->got, 5000000);
    CHECK(a->ended && sized->ended && given->ended);
    CHECK_INT(a->code, NGHTTP2_NO_ERROR);
}

static void a_hundred_streams_at_once(void)
{
    SERVER(s, .max_threads = 128);
    CLIENT(c, s);
    size_t n = 0;

    for (unsigned i = 0; i < 50; i++) {
        ask(c,
            (struct request){.method = "POST", .path = "/echo", .body_len = 1000, .endless = true});
        ask(c, (struct request){.path = "/hang"});
    }
    /* All of them are at work: nobody waits for another's end. */
    CLIENT_UNTIL(c, atomic_load(&n_hanging) == 50);
    for (size_t i = 0; i < c->n; i += 2) {
        CLIENT_UNTIL(c, c->asks[i].got == 1000);
    }
    for (size_t i = 0; i < c->n; i++) {
        nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, c->asks[i].id, NGHTTP2_CANCEL);
    }
    CLIENT_UNTIL(c, atomic_load(&n_gone) == 50);
    CHECK(!c->goaway);
    for (size_t i = 0; i < c->n; i++) {
        n += c->asks[i].closed;
    }
    CHECK_INT(n, 100);
}

static void what_breaks_breaks_its_stream_only(void)
{
    SERVER(s, .max_threads = 8);
    CLIENT(c, s);
    struct ask *hung = ask(c, (struct request){.path = "/hang"});
    struct ask *broken = ask(c, (struct request){.path = "/cut"});
    struct ask *after;

    CLIENT_UNTIL(c, broken->closed);
    CHECK(!broken->ended);
    CHECK(broken->code != NGHTTP2_NO_ERROR);
    CHECK(!hung->closed);
    nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, hung->id, NGHTTP2_CANCEL);
    CLIENT_UNTIL(c, atomic_load(&n_gone) == 1);
    after = ask(c, (struct request){.path = "/z"});
    CLIENT_UNTIL(c, after->closed);
    CHECK_INT(after->status, 200);
}

/* A client that has gone is noticed for each of its streams. */
static void a_lost_connection_ends_all(void)
{
    SERVER(s, .max_threads = 16);
    {
        CLIENT(c, s);

        for (unsigned i = 0; i < 5; i++) {
            ask(c, (struct request){.path = "/hang"});
        }
        CLIENT_UNTIL(c, atomic_load(&n_hanging) == 5);
    }
    {
        CLIENT(c, s);

        CLIENT_UNTIL(c, atomic_load(&n_gone) == 5);
    }
}

static void heads_that_are_none(void)
{
    static char large[20000];
    static const struct {
        struct request q;
        int status; /* 0: the stream is reset */
    } cases[] = {
        {{.path = "/a", .name = "connection", .value = "close"}, 0},
        {{.path = "/a", .name = "transfer-encoding", .value = "chunked"}, 0},
        {{.path = "/a", .name = ":path", .value = "/b"}, 0},
        {{.path = "/a", .name = "host", .value = "other.test"}, 0},
        {{.path = "/a", .name = "a", .value = "x\r\nb: y"}, 0},
        {{.path = "/a", .name = "content-length", .value = "1,2"}, 0},
        {{.path = "a"}, 0},
        {{.path = "/a#b"}, 0},
        {{.path = large}, 414},
    };
    SERVER(s, .max_threads = 64);

    memset(large, 'x', sizeof(large) - 1);
    large[0] = '/';
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLIENT(c, s);
        struct ask *a = ask(c, cases[i].q);
        struct ask *fine = ask(c, (struct request){.path = "/fine"});

        CLIENT_UNTIL(c, a->closed && fine->closed);
        if (a->status != cases[i].status || fine->status != 200) {
            TEST_FAIL("case %zu: %d, then %d", i, a->status, fine->status);
        }
    }
}

static void more_streams_than_allowed_are_refused(void)
{
    SERVER(s, .max_threads = 256);
    CLIENT(c, s);
    size_t refused = 0;

    for (unsigned i = 0; i < 160; i++) { /* before it has read our settings */
        ask(c, (struct request){.path = "/hang"});
    }
    client_send(c);
    CLIENT_UNTIL(c, atomic_load(&n_hanging) == 128);
    CLIENT_UNTIL(c, c->asks[159].closed);
    for (size_t i = 0; i < c->n; i++) {
        refused += c->asks[i].closed && c->asks[i].code == NGHTTP2_REFUSED_STREAM;
    }
    CHECK_INT(refused, 32);
}

static void rapid_resets_are_told_to_go(void)
{
    SERVER(s, .max_threads = 16);
    CLIENT(c, s);

    CLIENT_UNTIL(c, client_turn(c, 20));
    for (unsigned i = 0; i < 2000 && !c->over && !c->goaway; i++) {
        struct ask *a = ask(c, (struct request){.path = "/give?n=1"});

        client_send(c);
        nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, a->id, NGHTTP2_CANCEL);
        client_turn(c, 0);
    }
    CLIENT_UNTIL(c, c->goaway || c->over);
    CHECK(!c->goaway || c->goaway_code == NGHTTP2_ENHANCE_YOUR_CALM);
    {
        CLIENT(other, s);
        struct ask *fine = ask(other, (struct request){.path = "/fine"});

        CLIENT_UNTIL(other, fine->closed);
        CHECK_INT(fine->status, 200);
    }
}

static void pings_without_end_too(void)
{
    SERVER(s, .max_threads = 16);
    CLIENT(c, s);

    for (unsigned i = 0; i < 20000 && !c->over && !c->goaway; i++) {
        nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, NULL);
        client_turn(c, 0);
    }
    CLIENT_UNTIL(c, c->goaway || c->over);
}

/* Its windows never open: the server's deadline ends the stream, not the connection. */
static void who_does_not_read_is_cut_off(void)
{
    SERVER(s, .max_threads = 8, .io_timeout_ms = 1000);
    CLIENT(c, s);
    struct ask *a;
    struct ask *fine;

    c->holds = true;
    a = ask(c, (struct request){.path = "/give?n=5000000"});
    CLIENT_UNTIL(c, a->closed);
    CHECK(!a->ended);
    CHECK(a->got < 5000000);
    fine = ask(c, (struct request){.path = "/empty"});
    CLIENT_UNTIL(c, fine->closed);
    CHECK_INT(fine->status, 204);
}

static void silence_ends_in_order(void)
{
    SERVER(s, .max_threads = 8, .idle_timeout_ms = 1000, .head_timeout_ms = 2000);
    CLIENT(c, s);
    struct ask *a = ask(c, (struct request){.path = "/a"});

    CLIENT_UNTIL(c, a->closed);
    CLIENT_UNTIL(c, c->goaway);
    CHECK_INT(c->goaway_code, NGHTTP2_NO_ERROR);
    CLIENT_UNTIL(c, c->over || !client_turn(c, 20));
}

static void garbage_is_not_served(void)
{
    SERVER(s, .max_threads = 8);
    CLIENT(c, s);
    CHECK(SSL_write(c->ssl, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27) > 0);
    for (int i = 0; i < 100 && !c->over; i++) {
        uint8_t data[4096];

        c->over = SSL_read(c->ssl, data, sizeof(data)) <= 0;
    }
    CHECK(c->over);
}

static void a_server_that_stops_says_so(void)
{
    SERVER(s, .max_threads = 8);
    CLIENT(c, s);
    struct ask *a = ask(c, (struct request){.path = "/hang"});

    CLIENT_UNTIL(c, atomic_load(&n_hanging) == 1);
    http_server_stop(s.t.server);
    CLIENT_UNTIL(c, a->closed);
    CHECK(a->ended);
    CLIENT_UNTIL(c, c->goaway);
    CHECK_INT(c->goaway_code, NGHTTP2_NO_ERROR);
}

/* A quarter of the threads, and not one more: later ones get HTTP/1.1. */
static void threads_are_left_for_others(void)
{
    SERVER(s, .max_threads = 4);
    CLIENT(c, s);
    struct ask *a = ask(c, (struct request){.path = "/a"});
    const unsigned char *name = NULL;
    unsigned len = 0;

    CLIENT_UNTIL(c, a->closed);
    {
        CLIENT(second, s);

        SSL_get0_alpn_selected(second->ssl, &name, &len);
        CHECK_INT(len, 8);
    }
}

static const struct test_case cases[] = {
    T(requests_are_what_handlers_get),
    T(bodies_flow_both_ways),
    T(a_hundred_streams_at_once),
    T(what_breaks_breaks_its_stream_only),
    T(a_lost_connection_ends_all),
    T(heads_that_are_none),
    T(more_streams_than_allowed_are_refused),
    T(rapid_resets_are_told_to_go),
    T(pings_without_end_too),
    T(who_does_not_read_is_cut_off),
    T(silence_ends_in_order),
    T(garbage_is_not_served),
    T(a_server_that_stops_says_so),
    T(threads_are_left_for_others),
};

int main(int argc, char **argv)
{
    bool made = false;
    int r;

    signal(SIGPIPE, SIG_IGN);
    ASSERT(mkdtemp(dir));
    dir_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    ASSERT(dir_fd >= 0);
    ASSERT(authority_ensure(dir_fd, &all_names, &made, NULL) == 0);
    r = test_run_all(cases, ARRAY_SIZE(cases), argc, argv);
    close(dir_fd);
    ASSERT(fs_remove_tree(AT_FDCWD, dir) == 0);
    return r;
}
