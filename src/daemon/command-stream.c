/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/command-private.h"

#include "base/fs.h"
#include "daemon/pty.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* What a terminal can hold is not told exactly (there are two buffers on the way): so much is looked for. */
#define PTY_DRAIN_MAX ((size_t)128 * 1024)
/* Reads per event: a flood may not keep the daemon from others. A terminal gives at most 4 KiB at once. */
#define READS_PER_EVENT 16

/* The oldest byte that a reader must still get. */
static uint64_t hold_of(const struct command *c)
{
    uint64_t hold = OUTPUT_HOLD_NOTHING;

    for (const struct command_listener *l = c->listeners; l; l = l->next) {
        if (l->holds && l->offset < hold) {
            hold = l->offset;
        }
    }
    return hold;
}

static void stream_close(struct command_stream *s)
{
    loop_io_free(s->io);
    s->io = NULL;
    s->fd = fd_close(s->fd);
    s->drain_left = 0;
}

/* One read; true when another may be worth it at once. */
static bool stream_read(struct command_stream *s)
{
    struct commands *t = s->c->t;
    size_t room = MIN(output_room(s->c->output, hold_of(s->c)), (size_t)COMMAND_READ_SIZE);
    ssize_t n;

    if (room == 0) {
        loop_io_set(s->io, 0); /* command_streams_resume() */
        return false;
    }
    n = read(s->fd, t->scratch, room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        s->drain_left = errno == EAGAIN ? 0 : s->drain_left;
        return false;
    }
    if (n <= 0) {
        stream_close(s); /* the end; on a terminal EIO: nobody has it open any more */
        return false;
    }
    output_add(s->c->output, s->kind, t->scratch, (size_t)n);
    s->drain_left -= MIN(s->drain_left, (size_t)n);
    return s->drain_left > 0 || s->kind == OUTPUT_PTY || (size_t)n == room;
}

static void on_stream(void *arg, uint32_t events)
{
    struct command_stream *s = arg;
    struct command *c = s->c;

    (void)events;
    for (int i = 0; i < READS_PER_EVENT && stream_read(s); i++) {
    }
    command_check_drained(c);
    command_notify(c);
}

static void stream_open(struct command *c, struct command_stream *s, enum output_kind kind,
                        int fd_take)
{
    s->c = c;
    s->kind = kind;
    s->fd = fd_take;
    s->io = loop_add_io(c->t->config.loop, s->fd, EPOLLIN, on_stream, s);
}

void command_streams_open(struct command *c, struct command_process *p)
{
    if (p->out_fd >= 0) {
        stream_open(c, &c->streams[0], OUTPUT_STDOUT, TAKE_FD(p->out_fd));
        stream_open(c, &c->streams[1], OUTPUT_STDERR, TAKE_FD(p->err_fd));
    }
    c->in_fd = TAKE_FD(p->in_fd);
}

void command_streams_open_pty(struct command *c, int master_take)
{
    /* Input gets a descriptor of its own, so that the loop can watch both directions apart. */
    c->in_fd = fd_dup(master_take);
    if (c->in_fd < 0) {
        c->in_fd = FD_NONE;
    }
    stream_open(c, &c->streams[0], OUTPUT_PTY, master_take);
}

void command_streams_drain(struct command *c)
{
    for (size_t i = 0; i < ARRAY_SIZE(c->streams); i++) {
        struct command_stream *s = &c->streams[i];
        int waiting = 0;

        if (s->fd < 0) {
            continue;
        }
        if (s->kind == OUTPUT_PTY) {
            s->drain_left = PTY_DRAIN_MAX;
        } else if (ioctl(s->fd, FIONREAD, &waiting) == 0 && waiting > 0) {
            s->drain_left = (size_t)waiting;
        }
        while (s->drain_left > 0 && stream_read(s)) {
        }
    }
}

bool command_streams_drained(const struct command *c)
{
    return c->streams[0].drain_left == 0 && c->streams[1].drain_left == 0;
}

void command_streams_resume(struct command *c)
{
    if (output_room(c->output, hold_of(c)) == 0) {
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(c->streams); i++) {
        if (c->streams[i].io) {
            loop_io_set(c->streams[i].io, EPOLLIN);
        }
    }
}

void command_stdin_shut(struct command *c)
{
    loop_io_free(c->in_io);
    c->in_io = NULL;
    c->in_fd = fd_close(c->in_fd);
}

void command_streams_close(struct command *c)
{
    for (size_t i = 0; i < ARRAY_SIZE(c->streams); i++) {
        stream_close(&c->streams[i]);
    }
    command_stdin_shut(c);
}

bool command_stdin_open(const struct command *c)
{
    return c->in_fd >= 0;
}

static void on_stdin(void *arg, uint32_t events);

/* Calls on_stdin() when there is room again. */
static void await_room(struct command *c)
{
    if (!c->in_io) {
        c->in_io = loop_add_io(c->t->config.loop, c->in_fd, EPOLLOUT, on_stdin, c);
    }
    loop_io_set(c->in_io, EPOLLOUT);
}

/* A terminal has no end; it has a character that means it, and that must find room like any other. */
static void write_eof(struct command *c)
{
    char eof = pty_eof_byte(c->in_fd);

    c->eof_due = write(c->in_fd, &eof, 1) < 0 && (errno == EAGAIN || errno == EINTR);
    if (c->eof_due) {
        await_room(c);
    }
}

/* There is room again, or nobody reads any more: the writer finds out which. */
static void on_stdin(void *arg, uint32_t events)
{
    struct command *c = arg;

    (void)events;
    loop_io_set(c->in_io, 0);
    if (c->eof_due) {
        write_eof(c);
    }
    command_notify(c);
}

ssize_t command_write(struct command *c, const void *data, size_t len)
{
    ssize_t n;

    if (c->in_fd < 0) {
        return -EPIPE;
    }
    if (len == 0 || c->eof_due) {
        return 0;
    }
    n = write(c->in_fd, data, len);
    if (n > 0) {
        return n;
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        command_stdin_shut(c);
        return -EPIPE;
    }
    await_room(c);
    return 0;
}

void command_close_stdin(struct command *c)
{
    if (c->in_fd >= 0 && c->pty) {
        write_eof(c);
    } else {
        command_stdin_shut(c);
    }
}

int command_no_terminal(struct err *e)
{
    return err_set(e, -ESTALE, "no_terminal",
                   "this command has no terminal: start it with \"pty\"");
}

int command_resize(struct command *c, struct pty_size size, struct err *e)
{
    int r;

    if (!c->pty) {
        return command_no_terminal(e);
    }
    r = c->streams[0].fd >= 0 ? pty_resize(c->streams[0].fd, size) : -EIO;
    if (r < 0) {
        return err_set(e, -ESTALE, "not_running", "the terminal has ended");
    }
    return 0;
}
