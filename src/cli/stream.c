/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stream.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/output.h"
#include "cli/stdin.h"
#include "wire/frames.h"

#define STREAM_READ (64u * 1024)
/* The guest sends a keepalive each 15 s. */
#define STREAM_SILENCE_MS 50000u
#define STREAM_RETRY_FIRST_MS 100u
#define STREAM_RETRY_MAX_MS 3000u

struct stream {
    struct cli *cli;                 /* borrowed */
    const struct command_spec *spec; /* borrowed */
    struct http_call *call;          /* owned; NULL: not connected */
    struct stdin_pump *pump;         /* owned; NULL: none */
    struct output output;
    struct buf in;    /* bytes of frames not taken yet */
    char id[ID_SIZE]; /* empty until the command is known */
    uint64_t offset;  /* output bytes taken */
    uint64_t silent_after_ns;
    uint64_t lost_until_ns; /* give up reattaching; 0: connected */
    uint64_t retry_ms;
    uint64_t grace_ns;  /* DEADLINE_NEVER: nobody asked the command to end */
    int pending_signal; /* came before the command was known */
    int last_signal;
    unsigned n_interrupts;
    bool fresh;       /* just connected: what came with the head is not seen by poll */
    bool reader_gone; /* our standard output was closed */
    json_t *end;      /* owned: the command object of 'E' */
};

static void stream_done(struct stream *s)
{
    if (s->pump) {
        /* Only left here when something else failed already. */
        IGNORE_RESULT(stdin_stop_take(TAKE_PTR(s->pump), /* e */ NULL));
    }
    http_call_free(s->call);
    buf_done(&s->in);
    output_done(&s->output);
    json_decref(s->end);
}

static void stream_hang_up(struct stream *s)
{
    http_call_free(TAKE_PTR(s->call));
    buf_reset(&s->in);
}

static int stream_open(struct stream *s, const char *method, const char *target, const json_t *body,
                       struct err *e)
{
    cleanup_free char *text = body ? json_text(body) : NULL;
    struct http_headers headers = HTTP_HEADERS_INIT;
    struct http_call_opts opts = {
        .method = method,
        .target = target,
        .headers = &headers,
        .body_length = text ? (int64_t)strlen(text) : HTTP_BODY_NONE,
        .content_type = text ? "application/json" : NULL,
        .deadline_ns = deadline_in_ms(CLI_CALL_TIMEOUT_MS),
    };
    int r;

    http_headers_add(&headers, "Accept", FRAMES_CONTENT_TYPE);
    r = http_call_new(s->cli->client, &opts, &s->call, e);
    http_headers_done(&headers);
    if (r == 0 && text) {
        r = http_call_write(s->call, text, strlen(text), e);
        r = r < 0 ? r : http_call_end(s->call, e);
    }
    r = r < 0 ? r : http_call_head(s->call, e);
    r = r < 0 ? r : http_call_check(s->call, e);
    if (r < 0) {
        stream_hang_up(s);
        return r;
    }
    http_call_deadline(s->call, 0);
    s->silent_after_ns = deadline_in_ms(STREAM_SILENCE_MS);
    s->fresh = true;
    return 0;
}

static int stream_start(struct stream *s, struct err *e)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/commands?stream=1", s->spec->sandbox);

    return stream_open(s, "POST", target, s->spec->body, e);
}

static int stream_attach(struct stream *s, struct err *e)
{
    cleanup_free char *target = NULL;
    int r;

    if (!s->id[0]) {
        r = command_by_tag(s->cli, s->spec->sandbox, command_tag(s->spec->body), s->id, e);
        if (r < 0) {
            return r;
        }
    }
    target = xasprintf("/v1/sandboxes/%s/commands/%s/output?offset=%llu&follow=1", s->spec->sandbox,
                       s->id, (unsigned long long)s->offset);
    return stream_open(s, "GET", target, /* body */ NULL, e);
}

