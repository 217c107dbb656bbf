/* SPDX-License-Identifier: Apache-2.0 */

/*
 * POST /v1/sandboxes/{id}/run: a command from start to end in one answer, for people with curl.
 *
 * The command is started with a streamed answer; stdin goes in on a second call from a thread of its own,
 * because a program may write more than fits anywhere before it has read all of its input.
 * When the client goes away the command is killed. The command stays in the list of ended ones.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base64.h"
#include "gateway/bodies.h"
#include "gateway/frames.h"
#include "gateway/guest.h"
#include "model/json-text.h"

struct capture {
    struct buf bytes;
    bool truncated;
};

struct run {
    struct run_body body;     /* owned */
    char id[ID_SIZE];         /* the sandbox */
    char cid[ID_SIZE];        /* the command, once it has started */
    struct capture output;    /* owned */
    struct capture errors;    /* owned */
    json_t *end;              /* owned: the command object at its end */
    struct http_client *http; /* borrowed: the node's */
    pthread_t feeder;
    bool feeding;
    int stop_fd; /* owned: tells the feeder that nobody reads any more */
};

static void run_done(struct run *run)
{
    if (run->feeding) {
        IGNORE_RESULT(eventfd_write(run->stop_fd, 1)); /* a counter of 0 takes 1 */
        pthread_join(run->feeder, NULL);
    }
    fd_close(run->stop_fd);
    run_body_done(&run->body);
    buf_done(&run->output.bytes);
    buf_done(&run->errors.bytes);
    json_decref(run->end);
}

/* Failure is not an error of the run: a program need not read its input, and may be gone already. */
static void *feed(void *arg)
{
    struct run *run = arg;
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct pollfd stop = {.fd = run->stop_fd, .events = POLLIN};
    char target[128];
    struct http_call_opts opts = {
        .method = "POST",
        .target = target,
        .body_length = (int64_t)run->body.input_len,
        .content_type = "application/octet-stream",
        .watch = &stop,
    };
    int r;

    snprintf(target, sizeof(target), "/v1/sandboxes/%s/guest/commands/%s/stdin?eof=1", run->id,
             run->cid);
    r = http_call_new(run->http, &opts, &call, NULL);
    if (r == 0 && run->body.input_len > 0) {
        r = http_call_write(call, run->body.input, run->body.input_len, NULL);
    }
    if (r == 0 && run->body.input_len > 0) {
        r = http_call_end(call, NULL);
    }
    if (r == 0) {
        IGNORE_RESULT(http_call_head(call, NULL)); /* see above */
    }
    return NULL;
}

static int start_feeding(struct run *run, struct err *e)
{
    int r;

    if (!run->body.input || run->feeding) {
        return 0;
    }
    r = pthread_create(&run->feeder, NULL, feed, run);
    if (r != 0) {
        return err_wrap(e, -r, "starting a thread for stdin");
    }
    run->feeding = true;
    return 0;
}

static void take_output(struct capture *c, const struct frame *f)
{
    size_t room = c->bytes.max - c->bytes.len;
    int r = buf_add(&c->bytes, f->payload, MIN(room, f->len));

    ASSERT(r == 0);
    c->truncated = c->truncated || f->len > room;
}

static int take_start(struct run *run, const struct frame *f, struct err *e)
{
    cleanup_json json_t *command = NULL;
    const char *cid;

    if (json_parse_untrusted(f->payload, f->len, &command, NULL) < 0) {
        return frames_bad(e);
    }
    cid = json_get_string(command, "id", "");
    if (!id_valid(ID_COMMAND, cid)) {
        return frames_bad(e);
    }
    snprintf(run->cid, sizeof(run->cid), "%s", cid);
    return start_feeding(run, e);
}

/* 1: that was the last frame. */
static int take_frame(void *ctx, const struct frame *f, struct err *e)
{
    struct run *run = ctx;

    switch (f->type) {
    case FRAME_START:
        return take_start(run, f, e);
    case FRAME_STDOUT:
        take_output(&run->output, f);
        return 0;
    case FRAME_STDERR:
        take_output(&run->errors, f);
        return 0;
    case FRAME_GAP:
        run->output.truncated = true;
        return 0;
    case FRAME_END:
        return json_parse_untrusted(f->payload, f->len, &run->end, NULL) < 0 ? frames_bad(e) : 1;
    case FRAME_ERROR:
        return frames_error(f, e);
    case FRAME_PTY:
    case FRAME_KEEPALIVE:
        return 0;
    }
    return frames_bad(e);
}

