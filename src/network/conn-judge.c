/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection is, by its first bytes, and what the policy says to it. */
#include "network/conn-private.h"

#include "wire/http1.h"
#include "wire/tls-hello.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The longest method that we take for one; the rest of the bytes may be of any protocol. */
#define METHOD_MAX 16u
#define H2_PREFACE "PRI * HTTP/2.0\r\n"

/* A host as the guest wrote it: a name, or this very address. *ret_why when it is neither. */
static enum peek_result take_host(struct conn *c, const char *host, size_t len,
                                  const char **ret_why)
{
    char name[NETPOLICY_NAME_MAX + 1];
    struct in_addr addr;

    if (netpolicy_parse_addr(host, len, &addr) == 0) {
        if (addr.s_addr == c->dst.s_addr) {
            return PEEK_DONE;
        }
        *ret_why = "name_mismatch";
        return PEEK_BAD;
    }
    if (netpolicy_name(host, len, name) < 0) {
        *ret_why = "bad_name";
        return PEEK_BAD;
    }
    c->name = xstrdup(name);
    return PEEK_DONE;
}

static enum peek_result peek_tls(struct conn *c, const char **ret_why)
{
    struct tls_hello hello;
    int r = tls_hello_parse((const uint8_t *)c->peeked.data, c->peeked.len, &hello);

    if (r == -EAGAIN && c->peeked.len < CONN_PEEK_MAX) {
        return PEEK_MORE;
    }
    if (r < 0) {
        *ret_why = "bad_hello";
        return PEEK_BAD;
    }
    c->kind = CONN_TLS;
    return hello.name[0] ? take_host(c, hello.name, strlen(hello.name), ret_why) : PEEK_DONE;
}

/* The port in "host:port" must be the one that was connected to. */
static enum peek_result take_authority(struct conn *c, struct http1_view authority,
                                       const char **ret_why)
{
    const char *colon = memrchr(authority.p, ':', authority.len);
    size_t n = colon ? (size_t)(colon - authority.p) : authority.len;
    char digits[8] = "";
    uint64_t port = c->port;

    if (colon && authority.len - n - 1 < sizeof(digits)) {
        memcpy(digits, colon + 1, authority.len - n - 1);
    }
    if (colon && (str_to_u64(digits, UINT16_MAX, &port) < 0 || port != c->port)) {
        *ret_why = "name_mismatch";
        return PEEK_BAD;
    }
    if (n == 0) {
        return PEEK_DONE; /* HTTP/1.0 without a Host */
    }
    return take_host(c, authority.p, n, ret_why);
}

static enum peek_result peek_http(struct conn *c, const char **ret_why)
{
    struct http1_scan scan = {0};
    struct http1_head head;
    size_t len;
    int r = http1_scan(&scan, c->peeked.data, c->peeked.len, &len);

    if (r == -EAGAIN && c->peeked.len < CONN_PEEK_MAX) {
        return PEEK_MORE;
    }
    c->kind = CONN_HTTP;
    if (r < 0 || http1_parse_request(c->peeked.data, len, &head) != HTTP1_OK) {
        *ret_why = "bad_request";
        return PEEK_BAD;
    }
    return take_authority(c, head.authority, ret_why);
}

/* A method, a space, and not the preface of HTTP/2: yes, no, or more is needed. */
static enum peek_result looks_like_http(const struct buf *b)
{
    size_t n = strspn(buf_str(b), "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    size_t preface = MIN(b->len, sizeof(H2_PREFACE) - 1);

    if (n > METHOD_MAX || (n < b->len && (n < 3 || b->data[n] != ' '))) {
        return PEEK_BAD;
    }
    if (n == b->len) {
        return PEEK_MORE;
    }
    if (memcmp(b->data, H2_PREFACE, preface) == 0) {
        return preface == sizeof(H2_PREFACE) - 1 ? PEEK_BAD : PEEK_MORE;
    }
    return PEEK_DONE;
}

enum peek_result conn_peek(struct conn *c, bool silent, const char **ret_why)
{
    enum peek_result http;

    if (c->peeked.len == 0) {
        return silent ? PEEK_DONE : PEEK_MORE;
    }
    if (tls_hello_begins((const uint8_t *)c->peeked.data, c->peeked.len)) {
        return peek_tls(c, ret_why);
    }
    http = looks_like_http(&c->peeked);
    if (http == PEEK_DONE) {
        return peek_http(c, ret_why);
    }
    return http == PEEK_MORE && !silent ? PEEK_MORE : PEEK_DONE;
}

/* ---- judging ---- */

static struct netpolicy_query query_of(const struct conn *c, const char *name)
{
    return (struct netpolicy_query){.name = name, .addr = c->dst, .port = c->port};
}

static struct netpolicy_verdict judge_name(const struct conn *c, const char *name)
{
    const struct netpolicy_query query = query_of(c, name);

