/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WebSocket messages (RFC 6455) over a server's request or a client's call. Frames are parsed by
 * wire/websocket.c; here are fragmentation, ping/pong, close and blocking with deadlines.
 *
 * Used by one thread at a time, typically in a poll loop over ws_pollfd and something else:
 *
 *     ws_read_try() until -EAGAIN, then poll.
 *
 * Pings are answered inside the reads. When the peer closes, the read answers the close and returns
 * a message of type WS_CLOSE, after that -EPIPE. Protocol errors send a close with the right code
 * and return -EBADMSG; a message over max_message closes with 1009 and returns -E2BIG; text that is
 * not UTF-8 closes with 1007. The end of the connection without a close is -ECONNRESET.
 */
#pragma once

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "http/client.h"
#include "http/server.h"

struct ws;

enum ws_type {
    WS_TEXT = 1,
    WS_BINARY = 2,
    WS_CLOSE = 8,
};

enum ws_close_code {
    WS_CLOSE_NORMAL = 1000,
    WS_CLOSE_GOING_AWAY = 1001,
    WS_CLOSE_PROTOCOL = 1002,
    WS_CLOSE_UNSUPPORTED = 1003,
    WS_CLOSE_BAD_DATA = 1007,
    WS_CLOSE_POLICY = 1008,
    WS_CLOSE_TOO_BIG = 1009,
    WS_CLOSE_INTERNAL = 1011,
};

struct ws_message {
    enum ws_type type;
    const char *data; /* borrowed until the next read; NUL-terminated, not counted */
    size_t len;
    unsigned close_code; /* WS_CLOSE: 1005 when the peer gave none */
};

struct ws_opts {
    size_t max_message;                 /* 1 MiB */
    const char *protocol;               /* subprotocol to choose resp. offer; NULL: none */
    uint64_t deadline_ns;               /* ws_connect only */
    const struct http_headers *headers; /* ws_connect only */
};

/* Is this request a WebSocket upgrade? */
bool ws_wanted(const struct http_request *req);
/*
 * Answers 101. -EINVAL "websocket_expected" (426) before anything was sent when the request is
 * none. The connection ends with the ws, which must be freed before the handler returns. opts may
 * be NULL.
 */
MUST_CHECK int ws_accept(struct http_request *req, const struct ws_opts *opts, struct ws **ret,
                         struct err *e);
/* An answer other than 101 is an error as in http_call_check. */
MUST_CHECK int ws_connect(struct http_client *c, const char *target, const struct ws_opts *opts,
                          struct ws **ret, struct err *e);
/* Sends no close by itself. */
void ws_free(struct ws *ws);
DEFINE_CLEANUP(struct ws *, ws_free);

/*
 * A whole message; waits until deadline_ns (0: for ever), then -ETIMEDOUT, and may be called again.
 */
MUST_CHECK int ws_read(struct ws *ws, struct ws_message *ret, uint64_t deadline_ns, struct err *e);
/* -EAGAIN when no whole message is there yet. */
MUST_CHECK int ws_read_try(struct ws *ws, struct ws_message *ret, struct err *e);
/*
 * Blocks while the peer does not read, until deadline_ns (0: for ever). After a failure the ws is
 * unusable.
 */
MUST_CHECK int ws_write(struct ws *ws, enum ws_type type, const void *data, size_t len,
                        uint64_t deadline_ns, struct err *e);
MUST_CHECK int ws_ping(struct ws *ws, uint64_t deadline_ns, struct err *e);
/*
 * Sends a close (once) and waits for the peer's until the deadline; what else arrives is dropped.
 */
MUST_CHECK int ws_close(struct ws *ws, unsigned code, const char *reason, uint64_t deadline_ns,
                        struct err *e);
struct pollfd ws_pollfd(const struct ws *ws);
