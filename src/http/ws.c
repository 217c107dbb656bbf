/* SPDX-License-Identifier: Apache-2.0 */
#include "http/ws.h"

#include "base/base64.h"
#include "base/id.h"
#include "http/client-internal.h"
#include "http/server-internal.h"
#include "wire/websocket.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WS_MAX_MESSAGE (1024u * 1024)
#define WS_READ_AHEAD (64u * 1024)
#define WS_NO_STATUS 1005u
#define WS_KEY_SIZE 16u
#define WS_ACCEPT_SIZE 32u
/* A control frame waiting for room, and the rest of one that found some. */
#define WS_PENDING_MAX 512u

struct ws {
    struct http_io *io;     /* borrowed: the request's or the call's */
    struct http_call *call; /* owned; NULL on the server's side */
    bool client;            /* we mask, the peer does not */
    bool close_sent;
    bool closed; /* nothing more is read */
    bool broken; /* nothing more is sent */
    struct buf message;
    bool in_message; /* a first fragment was read */
    enum ws_type message_type;
    bool in_frame;
    struct websocket_frame frame;
    uint64_t frame_read; /* bytes of its payload */
    unsigned close_code;
    struct buf pending;
};

static struct ws *ws_new(struct http_io *io, const struct ws_opts *opts)
{
    struct ws *ws = xnew(struct ws);

    ws->io = io;
    ws->message = BUF_INIT(opts && opts->max_message ? opts->max_message : WS_MAX_MESSAGE);
    ws->pending = BUF_INIT(WS_PENDING_MAX);
    return ws;
}

void ws_free(struct ws *ws)
{
    if (!ws) {
        return;
    }
    buf_done(&ws->message);
    buf_done(&ws->pending);
    http_call_free(ws->call);
    free(ws);
}

/* ---- handshake ---- */

static void accept_key(const char *key, char ret[static WS_ACCEPT_SIZE])
{
    cleanup_free char *text = xasprintf("%s%s", key, WEBSOCKET_GUID);
    cleanup_buf struct buf b = BUF_INIT(WS_ACCEPT_SIZE - 1);
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    int r;

    r = EVP_Digest(text, strlen(text), digest, &len, EVP_sha1(), NULL);
    ASSERT(r == 1 && len == 20);
    r = base64_encode(digest, len, &b);
    ASSERT(r == 0);
    memcpy(ret, b.data, b.len + 1);
}

bool ws_wanted(const struct http_request *req)
{
    return str_eq(req->method, "GET") && req->minor == 1 &&
           http_headers_has_token(&req->headers, "Connection", "upgrade") &&
           http_headers_has_token(&req->headers, "Upgrade", "websocket");
}

static bool key_valid(const char *key)
{
    cleanup_buf struct buf b = BUF_INIT(64);

    return key && strlen(key) == 24 && base64_decode(key, strlen(key), &b) == 0 &&
           b.len == WS_KEY_SIZE;
}

int ws_accept(struct http_request *req, const struct ws_opts *opts, struct ws **ret, struct err *e)
{
    const char *key = http_request_header(req, "Sec-WebSocket-Key");
    const char *version = http_request_header(req, "Sec-WebSocket-Version");
    char accept[WS_ACCEPT_SIZE];
    struct io_wait wait = request_wait(req);
    int r;

    if (!ws_wanted(req) || !version || !str_eq(version, "13")) {
        http_reply_header(req, "Upgrade", "websocket");
        http_reply_header(req, "Sec-WebSocket-Version", "13");
        return err_set(e, -EINVAL, "websocket_expected",
                       "this path speaks WebSocket (version 13) only");
    }
    if (!key_valid(key) || !req->in.done) {
        return err_set(e, -EINVAL, "bad_websocket_key",
                       "Sec-WebSocket-Key must be 16 bytes in base64");
    }
    accept_key(key, accept);
    http_reply_header(req, "Upgrade", "websocket");
    http_reply_header(req, "Connection", "Upgrade");
    http_reply_header(req, "Sec-WebSocket-Accept", accept);
    if (opts && opts->protocol &&
        http_headers_has_token(&req->headers, "Sec-WebSocket-Protocol", opts->protocol)) {
        http_reply_header(req, "Sec-WebSocket-Protocol", opts->protocol);
    }
    req->upgraded = true;
    r = reply_prepare(req, 101, /* content_type */ NULL, /* length */ -1, e);
    if (r == 0) {
        r = out_write(&req->out, &req->conn->io, (struct out_data){.end = true}, &wait);
        if (r < 0) {
            return err_wrap(e, r, "accepting the WebSocket");
        }
        *ret = ws_new(&req->conn->io, opts);
    }
    return r;
}

