/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Streamable HTTP" of version 2025-06-18 ("Transports"), one address, /mcp:
 *
 *     POST, initialize         200, JSON, and the session's id in Mcp-Session-Id
 *     POST, another request    200: JSON; for tools/call an event stream, kept alive until the answer is its one event
 *     POST, notification       202
 *     DELETE                   204: the session ends, its calls are given up
 *     GET                      405: we never speak first
 *
 * Each request brings an API key, and its call has that key's rights; the command line's own key is not used. Keys and
 * what they fetch go unencrypted, so only loopback addresses are served. A page in a browser is refused by its Origin,
 * which a client that is a program does not send (a name that a page rebinds to loopback helps it to nothing).
 *
 * A client that goes away during a call has not cancelled it, says the protocol: the call goes on to its end.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cli/mcp-session.h"
#include "cli/sigs.h"
#include "http/route.h"
#include "wire/url.h"

#define MCP_PATH "/mcp"
#define SESSION_HEADER "Mcp-Session-Id"
#define VERSION_HEADER "MCP-Protocol-Version"
/* Between two signs of life of a call that takes long: what is between us and a client drops what is silent. */
#define KEEP_ALIVE_MS 15000
#define THREADS_MAX 1024u
/* A call that is given up ends at once; its answer must be written. */
#define DRAIN_MS 5000u

static struct mcp_sessions *sessions_of(const struct http_request *req)
{
    return http_request_ctx(req);
}

/* ---- what a request must bring ---- */

static int refuse(struct http_request *req, int status, json_t *error_take, struct err *e)
{
    return http_reply_json_take(req, status, error_take, e);
}

/* The key, or NULL. Borrowed from the request. */
static const char *key_of(const struct http_request *req)
{
    const char *bearer = http_bearer(http_request_header(req, "Authorization"));

    if (bearer) {
        return bearer[0] ? bearer : NULL;
    }
    return http_request_header(req, "X-API-Key");
}

/* Whether a field's value is this type, whatever its parameters are. */
static bool has_type(const char *value, const char *type)
{
    size_t len = strlen(type);

    return value && strncasecmp(value, type, len) == 0 &&
           (value[len] == '\0' || value[len] == ';' || value[len] == ' ');
}

/* Whether a list of types has this one. */
static bool accepts(const char *accept, const char *type)
{
    cleanup_free char *copy = xstrdup(accept);
    char *rest = copy;
    const char *one;

    while ((one = strsep(&rest, ","))) {
        one += strspn(one, " \t");
        if (has_type(one, type) || has_type(one, "*/*")) {
            return true;
        }
    }
    return false;
}

struct unmet {
    int status;
    const char *why; /* static; NULL: all is well */
};

static struct unmet check_head(const struct http_request *req)
{
    const char *accept = http_request_header(req, "Accept");
    const char *version = http_request_header(req, VERSION_HEADER);

    if (http_request_header(req, "Origin")) {
        return (struct unmet){403, "pages in a browser are not served: send no 'Origin'"};
    }
    if (!key_of(req)) {
        return (struct unmet){401, "give an API key in the header 'Authorization: Bearer KEY'"};
    }
    if (version && !mcp_version_known(version)) {
        return (struct unmet){400,
                              "'" VERSION_HEADER "' is none of 2025-06-18, 2025-03-26, 2024-11-05"};
    }
    if (!str_eq(http_request_method(req), "POST")) {
        return (struct unmet){0};
    }
    if (!has_type(http_request_header(req, "Content-Type"), "application/json")) {
        return (struct unmet){415, "'Content-Type' must be application/json"};
    }
    if (!accept || !accepts(accept, "application/json") || !accepts(accept, "text/event-stream")) {
        return (struct unmet){406, "'Accept' must name application/json and text/event-stream"};
    }
    return (struct unmet){0};
}

static int before(struct http_request *req, const struct http_route *route, struct err *e)
{
    struct unmet unmet = check_head(req);

    (void)route;
    if (!unmet.why) {
        return 0;
    }
    if (unmet.status == 401) {
        http_reply_header(req, "WWW-Authenticate", "Bearer realm=\"space\"");
    }
    return refuse(req, unmet.status, mcp_error(/* id */ NULL, MCP_INVALID_REQUEST, unmet.why), e);
}

/* NULL: *ret_r is what came of saying so. */
static struct mcp_session *find_session(struct http_request *req, json_t *message_id, int *ret_r,
                                        struct err *e)
{
    const char *id = http_request_header(req, SESSION_HEADER);
    struct mcp_session *s = id ? mcp_session_find(sessions_of(req), id, key_of(req)) : NULL;

