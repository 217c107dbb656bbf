/* SPDX-License-Identifier: Apache-2.0 */

/*
 * filesystem.Filesystem/WatchDir: our daemon's lines as envelopes. Lost events end the stream with an error, for a client
 * would not learn of them otherwise.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/e2b/change.h"
#include "gateway/e2b/entry.h"
#include "gateway/e2b/rpc.h"

#define LINES_MAX (256u * 1024)

struct watching {
    struct inside *in;      /* borrowed */
    struct http_call *call; /* borrowed */
    struct buf lines;       /* owned: what is not a whole line yet */
    bool entries;           /* events tell about the file, too */
    uint64_t keepalive_ms;
    uint64_t keepalive_ns;
    uint64_t deadline_ns;
};

static int send_it(struct watching *w, json_t *message_take, struct err *e)
{
    w->keepalive_ns = deadline_in_ms(w->keepalive_ms);
    return rpc_send_take(w->in, message_take, e);
}

/* What is gone again by now is told without its entry. */
static void add_entry(struct watching *w, const char *path, json_t *event)
{
    json_t *entry = NULL;

    if (w->entries && path && fs_entry(w->in, path, &entry, NULL) == 0) {
        json_object_set_new(event, "entry", entry);
    }
}

static int take_event(struct watching *w, json_t *line, struct err *e)
{
    struct fs_change changes[FS_CHANGES_MAX];
    int n;
    int r = 0;

    if (fs_change_is_ready(line)) {
        return send_it(w, json_pack("{s:{}}", "start"), e);
    }
    n = fs_changes_of(line, changes, e);
    for (int i = 0; i < n && r == 0; i++) {
        json_t *event = fs_change_event(&changes[i]);

        add_entry(w, changes[i].path, event);
        r = send_it(w, json_pack("{s:o}", "filesystem", event), e);
    }
    return n < 0 ? n : r;
}

static int take_lines(struct watching *w, struct err *e)
{
    char *end;
    int r = 0;

    while (r == 0 && w->lines.len > 0 && (end = memchr(w->lines.data, '\n', w->lines.len))) {
        size_t len = (size_t)(end - w->lines.data);
        cleanup_json json_t *line = NULL;

        if (json_parse_untrusted(w->lines.data, len, &line, NULL) < 0) {
            return err_set(e, -EPROTO, "bad_answer", "the sandbox's daemon sent what is no event");
        }
        r = take_event(w, line, e);
        buf_consume(&w->lines, len + 1);
    }
    return r;
}

static int wait_for_more(struct watching *w, struct err *e)
{
    struct pollfd fds[] = {http_call_pollfd(w->call), live_pollfd(w->in->live)};
    int n = poll(fds, ARRAY_SIZE(fds), deadline_poll_ms(MIN(w->keepalive_ns, w->deadline_ns)));

    if (n < 0 && errno != EINTR) {
        return err_wrap(e, -errno, "waiting for events");
    }
    if (n > 0 && fds[1].revents) {
        return err_set(e, live_is_cut(w->in->live) ? -ECONNRESET : -ECANCELED, "stream_cut",
                       "the sandbox or the client has gone");
    }
    if (deadline_passed(w->deadline_ns)) {
        return err_set(e, -ETIMEDOUT, "deadline_exceeded", "the time for the request was over");
    }
    return deadline_passed(w->keepalive_ns) ? send_it(w, json_pack("{s:{}}", "keepalive"), e) : 0;
}

static int read_some(struct watching *w, struct err *e)
{
    char data[65536];
    ssize_t n = http_call_try_read(w->call, data, sizeof(data), e);
    int r;

    if (n == -EAGAIN) {
        return wait_for_more(w, e);
    }
    if (n <= 0) {
        return n < 0 ? (int)n : 1; /* what was watched is gone */
    }
    r = buf_add(&w->lines, data, (size_t)n);
    return r < 0 ? err_set(e, -EPROTO, "bad_answer", "the sandbox's daemon sent too long a line")
                 : take_lines(w, e);
}

static int run(struct watching *w, struct err *e)
{
    struct err why = {0};
    int r = 0;

    while (r == 0) {
        r = read_some(w, &why);
    }
    if (r == 1) {
        return rpc_end(w->in, NULL, e);
    }
    if (r == -ETIMEDOUT || str_eq(why.reason, "events_lost")) {
        return rpc_end(w->in, &why, e);
    }
    http_reply_abort(w->in->req);
    if (e) {
        *e = why;
    }
    return r;
}

int fs_check_directory(struct inside *in, const char *path, struct err *e)
{
    cleanup_json json_t *entry = NULL;
    int r = fs_entry(in, path, &entry, e);
    const char *type = r == 0 ? json_get_string(entry, "type", "") : "";

    if (r == 0 && !str_eq(type, "FILE_TYPE_DIRECTORY")) {
        return err_field(e, -EINVAL, "not_a_directory", "path", "path %.300s is not a directory",
                         json_get_string(entry, "path", path));
    }
    if (r == -ENOENT && !str_eq(e->reason, "user_not_found")) {
        return err_field(e, -ENOENT, "not_found", "path", "path %.300s not found", path);
    }
    return r;
}

int e2b_fs_watch(struct inside *in, json_t *body, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct rpc_times times = rpc_times_of(in->req);
    struct watching w = {
        .in = in,
        .entries = rpc_bool(body, "includeEntry", "include_entry", false),
        .keepalive_ms = times.keepalive_ms,
        .keepalive_ns = deadline_in_ms(times.keepalive_ms),
        .deadline_ns = times.timeout_ms ? deadline_in_ms(times.timeout_ms) : DEADLINE_NEVER,
    };
    cleanup_free char *path = NULL;
    cleanup_free char *target = NULL;
    int r = inside_path(in, rpc_string(body, "path", NULL), &path, e);

    if (r == 0) {
        r = fs_check_directory(in, path, e);
    }
    if (r < 0) {
        return r;
    }
    target =
        inside_target(in, "/files/watch", "path", path, "user", in->user[0] ? in->user : NULL,
                      "recursive", rpc_bool(body, "recursive", NULL, false) ? "1" : NULL, NULL);
    r = inside_call(in, &(struct guest_call_opts){.method = "GET", .target = target}, &call, e);
    if (r == 0) {
        r = http_call_head(call, e);
    }
    if (r == 0) {
        r = http_call_check(call, e);
    }
    if (r == 0) {
        r = rpc_begin(in, e);
    }
    if (r == 0) {
        w.call = call;
        w.lines = BUF_INIT(LINES_MAX);
        r = run(&w, e);
        buf_done(&w.lines);
    }
    return r;
}
