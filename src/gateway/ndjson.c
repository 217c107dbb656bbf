/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/ndjson.h"

#include <string.h>

#include "base/base64.h"
#include "base/json.h"
#include "model/json-text.h"
#include "wire/frames.h"

static const char *const stream_names[NDJSON_STREAM_COUNT_] = {"stdout", "stderr", "pty"};

void ndjson_done(struct ndjson *lines)
{
    buf_done(&lines->in);
    buf_done(&lines->out);
}

/* How many bytes at the end may be the beginning of a character that is not over. */
static size_t unfinished_tail(const char *data, size_t len)
{
    size_t back = MIN(len, (size_t)3);

    for (size_t i = 1; i <= back; i++) {
        unsigned char c = (unsigned char)data[len - i];

        if (c >= 0xc0) {
            size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;

            return need > i ? i : 0;
        }
        if (c < 0x80) {
            return 0;
        }
    }
    return 0;
}

static int add_data_line(struct ndjson *lines, enum ndjson_stream stream, const char *data,
                         size_t len)
{
    int r;

    if (len == 0) {
        return 0;
    }
    r = buf_printf(&lines->out, "{\"type\":\"%s\",\"data_base64\":\"", stream_names[stream]);
    if (r == 0) {
        r = base64_encode(data, len, &lines->out);
    }
    if (r == 0) {
        r = buf_add_str(&lines->out, "\"");
    }
    if (r == 0 && utf8_valid_prefix(data, len) == len) {
        r = buf_add_str(&lines->out, ",\"text\":");
        if (r == 0) {
            r = json_text_bytes(&lines->out, data, len);
        }
    }
    return r < 0 ? r : buf_add_str(&lines->out, "}\n");
}

static int flush_held(struct ndjson *lines)
{
    int r = 0;

    for (int s = 0; s < NDJSON_STREAM_COUNT_ && r == 0; s++) {
        r = add_data_line(lines, (enum ndjson_stream)s, lines->held[s], lines->n_held[s]);
        lines->n_held[s] = 0;
    }
    return r;
}

static int add_output(struct ndjson *lines, enum ndjson_stream stream, const struct frame *f)
{
    cleanup_buf struct buf all = BUF_INIT(FRAME_PAYLOAD_MAX + 4);
    size_t tail;
    int r;

    r = buf_add(&all, lines->held[stream], lines->n_held[stream]);
    if (r == 0) {
        r = buf_add(&all, f->payload, f->len);
    }
    if (r < 0) {
        return r;
    }
    tail = unfinished_tail(buf_str(&all), all.len);
    if (tail > 0) {
        memcpy(lines->held[stream], all.data + all.len - tail, tail);
    }
    lines->n_held[stream] = tail;
    return add_data_line(lines, stream, buf_str(&all), all.len - tail);
}

/* {"type":TYPE,"KEY":<payload>}, or the payload's own fields beside the type when key is NULL. */
static int add_json_line(struct ndjson *lines, const char *type, const char *key,
                         const struct frame *f)
{
    cleanup_json json_t *line = json_pack("{s:s}", "type", type);
    cleanup_json json_t *payload = NULL;
    int r;

    ASSERT(line);
    if (json_parse_untrusted(f->payload, f->len, &payload, NULL) < 0) {
        return -EPROTO;
    }
    r = key ? json_object_set(line, key, payload) : json_object_update_missing(line, payload);
    ASSERT(r == 0);
    r = json_write(line, &lines->out);
    return r < 0 ? r : buf_add_str(&lines->out, "\n");
}

static int add_last_line(struct ndjson *lines, const char *type, const char *key,
                         const struct frame *f)
{
    int r = flush_held(lines);

    if (r == 0) {
        r = add_json_line(lines, type, key, f);
    }
    lines->ended = r == 0;
    return r;
}

static int add_frame(void *ctx, const struct frame *f)
{
    struct ndjson *lines = ctx;

    if (lines->ended) {
        return -EPROTO;
    }
    switch (f->type) {
    case FRAME_START:
        return add_json_line(lines, "start", "command", f);
    case FRAME_STDOUT:
        return add_output(lines, NDJSON_STDOUT, f);
    case FRAME_STDERR:
        return add_output(lines, NDJSON_STDERR, f);
    case FRAME_PTY:
        return add_output(lines, NDJSON_PTY, f);
    case FRAME_GAP:
        return add_json_line(lines, "gap", /* key */ NULL, f);
    case FRAME_END:
        return add_last_line(lines, "end", "command", f);
    case FRAME_ERROR:
        return add_last_line(lines, "error", /* key */ NULL, f);
    case FRAME_KEEPALIVE:
        return buf_add_str(&lines->out, "{\"type\":\"keepalive\"}\n");
    }
    return -EPROTO;
}

int ndjson_feed(struct ndjson *lines, const void *data, size_t len)
{
    ASSERT(lines);
    /* No frame is longer than what in may hold. */
    return buf_add(&lines->in, data, len) < 0 || frames_take(&lines->in, add_frame, lines) < 0
               ? -EPROTO
               : 0;
}

int ndjson_cut(struct ndjson *lines)
{
    int r = flush_held(lines);

    return r < 0 ? r
                 : buf_add_str(&lines->out,
                               "{\"type\":\"error\",\"error\":{\"code\":\"stream_cut\",\"message\":"
                               "\"The connection to the sandbox broke.\"}}\n");
}
