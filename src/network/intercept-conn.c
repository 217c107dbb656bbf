/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a connection that is looked into: TLS, then request after request. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "credential/secret.h"
#include "credential/sigv4.h"
#include "network/intercept-internal.h"

struct io_wait intercept_wait(const struct intercept_conn *c, uint64_t ms)
{
    return (struct io_wait){.deadline_ns = deadline_in_ms(ms),
                            .watch = {.fd = c->stop_fd, .events = POLLIN}};
}

void intercept_refuse(struct intercept_conn *c, const char *why)
{
    struct log_ctx ctx = {.sandbox = c->target.owner.sandbox};

    snprintf(c->refused, sizeof(c->refused), "%s", why);
    log_debug(&ctx, "a connection to %s port %u is refused: %s", c->target.name, c->target.port,
              why);
}

void intercept_answer(struct intercept_conn *c, int status, const char *code, const char *message)
{
    struct io_wait wait = intercept_wait(c, INTERCEPT_HEAD_MS);
    struct err why = {0};
    cleanup_json json_t *json = NULL;
    cleanup_free char *text = NULL;
    cleanup_free char *head = NULL;
    struct iovec iov[2];

    err_set(&why, -EIO, code, "%s", message);
    json = json_error_object(&why);
    text = json_text(json);
    head = xasprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                     "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
                     status, http1_status_text((unsigned)status), strlen(text));
    iov[0] = (struct iovec){head, strlen(head)};
    iov[1] = (struct iovec){text, strlen(text)};
    c->result.status = status;
    intercept_refuse(c, code);
    if (io_send_all(&c->guest, iov, 2, &wait) == 0) {
        char rest[4096];

        io_shutdown_send(&c->guest);
        /* What the guest is still sending would make the kernel throw our answer away. */
        wait = intercept_wait(c, 1000);
        for (unsigned i = 0; i < 64; i++) {
            ssize_t n = io_recv(&c->guest, rest, sizeof(rest));

            if (n == 0 || (n < 0 && (n != -EAGAIN || io_wait(&c->guest, POLLIN, &wait) < 0))) {
                break;
            }
        }
    }
}

/* ---- the server ---- */

static void disconnect(struct intercept_conn *c)
{
    if (c->connected) {
        io_done(&c->server);
        c->connected = c->server_used = false;
    }
}

static int connect_socket(struct intercept_conn *c, const struct io_wait *wait, struct err *e)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(c->target.port), .sin_addr = c->target.addr};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int failure = 0;
    socklen_t len = sizeof(failure);
    int r;

    if (fd < 0) {
        return err_wrap(e, -errno, "making a socket");
    }
    io_init_take(&c->server, fd);
    c->connected = true;
    c->server_used = false;
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        if (errno != EINPROGRESS) {
            return err_set(e, -errno, "connect_failed", "cannot connect to the server: %s",
                           strerrordesc_np(errno));
        }
        r = io_wait(&c->server, POLLOUT, wait);
        if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len) == 0) {
            r = -failure;
        }
        if (r < 0) {
            return err_set(e, r, "connect_failed", "cannot connect to the server: %s",
                           strerrordesc_np(-r));
        }
    }
    return 0;
}

/* Verified always: a server whose certificate we do not trust gets nothing. */
static int connect_server(struct intercept_conn *c, struct err *e)
{
    struct io_wait wait = intercept_wait(c, INTERCEPT_CONNECT_MS);
    int r = connect_socket(c, &wait, e);

    if (r == 0 && c->target.is_tls) {
        wait = intercept_wait(c, INTERCEPT_HANDSHAKE_MS);
        r = io_tls_connect(&c->server, c->in->client_tls, c->target.name, &wait, e);
    }
    if (r < 0) {
        disconnect(c);
    }
    return r;
}

/* Has the server, which may only wait for a request, closed or said something? */
static bool server_is_stale(struct intercept_conn *c)
{
    struct pollfd p = {.fd = c->server.fd, .events = POLLIN | POLLRDHUP};

    if (c->server.in_len > 0) {
        return true;
    }
    if (poll(&p, 1, 0) == 0) {
        return false;
    }
    /* TLS has things of its own to say. */
    return !(c->server.ssl && p.revents == POLLIN && io_fill(&c->server, 1) == -EAGAIN);
}

/* ---- one request ---- */

