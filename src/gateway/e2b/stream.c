/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Process.Start and Process.Connect. The daemon's frames come in, envelopes go out (event.h), in the request's thread.
 *
 * The stream ends with the process, whatever it has left running. It breaks, without any end, when the sandbox is paused
 * or killed. A client that goes away leaves the process running. Connect-Timeout-Ms kills what was started with it; one that
 * was only connected to it lets go.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/e2b/event.h"
#include "gateway/e2b/process.h"

/* How long a process that has ended can still be connected to. */
#define ENDED_KEPT_MS 30000

struct pump {
    struct inside *in;      /* borrowed */
    struct http_call *call; /* borrowed */
    struct event_stream events;
    uint64_t keepalive_ms;
    uint64_t keepalive_ns;
    uint64_t deadline_ns;
};

static int flush(struct pump *p, struct err *e)
{
    int r = 0;

    if (p->events.out.len > 0) {
        r = http_write(p->in->req, p->events.out.data, p->events.out.len, e);
        buf_reset(&p->events.out);
        p->keepalive_ns = deadline_in_ms(p->keepalive_ms);
    }
    return r;
}

static int broken(struct err *e)
{
    return err_set(e, -ECONNRESET, "stream_cut", "the connection to the sandbox broke");
}

/* 1: something came; 0: nothing is there now. */
static int read_some(struct pump *p, struct err *e)
{
    char data[65536];
    ssize_t n = http_call_try_read(p->call, data, sizeof(data), e);
    int r;

    if (n == -EAGAIN) {
        return 0;
    }
    if (n <= 0) {
        return n < 0 ? (int)n : broken(e); /* its end would have come as a frame */
    }
    r = event_stream_feed(&p->events, data, (size_t)n);
    if (r < 0) {
        return r == -ECONNRESET ? broken(e)
                                : err_set(e, r, "bad_answer",
                                          "the sandbox's daemon sent what is no stream of frames");
    }
    r = flush(p, e);
    return r < 0 ? r : 1;
}

static int wait_for_more(struct pump *p, struct err *e)
{
    struct pollfd fds[] = {http_call_pollfd(p->call), live_pollfd(p->in->live)};
    int n = poll(fds, ARRAY_SIZE(fds), deadline_poll_ms(MIN(p->keepalive_ns, p->deadline_ns)));

    if (n < 0 && errno != EINTR) {
        return err_wrap(e, -errno, "waiting for output");
    }
    if (n > 0 && fds[1].revents) {
        return live_is_cut(p->in->live)
                   ? broken(e)
                   : err_set(e, -ECANCELED, "client_gone", "the client has gone");
    }
    if (deadline_passed(p->deadline_ns)) {
        return err_set(e, -ETIMEDOUT, "deadline_exceeded", "the time for the request was over");
    }
    if (deadline_passed(p->keepalive_ns)) {
        n = event_stream_keepalive(&p->events);
        return n < 0 ? err_wrap(e, n, "keeping the stream alive") : flush(p, e);
    }
    return 0;
}

static int pump_all(struct pump *p, struct err *e)
{
    struct err why = {0};
    int r = flush(p, &why);

    while (r >= 0 && !p->events.ended) {
        r = read_some(p, &why);
        if (r == 0) {
            r = wait_for_more(p, &why);
        }
    }
    if (r >= 0) {
        return http_end(p->in->req, e);
    }
    if (str_eq(why.reason, "deadline_exceeded")) {
        return rpc_end(p->in, &why, e);
    }
    http_reply_abort(p->in->req); /* so that nobody takes it for an end */
    if (e) {
        *e = why;
    }
    return r;
}

/* The answer has begun well: pass it on. */
static int pass_on(struct inside *in, struct http_call *call, const struct process *connected,
                   struct err *e)
{
    struct rpc_times times = rpc_times_of(in->req);
    struct pump p = {
        .in = in, .call = call, .keepalive_ms = times.keepalive_ms, .deadline_ns = DEADLINE_NEVER};
    int r = 0;

    event_stream_init(&p.events);
    p.keepalive_ns = deadline_in_ms(p.keepalive_ms);
    if (connected) {
        r = event_stream_start(&p.events, connected->pid);
        p.deadline_ns = times.timeout_ms ? deadline_in_ms(times.timeout_ms) : DEADLINE_NEVER;
    }
    if (r == 0) {
        r = rpc_begin(in, e);
    }
    if (r == 0) {
        r = pump_all(&p, e);
    }
    event_stream_done(&p.events);
    return r;
}

/* --- Start --- */

