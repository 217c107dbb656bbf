/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-proto.h"

#include "daemon/file-text.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define OWNER_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-$@+"
#define WORD_CHARS "abcdefghijklmnopqrstuvwxyz0123456789_"
#define ERRNO_MAX 4095

/*
 * A text of at most size - 1 bytes, all from chars (NULL: any valid UTF-8 without control
 * characters).
 */
static bool text_ok(const char *s, size_t size, const char *chars)
{
    size_t len = strnlen(s, size);

    if (len == size) {
        return false;
    }
    if (chars) {
        return strspn(s, chars) == len;
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f) {
            return false;
        }
    }
    return file_text_is_utf8(s, len);
}

static int parse_head(const void *data, size_t len, struct file_head *ret)
{
    struct file_head h;

    if (len != sizeof(h)) {
        return -EPROTO;
    }
    memcpy(&h, data, sizeof(h));
    if (h.flags & ~FILE_HEAD_ALL_ || h.mode > 07777 || h.zero != 0 ||
        !text_ok(h.owner, sizeof(h.owner), OWNER_CHARS)) {
        return -EPROTO;
    }
    if (h.length > INT64_MAX || h.total > INT64_MAX) {
        return -EPROTO;
    }
    if (h.flags & FILE_HEAD_RANGE && (!(h.flags & FILE_HEAD_LENGTH) || h.range_start >= h.total ||
                                      h.length == 0 || h.length > h.total - h.range_start)) {
        return -EPROTO;
    }
    *ret = h;
    return 0;
}

static int parse_error(const void *data, size_t len, struct err *ret)
{
    struct file_fault f;

    if (len != sizeof(f)) {
        return -EPROTO;
    }
    memcpy(&f, data, sizeof(f));
    if (f.code >= 0 || f.code < -ERRNO_MAX || !text_ok(f.reason, sizeof(f.reason), WORD_CHARS) ||
        !text_ok(f.field, sizeof(f.field), WORD_CHARS) || !text_ok(f.msg, sizeof(f.msg), NULL)) {
        return -EPROTO;
    }
    err_field(ret, f.code, f.reason, f.field, "%s", f.msg);
    return 0;
}

int file_msg_parse(const void *packet, size_t len, struct file_msg *ret)
{
    const char *data = packet;
    struct file_msg m = {0};
    uint32_t type;
    int r = 0;

    ASSERT(ret);
    if (len < sizeof(type) || len > FILE_MSG_MAX) {
        return -EPROTO;
    }
    memcpy(&type, data, sizeof(type));
    data += sizeof(type);
    len -= sizeof(type);
    switch (type) {
    case FILE_MSG_HEAD:
        r = parse_head(data, len, &m.head);
        break;
    case FILE_MSG_BODY:
        m.body = data;
        m.body_len = len;
        r = len > 0 ? 0 : -EPROTO;
        break;
    case FILE_MSG_END:
        r = len == 0 ? 0 : -EPROTO;
        break;
    case FILE_MSG_ERROR:
        r = parse_error(data, len, &m.err);
        break;
    default:
        return -EPROTO;
    }
    m.type = (enum file_msg_type)type;
    if (r == 0) {
        *ret = m;
    }
    return r;
}

static int send_msg(int fd, uint32_t type, const void *data, size_t len)
{
    struct iovec iov[] = {
        {.iov_base = &type, .iov_len = sizeof(type)},
        {.iov_base = (void *)(uintptr_t)data, .iov_len = len},
    };
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = len > 0 ? 2 : 1};
    ssize_t n;

    do {
        n = sendmsg(fd, &msg, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

int file_send_head(int fd, const struct file_head *head)
{
    return send_msg(fd, FILE_MSG_HEAD, head, sizeof(*head));
}

int file_send_body(int fd, const void *data, size_t len)
{
    const char *p = data;
    int r = 0;

    while (r == 0 && len > 0) {
        size_t n = MIN(len, (size_t)FILE_BODY_CHUNK);

        r = send_msg(fd, FILE_MSG_BODY, p, n);
        p += n;
        len -= n;
    }
    return r;
}

int file_send_end(int fd)
{
    return send_msg(fd, FILE_MSG_END, /* data */ NULL, 0);
}

int file_send_error(int fd, const struct err *e)
{
    struct file_fault f;

    ASSERT(e->code < 0);
    memset(&f, 0, sizeof(f)); /* no stack bytes into the socket */
    f.code = e->code;
    memcpy(f.reason, e->reason, strlen(e->reason));
    memcpy(f.field, e->field, strlen(e->field));
    file_text_show(f.msg, sizeof(f.msg), e->msg);
    return send_msg(fd, FILE_MSG_ERROR, &f, sizeof(f));
}
