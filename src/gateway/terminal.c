/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A terminal over a WebSocket. The daemon knows output streams and input bodies, so one socket becomes two
 * calls: GET .../output?follow=1 for what comes out, one long POST .../stdin for what goes in.
 *
 * pty=1 has the daemon refuse a command that has no terminal, before the upgrade.
 *
 *   this thread    client <- ws <- output frames; client -> ws -> queue
 *   feeder thread  queue -> stdin call
 *
 * The feeder exists because writing input may block for as long as the program does not read, while its
 * output must go on flowing: a paste with echo would lock up otherwise. The queue is bounded: when it is
 * full the socket is not read. All of the WebSocket is used by the handler's thread alone.
 *
 * The command goes on when the client goes away; it comes back with ?offset=N.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "gateway/bodies.h"
#include "gateway/guest.h"
#include "http/ws.h"
#include "wire/frames.h"

#define QUEUE_MAX (1u << 20)
#define MESSAGE_MAX (256u << 10)
#define WRITE_MS 60000 /* a client that takes nothing for that long is gone */
#define PING_MS 20000
#define CLOSE_MS 2000
#define RESIZE_MS 5000

struct terminal {
    char id[ID_SIZE];
    char cid[ID_SIZE];
    struct http_client *http; /* borrowed: the node's */
    struct ws *ws;            /* owned */
    struct http_call *output; /* owned */
    struct buf frames;        /* owned: output that is not yet a whole frame */
    bool ended;

    pthread_t feeder;
    bool feeding;
    int stop_fd;           /* owned: the feeder gives up */
    int room_fd;           /* owned: the feeder took something from the queue */
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t filled;
    struct buf queue; /* owned */
    bool closing;
    bool broken; /* the daemon takes no more input */
};

static void terminal_done(struct terminal *t)
{
    if (t->feeding) {
        pthread_mutex_lock(&t->mutex);
        t->closing = true;
        pthread_cond_signal(&t->filled);
        pthread_mutex_unlock(&t->mutex);
        IGNORE_RESULT(eventfd_write(t->stop_fd, 1)); /* a counter of 0 takes 1 */
        pthread_join(t->feeder, NULL);
    }
    pthread_cond_destroy(&t->filled);
    pthread_mutex_destroy(&t->mutex);
    ws_free(t->ws);
    http_call_free(t->output);
    buf_done(&t->frames);
    buf_done(&t->queue);
    fd_close(t->stop_fd);
    fd_close(t->room_fd);
}

/* --- input --- */

/* Waits for input; false: no more will come. */
static bool take_input(struct terminal *t, struct buf *ret)
{
    bool some;

    pthread_mutex_lock(&t->mutex);
    while (t->queue.len == 0 && !t->closing) {
        pthread_cond_wait(&t->filled, &t->mutex);
    }
    some = t->queue.len > 0 && !t->closing;
    if (some) {
        struct buf empty = BUF_INIT(QUEUE_MAX);

        *ret = t->queue;
        t->queue = empty;
        IGNORE_RESULT(
            eventfd_write(t->room_fd, 1)); /* non-blocking; being full is being readable */
    }
    pthread_mutex_unlock(&t->mutex);
    return some;
}

static int feed_all(struct terminal *t)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct pollfd stop = {.fd = t->stop_fd, .events = POLLIN};
    char target[128];
    struct http_call_opts opts = {
        .method = "POST",
        .target = target,
        .body_length = HTTP_BODY_STREAM,
        .content_type = "application/octet-stream",
        .watch = &stop,
    };
    int r;

    snprintf(target, sizeof(target), "/v1/sandboxes/%s/guest/commands/%s/stdin?eof=0", t->id,
             t->cid);
    r = http_call_new(t->http, &opts, &call, NULL);
    while (r == 0) {
        cleanup_buf struct buf input = BUF_INIT(QUEUE_MAX);

        if (!take_input(t, &input)) {
            break;
        }
        r = http_call_write(call, input.data, input.len, NULL);
    }
    return r < 0 ? r : http_call_end(call, NULL);
}

static void *feeder(void *arg)
{
    struct terminal *t = arg;

    if (feed_all(t) < 0) {
        pthread_mutex_lock(&t->mutex);
        t->broken = true;
        buf_reset(&t->queue);
        IGNORE_RESULT(eventfd_write(t->room_fd, 1)); /* see take_input() */
        pthread_mutex_unlock(&t->mutex);
    }
    return NULL;
}

