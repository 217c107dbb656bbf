/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/terminal.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/output.h"
#include "cli/rawtty.h"
#include "http/ws.h"

/* What is sent at once always fits a socket that polls as writable, so that writing never waits for the peer. */
#define TERMINAL_CHUNK 4096u
#define TERMINAL_WRITE_MS 20000u
#define TERMINAL_PING_MS 20000u
#define TERMINAL_SILENCE_MS 60000u
#define TERMINAL_RETRY_FIRST_MS 100u
#define TERMINAL_RETRY_MAX_MS 3000u

/* Enter ~ . among what is typed. */
enum escape_state {
    ESCAPE_TEXT,
    ESCAPE_LINE_START,
    ESCAPE_TILDE
};

struct terminal {
    struct cli *cli;                 /* borrowed */
    const struct command_spec *spec; /* borrowed */
    struct ws *ws;                   /* owned; NULL: not connected */
    struct output output;
    char id[ID_SIZE];
    uint64_t offset;
    uint64_t lost_until_ns; /* 0: connected */
    uint64_t retry_ms;
    uint64_t heard_ns; /* when the peer last said something */
    uint64_t pinged_ns;
    enum escape_state escape;
    char typed[TERMINAL_CHUNK * 2]; /* waiting to be sent */
    size_t n_typed;
    bool raw;      /* our terminal is in raw mode */
    bool typing;   /* standard input is read */
    bool detached; /* Enter ~ . */
    bool fresh;    /* just connected: what came with the head is not seen by poll */
    int signo;     /* asked to end by */
    json_t *end;   /* owned */
};

static void terminal_done(struct terminal *t)
{
    rawtty_leave();
    ws_free(t->ws);
    output_done(&t->output);
    json_decref(t->end);
}

static bool terminal_local_size(struct rawtty_size *ret)
{
    return rawtty_size(STDOUT_FILENO, ret) || rawtty_size(STDIN_FILENO, ret);
}

void terminal_prepare(json_t *body)
{
    struct rawtty_size size = {.rows = 24, .cols = 80};
    const char *term = getenv("TERM");
    json_t *env = json_object_get(body, "env");
    json_t *text;

    terminal_local_size(&size);
    json_object_set_new(body, "pty",
                        json_pack("{s:i, s:i}", "rows", (int)size.rows, "cols", (int)size.cols));
    if (!env) {
        env = json_object();
        json_object_set_new(body, "env", env);
    }
    text = json_string(str_empty(term) || str_eq(term, "dumb") ? "xterm-256color" : term);
    if (text && !json_object_get(env, "TERM")) {
        json_object_set(env, "TERM", text);
    }
    json_decref(text);
}

static int terminal_create(struct terminal *t, struct err *e)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/commands", t->spec->sandbox);
    cleanup_json json_t *command = NULL;
    struct err mine = {0};
    const char *id;
    int r;

    r = cli_call(t->cli, "POST", target, t->spec->body, &command, &mine);
    if (r == -ECONNRESET || r == -EPIPE) {
        return command_by_tag(t->cli, t->spec->sandbox, command_tag(t->spec->body), t->id, e);
    }
    if (r < 0) {
        if (e) {
            *e = mine;
        }
        return r;
    }
    id = json_get_string(command, "id", "");
    if (!id_valid(ID_COMMAND, id)) {
        return err_set(e, -EBADMSG, "bad_answer", "the service gave the command no valid id");
    }
    return str_copy(t->id, sizeof(t->id), id);
}

static int terminal_send(struct terminal *t, enum ws_type type, const void *data, size_t len,
                         struct err *e)
{
    return ws_write(t->ws, type, data, len, deadline_in_ms(TERMINAL_WRITE_MS), e);
}

static int terminal_send_size(struct terminal *t, struct err *e)
{
    struct rawtty_size size;
    cleanup_free char *text = NULL;

    if (!terminal_local_size(&size)) {
        return 0;
    }
    text = xasprintf("{\"resize\":{\"rows\":%u,\"cols\":%u}}", size.rows, size.cols);
    return terminal_send(t, WS_TEXT, text, strlen(text), e);
}

