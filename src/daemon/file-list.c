/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listing, one page per worker, without keeping anything between pages.
 *
 * The order is the same each time: names of a directory by their bytes, each directory followed by
 * what is in it (as deep as asked). A page starts after the entry that the cursor names, whether or
 * not that entry still exists; so whatever is removed or added meanwhile, every entry that exists
 * all the time is told exactly once. The price is that a page reads the names of its directories
 * again: memory stays flat (a batch of names per level), time per page grows with the directory.
 *
 * Links are told and never entered, so loops end. What cannot be read is told in "errors", and the
 * rest is listed. A page ends at `limit` entries or LIST_PAGE_BYTES.
 */
#include "daemon/file-worker.h"

#include "base/base64.h"
#include "daemon/file-text.h"
#include "daemon/file-walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define LIST_PAGE_BYTES (1u << 20)
/*
 * Names in memory, over all levels, and at least for one level: with one batch for a page a large
 * directory is read once per page.
 */
#define LIST_NAMES_MAX 40000u
#define LIST_BATCH_MIN 64u
#define LIST_ERRORS_MAX 100u

struct list {
    struct file_worker *w; /* borrowed */
    struct buf entries;    /* JSON objects with commas between */
    struct buf errors;
    struct buf relative; /* path of the entry at hand, below the listed directory */
    char *last;          /* owned: relative path of the last entry told */
    unsigned n;
    unsigned n_errors;
    size_t n_names; /* held by all levels */
    bool full;      /* the page is complete and there is more */
};

/* The `size` smallest names after `after`. */
struct batch {
    struct list *list; /* borrowed */
    char **names;      /* owned: room for twice the size */
    size_t size;
    size_t n;
    bool more; /* there are larger names */
};

static void list_done(struct list *l)
{
    buf_done(&l->entries);
    buf_done(&l->errors);
    buf_done(&l->relative);
    free(l->last);
}

static void batch_cut(struct batch *b, size_t n)
{
    while (b->n > n) {
        free(b->names[--b->n]);
        b->list->n_names--;
    }
}

static void batch_free(struct batch *b)
{
    batch_cut(b, 0);
    free(b->names);
    free(b);
}
DEFINE_CLEANUP(struct batch *, batch_free);

static struct batch *batch_new(struct list *l)
{
    struct batch *b = xnew(struct batch);
    size_t wanted = (size_t)l->w->req->limit - l->n + 1; /* one more tells that there is more */
    size_t room = l->n_names < LIST_NAMES_MAX ? (LIST_NAMES_MAX - l->n_names) / 2 : 0;

    b->list = l;
    b->size = MAX(MIN(wanted, room), (size_t)LIST_BATCH_MIN);
    b->names = xnew_n(char *, 2 * b->size);
    return b;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void batch_sort(struct batch *b)
{
    qsort(b->names, b->n, sizeof(b->names[0]), compare_names);
    b->more = b->more || b->n > b->size;
    batch_cut(b, b->size);
}

/* Reads the whole directory, keeping the smallest names only. */
static int batch_fill(struct batch *b, DIR *dir, const char *after)
{
    const char *bound = NULL; /* once there are enough, larger names are of no use */
    struct dirent *entry;

    batch_cut(b, 0);
    b->more = false;
    rewinddir(dir);
    while (errno = 0, (entry = readdir(dir))) {
        const char *name = entry->d_name;

        if (str_eq(name, ".") || str_eq(name, "..") || (after && strcmp(name, after) <= 0)) {
            continue;
        }
        if (bound && strcmp(name, bound) >= 0) {
            b->more = true;
            continue;
        }
        b->names[b->n++] = xstrdup(name);
        b->list->n_names++;
        if (b->n == 2 * b->size) {
            batch_sort(b);
            bound = b->names[b->n - 1];
        }
    }
    if (errno != 0) {
        return -errno;
    }
    batch_sort(b);
    return 0;
}

static void relative_cut(struct list *l, size_t len)
{
    if (l->relative.len > len) {
        l->relative.len = len;
        l->relative.data[len] = '\0';
    }
}

static char *absolute(const struct list *l)
{
    const char *base = l->w->path;

    if (l->relative.len == 0) {
        return xstrdup(base);
    }
    return xasprintf("%s/%s", str_eq(base, "/") ? "" : base, buf_str(&l->relative));
}

static int add_error(struct list *l, int code)
{
    cleanup_free char *path = absolute(l);
    struct err e = {0};
    int r;

    if (l->n_errors++ >= LIST_ERRORS_MAX) {
        return 0;
    }
    file_error(&e, code, path);
    r = buf_add_str(&l->errors, l->errors.len > 0 ? ",{" : "{");
    if (r == 0) {
        r = file_text_member(&l->errors, "path", path);
    }
    if (r == 0) {
        r = buf_printf(&l->errors, ",\"code\":\"%s\",\"message\":", err_reason(&e));
    }
    if (r == 0) {
        r = file_text_json(&l->errors, e.msg);
    }
    return r < 0 ? r : buf_add_str(&l->errors, "}");
}

/* Tells the entry at hand. 1: it is a directory; 0: it is not, or there is nothing to tell. */
static int add_entry(struct list *l, int dir_fd, const char *name)
{
    struct file_place place = {.dir_fd = dir_fd, .at = name};
    cleanup_free char *path = absolute(l);
    struct stat st;
    int r;

    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT ? 0 : add_error(l, -errno);
    }
    if (l->n == l->w->req->limit || l->entries.len > LIST_PAGE_BYTES) {
        l->full = true;
        return 0;
    }
    place.path = path;
    place.more = l->w->req->more;
    if (l->n > 0) {
        r = buf_add_str(&l->entries, ",");
        if (r < 0) {
            return r;
        }
    }
    r = file_entry_add(&l->entries, &place, &st, &l->w->names);
    if (r == -ENOENT) { /* a link that went away between two looks */
        l->entries.len -= l->n > 0;
        return 0;
    }
    if (r < 0) {
        return r;
    }
    l->n++;
    free(l->last);
    l->last = xstrdup(buf_str(&l->relative));
    return S_ISDIR(st.st_mode) ? 1 : 0;
}