static void exchange_done(struct exchange *x)
{
    plan_done(&x->plan);
    redact_done(&x->redact);
    secret_wipe_buf(&x->body);
    if (x->up_out.head.base) {
        explicit_bzero(x->up_out.head.base, x->up_out.head.cap);
    }
    if (x->up_out.pending.base) {
        explicit_bzero(x->up_out.pending.base, x->up_out.pending.cap);
    }
    out_done(&x->up_out);
    out_done(&x->down_out);
    free(x->head_text);
    if (x->chunk) {
        explicit_bzero(x->chunk, INTERCEPT_CHUNK);
    }
    free(x->chunk);
    free(x);
}
DEFINE_CLEANUP(struct exchange *, exchange_done);

static struct exchange *exchange_new(struct intercept_conn *c)
{
    struct exchange *x = xnew(struct exchange);

    x->c = c;
    redact_init(&x->redact);
    out_init(&x->up_out);
    x->up_out.head.max = INJECT_HEAD_MAX;
    x->up_out.pending.max += INJECT_HEAD_MAX;
    out_init(&x->down_out);
    x->body = BUF_INIT(INJECT_BODY_MAX + 4u * PLAN_VALUE_MAX);
    x->chunk = xmalloc(INTERCEPT_CHUNK);
    return x;
}

/* Waits for a head. 0: there is one of *ret_len bytes in guest.in. -ENODATA: the guest has closed in between. */
static int read_head(struct intercept_conn *c, size_t *ret_len)
{
    struct io_wait wait = intercept_wait(c, INTERCEPT_IDLE_MS);
    struct http1_scan scan = {0};
    bool begun = false;

    for (;;) {
        ssize_t n;
        int r = http1_scan(&scan, io_data(&c->guest), c->guest.in_len, ret_len);

        if (r != -EAGAIN) {
            return r;
        }
        if (c->guest.in_len > 0 && !begun) {
            begun = true;
            wait = intercept_wait(c, INTERCEPT_HEAD_MS);
        }
        n = io_fill(&c->guest, HTTP1_MAX_HEAD + 1);
        if (n == 0) {
            return c->guest.in_len ? -EBADMSG : -ENODATA;
        }
        if (n == -EAGAIN) {
            r = io_wait(&c->guest, POLLIN, &wait);
            n = r < 0 ? r : 1;
        }
        if (n < 0) {
            return (int)n;
        }
    }
}

/* The name in Host must be the one that the connection was judged and resolved for. */
static bool host_agrees(const struct intercept_conn *c, const struct http1_head *head)
{
    const char *name = c->target.name;
    size_t len = strlen(name);
    struct http1_view a = head->authority;
    char port[8];

    if (a.len > len && a.p[len] == '.') {
        return false; /* a dot at the end: some servers take it for another host */
    }
    if (a.len < len || strncasecmp(a.p, name, len) != 0) {
        return false;
    }
    if (a.len == len) {
        /* Without a port it means the usual one; clients leave it out elsewhere, too. */
        return true;
    }
    snprintf(port, sizeof(port), ":%u", c->target.port);
    return a.len == len + strlen(port) && memcmp(a.p + len, port, strlen(port)) == 0;
}

/* The path of CONNECT is no bytes at all. */
static char *text_of(struct http1_view v)
{
    return v.p ? xstrndup(v.p, v.len) : xstrdup("");
}

/* May this request pass? Answers itself when not. */
static bool judge(struct exchange *x)
{
    struct intercept_conn *c = x->c;
    const struct http1_head *head = &x->head;
    cleanup_free char *method = text_of(head->method);
    cleanup_free char *path = text_of(head->path);
    struct netpolicy_query q = {.name = c->target.name,
                                .addr = c->target.addr,
                                .port = c->target.port,
                                .method = method,
                                .path = path};
    struct netpolicy_verdict v;

    if (head->form == HTTP1_FORM_AUTHORITY) {
        intercept_answer(c, 405, "method_not_allowed", "CONNECT is of no use here");
        return false;
    }
    if (!host_agrees(c, head)) {
        intercept_answer(c, 421, "host_differs",
                         "the request is for another host than the connection");
        return false;
    }
    if (strlen(path) != head->path.len) {
        intercept_answer(c, 400, "bad_path", "the path cannot be read");
        return false;
    }
    v = netpolicy_judge(c->policy, &q);
    if (v.action == NETPOLICY_ALLOW || v.action == NETPOLICY_INSPECT ||
        netpolicy_observes(c->policy)) {
        return true;
    }
    intercept_answer(c, 403, v.action == NETPOLICY_ASK ? "approval_needed" : "denied_by_policy",
                     "the sandbox's network policy does not let this request pass");
    return false;
}

