/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "wire/dns.h"

#include <arpa/inet.h>

/* id 0x1234, recursion desired, one question: www.example.com A IN. */
#define HEAD "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
#define NAME \
    "\x03www\x07" \
    "example\x03" \
    "com\x00"
#define ASKED_A "\x00\x01\x00\x01"
#define BYTES(text_) (const uint8_t *)(text_), sizeof(text_) - 1

static void questions_are_read(void)
{
    struct dns_question q;

    CHECK_INT(dns_parse_question(BYTES(HEAD NAME ASKED_A), &q), 0);
    CHECK(q.id == 0x1234 && q.recursion && q.plain && q.type == DNS_TYPE_A && !q.has_edns);
    CHECK_STR(q.name, "www.example.com");
    CHECK_INT(q.udp_max, DNS_UDP_MIN);
    CHECK_INT(
        dns_parse_question(BYTES("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01" NAME ASKED_A
                                 "\x00\x00\x29\xff\xff\x00\x00\x00\x00\x00\x00"),
                           &q),
        0);
    CHECK(q.has_edns && q.udp_max == DNS_UDP_MAX);
}

static void odd_questions_are_answered_as_such(void)
{
    struct dns_question q;
    uint8_t out[DNS_UDP_MAX];
    static const struct {
        const char *what;
        const uint8_t *data;
        size_t len;
        int result;
    } cases[] = {
        {"empty", BYTES(""), -EBADMSG},
        {"short", BYTES("\x12\x34\x01"), -EBADMSG},
        {"an answer", BYTES("\x12\x34\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00" NAME ASKED_A),
         -EBADMSG},
        {"another opcode", BYTES("\x12\x34\x29\x00\x00\x01\x00\x00\x00\x00\x00\x00" NAME ASKED_A),
         DNS_NOTIMP},
        {"two questions",
         BYTES("\x12\x34\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00" NAME ASKED_A NAME ASKED_A),
         DNS_FORMERR},
        {"no question", BYTES(HEAD), DNS_FORMERR},
        {"bytes behind", BYTES(HEAD NAME ASKED_A "x"), DNS_FORMERR},
        {"a pointer in the question", BYTES(HEAD "\xc0\x0c" ASKED_A), DNS_FORMERR},
        {"a label of 64",
         BYTES(HEAD "\x40"
                    "aaaa" ASKED_A),
         DNS_FORMERR},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int r = dns_parse_question(cases[i].data, cases[i].len, &q);

        if (r != cases[i].result) {
            TEST_FAIL("%s: %d, not %d", cases[i].what, r, cases[i].result);
        }
        if (r > 0) {
            CHECK(dns_print_answer(&q, (enum dns_rcode)r, NULL, out) >= 12);
        }
    }
    CHECK_INT(dns_parse_question(BYTES(HEAD "\x03"
                                            "a\x00"
                                            "b\x00" ASKED_A),
                                 &q),
              0);
    CHECK(!q.plain && q.name[0] == '\0');
    CHECK_INT(dns_parse_question(BYTES(HEAD "\x03"
                                            "a.b\x00" ASKED_A),
                                 &q),
              0);
    CHECK(!q.plain); /* a dot inside a label would read like two */
}

static void long_names_end(void)
{
    uint8_t data[600] = HEAD;
    struct dns_question q;
    size_t at = 12;

    for (int i = 0; i < 5; i++) { /* 5 * 64 is more than a name may have */
        data[at++] = 63;
        memset(data + at, 'a', 63);
        at += 63;
    }
    data[at++] = 0;
    memcpy(data + at, ASKED_A, 4);
    CHECK_INT(dns_parse_question(data, at + 4, &q), DNS_FORMERR);
}

