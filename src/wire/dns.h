/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DNS messages (RFC 1035, 6891) as the network gateway needs them: questions of a guest, answers to it, our own
 * questions to a resolver, its answers. Pure, no allocation. Only addresses (A) are ever asked for and
 * given.
 *
 * Names are text with dots. A name with a byte that is no letter, digit, '-' or '_' cannot be written so: it is
 * "not plain", and nobody is asked for it.
 */
#pragma once

#include "base/util.h"

#include <netinet/in.h>

#define DNS_NAME_MAX 253u
/* RFC 1035 4.2.1; what a question without EDNS can have answered. */
#define DNS_UDP_MIN 512u
/* What we say that we take, and the most that we send in one datagram: no fragments (DNS flag day 2020). */
#define DNS_UDP_MAX 1232u
#define DNS_ADDRS_MAX 16u
#define DNS_HOPS_MAX 16u

#define DNS_TYPE_A 1u
#define DNS_TYPE_CNAME 5u
#define DNS_TYPE_AAAA 28u
#define DNS_CLASS_IN 1u

enum dns_rcode {
    DNS_NOERROR = 0,
    DNS_FORMERR = 1,
    DNS_SERVFAIL = 2,
    DNS_NXDOMAIN = 3,
    DNS_NOTIMP = 4,
    DNS_REFUSED = 5,
};

struct dns_question {
    uint16_t id;
    bool recursion;
    bool plain; /* name says all of it */
    char name[DNS_NAME_MAX +
              1]; /* as asked, without a dot at the end; "" for the root, or if not plain */
    uint16_t type;
    uint16_t class;
    bool has_edns;
    size_t udp_max;     /* what an answer may be long */
    const uint8_t *raw; /* borrowed: name, type and class as they came */
    size_t raw_len;
};

/*
 * 0: *ret is a question. -EBADMSG: not even an answer can be made (too short, or itself an answer). Else a
 * positive dns_rcode to answer with, for which *ret has id and maybe the question (raw_len 0: none).
 */
MUST_CHECK int dns_parse_question(const uint8_t *data, size_t len, struct dns_question *ret);

struct dns_addrs {
    struct in_addr addr[DNS_ADDRS_MAX];
    size_t n;
    uint32_t ttl_s;
};

/* Writes the answer, no longer than the question allows, and at least its first part. Returns its length. */
size_t dns_print_answer(const struct dns_question *q, enum dns_rcode rcode,
                        const struct dns_addrs *addrs, uint8_t ret[static DNS_UDP_MAX]);

/* Our question for the addresses of a plain name. Returns its length. -EINVAL: not a name. */
#define DNS_ASK_MAX 300u
MUST_CHECK int dns_print_ask(uint16_t id, const char *name, uint8_t ret[static DNS_ASK_MAX],
                             size_t *ret_len);

struct dns_reply {
    enum dns_rcode rcode;
    bool truncated;
    struct dns_addrs addrs; /* of the name, or of what its CNAMEs lead to */
};

/*
 * The resolver's answer to dns_print_ask(id, name). -EAGAIN: it is an answer to something else, go on
 * waiting. -EBADMSG: it is one to this, and damaged. CNAME loops and chains longer than DNS_HOPS_MAX have
 * no address.
 */
MUST_CHECK int dns_parse_reply(const uint8_t *data, size_t len, uint16_t id, const char *name,
                               struct dns_reply *ret);
