/* SPDX-License-Identifier: Apache-2.0 */
#include "network/resolver.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRY_MS 2000
#define TRIES 3u
#define NEGATIVE_TTL_S 5u
#define MESSAGE_MAX 65535u
#define DNS_PORT 53

struct cached {
    char *name; /* owned */
    struct resolver_answer answer;
    uint64_t until_ns; /* fresh until then */
    uint64_t used_ns;
};

struct lookup {
    struct lookup *next; /* owned */
    struct resolver *resolver;
    char *name;                      /* owned */
    struct resolver_waiter *waiters; /* borrowed */
    int fd;                          /* owned */
    struct loop_io *io;
    uint16_t id;
    unsigned tries;
    bool tcp;
    bool tcp_sent;
    struct buf in; /* over TCP: length and message */
    uint64_t deadline_ns;
};

struct resolver {
    struct worker *worker;
    const struct resolver_servers *servers;
    struct cached *cache; /* owned */
    size_t n_cache;
    struct lookup *lookups; /* owned */
    size_t n_lookups;
    bool freed;
};

int resolver_parse_server(const char *text, struct sockaddr_in *ret)
{
    const char *colon = strchr(text, ':');
    char addr[INET_ADDRSTRLEN];
    uint64_t port = DNS_PORT;
    size_t n = colon ? (size_t)(colon - text) : strlen(text);

    if (n >= sizeof(addr) ||
        (colon && (str_to_u64(colon + 1, UINT16_MAX, &port) < 0 || port == 0))) {
        return -EINVAL;
    }
    memcpy(addr, text, n);
    addr[n] = '\0';
    *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return inet_pton(AF_INET, addr, &ret->sin_addr) == 1 ? 0 : -EINVAL;
}

int resolver_read_servers(const char *path, struct resolver_servers *ret, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(65536);
    char *rest;
    char *line;
    int r = fs_read_file(AT_FDCWD, path, &text);

    if (r < 0) {
        return err_wrap(e, r, "reading '%s'", path);
    }
    ret->n = 0;
    rest = text.data;
    while ((line = strsep(&rest, "\n")) && ret->n < RESOLVER_SERVERS_MAX) {
        char addr[64];

        if (sscanf(line, " nameserver %63s", addr) == 1 &&
            resolver_parse_server(addr, &ret->server[ret->n]) == 0) {
            ret->n++;
        }
    }
    return ret->n > 0 ? 0
                      : err_set(e, -ENOENT, "no_resolver",
                                "'%s' names no IPv4 name server: give one with --resolver", path);
}

struct resolver *resolver_new(struct worker *w, const struct resolver_servers *servers)
{
    struct resolver *r = xnew(struct resolver);

    r->worker = w;
    r->servers = servers;
    return r;
}

/* ---- the cache ---- */

static struct cached *cache_find(struct resolver *r, const char *name)
{
    for (size_t i = 0; i < r->n_cache; i++) {
        if (str_eq(r->cache[i].name, name)) {
            return &r->cache[i];
        }
    }
    return NULL;
}

static struct cached *cache_room(struct resolver *r)
{
    struct cached *oldest = r->cache;

    if (r->n_cache < RESOLVER_NAMES_MAX) {
        if ((r->n_cache & (r->n_cache - 1)) == 0) { /* full: 0, 1, 2, 4, ... */
            r->cache = xrealloc(r->cache, MAX(2 * r->n_cache, (size_t)1) * sizeof(*r->cache));
        }
        r->cache[r->n_cache] = (struct cached){0};
        return &r->cache[r->n_cache++];
    }
    for (size_t i = 1; i < r->n_cache; i++) {
        oldest = r->cache[i].used_ns < oldest->used_ns ? &r->cache[i] : oldest;
    }
    free(oldest->name);
    *oldest = (struct cached){0};
    return oldest;
}

static void cache_put(struct resolver *r, const char *name, const struct resolver_answer *answer)
{
    struct cached *c = cache_find(r, name);
    uint32_t ttl_s = answer->addrs.n > 0 ? answer->addrs.ttl_s : NEGATIVE_TTL_S;

    if (!c) {
        c = cache_room(r);
        c->name = xstrdup(name);
    }
    c->answer = *answer;
    c->used_ns = clock_now_ns();
    c->until_ns = c->used_ns + ttl_s * NS_PER_S;
}

