/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message, taken for a guest's question and for a resolver's answer: what is a question can be answered within the
 * size it allows, and the answer is one to our own question for that name.
 */
#include "wire/dns.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void answer(const struct dns_question *q)
{
    struct dns_addrs addrs = {.n = DNS_ADDRS_MAX, .ttl_s = 5};
    uint8_t out[DNS_UDP_MAX];
    struct dns_reply reply;
    size_t len = dns_print_answer(q, DNS_NOERROR, &addrs, out);

    ASSERT(len <= q->udp_max && len <= sizeof(out));
    if (q->plain && q->name[0] && q->type == DNS_TYPE_A && q->class == DNS_CLASS_IN) {
        ASSERT(dns_parse_reply(out, len, q->id, q->name, &reply) == 0 && reply.addrs.n > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dns_question q;
    struct dns_reply reply;
    int r = dns_parse_question(data, size, &q);

    if (r == 0) {
        ASSERT(strlen(q.name) <= DNS_NAME_MAX && q.raw_len > 0);
        answer(&q);
    }
    if (size >= 2 && dns_parse_reply(data, size, (uint16_t)(data[0] << 8 | data[1]),
                                     "www.example.com", &reply) == 0) {
        ASSERT(reply.addrs.n <= DNS_ADDRS_MAX);
    }
    return 0;
}
