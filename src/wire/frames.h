/* SPDX-License-Identifier: Apache-2.0 */
/*
 * application/vnd.space.frames: a command's output as one stream in which standard output and standard
 * error stay apart and bytes stay bytes.
 *
 *     u8 type | 3 bytes zero | u32 length, big-endian | length bytes
 *
 * 'S' comes first when the command is started by the same request, 'E' or 'X' is always last: a stream that
 * ends without one of them has been cut.
 */
#pragma once

#include "base/buf.h"
#include "base/util.h"

#define FRAMES_CONTENT_TYPE "application/vnd.space.frames"
#define FRAME_HEAD_LEN 8
/* A command object may hold an argv of this order; output comes in far smaller pieces. */
#define FRAME_PAYLOAD_MAX (512u * 1024)

enum frame_type {
    FRAME_START = 'S',     /* JSON: the command object */
    FRAME_STDOUT = 'O',    /* bytes */
    FRAME_STDERR = 'R',    /* bytes */
    FRAME_PTY = 'P',       /* bytes */
    FRAME_GAP = 'G',       /* JSON: {"from":N,"to":M}: output bytes that are no longer kept */
    FRAME_END = 'E',       /* JSON: the command object at its end */
    FRAME_KEEPALIVE = 'K', /* empty */
    FRAME_ERROR = 'X',     /* JSON: {"error":{...}}: the stream broke on the way */
};

struct frame {
    enum frame_type type;
    const char *payload; /* borrowed: points into the parsed bytes */
    size_t len;
};

/*
 * The first frame of data. -EAGAIN: not all of it is there yet; -EPROTO: this is not a frame (unknown
 * type, non-zero filling, too long, a keepalive that is not empty). *ret_used is its size, head included.
 */
MUST_CHECK int frame_parse(const void *data, size_t len, struct frame *ret, size_t *ret_used);
/* 0: go on; else frames_take() returns this at once. The frame is borrowed for the call. */
typedef int frame_fn(void *ctx, const struct frame *f);
/*
 * Takes all whole frames off the front of b, one by one. 0: what is left is no whole frame; -EPROTO: it is none at all;
 * else what each() returned, with its frame taken.
 */
MUST_CHECK int frames_take(struct buf *b, frame_fn *each, void *ctx);
/* The head of a frame whose payload of len bytes (at most FRAME_PAYLOAD_MAX) follows. */
void frame_head(enum frame_type type, size_t len, uint8_t ret[static FRAME_HEAD_LEN]);
/* A whole frame onto b. -E2BIG: too long for a frame or for b. */
MUST_CHECK int frame_add(struct buf *b, enum frame_type type, const void *payload, size_t len);
