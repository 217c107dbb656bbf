/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mcp.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "cli/verbs.h"

#define READ_SIZE 65536u

/* Versions of the protocol that a client may name; what we use of it is the same in all of them. */
static const char *const versions[] = {MCP_VERSION, "2025-03-26", "2024-11-05"};

struct call {
    struct session *session; /* borrowed: lives longer */
    const struct mcp_tool *tool;
    json_t *id;   /* owned */
    json_t *args; /* owned */
    int stop_fd;  /* owned; readable: given up */
    pthread_t thread;
    atomic_bool ended;
    TAILQ_ENTRY(call) entry;
};
TAILQ_HEAD(calls, call);

struct session {
    struct cli *cli; /* borrowed */
    bool initialized;
    pthread_mutex_t out_lock; /* guards standard output */
    struct calls calls;       /* owned; main thread's */
    size_t n_calls;
};

/* ---- answers ---- */

static void send_take(struct session *s, json_t *message)
{
    cleanup_json json_t *owned = message;
    cleanup_free char *text = json_text(owned);

    pthread_mutex_lock(&s->out_lock);
    fputs(text, stdout);
    fputc('\n', stdout);
    fflush(stdout); /* a client that has gone shows as the end of our input */
    pthread_mutex_unlock(&s->out_lock);
}

static void answer_take(struct session *s, json_t *id, json_t *result)
{
    send_take(s, json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result));
}

/* id NULL: it could not be read. */
static void answer_error(struct session *s, json_t *id, int code, const char *why)
{
    send_take(s, json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id",
                           id ? id : json_null(), "error", "code", code, "message", why));
}

/* ---- calls ---- */

static void *call_main(void *arg)
{
    struct call *c = arg;
    struct pollfd watch = {.fd = c->stop_fd, .events = POLLIN};
    json_t *result = mcp_tool_run(c->tool, c->session->cli, c->args, watch);

    if (result) {
        answer_take(c->session, c->id, result);
    }
    atomic_store(&c->ended, true);
    return NULL;
}

static void call_free(struct call *c)
{
    json_decref(c->id);
    json_decref(c->args);
    fd_close(c->stop_fd);
    free(c);
}

static void call_join(struct session *s, struct call *c)
{
    pthread_join(c->thread, NULL);
    TAILQ_REMOVE(&s->calls, c, entry);
    s->n_calls--;
    call_free(c);
}

static void join_ended(struct session *s)
{
    struct call *next;

    for (struct call *c = TAILQ_FIRST(&s->calls); c; c = next) {
        next = TAILQ_NEXT(c, entry);
        if (atomic_load(&c->ended)) {
            call_join(s, c);
        }
    }
}

static void call_stop(const struct call *c)
{
    uint64_t one = 1;

    IGNORE_RESULT(write(c->stop_fd, &one, sizeof(one))); /* full: it has been told already */
}

/* Objects of JSON are counted by whoever holds them, without a lock: a thread gets its own. */
static int call_start(struct session *s, const struct mcp_tool *tool, const struct mcp_message *m,
                      json_t *args)
{
    struct call *c = xnew(struct call);
    int r;

    c->session = s;
    c->tool = tool;
    c->id = json_deep_copy(m->id);
    c->args = args ? json_deep_copy(args) : json_object();
    c->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = c->stop_fd < 0 ? -errno : -pthread_create(&c->thread, NULL, call_main, c);
    if (r < 0) {
        call_free(c);
        return r;
    }
    TAILQ_INSERT_TAIL(&s->calls, c, entry);
    s->n_calls++;
    return 0;
}

/* ---- methods ---- */

static void on_initialize(struct session *s, const struct mcp_message *m)
{
    const char *wanted = m->params ? json_get_string(m->params, "protocolVersion", "") : "";
    const char *version = MCP_VERSION;

    for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
        if (str_eq(versions[i], wanted)) {
            version = versions[i];
        }
    }
    s->initialized = true;
    answer_take(
        s, m->id,
        json_pack("{s:s, s:{s:{s:b}}, s:{s:s, s:s, s:s}, s:s}", "protocolVersion", version,
                  "capabilities", "tools", "listChanged", 0, "serverInfo", "name", "space", "title",
                  "SPACE sandboxes", "version", SPACE_VERSION, "instructions",
                  "Isolated Linux machines to run code in. Make one with 'create', use it with "
                  "'run', 'read_file' and 'write_file'; take a 'snapshot' before what may go "
                  "wrong, and 'rollback' if it does. 'delete' it when you are done."));
}

static void on_ping(struct session *s, const struct mcp_message *m)
{
    answer_take(s, m->id, json_object());
}

static void on_tools_list(struct session *s, const struct mcp_message *m)
{
    if (m->params && json_object_get(m->params, "cursor")) {
        answer_error(s, m->id, MCP_INVALID_PARAMS, "there is one page of tools, and no cursor");
        return;
    }
    answer_take(s, m->id, json_pack("{s:o}", "tools", mcp_tools_json()));
}

