/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw bytes both ways over HTTP: a POST whose body is what we send and whose answer is what we hear, both for as long
 * as they like and at once. Unlike a changed protocol (101) it keeps an end and a break apart on every hop, since
 * bodies do, and each hop may be HTTP/1.1 or HTTP/2.
 *
 * The client's end is an http_io like any other (http_tunnel_open), so that HTTP, WebSocket or plain bytes
 * can be spoken through it: http_call_opts.over, http_pump. Ending our direction ends the body, closing
 * gives the exchange up: its server sees that we are gone.
 */
#pragma once

#include "http/client.h"
#include "http/io.h"
#include "http/server.h"

struct http_tunnel_opts {
    const char *target;
    const struct http_headers *headers; /* borrowed for the call; may be NULL */
    uint64_t deadline_ns;               /* for the answer's head; 0: none */
    const struct pollfd *watch;         /* ends the wait for the head; may be NULL */
};

/* When the other end is there: 0. Answers of 4xx and 5xx are errors as in http_call_check. *ret is the caller's (io_done). */
MUST_CHECK int http_tunnel_open(struct http_client *c, const struct http_tunnel_opts *opts,
                                struct http_io *ret, struct err *e);

/*
 * Moves bytes between two connections, each direction through one bounded buffer, until the server has ended and
 * all it said has been sent (0). The client's end is passed on and the server's answer goes on; a server that reads
 * no more may still speak. -ECANCELED: the client has gone. -ECONNRESET: the server broke off.
 */
MUST_CHECK int http_pump(struct http_io *client, struct http_io *server, struct err *e);

/*
 * A request that asked for another protocol, and the call that was answered 101: passes the answer on, then the
 * bytes of both. How it ends is how the connection ends: closed in order, or reset.
 */
MUST_CHECK int http_tunnel_upgrade(struct http_request *req, struct http_call *call, struct err *e);
