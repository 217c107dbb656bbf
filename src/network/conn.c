/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "network/conn-private.h"
#include "network/figures.h"
#include "network/hold.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A client that says nothing for that long waits for the server to begin. */
#define SILENT_MS 400
#define PEEK_MS 10000
#define CONNECT_MS 10000
#define RESOLVE_MS 30000
/* A connection whose other half is closed, or that moves nothing at all. Keepalives find dead peers before. */
#define HALF_CLOSED_MS (5ull * 60 * 1000)
#define IDLE_MS (2ull * 60 * 60 * 1000)
#define KEEPALIVE_S 120
#define ACCEPTS_MAX 32

static void conn_free(struct conn *c);
static void conn_go(struct conn *c);
static void on_guest(void *arg, uint32_t events);

/* ---- the log ---- */

static void note(struct conn *c, enum netpolicy_action action, const char *why)
{
    struct egress_entry entry = {.kind = EGRESS_CONNECTION,
                                 .action = action,
                                 .rule = c->verdict.rule,
                                 .level = c->verdict.level,
                                 .observed = c->observed,
                                 .open = action != NETPOLICY_DENY,
                                 .name = c->name ? xstrdup(c->name) : NULL,
                                 .addr = c->dst,
                                 .port = c->port};

    snprintf(entry.why, sizeof(entry.why), "%s", why ? why : "");
    c->entry = egress_add_take(&c->island->log, &entry);
}

static void note_end(struct conn *c)
{
    struct egress_entry *entry = egress_find(&c->island->log, c->entry);

    c->island->log.bytes_up += c->up.bytes;
    c->island->log.bytes_down += c->down.bytes;
    figures_count_bytes(c->up.bytes, c->down.bytes);
    if (entry) {
        entry->open = false;
        entry->bytes_up = c->up.bytes;
        entry->bytes_down = c->down.bytes;
        entry->ended_ms = clock_wall_ms();
        egress_note(&c->island->log, entry);
    }
}

/* ---- ends ---- */

static void reset_on_close(int fd)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    IGNORE_RESULT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
}

static void conn_reset(struct conn *c)
{
    if (c->guest_fd >= 0) {
        reset_on_close(c->guest_fd);
    }
    if (c->server_fd >= 0) {
        reset_on_close(c->server_fd);
    }
    conn_free(c);
}

static void conn_free(struct conn *c)
{
    struct island *island = c->island;

    if (c->entry) {
        note_end(c);
    }
    resolver_cancel(&c->waiter);
    names_cancel(c->question);
    if (c->prev) {
        c->prev->next = c->next;
    } else {
        island->conns = c->next;
    }
    if (c->next) {
        c->next->prev = c->prev;
    }
    island->n_conns--;
    loop_io_free(c->guest_io);
    loop_io_free(c->server_io);
    pump_done(&c->up);
    pump_done(&c->down);
    fd_close(c->guest_fd);
    fd_close(c->server_fd);
    buf_done(&c->peeked);
    free(c->name);
    free(c);
}

/* What a client understands as "you may not", where the protocol has a word for it. */
static void say_refusal(struct conn *c, const char *why)
{
    static const uint8_t alert[] = {21, 3, 3, 0, 2, 2, 49}; /* fatal, access_denied */
    char body[512];
    char text[400];
    char answer[1024];
    int n;

    if (c->kind == CONN_TLS) {
        IGNORE_RESULT(send(c->guest_fd, alert, sizeof(alert), MSG_NOSIGNAL | MSG_DONTWAIT));
        return;
    }
    if (why) {
        snprintf(text, sizeof(text), "%s", why);
    } else {
        netpolicy_explain(c->island->policy, &c->verdict, text, sizeof(text));
    }
    snprintf(body, sizeof(body), "refused by the network policy of this sandbox: %s\n", text);
    n = snprintf(answer, sizeof(answer),
                 "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
                 "Connection: close\r\n\r\n%s",
                 why && str_eq(why, "bad_request") ? "400 Bad Request" : "403 Forbidden",
                 strlen(body), body);
    IGNORE_RESULT(send(c->guest_fd, answer, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT));
}

