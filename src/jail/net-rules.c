/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packet filter of an island, fixed: one table of three chains as the kernel's nf_tables takes it. Read:
 *
 *     table inet space {
 *         chain in {                                   # all that comes from outside of the namespace
 *             type filter hook prerouting priority -150; policy drop;
 *             iiftype ether ether saddr != GUEST_MAC drop
 *             meta nfproto != ipv4 drop
 *             ip saddr != 10.0.0.2 drop
 *             meta l4proto tcp tproxy ip to :15001 accept
 *             meta l4proto tcp reject with tcp reset    # nobody listens
 *             meta l4proto udp th dport 53 accept
 *             meta l4proto udp reject with icmp admin-prohibited
 *         }
 *         chain forward { type filter hook forward priority 0; policy drop; }
 *         chain out {                                   # answers, and nothing that we begin
 *             type filter hook output priority 0; policy drop;
 *             meta nfproto != ipv4 drop
 *             meta l4proto tcp accept
 *             meta l4proto udp th sport 53 accept
 *             meta l4proto icmp icmp type destination-unreachable accept
 *         }
 *     }
 *
 * Source: linux/netfilter/nf_tables.h; the expressions are those that nft(8) 1.0.6 makes of the text above.
 */
#include "jail/net-rules.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <string.h>

#define TABLE "space"
/* Registers of 16 bytes, as old as nf_tables. 0 is the verdict. */
#define REG NFT_REG_1

enum expr_kind {
    EXPR_META,    /* a = key */
    EXPR_PAYLOAD, /* a = base, b = offset, n = bytes */
    EXPR_IS,      /* the register equals the n bytes */
    EXPR_IS_NOT,
    EXPR_VALUE, /* the register becomes the n bytes */
    EXPR_TPROXY,
    EXPR_VERDICT, /* a = NF_ACCEPT or NF_DROP */
    EXPR_REJECT,  /* a = type, b = code */
};

struct expr {
    enum expr_kind kind;
    uint32_t a;
    uint32_t b;
    const char *bytes; /* static */
    size_t n;
};

#define BYTES(text_) text_, sizeof(text_) - 1
#define META(key_) \
    { \
        .kind = EXPR_META, .a = key_ \
    }
#define PAYLOAD(base_, offset_, n_) \
    { \
        .kind = EXPR_PAYLOAD, .a = base_, .b = offset_, .n = n_ \
    }
#define IS(text_) \
    { \
        .kind = EXPR_IS, .bytes = (text_), .n = sizeof(text_) - 1 \
    }
#define IS_NOT(text_) \
    { \
        .kind = EXPR_IS_NOT, .bytes = (text_), .n = sizeof(text_) - 1 \
    }
#define VALUE(text_) \
    { \
        .kind = EXPR_VALUE, .bytes = (text_), .n = sizeof(text_) - 1 \
    }
#define TPROXY \
    { \
        .kind = EXPR_TPROXY \
    }
#define ACCEPT \
    { \
        .kind = EXPR_VERDICT, .a = NF_ACCEPT \
    }
#define DROP \
    { \
        .kind = EXPR_VERDICT, .a = NF_DROP \
    }
#define REJECT(type_, code_) \
    { \
        .kind = EXPR_REJECT, .a = type_, .b = code_ \
    }

/* In network byte order, which is what packets have. */
#define GUEST_MAC_BYTES "\x02\x53\x50\x00\x00\x02" /* QEMU_GUEST_MAC */
#define GUEST_ADDR_BYTES "\x0a\x00\x00\x02"
#define PORT_DNS_BYTES "\x00\x35"
#define PORT_TCP_BYTES "\x3a\x99" /* NET_RULES_TCP_PORT */
/* In host byte order (x86), which is what meta gives. */
#define ETHER_BYTES "\x01\x00" /* ARPHRD_ETHER */
#define IPV4_BYTES "\x02"      /* NFPROTO_IPV4 */
#define TCP_BYTES "\x06"
#define UDP_BYTES "\x11"
#define ICMP_BYTES "\x01"
#define UNREACHABLE_BYTES "\x03" /* ICMP_DEST_UNREACH */

