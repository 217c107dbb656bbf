/* SPDX-License-Identifier: Apache-2.0 */
#include "network/island.h"

#include "base/clock.h"
#include "base/id.h"
#include "network/hold.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

/* A person may be at lunch; programs give up after a minute or two, and come again. */
#define ASK_WAIT_MS (2ull * 60 * 1000)
/* Nobody has answered, or only for now: the next try after that asks again. */
#define SILENCE_KEEP_MS 5000u

struct island *island_new(const struct island_options *options)
{
    struct island *island = xnew(struct island);

    island->owner = options->owner;
    island->worker = options->worker;
    island->intercept = options->intercept;
    island->notifier = options->notifier;
    island->policy = netpolicy_none();
    island->resolver = resolver_new(options->worker, options->servers);
    island->tcp_fd = FD_NONE;
    island->dns_fd = FD_NONE;
    egress_init(&island->log);
    if (options->log_dir_fd >= 0) {
        egress_keep(&island->log, options->log_dir_fd, island->owner.sandbox);
    }
    return island;
}

static void stop_listening(struct island *island)
{
    loop_io_free(island->tcp_io);
    loop_io_free(island->dns_io);
    island->tcp_io = NULL;
    island->dns_io = NULL;
    island->tcp_fd = fd_close(island->tcp_fd);
    island->dns_fd = fd_close(island->dns_fd);
}

static void ask_free(struct ask *ask)
{
    free((char *)(uintptr_t)ask->what.name);
    free((char *)(uintptr_t)ask->what.method);
    free((char *)(uintptr_t)ask->what.path);
    explicit_bzero(ask->token, sizeof(ask->token));
    free(ask);
}

static void forget_asks(struct island *island)
{
    while (island->asks) {
        struct ask *ask = island->asks;

        island->asks = ask->next;
        ask_free(ask);
    }
    island->n_asks = 0;
}

void island_free(struct island *island)
{
    if (!island) {
        return;
    }
    conn_reset_all(island);
    names_forget_all(island);
    stop_listening(island);
    if (island->intercept) {
        intercept_drop(island->intercept, island->owner.sandbox, NULL);
    }
    hold_end_all(island);
    forget_asks(island);
    resolver_free(island->resolver);
    egress_done(&island->log);
    netpolicy_unref(island->policy);
    free(island);
}

static void on_tcp(void *arg, uint32_t events)
{
    (void)events;
    conn_accept(arg);
}

static void on_dns(void *arg, uint32_t events)
{
    (void)events;
    names_receive(arg);
}

void island_listen_take(struct island *island, int tcp_fd, int dns_fd)
{
    struct loop *loop = worker_loop(island->worker);

    stop_listening(island);
    island->tcp_fd = tcp_fd;
    island->dns_fd = dns_fd;
    island->tcp_io = loop_add_io(loop, tcp_fd, EPOLLIN, on_tcp, island);
    island->dns_io = loop_add_io(loop, dns_fd, EPOLLIN, on_dns, island);
}

void island_set_policy(struct island *island, const struct netpolicy *policy)
{
    const struct netpolicy *before = island->policy;

    island->policy = netpolicy_ref(policy);
    for (struct ask **at = &island->asks; *at;) { /* what was answered is for the policy of then */
        struct ask *ask = *at;

        if (ask->answer == NETPOLICY_ASK) {
            at = &ask->next;
            continue;
        }
        *at = ask->next;
        ask_free(ask);
        island->n_asks--;
    }
    conn_rejudge_all(island);
    if (island->intercept) {
        intercept_drop(island->intercept, island->owner.sandbox, policy);
    }
    netpolicy_unref(before);
}

/* ---- asks ---- */

/* Both NULL, or both the same. */
static bool same_text(const char *a, const char *b)
{
    return a && b ? str_eq(a, b) : a == b;
}

static struct ask *find_ask(struct island *island, const struct ask_what *what)
{
    for (struct ask *ask = island->asks; ask; ask = ask->next) {
        if (ask->what.port == what->port && same_text(ask->what.name, what->name) &&
            (what->name || ask->what.addr.s_addr == what->addr.s_addr) &&
            same_text(ask->what.method, what->method) && same_text(ask->what.path, what->path)) {
            return ask;
        }
    }
    return NULL;
}

/* The oldest that was answered makes room. */
static bool make_room(struct island *island)
{
    struct ask **oldest = NULL;

    if (island->n_asks < ISLAND_ASKS_MAX) {
        return true;
    }
    for (struct ask **at = &island->asks; *at; at = &(*at)->next) {
        if ((*at)->answer != NETPOLICY_ASK && (!oldest || (*at)->number < (*oldest)->number)) {
            oldest = at;
        }
    }
    if (oldest) {
        struct ask *ask = *oldest;

        *oldest = ask->next;
        ask_free(ask);
        island->n_asks--;
    }
    return oldest != NULL;
}