static int argv_of(json_t *config, json_t **ret, struct err *e)
{
    const char *cmd = rpc_string(config, "cmd", NULL);
    cleanup_json json_t *argv = json_pack("[s]", cmd);
    json_t *arg;
    size_t i;

    if (!cmd[0]) {
        return err_field(e, -EINVAL, "invalid_field", "process", "'process.cmd' is missing");
    }
    json_array_foreach(rpc_field(config, "args", NULL), i, arg)
    {
        if (!json_is_string(arg)) {
            return err_field(e, -EINVAL, "invalid_field", "process",
                             "'process.args' must hold strings");
        }
        json_array_append(argv, arg);
    }
    *ret = json_incref(argv);
    return 0;
}

/* What E2B's sandboxes have in theirs, and then what the client wants. */
static json_t *env_of(const struct inside *in, json_t *config)
{
    json_t *env = json_pack("{s:s, s:s, s:s}", "E2B_SANDBOX", "true", "E2B_SANDBOX_ID", in->sb.id,
                            "E2B_TEMPLATE_ID", e2b_box_template(&in->sb, &in->box));
    json_t *envs = rpc_field(config, "envs", NULL);

    if (json_is_object(envs)) {
        json_object_update(env, envs); /* the daemon checks them */
    }
    return env;
}

static void set_text(json_t *body, const char *name, const char *text)
{
    if (text[0]) {
        json_object_set_new(body, name, json_string(text));
    }
}

/* The daemon's body for a StartRequest; the caller ends it with json_decref(). */
static int command_of(struct inside *in, json_t *message, json_t **ret, struct err *e)
{
    json_t *config = rpc_field(message, "process", NULL);
    json_t *pty = rpc_field(message, "pty", NULL);
    cleanup_json json_t *argv = NULL;
    cleanup_free char *cwd = NULL;
    json_t *body;
    int r = argv_of(config, &argv, e);

    if (r == 0 && rpc_string(config, "cwd", NULL)[0]) {
        r = inside_path(in, rpc_string(config, "cwd", NULL), &cwd, e);
    } else if (r == 0 && in->box.workdir[0]) {
        cwd = xstrdup(in->box.workdir);
    }
    if (r < 0) {
        return r;
    }
    body = json_pack("{s:O, s:o, s:b, s:I}", "argv", argv, "env", env_of(in, config), "stdin",
                     rpc_bool(message, "stdin", NULL, true), "timeout_ms",
                     (json_int_t)rpc_times_of(in->req).timeout_ms);
    ASSERT(body);
    set_text(body, "cwd", cwd ? cwd : "");
    set_text(body, "user", in->user);
    set_text(body, "tag", rpc_string(message, "tag", NULL));
    if (pty) {
        json_object_set_new(body, "pty", process_pty(pty));
    }
    *ret = body;
    return 0;
}

int e2b_process_start(struct inside *in, json_t *body, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *target = inside_target(in, "/commands", "stream", "1", NULL);
    cleanup_json json_t *command = NULL;
    cleanup_free char *text = NULL;
    struct guest_call_opts opts = {
        .method = "POST", .target = target, .content_type = "application/json"};
    int r = command_of(in, body, &command, e);

    if (r < 0) {
        return r;
    }
    text = json_text(command);
    opts.body = text;
    opts.body_len = (int64_t)strlen(text);
    r = inside_call(in, &opts, &call, e);
    if (r == 0) {
        r = http_call_head(call, e);
    }
    if (r == 0) {
        r = http_call_check(call, e);
    }
    return r < 0 ? r : pass_on(in, call, /* connected */ NULL, e);
}

/* --- Connect: what comes from now on --- */

int e2b_process_connect(struct inside *in, json_t *body, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *path = NULL;
    cleanup_free char *target = NULL;
    char offset[24];
    struct process p;
    int r = process_find(in, body, PROCESS_ANY, &p, e);

    if (r < 0) {
        return r;
    }
    if (p.ended_at_ms && (int64_t)clock_wall_ms() - p.ended_at_ms > ENDED_KEPT_MS) {
        return err_set(e, -ENOENT, "not_found", "process with pid %lld not found",
                       (long long)p.pid);
    }
    snprintf(offset, sizeof(offset), "%lld", (long long)p.output_bytes);
    path = xasprintf("/commands/%s/output", p.id);
    target = inside_target(in, path, "offset", offset, "follow", "1", NULL);
    r = inside_call(in, &(struct guest_call_opts){.method = "GET", .target = target}, &call, e);
    if (r == 0) {
        r = http_call_head(call, e);
    }
    if (r == 0) {
        r = http_call_check(call, e);
    }
    return r < 0 ? r : pass_on(in, call, &p, e);
}