static int terminal_connect(struct terminal *t, struct err *e)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/commands/%s/terminal?offset=%llu",
                                          t->spec->sandbox, t->id, (unsigned long long)t->offset);
    struct ws_opts opts = {.deadline_ns = deadline_in_ms(CLI_CALL_TIMEOUT_MS)};
    int r;

    r = ws_connect(t->cli->client, target, &opts, &t->ws, e);
    if (r < 0) {
        return r;
    }
    t->heard_ns = clock_now_ns();
    t->pinged_ns = t->heard_ns;
    t->fresh = true;
    return terminal_send_size(t, e);
}

/* Looks for Enter ~ . in what was typed and queues the rest. Input never exceeds TERMINAL_CHUNK, so it fits. */
static void terminal_type(struct terminal *t, const char *text, size_t len)
{
    for (size_t i = 0; i < len && !t->detached; i++) {
        char c = text[i];

        if (t->escape == ESCAPE_TILDE) {
            t->escape = ESCAPE_TEXT;
            if (c == '.') {
                t->detached = true;
                return;
            }
            if (c != '~') {
                t->typed[t->n_typed++] = '~';
            }
        } else if (t->escape == ESCAPE_LINE_START && c == '~' && t->raw) {
            t->escape = ESCAPE_TILDE;
            continue;
        }
        t->typed[t->n_typed++] = c;
        t->escape = c == '\r' || c == '\n' ? ESCAPE_LINE_START : ESCAPE_TEXT;
    }
}

static void terminal_read_input(struct terminal *t)
{
    char text[TERMINAL_CHUNK / 2];
    ssize_t n = read(STDIN_FILENO, text, sizeof(text));

    if (n > 0) {
        terminal_type(t, text, (size_t)n);
        return;
    }
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return;
    }
    /* The end of a file or pipe is what Ctrl-D is on a terminal. */
    t->typing = false;
    if (t->n_typed < sizeof(t->typed)) {
        t->typed[t->n_typed++] = '\004';
    }
}

/* -ECANCELED: we are to end. */
static int terminal_signals(struct terminal *t, struct err *e)
{
    int signo;

    while ((signo = sigs_read(t->spec->sigs)) > 0) {
        if (signo == SIGWINCH || signo == SIGCONT) {
            rawtty_again();
            if (t->ws) {
                int r = terminal_send_size(t, e);

                if (r < 0) {
                    return r;
                }
            }
        } else if (sigs_is_end(signo)) {
            t->signo = signo;
            return -ECANCELED;
        }
    }
    return 0;
}

static int terminal_write_output(struct terminal *t, const struct ws_message *m, struct err *e)
{
    size_t done = 0;

    while (done < m->len) {
        size_t written = 0;
        int r = output_write(&t->output, OUTPUT_STDOUT, m->data + done, m->len - done,
                             t->spec->sigs, &written);

        done += written;
        if (r == -EINTR) {
            r = terminal_signals(t, e);
        } else if (r < 0) {
            t->signo = SIGHUP;
            return -ECANCELED;
        }
        if (r < 0) {
            return r;
        }
    }
    t->offset += m->len;
    return 0;
}

/* {"type":"gap",...} or {"type":"end",...}. 1: over. */
static int terminal_take_text(struct terminal *t, const struct ws_message *m, struct err *e)
{
    cleanup_json json_t *doc = NULL;
    const char *type;
    int64_t to;

    if (json_parse_object(m->data, m->len, &doc, e) < 0) {
        return -EBADMSG;
    }
    type = json_get_string(doc, "type", "");
    if (str_eq(type, "gap")) {
        to = json_get_int(doc, "to", -1);
        if (to < 0 || (uint64_t)to < t->offset) {
            return err_set(e, -EBADMSG, "bad_answer", "the service skips output backwards");
        }
        t->offset = (uint64_t)to;
        return 0;
    }
    if (str_eq(type, "end") || str_eq(type, "exit")) {
        json_t *command = json_object_get(doc, "command");

        t->end = json_incref(json_is_object(command) ? command : doc);
        return 1;
    }
    if (str_eq(type, "error")) {
        json_t *error = json_object_get(doc, "error");

        return err_set(
            e, -ECONNRESET, /* reason */ NULL, "%.300s",
            json_get_string(json_is_object(error) ? error : doc, "message", "the terminal broke"));
    }
    return 0;
}

