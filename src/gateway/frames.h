/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command's stream of frames (wire/frames.h) as the node's answer brings it, frame by frame. The frames are the guest's:
 * whatever they hold is checked here or by who is given them.
 */
#pragma once

#include "base/err.h"
#include "http/client.h"
#include "wire/frames.h"

/* One whole frame, borrowed for the call. 0: go on; 1: that was the last one; negative: stop, the error is in *e. */
typedef int frames_fn(void *ctx, const struct frame *f, struct err *e);

/*
 * Gives each frame of the answer to each(), until it says that it was the last one. -EPROTO "bad_answer": this is no stream of
 * frames; -ECONNRESET "stream_cut": it ended before its last frame.
 */
MUST_CHECK int frames_follow(struct http_call *call, frames_fn *each, void *ctx, struct err *e);
/* The error of a frame that cannot be understood: -EPROTO. */
MUST_CHECK int frames_bad(struct err *e);
/* What a FRAME_ERROR says: -ECONNRESET "stream_cut". */
MUST_CHECK int frames_error(const struct frame *f, struct err *e);
