/* SPDX-License-Identifier: Apache-2.0 */

/*
 * process.Process, but for its streams of output (stream.c). Clients name a process by its pid or their tag; for our
 * daemon it is a command with an id, looked up in its list. Of those with the same pid or tag the newest is meant.
 */
#include "gateway/e2b/process.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"

/* --- which one --- */

struct selector {
    uint64_t pid;    /* 0: by tag */
    const char *tag; /* borrowed */
};

static int read_selector(json_t *message, struct selector *ret, struct err *e)
{
    json_t *process = rpc_field(message, "process", NULL);

    *ret = (struct selector){rpc_uint(process, "pid"), rpc_string(process, "tag", NULL)};
    if (ret->pid == 0 && ret->tag[0] == '\0') {
        return err_field(e, -EINVAL, "invalid_field", "process",
                         "'process' must hold a pid or a tag");
    }
    return 0;
}

static bool selects(const struct selector *s, json_t *command)
{
    if (s->pid > 0) {
        return json_get_int(command, "pid", 0) == (int64_t)s->pid;
    }
    return str_eq(json_get_string(command, "tag", ""), s->tag);
}

static int list_commands(struct inside *in, json_t **ret, struct err *e)
{
    cleanup_free char *target = inside_target(in, "/commands", NULL);

    return inside_json(in, &(struct inside_ask){.method = "GET", .target = target}, ret, e);
}

static bool is_running(json_t *command)
{
    return str_eq(json_get_string(command, "state", ""), "running");
}

int process_find(struct inside *in, json_t *message, enum process_want want, struct process *ret,
                 struct err *e)
{
    cleanup_json json_t *answer = NULL;
    struct selector s;
    json_t *command;
    json_t *found = NULL;
    size_t i;
    int r = read_selector(message, &s, e);

    if (r == 0) {
        r = list_commands(in, &answer, e);
    }
    if (r < 0) {
        return r;
    }
    json_array_foreach(json_object_get(answer, "commands"), i, command)
    {
        if (selects(&s, command) && (want == PROCESS_ANY || is_running(command)) &&
            id_valid(ID_COMMAND, json_get_string(command, "id", ""))) {
            found = command; /* the list is from old to new */
        }
    }
    if (!found) {
        return s.pid > 0
                   ? err_set(e, -ENOENT, "not_found", "process with pid %llu not found",
                             (unsigned long long)s.pid)
                   : err_set(e, -ENOENT, "not_found", "process with tag '%.128s' not found", s.tag);
    }
    *ret = (struct process){
        .pid = json_get_int(found, "pid", 0),
        .pty = json_get_bool(found, "pty", false),
        .output_bytes = json_get_int(found, "output_bytes", 0),
        .ended_at_ms = json_get_int(found, "ended_at_ms", 0),
    };
    snprintf(ret->id, sizeof(ret->id), "%s", json_get_string(found, "id", ""));
    return 0;
}

/* --- calls --- */

static json_t *show_process(json_t *command)
{
    json_t *argv = json_object_get(command, "argv");
    const char *tag = json_get_string(command, "tag", NULL);
    const char *cwd = json_get_string(command, "cwd", NULL);
    json_t *args = json_array();
    json_t *config = json_pack(
        "{s:s, s:o}", "cmd",
        json_is_string(json_array_get(argv, 0)) ? json_string_value(json_array_get(argv, 0)) : "",
        "args", args);
    json_t *shown = json_pack("{s:o, s:I}", "config", config, "pid",
                              (json_int_t)json_get_int(command, "pid", 0));

    for (size_t i = 1; i < json_array_size(argv); i++) {
        json_array_append(args, json_array_get(argv, i));
    }
    if (cwd) {
        json_object_set_new(config, "cwd", json_string(cwd));
    }
    if (tag) {
        json_object_set_new(shown, "tag", json_string(tag));
    }
    return shown;
}

int e2b_process_list(struct inside *in, json_t *body, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    json_t *processes;
    json_t *command;
    size_t i;
    int r = list_commands(in, &answer, e);

    (void)body;
    if (r < 0) {
        return r;
    }
    processes = json_array();
    json_array_foreach(json_object_get(answer, "commands"), i, command)
    {
        if (is_running(command)) {
            json_array_append_new(processes, show_process(command));
        }
    }
    return rpc_reply_take(in, json_pack("{s:o}", "processes", processes), e);
}

