/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's end against any host: after a HELLO the input is what the host says. A handler that reads,
 * answers and aborts by turns is behind it. Streams must be announced once and closed once.
 */
#include "channel/guest.h"
#include "channel/link.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    unsigned n_opened;
    unsigned n_closed;
};

static void on_wake(void *arg)
{
    (void)arg;
}

static void on_request(void *arg, struct guest_stream *s)
{
    struct seen *seen = arg;
    struct guest_response r = {.status = 200, .content_type = "text/plain", .length = -1};

    seen->n_opened++;
    guest_stream_set_user(s, seen);
    ASSERT(strlen(guest_stream_target(s)) <= GUEST_HEAD_BYTES_MAX);
    switch (seen->n_opened % 4) {
    case 0:
        guest_stream_abort(s);
        break;
    case 1:
        guest_stream_respond(s, &r);
        guest_stream_write(s, guest_stream_method(s), strlen(guest_stream_method(s)));
        guest_stream_end(s);
        break;
    case 2:
        r.length = 0;
        guest_stream_discard(s);
        guest_stream_respond(s, &r);
        break;
    default: /* answers when the body has ended */
        guest_stream_respond(s, &r);
        break;
    }
}

static void on_body(struct guest_stream *s)
{
    size_t n = 0;
    const void *data = guest_stream_peek(s, &n);

    ASSERT(n <= GUEST_STREAM_WINDOW);
    guest_stream_consume(s, guest_stream_write(s, data, n));
    if (guest_stream_ended(s)) {
        guest_stream_end(s);
    }
}

static void on_writable(struct guest_stream *s)
{
    on_body(s);
}

static void on_close(struct guest_stream *s)
{
    struct seen *seen = guest_stream_user(s);

    seen->n_closed++;
}

static const struct guest_ops ops = {on_request, on_body, on_writable, on_close, on_wake};

static void feed(struct guest *g, const void *data, size_t size, struct buf *out)
{
    cleanup_free uint8_t *copy = xmemdup(data, size + (size == 0));

    guest_feed(g, copy, size);
    guest_dispatch(g);
    guest_pull(g, out);
    guest_dispatch(g);
    ASSERT(guest_n_streams(g) <= 2 * GUEST_STREAMS_MAX);
    buf_reset(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen seen = {0};
    struct guest *g = guest_new(&ops, &seen);
    cleanup_buf struct buf out = BUF_INIT(3 * GUEST_PULL_MAX);
    uint8_t hello[LINK_CONTROL_LEN];
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    size_t half = size / 2;

    link_control(LINK_HELLO, "00112233445566778899aabbccddeeff", hello);
    feed(g, hello, sizeof(hello), &out);
    ASSERT(guest_up(g));
    if (size > 0 && data[0] % 2) { /* otherwise the input has its own */
        feed(g, preface, sizeof(preface) - 1, &out);
    }
    feed(g, data, half, &out);
    feed(g, data + half, size - half, &out);
    guest_hangup(g);
    guest_dispatch(g);
    ASSERT(guest_n_streams(g) == 0 && seen.n_opened == seen.n_closed);
    guest_free(g);
    return 0;
}