    return netpolicy_judge(c->island->policy, &query);
}

/* A protocol without names goes to an address that the guest was given for a name: is that one allowed? */
static bool try_mapped_name(void *arg, const char *name, uint64_t used_ns)
{
    struct conn *c = arg;
    struct netpolicy_verdict v = judge_name(c, name);

    (void)used_ns;
    if (v.action == NETPOLICY_DENY || v.by_addr ||
        !netpolicy_addr_allowed(c->island->policy, c->dst, c->port)) {
        return false;
    }
    c->verdict = v;
    c->name = xstrdup(name);
    c->by_map = true;
    return true;
}

/* Of several names with such a credential: one that the policy does not deny, then the one asked for last. */
struct ssh_choice {
    struct conn *c;
    bool allowed;
    uint64_t used_ns;
};

static bool try_ssh_name(void *arg, const char *name, uint64_t used_ns)
{
    struct ssh_choice *choice = arg;
    struct conn *c = choice->c;
    bool allowed = judge_name(c, name).action != NETPOLICY_DENY;

    if (!intercept_wants_ssh(c->island->intercept, &c->island->owner, name, c->port) ||
        (c->name && (choice->allowed != allowed ? choice->allowed : choice->used_ns >= used_ns))) {
        return false;
    }
    free(c->name);
    c->name = xstrdup(name);
    c->by_map = true;
    choice->allowed = allowed;
    choice->used_ns = used_ns;
    return false;
}

bool conn_is_ssh(struct conn *c)
{
    const struct island *island = c->island;
    struct ssh_choice choice = {.c = c};
    char address[INET_ADDRSTRLEN];

    if (!island->intercept ||
        !intercept_wants_ssh(island->intercept, &island->owner, NULL, c->port)) {
        return false;
    }
    inet_ntop(AF_INET, &c->dst, address, sizeof(address));
    resolver_names_of(island->resolver, c->dst, try_ssh_name, &choice);
    if (!c->name && !intercept_wants_ssh(island->intercept, &island->owner, address, c->port)) {
        return false;
    }
    c->kind = CONN_SSH;
    return true;
}

void conn_judge(struct conn *c)
{
    struct netpolicy_query query;

    c->verdict = judge_name(c, c->name);
    if (c->verdict.rule == NETPOLICY_BY_DEFAULT && c->kind == CONN_OPAQUE && !c->name) {
        resolver_names_of(c->island->resolver, c->dst, try_mapped_name, c);
    }
    query = query_of(c, c->name);
    c->observed = netpolicy_observed(c->island->policy, &query, &c->verdict);
}

/* One of this host's own addresses? The kernel, asked for a way there, would come from that same address. */
static bool is_this_host(struct in_addr addr)
{
    cleanup_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = addr};
    socklen_t len = sizeof(to);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
        getsockname(fd, (struct sockaddr *)&to, &len) < 0) {
        return false; /* no way there: connecting will say so */
    }
    return to.sin_addr.s_addr == addr.s_addr;
}

static bool may_go_to(const struct conn *c, struct in_addr addr, const char **ret_why)
{
    const struct netpolicy *policy = c->island->policy;

    if (netpolicy_addr_named(policy, addr, c->port)) {
        return true;
    }
    if (!netpolicy_addr_allowed(policy, addr, c->port)) {
        *ret_why = "private_address";
        return false;
    }
    if (is_this_host(addr)) {
        *ret_why = "own_address";
        return false;
    }
    return true;
}

bool conn_choose(struct conn *c, const struct dns_addrs *addrs, const char **ret_why)
{
    size_t first = 0;

    c->n_candidates = 0;
    *ret_why = "no_address";
    for (size_t i = 0; i < addrs->n; i++) {
        if (c->verdict.pinned && addrs->addr[i].s_addr != c->dst.s_addr) {
            continue; /* a rule of one level was for that address alone */
        }
        if (may_go_to(c, addrs->addr[i], ret_why)) {
            /* The one that the guest has chosen comes first, if it is one of them. */
            first = addrs->addr[i].s_addr == c->dst.s_addr ? c->n_candidates : first;
            c->candidates[c->n_candidates++] = addrs->addr[i];
        }
    }
    if (c->n_candidates == 0) {
        return false;
    }
    struct in_addr chosen = c->candidates[first];

    c->candidates[first] = c->candidates[0];
    c->candidates[0] = chosen;
    return true;
}
