/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Netlink requests of fixed content: several messages are written one after the other into a buffer, sent as
 * one, and each of them is acknowledged. The content is ours alone, so running out of room is a mistake of ours.
 * Source: linux/netlink.h, linux/netfilter/nfnetlink.h.
 */
#pragma once

#include "base/util.h"

#include <linux/netlink.h>

#define NETLINK_BYTES 8192u

struct netlink {
    int fd; /* owned */
    char data[NETLINK_BYTES] __attribute__((aligned(8)));
    size_t len;
    size_t message; /* where the current one begins */
    uint32_t n;     /* messages that will be acknowledged */
};

/* protocol is NETLINK_ROUTE or NETLINK_NETFILTER. */
MUST_CHECK int netlink_open(struct netlink *nl, int protocol);
void netlink_done(struct netlink *nl);

/* Begins a message whose fixed part is body; flags besides NLM_F_REQUEST. */
struct netlink_message {
    uint16_t type;
    uint16_t flags;
    const void *body;
    size_t len;
};
void netlink_begin(struct netlink *nl, const struct netlink_message *m);
void netlink_put(struct netlink *nl, uint16_t type, const void *data, size_t len);
void netlink_put_str(struct netlink *nl, uint16_t type, const char *text);
void netlink_put_u32(struct netlink *nl, uint16_t type, uint32_t value);
void netlink_put_be32(struct netlink *nl, uint16_t type, uint32_t value);
/* Attributes until the end are inside. Returns the place to end. */
MUST_CHECK size_t netlink_nest(struct netlink *nl, uint16_t type);
void netlink_nest_end(struct netlink *nl, size_t nest);

/* Sends all and waits for what the kernel says to each; the first error. */
MUST_CHECK int netlink_commit(struct netlink *nl);
