/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What host.c (connection, states, I/O thread) and host-stream.c (HTTP/2, streams) share. Everything in
 * struct channel is guarded by its lock, but for the part that only the I/O thread touches.
 */
#pragma once

#include "base/log.h"
#include "channel/host.h"
#include "channel/link.h"

#include <nghttp2/nghttp2.h>
#include <pthread.h>

#define CHANNEL_READ_SIZE (256u * 1024)
#define CHANNEL_PULL_MAX (256u * 1024)
/* Bytes that are no body (heads, frame heads, settings, pings...): at once, and per second after that. */
#define CHANNEL_OVERHEAD_MAX (4u * 1024 * 1024)
#define CHANNEL_OVERHEAD_PER_S (4u * 1000 * 1000)
/* Frames of ours that wait for a guest that does not read. */
#define CHANNEL_QUEUE_MAX 4096u

enum channel_state {
    CHANNEL_DOWN,
    CHANNEL_HELLO,
    CHANNEL_UP,
    CHANNEL_CLOSED
};

struct channel {
    pthread_mutex_t lock;
    pthread_cond_t state_changed;
    unsigned refs; /* the owner's, one per stream, and channel_ref()'s */
    enum channel_state state;
    char *path;    /* owned; NULL when a descriptor was given */
    char *sandbox; /* owned; NULL: unnamed */
    struct log_ctx log;
    int fd;      /* owned; FD_NONE while DOWN; closed by the I/O thread only */
    int wake_fd; /* owned */
    bool wake_pending;
    bool held;
    uint64_t ping_after_ns;
    uint64_t ping_wait_ns;
    pthread_t thread;

    char nonce[LINK_NONCE_LEN + 1]; /* of the newest HELLO */
    bool stale; /* what the I/O thread still has to write belongs to a dead session */
    uint64_t hello_sent_ns;
    uint64_t retry_ns;    /* next connect or HELLO */
    uint64_t interval_ns; /* between HELLOs; grows */
    uint64_t up_since_ns;
    unsigned n_young; /* sessions in a row that ended young */
    struct err last;  /* why there is no session */

    nghttp2_session *session;       /* owned; in state UP only */
    struct channel_stream *streams; /* list, linked; each owned by its user */
    unsigned n_streams;
    size_t held_bytes; /* body bytes in all streams */
    size_t debt;       /* of these, not yet given back to the connection's window */
    uint64_t overhead; /* charged and not yet paid by time */
    uint64_t charged_ns;
    size_t body_bytes; /* in the feed that is going on */
    uint64_t received_ns;
    uint64_t ping_ns;  /* when we asked; 0: no question open */
    struct err broken; /* code set: a callback found a reason to end the session */

    /* the I/O thread's own */
    struct link_decoder decoder;
    struct buf out;
    uint8_t *in; /* owned: CHANNEL_READ_SIZE */
};

struct channel_stream {
    struct channel *ch;          /* owned: one reference */
    struct channel_stream *prev; /* borrowed: neighbour */
    struct channel_stream *next; /* borrowed: neighbour */
    pthread_cond_t changed;
    int event_fd; /* owned; FD_NONE until asked for */
    int32_t id;
    bool live; /* in the session */
    bool rx_eof;
    bool tx_eof;
    bool discard;
    bool head_done;
    struct err failed; /* code 0: has not */
    int status;
    struct channel_header *headers; /* owned, with their strings */
    size_t n_headers;
    size_t head_bytes;
    struct channel_head head;
    struct buf rx;
    struct buf tx;
};

/* All with the lock held. */
void channel_wake(struct channel *ch);
void channel_unref_unlock(struct channel *ch);
/* Waits for a session; see channel_wait. */
MUST_CHECK int channel_wait_locked(struct channel *ch, uint64_t deadline_ns, struct err *e);
/* Tells whoever waits on the stream. */
void channel_stream_notify(struct channel_stream *s);
void channel_stream_head_free(struct channel_stream *s);
/* Ends the session (and its streams) because of why. */
void channel_session_end(struct channel *ch, const struct err *why);
void channel_session_start(struct channel *ch);
/* Bytes from the guest inside a session. False: the session has ended. */
MUST_CHECK bool channel_session_feed(struct channel *ch, const uint8_t *data, size_t len);
/* Moves what is to be sent to ch->out. I/O thread. False: the session has ended. */
MUST_CHECK bool channel_session_pull(struct channel *ch);
void channel_session_ping(struct channel *ch);