/* POST to the command; what the daemon answers is of no use to clients. */
static int post(struct inside *in, const struct process *p, const char *action, const json_t *body,
                struct err *e)
{
    cleanup_free char *path = xasprintf("/commands/%s/%s", p->id, action);
    cleanup_free char *target = inside_target(in, path, NULL);

    return inside_json(in, &(struct inside_ask){.method = "POST", .target = target, .body = body},
                       NULL, e);
}

static int write_input(struct inside *in, const struct process *p, const struct buf *bytes,
                       bool eof, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *path = xasprintf("/commands/%s/stdin", p->id);
    cleanup_free char *target = inside_target(in, path, "eof", eof ? "1" : NULL, NULL);
    struct guest_call_opts opts = {
        .method = "POST",
        .target = target,
        .content_type = "application/octet-stream",
        .body = bytes ? bytes->data : NULL,
        .body_len = bytes ? (int64_t)bytes->len : 0,
    };
    int r = inside_call(in, &opts, &call, e);

    if (r == 0) {
        r = http_call_head(call, e);
    }
    return r < 0 ? r : http_call_check(call, e);
}

/* {"stdin":BASE64} or {"pty":BASE64}; what it is for must be what the process has. */
static int read_input(json_t *input, const struct process *p, struct buf *ret, struct err *e)
{
    const char *own = p->pty ? "pty" : "stdin";
    json_t *data = rpc_field(input, own, NULL);

    if (!data && rpc_field(input, p->pty ? "stdin" : "pty", NULL)) {
        return err_field(e, -EINVAL, "invalid_field", "input",
                         p->pty ? "the process has a terminal: write to its 'pty'"
                                : "the process has no terminal: write to its 'stdin'");
    }
    if (!json_is_string(data) ||
        base64_decode(json_string_value(data), json_string_length(data), ret) < 0) {
        return err_field(e, -EINVAL, "invalid_field", "input", "'input' must hold base64");
    }
    return 0;
}

/* The daemon says so of what has ended or was never open. */
static bool is_conflict(int r, const struct err *e)
{
    return r < 0 && err_http_status(e) == 409;
}

/* Of a process that never had, or has no longer, an open standard input. */
static int input_error(int r, struct err *e)
{
    return is_conflict(r, e)
               ? err_set(e, -EIO, "no_stdin", "the standard input of the process is not open")
               : r;
}

int e2b_process_send_input(struct inside *in, json_t *body, struct err *e)
{
    cleanup_buf struct buf bytes = BUF_INIT(RPC_MESSAGE_MAX);
    struct process p;
    int r = process_find(in, body, PROCESS_RUNNING, &p, e);

    if (r == 0) {
        r = read_input(rpc_field(body, "input", NULL), &p, &bytes, e);
    }
    if (r == 0 && bytes.len > 0) {
        r = input_error(write_input(in, &p, &bytes, /* eof */ false, e), e);
    }
    return r < 0 ? r : rpc_reply_take(in, json_object(), e);
}

int e2b_process_close_stdin(struct inside *in, json_t *body, struct err *e)
{
    struct process p;
    int r = process_find(in, body, PROCESS_RUNNING, &p, e);

    if (r == 0 && p.pty) {
        return err_set(e, -EINVAL, "no_stdin",
                       "a terminal's input cannot be closed: send it Ctrl-D");
    }
    if (r == 0) {
        r = write_input(in, &p, NULL, /* eof */ true, e);
        r = is_conflict(r, e) ? 0 : r; /* closed already */
    }
    return r < 0 ? r : rpc_reply_take(in, json_object(), e);
}

int e2b_process_send_signal(struct inside *in, json_t *body, struct err *e)
{
    json_t *signal = rpc_field(body, "signal", NULL);
    cleanup_json json_t *message = json_object();
    struct process p;
    bool kill = (json_is_string(signal) && str_eq(json_string_value(signal), "SIGNAL_SIGKILL")) ||
                json_integer_value(signal) == 9;
    bool term = (json_is_string(signal) && str_eq(json_string_value(signal), "SIGNAL_SIGTERM")) ||
                json_integer_value(signal) == 15;
    int r;

    if (!kill && !term) {
        return err_field(e, -EINVAL, "invalid_field", "signal",
                         "'signal' must be SIGNAL_SIGKILL or SIGNAL_SIGTERM");
    }
    r = process_find(in, body, PROCESS_RUNNING, &p, e);
    if (r < 0) {
        return r;
    }
    json_object_set_new(message, "signal", json_string(kill ? "KILL" : "TERM"));
    r = post(in, &p, "signal", message, e);
    if (is_conflict(r, e)) { /* it has ended in between */
        return err_set(e, -ENOENT, "not_found", "process with pid %lld not found",
                       (long long)p.pid);
    }
    return r < 0 ? r : rpc_reply_take(in, json_object(), e);
}

