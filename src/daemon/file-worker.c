/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-worker.h"

#include "daemon/file-walk.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int (*const operations[FILE_OP_COUNT_])(struct file_worker *w, struct err *e) = {
    [FILE_OP_READ] = file_op_read,       [FILE_OP_WRITE] = file_op_write,
    [FILE_OP_STAT] = file_op_stat,       [FILE_OP_LIST] = file_op_list,
    [FILE_OP_WATCH] = file_op_watch,     [FILE_OP_MKDIR] = file_op_mkdir,
    [FILE_OP_MOVE] = file_op_move,       [FILE_OP_REMOVE] = file_op_remove,
    [FILE_OP_CHMOD] = file_op_chmod,     [FILE_OP_CHOWN] = file_op_chown,
    [FILE_OP_SYMLINK] = file_op_symlink,
};

void file_worker_run(struct file_worker *w)
{
    struct err e = {0};
    int r;

    ASSERT(w->req->op < FILE_OP_COUNT_ && w->control >= 0);
    w->path = file_worker_absolute(w, w->req->path);
    r = operations[w->req->op](w, &e);
    if (r < 0 && e.code == 0) {
        file_error(&e, r, w->path);
    }
    w->data = fd_close(w->data); /* so that the end of the content and END come together */
    r = r < 0 ? file_send_error(w->control, &e) : file_send_end(w->control);
    IGNORE_RESULT(r); /* the daemon is no longer interested, and there is nobody else to tell */
    free(TAKE_PTR(w->path));
    file_names_done(&w->names);
}

/* The next request with its pipe; false when there will be no more. */
static bool next_request(struct file_worker *w, struct file_request *ret)
{
    static char packet[FILE_PACKET_MAX];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = packet, .iov_len = sizeof(packet)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    const struct cmsghdr *c = &control.align;
    ssize_t n;

    do { /* a COMMIT here is for an upload that had failed already */
        msg.msg_controllen = sizeof(control);
        n = recvmsg(w->control, &msg, MSG_CMSG_CLOEXEC);
    } while ((n < 0 && errno == EINTR) || (n == 1 && packet[0] == FILE_COMMIT));
    if (n <= 0) {
        return false;
    }
    if (msg.msg_controllen >= CMSG_LEN(sizeof(int)) && c->cmsg_type == SCM_RIGHTS) {
        memcpy(&w->data, CMSG_DATA(c), sizeof(int));
    }
    return file_request_unpack(packet, (size_t)n, ret) == 0;
}

void file_worker_serve(struct file_worker *w)
{
    struct file_request req = {.mode = -1};

    while (next_request(w, &req)) {
        w->req = &req;
        file_worker_run(w);
        w->req = NULL;
        if (req.op == FILE_OP_LIST) {
            malloc_trim(0); /* nothing large stays while we wait */
        }
        file_request_done(&req);
    }
}

char *file_worker_absolute(const struct file_worker *w, const char *path)
{
    char *out = path[0] == '/' ? xstrdup(path) : xasprintf("/%s/%s", w->user->home, path);
    size_t to = 0;

    for (size_t from = 0; out[from];) { /* one slash before each component, no "." */
        size_t len = strcspn(out + from, "/");

        if (len == 0) {
            from++;
            continue;
        }
        if (len > 1 || out[from] != '.') {
            out[to++] = '/';
            memmove(out + to, out + from, len);
            to += len;
        }
        from += len;
    }
    if (to == 0) {
        out[to++] = '/';
    }
    out[to] = '\0';
    return out;
}

int file_worker_reopen(const struct file_worker *w, int fd, int flags)
{
    char name[16];
    int r;

    if (w->fds_dir < 0) {
        return -EBADF;
    }
    snprintf(name, sizeof(name), "%d", fd);
    r = openat(w->fds_dir, name, flags | O_CLOEXEC | O_NOCTTY);
    return r < 0 ? -errno : r;
}

int file_worker_reply_json(struct file_worker *w, const struct buf *json, bool created,
                           struct err *e)
{
    struct file_head head = {.flags = FILE_HEAD_LENGTH | (created ? FILE_HEAD_CREATED : 0)};
    int r;

    head.length = json->len;
    r = file_send_head(w->control, &head);
    if (r == 0) {
        r = file_send_body(w->control, json->data, json->len);
    }
    return r < 0 ? err_wrap(e, r, "answering") : 0;
}

int file_worker_reply_entry(struct file_worker *w, const struct file_place *place, bool created,
                            struct err *e)
{
    cleanup_buf struct buf b = BUF_INIT(FILE_JSON_MAX);
    struct stat st;
    int r = fstatat(place->dir_fd, place->at, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;

    if (r == 0) {
        r = file_entry_add(&b, place, &st, &w->names);
    }
    if (r < 0) {
        return file_error(e, r, place->path);
    }
    return file_worker_reply_json(w, &b, created, e);
}