/* Asks what is to be put in. Only on connections that nobody else can read, to a server that is known by name. */
static int get_plan(struct exchange *x, struct err *e)
{
    struct intercept_conn *c = x->c;
    const struct http1_field *auth = http1_field_get(&x->head, "authorization");
    cleanup_free char *method = text_of(x->head.method);
    cleanup_free char *path = text_of(x->head.path);
    char names[INJECT_NAMES_MAX][CREDENTIAL_NAME_SIZE];
    struct credential_ask ask = {
        .q = {.organisation = c->target.owner.organisation,
              .project = c->target.owner.project,
              .sandbox = c->target.owner.sandbox,
              .host = c->target.name,
              .port = c->target.port,
              .method = method,
              .path = path},
        .names = names,
    };
    int r;

    if (!c->target.is_tls ||
        !intercept_wants(c->in, &c->target.owner, c->target.name, c->target.port)) {
        return 0;
    }
    ask.n_names = inject_placeholders(&x->head, names);
    if (auth) {
        IGNORE_RESULT(
            sigv4_scope_of(auth->value.p, auth->value.len, &ask.sign)); /* most are no signature */
    }
    r = credential_client_use(c->in->credentials, &ask, deadline_in_ms(INTERCEPT_USE_MS), &x->plan,
                              e);
    for (size_t i = 0; i < x->plan.n_secrets && r == 0; i++) {
        r = redact_add(&x->redact, x->plan.secrets[i]);
        r = r < 0 ? err_set(e, r, "too_many_credentials", "the answer could not be searched") : 0;
    }
    if (r == 0 && x->plan.n > 0) {
        snprintf(c->credential, sizeof(c->credential), "%s", x->plan.v[0].credential);
    }
    return r;
}

/* All of the body, when a secret goes into it. */
static int gather_body(struct exchange *x, struct err *e)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    cleanup_secret_buf struct buf raw = BUF_INIT(INJECT_BODY_MAX);
    struct intercept_conn *c = x->c;
    struct iovec iov = {(void *)(uintptr_t)go_on, sizeof(go_on) - 1};
    struct io_wait wait = intercept_wait(c, INTERCEPT_HEAD_MS);
    ssize_t n = 1;
    int r = 0;

    if (x->head.expect_continue && !x->up_in.done) {
        r = io_send_all(&c->guest, &iov, 1, &wait);
    }
    while (r == 0 && n != 0) {
        n = in_read(&x->up_in, &c->guest, x->chunk, INTERCEPT_CHUNK);
        if (n == -EAGAIN) {
            wait = intercept_wait(c, INTERCEPT_IDLE_MS);
            r = io_wait(&c->guest, POLLIN, &wait);
        } else if (n < 0) {
            r = (int)n;
        } else if (n > 0) {
            c->result.bytes_up += (uint64_t)n;
            r = buf_add(&raw, x->chunk, (size_t)n);
        }
    }
    if (r == -E2BIG) {
        return err_set(e, r, "body_too_large", "the body is too large to put a credential into it");
    }
    r = r < 0 ? r : inject_body(&x->head, &x->plan, raw.data, raw.len, &x->body, e);
    x->body_known = r == 0;
    return r;
}

static int print_head(struct exchange *x, struct err *e)
{
    struct inject_request req = {
        .head = &x->head,
        .host = x->c->host,
        .plan = &x->plan,
        .time_s = clock_wall_ms() / 1000,
        .body_known = x->body_known,
        .body = x->body.data,
        .body_len = x->body.len,
    };
    int r;

    buf_reset(&x->up_out.head);
    r = inject_head(&req, &x->up_out.head, e);
    if (r == 0) {
        out_begin(&x->up_out,
                  x->body_known ? (x->body.len ? HTTP1_BODY_LENGTH : HTTP1_BODY_NONE)
                                : x->head.framing,
                  x->body_known ? x->body.len : x->head.content_length);
    }
    return r;
}

