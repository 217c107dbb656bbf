/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's frames: what comes out are whole envelopes of JSON, however the frames are cut, and at most one end. */
#include <string.h>

#include "base/json.h"
#include "gateway/e2b/event.h"
#include "wire/connect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_out(struct event_stream *s)
{
    const char *p = buf_str(&s->out);
    size_t left = s->out.len;
    struct connect_envelope env;
    size_t used = 0;

    while (left > 0) {
        cleanup_json json_t *message = NULL;

        ASSERT(connect_parse(p, left, EVENT_OUT_MAX, &env, &used) == 0);
        ASSERT(json_parse_any(env.payload, env.len, &message, NULL) == 0);
        ASSERT(!(env.flags & CONNECT_END_STREAM) || (s->ended && used == left));
        p += used;
        left -= used;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct event_stream whole;
    struct event_stream pieces;
    size_t step = size > 0 ? (size_t)data[0] + 1 : 1;
    int r = 0;
    int r_pieces = 0;

    if (size < 1 || size > 65536) {
        return 0;
    }
    data++;
    size--;
    event_stream_init(&whole);
    event_stream_init(&pieces);
    r = event_stream_feed(&whole, data, size);
    for (size_t at = 0; at < size && r_pieces == 0; at += step) {
        r_pieces = event_stream_feed(&pieces, data + at, MIN(step, size - at));
    }
    ASSERT(r == r_pieces);
    ASSERT(whole.out.len == pieces.out.len &&
           memcmp(buf_str(&whole.out), buf_str(&pieces.out), whole.out.len) == 0);
    if (r == 0) {
        check_out(&whole);
    }
    event_stream_done(&whole);
    event_stream_done(&pieces);
    return 0;
}