static int queue_input(struct terminal *t, const struct ws_message *m, struct err *e)
{
    int r = 0;

    if (m->len == 0) {
        return 0;
    }
    if (!t->feeding) {
        r = pthread_create(&t->feeder, NULL, feeder, t);
        if (r != 0) {
            return err_wrap(e, -r, "starting a thread for input");
        }
        t->feeding = true;
    }
    pthread_mutex_lock(&t->mutex);
    if (!t->broken) {
        r = buf_add(&t->queue, m->data, m->len);
        pthread_cond_signal(&t->filled);
    }
    pthread_mutex_unlock(&t->mutex);
    ASSERT(r == 0); /* queue_has_room() was asked first */
    return 0;
}

static bool queue_has_room(struct terminal *t)
{
    bool room;

    pthread_mutex_lock(&t->mutex);
    room = t->queue.len + MESSAGE_MAX <= QUEUE_MAX;
    pthread_mutex_unlock(&t->mutex);
    return room;
}

static int resize(struct terminal *t, const struct ws_message *m, struct err *e)
{
    cleanup_json json_t *message = NULL;
    cleanup_json json_t *size = NULL;
    char target[128];
    struct http_json_opts opts = {
        .method = "POST", .target = target, .deadline_ns = deadline_in_ms(RESIZE_MS)};
    int r;

    r = json_parse_untrusted(m->data, m->len, &message, e);
    if (r == 0) {
        r = terminal_message_from_json(message, &size, e);
    }
    if (r < 0) {
        return r;
    }
    snprintf(target, sizeof(target), "/v1/sandboxes/%s/guest/commands/%s/resize", t->id, t->cid);
    opts.body = size;
    IGNORE_RESULT(
        http_client_json(t->http, &opts, NULL, NULL)); /* the command may have just ended */
    return 0;
}

/* --- output --- */

/* {"type":TYPE} and the payload's own fields, or the payload under KEY. */
static int send_event(struct terminal *t, const char *type, const char *key, const struct frame *f,
                      struct err *e)
{
    cleanup_json json_t *line = json_pack("{s:s}", "type", type);
    cleanup_json json_t *payload = NULL;
    cleanup_free char *text = NULL;
    int r;

    r = json_parse_untrusted(f->payload, f->len, &payload, e);
    if (r < 0) {
        return r;
    }
    r = key ? json_object_set(line, key, payload) : json_object_update_missing(line, payload);
    ASSERT(r == 0);
    text = json_text(line);
    return ws_write(t->ws, WS_TEXT, text, strlen(text), deadline_in_ms(WRITE_MS), e);
}

static int send_frame(struct terminal *t, const struct frame *f, struct err *e)
{
    switch (f->type) {
    case FRAME_STDOUT:
    case FRAME_STDERR:
    case FRAME_PTY:
        return ws_write(t->ws, WS_BINARY, f->payload, f->len, deadline_in_ms(WRITE_MS), e);
    case FRAME_GAP:
        return send_event(t, "gap", /* key */ NULL, f, e);
    case FRAME_END:
        t->ended = true;
        return send_event(t, "end", "command", f, e);
    case FRAME_ERROR:
        t->ended = true;
        return send_event(t, "error", /* key */ NULL, f, e);
    case FRAME_START:
    case FRAME_KEEPALIVE:
        return 0;
    }
    return -EPROTO;
}

static int send_frames(struct terminal *t, struct err *e)
{
    struct frame f;
    size_t used = 0;
    int r = 0;

    while (r == 0 && t->frames.len > 0 && !t->ended) {
        r = frame_parse(t->frames.data, t->frames.len, &f, &used);
        if (r == -EAGAIN) {
            return 0;
        }
        if (r == 0) {
            r = send_frame(t, &f, e);
            buf_consume(&t->frames, used);
        }
    }
    return r;
}