static void answers_fit_what_was_asked(void)
{
    struct dns_addrs addrs = {.ttl_s = 60, .n = DNS_ADDRS_MAX};
    uint8_t out[DNS_UDP_MAX];
    struct dns_reply reply;
    struct dns_question q;
    size_t len;

    for (uint32_t i = 0; i < DNS_ADDRS_MAX; i++) {
        addrs.addr[i].s_addr = htonl(0x01010100 + i);
    }
    REQUIRE(dns_parse_question(BYTES(HEAD NAME ASKED_A), &q) == 0);
    len = dns_print_answer(&q, DNS_NOERROR, &addrs, out);
    CHECK(len <= DNS_UDP_MIN);
    CHECK_INT(dns_parse_reply(out, len, 0x1234, "WWW.example.com", &reply), 0);
    CHECK_INT(reply.addrs.n, DNS_ADDRS_MAX);
    CHECK_INT(reply.addrs.addr[3].s_addr, htonl(0x01010103));
    CHECK_INT(reply.addrs.ttl_s, 60);
    CHECK_INT(dns_parse_reply(out, len, 0x1235, "www.example.com", &reply), -EAGAIN);
    CHECK_INT(dns_parse_reply(out, len, 0x1234, "xww.example.com", &reply), -EAGAIN);
    CHECK_INT(dns_parse_reply(out, len - 1, 0x1234, "www.example.com", &reply), -EBADMSG);
}

static void our_questions_are_questions(void)
{
    uint8_t out[DNS_ASK_MAX];
    struct dns_question q;
    size_t len;

    REQUIRE(dns_print_ask(7, "www.example.com", out, &len) == 0);
    CHECK_INT(dns_parse_question(out, len, &q), 0);
    CHECK(q.id == 7 && q.type == DNS_TYPE_A && q.has_edns && q.recursion);
    CHECK_STR(q.name, "www.example.com");
    CHECK_INT(dns_print_ask(7, "", out, &len), -EINVAL);
    CHECK_INT(dns_print_ask(7, "a..b", out, &len), -EINVAL);
}

#define ANSWER(n_) "\x12\x34\x81\x80\x00\x01\x00" n_ "\x00\x00\x00\x00" NAME ASKED_A
#define CNAME(from_, to_, len_) from_ "\x00\x05\x00\x01\x00\x00\x00\x3c\x00" len_ to_
#define A(from_, addr_) from_ "\x00\x01\x00\x01\x00\x00\x00\x1e\x00\x04" addr_

static void aliases_are_followed(void)
{
    struct dns_reply reply;

    /* In any order; what belongs to other names is left out. */
    CHECK_INT(dns_parse_reply(
                  BYTES(ANSWER("\x03") A("\x01"
                                         "b\x00",
                                         "\x01\x01\x01\x01") CNAME("\xc0\x0c",
                                                                   "\x01"
                                                                   "b\x00",
                                                                   "\x03") A("\x01"
                                                                             "x\x00",
                                                                             "\x06\x06\x06\x06")),
                  0x1234, "www.example.com", &reply),
              0);
    CHECK(reply.addrs.n == 1 && reply.addrs.addr[0].s_addr == htonl(0x01010101));
    CHECK_INT(reply.addrs.ttl_s, 30);
    /* Round and round. */
    CHECK_INT(dns_parse_reply(BYTES(ANSWER("\x02") CNAME("\xc0\x0c",
                                                         "\x01"
                                                         "b\x00",
                                                         "\x03") CNAME("\x01"
                                                                       "b\x00",
                                                                       "\xc0\x0c", "\x02")),
                              0x1234, "www.example.com", &reply),
              0);
    CHECK_INT(reply.addrs.n, 0);
    /* A pointer to itself, and forward. */
    CHECK_INT(dns_parse_reply(BYTES(ANSWER("\x01") A("\xc0\x21", "\x01\x01\x01\x01")), 0x1234,
                              "www.example.com", &reply),
              -EBADMSG);
    CHECK_INT(dns_parse_reply(BYTES(ANSWER("\x01") A("\xff\xff", "\x01\x01\x01\x01")), 0x1234,
                              "www.example.com", &reply),
              -EBADMSG);
}

TEST_MAIN(T(questions_are_read), T(odd_questions_are_answered_as_such), T(long_names_end),
          T(answers_fit_what_was_asked), T(our_questions_are_questions), T(aliases_are_followed))
