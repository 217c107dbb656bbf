/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/output.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base64.h"

static const int stream_fds[OUTPUT_STREAM_COUNT_] = {STDOUT_FILENO, STDERR_FILENO};
static const char *const stream_names[OUTPUT_STREAM_COUNT_] = {"stdout", "stderr"};

void output_init(struct output *o, bool capture)
{
    *o = (struct output){.capture = capture};
    for (size_t i = 0; i < OUTPUT_STREAM_COUNT_; i++) {
        o->kept[i] = BUF_INIT(OUTPUT_CAPTURE_MAX);
    }
}

void output_done(struct output *o)
{
    for (size_t i = 0; i < OUTPUT_STREAM_COUNT_; i++) {
        buf_done(&o->kept[i]);
    }
}

static void output_keep(struct output *o, enum output_stream stream, const void *data, size_t len)
{
    struct buf *b = &o->kept[stream];
    size_t room = b->max - b->len;

    if (len > room) {
        o->truncated[stream] = true;
        len = room;
    }
    if (len > 0 && buf_add(b, data, len) < 0) {
        o->truncated[stream] = true;
    }
}

static bool fd_never_waits(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* 0: fd takes at least PIPE_BUF bytes without waiting. */
static int output_wait(int fd, const struct sigs *sigs)
{
    struct pollfd p[] = {{.fd = sigs->fd, .events = POLLIN}, {.fd = fd, .events = POLLOUT}};

    while (poll(p, ARRAY_SIZE(p), -1) < 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    return p[0].revents ? -EINTR : 0;
}

int output_write(struct output *o, enum output_stream stream, const void *data, size_t len,
                 const struct sigs *sigs, size_t *ret_written)
{
    int fd = stream_fds[stream];
    size_t step = fd_never_waits(fd) ? len : PIPE_BUF;
    size_t done = 0;
    int r = 0;

    if (o->capture) {
        output_keep(o, stream, data, len);
        *ret_written = len;
        return 0;
    }
    while (done < len && r == 0) {
        ssize_t n;

        r = output_wait(fd, sigs);
        if (r < 0) {
            break;
        }
        n = write(fd, (const char *)data + done, MIN(step, len - done));
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno != EINTR && errno != EAGAIN) {
            r = -errno;
        }
    }
    *ret_written = done;
    return r;
}

void output_to_json(const struct output *o, json_t *object)
{
    for (size_t i = 0; i < OUTPUT_STREAM_COUNT_; i++) {
        const struct buf *b = &o->kept[i];
        json_t *text = json_stringn(buf_str(b), b->len);
        cleanup_free char *truncated = xasprintf("%s_truncated", stream_names[i]);

        if (text) {
            json_object_set_new(object, stream_names[i], text);
        } else {
            cleanup_buf struct buf b64 = BUF_INIT(OUTPUT_CAPTURE_MAX * 2);
            cleanup_free char *name = xasprintf("%s_base64", stream_names[i]);

            if (base64_encode(b->data, b->len, &b64) == 0) {
                json_object_set_new(object, name, json_string(buf_str(&b64)));
            }
        }
        json_object_set_new(object, truncated, json_boolean(o->truncated[i]));
    }
}
