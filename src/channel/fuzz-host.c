/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's end against any guest: a session with two requests, then the input is what the guest says. It is
 * driven without its I/O thread: the session is fed and pulled as that thread does.
 */
#include "channel/host-internal.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A channel in state UP that no thread serves. */
static struct channel *channel_bare(void)
{
    struct channel *ch = NULL;

    ASSERT(channel_new(&(struct channel_options){.fd = FD_NONE}, &ch, NULL) == 0);
    channel_close(ch);
    pthread_join(ch->thread, NULL);
    buf_reset(&ch->out);
    ch->state = CHANNEL_UP;
    channel_session_start(ch);
    return ch;
}

static void read_all(struct channel_stream *s)
{
    static char buf[4096];
    const struct channel_head *head = NULL;
    struct err e = {0};
    ssize_t n;
    int r = channel_stream_read_head(s, 0, &head, &e);

    ASSERT(r == 0 || r == e.code);
    if (r == 0) {
        ASSERT(head->status >= 200 && head->status <= 599 &&
               head->n_headers <= CHANNEL_HEADERS_MAX);
    }
    do {
        n = channel_stream_read(s, buf, sizeof(buf), 0, &e);
    } while (n > 0);
    ASSERT(n == 0 || n == e.code);
}

static void step(struct channel *ch, const uint8_t *data, size_t size)
{
    if (ch->session && channel_session_feed(ch, data, size)) {
        IGNORE_RESULT(channel_session_pull(ch)); /* the session tells */
        buf_reset(&ch->out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct channel *ch = channel_bare();
    struct channel_stream *s[2] = {0};
    struct channel_request q = {.method = "POST", .target = "/x", .has_body = true};
    struct err why = {0};
    size_t half = size / 2;

    for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
        ASSERT(channel_request(ch, &q, 0, &s[i], NULL) == 0);
    }
    step(ch, data, 0);
    IGNORE_RESULT(
        channel_stream_write_some(s[0], "body", 4, NULL)); /* the session may have ended */
    step(ch, data, half);
    read_all(s[0]);
    channel_stream_finish(s[0]);
    step(ch, data + half, size - half);
    read_all(s[1]);
    ASSERT(ch->held_bytes <= CHANNEL_HELD_MAX + CHANNEL_CONNECTION_WINDOW);
    channel_stream_free(s[1]);
    step(ch, data, 0);
    channel_stream_free(s[0]);
    err_set(&why, -ECONNRESET, "guest_gone", "the end");
    channel_session_end(ch, &why);
    ASSERT(ch->held_bytes == 0);
    pthread_mutex_lock(&ch->lock);
    channel_unref_unlock(ch);
    return 0;
}