static void on_tools_call(struct session *s, const struct mcp_message *m)
{
    json_t *args = m->params ? json_object_get(m->params, "arguments") : NULL;
    const char *name = m->params ? json_get_string(m->params, "name", NULL) : NULL;
    const struct mcp_tool *tool = name ? mcp_tool_find(name) : NULL;
    cleanup_json json_t *none = json_object();
    struct err e = {0};

    if (!tool) {
        answer_error(s, m->id, MCP_INVALID_PARAMS,
                     name ? "there is no such tool" : "'name' is missing");
        return;
    }
    if (args && !json_is_object(args)) {
        answer_error(s, m->id, MCP_INVALID_PARAMS, "'arguments' must be an object");
        return;
    }
    if (mcp_tool_check(tool, args ? args : none, &e) < 0) {
        answer_error(s, m->id, MCP_INVALID_PARAMS, e.msg);
        return;
    }
    join_ended(s);
    if (s->n_calls >= MCP_CALLS_MAX || call_start(s, tool, m, args) < 0) {
        answer_error(s, m->id, -32000, "too many calls at once: wait for some to end");
    }
}

/* What is not there any more has been answered meanwhile. */
static void on_cancelled(struct session *s, const struct mcp_message *m)
{
    const json_t *id = m->params ? json_object_get(m->params, "requestId") : NULL;
    const struct call *c;

    TAILQ_FOREACH(c, &s->calls, entry)
    {
        if (id && json_equal(c->id, id)) {
            call_stop(c);
        }
    }
}

static const struct method {
    const char *name;
    bool early; /* also before initialize */
    void (*run)(struct session *s, const struct mcp_message *m);
} methods[] = {
    {"initialize", true, on_initialize},
    {"ping", true, on_ping},
    {"tools/list", false, on_tools_list},
    {"tools/call", false, on_tools_call},
};

static void on_request(struct session *s, const struct mcp_message *m)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        if (!str_eq(methods[i].name, m->method)) {
            continue;
        }
        if (!s->initialized && !methods[i].early) {
            answer_error(s, m->id, MCP_INVALID_REQUEST, "send 'initialize' first");
        } else {
            methods[i].run(s, m);
        }
        return;
    }
    answer_error(s, m->id, MCP_METHOD_NOT_FOUND, "there is no such method");
}

static void on_line(struct session *s, const char *line, size_t len)
{
    struct mcp_message m;
    const char *why = NULL;
    enum mcp_code code;

    if (len > 0 && line[len - 1] == '\r') {
        len--;
    }
    if (len == 0) {
        return;
    }
    code = mcp_message_parse(line, len, &m, &why);
    if (code != MCP_OK) {
        answer_error(s, m.id, code, why);
    } else if (m.method && m.id) {
        on_request(s, &m);
    } else if (m.method && str_eq(m.method, "notifications/cancelled")) {
        on_cancelled(s, &m);
    } /* other notifications ask for nothing, and we never asked anything */
    mcp_message_done(&m);
}

/* ---- lines ---- */

/* What is in the buffer, line by line. Too long a line is answered once and skipped to its end. */
static void take_lines(struct session *s, struct buf *in, bool *skipping)
{
    const char *end;

    while (in->len > 0 && (end = memchr(in->data, '\n', in->len))) {
        size_t len = (size_t)(end - (const char *)in->data);

        if (!*skipping) {
            on_line(s, (const char *)in->data, len);
        }
        *skipping = false;
        buf_consume(in, len + 1);
    }
    if (*skipping) {
        buf_reset(in);
    } else if (in->len >= MCP_LINE_MAX) {
        answer_error(s, NULL, MCP_PARSE_ERROR, "the message is too long");
        *skipping = true;
        buf_reset(in);
    }
}

static int read_input(struct session *s, struct err *e)
{
    cleanup_buf struct buf in = BUF_INIT(MCP_LINE_MAX + READ_SIZE);
    bool skipping = false;

    for (;;) {
        void *room = NULL;
        ssize_t n;
        int r = buf_reserve(&in, READ_SIZE, &room);

        ASSERT(r == 0);
        n = read(STDIN_FILENO, room, READ_SIZE);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_wrap(e, -errno, "reading standard input");
        }
        if (n == 0) {
            return 0;
        }
        buf_commit(&in, (size_t)n);
        take_lines(s, &in, &skipping);
    }
}

int verb_mcp(struct cli *cli)
{
    struct session s = {.cli = cli};
    struct err e = {0};
    const struct call *c;
    int r = cli_connect(cli, &e);

    if (r == 0) {
        TAILQ_INIT(&s.calls);
        pthread_mutex_init(&s.out_lock, NULL);
        r = read_input(&s, &e);
        TAILQ_FOREACH(c, &s.calls, entry)
        {
            call_stop(c);
        }
        while (!TAILQ_EMPTY(&s.calls)) {
            call_join(&s, TAILQ_FIRST(&s.calls));
        }
        pthread_mutex_destroy(&s.out_lock);
    }
    if (r < 0) {
        ui_error(&cli->ui, &e);
        return CLI_EXIT_FAILED;
    }
    return CLI_EXIT_OK;
}
