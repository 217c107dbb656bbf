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

/* ---- calls ---- */

static void *call_main(void *arg)
{
    struct call *c = arg;
    struct pollfd watch = {.fd = c->stop_fd, .events = POLLIN};
    json_t *result = mcp_tool_run(c->tool, c->session->cli, c->args, watch);

    if (result) {
        send_take(c->session, mcp_result_take(c->id, result));
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

/* ---- messages ---- */

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

static void on_request(struct session *s, const struct mcp_message *m)
{
    struct mcp_asked asked = {0};
    json_t *answer = mcp_answer(&s->initialized, m, &asked);

    if (!answer) {
        join_ended(s);
        if (s->n_calls >= MCP_CALLS_MAX || call_start(s, asked.tool, m, asked.args) < 0) {
            answer = mcp_error(m->id, MCP_BUSY, "too many calls at once: wait for some to end");
        }
    }
    if (answer) {
        send_take(s, answer);
    }
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
        send_take(s, mcp_error(m.id, code, why));
    } else if (m.method && m.id) {
        on_request(s, &m);
    } else if (m.method && str_eq(m.method, MCP_CANCELLED)) {
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
        send_take(s, mcp_error(NULL, MCP_PARSE_ERROR, "the message is too long"));
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
    int r;

    r = cli_connect(cli, &e);
    if (r == 0 && cli->args->listen) {
        r = mcp_serve(cli, &e);
    } else if (r == 0) {
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
        return str_eq(e.reason, "usage") ? CLI_EXIT_USAGE : CLI_EXIT_FAILED;
    }
    return CLI_EXIT_OK;
}
