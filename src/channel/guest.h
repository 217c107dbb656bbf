/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's end of the channel: an HTTP/2 server without I/O of its own.
 *
 * Whoever owns the port feeds it what was read (guest_feed), lets it call back (guest_dispatch), and writes
 * what it wants sent (guest_pull). It belongs to one thread, and callbacks come from guest_dispatch only:
 * so a callback, or anyone else, may call every guest_stream function at any time.
 *
 *     state     | what is                        | left by
 *     HUNTING   | no session; input thrown away  | HELLO -> UP
 *     UP        | session, streams               | HELLO -> UP afresh; hang-up, cut or broken HTTP/2 -> HUNTING
 *
 * Memory: at most GUEST_STREAMS_MAX streams. A stream holds at most GUEST_STREAM_WINDOW of request body
 * and GUEST_STREAM_OUT of answer. All request bodies together hold at most GUEST_HELD_MAX plus
 * GUEST_CONNECTION_WINDOW: the connection's window is given back at once while little is held, so that a
 * handler that does not read holds up nobody else, and only on reading once much is held.
 *
 * A stream lives from its head until on_close; both ends of its life are announced, also when the session
 * ends under it.
 */
#pragma once

#include "base/buf.h"
#include "base/util.h"

#include <sys/types.h>

#define GUEST_STREAMS_MAX 200
#define GUEST_STREAM_WINDOW (256u * 1024)
#define GUEST_STREAM_OUT (256u * 1024)
#define GUEST_CONNECTION_WINDOW (2u * 1024 * 1024)
#define GUEST_HELD_MAX (4u * 1024 * 1024)
#define GUEST_HEADERS_MAX 64
#define GUEST_HEAD_BYTES_MAX \
    (40u * 1024) /* a path of PATH_MAX bytes, percent-encoded thrice over */
#define GUEST_FRAME_MAX (64u * 1024)
/* What guest_pull gathers for one write: the port is slow in small pieces. */
#define GUEST_PULL_MAX (256u * 1024)

struct guest;
struct guest_stream;

struct guest_header {
    char *name;  /* owned; lower case; pseudo headers are not here */
    char *value; /* owned */
};

struct guest_ops {
    void (*on_request)(void *arg, struct guest_stream *s);
    void (*on_body)(struct guest_stream *s);     /* more bytes, or the end */
    void (*on_writable)(struct guest_stream *s); /* room again after a short write */
    void (*on_close)(struct guest_stream *s);    /* last; s dies when it returns */
    /* Something became sendable outside guest_feed: arrange for guest_dispatch and guest_pull soon. */
    void (*wake)(void *arg);
};

/* ops is borrowed: lives as long as the guest. Starts HUNTING. */
struct guest *guest_new(const struct guest_ops *ops, void *arg);
void guest_free(struct guest *g);
DEFINE_CLEANUP(struct guest *, guest_free);

/* Bytes from the port; data is used as scratch space. */
void guest_feed(struct guest *g, uint8_t *data, size_t len);
/* Says READY to the host unless there is a session. For when the port was opened or the host came. */
void guest_announce(struct guest *g);
/* The host closed its side, or set-up of another life begins: ends the session and its streams. */
void guest_hangup(struct guest *g);
/* Runs the callbacks that are due. Not from a callback. */
void guest_dispatch(struct guest *g);
/* Appends what is to be written, about GUEST_PULL_MAX at most; out->max must be 3 * GUEST_PULL_MAX or more. */
void guest_pull(struct guest *g, struct buf *out);
/*
 * True once after output became stale (HELLO, hang-up): drop what is not yet written, before the next
 * guest_pull.
 */
bool guest_output_stale(struct guest *g);
bool guest_up(const struct guest *g);
unsigned guest_n_streams(const struct guest *g);

/* ---- streams ---- */
const char *guest_stream_method(const struct guest_stream *s);
const char *guest_stream_target(const struct guest_stream *s);
/* NULL when absent. */
const char *guest_stream_header(const struct guest_stream *s, const char *name);
/* The request head was larger than the limits: headers are missing, answer 431. */
bool guest_stream_head_too_large(const struct guest_stream *s);
void guest_stream_set_user(struct guest_stream *s, void *user);
void *guest_stream_user(const struct guest_stream *s);

const void *guest_stream_peek(const struct guest_stream *s, size_t *ret_len);
void guest_stream_consume(struct guest_stream *s, size_t len);
/* The client said that this was all and it has been consumed. */
bool guest_stream_ended(const struct guest_stream *s);
/* Nobody will read the body: throw away what is there and what comes. */
void guest_stream_discard(struct guest_stream *s);

struct guest_response {
    int status;
    const char *content_type; /* NULL: none */
    int64_t length;           /* -1: not known */
    const struct guest_header_ref {
        const char *name; /* lower case */
        const char *value;
    } * headers;
    size_t n_headers;
};

/* Once per stream. No-op when the stream is gone. */
void guest_stream_respond(struct guest_stream *s, const struct guest_response *r);
size_t guest_stream_room(const struct guest_stream *s);
size_t guest_stream_write(struct guest_stream *s, const void *data, size_t len);
void *guest_stream_reserve(struct guest_stream *s, size_t want, size_t *ret_len);
void guest_stream_commit(struct guest_stream *s, size_t len);
void guest_stream_end(struct guest_stream *s);
void guest_stream_abort(struct guest_stream *s);