/* why: a stable word, or NULL for the policy's own decision. */
static void conn_refuse(struct conn *c, const char *why)
{
    note(c, NETPOLICY_DENY, why);
    if (c->kind == CONN_OPAQUE || c->kind == CONN_SSH) {
        conn_reset(c);
        return;
    }
    say_refusal(c, why);
    shutdown(c->guest_fd, SHUT_WR);
    conn_free(c);
}

/* It had been let through, and then it came to nothing. */
static void conn_fail(struct conn *c, const char *why)
{
    struct egress_entry *entry = egress_find(&c->island->log, c->entry);

    if (entry) {
        snprintf(entry->why, sizeof(entry->why), "%s", why);
    }
    conn_reset(c);
}

/* ---- piping ---- */

static void on_piping(struct conn *c)
{
    int r = pump_run(&c->up);

    if (r == 0) {
        r = pump_run(&c->down);
    }
    if (r < 0) {
        conn_reset(c);
        return;
    }
    if (c->up.closed && c->down.closed) {
        conn_free(c);
        return;
    }
    if (c->up.closed || c->down.closed) {
        c->deadline_ns = MIN(c->deadline_ns, deadline_in_ms(HALF_CLOSED_MS));
    }
    loop_io_set(c->guest_io, pump_wants_from(&c->up) | pump_wants_to(&c->down));
    loop_io_set(c->server_io, pump_wants_from(&c->down) | pump_wants_to(&c->up));
}

static void set_keepalive(int fd)
{
    const int on = 1;
    const int idle_s = KEEPALIVE_S;

    IGNORE_RESULT(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)));
    IGNORE_RESULT(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s)));
    IGNORE_RESULT(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
}

static void begin_piping(struct conn *c)
{
    struct worker *w = c->island->worker;

    c->state = CONN_PIPING;
    c->deadline_ns = deadline_in_ms(IDLE_MS);
    set_keepalive(c->guest_fd);
    set_keepalive(c->server_fd);
    pump_init(&c->up, w, c->guest_fd, c->server_fd);
    pump_init(&c->down, w, c->server_fd, c->guest_fd);
    c->up.first = &c->peeked;
    on_piping(c);
}

/* ---- connecting ---- */

static void connect_next(struct conn *c);

static void on_server(void *arg, uint32_t events)
{
    struct conn *c = arg;
    int error = 0;
    socklen_t len = sizeof(error);

    (void)events;
    if (c->state == CONN_PIPING) {
        on_piping(c);
        return;
    }
    if (getsockopt(c->server_fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error != 0) {
        connect_next(c);
        return;
    }
    begin_piping(c);
}

static int connect_to(struct conn *c, struct in_addr addr)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(c->port), .sin_addr = addr};

    loop_io_free(c->server_io);
    c->server_io = NULL;
    fd_close(c->server_fd);
    c->server_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->server_fd < 0) {
        return -errno;
    }
    if (connect(c->server_fd, (const struct sockaddr *)&to, sizeof(to)) < 0 &&
        errno != EINPROGRESS) {
        return -errno;
    }
    c->server_io =
        loop_add_io(worker_loop(c->island->worker), c->server_fd, EPOLLOUT, on_server, c);
    c->deadline_ns = deadline_in_ms(CONNECT_MS);
    return 0;
}

static void connect_next(struct conn *c)
{
    while (c->tried < c->n_candidates) {
        if (connect_to(c, c->candidates[c->tried++]) == 0) {
            return;
        }
    }
    conn_fail(c, "connect_failed");
}

/* ---- handing over ---- */

static void handed_over_free(struct handed_over *h)
{
    if (h->island) {
        struct handed_over **at = &h->island->handed_over;

        while (*at != h) {
            at = &(*at)->next;
        }
        *at = h->next;
        h->island->n_conns--;
    }
    free(h->name);
    free(h->credential);
    free(h->refused);
    free(h);
}

