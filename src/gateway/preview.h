/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Requests to a server inside a sandbox: https://PORT-ID.DOMAIN, or the two header fields (address.h). No API key: who
 * knows the address may come, unless the sandbox's traffic was made private; then E2b-Traffic-Access-Token must be the
 * token of kind TRAFFIC (tokens.h), before anything is woken.
 *
 *     browser ──HTTP/1.1──▶ gateway ──tunnel──▶ sandbox manager ──channel──▶ daemon ──TCP──▶ 127.0.0.1:PORT
 *
 * The gateway parses the request and prints it anew, so what the server sees is one well-formed request: hop-by-hop
 * fields are gone, Host is the browser's (or the sandbox's maskRequestHost), X-Forwarded-For, -Proto and
 * -Host are ours. API keys and our tokens never pass. A request for another protocol (WebSocket) is passed as such, and
 * after the server's 101 its bytes go both ways unread.
 *
 * When there is nothing to pass on we answer ourselves, in HTML to who asks for HTML, else in the JSON that E2B's clients
 * know: 502 for a sandbox that is not there or does not run, 502 for a port on which nothing listens.
 */
#pragma once

#include "gateway/address.h"
#include "gateway/gateway.h"

/* A server that is just starting gets so long. */
#define PREVIEW_WAIT_MS 1000
/* To reach the sandbox's port, without the time a sleeping sandbox takes to wake. */
#define PREVIEW_OPEN_MS 15000

MUST_CHECK int preview_handle(struct http_request *req, const struct address *to, struct err *e);

/* ---- pure parts ---- */

struct preview_policy {
    bool private;        /* a token is needed */
    char mask_host[128]; /* what the server is told as Host, ${PORT} filled in; "": the browser's */
};
/* From what the sandbox's record remembers of other surfaces: network.allowPublicTraffic, network.maskRequestHost. Damaged: private. */
void preview_policy_read(const char *surface, uint16_t port, struct preview_policy *ret);

struct preview_trouble {
    int status;
    const char *message; /* of the JSON, as E2B words it */
    const char *title;   /* of the page */
    const char *text;    /* of the page; a sentence or two */
    bool port;           /* the JSON names the port */
    bool retry;          /* the page loads itself again after a while */
};
/* The page resp. the JSON. -E2BIG when the buf is full. */
MUST_CHECK int preview_page(const struct preview_trouble *t, const struct address *to,
                            struct buf *out);
MUST_CHECK int preview_json(const struct preview_trouble *t, const struct address *to,
                            struct buf *out);
/* Does an Accept field (NULL: none) prefer HTML? */
bool preview_wants_page(const char *accept);