static int check_upgrade(struct http_call *call, const char *key, const struct ws_opts *opts,
                         struct err *e)
{
    const char *accept = http_call_header(call, "Sec-WebSocket-Accept");
    const char *protocol = http_call_header(call, "Sec-WebSocket-Protocol");
    char want[WS_ACCEPT_SIZE];
    int r = http_call_check(call, e);

    if (r < 0) {
        return r;
    }
    accept_key(key, want);
    if (call->status != 101 || !accept || !str_eq(accept, want) ||
        !http_headers_has_token(&call->headers, "Upgrade", "websocket") ||
        http_call_header(call, "Sec-WebSocket-Extensions") ||
        (protocol && (!opts || !opts->protocol || !str_eq(protocol, opts->protocol)))) {
        return err_set(e, -EBADMSG, "bad_answer", "the server did not open a WebSocket");
    }
    return 0;
}

int ws_connect(struct http_client *c, const char *target, const struct ws_opts *opts,
               struct ws **ret, struct err *e)
{
    CLEANUP(http_headers_done) struct http_headers headers = HTTP_HEADERS_INIT;
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_buf struct buf key = BUF_INIT(64);
    unsigned char nonce[WS_KEY_SIZE];
    struct http_call_opts call_opts = {
        .target = target,
        .headers = &headers,
        .deadline_ns = opts ? opts->deadline_ns : 0,
    };
    int r;

    random_bytes(nonce, sizeof(nonce));
    r = base64_encode(nonce, sizeof(nonce), &key);
    ASSERT(r == 0);
    for (size_t i = 0; opts && opts->headers && i < opts->headers->n; i++) {
        http_headers_add(&headers, opts->headers->v[i].name, opts->headers->v[i].value);
    }
    http_headers_add(&headers, "Connection", "Upgrade");
    http_headers_add(&headers, "Upgrade", "websocket");
    http_headers_add(&headers, "Sec-WebSocket-Version", "13");
    http_headers_add(&headers, "Sec-WebSocket-Key", buf_str(&key));
    if (opts && opts->protocol) {
        http_headers_add(&headers, "Sec-WebSocket-Protocol", opts->protocol);
    }
    r = http_call_new(c, &call_opts, &call, e);
    if (r == 0) {
        r = http_call_head(call, e);
    }
    if (r == 0) {
        r = check_upgrade(call, buf_str(&key), opts, e);
    }
    if (r == 0) {
        *ret = ws_new(&call->conn->io, opts);
        (*ret)->client = true;
        (*ret)->call = TAKE_PTR(call);
    }
    return r;
}

/* ---- sending ---- */

static uint64_t deadline_or_never(uint64_t deadline_ns)
{
    return deadline_ns ? deadline_ns : DEADLINE_NEVER;
}

static int flush_pending(struct ws *ws)
{
    while (ws->pending.len > 0) {
        struct iovec iov = {ws->pending.data, ws->pending.len};
        ssize_t n = io_send(ws->io, &iov, 1);

        if (n < 0) {
            return (int)n;
        }
        buf_consume(&ws->pending, (size_t)n);
    }
    return 0;
}