static void on_handed_back(void *arg)
{
    struct handed_over *h = arg;
    struct island *island = h->island;
    struct egress_entry *entry = island ? egress_find(&island->log, h->entry) : NULL;

    if (island) {
        island->log.bytes_up += h->result.bytes_up;
        island->log.bytes_down += h->result.bytes_down;
        figures_count_bytes(h->result.bytes_up, h->result.bytes_down);
        figures_count_inspected(h->result.requests, h->refused != NULL);
    }
    if (entry) {
        entry->open = false;
        entry->ended_ms = clock_wall_ms();
        entry->bytes_up = h->result.bytes_up;
        entry->bytes_down = h->result.bytes_down;
        entry->requests = h->result.requests;
        entry->status = h->result.status;
        entry->credential = TAKE_PTR(h->credential);
        snprintf(entry->why, sizeof(entry->why), "%s", h->refused ? "request_refused" : "");
        egress_note(&island->log, entry);
    }
    handed_over_free(h);
}

static void on_intercept_done(void *arg, const struct intercept_result *result)
{
    struct handed_over *h = arg;

    h->result = *result;
    h->credential = result->credential ? xstrdup(result->credential) : NULL;
    h->refused = result->refused ? xstrdup(result->refused) : NULL;
    worker_post(h->worker, on_handed_back, h);
}

static struct island *island_of(void *arg)
{
    const struct handed_over *h = arg;

    return h->island;
}

static enum netpolicy_action on_intercept_ask(void *arg, const struct intercept_question *q)
{
    const struct handed_over *h = arg;
    const struct hold_place place = {.worker = h->worker, .island_of = island_of, .arg = arg};
    const struct ask_what what = {
        .name = q->name, .addr = q->addr, .port = q->port, .method = q->method, .path = q->path};

    return hold_wait(&place, &what, q->stop_fd);
}

static void hand_over(struct conn *c)
{
    struct island *island = c->island;
    struct handed_over *h = xnew(struct handed_over);
    struct intercept_target target = {
        .owner = island->owner,
        .port = c->port,
        .addr = c->candidates[0],
        .is_ssh = c->kind == CONN_SSH,
        .is_tls = c->kind == CONN_TLS,
        .peeked = c->peeked.data,
        .n_peeked = c->peeked.len,
        .policy = island->policy,
        .ask = on_intercept_ask,
        .note = conn_note_request,
        .done = on_intercept_done,
        .done_arg = h,
    };
    struct err e = {0};

    snprintf(target.name, sizeof(target.name), "%s", c->name ? c->name : "");
    *h = (struct handed_over){.next = island->handed_over,
                              .worker = island->worker,
                              .island = island,
                              .name = c->name ? xstrdup(c->name) : NULL,
                              .addr = target.addr,
                              .port = c->port,
                              .entry = c->entry};
    island->handed_over = h;
    island->n_conns++; /* it counts until it is handed back */
    loop_io_free(c->guest_io);
    c->guest_io = NULL;
    if (intercept_accept(island->intercept, c->guest_fd, &target, &e) < 0) {
        const struct log_ctx ctx = {.sandbox = island->owner.sandbox};

        log_warn(&ctx, "a connection to %s cannot be looked into: %s", target.name, e.msg);
        handed_over_free(h);
        conn_fail(c, "cannot_inspect");
        return;
    }
    c->guest_fd = FD_NONE;
    c->entry = 0; /* the interceptor's result completes it */
    conn_free(c);
}

static bool wants_interception(const struct conn *c)
{
    const struct island *island = c->island;

    if (c->verdict.action == NETPOLICY_INSPECT || c->kind == CONN_SSH) {
        return true;
    }
    return island->intercept && c->kind != CONN_OPAQUE && c->name &&
           intercept_wants(island->intercept, &island->owner, c->name, c->port);
}

