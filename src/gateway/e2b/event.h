/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A command's frames (wire/frames.h) as the envelopes of process.Process' streams. Pure; bytes in, bytes out.
 *
 *     S          {"event":{"start":{"pid":N}}}
 *     O, R, P    {"event":{"data":{"stdout"|"stderr"|"pty":BASE64}}}
 *     E          {"event":{"end":{"exitCode","exited","status","error"}}}, then the end of the stream
 *     G, K       nothing: what is gone is gone, and silence is counted by who writes
 *     X          -ECONNRESET: the stream breaks as this one did
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* One frame, in base64, and some more. */
#define EVENT_OUT_MAX (2u << 20)

struct event_stream {
    struct buf in;  /* owned: frames that are not complete */
    struct buf out; /* owned: envelopes; for the caller to take */
    bool ended;     /* the end is in out */
};

void event_stream_init(struct event_stream *s);
void event_stream_done(struct event_stream *s);
/* -EPROTO: no frames. -ECONNRESET: see above. -E2BIG: the caller must take out first; at most 64 KiB are fed at once. */
MUST_CHECK int event_stream_feed(struct event_stream *s, const void *data, size_t len);
/* For a process that is connected to, which does not say its start. */
MUST_CHECK int event_stream_start(struct event_stream *s, int64_t pid);
MUST_CHECK int event_stream_keepalive(struct event_stream *s);
