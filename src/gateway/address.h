/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which sandbox, and which port in it, a request addresses. Pure: text in, an address or none out. It is asked
 * before any route, for a request that addresses a sandbox is for what is inside, whatever its path.
 *
 * Two ways, as the E2B clients use them:
 *
 *     Host: 8080-ID.DOMAIN[:port]              DOMAIN is what the gateway was given (--domain)
 *     E2b-Sandbox-Id: ID, E2b-Sandbox-Port: N  both, at any host that is not of the first form
 *
 * A host of the first form wins, because a browser's page cannot choose it. Ids in old clients may end in
 * "-CLIENT", which is cut off. What the id names, and whose it is, is not asked here: an id that no sandbox has is an address
 * like any other, so that its answer cannot be told from that of a sandbox that has gone.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"

#define ADDRESS_LABEL_MAX 63 /* a label of a DNS name, RFC 1035 2.3.4 */
#define ADDRESS_ID_SIZE (ADDRESS_LABEL_MAX + 1)
#define ADDRESS_ENVD_PORT 49983 /* the port at which E2B's clients expect its daemon */

struct address {
    char id[ADDRESS_ID_SIZE]; /* [a-z0-9], not empty; not necessarily an id of ours */
    uint16_t port;            /* never 0 */
};

/* What is looked at; all borrowed, each may be NULL. */
struct address_source {
    const char *host;   /* the field Host, with or without port */
    const char *id;     /* E2b-Sandbox-Id */
    const char *port;   /* E2b-Sandbox-Port */
    const char *domain; /* the gateway's; NULL: hosts are not looked at */
};

/* 1: *ret is where to. 0: to no sandbox. -EINVAL: one of the two fields is missing or malformed. */
MUST_CHECK int address_find(const struct address_source *src, struct address *ret, struct err *e);