/* ---- deciding ---- */

static void proceed(struct conn *c, const struct dns_addrs *addrs)
{
    bool intercept = wants_interception(c);
    const char *why;

    if (!conn_choose(c, addrs, &why)) {
        conn_refuse(c, why);
        return;
    }
    if (intercept && (!c->island->intercept || c->kind == CONN_OPAQUE)) {
        conn_refuse(c, "cannot_inspect");
        return;
    }
    note(c, intercept ? NETPOLICY_INSPECT : NETPOLICY_ALLOW, NULL);
    if (intercept) {
        hand_over(c);
        return;
    }
    c->state = CONN_CONNECTING;
    connect_next(c);
}

static void on_resolved(void *arg, const struct resolver_answer *answer)
{
    struct conn *c = arg;

    proceed(c, &answer->addrs);
}

/* The decision has been made: to where? */
static void conn_go(struct conn *c)
{
    struct dns_addrs here = {.addr = {c->dst}, .n = 1};
    struct resolver_answer answer;
    int r;

    c->state = CONN_RESOLVING;
    c->deadline_ns = deadline_in_ms(RESOLVE_MS);
    if (!c->name || c->verdict.by_addr || c->by_map) {
        proceed(c, &here);
        return;
    }
    c->waiter = (struct resolver_waiter){.fn = on_resolved, .arg = c};
    r = resolver_ask(c->island->resolver, c->name, &c->waiter, &answer);
    if (r == 0) {
        proceed(c, &answer.addrs);
    } else if (r != -EAGAIN) {
        conn_refuse(c, "too_many_lookups");
    }
}

/* Also when the asks have changed. */
static void conn_ask(struct conn *c)
{
    const struct ask_what what = {.name = c->name, .addr = c->dst, .port = c->port};
    enum netpolicy_action answer = island_ask(c->island, &what);

    if (answer == NETPOLICY_ASK) {
        c->state = CONN_ASKING;
        c->deadline_ns = DEADLINE_NEVER; /* the ask has one */
        loop_io_set(c->guest_io, 0);
    } else if (answer == NETPOLICY_ALLOW) {
        conn_go(c);
    } else {
        conn_refuse(c, "not_approved");
    }
}

/* Nothing was read, only the name is guessed; but what goes there is to be looked into. */
static bool must_be_read(const struct conn *c)
{
    const struct island *island = c->island;

    return c->peeked.len == 0 && c->kind != CONN_SSH && island->intercept &&
           (c->verdict.action == NETPOLICY_INSPECT ||
            (c->name && intercept_wants(island->intercept, &island->owner, c->name, c->port)));
}

/* A busy machine's client may be slow to begin; a server that would begin itself is nothing to look into. */
static void wait_for_bytes(struct conn *c)
{
    free(c->name);
    c->name = NULL;
    c->by_map = false;
    c->patient = true;
    c->state = CONN_PEEKING;
    c->deadline_ns = deadline_in_ms(PEEK_MS);
    loop_io_set(c->guest_io, EPOLLIN);
}

static void conn_decide(struct conn *c)
{
    conn_judge(c);
    if (must_be_read(c)) {
        wait_for_bytes(c);
        return;
    }
    loop_io_set(c->guest_io, 0);
    switch (c->verdict.action) {
    case NETPOLICY_DENY:
        conn_refuse(c, NULL);
        break;
    case NETPOLICY_ASK:
        conn_ask(c);
        break;
    default:
        conn_go(c);
        break;
    }
}

static void look(struct conn *c, bool silent)
{
    const char *why = "bad_request";

    switch (conn_peek(c, silent, &why)) {
    case PEEK_MORE:
        break;
    case PEEK_BAD:
        c->verdict = (struct netpolicy_verdict){
            .action = NETPOLICY_DENY, .rule = NETPOLICY_BY_DEFAULT, .level = NETPOLICY_SANDBOX};
        conn_refuse(c, why);
        break;
    case PEEK_DONE:
        conn_decide(c);
        break;
    }
}

