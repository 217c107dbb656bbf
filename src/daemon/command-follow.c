/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/command-routes.h"

#include "base/clock.h"
#include "base/json.h"
#include "daemon/command-json.h"
#include "wire/frames.h"

#include <signal.h>
#include <string.h>

#define KEEPALIVE_MS 15000
/* One output frame: large enough for speed, small enough that frames of two streams mix. */
#define FRAME_DATA_MAX ((size_t)32 * 1024)
#define PENDING_MAX ((size_t)FRAME_PAYLOAD_MAX + 64)

/* ---- output ---- */

struct follower {
    struct command_listener l;
    struct follow_options options;
    struct request *req;          /* borrowed: until on_close */
    struct loop_timer *keepalive; /* owned; NULL: not following */
    uint64_t stop;                /* without follow: where it ends */
    struct buf pending;           /* what of a frame did not fit into the answer */
    bool finished;
};

static const enum frame_type frame_types[OUTPUT_KIND_COUNT_] = {
    [OUTPUT_STDOUT] = FRAME_STDOUT,
    [OUTPUT_STDERR] = FRAME_STDERR,
    [OUTPUT_PTY] = FRAME_PTY,
};

/* False: the answer is full; on_writable will come. */
static bool flush_pending(struct follower *f)
{
    if (f->pending.len > 0) {
        buf_consume(&f->pending, request_write(f->req, f->pending.data, f->pending.len));
    }
    return f->pending.len == 0;
}

static bool send_frame(struct follower *f, enum frame_type type, const void *payload, size_t len)
{
    uint8_t head[FRAME_HEAD_LEN];

    ASSERT(f->pending.len == 0);
    if (request_write_room(f->req) < FRAME_HEAD_LEN + len) {
        int r = frame_add(&f->pending, type, payload, len);

        ASSERT(r == 0);
        return flush_pending(f);
    }
    frame_head(type, len, head);
    request_write(f->req, head, sizeof(head));
    request_write(f->req, payload, len);
    return true;
}

static bool send_json(struct follower *f, enum frame_type type, json_t *json_take)
{
    cleanup_json json_t *json = json_take;
    cleanup_free char *text = json_text(json);

    return send_frame(f, type, text, strlen(text));
}

static bool send_item(struct follower *f, const struct command_item *item)
{
    switch (item->kind) {
    case COMMAND_ITEM_DATA:
        return send_frame(f, frame_types[item->run.kind], item->run.data, item->run.len);
    case COMMAND_ITEM_GAP:
        return send_json(
            f, FRAME_GAP,
            json_pack("{s:I,s:I}", "from", (json_int_t)item->from, "to", (json_int_t)item->to));
    case COMMAND_ITEM_END:
        f->finished = true;
        return send_json(f, FRAME_END, command_json(f->l.command));
    case COMMAND_ITEM_NOTHING:
        break;
    }
    return false;
}

/* True when the answer has begun. Until the program runs nothing is sent, so that a failure gets its own status. */
static bool begin(struct follower *f)
{
    struct err e = {0};
    int r;

    if (request_begun(f->req)) {
        return true;
    }
    r = f->options.start ? command_started(f->l.command, &e) : 0;
    if (r == -EINPROGRESS) {
        return false;
    }
    if (r < 0) {
        f->finished = true;
        request_reply_error(f->req, &e);
        return false;
    }
    request_begin(f->req, 200, FRAMES_CONTENT_TYPE, /* headers */ NULL, 0);
    if (f->options.start) {
        send_json(f, FRAME_START, command_json(f->l.command));
    }
    return true;
}

/* Sends as much as there is and fits. */
static void follower_pump(struct follower *f)
{
    struct command_item item;

    if (f->finished && f->pending.len == 0) {
        return; /* ended already */
    }
    if (!begin(f) || !flush_pending(f)) {
        return;
    }
    while (!f->finished) {
        bool sent;

        command_item(&f->l, FRAME_DATA_MAX, &item);
        if (item.kind == COMMAND_ITEM_NOTHING ||
            (item.kind != COMMAND_ITEM_END && f->l.offset >= f->stop)) {
            f->finished = !f->options.follow;
            break;
        }
        sent = send_item(f, &item);
        command_advance(&f->l, &item);
        if (!sent) {
            return; /* what did not fit is pending */
        }
    }
    if (f->finished) {
        request_end(f->req);
    }
}

static void follower_event(struct command_listener *l)
{
    follower_pump(l->arg);
}

static void follower_writable(struct request *req)
{
    struct follower *f = request_state(req);

    if (f->finished) {
        if (flush_pending(f)) {
            request_end(req);
        }
        return;
    }
    follower_pump(f);
}