/* What a webhook gets; the token names the sandbox and the ask, too, so that it is all one needs to answer. */
static void tell(const struct island *island, const struct ask *ask)
{
    const struct intercept_owner *owner = &island->owner;
    cleanup_json json_t *notice = NULL;
    char addr[INET_ADDRSTRLEN];
    char token[INTERCEPT_ID_SIZE + ASK_TOKEN_SIZE + 24];

    if (!island->notifier) {
        return;
    }
    inet_ntop(AF_INET, &ask->what.addr, addr, sizeof(addr));
    snprintf(token, sizeof(token), "%s.%llu.%s", owner->sandbox, (unsigned long long)ask->number,
             ask->token);
    notice =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:s?, s:s, s:i, s:s?, s:s?, s:I, s:I, s:s}", "event",
                  "network.ask", "organisation", owner->organisation, "project", owner->project,
                  "sandbox", owner->sandbox, "ask", (json_int_t)ask->number, "host", ask->what.name,
                  "addr", addr, "port", (int)ask->what.port, "method", ask->what.method, "path",
                  ask->what.path, "since_ms", (json_int_t)ask->since_ms, "until_ms",
                  (json_int_t)(ask->since_ms + ASK_WAIT_MS), "token", token);
    explicit_bzero(token, sizeof(token));
    if (notice) { /* else the guest's path is not UTF-8: a person can still be asked by the list */
        notifier_add_take(island->notifier, owner, json_text(notice), ask->deadline_ns);
    }
}

static void make_token(struct ask *ask)
{
    unsigned char bytes[ASK_TOKEN_BYTES];

    random_bytes(bytes, sizeof(bytes));
    hex_encode(bytes, sizeof(bytes), ask->token);
    explicit_bzero(bytes, sizeof(bytes));
}

enum netpolicy_action island_ask(struct island *island, const struct ask_what *what)
{
    struct ask *ask = find_ask(island, what);

    if (ask) {
        return ask->answer;
    }
    if (!make_room(island)) {
        return NETPOLICY_DENY;
    }
    ask = xnew(struct ask);
    ask->number = ++island->last_ask;
    ask->what = *what;
    ask->what.name = what->name ? xstrdup(what->name) : NULL;
    ask->what.method = what->method ? xstrdup(what->method) : NULL;
    ask->what.path = what->path ? xstrdup(what->path) : NULL;
    ask->since_ms = clock_wall_ms();
    ask->deadline_ns = deadline_in_ms(ASK_WAIT_MS);
    ask->answer = NETPOLICY_ASK;
    make_token(ask);
    ask->next = island->asks;
    island->asks = ask;
    island->n_asks++;
    worker_needs_tick(island->worker);
    tell(island, ask);
    return NETPOLICY_ASK;
}

static void asks_changed(struct island *island)
{
    conn_asks_changed(island);
    hold_asks_changed(island);
}

/* In constant time. */
static bool has_token(const struct ask *ask, const char *token)
{
    return strlen(token) == ASK_TOKEN_SIZE - 1 &&
           CRYPTO_memcmp(token, ask->token, ASK_TOKEN_SIZE - 1) == 0;
}

int island_answer(struct island *island, const struct island_answer *answer)
{
    for (struct ask *ask = island->asks; ask; ask = ask->next) {
        if (ask->number == answer->number && ask->answer == NETPOLICY_ASK &&
            (!answer->token || has_token(ask, answer->token))) {
            ask->answer = answer->allow ? NETPOLICY_ALLOW : NETPOLICY_DENY;
            ask->deadline_ns =
                deadline_in_ms(MAX(answer->remember_s * 1000, (uint64_t)SILENCE_KEEP_MS));
            asks_changed(island);
            return 0;
        }
    }
    return -ENOENT;
}

static void tick_asks(struct island *island, uint64_t now_ns)
{
    bool changed = false;

    for (struct ask **at = &island->asks; *at;) {
        struct ask *ask = *at;

        if (ask->deadline_ns > now_ns) {
            at = &ask->next;
        } else if (ask->answer == NETPOLICY_ASK) {
            ask->answer = NETPOLICY_DENY;
            ask->deadline_ns = now_ns + SILENCE_KEEP_MS * NS_PER_MS;
            changed = true;
            at = &ask->next;
        } else {
            *at = ask->next;
            ask_free(ask);
            island->n_asks--;
        }
    }
    if (changed) {
        asks_changed(island);
    }
}

json_t *island_asks_json(const struct island *island)
{
    json_t *list = json_array();

    for (const struct ask *ask = island->asks; ask; ask = ask->next) {
        char addr[INET_ADDRSTRLEN];

        inet_ntop(AF_INET, &ask->what.addr, addr, sizeof(addr));
        if (ask->answer == NETPOLICY_ASK) {
            json_array_append_new(
                list, json_pack("{s:I, s:s?, s:s, s:i, s:s?, s:s?, s:I}", "id",
                                (json_int_t)ask->number, "host", ask->what.name, "addr", addr,
                                "port", (int)ask->what.port, "method", ask->what.method, "path",
                                ask->what.path, "since_ms", (json_int_t)ask->since_ms));
        }
    }
    return list;
}

bool island_tick(struct island *island, uint64_t now_ns)
{
    bool conns = conn_tick_all(island, now_ns);
    bool lookups = resolver_tick(island->resolver, now_ns);

    tick_asks(island, now_ns);
    return conns || lookups || island->asks;
}