    if (!id) {
        *ret_r = refuse(req, 400,
                        mcp_error(message_id, MCP_INVALID_REQUEST,
                                  "'" SESSION_HEADER "' is missing: 'initialize' gives it"),
                        e);
    } else if (!s) {
        *ret_r = refuse(req, 404,
                        mcp_error(message_id, MCP_INVALID_REQUEST,
                                  "there is no such session of this key: 'initialize' begins one"),
                        e);
    }
    return s;
}

/* ---- messages ---- */

static int on_initialize(struct http_request *req, const struct mcp_message *m, struct err *e)
{
    char id[MCP_SESSION_ID_SIZE];
    struct mcp_asked asked = {0};
    struct err why = {0};
    bool initialized = false;
    int r;

    if (http_request_header(req, SESSION_HEADER)) {
        return refuse(req, 400,
                      mcp_error(m->id, MCP_INVALID_REQUEST,
                                "'initialize' begins a session: send no '" SESSION_HEADER "'"),
                      e);
    }
    r = mcp_session_begin(sessions_of(req), key_of(req), id, &why);
    if (r < 0) {
        int status = err_http_status(&why);

        if (status == 401) {
            http_reply_header(req, "WWW-Authenticate", "Bearer realm=\"space\"");
        }
        return refuse(req, status, mcp_error(m->id, MCP_BUSY, why.msg), e);
    }
    http_reply_header(req, SESSION_HEADER, id);
    return http_reply_json_take(req, 200, mcp_answer(&initialized, m, &asked), e);
}

/* Waits for the call's end, with a sign of life now and then. A client that has gone ends the writing, not the call. */
static void wait_call(struct http_request *req, const struct mcp_running *c, bool *writable)
{
    struct pollfd done = {.fd = c->done_fd, .events = POLLIN};
    struct err e = {0};

    while (poll(&done, 1, KEEP_ALIVE_MS) <= 0) {
        if (*writable && http_write(req, ":\n\n", 3, &e) < 0) {
            *writable = false;
        }
    }
}

static int on_call(struct http_request *req, struct mcp_session *s, const struct mcp_message *m,
                   const struct mcp_asked *asked, struct err *e)
{
    struct mcp_running *c = NULL;
    cleanup_json json_t *answer = NULL;
    json_t *result;
    bool writable;
    int r;

    if (mcp_call_begin(s, asked, m->id, &c) < 0) {
        return http_reply_json_take(
            req, 200, mcp_error(m->id, MCP_BUSY, "too many calls at once: wait for some to end"),
            e);
    }
    http_reply_header(req, "Cache-Control", "no-store");
    r = http_reply_begin(req, 200, "text/event-stream", /* length */ -1, e);
    r = r < 0 ? r : http_flush(req, e);
    writable = r == 0;
    wait_call(req, c, &writable);
    result = mcp_call_end_take(c);
    answer = result ? mcp_result_take(m->id, result) : NULL;
    if (r < 0 || !writable) {
        return r < 0 ? r : -ECANCELED;
    }
    if (answer) {
        cleanup_free char *text = json_text(answer);
        cleanup_free char *event = xasprintf("event: message\ndata: %s\n\n", text);

        r = http_write(req, event, strlen(event), e);
    }
    return r < 0 ? r : http_end(req, e);
}

static int on_request(struct http_request *req, struct mcp_session *s, const struct mcp_message *m,
                      struct err *e)
{
    struct mcp_asked asked = {0};
    bool initialized = true;
    json_t *answer = mcp_answer(&initialized, m, &asked);

    return answer ? http_reply_json_take(req, 200, answer, e) : on_call(req, s, m, &asked, e);
}

static int on_message(struct http_request *req, const struct mcp_message *m, struct err *e)
{
    CLEANUP(mcp_session_unrefp) struct mcp_session *s = NULL;
    int r = 0;

    if (m->id && m->method && str_eq(m->method, MCP_INITIALIZE)) {
        return on_initialize(req, m, e);
    }
    s = find_session(req, m->id, &r, e);
    if (!s) {
        return r;
    }
    if (m->id && m->method) {
        return on_request(req, s, m, e);
    }
    if (m->method && m->params && str_eq(m->method, MCP_CANCELLED) &&
        json_object_get(m->params, "requestId")) {
        mcp_call_cancel(s, json_object_get(m->params, "requestId"));
    }
    return http_reply_empty(req, 202, e);
}