/* What the daemon has for us now. */
static int pump_output(struct terminal *t, struct err *e)
{
    void *room = NULL;
    ssize_t n;
    int r;

    while (!t->ended) {
        r = buf_reserve(&t->frames, 65536, &room);
        if (r < 0) {
            return err_set(e, -EPROTO, "bad_answer", "the daemon sent a frame that is too long");
        }
        n = http_call_try_read(t->output, room, 65536, e);
        if (n == -EAGAIN) {
            return 0;
        }
        if (n <= 0) {
            return err_set(e, -ECONNRESET, "stream_cut", "the connection to the sandbox broke");
        }
        buf_commit(&t->frames, (size_t)n);
        r = send_frames(t, e);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* What the client has for us now; -EPIPE: it has closed. */
static int pump_input(struct terminal *t, struct err *e)
{
    struct ws_message m;
    int r = 0;

    while (r == 0 && queue_has_room(t)) {
        r = ws_read_try(t->ws, &m, e);
        if (r < 0) {
            return r == -EAGAIN ? 0 : r;
        }
        if (m.type == WS_CLOSE) {
            return -EPIPE;
        }
        r = m.type == WS_BINARY ? queue_input(t, &m, e) : resize(t, &m, e);
    }
    return r;
}

/* --- both --- */

static int serve(struct terminal *t, struct http_request *req, struct err *e)
{
    uint64_t ping_ns = deadline_in_ms(PING_MS);
    eventfd_t count;
    int r = 0;

    while (r == 0 && !t->ended && !http_request_stopping(req)) {
        struct pollfd p[3] = {
            http_call_pollfd(t->output), ws_pollfd(t->ws), {.fd = t->room_fd, .events = POLLIN}};

        if (!queue_has_room(t)) {
            p[1].fd = -1;
        }
        if (poll(p, 3, deadline_poll_ms(ping_ns)) < 0 && errno != EINTR) {
            return err_wrap(e, -errno, "waiting");
        }
        IGNORE_RESULT(eventfd_read(t->room_fd, &count)); /* non-blocking; only wakes us */
        r = pump_input(t, e);
        if (r == 0) {
            r = pump_output(t, e);
        }
        if (r == 0 && deadline_passed(ping_ns)) {
            r = ws_ping(t->ws, deadline_in_ms(WRITE_MS), e);
            ping_ns = deadline_in_ms(PING_MS);
        }
    }
    return r;
}

static int open_output(struct http_request *req, struct terminal *t, struct err *e)
{
    char target[192];
    int64_t offset = 0;
    int r;

    r = http_query_int(req, "offset", (struct http_query_bounds){.max = INT64_MAX}, &offset, e);
    if (r < 0) {
        return r;
    }
    snprintf(target, sizeof(target),
             "/v1/sandboxes/%s/guest/commands/%s/output?offset=%lld&follow=1&pty=1", t->id, t->cid,
             (long long)offset);
    r = guest_call(req, &(struct guest_call_opts){.method = "GET", .target = target}, &t->output,
                   e);
    if (r == 0) {
        r = http_call_head(t->output, e);
    }
    return r < 0 ? r : http_call_check(t->output, e);
}

static void terminal_init(struct terminal *t)
{
    *t = (struct terminal){
        .frames = BUF_INIT(1u << 20),
        .queue = BUF_INIT(QUEUE_MAX),
        .stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .room_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
    };
    ASSERT(t->stop_fd >= 0 &&
           t->room_fd >= 0); /* out of descriptors is treated like out of memory */
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->filled, NULL);
}

int terminal_handler(struct http_request *req, struct err *e)
{
    CLEANUP(terminal_done) struct terminal t;
    const char *protocols = http_request_header(req, "Sec-WebSocket-Protocol");
    struct ws_opts opts = {.max_message = MESSAGE_MAX};
    struct err mine = {0};
    int r;

    terminal_init(&t);
    r = require_running(req, t.id, e);
    t.http = request_node(req);
    if (r == 0) {
        r = require_command(req, t.cid, e);
    }
    if (r == 0) {
        r = open_output(req, &t, e);
    }
    if (r < 0) {
        return r;
    }
    if (protocols && strstr(protocols, "space.terminal")) {
        opts.protocol = "space.terminal";
    }
    r = ws_accept(req, &opts, &t.ws, e);
    if (r < 0) {
        return r;
    }
    r = serve(&t, req, &mine);
    if (r == 0) {
        r = ws_close(t.ws, t.ended ? WS_CLOSE_NORMAL : WS_CLOSE_GOING_AWAY, "",
                     deadline_in_ms(CLOSE_MS), NULL);
    } else if (r != -EPIPE && r != -EBADMSG && r != -E2BIG) {
        IGNORE_RESULT(ws_close(t.ws, r == -EINVAL ? WS_CLOSE_POLICY : WS_CLOSE_INTERNAL,
                               mine.reason, deadline_in_ms(CLOSE_MS),
                               NULL)); /* the first error counts */
    }
    return 0; /* the WebSocket has said how it ended */
}
