/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/guest-proxy.h"

#include "base/clock.h"
#include "http/proxy.h"
#include "sandbox/before.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_HEADERS_MAX CHANNEL_HEADERS_MAX
#define SESSION_DEADLINE_MS 10000

struct guest_upstream {
    struct channel_stream *stream; /* owned */
    struct http_headers headers;   /* owned: of the answer, once it is there */
};

static ssize_t guest_send(void *up, const void *data, size_t len, struct err *e)
{
    struct guest_upstream *g = up;

    return channel_stream_write_some(g->stream, data, len, e);
}

static int guest_send_end(void *up, struct err *e)
{
    struct guest_upstream *g = up;

    (void)e;
    channel_stream_finish(g->stream);
    return 0;
}

static int64_t length_of(const struct http_headers *headers)
{
    const char *text = http_headers_get(headers, "content-length");
    uint64_t value = 0;

    return text && str_to_u64(text, INT64_MAX, &value) == 0 ? (int64_t)value : -1;
}

static int guest_head(void *up, struct http_upstream_head *ret, struct err *e)
{
    struct guest_upstream *g = up;
    const struct channel_head *head = NULL;
    int r = channel_stream_read_head(g->stream, 0, &head, e);

    if (r < 0) {
        return r;
    }
    if (g->headers.n == 0) {
        for (size_t i = 0; i < head->n_headers; i++) {
            http_headers_add(&g->headers, head->headers[i].name, head->headers[i].value);
        }
    }
    *ret = (struct http_upstream_head){head->status, length_of(&g->headers), &g->headers};
    return 0;
}

static ssize_t guest_recv(void *up, void *data, size_t len, struct err *e)
{
    struct guest_upstream *g = up;

    return channel_stream_read(g->stream, data, len, 0, e);
}

/* Before the attempts, never after them: what comes in between must still be seen by poll. */
static void guest_clear(void *up)
{
    struct guest_upstream *g = up;

    channel_stream_clear(g->stream);
}

static struct pollfd guest_pollfd(void *up, bool want_recv, bool want_send)
{
    struct guest_upstream *g = up;

    (void)want_recv;
    (void)want_send; /* the stream's descriptor tells of room, too */
    return (struct pollfd){.fd = channel_stream_fd(g->stream), .events = POLLIN};
}

static void guest_abort(void *up)
{
    struct guest_upstream *g = up;

    channel_stream_cancel(g->stream);
}

static const struct http_upstream_ops guest_ops = {
    .clear = guest_clear,
    .send = guest_send,
    .send_end = guest_send_end,
    .head = guest_head,
    .recv = guest_recv,
    .pollfd = guest_pollfd,
    .abort = guest_abort,
};

/* Where a guest path may lead: the rest of the daemon's routes is for us alone. */
static bool path_is_open(const char *rest)
{
    static const char *const open_paths[] = {"/commands", "/files", "/metrics", "/health",
                                             "/ports"};

    for (size_t i = 0; i < ARRAY_SIZE(open_paths); i++) {
        size_t len = strlen(open_paths[i]);

        if (strncmp(rest, open_paths[i], len) == 0 && (rest[len] == '\0' || rest[len] == '/')) {
            return true;
        }
    }
    return false;
}

/* What the daemon looks at; in the lower case that HTTP/2 wants. Credentials and the rest stay on the host. */
static size_t pass_headers(struct http_request *req, struct channel_header *ret)
{
    static const char *const passed[] = {"accept", "content-type", "range"};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(passed); i++) {
        const char *value = http_request_header(req, passed[i]);

        if (value) {
            ret[n++] = (struct channel_header){passed[i], value};
        }
    }
    return n;
}

/* What is asked of the guest. */
struct asked {
    const char *rest;    /* borrowed: the path */
    const char *command; /* borrowed: the id of the command that it starts; "": the guest chooses */
};

static int start(struct http_request *req, struct channel *ch, const struct asked *asked,
                 struct guest_upstream *g, struct err *e)
{
    const char *query = http_request_query_raw(req);
    cleanup_free char *target =
        xasprintf("%s%s%s", asked->rest, query ? "?" : "", query ? query : "");
    struct channel_header headers[CHANNEL_HEADERS_MAX];
    struct channel_request request = {
        .method = http_request_method(req), .target = target, .headers = headers};
    char length[24];

    request.n_headers = pass_headers(req, headers);
    if (http_body_length(req) > 0) {
        snprintf(length, sizeof(length), "%lld", (long long)http_body_length(req));
        headers[request.n_headers++] = (struct channel_header){"content-length", length};
    }
    if (asked->command[0]) {
        headers[request.n_headers++] = (struct channel_header){BEFORE_HEADER, asked->command};
    }
    request.has_body = http_body_length(req) != 0;
    return channel_request(ch, &request, deadline_in_ms(SESSION_DEADLINE_MS), &g->stream, e);
}

static bool starts_command(const struct http_request *req, const char *rest)
{
    return str_eq(rest, "/commands") && str_eq(http_request_method(req), "POST");
}

int guest_proxy(struct http_request *req, struct resident *res, const char *rest, struct err *e)
{
    char command[ID_SIZE] = "";
    const struct asked asked = {rest, command};
    const struct http_proxy_opts opts = {.body_limit = 0};
    struct guest_upstream g = {.headers = HTTP_HEADERS_INIT};
    struct channel *ch = NULL;
    int r;

    if (!path_is_open(rest)) {
        return err_set(e, -ENOENT, "not_found", "there is no such path in a sandbox");
    }
    r = starts_command(req, rest) ? before_command(res, command, e) : 0;
    if (r == 0) {
        r = resident_guest_begin(res, &ch, e);
    }
    if (r < 0) {
        return r;
    }
    http_body_limit(req, UINT64_MAX);
    http_request_io_timeout(req, 0);
    r = start(req, ch, &asked, &g, e);
    if (r == 0) {
        r = http_proxy_run(req, &guest_ops, &g, &opts, e);
        channel_stream_free(g.stream);
        http_headers_done(&g.headers);
    }
    resident_guest_end(ch);
    return r;
}
