/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/audit.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/log.h"

#define NAME "audit.log"
#define START "0000000000000000000000000000000000000000000000000000000000000000"
#define TEXT_MAX 256u
/* How far back a list looks. */
#define LIST_WINDOW (8u * 1024 * 1024)

struct audit {
    pthread_mutex_t lock; /* guards all below */
    int dir_fd;           /* owned */
    int fd;               /* owned */
    off_t size;
    uint64_t n; /* of the last line */
    char hash[AUDIT_HASH_SIZE];
};

/* What a guest chose, cut; JSON escapes the rest. Bytes that are no ASCII become '?'. */
static void put(json_t *json, const char *name, const char *text)
{
    char clean[TEXT_MAX];
    size_t i = 0;

    if (str_empty(text)) {
        return;
    }
    for (; text[i] && i < sizeof(clean) - 1; i++) {
        clean[i] = (char)((unsigned char)text[i] < 0x80 ? text[i] : '?');
    }
    clean[i] = '\0';
    json_object_set_new(json, name, json_string(clean));
}

static json_t *row_json(const struct audit *a, const struct audit_row *row)
{
    json_t *json = json_pack("{s:I, s:I, s:s}", "n", (json_int_t)(a->n + 1), "at_ms",
                             (json_int_t)clock_wall_ms(), "event", row->event);

    ASSERT(json);
    put(json, "organisation", row->organisation);
    put(json, "project", row->project);
    put(json, "sandbox", row->sandbox);
    put(json, "key", row->key);
    put(json, "credential", row->credential);
    put(json, "credential_id", row->credential_id);
    put(json, "host", row->host);
    if (row->port) {
        json_object_set_new(json, "port", json_integer(row->port));
    }
    put(json, "method", row->method);
    put(json, "path", row->path);
    put(json, "reason", row->reason);
    json_object_set_new(json, "prev", json_string(a->hash));
    return json;
}

/* audit.log becomes audit.log.1, that .2, and the last is dropped. */
static int put_aside(struct audit *a)
{
    char from[32];
    char to[32];

    for (unsigned i = AUDIT_FILES_MAX - 1; i > 0; i--) {
        snprintf(to, sizeof(to), NAME ".%u", i);
        snprintf(from, sizeof(from), i > 1 ? NAME ".%u" : NAME, i - 1);
        if (renameat(a->dir_fd, from, a->dir_fd, to) < 0 && errno != ENOENT) {
            return -errno;
        }
    }
    a->fd = fd_close(a->fd);
    a->fd = fs_open_beneath(a->dir_fd, NAME, O_RDWR | O_CREAT | O_APPEND, 0600);
    a->size = 0;
    return a->fd < 0 ? a->fd : 0;
}

static int append(struct audit *a, const char *line, size_t len, bool durable)
{
    int r = a->size > 0 && a->size + (off_t)len > (off_t)AUDIT_FILE_MAX ? put_aside(a) : 0;

    if (r == 0) {
        r = a->fd >= 0 ? fs_write_all(a->fd, line, len) : -EIO;
        if (r < 0 && a->fd >= 0) {
            /* A part of a line would break the chain for good. */
            r = ftruncate(a->fd, a->size) < 0 ? -EIO : r;
        }
    }
    if (r == 0) {
        a->size += (off_t)len;
        r = durable && fdatasync(a->fd) < 0 ? -errno : 0;
    }
    return r;
}

static int add_locked(struct audit *a, const struct audit_row *row, bool durable)
{
    cleanup_json json_t *json = row_json(a, row);
    cleanup_buf struct buf line = BUF_INIT(AUDIT_LINE_MAX);
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char hash[AUDIT_HASH_SIZE];
    int r = json_write(json, &line);

    if (r < 0) {
        return r;
    }
    SHA256((const unsigned char *)line.data, line.len, digest);
    hex_encode(digest, sizeof(digest), hash);
    line.len--; /* the brace */
    r = buf_printf(&line, ",\"hash\":\"%s\"}\n", hash);
    r = r < 0 ? r : append(a, line.data, line.len, durable);
    if (r == 0) {
        a->n++;
        memcpy(a->hash, hash, sizeof(hash));
    }
    return r;
}

int audit_add(struct audit *a, const struct audit_row *row, bool durable, struct err *e)
{
    int r;

    ASSERT(a && row && row->event);
    pthread_mutex_lock(&a->lock);
    r = add_locked(a, row, durable);
    pthread_mutex_unlock(&a->lock);
    return r < 0 ? err_wrap(e, r, "writing the audit log") : 0;
}

/* ---- opening ---- */