/* The frame's head; a client's payload is masked into *ret_masked, which the caller frees. */
static size_t make_frame(const struct ws *ws, enum websocket_opcode opcode, const void *data,
                         size_t len, unsigned char header[static WEBSOCKET_MAX_HEADER],
                         char **ret_masked)
{
    struct websocket_frame f = {.fin = true, .opcode = opcode, .masked = ws->client, .len = len};

    if (ws->client) {
        random_bytes(f.mask, sizeof(f.mask));
        *ret_masked = len ? xmemdup(data, len) : NULL;
        websocket_mask(*ret_masked, len, f.mask, 0);
    }
    return websocket_print(&f, header);
}

static int send_frame(struct ws *ws, enum websocket_opcode opcode, struct out_data d,
                      uint64_t deadline_ns, struct err *e)
{
    struct io_wait wait = {.deadline_ns = deadline_or_never(deadline_ns), .watch = {.fd = FD_NONE}};
    unsigned char header[WEBSOCKET_MAX_HEADER];
    cleanup_free char *masked = NULL;
    struct iovec iov[3] = {{.iov_base = ws->pending.data, .iov_len = ws->pending.len}};
    int r;

    if (ws->broken || ws->close_sent) {
        return err_set(e, -EPIPE, "websocket_closed", "the WebSocket is closed");
    }
    iov[1] = (struct iovec){header, make_frame(ws, opcode, d.data, d.len, header, &masked)};
    if (masked) {
        d.data = masked;
    }
    memcpy(&iov[2].iov_base, &d.data, sizeof(d.data)); /* iovec is not const, sending is */
    iov[2].iov_len = d.len;
    r = io_send_all(ws->io, iov, d.len ? 3 : 2, &wait);
    buf_reset(&ws->pending);
    if (r < 0) {
        ws->broken = true; /* half a frame may be out */
        return err_wrap(e, r, "sending to the WebSocket");
    }
    return 0;
}

int ws_write(struct ws *ws, enum ws_type type, const void *data, size_t len, uint64_t deadline_ns,
             struct err *e)
{
    ASSERT(type == WS_TEXT || type == WS_BINARY);
    return send_frame(ws, (enum websocket_opcode)type, (struct out_data){.data = data, .len = len},
                      deadline_ns, e);
}

int ws_ping(struct ws *ws, uint64_t deadline_ns, struct err *e)
{
    return send_frame(ws, WEBSOCKET_PING, (struct out_data){0}, deadline_ns, e);
}

/* A control frame that must not make a read wait. */
static void queue_control(struct ws *ws, enum websocket_opcode opcode, const void *data, size_t len)
{
    unsigned char header[WEBSOCKET_MAX_HEADER];
    cleanup_free char *masked = NULL;
    size_t header_len;
    int r;

    if (ws->broken || ws->close_sent) {
        return;
    }
    header_len = make_frame(ws, opcode, data, len, header, &masked);
    r = buf_add(&ws->pending, header, header_len);
    if (r == 0) {
        r = buf_add(&ws->pending, masked ? masked : data, len);
    }
    ASSERT(r == 0); /* two control frames fit, and no more are ever queued: one pong, one close */
    ws->close_sent = opcode == WEBSOCKET_CLOSE;
    r = flush_pending(ws);
    ws->broken = r < 0 && r != -EAGAIN;
}

static size_t make_close(unsigned code, const char *reason, char ret[static WEBSOCKET_MAX_CONTROL])
{
    size_t len = reason ? MIN(strlen(reason), (size_t)WEBSOCKET_MAX_CONTROL - 2) : 0;

    ret[0] = (char)(code >> 8);
    ret[1] = (char)code;
    memcpy(ret + 2, reason ? reason : "", len);
    return len + 2;
}

