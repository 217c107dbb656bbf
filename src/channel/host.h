/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's end of the channel: an HTTP/2 client over the unix socket of a machine's virtio-serial port,
 * used by many request threads at once.
 *
 * One I/O thread per channel moves bytes; request threads only touch the session under its lock and
 * wait on their own stream's condition. A thread of its own, not one for all: everything that is
 * parsed there was written by a hostile guest, and one guest that keeps its parser busy must cost its own
 * requests their time and no one else's. An idle channel's thread sleeps in poll without a timeout.
 *
 *     state  | what is                                     | left by
 *     DOWN   | no connection                               | connect (repeated, path only) -> HELLO
 *     HELLO  | connected; HELLO is repeated (see link.h)   | ACK of the newest nonce -> UP; lost -> DOWN
 *     UP     | session, streams                            | channel_reset, READY, cut, protocol error, no answer
 *            |                                             | to a ping -> HELLO; connection lost -> DOWN
 *     CLOSED | channel_close was called                    | never
 *
 * When a session ends, all its streams end with -ECONNRESET "guest_gone" (or -EPROTO "guest_protocol" when
 * the guest broke the rules); what they had already received can still be read. The next session
 * is made without being asked for. Requests wait for it until their deadline.
 *
 * Everything the guest sends is bounded. Heads: CHANNEL_HEADERS_MAX, CHANNEL_HEAD_BYTES_MAX. Bodies: at most
 * CHANNEL_STREAM_WINDOW wait per stream, and CHANNEL_HELD_MAX + CHANNEL_CONNECTION_WINDOW in all: the
 * connection's window is given back at once while little is held, so a slow reader holds up nobody else.
 * Everything that is not body is charged against a budget that time pays back, so that floods of pings, settings,
 * resets, empty or unknown frames end the session and honest ones do not. Sessions that end young
 * make the next HELLO wait longer, so a guest cannot make us spin.
 *
 * An open stream on a channel that has been silent for CHANNEL_PING_AFTER_MS makes us ping; no byte for
 * CHANNEL_PING_WAIT_MS more ends the session. Nothing is sent to an idle guest, so that it can sleep.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"

#include <sys/types.h>

#define CHANNEL_STREAMS_MAX 256
#define CHANNEL_STREAM_WINDOW (512u * 1024)
#define CHANNEL_STREAM_OUT (256u * 1024)
#define CHANNEL_CONNECTION_WINDOW (4u * 1024 * 1024)
#define CHANNEL_HELD_MAX (8u * 1024 * 1024)
#define CHANNEL_HEADERS_MAX 32
#define CHANNEL_HEAD_BYTES_MAX (16u * 1024)
#define CHANNEL_FRAME_MAX (64u * 1024)
#define CHANNEL_PING_AFTER_MS 15000
#define CHANNEL_PING_WAIT_MS 30000
#define CHANNEL_HELLO_FIRST_MS 20
#define CHANNEL_HELLO_LAST_MS 1000

struct channel;
struct channel_stream;

struct channel_options {
    const char *path; /* borrowed; the socket to connect to, again and again; NULL: use fd */
    int fd; /* taken over when path is NULL, also on failure; lost for good when it breaks */
    const char *sandbox;    /* borrowed; for log lines; may be NULL */
    unsigned ping_after_ms; /* 0: CHANNEL_PING_AFTER_MS */
    unsigned ping_wait_ms;  /* 0: CHANNEL_PING_WAIT_MS */
};

struct channel_header {
    const char *name; /* lower case */
    const char *value;
};

struct channel_request {
    const char *method;
    const char *target;                   /* path and query, percent-encoded */
    const struct channel_header *headers; /* hop-by-hop headers are left out by channel_request */
    size_t n_headers;
    bool has_body;
};

struct channel_head {
    int status;
    size_t n_headers;
    const struct channel_header *headers; /* without pseudo headers */
};

/* Starts connecting at once. */
MUST_CHECK int channel_new(const struct channel_options *options, struct channel **ret,
                           struct err *e);
/* Ends the channel: every stream and every waiting call fails with -ECONNRESET "guest_gone". May be repeated. */
void channel_close(struct channel *ch);
/*
 * Closes, and drops the owner's reference. Streams may outlive it: each holds the channel until it is freed.
 * Other threads start requests only with a reference of their own.
 */
void channel_free(struct channel *ch);
DEFINE_CLEANUP(struct channel *, channel_free);
/*
 * A reference for somebody who makes requests while the owner may free the channel: they then fail with
 * "guest_gone", and the last reference takes the memory with it.
 */
struct channel *channel_ref(struct channel *ch);
void channel_unref(struct channel *ch);

/*
 * Waits until there is a session. -ETIMEDOUT "guest_unreachable" (the sentence says what failed last),
 * -ECONNRESET "guest_gone" after channel_close or when a given fd is lost.
 */
MUST_CHECK int channel_wait(struct channel *ch, uint64_t deadline_ns, struct err *e);
/* True when there is a session now. */
bool channel_is_up(struct channel *ch);
/* Starts afresh: ends all streams and says HELLO at once. For after a restore, or a change of socket. */
void channel_reset(struct channel *ch);
/* While held nothing is sent to keep the peer honest: the machine is paused and cannot answer. */
void channel_hold(struct channel *ch, bool held);

/*
 * Sends the head; waits for a session until the deadline. *ret is the caller's to free.
 * -EBUSY "guest_busy": CHANNEL_STREAMS_MAX requests are open. -EINVAL: a header or target HTTP/2 cannot carry.
 */
MUST_CHECK int channel_request(struct channel *ch, const struct channel_request *request,
                               uint64_t deadline_ns, struct channel_stream **ret, struct err *e);

/*
 * All calls on a stream: -ETIMEDOUT "guest_timeout" when the deadline passes (0: -EAGAIN at once), -ECONNRESET
 * "guest_gone", -EPROTO "guest_protocol", -EIO "stream_broken" when the guest ended the stream because it
 * could not complete it, -ECANCELED after channel_stream_cancel. One reader and one writer thread at a time.
 */

/* Takes everything, or fails. -EPIPE: the answer is complete and the guest wants no more. */
MUST_CHECK int channel_stream_write(struct channel_stream *s, const void *data, size_t len,
                                    uint64_t deadline_ns, struct err *e);
/* Takes what there is room for, at least one byte, or -EAGAIN. */
MUST_CHECK ssize_t channel_stream_write_some(struct channel_stream *s, const void *data, size_t len,
                                             struct err *e);
/* The request body is complete. */
void channel_stream_finish(struct channel_stream *s);
/* *ret is borrowed: lives as long as the stream. May be called again. */
MUST_CHECK int channel_stream_read_head(struct channel_stream *s, uint64_t deadline_ns,
                                        const struct channel_head **ret, struct err *e);
/* At least one byte; 0 only at the true end of the answer. */
MUST_CHECK ssize_t channel_stream_read(struct channel_stream *s, void *ret, size_t len,
                                       uint64_t deadline_ns, struct err *e);
/*
 * A descriptor for poll(POLLIN): readable when head, bytes, end, failure or room for writing may be
 * news. Call channel_stream_clear, then try to read and write until -EAGAIN. Borrowed.
 */
int channel_stream_fd(struct channel_stream *s);
void channel_stream_clear(struct channel_stream *s);
/* The guest is told to stop; waiting calls of other threads fail. */
void channel_stream_cancel(struct channel_stream *s);
/* Cancels what is not complete. */
void channel_stream_free(struct channel_stream *s);
DEFINE_CLEANUP(struct channel_stream *, channel_stream_free);
