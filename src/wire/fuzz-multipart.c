/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: how many bytes are fed at once, a content type ended by a NUL, then the form. However it is cut into pieces, the
 * events are the same.
 */
#include "wire/multipart.h"

#include <string.h>

#define OUT_MAX (4u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void note(struct buf *out, const char *what, const void *data, size_t len)
{
    ASSERT(buf_add_str(out, what) == 0 && buf_add(out, data, len) == 0);
}

static void note_event(struct buf *out, const struct multipart_event *ev, bool *in_part)
{
    switch (ev->type) {
    case MULTIPART_EVENT_BEGIN:
        ASSERT(!*in_part);
        *in_part = true;
        note(out, "[", ev->name, strlen(ev->name));
        note(out, ev->has_filename ? "=" : "-", ev->filename, strlen(ev->filename));
        break;
    case MULTIPART_EVENT_DATA:
        ASSERT(*in_part && ev->len > 0);
        ASSERT(buf_add(out, ev->data, ev->len) == 0);
        break;
    case MULTIPART_EVENT_END:
        ASSERT(*in_part);
        *in_part = false;
        note(out, "]", "", 0);
        break;
    case MULTIPART_EVENT_DONE:
        ASSERT(!*in_part);
        note(out, ".", "", 0);
        break;
    }
}

static void run(const char *type, const uint8_t *form, size_t len, size_t piece, struct buf *out)
{
    struct multipart_event ev;
    struct multipart m;
    bool in_part = false;
    int r = 0;

    if (multipart_init(&m, type) < 0) {
        return;
    }
    while (r == 0 && len > 0) {
        size_t n = MIN(len, piece);

        multipart_feed(&m, form, n);
        form += n;
        len -= n;
        while ((r = multipart_next(&m, &ev)) == 1) {
            note_event(out, &ev, &in_part);
        }
    }
    if (r < 0) {
        note(out, "!", "", 0);
    }
    multipart_done(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_buf struct buf pieces = BUF_INIT(OUT_MAX);
    cleanup_buf struct buf whole = BUF_INIT(OUT_MAX);
    const char *type;
    size_t type_len;
    size_t piece;

    if (size < 2 || size > MULTIPART_FEED_MAX || !memchr(data + 1, 0, size - 1)) {
        return 0;
    }
    piece = (size_t)data[0] + 1;
    type = (const char *)data + 1;
    type_len = strlen(type) + 1;
    data += 1 + type_len;
    size -= 1 + type_len;
    run(type, data, size, piece, &pieces);
    run(type, data, size, MULTIPART_FEED_MAX, &whole);
    /* A head that is too long may be found out a little earlier or later; else nothing differs. */
    if (size <= MULTIPART_HEAD_MAX) {
        ASSERT(pieces.len == whole.len &&
               memcmp(buf_str(&pieces), buf_str(&whole), whole.len) == 0);
    }
    return 0;
}
