/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WebSocket frames (RFC 6455, version 13, no extensions): header bytes to a struct and back,
 * masking, and what a close may say. Pure. Who may mask, fragments and messages are the business of
 * http/ws.c.
 */
#pragma once

#include "base/util.h"

#define WEBSOCKET_GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#define WEBSOCKET_MAX_HEADER 14u
#define WEBSOCKET_MAX_CONTROL 125u

enum websocket_opcode {
    WEBSOCKET_CONTINUATION = 0,
    WEBSOCKET_TEXT = 1,
    WEBSOCKET_BINARY = 2,
    WEBSOCKET_CLOSE = 8,
    WEBSOCKET_PING = 9,
    WEBSOCKET_PONG = 10,
};

struct websocket_frame {
    bool fin;
    enum websocket_opcode opcode;
    bool masked;
    unsigned char mask[4];
    uint64_t len;      /* of the payload, below 2^63 */
    size_t header_len; /* parse only */
};

/*
 * 0, -EAGAIN (more bytes), or -EBADMSG: reserved bits or opcodes, a long or fragmented control
 * frame, a length that is not in its shortest form or too large. Says so as early as it can be
 * known.
 */
MUST_CHECK int websocket_parse(const void *data, size_t len, struct websocket_frame *ret);
/* Returns the header's length. */
size_t websocket_print(const struct websocket_frame *f,
                       unsigned char ret[static WEBSOCKET_MAX_HEADER]);
/* In place; offset is the position of data in the payload. */
void websocket_mask(void *data, size_t len, const unsigned char mask[static 4], uint64_t offset);
/* May a close frame carry this code? */
bool websocket_close_code_valid(unsigned code);
/* Shortest form, no surrogates, nothing above U+10FFFF. */
bool websocket_utf8_valid(const void *data, size_t len);
