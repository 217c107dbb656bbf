/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/ndjson.h"

#include <string.h>

#include "base/base64.h"
#include "base/json.h"
#include "model/json-text.h"
#include "wire/frames.h"

static const char *const stream_names[NDJSON_STREAM_COUNT_] = {"stdout", "stderr", "pty"};

void ndjson_done(struct ndjson *nd)
{
    buf_done(&nd->in);
    buf_done(&nd->out);
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

static int add_data_line(struct ndjson *nd, enum ndjson_stream stream, const char *data, size_t len)
{
    int r;

    if (len == 0) {
        return 0;
    }
    r = buf_printf(&nd->out, "{\"type\":\"%s\",\"data_base64\":\"", stream_names[stream]);
    if (r == 0) {
        r = base64_encode(data, len, &nd->out);
    }
    if (r == 0) {
        r = buf_add_str(&nd->out, "\"");
    }
    if (r == 0 && utf8_valid_prefix(data, len) == len) {
        r = buf_add_str(&nd->out, ",\"text\":");
        if (r == 0) {
            r = json_text_bytes(&nd->out, data, len);
        }
    }
    return r < 0 ? r : buf_add_str(&nd->out, "}\n");
}

static int flush_held(struct ndjson *nd)
{
    int r = 0;

    for (int s = 0; s < NDJSON_STREAM_COUNT_ && r == 0; s++) {
        r = add_data_line(nd, (enum ndjson_stream)s, nd->held[s], nd->n_held[s]);
        nd->n_held[s] = 0;
    }
    return r;
}

static int add_output(struct ndjson *nd, enum ndjson_stream stream, const struct frame *f)
{
    cleanup_buf struct buf all = BUF_INIT(FRAME_PAYLOAD_MAX + 4);
    size_t tail;
    int r;

    r = buf_add(&all, nd->held[stream], nd->n_held[stream]);
    if (r == 0) {
        r = buf_add(&all, f->payload, f->len);
    }
    if (r < 0) {
        return r;
    }
    tail = unfinished_tail(buf_str(&all), all.len);
    if (tail > 0) {
        memcpy(nd->held[stream], all.data + all.len - tail, tail);
    }
    nd->n_held[stream] = tail;
    return add_data_line(nd, stream, buf_str(&all), all.len - tail);
}

/* {"type":TYPE,"KEY":<payload>}, or the payload's own fields beside the type when key is NULL. */
static int add_json_line(struct ndjson *nd, const char *type, const char *key, const struct frame *f)
{
    cleanup_json json_t *line = json_pack("{s:s}", "type", type);
    cleanup_json json_t *payload = NULL;
    int r;

    ASSERT(line);
    if (json_parse_object(f->payload, f->len, &payload, NULL) < 0) {
        return -EPROTO;
    }
    r = key ? json_object_set(line, key, payload) : json_object_update_missing(line, payload);
    ASSERT(r == 0);
    r = json_write(line, &nd->out);
    return r < 0 ? r : buf_add_str(&nd->out, "\n");
}

static int add_last_line(struct ndjson *nd, const char *type, const char *key, const struct frame *f)
{
    int r = flush_held(nd);

    if (r == 0) {
        r = add_json_line(nd, type, key, f);
    }
    nd->ended = r == 0;
    return r;
}

static int add_frame(struct ndjson *nd, const struct frame *f)
{
    if (nd->ended) {
        return -EPROTO;
    }
    switch (f->type) {
    case FRAME_START:
        return add_json_line(nd, "start", "command", f);
    case FRAME_STDOUT:
        return add_output(nd, NDJSON_STDOUT, f);
    case FRAME_STDERR:
        return add_output(nd, NDJSON_STDERR, f);
    case FRAME_PTY:
        return add_output(nd, NDJSON_PTY, f);
    case FRAME_GAP:
        return add_json_line(nd, "gap", /* key */ NULL, f);
    case FRAME_END:
        return add_last_line(nd, "end", "command", f);
    case FRAME_ERROR:
        return add_last_line(nd, "error", /* key */ NULL, f);
    case FRAME_KEEPALIVE:
        return buf_add_str(&nd->out, "{\"type\":\"keepalive\"}\n");
    }
    return -EPROTO;
}

int ndjson_feed(struct ndjson *nd, const void *data, size_t len)
{
    struct frame f;
    size_t used = 0;
    int r;

    ASSERT(nd);

    r = buf_add(&nd->in, data, len);
    if (r < 0) {
        return -EPROTO; /* no frame is that long */
    }
    while (nd->in.len > 0) {
        r = frame_parse(nd->in.data, nd->in.len, &f, &used);
        if (r == -EAGAIN) {
            return 0;
        }
        if (r == 0) {
            r = add_frame(nd, &f);
        }
        if (r < 0) {
            return -EPROTO;
        }
        buf_consume(&nd->in, used);
    }
    return 0;
}

int ndjson_cut(struct ndjson *nd)
{
    int r = flush_held(nd);

    return r < 0 ? r
                 : buf_add_str(&nd->out, "{\"type\":\"error\",\"error\":{\"code\":\"stream_cut\",\"message\":"
                                         "\"The connection to the sandbox broke.\"}}\n");
}