/* The last whole line of a file: where it begins, its length; 0 when there is none. *ret_end: where it ends. */
static int last_line(int fd, char *line, size_t *ret_len, off_t *ret_end)
{
    char tail[2 * AUDIT_LINE_MAX];
    struct stat st;
    off_t from;
    ssize_t n;
    ssize_t end;
    ssize_t start;

    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    from = st.st_size > (off_t)sizeof(tail) ? st.st_size - (off_t)sizeof(tail) : 0;
    n = pread(fd, tail, (size_t)(st.st_size - from), from);
    if (n < 0) {
        return -errno;
    }
    for (end = n; end > 0 && tail[end - 1] != '\n'; end--) {
    }
    *ret_end = from + end;
    *ret_len = 0;
    if (end == 0) {
        return from > 0 ? -EBADMSG : 0;
    }
    for (start = end - 1; start > 0 && tail[start - 1] != '\n'; start--) {
    }
    if (end - 1 - start > (ssize_t)AUDIT_LINE_MAX) {
        return -EBADMSG;
    }
    *ret_len = (size_t)(end - 1 - start);
    memcpy(line, tail + start, *ret_len);
    return 0;
}

/* Where the chain is to go on. The torn rest of a line is cut off. *ret_torn: there was one. */
static int find_end(struct audit *a, bool *ret_torn)
{
    char line[AUDIT_LINE_MAX + 1];
    off_t end = 0;
    size_t len = 0;
    struct stat st;
    int r = last_line(a->fd, line, &len, &end);

    if (r < 0 || fstat(a->fd, &st) < 0) {
        return r < 0 ? r : -errno;
    }
    *ret_torn = st.st_size > end;
    if (*ret_torn && ftruncate(a->fd, end) < 0) {
        return -errno;
    }
    a->size = end;
    if (len == 0) {
        cleanup_close int before = fs_open_beneath(a->dir_fd, NAME ".1", O_RDONLY, 0);

        r = before >= 0 ? last_line(before, line, &len, &end) : 0;
        if (r < 0 || len == 0) {
            return r; /* the very first line */
        }
    }
    return audit_check_line(line, len, 0, "", &a->n, a->hash);
}

int audit_open(const char *dir, struct audit **ret, struct err *e)
{
    CLEANUP(audit_freep) struct audit *a = xnew(struct audit);
    struct audit_row row = {.event = "repair", .reason = "torn_line"};
    bool torn = false;
    int r;

    pthread_mutex_init(&a->lock, NULL);
    a->fd = FD_NONE;
    memcpy(a->hash, START, sizeof(START));
    a->dir_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    if (a->dir_fd >= 0) {
        a->fd = fs_open_beneath(a->dir_fd, NAME, O_RDWR | O_CREAT | O_APPEND, 0600);
    }
    if (a->fd < 0) {
        return err_wrap(e, a->dir_fd < 0 ? a->dir_fd : a->fd, "opening the audit log in '%s'", dir);
    }
    r = find_end(a, &torn);
    if (r < 0) {
        return err_wrap(e, r, "the audit log in '%s' does not end with a line of ours", dir);
    }
    if (torn) {
        log_warn(NULL, "the last line of the audit log was cut short by a crash and is dropped");
        r = audit_add(a, &row, /* durable */ true, e);
    }
    if (r == 0) {
        *ret = TAKE_PTR(a);
    }
    return r;
}

void audit_free(struct audit *a)
{
    if (a) {
        a->fd = fd_close(a->fd);
        a->dir_fd = fd_close(a->dir_fd);
        pthread_mutex_destroy(&a->lock);
        free(a);
    }
}

/* ---- listing ---- */

static int read_tail(struct audit *a, struct buf *ret)
{
    off_t from;
    void *room = NULL;
    ssize_t n = 0;
    int r;

    pthread_mutex_lock(&a->lock);
    from = a->size > (off_t)LIST_WINDOW ? a->size - (off_t)LIST_WINDOW : 0;
    r = buf_reserve(ret, (size_t)(a->size - from) + 1, &room);
    if (r == 0 && a->size > from) {
        n = pread(a->fd, room, (size_t)(a->size - from), from);
        r = n < 0 ? -errno : 0;
    }
    pthread_mutex_unlock(&a->lock);
    if (r == 0) {
        buf_commit(ret, (size_t)n);
    }
    return r;
}

int audit_list(struct audit *a, const char *organisation, const char *project, size_t limit,
               json_t **ret, struct err *e)
{
    cleanup_buf struct buf tail = BUF_INIT(LIST_WINDOW + 1);
    json_t *list = json_array();
    int r = read_tail(a, &tail);
    size_t end = tail.len;

    if (r < 0) {
        json_decref(list);
        return err_wrap(e, r, "reading the audit log");
    }
    while (end > 0 && json_array_size(list) < limit) {
        size_t start = end - 1;
        cleanup_json json_t *row = NULL;

        while (start > 0 && tail.data[start - 1] != '\n') {
            start--;
        }
        if (json_parse_object(tail.data + start, end - 1 - start, &row, NULL) == 0 &&
            str_eq(json_get_string(row, "organisation", ""), organisation) &&
            (!project || str_eq(json_get_string(row, "project", project), project))) {
            json_array_append(list, row);
        }
        end = start;
    }
    *ret = list;
    return 0;
}