bool resolver_names_of(struct resolver *r, struct in_addr addr,
                       bool (*fn)(void *arg, const char *name, uint64_t used_ns), void *arg)
{
    for (size_t i = 0; i < r->n_cache; i++) {
        const struct dns_addrs *addrs = &r->cache[i].answer.addrs;

        for (size_t k = 0; k < addrs->n; k++) {
            if (addrs->addr[k].s_addr == addr.s_addr &&
                fn(arg, r->cache[i].name, r->cache[i].used_ns)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- lookups ---- */

static void lookup_close(struct lookup *l)
{
    loop_io_free(l->io);
    l->io = NULL;
    l->fd = fd_close(l->fd);
    buf_reset(&l->in);
}

static void lookup_free(struct lookup *l)
{
    lookup_close(l);
    buf_done(&l->in);
    free(l->name);
    free(l);
}

static void lookup_finish(struct lookup *l, const struct resolver_answer *answer)
{
    struct resolver *r = l->resolver;
    struct lookup **at = &r->lookups;

    while (*at != l) {
        at = &(*at)->next;
    }
    *at = l->next;
    r->n_lookups--;
    while (l->waiters) {
        struct resolver_waiter *w = l->waiters;

        l->waiters = w->next;
        w->lookup = NULL;
        w->fn(w->arg, answer);
    }
    lookup_free(l);
}

static void lookup_try(struct lookup *l);

static void lookup_answered(struct lookup *l, const struct dns_reply *reply)
{
    struct resolver_answer answer = {.rcode = reply->rcode, .addrs = reply->addrs};

    if (reply->truncated && !l->tcp) {
        l->tcp = true;
        lookup_try(l);
        return;
    }
    if (reply->rcode != DNS_NOERROR && reply->rcode != DNS_NXDOMAIN) {
        lookup_try(l); /* this server cannot; another may */
        return;
    }
    answer.addrs.ttl_s = MIN(MAX(answer.addrs.ttl_s, RESOLVER_TTL_MIN_S), RESOLVER_TTL_MAX_S);
    cache_put(l->resolver, l->name, &answer);
    lookup_finish(l, &answer);
}

static void on_datagram(void *arg, uint32_t events)
{
    struct lookup *l = arg;
    uint8_t data[4096];
    struct dns_reply reply;
    ssize_t n = recv(l->fd, data, sizeof(data), MSG_DONTWAIT);
    int r;

    (void)events;
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR) {
            lookup_try(l); /* refused: nobody listens there */
        }
        return;
    }
    r = dns_parse_reply(data, (size_t)n, l->id, l->name, &reply);
    if (r == 0) {
        lookup_answered(l, &reply);
    } else if (r != -EAGAIN) {
        lookup_try(l);
    }
}

static int tcp_send(struct lookup *l)
{
    uint8_t ask[2 + DNS_ASK_MAX];
    size_t len;

    if (dns_print_ask(l->id, l->name, ask + 2, &len) < 0) {
        return -EINVAL;
    }
    ask[0] = (uint8_t)(len >> 8);
    ask[1] = (uint8_t)len;
    /* A new connection's buffer holds it whole. */
    if (send(l->fd, ask, len + 2, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len + 2) {
        return -EIO;
    }
    l->tcp_sent = true;
    loop_io_set(l->io, EPOLLIN);
    return 0;
}

/* 1: the message is whole; 0: not yet. */
static int tcp_receive(struct lookup *l)
{
    const uint8_t *head = (const uint8_t *)l->in.data;
    void *room;
    ssize_t n;

    if (buf_reserve(&l->in, 4096, &room) < 0) {
        return -E2BIG;
    }
    n = recv(l->fd, room, 4096, MSG_DONTWAIT);
    if (n <= 0) {
        return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -ECONNRESET;
    }
    buf_commit(&l->in, (size_t)n);
    head = (const uint8_t *)l->in.data;
    return l->in.len >= 2 && l->in.len >= 2u + ((size_t)head[0] << 8 | head[1]);
}

static void on_stream(void *arg, uint32_t events)
{
    struct lookup *l = arg;
    struct dns_reply reply;
    int r;

    (void)events;
    r = l->tcp_sent ? tcp_receive(l) : tcp_send(l);
    if (r == 0) {
        return;
    }
    if (r < 0 || dns_parse_reply((const uint8_t *)l->in.data + 2, l->in.len - 2, l->id, l->name,
                                 &reply) < 0) {
        lookup_try(l);
        return;
    }
    lookup_answered(l, &reply);
}

static int open_try(struct lookup *l)
{
    const struct resolver_servers *servers = l->resolver->servers;
    const struct sockaddr_in *server;
    uint8_t ask[DNS_ASK_MAX];
    size_t len;

    if (servers->n == 0) {
        return -ENETUNREACH;
    }
    server = &servers->server[l->tries % servers->n];
    random_bytes(&l->id, sizeof(l->id));
    l->fd = socket(AF_INET, (l->tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0) {
        return -errno;
    }
    if (connect(l->fd, (const struct sockaddr *)server, sizeof(*server)) < 0 &&
        errno != EINPROGRESS) {
        return -errno;
    }
    l->tcp_sent = false;
    if (l->tcp) {
        l->io = loop_add_io(worker_loop(l->resolver->worker), l->fd, EPOLLOUT, on_stream, l);
        return 0;
    }
    if (dns_print_ask(l->id, l->name, ask, &len) < 0 ||
        send(l->fd, ask, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len) {
        return -EIO;
    }
    l->io = loop_add_io(worker_loop(l->resolver->worker), l->fd, EPOLLIN, on_datagram, l);
    return 0;
}

/* The next try, or the end. */
static void lookup_try(struct lookup *l)
{
    const struct resolver_answer failed = {.rcode = DNS_SERVFAIL};

    while (l->tries < TRIES * (l->tcp ? 2 : 1)) {
        int r;

        lookup_close(l);
        r = open_try(l);
        l->tries++;
        if (r == 0) {
            l->deadline_ns = deadline_in_ms(TRY_MS);
            worker_needs_tick(l->resolver->worker);
            return;
        }
    }
    lookup_finish(l, &failed);
}

static struct lookup *find_lookup(struct resolver *r, const char *name)
{
    for (struct lookup *l = r->lookups; l; l = l->next) {
        if (str_eq(l->name, name)) {
            return l;
        }
    }
    return NULL;
}

static int start_lookup(struct resolver *r, const char *name, struct lookup **ret)
{
    struct lookup *l;

    if (r->n_lookups >= RESOLVER_LOOKUPS_MAX) {
        return -EBUSY;
    }
    l = xnew(struct lookup);
    l->resolver = r;
    l->name = xstrdup(name);
    l->fd = FD_NONE;
    l->in = BUF_INIT(MESSAGE_MAX + 2 + 4096);
    l->next = r->lookups;
    r->lookups = l;
    r->n_lookups++;
    *ret = l;
    return 0;
}

/* In the loop's next step, so that no waiter hears of a failure before resolver_ask() has returned. */
static void begin_tries(void *arg)
{
    struct resolver *r = arg;

    for (struct lookup *l = r->lookups; l;) {
        struct lookup *next = l->next;

        if (l->tries == 0) {
            lookup_try(l);
        }
        l = next;
    }
}

int resolver_ask(struct resolver *r, const char *name, struct resolver_waiter *w,
                 struct resolver_answer *ret)
{
    struct cached *c = cache_find(r, name);
    uint64_t now_ns = clock_now_ns();
    struct lookup *l;
    int err;

    ASSERT(!w->lookup && w->fn);
    if (c && c->until_ns > now_ns) {
        c->used_ns = now_ns;
        *ret = c->answer;
        ret->addrs.ttl_s = (uint32_t)((c->until_ns - now_ns) / NS_PER_S) + 1;
        return 0;
    }
    l = find_lookup(r, name);
    if (!l) {
        err = start_lookup(r, name, &l);
        if (err < 0) {
            return err;
        }
        loop_defer(worker_loop(r->worker), begin_tries, r);
    }
    w->lookup = l;
    w->next = l->waiters;
    l->waiters = w;
    return -EAGAIN;
}

void resolver_cancel(struct resolver_waiter *w)
{
    struct resolver_waiter **at;

    if (!w->lookup) {
        return;
    }
    for (at = &w->lookup->waiters; *at != w; at = &(*at)->next) {
    }
    *at = w->next;
    w->lookup = NULL;
}

bool resolver_tick(struct resolver *r, uint64_t now_ns)
{
    for (struct lookup *l = r->lookups; l;) {
        struct lookup *next = l->next;

        if (l->tries > 0 && l->deadline_ns <= now_ns) {
            lookup_try(l);
        }
        l = next;
    }
    return r->lookups != NULL;
}

/* After what was deferred with it. */
static void free_resolver(void *arg)
{
    free(arg);
}

void resolver_free(struct resolver *r)
{
    while (r->lookups) {
        struct lookup *l = r->lookups;

        r->lookups = l->next;
        for (struct resolver_waiter *w = l->waiters; w; w = w->next) {
            w->lookup = NULL;
        }
        lookup_free(l);
    }
    for (size_t i = 0; i < r->n_cache; i++) {
        free(r->cache[i].name);
    }
    free(r->cache);
    r->cache = NULL;
    r->n_cache = 0;
    loop_defer(worker_loop(r->worker), free_resolver, r);
}