static void on_keepalive(void *arg)
{
    struct follower *f = arg;

    if (!f->finished && f->pending.len == 0 && request_begun(f->req)) {
        send_frame(f, FRAME_KEEPALIVE, "", 0);
    }
    loop_timer_set(f->keepalive, deadline_in_ms(KEEPALIVE_MS));
}

static void follower_close(struct request *req)
{
    struct follower *f = request_state(req);
    struct command *c = f->l.command;
    bool kill = f->options.kill_on_disconnect && !command_ended(c);

    command_unlisten(&f->l);
    if (kill) {
        command_hang_up(c); /* not ended, so it has outlived its last listener */
    }
    loop_timer_free(f->keepalive);
    buf_done(&f->pending);
    free(f);
}

void command_follow(struct request *req, struct command *c, const struct follow_options *options)
{
    static const struct request_callbacks callbacks = {.on_writable = follower_writable,
                                                       .on_close = follower_close};
    struct follower *f = xnew(struct follower);
    struct command_view view;

    command_view(c, &view);
    f->options = *options;
    f->req = req;
    f->pending = BUF_INIT(PENDING_MAX);
    f->stop = options->follow ? UINT64_MAX : view.output_bytes;
    f->l = (struct command_listener){
        .fn = follower_event, .arg = f, .holds = true, .offset = options->offset};
    if (options->follow) {
        f->keepalive = loop_add_timer(request_daemon(req)->loop, on_keepalive, f);
        loop_timer_set(f->keepalive, deadline_in_ms(KEEPALIVE_MS));
    }
    request_set_state(req, f, &callbacks);
    command_listen(c, &f->l);
    follower_pump(f);
}

/* ---- input ---- */

struct feeder {
    struct command_listener l;
    struct request *req; /* borrowed: until on_close */
    uint64_t n_bytes;
    bool eof;
};

static void feeder_fail(struct feeder *f)
{
    struct err e = {0};

    command_unlisten(&f->l);
    err_set(&e, -ESTALE, "stdin_closed", "the command reads no more input: it took %llu bytes",
            (unsigned long long)f->n_bytes);
    request_reply_error(f->req, &e);
}

/* Answered, so the next in the line may write while the answer is on its way. */
static void feeder_done(struct feeder *f)
{
    if (f->eof) {
        command_close_stdin(f->l.command);
    }
    command_unlisten(&f->l);
    request_reply_json(f->req, 200, json_pack("{s:I}", "bytes", (json_int_t)f->n_bytes));
}

static void feeder_pump(struct feeder *f)
{
    struct command *c = f->l.command;
    size_t len = 0;
    const void *data;

    if (!c || !command_write_turn(&f->l)) {
        return;
    }
    for (data = request_body_peek(f->req, &len); len > 0; data = request_body_peek(f->req, &len)) {
        ssize_t n = command_write(c, data, len);

        if (n < 0) {
            feeder_fail(f);
            return;
        }
        if (n == 0) {
            return; /* called again when the program has read */
        }
        request_body_consume(f->req, (size_t)n);
        f->n_bytes += (size_t)n;
    }
    /* All that was announced has been taken: that the program has ended since is no failure. */
    if (request_body_ended(f->req) || request_body_length(f->req) == (int64_t)f->n_bytes) {
        feeder_done(f);
    } else if (!command_stdin_open(c)) {
        feeder_fail(f);
    }
}

static void feeder_event(struct command_listener *l)
{
    feeder_pump(l->arg);
}

static void feeder_readable(struct request *req)
{
    feeder_pump(request_state(req));
}

static void feeder_close(struct request *req)
{
    struct feeder *f = request_state(req);

    command_unlisten(&f->l);
    free(f);
}

void command_post_stdin(struct request *req)
{
    static const struct request_callbacks callbacks = {.on_readable = feeder_readable,
                                                       .on_close = feeder_close};
    struct command *c = command_of(req);
    struct err e = {0};
    struct feeder *f;
    bool eof = false;
    int r;

    if (!c) {
        return;
    }
    r = request_query_bool(req, "eof", &eof, &e);
    if (r == 0 && !command_stdin_open(c)) {
        r = err_set(&e, -ESTALE, "stdin_not_open",
                    "the command reads no input: it has ended, closed it, or was started without "
                    "\"stdin\"");
    }
    if (r < 0) {
        request_reply_error(req, &e);
        return;
    }
    f = xnew(struct feeder);
    f->req = req;
    f->eof = eof;
    f->l = (struct command_listener){.fn = feeder_event, .arg = f, .writes = true};
    request_set_state(req, f, &callbacks);
    command_listen(c, &f->l);
    feeder_pump(f);
}