static void on_peeking(struct conn *c)
{
    void *room;
    ssize_t n;

    if (buf_reserve(&c->peeked, MIN((size_t)4096, CONN_PEEK_MAX - c->peeked.len), &room) < 0) {
        conn_reset(c);
        return;
    }
    n = recv(c->guest_fd, room, MIN((size_t)4096, CONN_PEEK_MAX - c->peeked.len), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        conn_reset(c); /* gone before it has said what it wants */
        return;
    }
    if (c->peeked.len == 0) {
        c->deadline_ns = deadline_in_ms(PEEK_MS);
    }
    buf_commit(&c->peeked, (size_t)n);
    look(c, /* silent */ false);
}

/* ---- questions over TCP ---- */

static void dns_next(struct conn *c);

static void on_dns_answer(void *arg, const uint8_t *data, size_t len)
{
    struct conn *c = arg;
    uint8_t out[2 + DNS_UDP_MAX];

    c->question = NULL;
    if (len == 0) {
        return;
    }
    out[0] = (uint8_t)(len >> 8);
    out[1] = (uint8_t)len;
    memcpy(out + 2, data, len);
    /* One question at a time, so a buffer that is full is of a guest that does not read. */
    if (send(c->guest_fd, out, len + 2, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len + 2) {
        shutdown(c->guest_fd, SHUT_RDWR);
    }
    loop_io_set(c->guest_io, EPOLLIN);
}

static void dns_next(struct conn *c)
{
    uint8_t message[DNS_UDP_MAX];
    const uint8_t *p = (const uint8_t *)c->peeked.data;
    size_t len = c->peeked.len >= 2 ? (size_t)p[0] << 8 | p[1] : 0;

    if (c->peeked.len < 2 || (len <= sizeof(message) && c->peeked.len < 2 + len)) {
        return;
    }
    if (len > sizeof(message)) {
        conn_reset(c);
        return;
    }
    memcpy(message, p + 2, len);
    buf_consume(&c->peeked, 2 + len);
    loop_io_set(c->guest_io, 0); /* until it is answered */
    if (!names_ask(c->island, message, len, on_dns_answer, c, &c->question)) {
        conn_reset(c);
    }
}

static void on_dns(struct conn *c)
{
    void *room;
    ssize_t n;

    if (buf_reserve(&c->peeked, 2048, &room) < 0) {
        conn_reset(c);
        return;
    }
    n = recv(c->guest_fd, room, 2048, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        conn_free(c);
        return;
    }
    c->deadline_ns = deadline_in_ms(PEEK_MS);
    buf_commit(&c->peeked, (size_t)n);
    dns_next(c);
}

/* ---- life ---- */

static void on_guest(void *arg, uint32_t events)
{
    struct conn *c = arg;

    (void)events;
    switch (c->state) {
    case CONN_PEEKING:
        on_peeking(c);
        break;
    case CONN_PIPING:
        on_piping(c);
        break;
    case CONN_DNS:
        on_dns(c);
        break;
    default:
        break; /* nothing was asked for */
    }
}

static void conn_begin_take(struct island *island, int fd, const struct sockaddr_in *dst)
{
    struct conn *c = xnew(struct conn);

    c->island = island;
    c->guest_fd = fd;
    c->server_fd = FD_NONE;
    c->dst = dst->sin_addr;
    c->port = ntohs(dst->sin_port);
    c->peeked = BUF_INIT(CONN_PEEK_MAX);
    c->up.pipe = c->down.pipe = (struct worker_pipe){FD_NONE, FD_NONE};
    c->state = c->port == 53 ? CONN_DNS : CONN_PEEKING;
    c->deadline_ns = deadline_in_ms(c->state == CONN_DNS ? PEEK_MS : SILENT_MS);
    c->next = island->conns;
    if (c->next) {
        c->next->prev = c;
    }
    island->conns = c;
    island->n_conns++;
    c->guest_io = loop_add_io(worker_loop(island->worker), fd, EPOLLIN, on_guest, c);
    worker_needs_tick(island->worker);
    if (c->state == CONN_PEEKING && conn_is_ssh(c)) {
        conn_decide(c);
    }
}

void conn_accept(struct island *island)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct sockaddr_in dst;
        socklen_t len = sizeof(dst);
        int fd = accept4(island->tcp_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            return;
        }
        if (island->n_conns >= ISLAND_CONNECTIONS_MAX ||
            getsockname(fd, (struct sockaddr *)&dst, &len) < 0 || dst.sin_family != AF_INET) {
            island->n_refused++;
            figures_count_refused();
            reset_on_close(fd);
            fd_close(fd);
            continue;
        }
        conn_begin_take(island, fd, &dst);
    }
}

