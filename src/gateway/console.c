/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The web console: plain files from one folder, read beneath it and never outside. "/" leads to it.
 * Everything it does goes through the API with a key that the user gives it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "gateway/gateway.h"

#define FILE_MAX (8u << 20)

static const struct {
    const char *ending;
    const char *type;
} types[] = {
    {".html", "text/html; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".svg", "image/svg+xml"},
    {".json", "application/json"},
    {".png", "image/png"},
    {".ico", "image/x-icon"},
    {".woff2", "font/woff2"},
    {".txt", "text/plain; charset=utf-8"},
};

static const char *type_of(const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        size_t n = strlen(types[i].ending);

        if (len > n && str_eq(name + len - n, types[i].ending)) {
            return types[i].type;
        }
    }
    return "application/octet-stream";
}

static int not_found(struct err *e)
{
    return err_set(e, -ENOENT, "not_found", "there is nothing here");
}

static int reply_file(struct http_request *req, int dir_fd, const char *name, struct err *e)
{
    cleanup_close int fd = fs_open_beneath(dir_fd, name, O_RDONLY | O_NONBLOCK, 0);
    cleanup_buf struct buf content = BUF_INIT(FILE_MAX);
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        return not_found(e);
    }
    r = fs_read_fd(fd, &content);
    if (r < 0) {
        return err_wrap(e, r, "reading a file of the console");
    }
    http_reply_header(
        req, "Content-Security-Policy",
        "default-src 'self'; img-src 'self' data: blob:; connect-src 'self' ws: wss:; "
        "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'");
    http_reply_header(req, "Referrer-Policy", "no-referrer");
    return http_reply_bytes(req, 200, type_of(name), buf_str(&content), content.len, e);
}

int console_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    const char *rest;

    if (g->console_fd == FD_NONE) {
        return err_set(e, -ENOENT, "not_found", "there is no console here; the API is under /v1");
    }
    if (str_eq(http_request_path(req), "/") || str_eq(http_request_path(req), "/console")) {
        http_reply_header(req, "Location", "/console/");
        return http_reply_empty(req, 307, e);
    }
    rest = http_request_param(req, "rest");
    ASSERT(rest[0] == '/');
    if (strchr(rest, '%')) { /* our files have plain names */
        return not_found(e);
    }
    return reply_file(req, g->console_fd, str_eq(rest, "/") ? "index.html" : rest + 1, e);
}
