/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-routes.h"

#include "base/json.h"
#include "daemon/file-job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define READ_PIECE ((size_t)256 * 1024)
/*
 * Uploads are handed on in pieces of half of what the body's buffer holds: each piece costs two
 * changes between processes, which are dear under emulation, and the other half keeps the sender
 * busy meanwhile. Without a content-length nobody knows which piece is the last: then as it comes.
 */
#define UPLOAD_PIECE ((size_t)REQUEST_BODY_BUFFER / 2)

struct exchange {
    struct request *req;  /* borrowed: until on_close */
    struct file_job *job; /* borrowed; NULL once it has ended */
    enum file_op op;
    struct buf pending; /* of a JSON body: what the channel had no room for */
    bool started;       /* upload: the worker takes bytes */
    bool committed;
    int64_t n_left; /* upload: bytes still to be handed on; -1: nobody knows */
};

static const char *query_of(const void *arg, const char *name)
{
    return request_query(arg, name);
}

/* ---- from the job to the answer ---- */

static void begin_content(struct exchange *x, const struct file_head *h)
{
    struct request_header headers[6];
    char length[24];
    char mode[8];
    char mtime[24];
    char range[80];
    size_t n = 0;
    bool part = h->flags & FILE_HEAD_RANGE;

    snprintf(mode, sizeof(mode), "%04o", h->mode);
    snprintf(mtime, sizeof(mtime), "%" PRId64, h->mtime_ms);
    headers[n++] = (struct request_header){"x-space-mode", mode};
    headers[n++] = (struct request_header){"x-space-mtime-ms", mtime};
    headers[n++] = (struct request_header){"x-space-owner", h->owner};
    if (h->flags & FILE_HEAD_LENGTH) {
        snprintf(length, sizeof(length), "%" PRIu64, h->length);
        headers[n++] = (struct request_header){"content-length", length};
        headers[n++] = (struct request_header){"accept-ranges", "bytes"};
    }
    if (part) {
        snprintf(range, sizeof(range), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, h->range_start,
                 h->range_start + h->length - 1, h->total);
        headers[n++] = (struct request_header){"content-range", range};
    }
    request_begin(x->req, part ? 206 : 200, "application/octet-stream", headers, n);
}

static void on_head(void *arg, const struct file_head *h)
{
    struct exchange *x = arg;
    struct request_header length = {"content-length", NULL};
    char text[24];

    if (h->flags & FILE_HEAD_CONTENT) {
        begin_content(x, h);
        return;
    }
    if (h->flags & FILE_HEAD_STREAM) {
        request_begin(x->req, 200, "application/x-ndjson", /* headers */ NULL, 0);
        return;
    }
    snprintf(text, sizeof(text), "%" PRIu64, h->length);
    length.value = text;
    request_begin(x->req, h->flags & FILE_HEAD_CREATED ? 201 : 200, "application/json", &length, 1);
}

static void on_body(void *arg, const void *data, size_t len)
{
    struct exchange *x = arg;
    size_t n = request_write(x->req, data, len);

    if (n < len) { /* on_writable follows; until then nothing more comes */
        file_job_pause(x->job, true);
        IGNORE_RESULT(
            buf_add(&x->pending, (const char *)data + n, len - n)); /* a packet always fits */
    }
}

static void on_content(void *arg)
{
    struct exchange *x = arg;
    size_t room = 0;
    void *to = request_write_reserve(x->req, READ_PIECE, &room);
    size_t n;

    if (room == 0) {
        file_job_pause(x->job, true);
        return;
    }
    n = file_job_read(x->job, to, room);
    if (n > 0) {
        request_write_commit(x->req, n);
    }
}

static void reply_no_range(struct request *req, const struct err *e)
{
    cleanup_json json_t *json = json_error_object(e);
    cleanup_free char *text = json_text(json);

    request_begin(req, 416, "application/json", /* headers */ NULL, 0);
    request_write(req, text, strlen(text)); /* an error always fits */
    request_end(req);
}

static void reply_error(struct request *req, const struct err *e)
{
    if (str_eq(e->reason, "range_not_satisfiable")) {
        reply_no_range(req, e);
    } else {
        request_reply_error(req, e);
    }
}

static void on_end(void *arg, const struct err *e)
{
    struct exchange *x = arg;

    x->job = NULL;
    if (!e) {
        request_end(x->req);
    } else if (request_begun(x->req)) {
        request_abort(x->req);
    } else {
        reply_error(x->req, e);
    }
}

/* ---- from the request to the job ---- */

static void pump_upload(struct exchange *x)
{
    size_t len = 0;
    const void *data;

    if (!x->job || !x->started || x->committed) {
        return;
    }
    while ((data = request_body_peek(x->req, &len)) && len > 0) {
        if (x->n_left >= 0 && len < MIN(UPLOAD_PIECE, (size_t)x->n_left)) {
            return; /* on_readable follows */
        }
        size_t n = file_job_write(x->job, data, len);

        request_body_consume(x->req, n);
        x->n_left -= x->n_left >= 0 ? (int64_t)n : 0;
        if (n < len) {
            return; /* on_room follows */
        }
    }
    if (request_body_ended(x->req)) {
        x->committed = true;
        file_job_commit(x->job);
    }
}

static void on_room(void *arg)
{
    struct exchange *x = arg;

    x->started = true;
    pump_upload(x);
}