/* Text when it is text, else base64. What was cut by our limit may end in half a character: drop that half. */
static int print_capture(struct buf *out, const char *name, const struct capture *c)
{
    size_t valid = utf8_valid_prefix(buf_str(&c->bytes), c->bytes.len);
    int r;

    if (valid == c->bytes.len || (c->truncated && c->bytes.len - valid < 4)) {
        r = buf_printf(out, ",\"%s\":", name);
        return r < 0 ? r : json_text_bytes(out, buf_str(&c->bytes), valid);
    }
    r = buf_printf(out, ",\"%s_base64\":\"", name);
    if (r == 0) {
        r = base64_encode(c->bytes.data, c->bytes.len, out);
    }
    return r < 0 ? r : buf_add_str(out, "\"");
}

/* A field of the command object as it is, null when absent. */
static int print_field(struct buf *out, json_t *end, const char *name)
{
    json_t *value = json_object_get(end, name);
    int r = buf_printf(out, ",\"%s\":", name);

    if (r < 0) {
        return r;
    }
    return value ? json_write(value, out) : buf_add_str(out, "null");
}

static int reply_run(struct http_request *req, const struct run *run, struct err *e)
{
    static const char *const fields[] = {"exit_code",   "signal",      "timed_out",
                                         "oom_killed",  "error",       "started_at_ms",
                                         "ended_at_ms", "output_bytes"};
    cleanup_buf struct buf out =
        BUF_INIT(GATEWAY_ANSWER_MAX * 4u); /* every byte escaped, both streams */
    bool truncated = run->output.truncated || run->errors.truncated;
    int r;

    r = buf_printf(&out, "{\"id\":\"%s\"", run->cid);
    for (size_t i = 0; i < ARRAY_SIZE(fields) && r == 0; i++) {
        r = print_field(&out, run->end, fields[i]);
    }
    if (r == 0) {
        r = print_capture(&out, "stdout", &run->output);
    }
    if (r == 0) {
        r = print_capture(&out, "stderr", &run->errors);
    }
    if (r == 0) {
        r = buf_printf(&out, ",\"truncated\":%s}", truncated ? "true" : "false");
    }
    return r < 0 ? err_wrap(e, r, "showing the result") : reply_text(req, 200, &out, e);
}

static int start_command(struct http_request *req, struct run *run, struct http_call **ret,
                         struct err *e)
{
    cleanup_free char *body = json_text(run->body.command);
    char target[128];
    int r;

    snprintf(target, sizeof(target),
             "/v1/sandboxes/%s/guest/commands?stream=1&kill_on_disconnect=1", run->id);
    r = guest_call(req,
                   &(struct guest_call_opts){.method = "POST",
                                             .target = target,
                                             .content_type = "application/json",
                                             .body = body,
                                             .body_len = (int64_t)strlen(body)},
                   ret, e);
    if (r == 0) {
        r = http_call_head(*ret, e);
    }
    return r < 0 ? r : http_call_check(*ret, e);
}

int run_handler(struct http_request *req, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    CLEANUP(run_done)
    struct run run = {.stop_fd = FD_NONE};
    cleanup_json json_t *body = NULL;
    int r;

    r = require_running(req, run.id, e);
    run.http = request_node(req);
    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = run_body_from_json(body, &run.body, e);
    }
    if (r < 0) {
        return r;
    }
    run.output.bytes = BUF_INIT((size_t)run.body.max_output_bytes);
    run.errors.bytes = BUF_INIT((size_t)run.body.max_output_bytes);
    run.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (run.stop_fd < 0) {
        return err_wrap(e, -errno, "making an event");
    }
    r = start_command(req, &run, &call, e);
    if (r == 0) {
        r = frames_follow(call, take_frame, &run, e);
    }
    return r < 0 ? r : reply_run(req, &run, e);
}
