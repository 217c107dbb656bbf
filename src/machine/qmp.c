/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/qmp.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sock.h"

#include <string.h>
#include <unistd.h>

struct qmp {
    char *path; /* owned */
    int fd;     /* owned */
    int64_t next_id;
    struct buf in; /* owned: bytes after the last whole line */
};

struct qmp *qmp_new(const char *path)
{
    struct qmp *q = xnew(struct qmp);

    q->path = xstrdup(path);
    q->fd = FD_NONE;
    q->in = BUF_INIT(QMP_LINE_MAX);
    return q;
}

void qmp_free(struct qmp *q)
{
    if (!q) {
        return;
    }
    fd_close(q->fd);
    buf_done(&q->in);
    free(q->path);
    free(q);
}

static void qmp_disconnect(struct qmp *q)
{
    q->fd = fd_close(q->fd);
    buf_reset(&q->in);
}

static int read_message(struct qmp *q, uint64_t deadline_ns, struct qmp_message *ret)
{
    for (;;) {
        char *end = q->in.len ? memchr(q->in.data, '\n', q->in.len) : NULL;
        char chunk[4096];
        ssize_t n;
        int r;

        if (end) {
            size_t len = (size_t)(end - q->in.data);

            r = qmp_parse(q->in.data, len, ret);
            buf_consume(&q->in, len + 1);
            return r;
        }
        n = sock_recv(q->fd, chunk, sizeof(chunk), deadline_ns);
        if (n <= 0) {
            return n == 0 ? -ECONNRESET : (int)n;
        }
        r = buf_add(&q->in, chunk, (size_t)n);
        if (r < 0) {
            return -EBADMSG; /* a line without end */
        }
    }
}

/* Waits for the answer to id; events and answers to forgotten commands are passed over. */
static int read_answer(struct qmp *q, int64_t id, uint64_t deadline_ns, json_t **ret_value,
                       struct err *e)
{
    for (;;) {
        struct qmp_message m;
        /* A VMM that never stops talking is not an answer, either. */
        int r = deadline_passed(deadline_ns) ? -ETIMEDOUT : read_message(q, deadline_ns, &m);

        if (r < 0) {
            return err_wrap(e, r, "reading from the VMM");
        }
        if (m.kind == QMP_EVENT) {
            log_debug(NULL, "VMM event %s", m.name);
        }
        if (m.id == id && m.kind == QMP_ERROR) {
            r = err_set(e, -EREMOTEIO, NULL, "the VMM refused: %s", m.text);
        }
        if (m.id == id && m.kind == QMP_RETURN && ret_value) {
            *ret_value = TAKE_PTR(m.value);
        }
        qmp_message_done(&m);
        if (m.id == id) {
            return r;
        }
    }
}

static int send_line(struct qmp *q, const struct buf *line, int pass_fd, uint64_t deadline_ns)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec first = {.iov_base = line->data, .iov_len = 1};
    struct msghdr msg = {.msg_iov = &first, .msg_iovlen = 1};
    struct cmsghdr *c;

    if (pass_fd < 0) {
        return sock_send_all(q->fd, line->data, line->len, deadline_ns);
    }
    msg.msg_control = control.space;
    msg.msg_controllen = sizeof(control.space);
    c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &pass_fd, sizeof(int));
    while (sendmsg(q->fd, &msg, MSG_NOSIGNAL) < 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    return sock_send_all(q->fd, line->data + 1, line->len - 1, deadline_ns);
}

static int run(struct qmp *q, const char *name, const json_t *arguments, int pass_fd,
               uint64_t deadline_ns, json_t **ret_value, struct err *e)
{
    cleanup_buf struct buf line = BUF_INIT(QMP_LINE_MAX);
    int64_t id = q->next_id++;
    int r = qmp_print(&line, name, arguments, id);

    if (r == 0) {
        r = send_line(q, &line, pass_fd, deadline_ns);
    }
    return r < 0 ? err_wrap(e, r, "asking the VMM") : read_answer(q, id, deadline_ns, ret_value, e);
}

static int connect_and_greet(struct qmp *q, uint64_t deadline_ns, struct err *e)
{
    struct qmp_message m;
    int r = sock_connect_unix(q->path, SOCK_STREAM, e);

    if (r < 0) {
        return r;
    }
    q->fd = r;
    r = read_message(q, deadline_ns, &m);
    if (r < 0) {
        return err_wrap(e, r, "waiting for the VMM's greeting");
    }
    r = m.kind == QMP_GREETING ? 0 : -EPROTO;
    qmp_message_done(&m);
    if (r < 0) {
        return err_set(e, r, NULL, "the VMM did not greet");
    }
    return run(q, "qmp_capabilities", NULL, FD_NONE, deadline_ns, NULL, e);
}

int qmp_command_take(struct qmp *q, const char *name, json_t *arguments, int pass_fd,
                     uint64_t deadline_ns, json_t **ret_value, struct err *e)
{
    cleanup_json json_t *owned = arguments;
    int r = 0;

    if (q->fd < 0) {
        r = connect_and_greet(q, deadline_ns, e);
    }
    if (r == 0) {
        r = run(q, name, owned, pass_fd, deadline_ns, ret_value, e);
    }
    if (r < 0 && r != -EREMOTEIO) {
        qmp_disconnect(q);
    }
    return r < 0 ? err_wrap(e, r, "VMM command '%s'", name) : 0;
}
