/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading. Only regular files have content to give; a FIFO, device or socket is refused before it
 * is opened. How much there is:
 *
 *     with a size           exactly the size it had when it was opened (what is appended later
 *                           is not sent)
 *     ends in first chunk   that much: the sizes that sysfs and procfs tell are not true
 *     size 0 but content    to the end, at most FILE_PSEUDO_MAX, length unknown
 *
 * A file that shrinks while it is sent makes the answer break off, never end short. Memory is one
 * chunk.
 */
#include "daemon/file-worker.h"

#include "base/fs.h"
#include "daemon/file-text.h"
#include "daemon/file-walk.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int refuse_special(const struct stat *st, const char *path, struct err *e)
{
    char shown[FILE_TEXT_SHOW_MAX];

    file_text_show(shown, sizeof(shown), path);
    if (S_ISDIR(st->st_mode)) {
        return file_error(e, -EISDIR, path);
    }
    return err_set(e, -EINVAL, "not_a_regular_file", "'%s' is a %s, not a regular file", shown,
                   S_ISFIFO(st->st_mode)   ? "FIFO"
                   : S_ISSOCK(st->st_mode) ? "socket"
                                           : "device");
}

/* Opened only after it is known to be a regular file; what is opened is what was looked at. */
static int open_regular(const struct file_worker *w, struct stat *ret_st, struct err *e)
{
    cleanup_close int path_fd = open(w->path, O_PATH | O_CLOEXEC);
    int fd;

    if (path_fd < 0 || fstat(path_fd, ret_st) < 0) {
        return file_error(e, -errno, w->path);
    }
    if (!S_ISREG(ret_st->st_mode)) {
        return refuse_special(ret_st, w->path, e);
    }
    fd = file_worker_reopen(w, path_fd, O_RDONLY | O_NONBLOCK);
    return fd < 0 ? file_error(e, fd, w->path) : fd;
}

/* Reads until len or the end. A pseudo file without news (EAGAIN) is at its end. */
static ssize_t read_some(int fd, char *data, size_t len)
{
    size_t have = 0;

    while (have < len) {
        ssize_t n = read(fd, data + have, len - have);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno != EAGAIN) {
            return have > 0 ? (ssize_t)have : -errno;
        }
        if (n <= 0) {
            break;
        }
        have += (size_t)n;
    }
    return (ssize_t)have;
}

static void fill_head(struct file_worker *w, const struct stat *st, struct file_head *h)
{
    h->flags |= FILE_HEAD_CONTENT;
    h->mode = st->st_mode & 07777;
    h->uid = st->st_uid;
    h->mtime_ms = file_mtime_ms(st);
    snprintf(h->owner, sizeof(h->owner), "%s", file_names_user(&w->names, st->st_uid));
}

static int no_such_range(uint64_t size, const char *path, struct err *e)
{
    char shown[FILE_TEXT_SHOW_MAX];

    return err_field(e, -ERANGE, "range_not_satisfiable", "range",
                     "'%s' has %llu bytes, none in this range",
                     file_text_show(shown, sizeof(shown), path), (unsigned long long)size);
}

/* Writes what is in memory: a whole small file, or a part of it. */
static int send_small(struct file_worker *w, struct file_head *h, const char *data, size_t size,
                      struct err *e)
{
    uint64_t start;
    uint64_t len;
    int r = file_range_apply(&w->req->range, size, &start, &len);

    if (r < 0) {
        return no_such_range(size, w->path, e);
    }
    h->flags |= FILE_HEAD_LENGTH | (w->req->range.kind == FILE_RANGE_ALL ? 0 : FILE_HEAD_RANGE);
    h->length = len;
    h->range_start = start;
    h->total = size;
    r = file_send_head(w->control, h);
    if (r == 0) {
        r = fs_write_all(w->data, data + start, len);
    }
    return r < 0 ? err_wrap(e, r, "sending") : 0;
}

/* file to pipe without a copy where the file system can; else through memory. */
static ssize_t move_chunk(int fd, int pipe_fd, off_t *offset, size_t len)
{
    static char data[FILE_CHUNK];
    ssize_t n = splice(fd, offset, pipe_fd, /* off_out */ NULL, len, SPLICE_F_MOVE);

    if (n >= 0 || (errno != EINVAL && errno != ENOSYS)) {
        return n < 0 ? -errno : n;
    }
    n = pread(fd, data, MIN(len, sizeof(data)), *offset);
    if (n <= 0) {
        return n < 0 ? -errno : 0;
    }
    *offset += n;
    return fs_write_all(pipe_fd, data, (size_t)n) < 0 ? -EPIPE : n;
}

static int send_range(struct file_worker *w, int fd, struct file_head *h, struct err *e)
{
    off_t offset = (off_t)h->range_start;
    uint64_t left = h->length;
    int r = file_send_head(w->control, h);

    if (r < 0) {
        return err_wrap(e, r, "sending");
    }
    while (left > 0) {
        ssize_t n = move_chunk(fd, w->data, &offset, MIN(left, (uint64_t)FILE_CHUNK));

        if (n == -EINTR) {
            continue;
        }
        if (n < 0) {
            return file_error(e, (int)n, w->path);
        }
        if (n == 0) {
            return err_set(e, -ESTALE, "file_changed", "the file became shorter while it was read");
        }
        left -= (uint64_t)n;
    }
    return 0;
}

/* No length to rely on: to the end, within bounds. */
static int send_pseudo(struct file_worker *w, int fd, struct file_head *h, char *first,
                       struct err *e)
{
    uint64_t total = 0;
    ssize_t n = FILE_CHUNK;
    int r;

    if (w->req->range.kind != FILE_RANGE_ALL) {
        return err_field(e, -EINVAL, "no_ranges", "range",
                         "this file has no size, so it has no ranges: read it whole");
    }
    r = file_send_head(w->control, h);
    while (r == 0 && n > 0) {
        total += (uint64_t)n;
        if (total > FILE_PSEUDO_MAX) {
            return err_set(e, -EFBIG, "too_large",
                           "the file has no size and gives more than %u bytes", FILE_PSEUDO_MAX);
        }
        r = fs_write_all(w->data, first, (size_t)n);
        n = r == 0 ? read_some(fd, first, FILE_CHUNK) : 0;
    }
    if (r < 0 || n < 0) {
        return err_wrap(e, r < 0 ? r : (int)n, "sending");
    }
    return 0;
}

int file_op_read(struct file_worker *w, struct err *e)
{
    struct stat st;
    cleanup_close int fd = open_regular(w, &st, e);
    cleanup_free char *first = NULL;
    struct file_head head = {0};
    uint64_t size;
    ssize_t n;

    if (fd < 0) {
        return fd;
    }
    fill_head(w, &st, &head);
    size = (uint64_t)st.st_size;
    if (size > FILE_CHUNK / 2) { /* larger than any page that a pseudo file claims to have */
        if (file_range_apply(&w->req->range, size, &head.range_start, &head.length) < 0) {
            return no_such_range(size, w->path, e);
        }
        head.flags |=
            FILE_HEAD_LENGTH | (w->req->range.kind == FILE_RANGE_ALL ? 0 : FILE_HEAD_RANGE);
        head.total = size;
        return send_range(w, fd, &head, e);
    }
    first = xmalloc(FILE_CHUNK);
    n = read_some(fd, first, FILE_CHUNK);
    if (n < 0) {
        return file_error(e, (int)n, w->path);
    }
    if (n < (ssize_t)FILE_CHUNK) {
        return send_small(w, &head, first, (size_t)n, e);
    }
    return send_pseudo(w, fd, &head, first, e);
}
