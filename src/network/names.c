/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's questions for names. A name that the policy lets nothing reach does not exist there (NXDOMAIN, so
 * that programs go on at once), and nobody outside hears of it. Addresses that a connection could not go to are left
 * out of answers. A: answered; AAAA: none, since there is no IPv6; other types: refused.
 */
#include "base/clock.h"
#include "network/island.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

/* Datagrams per event, so that a flood does not keep the worker from everything else. */
#define RECEIVE_MAX 32
#define QUESTION_RAW_MAX 300u

struct guest_question {
    struct guest_question *next; /* owned */
    struct island *island;
    struct dns_question q; /* raw points into raw below */
    uint8_t raw[QUESTION_RAW_MAX];
    char name[NETPOLICY_NAME_MAX + 1];
    struct resolver_waiter waiter;
    names_reply_fn fn;
    void *arg;                       /* borrowed */
    struct guest_question **pending; /* borrowed: where who waits keeps us; may be NULL */
};

static void question_free(struct guest_question *g)
{
    struct guest_question **at = &g->island->questions;

    while (*at != g) {
        at = &(*at)->next;
    }
    *at = g->next;
    g->island->n_questions--;
    resolver_cancel(&g->waiter);
    if (g->pending) {
        *g->pending = NULL;
    }
    free(g);
}

void names_cancel(struct guest_question *question)
{
    if (question) {
        question_free(question);
    }
}

void names_forget_all(struct island *island)
{
    while (island->questions) {
        struct guest_question *g = island->questions;

        g->fn(g->arg, NULL, 0);
        question_free(g);
    }
}

static void note_refused(struct island *island, const char *name, const char *why)
{
    struct egress_entry entry = {.kind = EGRESS_NAME,
                                 .action = NETPOLICY_DENY,
                                 .rule = NETPOLICY_BY_DEFAULT,
                                 .level = netpolicy_unresolved_by(island->policy, name),
                                 .name = xstrdup(name)};

    snprintf(entry.why, sizeof(entry.why), "%s", why ? why : "");
    egress_add_take(&island->log, &entry);
}

/* Those that some connection could go to. */
static void leave_out(const struct netpolicy *policy, struct dns_addrs *addrs)
{
    size_t n = 0;

    for (size_t i = 0; i < addrs->n; i++) {
        if (netpolicy_addr_allowed(policy, addrs->addr[i], NETPOLICY_ANY_PORT)) {
            addrs->addr[n++] = addrs->addr[i];
        }
    }
    addrs->n = n;
}

static void reply(struct guest_question *g, enum dns_rcode rcode, const struct dns_addrs *addrs)
{
    uint8_t data[DNS_UDP_MAX];

    g->fn(g->arg, data, dns_print_answer(&g->q, rcode, addrs, data));
}

static void answer(struct guest_question *g, const struct resolver_answer *got)
{
    struct dns_addrs addrs = got->addrs;

    leave_out(g->island->policy, &addrs);
    if (addrs.n == 0 && got->addrs.n > 0) {
        note_refused(g->island, g->name, "private_address");
    }
    reply(g, got->rcode, &addrs);
}

static void on_resolved(void *arg, const struct resolver_answer *got)
{
    struct guest_question *g = arg;

    answer(g, got);
    question_free(g);
}

/* DNS_NOERROR: it is to be looked up. Else what to answer; with *ret_empty, NOERROR and nothing. */
static enum dns_rcode judge(struct guest_question *g, bool *ret_empty)
{
    *ret_empty = false;
    if (g->q.class != DNS_CLASS_IN) {
        return DNS_REFUSED;
    }
    if (!g->q.plain || netpolicy_name(g->q.name, strlen(g->q.name), g->name) < 0) {
        return DNS_NXDOMAIN;
    }
    if (!netpolicy_resolves(g->island->policy, g->name)) {
        note_refused(g->island, g->name, /* why */ NULL);
        return DNS_NXDOMAIN;
    }
    *ret_empty = g->q.type == DNS_TYPE_AAAA;
    return g->q.type == DNS_TYPE_A || *ret_empty ? DNS_NOERROR : DNS_REFUSED;
}

static void question_begin(struct guest_question *g)
{
    struct resolver_answer got;
    bool empty;
    enum dns_rcode rcode = judge(g, &empty);
    int r;

    if (rcode != DNS_NOERROR || empty) {
        reply(g, rcode, NULL);
        question_free(g);
        return;
    }
    r = resolver_ask(g->island->resolver, g->name, &g->waiter, &got);
    if (r == -EAGAIN) {
        return;
    }
    if (r == 0) {
        answer(g, &got);
    } else {
        reply(g, DNS_SERVFAIL, NULL);
    }
    question_free(g);
}

