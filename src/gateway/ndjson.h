/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Command output for clients without a frame parser: each frame becomes one line of JSON.
 *
 *   {"type":"start","command":{...}}           {"type":"end","command":{...}}
 *   {"type":"stdout","data_base64":"...","text":"..."}   (also "stderr", "pty")
 *   {"type":"gap","from":N,"to":M}             {"type":"keepalive"}
 *   {"type":"error","error":{...}}
 *
 * "text" is there only when the bytes of the line are whole, valid UTF-8. A character that was cut between two
 * frames is held back until its rest arrives, so that text never holds half of one. data_base64 always
 * has exactly the bytes of the line; all of them in a row are the output.
 *
 * Pure: bytes in, text out. The daemon is not trusted: its JSON is parsed and printed again.
 */
#pragma once

#include "base/buf.h"

/* Output that is held back is at most 3 bytes of each of these. */
enum ndjson_stream {
    NDJSON_STDOUT,
    NDJSON_STDERR,
    NDJSON_PTY,
    NDJSON_STREAM_COUNT_
};

struct ndjson {
    struct buf in;  /* bytes that are not yet a whole frame */
    struct buf out; /* lines for the caller to take and buf_reset() */
    char held[NDJSON_STREAM_COUNT_][4];
    size_t n_held[NDJSON_STREAM_COUNT_];
    bool ended; /* the last frame came */
};

#define NDJSON_INIT \
    { \
        .in = BUF_INIT(1u << 20), .out = BUF_INIT(16u << 20) \
    }
void ndjson_done(struct ndjson *lines);

/* -EPROTO: what came is no stream of frames, or goes on after its end. */
MUST_CHECK int ndjson_feed(struct ndjson *lines, const void *data, size_t len);
/* The stream broke: what is held back, and an error line. */
MUST_CHECK int ndjson_cut(struct ndjson *lines);
