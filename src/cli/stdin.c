/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stdin.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/command.h"

#define STDIN_CHUNK (256u * 1024)
#define STDIN_SILENCE_MS 50
#define STDIN_AGAIN_MS 500
#define STDIN_END_MS 60000u

struct stdin_pump {
    struct http_client *client; /* owned */
    char *target;               /* owned */
    char *chunk;                /* owned: STDIN_CHUNK */
    int fd;                     /* borrowed */
    int stop_fd;                /* owned: readable once we are asked to end */
    pthread_t thread;
    struct err error; /* of the thread; read after it was joined */
};

static bool stdin_asked_to_stop(const struct stdin_pump *p)
{
    struct pollfd q = {.fd = p->stop_fd, .events = POLLIN};

    return poll(&q, 1, 0) > 0;
}

/* 1: something can be read (its end too), 0: silence for timeout_ms, -ECANCELED: asked to stop. */
static int stdin_wait(const struct stdin_pump *p, int timeout_ms)
{
    struct pollfd q[] = {{.fd = p->stop_fd, .events = POLLIN}, {.fd = p->fd, .events = POLLIN}};
    int r;

    do {
        r = poll(q, ARRAY_SIZE(q), timeout_ms);
    } while (r < 0 && errno == EINTR);
    if (r < 0) {
        return -errno;
    }
    if (q[0].revents) {
        return -ECANCELED;
    }
    return q[1].revents ? 1 : 0;
}

static ssize_t stdin_read(const struct stdin_pump *p)
{
    ssize_t n;

    do {
        n = read(p->fd, p->chunk, STDIN_CHUNK);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static int stdin_call_new(const struct stdin_pump *p, bool eof, struct http_call **ret,
                          struct err *e)
{
    const struct pollfd watch = {.fd = p->stop_fd, .events = POLLIN};
    cleanup_free char *target = xasprintf("%s?eof=%d", p->target, eof ? 1 : 0);
    struct http_call_opts opts = {
        .method = "POST",
        .target = target,
        .body_length = eof ? HTTP_BODY_NONE : HTTP_BODY_STREAM,
        .content_type = "application/octet-stream",
        .watch = &watch,
    };

    return http_call_new(p->client, &opts, ret, e);
}

static int stdin_call_end(struct http_call *call, struct err *e)
{
    int r;

    r = http_call_end(call, e);
    r = r < 0 ? r : http_call_head(call, e);
    return r < 0 ? r : http_call_check(call, e);
}

/* One request: the n bytes in p->chunk and what follows them without a pause. 1: input is at its end. */
static int stdin_burst(const struct stdin_pump *p, size_t n, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct err write_error = {0};
    ssize_t got = (ssize_t)n;
    int r;

    r = stdin_call_new(p, /* eof */ false, &call, e);
    while (r == 0 && got > 0) {
        r = http_call_write(call, p->chunk, (size_t)got, &write_error);
        if (r < 0) {
            break;
        }
        r = stdin_wait(p, STDIN_SILENCE_MS);
        if (r == -ECANCELED) {
            return err_set(e, r, NULL, "stopped");
        }
        if (r <= 0) {
            got = -EAGAIN;
            break;
        }
        r = 0;
        got = stdin_read(p);
    }
    if (!call) {
        return r;
    }
    /* The server may have answered without reading all: its answer says more than the broken write. */
    if (write_error.code) {
        r = http_call_head(call, e);
        r = r < 0 ? r : http_call_check(call, e);
        if (r == 0) {
            return err_set(e, -EPIPE, NULL, "the command reads no more");
        }
        if (e->code == -ECANCELED) {
            return r;
        }
        if (http_call_status(call) < 400) {
            *e = write_error;
        }
        return e->code;
    }
    r = stdin_call_end(call, e);
    if (r < 0) {
        return r;
    }
    return got == -EAGAIN ? 0 : 1;
}

static int stdin_send_end(const struct stdin_pump *p, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    int r;

    r = stdin_call_new(p, /* eof */ true, &call, e);
    return r < 0 ? r : stdin_call_end(call, e);
}

/* The command has ended, closed its input, or is gone: nobody to read, and no fault. */
static bool stdin_nobody_reads(const struct err *e)
{
    int status = err_http_status(e);

    return e->code == -EPIPE || status == 404 || status == 409 || status == 410;
}

/*
 * Sends the end of input, also after a part was lost: a command that waits for more would wait for ever. Tries for a while,
 * for the service may be restarting.
 */
static void stdin_finish(struct stdin_pump *p)
{
    uint64_t until_ns = deadline_in_ms(STDIN_END_MS);
    struct pollfd stop = {.fd = p->stop_fd, .events = POLLIN};
    struct err e = {0};

    while (stdin_send_end(p, &e) < 0 && !stdin_nobody_reads(&e)) {
        if (e.code == -ECANCELED || !command_error_is_passing(&e) || deadline_passed(until_ns) ||
            poll(&stop, 1, STDIN_AGAIN_MS) > 0) {
            p->error = p->error.code || stdin_asked_to_stop(p) ? p->error : e;
            return;
        }
        e = (struct err){0};
    }
}

static void *stdin_main(void *arg)
{
    struct stdin_pump *p = arg;
    struct err e = {0};
    bool ended = false;
    int r = 0;

    while (r == 0 && !ended) {
        ssize_t n;

        r = stdin_wait(p, -1);
        if (r < 0) {
            break;
        }
        r = 0;
        n = stdin_read(p);
        if (n == -EAGAIN) {
            continue;
        }
        /* A terminal that is gone reads as an error: for the command that is the end of input. */
        if (n > 0) {
            r = stdin_burst(p, (size_t)n, &e);
            ended = r == 1;
        } else {
            ended = true;
        }
    }
    if (r < 0 && (r == -ECANCELED || stdin_nobody_reads(&e) || stdin_asked_to_stop(p))) {
        return NULL;
    }
    p->error = e;
    stdin_finish(p);
    return NULL;
}

static void stdin_free(struct stdin_pump *p)
{
    http_client_free(p->client);
    fd_close(p->stop_fd);
    free(p->target);
    free(p->chunk);
    free(p);
}
DEFINE_CLEANUP(struct stdin_pump *, stdin_free);

int stdin_start(const struct cli *cli, const char *sandbox, const char *command, int fd,
                struct stdin_pump **ret, struct err *e)
{
    CLEANUP(stdin_freep) struct stdin_pump *p = xnew(struct stdin_pump);
    int r;

    p->fd = fd;
    p->target = xasprintf("/v1/sandboxes/%s/commands/%s/stdin", sandbox, command);
    p->chunk = xmalloc(STDIN_CHUNK);
    p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->stop_fd < 0) {
        return err_wrap(e, -errno, "passing on standard input");
    }
    r = cli_client(cli, &p->client, e);
    if (r < 0) {
        return r;
    }
    r = -pthread_create(&p->thread, /* attr */ NULL, stdin_main, p);
    if (r < 0) {
        return err_wrap(e, r, "passing on standard input");
    }
    *ret = TAKE_PTR(p);
    return 0;
}

int stdin_stop_take(struct stdin_pump *p, struct err *e)
{
    uint64_t one = 1;
    int r;

    if (write(p->stop_fd, &one, sizeof(one)) < 0) {
        /* An eventfd with room takes it always; a full one is readable already. */
        ASSERT(errno == EAGAIN);
    }
    pthread_join(p->thread, /* ret */ NULL);
    r = p->error.code;
    if (r < 0 && e) {
        *e = p->error;
    }
    stdin_free(p);
    return r;
}