#define RULE_EXPRS_MAX 6
static const struct {
    const char *chain;
    struct expr exprs[RULE_EXPRS_MAX];
    size_t n;
} rules[] = {
    {"in",
     {META(NFT_META_IIFTYPE), IS(ETHER_BYTES), PAYLOAD(NFT_PAYLOAD_LL_HEADER, 6, 6),
      IS_NOT(GUEST_MAC_BYTES), DROP},
     5},
    {"in", {META(NFT_META_NFPROTO), IS_NOT(IPV4_BYTES), DROP}, 3},
    {"in", {PAYLOAD(NFT_PAYLOAD_NETWORK_HEADER, 12, 4), IS_NOT(GUEST_ADDR_BYTES), DROP}, 3},
    {"in", {META(NFT_META_L4PROTO), IS(TCP_BYTES), VALUE(PORT_TCP_BYTES), TPROXY, ACCEPT}, 5},
    {"in", {META(NFT_META_L4PROTO), IS(TCP_BYTES), REJECT(NFT_REJECT_TCP_RST, 0)}, 3},
    {"in",
     {META(NFT_META_L4PROTO), IS(UDP_BYTES), PAYLOAD(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2),
      IS(PORT_DNS_BYTES), ACCEPT},
     5},
    {"in",
     {META(NFT_META_L4PROTO), IS(UDP_BYTES), REJECT(NFT_REJECT_ICMP_UNREACH, ICMP_PKT_FILTERED)},
     3},
    {"out", {META(NFT_META_NFPROTO), IS_NOT(IPV4_BYTES), DROP}, 3},
    {"out", {META(NFT_META_L4PROTO), IS(TCP_BYTES), ACCEPT}, 3},
    {"out",
     {META(NFT_META_L4PROTO), IS(UDP_BYTES), PAYLOAD(NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2),
      IS(PORT_DNS_BYTES), ACCEPT},
     5},
    {"out",
     {META(NFT_META_L4PROTO), IS(ICMP_BYTES), PAYLOAD(NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1),
      IS(UNREACHABLE_BYTES), ACCEPT},
     5},
};

static const struct {
    const char *name;
    uint32_t hook;
    int32_t priority;
} chains[] = {
    {"in", NF_INET_PRE_ROUTING, -150},
    {"forward", NF_INET_FORWARD, 0},
    {"out", NF_INET_LOCAL_OUT, 0},
};

static void begin(struct netlink *nl, uint16_t message, uint16_t flags)
{
    const struct nfgenmsg body = {.nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0};

    netlink_begin(nl,
                  &(struct netlink_message){.type = (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | message),
                                            .flags = (uint16_t)(flags | NLM_F_ACK),
                                            .body = &body,
                                            .len = sizeof(body)});
}

/* The bracket around a transaction is not acknowledged. */
static void bracket(struct netlink *nl, uint16_t message)
{
    const struct nfgenmsg body = {
        .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES)};

    netlink_begin(nl,
                  &(struct netlink_message){.type = message, .body = &body, .len = sizeof(body)});
}