static int list_dir(struct list *l, int fd_take, unsigned depth, const char *cursor);

/* Below name, which may have become anything meanwhile. */
static int list_below(struct list *l, int dir_fd, const char *name, unsigned depth,
                      const char *cursor)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) {
        return 0;
    }
    return fd < 0 ? add_error(l, -errno) : list_dir(l, fd, depth, cursor);
}

static int list_name(struct list *l, int dir_fd, const char *name, unsigned depth)
{
    size_t before = l->relative.len;
    int r = buf_printf(&l->relative, "%s%s", before > 0 ? "/" : "", name);

    if (r < 0 || l->relative.len > FILE_PATH_MAX) {
        relative_cut(l, before);
        return add_error(l, -ENAMETOOLONG); /* told for the directory that holds it */
    }
    r = add_entry(l, dir_fd, name);
    if (r == 1) {
        r = depth > 1 ? list_below(l, dir_fd, name, depth - 1, /* cursor */ NULL) : 0;
    }
    relative_cut(l, before);
    return r;
}

/* Where the last page stopped: inside the directory `first`, after `rest` (NULL: at its start). */
static int list_resume(struct list *l, int dir_fd, unsigned depth, const char *first,
                       const char *rest)
{
    size_t before = l->relative.len;
    int r = buf_printf(&l->relative, "%s%s", before > 0 ? "/" : "", first);

    if (r == 0 && depth > 1) {
        r = list_below(l, dir_fd, first, depth - 1, rest);
    }
    relative_cut(l, before);
    return r;
}

static int list_dir(struct list *l, int fd_take, unsigned depth, const char *cursor)
{
    CLEANUP(batch_freep) struct batch *batch = batch_new(l);
    size_t first_len = cursor ? strcspn(cursor, "/") : 0;
    cleanup_free char *after = cursor ? xstrndup(cursor, first_len) : NULL;
    DIR *dir = fdopendir(fd_take);
    int r = 0;

    ASSERT(dir);
    if (cursor) {
        r = list_resume(l, dirfd(dir), depth, after,
                        cursor[first_len] ? cursor + first_len + 1 : NULL);
    }
    do {
        if (r == 0 && !l->full) {
            r = batch_fill(batch, dir, after);
            r = r < 0 ? add_error(l, r) : 0;
        }
        for (size_t i = 0; r == 0 && !l->full && i < batch->n; i++) {
            r = list_name(l, dirfd(dir), batch->names[i], depth);
        }
        if (batch->n > 0) {
            free(after);
            after = xstrdup(batch->names[batch->n - 1]);
        }
    } while (r == 0 && !l->full && batch->more);
    closedir(dir);
    return r;
}

static int reply_page(struct list *l, struct err *e)
{
    cleanup_buf struct buf json = BUF_INIT(FILE_JSON_MAX);
    cleanup_free char *token = l->full ? file_cursor_print(l->last) : NULL;
    int r = buf_add_str(&json, "{\"entries\":[");

    if (r == 0) {
        r = buf_add(&json, buf_str(&l->entries), l->entries.len);
    }
    if (r == 0) {
        r = buf_printf(&json, "],\"next_cursor\":%s%s%s,\"errors\":[", token ? "\"" : "",
                       token ? token : "null", token ? "\"" : "");
    }
    if (r == 0) {
        r = buf_add(&json, buf_str(&l->errors), l->errors.len);
    }
    if (r == 0) {
        r = buf_printf(&json, "],\"errors_omitted\":%u}",
                       l->n_errors > LIST_ERRORS_MAX ? l->n_errors - LIST_ERRORS_MAX : 0);
    }
    return r < 0 ? err_wrap(e, r, "answering")
                 : file_worker_reply_json(l->w, &json, /* created */ false, e);
}

int file_op_list(struct file_worker *w, struct err *e)
{
    CLEANUP(list_done)
    struct list l = {
        .w = w,
        .entries = BUF_INIT(FILE_JSON_MAX / 2),
        .errors = BUF_INIT(FILE_JSON_MAX / 4),
        .relative = BUF_INIT(2 * FILE_PATH_MAX),
    };
    int fd = open(w->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    int r;

    if (fd < 0) {
        return file_error(e, -errno, w->path);
    }
    r = list_dir(&l, fd, w->req->depth, w->req->cursor);
    if (r < 0) {
        return err_wrap(e, r, "listing");
    }
    return reply_page(&l, e);
}