/* Everything the peer has sent. 1: the command is over. */
static int terminal_receive(struct terminal *t, struct err *e)
{
    for (;;) {
        struct ws_message m;
        int r = ws_read_try(t->ws, &m, e);

        if (r == -EAGAIN) {
            return 0;
        }
        if (r < 0) {
            return r;
        }
        t->heard_ns = clock_now_ns();
        t->lost_until_ns = 0;
        if (m.type == WS_CLOSE) {
            return err_set(e, -ECONNRESET, /* reason */ NULL,
                           "the service closed the terminal (%u)", m.close_code);
        }
        r = m.type == WS_BINARY ? terminal_write_output(t, &m, e) : terminal_take_text(t, &m, e);
        if (r != 0) {
            return r;
        }
    }
}

static int terminal_send_typed(struct terminal *t, struct err *e)
{
    size_t n = MIN(t->n_typed, (size_t)TERMINAL_CHUNK);
    int r = terminal_send(t, WS_BINARY, t->typed, n, e);

    if (r == 0) {
        memmove(t->typed, t->typed + n, t->n_typed - n);
        t->n_typed -= n;
    }
    return r;
}

static int terminal_keep_alive(struct terminal *t, struct err *e)
{
    uint64_t now = clock_now_ns();

    if (now - t->heard_ns > TERMINAL_SILENCE_MS * NS_PER_MS) {
        return err_set(e, -ETIMEDOUT, /* reason */ NULL, "the service has gone silent");
    }
    if (now - MAX(t->heard_ns, t->pinged_ns) >= TERMINAL_PING_MS * NS_PER_MS) {
        t->pinged_ns = now;
        return ws_ping(t->ws, deadline_in_ms(TERMINAL_WRITE_MS), e);
    }
    return 0;
}

/* One wait. 0: go on; 1: the command is over; -ECANCELED: leave; else the connection is broken. */
static int terminal_connected(struct terminal *t, struct err *e)
{
    bool may_type = t->typing && t->n_typed < TERMINAL_CHUNK;
    struct pollfd p[] = {
        ws_pollfd(t->ws),
        {.fd = t->spec->sigs->fd, .events = POLLIN},
        {.fd = may_type ? STDIN_FILENO : -1, .events = POLLIN},
    };
    short readable = p[0].events;
    int r;

    if (t->fresh) {
        t->fresh = false;
        return terminal_receive(t, e);
    }
    if (t->n_typed > 0) {
        p[0].events |= POLLOUT;
    }
    if (poll(p, ARRAY_SIZE(p), (int)TERMINAL_PING_MS / 2) < 0 && errno != EINTR) {
        return err_wrap(e, -errno, "waiting for the terminal");
    }
    r = p[1].revents ? terminal_signals(t, e) : 0;
    if (r == 0 && p[0].revents & (readable | POLLERR | POLLHUP)) {
        r = terminal_receive(t, e);
    }
    if (r == 0 && p[0].revents & POLLOUT && t->n_typed > 0) {
        r = terminal_send_typed(t, e);
    }
    if (r == 0 && p[2].revents) {
        terminal_read_input(t);
        r = t->detached ? -ECANCELED : 0;
    }
    return r ? r : terminal_keep_alive(t, e);
}