/* Passes a signal on. True: we are not to wait for the command any longer. */
static bool stream_signal(struct stream *s, int signo)
{
    struct err e = {0};

    s->last_signal = signo;
    if (sigs_is_end(signo)) {
        s->n_interrupts++;
        if (s->n_interrupts > 1) {
            return true;
        }
        if (signo != SIGINT) {
            s->grace_ns = deadline_in_ms(COMMAND_GRACE_MS);
        }
    }
    if (!s->id[0]) {
        s->pending_signal = signo;
        return false;
    }
    if (command_signal(s->cli, s->spec->sandbox, s->id, signo, &e) < 0 && e.code != -ENOENT) {
        ui_warn(&s->cli->ui, "the signal did not reach the command: %s", e.msg);
    }
    return false;
}

/* Handles every signal that is there. True: give up. */
static bool stream_signals(struct stream *s)
{
    int signo;

    while ((signo = sigs_read(s->spec->sigs)) > 0) {
        if (stream_signal(s, signo)) {
            return true;
        }
    }
    return deadline_passed(s->grace_ns);
}

static int stream_take_start(struct stream *s, const struct frame *f, struct err *e)
{
    cleanup_json json_t *command = NULL;
    const char *id;
    int r;

    r = json_parse_object(f->payload, f->len, &command, e);
    if (r < 0) {
        return err_wrap(e, -EBADMSG, "starting the command");
    }
    id = json_get_string(command, "id", "");
    if (!id_valid(ID_COMMAND, id)) {
        return err_set(e, -EBADMSG, "bad_answer", "the service gave the command no valid id");
    }
    if (!s->id[0]) {
        r = str_copy(s->id, sizeof(s->id), id);
        ASSERT(r == 0);
    }
    if (s->pending_signal) {
        int signo = s->pending_signal;

        s->pending_signal = 0;
        s->n_interrupts = 0;
        stream_signal(s, signo);
    }
    if (s->spec->with_stdin && !s->pump) {
        return stdin_start(s->cli, s->spec->sandbox, s->id, STDIN_FILENO, &s->pump, e);
    }
    return 0;
}

/* -ECANCELED: give up; else 0. */
static int stream_take_output(struct stream *s, enum output_stream stream, const struct frame *f)
{
    size_t done = 0;

    while (done < f->len && !s->reader_gone) {
        size_t written = 0;
        int r = output_write(&s->output, stream, f->payload + done, f->len - done, s->spec->sigs,
                             &written);

        done += written;
        if (r == -EINTR && stream_signals(s)) {
            return -ECANCELED;
        }
        if (r < 0 && r != -EINTR) {
            if (r != -EPIPE) {
                ui_warn(&s->cli->ui, "cannot write the command's output: %s", strerror(-r));
            }
            s->reader_gone = true;
            s->last_signal = SIGPIPE;
            return -ECANCELED;
        }
    }
    s->offset += f->len;
    return 0;
}

static int stream_take_gap(struct stream *s, const struct frame *f, struct err *e)
{
    cleanup_json json_t *gap = NULL;
    int64_t from;
    int64_t to;

    if (json_parse_object(f->payload, f->len, &gap, e) < 0) {
        return -EBADMSG;
    }
    from = json_get_int(gap, "from", 0);
    to = json_get_int(gap, "to", 0);
    if (from < 0 || to < from || (uint64_t)to < s->offset) {
        return err_set(e, -EBADMSG, "bad_answer", "the service skips output backwards");
    }
    ui_warn(&s->cli->ui, "%lld bytes of output are no longer kept and are missing here",
            (long long)(to - from));
    s->offset = (uint64_t)to;
    return 0;
}

static int stream_take_error(const struct frame *f, struct err *e)
{
    cleanup_json json_t *doc = NULL;
    json_t *error;

    if (json_parse_object(f->payload, f->len, &doc, /* e */ NULL) < 0) {
        return err_set(e, -ECONNRESET, NULL, "the stream broke");
    }
    error = json_object_get(doc, "error");
    error = json_is_object(error) ? error : doc;
    return err_set(e, -ECONNRESET, json_get_string(error, "code", NULL), "%.300s",
                   json_get_string(error, "message", "the stream broke"));
}