static void on_deadline(struct conn *c)
{
    uint64_t moved = c->up.bytes + c->down.bytes;

    switch (c->state) {
    case CONN_PEEKING:
        if (c->peeked.len == 0 && !c->patient) {
            look(c, /* silent */ true);
        } else {
            conn_refuse(c, "timeout");
        }
        break;
    case CONN_CONNECTING:
        connect_next(c);
        break;
    case CONN_PIPING:
        if (c->moved == moved) {
            conn_reset(c);
            break;
        }
        c->moved = moved;
        c->deadline_ns = deadline_in_ms(c->up.closed || c->down.closed ? HALF_CLOSED_MS : IDLE_MS);
        break;
    default:
        conn_reset(c);
        break;
    }
}

bool conn_tick_all(struct island *island, uint64_t now_ns)
{
    struct conn *next;

    for (struct conn *c = island->conns; c; c = next) {
        next = c->next;
        if (c->deadline_ns <= now_ns) {
            on_deadline(c);
        }
    }
    return island->conns != NULL;
}

void conn_asks_changed(struct island *island)
{
    struct conn *next;

    for (struct conn *c = island->conns; c; c = next) {
        next = c->next;
        if (c->state == CONN_ASKING) {
            conn_ask(c);
        }
    }
}

void conn_rejudge_all(struct island *island)
{
    struct conn *next;

    for (struct conn *c = island->conns; c; c = next) {
        enum netpolicy_action before = c->verdict.action;

        next = c->next;
        if (c->state == CONN_PEEKING || c->state == CONN_DNS) {
            continue; /* judged when it is time, by the policy of then */
        }
        conn_judge(c);
        if (c->state == CONN_ASKING) {
            conn_decide(c);
        } else if (c->verdict.action != before || c->verdict.action == NETPOLICY_INSPECT) {
            conn_fail(c, "policy_changed");
        } else if (c->tried > 0 &&
                   !netpolicy_addr_allowed(island->policy, c->candidates[c->tried - 1], c->port)) {
            conn_fail(c, "policy_changed");
        }
    }
}

void conn_reset_all(struct island *island)
{
    for (struct handed_over *h = island->handed_over; h; h = h->next) {
        h->island = NULL; /* the interceptor ends them on its own time */
    }
    island->handed_over = NULL;
    while (island->conns) {
        conn_reset(island->conns);
    }
}

json_t *conn_list_json(struct island *island)
{
    static const char *const states[] = {"reading",    "asking", "resolving",
                                         "connecting", "open",   "names"};
    json_t *list = json_array();

    for (const struct conn *c = island->conns; c; c = c->next) {
        char addr[INET_ADDRSTRLEN];

        inet_ntop(AF_INET, &c->dst, addr, sizeof(addr));
        json_array_append_new(
            list, json_pack("{s:s, s:s?, s:s, s:i, s:I, s:I}", "state", states[c->state], "host",
                            c->name, "addr", addr, "port", (int)c->port, "bytes_up",
                            (json_int_t)c->up.bytes, "bytes_down", (json_int_t)c->down.bytes));
    }
    return list;
}