/* Not connected: waits a little, listens for Enter ~ . and signals, tries once. */
static int terminal_lost(struct terminal *t, struct err *e)
{
    struct pollfd p[] = {
        {.fd = t->spec->sigs->fd, .events = POLLIN},
        {.fd = t->typing && t->n_typed < TERMINAL_CHUNK ? STDIN_FILENO : -1, .events = POLLIN},
    };
    uint64_t until = deadline_in_ms(t->retry_ms);
    struct err mine = {0};
    int r;

    while (!deadline_passed(until)) {
        if (poll(p, ARRAY_SIZE(p), deadline_poll_ms(until)) <= 0) {
            continue;
        }
        r = terminal_signals(t, e);
        if (r < 0) {
            return r;
        }
        if (p[1].revents) {
            terminal_read_input(t);
            p[1].fd = t->typing && t->n_typed < TERMINAL_CHUNK ? STDIN_FILENO : -1;
        }
        if (t->detached) {
            return -ECANCELED;
        }
    }
    t->retry_ms = MIN(t->retry_ms * 2, (uint64_t)TERMINAL_RETRY_MAX_MS);
    http_client_drop_idle(t->cli->client);
    r = terminal_connect(t, &mine);
    if (r == 0 || (command_error_is_passing(&mine) && !deadline_passed(t->lost_until_ns))) {
        if (r < 0) {
            ws_free(TAKE_PTR(t->ws));
        }
        return 0;
    }
    cli_explain(t->cli, &mine);
    return err_set(e, mine.code, mine.reason, "the connection to the terminal is lost: %.300s",
                   mine.msg);
}

static int terminal_broken(struct terminal *t, const struct err *cause, struct err *e)
{
    ws_free(TAKE_PTR(t->ws));
    if (!command_error_is_passing(cause)) {
        if (e) {
            *e = *cause;
        }
        return cause->code;
    }
    if (t->lost_until_ns == 0) {
        t->lost_until_ns = deadline_in_ms(COMMAND_REATTACH_MS);
        t->retry_ms = TERMINAL_RETRY_FIRST_MS;
    }
    return 0;
}

static int terminal_loop(struct terminal *t, struct err *e)
{
    int r;

    do {
        struct err cause = {0};

        if (!t->ws) {
            r = terminal_lost(t, e);
            continue;
        }
        r = terminal_connected(t, &cause);
        if (r < 0 && r != -ECANCELED) {
            r = terminal_broken(t, &cause, e);
        }
    } while (r == 0);
    return r;
}

static int terminal_finish(struct terminal *t, int r, struct command_end *ret)
{
    IGNORE_RESULT(str_copy(ret->id, sizeof(ret->id), t->id)); /* both are ID_SIZE */
    if (r == -ECANCELED && t->detached) {
        ret->detached = true;
        return 0;
    }
    if (r == -ECANCELED) {
        struct err e = {0};

        /* Our terminal is gone or we are to end: what a hang-up is on a line. */
        if (command_signal(t->cli, t->spec->sandbox, t->id, SIGHUP, &e) < 0 && e.code != -ENOENT) {
            ui_warn(&t->cli->ui, "the command may still be running: %s", e.msg);
        }
        ret->gave_up = true;
        ret->code = CLI_EXIT_SIGNAL + t->signo;
        return 0;
    }
    if (r < 0) {
        return r;
    }
    ret->command = TAKE_PTR(t->end);
    ret->code = command_exit_code(t->cli, ret->command);
    return 0;
}

int terminal_run(struct cli *cli, const struct command_spec *spec, struct command_end *ret,
                 struct err *e)
{
    CLEANUP(terminal_done)
    struct terminal t = {
        .cli = cli, .spec = spec, .typing = spec->with_stdin, .escape = ESCAPE_LINE_START};
    struct err mine = {0};
    int r;

    ASSERT(spec->sandbox && spec->sigs && (spec->body || spec->attach));
    output_init(&t.output, spec->capture);
    r = spec->attach ? str_copy(t.id, sizeof(t.id), spec->attach) : terminal_create(&t, e);
    if (r < 0) {
        return r;
    }
    if (spec->with_stdin && isatty(STDIN_FILENO)) {
        r = rawtty_enter(STDIN_FILENO, e);
        if (r < 0) {
            return r;
        }
        t.raw = true;
    }
    r = terminal_connect(&t, &mine);
    r = r < 0 ? terminal_broken(&t, &mine, e) : 0;
    r = r < 0 ? r : terminal_loop(&t, e);
    rawtty_leave();
    return terminal_finish(&t, r, ret);
}