int e2b_process_update(struct inside *in, json_t *body, struct err *e)
{
    json_t *pty = rpc_field(body, "pty", NULL);
    cleanup_json json_t *message = NULL;
    struct process p;
    int r = process_find(in, body, PROCESS_RUNNING, &p, e);

    if (r < 0) {
        return r;
    }
    if (pty) {
        message = process_pty(pty);
        r = post(in, &p, "resize", message, e);
    }
    return r < 0 ? r : rpc_reply_take(in, json_object(), e);
}

json_t *process_pty(json_t *pty)
{
    json_t *size = rpc_field(pty, "size", NULL);
    uint64_t rows = rpc_uint(size, "rows");
    uint64_t cols = rpc_uint(size, "cols");

    return json_pack("{s:I, s:I}", "rows",
                     (json_int_t)(rows ? MIN(rows, (uint64_t)UINT16_MAX) : 24), "cols",
                     (json_int_t)(cols ? MIN(cols, (uint64_t)UINT16_MAX) : 80));
}

/* --- StreamInput --- */

struct input_stream {
    struct inside *in; /* borrowed */
    struct buf bytes;  /* not yet parsed */
    struct process to; /* once the first message has come */
    bool started;
};

static int take_input(struct input_stream *s, json_t *message, struct err *e)
{
    cleanup_buf struct buf bytes = BUF_INIT(RPC_MESSAGE_MAX);
    json_t *start = rpc_field(message, "start", NULL);
    json_t *data = rpc_field(message, "data", NULL);
    int r;

    if (start) {
        s->started = true;
        return process_find(s->in, start, PROCESS_RUNNING, &s->to, e);
    }
    if (!data) {
        return 0; /* a keepalive */
    }
    if (!s->started) {
        return err_set(e, -EINVAL, "invalid_message", "the first message must be 'start'");
    }
    r = read_input(rpc_field(data, "input", NULL), &s->to, &bytes, e);
    return r < 0 || bytes.len == 0 ? r
                                   : input_error(write_input(s->in, &s->to, &bytes, false, e), e);
}

/* 1: the client has said that it is over. */
static int take_envelopes(struct input_stream *s, struct err *e)
{
    struct connect_envelope env;
    size_t used = 0;
    int r;

    while ((r = connect_parse(buf_str(&s->bytes), s->bytes.len, RPC_MESSAGE_MAX, &env, &used)) ==
           0) {
        cleanup_json json_t *message = NULL;

        if (env.flags & CONNECT_END_STREAM) {
            return 1;
        }
        if (json_parse_untrusted(env.payload, env.len, &message, NULL) < 0) {
            return err_set(e, -EINVAL, "invalid_json", "a message is no JSON object");
        }
        r = take_input(s, message, e);
        if (r < 0) {
            return r;
        }
        buf_consume(&s->bytes, used);
    }
    return r == -EAGAIN ? 0 : err_set(e, -EINVAL, "invalid_envelope", "this is no envelope");
}

static int read_stream(struct input_stream *s, struct err *e)
{
    char data[65536];
    ssize_t n;
    int r = 0;

    while (r == 0 && (n = http_body_read(s->in->req, data, sizeof(data), e)) != 0) {
        if (n < 0) {
            return (int)n;
        }
        r = buf_add(&s->bytes, data, (size_t)n);
        r = r < 0 ? err_wrap(e, r, "reading a message") : take_envelopes(s, e);
    }
    return r < 0 ? r : 0;
}

int e2b_process_stream_input(struct inside *in, json_t *body, struct err *e)
{
    struct input_stream s = {.in = in,
                             .bytes = BUF_INIT(RPC_MESSAGE_MAX + CONNECT_HEAD_LEN + 65536u)};
    int r;

    (void)body;
    http_body_limit(in->req, UINT64_MAX);
    r = read_stream(&s, e);
    buf_done(&s.bytes);
    if (r == 0) {
        r = rpc_begin(in, e);
    }
    if (r == 0) {
        r = rpc_send_take(in, json_object(), e);
    }
    return r < 0 ? r : rpc_end(in, NULL, e);
}
