/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/e2b/event.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/json.h"
#include "wire/connect.h"
#include "wire/frames.h"

#define FEED_MAX (64u * 1024)

void event_stream_init(struct event_stream *s)
{
    *s = (struct event_stream){
        .in = BUF_INIT(FRAME_PAYLOAD_MAX + FRAME_HEAD_LEN + FEED_MAX),
        .out = BUF_INIT(EVENT_OUT_MAX),
    };
}

void event_stream_done(struct event_stream *s)
{
    buf_done(&s->in);
    buf_done(&s->out);
}

static int add_text(struct event_stream *s, unsigned flags, const char *text)
{
    return connect_add(&s->out, flags, text, strlen(text));
}

static int add_json_take(struct event_stream *s, json_t *message_take)
{
    cleanup_json json_t *message = message_take;
    cleanup_free char *text = json_text(message);

    return add_text(s, 0, text);
}

int event_stream_start(struct event_stream *s, int64_t pid)
{
    return add_json_take(s, json_pack("{s:{s:{s:I}}}", "event", "start", "pid", (json_int_t)pid));
}

int event_stream_keepalive(struct event_stream *s)
{
    return add_text(s, 0, "{\"event\":{\"keepalive\":{}}}");
}

static int add_data(struct event_stream *s, const char *name, const struct frame *f)
{
    size_t at = 0;
    int r;

    if (f->len == 0) {
        return 0;
    }
    r = connect_begin(&s->out, &at);
    if (r == 0) {
        r = buf_printf(&s->out, "{\"event\":{\"data\":{\"%s\":\"", name);
    }
    if (r == 0) {
        r = base64_encode(f->payload, f->len, &s->out);
    }
    if (r == 0) {
        r = buf_add_str(&s->out, "\"}}}");
    }
    if (r == 0) {
        connect_finish(&s->out, at, 0);
    }
    return r;
}

/* As Go's os.Signal says it, which clients compare with: "killed", "segmentation fault", "signal 40". */
static void signal_text(const char *name, char *ret, size_t size)
{
    static const struct {
        const char *name;
        const char *text;
    } names[] = {
        {"HUP", "hangup"},
        {"INT", "interrupt"},
        {"QUIT", "quit"},
        {"ILL", "illegal instruction"},
        {"TRAP", "trace/breakpoint trap"},
        {"ABRT", "aborted"},
        {"BUS", "bus error"},
        {"FPE", "floating point exception"},
        {"KILL", "killed"},
        {"USR1", "user defined signal 1"},
        {"SEGV", "segmentation fault"},
        {"USR2", "user defined signal 2"},
        {"PIPE", "broken pipe"},
        {"ALRM", "alarm clock"},
        {"TERM", "terminated"},
        {"XCPU", "CPU time limit exceeded"},
        {"XFSZ", "file size limit exceeded"},
        {"SYS", "bad system call"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (str_eq(names[i].name, name)) {
            snprintf(ret, size, "signal: %s", names[i].text);
            return;
        }
    }
    snprintf(ret, size, "signal: SIG%.16s", name);
}

static json_t *end_of(json_t *command)
{
    const char *signal = json_get_string(command, "signal", NULL);
    const char *error = json_get_string(command, "error", NULL);
    int64_t code = json_get_int(command, "exit_code", 0);
    json_t *end = json_object();
    char text[64];

    if (signal) {
        signal_text(signal, text, sizeof(text));
        json_object_set_new(end, "exitCode", json_integer(-1));
        json_object_set_new(end, "status", json_string(text));
        json_object_set_new(end, "error", json_string(error ? error : text));
        return end;
    }
    snprintf(text, sizeof(text), "exit status %lld", (long long)code);
    json_object_set_new(end, "exited", json_true());
    json_object_set_new(end, "status", json_string(text));
    if (code != 0) {
        json_object_set_new(end, "exitCode", json_integer((json_int_t)(int32_t)code));
        json_object_set_new(end, "error", json_string(error ? error : text));
    }
    return end;
}

static int take_end(struct event_stream *s, const struct frame *f)
{
    static const char late[] =
        "{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"the process was ended: the time "
        "for it was over\"}}";
    cleanup_json json_t *command = NULL;
    int r;

    if (json_parse_untrusted(f->payload, f->len, &command, NULL) < 0) {
        return -EPROTO;
    }
    s->ended = true;
    if (json_get_bool(command, "timed_out", false)) {
        return add_text(s, CONNECT_END_STREAM, late);
    }
    r = add_json_take(s, json_pack("{s:{s:o}}", "event", "end", end_of(command)));
    return r < 0 ? r : add_text(s, CONNECT_END_STREAM, "{}");
}

static int take_start(struct event_stream *s, const struct frame *f)
{
    cleanup_json json_t *command = NULL;

    if (json_parse_untrusted(f->payload, f->len, &command, NULL) < 0) {
        return -EPROTO;
    }
    return event_stream_start(s, json_get_int(command, "pid", 0));
}

static int take_frame(struct event_stream *s, const struct frame *f)
{
    switch (f->type) {
    case FRAME_START:
        return take_start(s, f);
    case FRAME_STDOUT:
        return add_data(s, "stdout", f);
    case FRAME_STDERR:
        return add_data(s, "stderr", f);
    case FRAME_PTY:
        return add_data(s, "pty", f);
    case FRAME_END:
        return take_end(s, f);
    case FRAME_ERROR:
        return -ECONNRESET;
    case FRAME_GAP:
    case FRAME_KEEPALIVE:
        break;
    }
    return 0;
}

/* 1: it was the last one, and what comes after it does not matter. */
static int take_and_end(void *ctx, const struct frame *f)
{
    struct event_stream *s = ctx;
    int r = take_frame(s, f);

    return r == 0 && s->ended ? 1 : r;
}

int event_stream_feed(struct event_stream *s, const void *data, size_t len)
{
    int r;

    ASSERT(len <= FEED_MAX);
    r = buf_add(&s->in, data, len);
    if (r < 0 || s->ended) {
        return r;
    }
    r = frames_take(&s->in, take_and_end, s);
    return r < 0 ? r : 0;
}