static void put_chain(struct netlink *nl, size_t i)
{
    size_t hook;

    begin(nl, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
    netlink_put_str(nl, NFTA_CHAIN_TABLE, TABLE);
    netlink_put_str(nl, NFTA_CHAIN_NAME, chains[i].name);
    hook = netlink_nest(nl, NFTA_CHAIN_HOOK);
    netlink_put_be32(nl, NFTA_HOOK_HOOKNUM, chains[i].hook);
    netlink_put_be32(nl, NFTA_HOOK_PRIORITY, (uint32_t)chains[i].priority);
    netlink_nest_end(nl, hook);
    netlink_put_be32(nl, NFTA_CHAIN_POLICY, NF_DROP);
    netlink_put_str(nl, NFTA_CHAIN_TYPE, "filter");
}

static void put_value(struct netlink *nl, uint16_t type, const struct expr *x)
{
    size_t nest = netlink_nest(nl, type);

    netlink_put(nl, NFTA_DATA_VALUE, x->bytes, x->n);
    netlink_nest_end(nl, nest);
}

static void put_verdict(struct netlink *nl, uint32_t verdict)
{
    size_t data = netlink_nest(nl, NFTA_IMMEDIATE_DATA);
    size_t nest = netlink_nest(nl, NFTA_DATA_VERDICT);

    netlink_put_be32(nl, NFTA_VERDICT_CODE, verdict);
    netlink_nest_end(nl, nest);
    netlink_nest_end(nl, data);
}

static void put_expr_data(struct netlink *nl, const struct expr *x)
{
    switch (x->kind) {
    case EXPR_META:
        netlink_put_be32(nl, NFTA_META_DREG, REG);
        netlink_put_be32(nl, NFTA_META_KEY, x->a);
        break;
    case EXPR_PAYLOAD:
        netlink_put_be32(nl, NFTA_PAYLOAD_DREG, REG);
        netlink_put_be32(nl, NFTA_PAYLOAD_BASE, x->a);
        netlink_put_be32(nl, NFTA_PAYLOAD_OFFSET, x->b);
        netlink_put_be32(nl, NFTA_PAYLOAD_LEN, (uint32_t)x->n);
        break;
    case EXPR_IS:
    case EXPR_IS_NOT:
        netlink_put_be32(nl, NFTA_CMP_SREG, REG);
        netlink_put_be32(nl, NFTA_CMP_OP, x->kind == EXPR_IS ? NFT_CMP_EQ : NFT_CMP_NEQ);
        put_value(nl, NFTA_CMP_DATA, x);
        break;
    case EXPR_VALUE:
        netlink_put_be32(nl, NFTA_IMMEDIATE_DREG, REG);
        put_value(nl, NFTA_IMMEDIATE_DATA, x);
        break;
    case EXPR_TPROXY:
        netlink_put_be32(nl, NFTA_TPROXY_FAMILY, NFPROTO_IPV4);
        netlink_put_be32(nl, NFTA_TPROXY_REG_PORT, REG);
        break;
    case EXPR_VERDICT:
        netlink_put_be32(nl, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
        put_verdict(nl, x->a);
        break;
    case EXPR_REJECT: {
        uint8_t code = (uint8_t)x->b;

        netlink_put_be32(nl, NFTA_REJECT_TYPE, x->a);
        netlink_put(nl, NFTA_REJECT_ICMP_CODE, &code, sizeof(code));
        break;
    }
    }
}

static void put_expr(struct netlink *nl, const struct expr *x)
{
    static const char *const names[] = {
        [EXPR_META] = "meta",         [EXPR_PAYLOAD] = "payload", [EXPR_IS] = "cmp",
        [EXPR_IS_NOT] = "cmp",        [EXPR_VALUE] = "immediate", [EXPR_TPROXY] = "tproxy",
        [EXPR_VERDICT] = "immediate", [EXPR_REJECT] = "reject",
    };
    size_t element = netlink_nest(nl, NFTA_LIST_ELEM);
    size_t data;

    netlink_put_str(nl, NFTA_EXPR_NAME, names[x->kind]);
    data = netlink_nest(nl, NFTA_EXPR_DATA);
    put_expr_data(nl, x);
    netlink_nest_end(nl, data);
    netlink_nest_end(nl, element);
}

static void put_rule(struct netlink *nl, size_t i)
{
    size_t list;

    begin(nl, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
    netlink_put_str(nl, NFTA_RULE_TABLE, TABLE);
    netlink_put_str(nl, NFTA_RULE_CHAIN, rules[i].chain);
    list = netlink_nest(nl, NFTA_RULE_EXPRESSIONS);
    for (size_t k = 0; k < rules[i].n; k++) {
        put_expr(nl, &rules[i].exprs[k]);
    }
    netlink_nest_end(nl, list);
}

void net_rules_put(struct netlink *nl)
{
    bracket(nl, NFNL_MSG_BATCH_BEGIN);
    begin(nl, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    netlink_put_str(nl, NFTA_TABLE_NAME, TABLE);
    for (size_t i = 0; i < ARRAY_SIZE(chains); i++) {
        put_chain(nl, i);
    }
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        put_rule(nl, i);
    }
    bracket(nl, NFNL_MSG_BATCH_END);
}