/* One frame. 0: go on; 1: the command is over; -ECANCELED: give up; else the stream is broken. */
static int stream_take(struct stream *s, const struct frame *f, struct err *e)
{
    switch (f->type) {
    case FRAME_START:
        return stream_take_start(s, f, e);
    case FRAME_STDOUT:
    case FRAME_PTY:
        return stream_take_output(s, OUTPUT_STDOUT, f);
    case FRAME_STDERR:
        return stream_take_output(s, OUTPUT_STDERR, f);
    case FRAME_GAP:
        return stream_take_gap(s, f, e);
    case FRAME_KEEPALIVE:
        return 0;
    case FRAME_END:
        return json_parse_object(f->payload, f->len, &s->end, e) < 0 ? -EBADMSG : 1;
    case FRAME_ERROR:
        return stream_take_error(f, e);
    default:
        return err_set(e, -EBADMSG, "bad_answer", "the service sends a frame of unknown type %u",
                       (unsigned)f->type);
    }
}

/* Every whole frame that is here. As stream_take. */
static int stream_take_frames(struct stream *s, struct err *e)
{
    for (;;) {
        struct frame f;
        size_t used = 0;
        int r = frame_parse(s->in.data, s->in.len, &f, &used);

        if (r == -EAGAIN) {
            return 0;
        }
        if (r < 0) {
            return err_set(e, -EBADMSG, "bad_answer",
                           "the service sends what is not a stream of frames");
        }
        r = stream_take(s, &f, e);
        if (r != 0) {
            return r;
        }
        buf_consume(&s->in, used);
    }
}

/* What the connection has without waiting. As stream_take. */
static int stream_read(struct stream *s, struct err *e)
{
    for (;;) {
        void *room;
        ssize_t n;
        int r;

        r = buf_reserve(&s->in, STREAM_READ, &room);
        if (r < 0) {
            return err_wrap(e, -EBADMSG, "reading output");
        }
        n = http_call_try_read(s->call, room, STREAM_READ, e);
        if (n == -EAGAIN) {
            return 0;
        }
        if (n < 0) {
            return (int)n;
        }
        if (n == 0) {
            return err_set(e, -ECONNRESET, NULL, "the stream ended before the command did");
        }
        buf_commit(&s->in, (size_t)n);
        s->silent_after_ns = deadline_in_ms(STREAM_SILENCE_MS);
        s->lost_until_ns = 0;
        r = stream_take_frames(s, e);
        if (r != 0) {
            return r;
        }
    }
}

/* Waits for output, a signal or the next deadline. As stream_take. */
static int stream_connected(struct stream *s, struct err *e)
{
    struct pollfd p[] = {http_call_pollfd(s->call), {.fd = s->spec->sigs->fd, .events = POLLIN}};
    uint64_t until = MIN(s->silent_after_ns, s->grace_ns);

    if (s->fresh) {
        s->fresh = false;
        return stream_read(s, e);
    }
    if (poll(p, ARRAY_SIZE(p), deadline_poll_ms(until)) < 0 && errno != EINTR) {
        return err_wrap(e, -errno, "waiting for output");
    }
    if (p[1].revents && stream_signals(s)) {
        return -ECANCELED;
    }
    if (deadline_passed(s->grace_ns)) {
        return -ECANCELED;
    }
    if (p[0].revents) {
        return stream_read(s, e);
    }
    if (deadline_passed(s->silent_after_ns)) {
        return err_set(e, -ETIMEDOUT, NULL, "the service has gone silent");
    }
    return 0;
}

/* Tries once to get the stream back after a pause. 0: try on or connected. */
static int stream_lost(struct stream *s, struct err *e)
{
    struct err mine = {0};
    int r;

    sigs_wait(s->spec->sigs, deadline_in_ms(s->retry_ms));
    if (stream_signals(s)) {
        return -ECANCELED;
    }
    s->retry_ms = MIN(s->retry_ms * 2, (uint64_t)STREAM_RETRY_MAX_MS);
    http_client_drop_idle(s->cli->client);
    r = stream_attach(s, &mine);
    if (r == 0) {
        return 0;
    }
    if (command_error_is_passing(&mine) && !deadline_passed(s->lost_until_ns)) {
        return 0;
    }
    cli_explain(s->cli, &mine);
    if (e) {
        *e = mine;
    }
    return err_wrap(e, mine.code == -ECANCELED ? -EIO : mine.code,
                    "the connection to the command is lost");
}

