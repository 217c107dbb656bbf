/* SPDX-License-Identifier: Apache-2.0 */
/* The packet filter of an island (net.h) as netlink messages: see net-rules.c. */
#pragma once

#include "jail/netlink.h"

#define NET_RULES_TCP_PORT 15001

/* Onto a netlink_open(NETLINK_NETFILTER): one transaction. */
void net_rules_put(struct netlink *nl);