static void on_readable(struct request *req)
{
    pump_upload(request_state(req));
}

static void on_writable(struct request *req)
{
    struct exchange *x = request_state(req);
    size_t n = request_write(req, x->pending.data, x->pending.len);

    buf_consume(&x->pending, n);
    if (x->pending.len == 0 && x->job) {
        file_job_pause(x->job, false);
    }
}

static void on_close(struct request *req)
{
    struct exchange *x = request_state(req);

    if (x->job) {
        file_job_cancel(x->job);
    }
    buf_done(&x->pending);
    free(x);
}

static const struct file_job_events events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_content = on_content,
    .on_room = on_room,
    .on_end = on_end,
};

static void start(struct request *req, struct file_request *what)
{
    static const struct request_callbacks plain = {.on_writable = on_writable,
                                                   .on_close = on_close};
    static const struct request_callbacks upload = {
        .on_readable = on_readable, .on_writable = on_writable, .on_close = on_close};
    struct exchange *x = xnew(struct exchange);
    struct err e = {0};
    int r;

    x->req = req;
    x->op = what->op;
    x->pending = BUF_INIT(FILE_BODY_CHUNK);
    x->n_left = request_body_length(req);
    request_set_state(req, x, x->op == FILE_OP_WRITE ? &upload : &plain);
    r = file_job_start_take(module_state(request_daemon(req), &file_module), what, &events, x,
                            &x->job, &e);
    if (r < 0) {
        reply_error(req, &e);
    }
}

static void handle_query(struct request *req, enum file_op op)
{
    struct file_request what = {.mode = -1};
    struct err e = {0};

    if (file_request_from_query(op, query_of, req, &what, &e) < 0) {
        reply_error(req, &e);
        return;
    }
    if (op == FILE_OP_READ) {
        file_range_parse(request_header(req, "range"), &what.range);
    }
    start(req, &what);
}

static void handle_body(struct request *req, enum file_op op)
{
    struct file_request what = {.mode = -1};
    struct err e = {0};

    if (file_request_from_json(op, request_json(req), &what, &e) < 0) {
        reply_error(req, &e);
        return;
    }
    start(req, &what);
}

#define HANDLER(name_, how_, op_) \
    static void name_(struct request *req) \
    { \
        how_(req, op_); \
    }
HANDLER(get_file, handle_query, FILE_OP_READ)
HANDLER(put_file, handle_query, FILE_OP_WRITE)
HANDLER(get_stat, handle_query, FILE_OP_STAT)
HANDLER(get_list, handle_query, FILE_OP_LIST)
HANDLER(get_watch, handle_query, FILE_OP_WATCH)
HANDLER(post_mkdir, handle_body, FILE_OP_MKDIR)
HANDLER(post_move, handle_body, FILE_OP_MOVE)
HANDLER(post_remove, handle_body, FILE_OP_REMOVE)
HANDLER(post_chmod, handle_body, FILE_OP_CHMOD)
HANDLER(post_chown, handle_body, FILE_OP_CHOWN)
HANDLER(post_symlink, handle_body, FILE_OP_SYMLINK)

#define JSON_ROUTE (ROUTE_BODY_JSON | ROUTE_NEEDS_WORKLOAD)

static const struct route routes[] = {
    {"GET", "/files", ROUTE_NEEDS_WORKLOAD, get_file},
    {"PUT", "/files", ROUTE_NEEDS_WORKLOAD, put_file},
    {"GET", "/files/stat", ROUTE_NEEDS_WORKLOAD, get_stat},
    {"GET", "/files/list", ROUTE_NEEDS_WORKLOAD, get_list},
    {"GET", "/files/watch", ROUTE_NEEDS_WORKLOAD, get_watch},
    {"POST", "/files/mkdir", JSON_ROUTE, post_mkdir},
    {"POST", "/files/move", JSON_ROUTE, post_move},
    {"POST", "/files/remove", JSON_ROUTE, post_remove},
    {"POST", "/files/chmod", JSON_ROUTE, post_chmod},
    {"POST", "/files/chown", JSON_ROUTE, post_chown},
    {"POST", "/files/symlink", JSON_ROUTE, post_symlink},
};

/* ---- the module ---- */

static int file_init(struct daemon *d, void **ret_state, struct err *e)
{
    (void)e;
    *ret_state = file_pool_new(d->loop, d->children, d->workload);
    return 0;
}

static void file_teardown(struct daemon *d, void *state)
{
    (void)d;
    file_pool_reset(state);
}

static void file_metrics(struct daemon *d, void *state, json_t *obj)
{
    struct file_pool_stats s;

    (void)d;
    file_pool_stats(state, &s);
    json_object_set_new(obj, "files",
                        json_pack("{s:i, s:i, s:i, s:I, s:I, s:I}", "running", (int)s.n_running,
                                  "queued", (int)s.n_queued, "stuck", (int)s.n_stuck, "forked",
                                  (json_int_t)s.n_forked, "started", (json_int_t)s.n_started,
                                  "timed_out", (json_int_t)s.n_timed_out));
}

static void file_done(struct daemon *d, void *state)
{
    (void)d;
    file_pool_free(state);
}

const struct module file_module = {
    .name = "files",
    .routes = routes,
    .n_routes = ARRAY_SIZE(routes),
    .init = file_init,
    .teardown = file_teardown,
    .metrics = file_metrics,
    .done = file_done,
};
