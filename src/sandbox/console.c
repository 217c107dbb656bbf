/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/console.h"

#include "base/fs.h"
#include "base/log.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL_BYTES 4096u

static char *console_path(const struct node *node, const char *id)
{
    return xasprintf("%s/m/%s/console", node->run_dir, id);
}

int console_open(const struct node *node, const char *id, int *ret_fd, struct err *e)
{
    cleanup_free char *dir = xasprintf("%s/m/%s", node->run_dir, id);
    cleanup_free char *path = console_path(node, id);
    int r = fs_mkdir_all(dir, 0700);

    if (r < 0) {
        return err_wrap(e, r, "making '%s'", dir);
    }
    r = fs_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    if (r < 0) {
        return err_wrap(e, r, "opening '%s'", path);
    }
    *ret_fd = r;
    return 0;
}

int console_read_tail(const struct node *node, const char *id, struct buf *b)
{
    cleanup_free char *path = console_path(node, id);
    cleanup_close int fd = fs_open(path, O_RDONLY, 0);
    struct stat st;
    void *at = NULL;
    ssize_t n;
    size_t len;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0) {
        return fd < 0 ? fd : -errno;
    }
    len = MIN((size_t)st.st_size, b->max - b->len);
    r = buf_reserve(b, len, &at);
    if (r < 0) {
        return r;
    }
    n = pread(fd, at, len, st.st_size - (off_t)len);
    if (n < 0) {
        return -errno;
    }
    buf_commit(b, (size_t)n);
    return 0;
}

void console_trim(const struct node *node, const char *id)
{
    cleanup_free char *path = console_path(node, id);
    struct stat st;

    if (stat(path, &st) == 0 && st.st_size > (off_t)CONSOLE_KEEP_BYTES && truncate(path, 0) < 0) {
        log_warn(NULL, "cannot shorten '%s', ignoring: %m", path);
    }
}

void console_tail_to_log(const struct node *node, const char *id)
{
    cleanup_buf struct buf tail = BUF_INIT(512);

    if (console_read_tail(node, id, &tail) == 0 && tail.len > 0) {
        log_warn(&(struct log_ctx){.sandbox = id}, "the console ends with: %s", buf_str(&tail));
    }
}

bool console_shows_panic(const struct node *node, const char *id)
{
    cleanup_buf struct buf tail = BUF_INIT(TAIL_BYTES);

    return console_read_tail(node, id, &tail) == 0 &&
           strstr(buf_str(&tail), "Kernel panic") != NULL;
}