static int fail(struct ws *ws, unsigned code, int r, const char *text, struct err *e)
{
    char payload[WEBSOCKET_MAX_CONTROL];

    queue_control(ws, WEBSOCKET_CLOSE, payload, make_close(code, text, payload));
    ws->closed = true;
    return err_set(e, r, "websocket_protocol", "%s", text);
}

/* ---- reading ---- */

/* 1: a message (close) is complete, 0: go on. */
static int take_close(struct ws *ws, const char *data, size_t len, struct err *e)
{
    unsigned code = WS_NO_STATUS;

    if (len > 0) {
        code = len == 1 ? 0 : (unsigned)((unsigned char)data[0] << 8 | (unsigned char)data[1]);
        if (!websocket_close_code_valid(code)) {
            return fail(ws, WS_CLOSE_PROTOCOL, -EBADMSG, "malformed close", e);
        }
        if (!websocket_utf8_valid(data + 2, len - 2)) {
            return fail(ws, WS_CLOSE_BAD_DATA, -EBADMSG, "the close reason is not UTF-8", e);
        }
    }
    buf_reset(&ws->message);
    if (len > 2 && buf_add(&ws->message, data + 2, len - 2) < 0) {
        buf_reset(&ws->message); /* a reason longer than any message allowed here is not kept */
    }
    queue_control(ws, WEBSOCKET_CLOSE, data, len > 0 ? 2 : 0);
    ws->message_type = WS_CLOSE;
    ws->close_code = code;
    ws->closed = true;
    return 1;
}

static int take_control(struct ws *ws, struct err *e)
{
    size_t len = (size_t)ws->frame.len;
    char data[WEBSOCKET_MAX_CONTROL];

    memcpy(data, io_data(ws->io), len);
    io_consume(ws->io, len);
    ws->in_frame = false;
    if (ws->frame.masked) {
        websocket_mask(data, len, ws->frame.mask, 0);
    }
    if (ws->frame.opcode == WEBSOCKET_CLOSE) {
        return take_close(ws, data, len, e);
    }
    if (ws->frame.opcode == WEBSOCKET_PING && ws->pending.len == 0) {
        queue_control(ws, WEBSOCKET_PONG, data,
                      len); /* while one is on its way, others need no answer */
    }
    return 0;
}

static int begin_frame(struct ws *ws, struct err *e)
{
    const struct websocket_frame *f = &ws->frame;

    if (f->masked == ws->client) {
        return fail(ws, WS_CLOSE_PROTOCOL, -EBADMSG,
                    "clients must mask their frames, servers must not", e);
    }
    if (f->opcode >= WEBSOCKET_CLOSE) {
        return 0;
    }
    if ((f->opcode == WEBSOCKET_CONTINUATION) != ws->in_message) {
        return fail(ws, WS_CLOSE_PROTOCOL, -EBADMSG, "fragments out of order", e);
    }
    if (!ws->in_message) {
        buf_reset(&ws->message);
        ws->in_message = true;
        ws->message_type = (enum ws_type)f->opcode;
    }
    if (f->len > ws->message.max - ws->message.len) {
        return fail(ws, WS_CLOSE_TOO_BIG, -E2BIG, "the message is too large", e);
    }
    return 0;
}

static int end_frame(struct ws *ws, struct err *e)
{
    ws->in_frame = false;
    if (!ws->frame.fin) {
        return 0;
    }
    ws->in_message = false;
    if (ws->message_type == WS_TEXT &&
        !websocket_utf8_valid(buf_str(&ws->message), ws->message.len)) {
        return fail(ws, WS_CLOSE_BAD_DATA, -EBADMSG, "a text message is not UTF-8", e);
    }
    return 1;
}

/* Payload that is here. */
static int take_payload(struct ws *ws, struct err *e)
{
    size_t n = (size_t)MIN(ws->frame.len - ws->frame_read, (uint64_t)ws->io->in_len);
    char *at;
    int r = buf_add(&ws->message, io_data(ws->io), n);

    ASSERT(r == 0); /* begin_frame has looked */
    at = ws->message.data + ws->message.len - n;
    if (ws->frame.masked) {
        websocket_mask(at, n, ws->frame.mask, ws->frame_read);
    }
    io_consume(ws->io, n);
    ws->frame_read += n;
    return ws->frame_read == ws->frame.len ? end_frame(ws, e) : -EAGAIN;
}