/* A broken stream: remembers until when to try. */
static int stream_broken(struct stream *s, const struct err *cause, struct err *e)
{
    stream_hang_up(s);
    if (!command_error_is_passing(cause)) {
        if (e) {
            *e = *cause;
        }
        return cause->code;
    }
    if (s->lost_until_ns == 0) {
        s->lost_until_ns = deadline_in_ms(COMMAND_REATTACH_MS);
        s->retry_ms = STREAM_RETRY_FIRST_MS;
        if (s->cli->ui.err_tty) {
            ui_note(&s->cli->ui, "the connection broke (%s); connecting again", cause->msg);
        }
    }
    return 0;
}

/* 1: the command is over. */
static int stream_loop(struct stream *s, struct err *e)
{
    int r;

    do {
        struct err cause = {0};

        if (!s->call) {
            r = stream_lost(s, e);
            continue;
        }
        r = stream_connected(s, &cause);
        if (r < 0 && r != -ECANCELED) {
            r = stream_broken(s, &cause, e);
        }
    } while (r == 0);
    return r;
}

static int stream_first(struct stream *s, struct err *e)
{
    struct err mine = {0};
    int r;

    if (s->spec->attach) {
        r = str_copy(s->id, sizeof(s->id), s->spec->attach);
        ASSERT(r == 0);
        r = stream_attach(s, &mine);
    } else {
        r = stream_start(s, &mine);
    }
    if (r == 0) {
        return 0;
    }
    /* Refused or never sent: nothing was started. A break on the way: it may have been. */
    if (mine.code != -ECONNRESET && mine.code != -EBADMSG && mine.code != -ETIMEDOUT &&
        mine.code != -EPIPE) {
        cli_explain(s->cli, &mine);
        if (e) {
            *e = mine;
        }
        return mine.code;
    }
    return stream_broken(s, &mine, e);
}

/* The command is over or given up: the exit code and what else is to be said. */
static int stream_finish(struct stream *s, int r, struct command_end *ret, struct err *e)
{
    struct err stdin_error = {0};
    int stdin_r = s->pump ? stdin_stop_take(TAKE_PTR(s->pump), &stdin_error) : 0;

    IGNORE_RESULT(str_copy(ret->id, sizeof(ret->id), s->id)); /* both are ID_SIZE */
    if (r == -ECANCELED) {
        stream_hang_up(s);
        if (s->id[0]) {
            command_kill(s->cli, s->spec->sandbox, s->id);
        }
        ret->gave_up = true;
        ret->code = CLI_EXIT_SIGNAL + s->last_signal;
        return 0;
    }
    if (r < 0) {
        return r;
    }
    ret->command = TAKE_PTR(s->end);
    ret->code = command_exit_code(s->cli, ret->command);
    if (s->spec->capture) {
        output_to_json(&s->output, ret->command);
    }
    if (stdin_r < 0) {
        cli_explain(s->cli, &stdin_error);
        ui_warn(&s->cli->ui, "the command did not get all of standard input: %s", stdin_error.msg);
        ret->code = ret->code ? ret->code : CLI_EXIT_SPACE;
    }
    (void)e;
    return 0;
}

int stream_run(struct cli *cli, const struct command_spec *spec, struct command_end *ret,
               struct err *e)
{
    CLEANUP(stream_done)
    struct stream s = {
        .cli = cli,
        .spec = spec,
        .in = BUF_INIT(FRAME_PAYLOAD_MAX + 2 * STREAM_READ),
        .grace_ns = DEADLINE_NEVER,
    };
    int r;

    ASSERT(spec->sandbox && spec->sigs && (spec->body || spec->attach));
    output_init(&s.output, spec->capture);
    r = stream_first(&s, e);
    if (r == 0) {
        r = stream_loop(&s, e);
    }
    return stream_finish(&s, r, ret, e);
}