/* Sends it and passes the answer on; once more on a new connection if the one that was kept turns out dead. */
static int perform(struct exchange *x, struct err *e)
{
    struct intercept_conn *c = x->c;
    int r = 0;

    if (c->connected && server_is_stale(c)) {
        disconnect(c);
    }
    if (!c->connected) {
        r = connect_server(c, e);
    }
    r = r < 0 ? r : print_head(x, e);
    if (r < 0) {
        return r;
    }
    r = exchange_pump(x);
    if (r == -EAGAIN) {
        disconnect(c);
        r = connect_server(c, e);
        out_done(&x->up_out);
        out_init(&x->up_out);
        x->up_out.head.max = INJECT_HEAD_MAX;
        x->up_done = x->up_broken = false;
        r = r < 0 ? r : print_head(x, e);
        r = r < 0 ? r : exchange_pump(x);
    }
    return r;
}

/* What went wrong before anything of an answer was given. */
static void answer_failure(struct exchange *x, const struct err *e)
{
    int status = err_http_status(e);

    if (x->head_done || e->code == -ECANCELED) {
        return; /* cut off: the guest must not take it for a whole answer */
    }
    if (str_eq(e->reason, "tls_not_trusted") || str_eq(e->reason, "connect_failed") ||
        status == 404 || status == 401) {
        status = 502;
    }
    intercept_answer(x->c, status, err_reason(e), e->msg);
}

/* true: the connection may carry another one. */
static bool serve_one(struct exchange *x)
{
    struct intercept_conn *c = x->c;
    struct err e = {0};
    int r = 0;

    in_init(&x->up_in, x->head.framing, x->head.content_length);
    if (!judge(x)) {
        return false;
    }
    r = get_plan(x, &e);
    if (r == 0 && inject_needs_body(&x->head, &x->plan)) {
        r = gather_body(x, &e);
    }
    r = r < 0 ? r : perform(x, &e);
    if (r < 0) {
        if (e.code == 0) {
            err_set(&e, r, r == -EBADMSG ? "bad_answer" : "server_failed",
                    "the server's answer cannot be passed on");
        }
        answer_failure(x, &e);
        if (!c->refused[0]) {
            intercept_refuse(c, err_reason(&e));
        }
        return false;
    }
    c->result.requests++;
    if (x->upgraded) {
        exchange_tunnel(x);
        return false;
    }
    if (!x->keep_server) {
        disconnect(c);
    }
    c->server_used = true;
    return x->keep_guest;
}

static bool serve_next(struct intercept_conn *c)
{
    CLEANUP(exchange_donep) struct exchange *x = NULL;
    enum http1_error why;
    size_t len = 0;
    int r = read_head(c, &len);

    if (r == -E2BIG) {
        intercept_answer(c, 431, "head_too_large", "the request's head is too large");
    }
    if (r < 0) {
        return false;
    }
    x = exchange_new(c);
    x->head_text = xmemdup(io_data(&c->guest), len);
    io_consume(&c->guest, len);
    why = http1_parse_request(x->head_text, len, &x->head);
    if (why != HTTP1_OK) {
        intercept_answer(c, http1_error_status(why), "bad_request", http1_error_text(why));
        return false;
    }
    return serve_one(x);
}

static int start_tls(struct intercept_conn *c, struct err *e)
{
    struct io_wait wait = intercept_wait(c, INTERCEPT_HANDSHAKE_MS);
    SSL_CTX *ctx = NULL;
    int r = leaves_get(c->in->leaves, c->target.owner.organisation, c->target.name, &ctx, e);

    if (r < 0) {
        intercept_refuse(c, "no_certificate");
        return r;
    }
    r = io_tls_accept(&c->guest, ctx, &wait, e);
    SSL_CTX_free(ctx); /* the connection has its own reference */
    if (r < 0) {
        /* Most often a client that pins or does not know our authority. */
        intercept_refuse(c, "guest_tls_failed");
    }
    return r;
}

void intercept_conn_run(struct intercept_conn *c)
{
    struct log_ctx ctx = {.sandbox = c->target.owner.sandbox};
    struct err e = {0};

    if (c->target.is_tls && start_tls(c, &e) < 0) {
        log_info(&ctx, "TLS with the guest for %s: %s", c->target.name, e.msg);
        return;
    }
    while (serve_next(c)) {
        io_trim(&c->guest);
        if (c->connected) {
            io_trim(&c->server);
        }
    }
}