/* One step with what is buffered: 1 a message, 0 go on, -EAGAIN more bytes are needed. */
static int step(struct ws *ws, struct err *e)
{
    int r;

    if (!ws->in_frame) {
        r = websocket_parse(ws->io->in_len ? io_data(ws->io) : "", ws->io->in_len, &ws->frame);
        if (r == -EAGAIN) {
            return r;
        }
        if (r < 0) {
            return fail(ws, WS_CLOSE_PROTOCOL, -EBADMSG, "malformed frame", e);
        }
        io_consume(ws->io, ws->frame.header_len);
        ws->in_frame = true;
        ws->frame_read = 0;
        r = begin_frame(ws, e);
        if (r < 0) {
            return r;
        }
    }
    if (ws->frame.opcode >= WEBSOCKET_CLOSE) {
        return ws->io->in_len < ws->frame.len ? -EAGAIN : take_control(ws, e);
    }
    return take_payload(ws, e);
}

static void give(struct ws *ws, struct ws_message *ret)
{
    *ret = (struct ws_message){
        .type = ws->message_type,
        .data = buf_str(&ws->message),
        .len = ws->message.len,
        .close_code = ws->message_type == WS_CLOSE ? ws->close_code : 0,
    };
}

int ws_read_try(struct ws *ws, struct ws_message *ret, struct err *e)
{
    if (flush_pending(ws) == 0 && ws->closed) {
        return err_set(e, -EPIPE, "websocket_closed", "the WebSocket is closed");
    }
    while (!ws->closed) {
        ssize_t n;
        int r = step(ws, e);

        if (r == 1) {
            give(ws, ret);
            return 0;
        }
        if (r < 0 && r != -EAGAIN) {
            return r;
        }
        if (r == 0) {
            continue;
        }
        n = io_fill(ws->io, WS_READ_AHEAD);
        if (n == -EAGAIN) {
            return -EAGAIN;
        }
        if (n <= 0) {
            ws->closed = ws->broken = true;
            return err_wrap(e, n == 0 ? -ECONNRESET : (int)n, "reading from the WebSocket");
        }
    }
    return err_set(e, -EPIPE, "websocket_closed", "the WebSocket is closed");
}

struct pollfd ws_pollfd(const struct ws *ws)
{
    return io_pollfd(ws->io, (short)(POLLIN | (ws->pending.len > 0 && !ws->broken ? POLLOUT : 0)));
}

int ws_read(struct ws *ws, struct ws_message *ret, uint64_t deadline_ns, struct err *e)
{
    struct io_wait wait = {.deadline_ns = deadline_or_never(deadline_ns), .watch = {.fd = FD_NONE}};

    for (;;) {
        int r = ws_read_try(ws, ret, e);

        if (r != -EAGAIN) {
            return r;
        }
        r = io_wait(ws->io, ws_pollfd(ws).events, &wait);
        if (r < 0) {
            return err_wrap(e, r, "waiting for the WebSocket");
        }
    }
}

int ws_close(struct ws *ws, unsigned code, const char *reason, uint64_t deadline_ns, struct err *e)
{
    char payload[WEBSOCKET_MAX_CONTROL];
    struct ws_message ignored;
    int r = 0;

    if (!ws->close_sent) {
        struct out_data d = {.data = payload, .len = make_close(code, reason, payload)};

        r = send_frame(ws, WEBSOCKET_CLOSE, d, deadline_ns, e);
        ws->close_sent = true;
    }
    while (r == 0 && !ws->closed) {
        r = ws_read(ws, &ignored, deadline_ns, e);
    }
    return r;
}