static int on_post(struct http_request *req, struct err *e)
{
    cleanup_free char *body = NULL;
    struct mcp_message m;
    const char *why = NULL;
    size_t len = 0;
    enum mcp_code code;
    int r;

    http_body_limit(req, MCP_LINE_MAX);
    r = http_body_all(req, MCP_LINE_MAX, &body, &len, e);
    if (r == -E2BIG) {
        return refuse(req, 413,
                      mcp_error(/* id */ NULL, MCP_PARSE_ERROR, "the message is too long"), e);
    }
    if (r < 0) {
        return r;
    }
    code = mcp_message_parse(body, len, &m, &why);
    r = code != MCP_OK ? refuse(req, 400, mcp_error(m.id, code, why), e) : on_message(req, &m, e);
    mcp_message_done(&m);
    return r;
}

static int on_delete(struct http_request *req, struct err *e)
{
    CLEANUP(mcp_session_unrefp) struct mcp_session *s = NULL;
    int r = 0;

    s = find_session(req, /* message_id */ NULL, &r, e);
    if (!s) {
        return r;
    }
    mcp_session_end(s);
    return http_reply_empty(req, 204, e);
}

static const struct http_route routes[] = {
    {"POST", MCP_PATH, on_post, 0},
    {"DELETE", MCP_PATH, on_delete, 0},
};

static int handle(struct http_request *req, struct err *e)
{
    static const struct http_router router = {routes, ARRAY_SIZE(routes), before};

    return http_router_handle(&router, req, e);
}

/* ---- the server ---- */

static int check_loopback(const char *address, struct err *e)
{
    struct url url;
    struct in6_addr v6;

    if (url_parse(address, &url) < 0 || url.scheme != URL_HTTP || url.path[0]) {
        return err_set(e, -EINVAL, "usage", "'%s' is not ADDRESS:PORT, as 127.0.0.1:8000 is one",
                       address);
    }
    if (str_eq(url.host, "localhost") ||
        (str_starts(url.host, "127.") && inet_addr(url.host) != INADDR_NONE) ||
        (inet_pton(AF_INET6, url.host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6))) {
        return 0;
    }
    return err_set(e, -EINVAL, "usage",
                   "keys would go unencrypted to '%s': listen on 127.0.0.1 and put a proxy that "
                   "speaks TLS in front of it",
                   address);
}

struct stopper {
    struct sigs sigs;
    int quit_fd; /* owned; readable: the server has ended by itself */
    struct mcp_sessions *sessions;
    struct http_server *server;
    pthread_t thread;
};

static void *stopper_main(void *arg)
{
    struct stopper *st = arg;
    struct pollfd fds[] = {{.fd = st->sigs.end_fd, .events = POLLIN},
                           {.fd = st->quit_fd, .events = POLLIN}};

    while (poll(fds, ARRAY_SIZE(fds), -1) < 0) {
        ASSERT(errno == EINTR);
    }
    mcp_sessions_stop(st->sessions);
    http_server_stop(st->server);
    return NULL;
}

static int serve(struct stopper *st, struct err *e)
{
    uint64_t one = 1;
    int r = sigs_open(&st->sigs, /* with_window */ false, e);

    if (r < 0) {
        return r;
    }
    st->quit_fd = eventfd(0, EFD_CLOEXEC);
    r = st->quit_fd < 0 ? -errno : -pthread_create(&st->thread, NULL, stopper_main, st);
    if (r < 0) {
        return err_wrap(e, r, "starting to serve");
    }
    r = http_server_run(st->server, e);
    IGNORE_RESULT(write(st->quit_fd, &one, sizeof(one))); /* it was empty */
    pthread_join(st->thread, NULL);
    return r;
}

int mcp_serve(struct cli *cli, struct err *e)
{
    struct stopper st = {.sigs = SIGS_INIT, .quit_fd = FD_NONE};
    struct http_server_opts opts = {
        .handler = handle, .max_threads = THREADS_MAX, .drain_timeout_ms = DRAIN_MS};
    const char *address = cli->args->listen;
    int r = check_loopback(address, e);

    if (r < 0) {
        return r;
    }
    st.sessions = mcp_sessions_new(cli);
    opts.ctx = st.sessions;
    st.server = http_server_new(&opts);
    r = http_server_listen_tcp(st.server, address, e);
    if (r == 0) {
        const char *colon = strrchr(address, ':');
        int host_len = colon ? (int)(colon - address) : (int)strlen(address);

        printf("http://%.*s:%u" MCP_PATH "\n", host_len, address, http_server_port(st.server));
        fflush(stdout);
        r = serve(&st, e);
    }
    http_server_free(st.server);
    mcp_sessions_free(st.sessions);
    fd_close(st.quit_fd);
    sigs_done(&st.sigs);
    return r;
}
