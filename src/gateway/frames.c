/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/frames.h"

#include "base/json.h"

#define READ_SIZE 65536u

int frames_bad(struct err *e)
{
    return err_set(e, -EPROTO, "bad_answer",
                   "the sandbox's daemon sent what is no stream of frames");
}

int frames_error(const struct frame *f, struct err *e)
{
    cleanup_json json_t *payload = NULL;
    json_t *inner;

    if (json_parse_untrusted(f->payload, f->len, &payload, NULL) < 0) {
        return frames_bad(e);
    }
    inner = json_object_get(payload, "error");
    return err_set(e, -ECONNRESET, "stream_cut", "the command's output broke: %s",
                   json_get_string(inner, "message", "no reason was given"));
}

struct follower {
    frames_fn *each;
    void *ctx;
    struct err *e;
    bool failed; /* each() has, and *e says why */
};

static int take_frame(void *ctx, const struct frame *f)
{
    struct follower *follower = ctx;
    int r = follower->each(follower->ctx, f, follower->e);

    follower->failed = r < 0;
    return r;
}

int frames_follow(struct http_call *call, frames_fn *each, void *ctx, struct err *e)
{
    struct follower follower = {.each = each, .ctx = ctx, .e = e};
    cleanup_buf struct buf in = BUF_INIT(FRAME_PAYLOAD_MAX * 2u);
    void *room = NULL;
    ssize_t n;
    int r = 0;

    while (r == 0) {
        r = buf_reserve(&in, READ_SIZE, &room);
        if (r < 0) {
            return frames_bad(e);
        }
        n = http_call_read(call, room, READ_SIZE, e);
        if (n <= 0) {
            return n < 0 ? (int)n
                         : err_set(e, -ECONNRESET, "stream_cut",
                                   "the command's output ended without its result");
        }
        buf_commit(&in, (size_t)n);
        r = frames_take(&in, take_frame, &follower);
        if (r < 0 && !follower.failed) {
            return frames_bad(e);
        }
    }
    return r < 0 ? r : 0;
}