static struct guest_question *question_new(struct island *island, const struct dns_question *q,
                                           names_reply_fn fn, void *arg)
{
    struct guest_question *g;

    if (island->n_questions >= ISLAND_QUESTIONS_MAX) {
        return NULL;
    }
    g = xnew(struct guest_question);
    ASSERT(q->raw_len <= sizeof(g->raw));
    g->island = island;
    g->q = *q;
    memcpy(g->raw, q->raw, q->raw_len);
    g->q.raw = g->raw;
    g->fn = fn;
    g->arg = arg;
    g->waiter = (struct resolver_waiter){.fn = on_resolved, .arg = g};
    g->next = island->questions;
    island->questions = g;
    island->n_questions++;
    return g;
}

bool names_ask(struct island *island, const uint8_t *data, size_t len, names_reply_fn fn, void *arg,
               struct guest_question **ret_pending)
{
    uint8_t refusal[DNS_UDP_MAX];
    struct guest_question *g;
    struct dns_question q;
    int r = dns_parse_question(data, len, &q);

    if (r < 0) {
        return false;
    }
    if (r > 0) {
        fn(arg, refusal, dns_print_answer(&q, (enum dns_rcode)r, NULL, refusal));
        return true;
    }
    g = question_new(island, &q, fn, arg);
    if (!g) {
        return false;
    }
    if (ret_pending) {
        g->pending = ret_pending;
        *ret_pending = g;
    }
    question_begin(g);
    return true;
}

/* ---- over UDP ---- */

struct datagram {
    struct island *island;
    struct sockaddr_in from;
    struct in_addr to;
};

/* From the address that the guest has asked, whoever's it is. */
static void send_datagram(const struct datagram *d, const uint8_t *data, size_t len)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(struct in_pktinfo))];
    } control = {0};
    struct sockaddr_in to = d->from;
    struct iovec iov = {(void *)(uintptr_t)data, len};
    struct msghdr msg = {.msg_name = &to,
                         .msg_namelen = sizeof(to),
                         .msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.room,
                         .msg_controllen = sizeof(control.room)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
    const struct in_pktinfo info = {.ipi_spec_dst = d->to};

    header->cmsg_level = SOL_IP;
    header->cmsg_type = IP_PKTINFO;
    header->cmsg_len = CMSG_LEN(sizeof(info));
    memcpy(CMSG_DATA(header), &info, sizeof(info));
    IGNORE_RESULT(sendmsg(d->island->dns_fd, &msg, MSG_DONTWAIT)); /* the guest asks again */
}

static void reply_datagram(void *arg, const uint8_t *data, size_t len)
{
    struct datagram *d = arg;

    if (len > 0) {
        send_datagram(d, data, len);
    }
    free(d);
}

/* -EAGAIN: there is none now. Without a place where it was sent to, it is not for us. */
static ssize_t receive_datagram(struct island *island, uint8_t *data, size_t size,
                                struct datagram *ret)
{
    union {
        struct cmsghdr align;
        char room[256];
    } control;
    struct iovec iov = {data, size};
    struct msghdr msg = {.msg_name = &ret->from,
                         .msg_namelen = sizeof(ret->from),
                         .msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.room,
                         .msg_controllen = sizeof(control.room)};
    ssize_t n = recvmsg(island->dns_fd, &msg, MSG_DONTWAIT | MSG_TRUNC);

    if (n < 0) {
        return -errno;
    }
    ret->island = island;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h)) {
        if (h->cmsg_level == SOL_IP && h->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;

            memcpy(&info, CMSG_DATA(h), sizeof(info));
            ret->to = info.ipi_addr;
            return n <= (ssize_t)size ? n : 0;
        }
    }
    return 0;
}

void names_receive(struct island *island)
{
    for (int i = 0; i < RECEIVE_MAX; i++) {
        uint8_t data[DNS_UDP_MAX];
        struct datagram d;
        struct datagram *copy;
        ssize_t n = receive_datagram(island, data, sizeof(data), &d);

        if (n < 0) {
            return;
        }
        copy = xmemdup(&d, sizeof(d));
        if (!names_ask(island, data, (size_t)n, reply_datagram, copy, /* pending */ NULL)) {
            free(copy);
        }
    }
}
