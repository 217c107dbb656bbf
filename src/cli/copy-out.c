/* SPDX-License-Identifier: Apache-2.0 */
/* From a sandbox to here. What the sandbox says is checked before it is used; see copy.h. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "cli/copy-local.h"
#include "cli/copy.h"
#include "wire/url.h"

/* Entries asked for at once, and how deep one listing goes; deeper folders get listings of their own. */
#define LIST_PAGE 2000u
#define LIST_DEPTH 64u

/* Where the copy goes: an entry `top` of a folder, or ("") what is in the source right into the folder. */
struct goal {
    int root_fd; /* owned */
    char *top;   /* owned */
    bool is_new; /* nothing was there */
};

static void goal_done(struct goal *g)
{
    fd_close(g->root_fd);
    free(g->top);
}

static int get_open(struct copy *copy, const char *guest, struct http_call **ret, struct err *e)
{
    const struct pollfd watch = copy_watch(copy);
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *target = NULL;
    int r;

    r = copy_target(copy, "files", guest, &target, e);
    r = r < 0 ? r
              : http_call_new(
                    copy->cli->client,
                    &(struct http_call_opts){.method = "GET", .target = target, .watch = &watch},
                    &call, e);
    r = r < 0 ? r : http_call_head(call, e);
    r = r < 0 ? r : http_call_check(call, e);
    if (r == 0) {
        *ret = TAKE_PTR(call);
    }
    return r;
}

/* Gets a file; every piece goes to `put`. *ret_got counts. */
static int get_content(struct copy *copy, const char *guest,
                       int (*put)(void *ctx, const void *data, size_t len), void *ctx,
                       uint64_t *ret_got, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *chunk = xmalloc(COPY_CHUNK);
    int r;

    r = get_open(copy, guest, &call, e);
    while (r == 0) {
        ssize_t n = http_call_read(call, chunk, COPY_CHUNK, e);

        if (n <= 0) {
            return (int)n;
        }
        r = put(ctx, chunk, (size_t)n);
        if (r < 0) {
            return err_wrap(e, r, "writing");
        }
        *ret_got += (uint64_t)n;
        copy_add_bytes(copy, (uint64_t)n);
        if (copy_stopped(copy)) {
            return err_set(e, -ECANCELED, "interrupted", "interrupted");
        }
    }
    return r;
}

static int put_file(void *ctx, const void *data, size_t len)
{
    return copy_file_write(ctx, data, len);
}

static int put_fd(void *ctx, const void *data, size_t len)
{
    return fs_write_all(*(int *)ctx, data, len);
}

static int get_once(struct copy *copy, const struct copy_job *job, struct err *e)
{
    CLEANUP(copy_file_done) struct copy_file file = COPY_FILE_INIT;
    uint64_t got = 0;
    int r;

    r = copy_file_begin(copy->root_fd, job->local, &file);
    if (r < 0) {
        return err_wrap(e, r, "creating the file");
    }
    r = get_content(copy, job->guest, put_file, &file, &got, e);
    if (r == 0) {
        r = copy_file_commit(&file, job->mode);
        r = r < 0 ? err_wrap(e, r, "writing") : 0;
    }
    if (r < 0) {
        /* What does not stay does not count. */
        copy_add_bytes(copy, (uint64_t)0 - got);
    }
    return r;
}

static int get_job(struct copy *copy, const struct copy_job *job, struct err *e)
{
    int r = 0;

    for (unsigned i = 0; i < COPY_TRIES; i++) {
        struct err mine = {0};

        r = get_once(copy, job, &mine);
        if (r == 0) {
            return 0;
        }
        *e = mine;
        if (!copy_error_is_passing(&mine) || copy_stopped(copy)) {
            break;
        }
    }
    return r;
}

static int fetch_file(struct copy *copy, json_t *entry, const char *guest, const char *local)
{
    struct copy_job *job = xnew(struct copy_job);
    int64_t size = json_get_int(entry, "size", 0);

    job->fd = FD_NONE;
    job->guest = xstrdup(guest);
    job->local = xstrdup(local);
    job->mode = copy_entry_mode(entry);
    job->size = size > 0 ? (uint64_t)size : 0;
    return copy_pool_put_take(copy, job);
}

static int fetch_dir(struct copy *copy, json_t *entry, const char *local, struct err *e)
{
    unsigned mode = copy_entry_mode(entry);
    bool created = false;
    int r;

    r = copy_local_mkdir(copy->root_fd, local, mode, &created);
    if (r < 0) {
        return err_wrap(e, r, "making the folder");
    }
    if (created && (mode & 0700) != 0700) {
        copy_later_add(copy, local, mode);
    }
    return 0;
}

static int fetch_symlink(struct copy *copy, json_t *entry, const char *local, struct err *e)
{
    cleanup_free char *target = copy_entry_path(entry, "target");
    int r;

    if (!target || !*target) {
        return err_set(e, -EINVAL, "bad_link", "the sandbox says no target for the link");
    }
    r = copy_local_symlink(copy->root_fd, local, target);
    return r < 0 ? err_wrap(e, r, "making the link") : 0;
}

/* One entry of the sandbox, not what is in it. */
static int fetch_one(struct copy *copy, json_t *entry, const char *guest, const char *local,
                     struct err *e)
{
    const char *type = json_get_string(entry, "type", "");

    if (str_eq(type, "file")) {
        return fetch_file(copy, entry, guest, local);
    }
    if (str_eq(type, "dir")) {
        return fetch_dir(copy, entry, local, e);
    }
    if (str_eq(type, "symlink")) {
        return fetch_symlink(copy, entry, local, e);
    }
    return err_set(e, -EINVAL, "special_file", "neither file, folder nor link: passed over");
}

/* The path of an entry below the listed folder. -EINVAL when it is not below it or no path we would create. */
static int entry_below(json_t *entry, const char *base, char **ret_guest, const char **ret_below)
{
    cleanup_free char *guest = copy_entry_path(entry, "path");
    size_t len = strlen(base);

    if (!guest || strncmp(guest, base, len) != 0) {
        return -EINVAL;
    }
    if (len > 0 && base[len - 1] != '/') {
        if (guest[len] != '/') {
            return -EINVAL;
        }
        len++;
    }
    if (!copy_local_path_valid(guest + len)) {
        return -EINVAL;
    }
    *ret_below = guest + len;
    *ret_guest = TAKE_PTR(guest);
    return 0;
}

static unsigned path_depth(const char *path)
{
    unsigned n = 1;

    for (; *path; path++) {
        n += *path == '/';
    }
    return n;
}

/* What is listed in one go: a folder in the sandbox and where it goes here. */
struct listing {
    const char *base;  /* borrowed */
    const char *local; /* borrowed; "" for the folder itself */
    unsigned depth;    /* of `local` below the top of the copy */
};

static int fetch_tree(struct copy *copy, const struct listing *l);

/* Nothing but what stops the copy comes back. */
static int fetch_listed(struct copy *copy, const struct listing *l, json_t *entry)
{
    cleanup_free char *guest = NULL;
    cleanup_free char *local = NULL;
    const char *below = NULL;
    unsigned depth;
    struct err e = {0};
    int r;

    r = copy_count_entry(copy, &e);
    if (r == 0 && entry_below(entry, l->base, &guest, &below) < 0) {
        r = err_set(&e, -EINVAL, "bad_name",
                    "the sandbox lists a name that cannot be in that folder: passed over");
    }
    if (r < 0) {
        return copy_entry_failed(copy, l->base, &e);
    }
    local = copy_join(l->local, below);
    r = fetch_one(copy, entry, guest, local, &e);
    if (r < 0) {
        return e.code ? copy_entry_failed(copy, local, &e) : r;
    }
    depth = path_depth(below);
    if (depth < LIST_DEPTH || !str_eq(json_get_string(entry, "type", ""), "dir")) {
        return 0;
    }
    return fetch_tree(copy,
                      &(struct listing){.base = guest, .local = local, .depth = l->depth + depth});
}

static int list_page(struct copy *copy, const char *base, const char *cursor, json_t **ret,
                     struct err *e)
{
    const struct pollfd watch = copy_watch(copy);
    cleanup_buf struct buf b = BUF_INIT(CLI_TARGET_MAX);
    cleanup_free char *target = NULL;
    cleanup_free char *what = xasprintf("files/list?depth=%u&limit=%u", LIST_DEPTH, LIST_PAGE);
    int r;

    r = copy_target(copy, what, base, &target, e);
    if (r < 0) {
        return r;
    }
    r = buf_add_str(&b, target);
    if (r == 0 && cursor) {
        r = url_add_query(&b, "cursor", cursor);
    }
    if (r < 0) {
        return err_wrap(e, r, "the path is too long");
    }
    return cli_call_opts(
        copy->cli,
        &(struct http_json_opts){.method = "GET", .target = buf_str(&b), .watch = &watch}, ret, e);
}

static int page_errors(struct copy *copy, json_t *page)
{
    const json_t *errors = json_object_get(page, "errors");
    int r = 0;

    for (size_t i = 0; i < json_array_size(errors) && r == 0; i++) {
        json_t *item = json_array_get(errors, i);
        json_t *error = json_object_get(item, "error");
        cleanup_free char *path = copy_entry_path(item, "path");
        struct err e = {0};

        err_set(&e, -EACCES, NULL, "%.300s",
                json_get_string(json_is_object(error) ? error : item, "message", "cannot be read"));
        r = copy_entry_failed(copy, path ? path : "?", &e);
    }
    return r;
}

static int fetch_tree(struct copy *copy, const struct listing *l)
{
    cleanup_free char *cursor = NULL;
    int r = 0;

    if (l->depth >= COPY_DEPTH_MAX) {
        struct err e = {0};

        err_set(&e, -ELOOP, "too_deep", "more than %u folders within folders: passed over",
                COPY_DEPTH_MAX);
        return copy_entry_failed(copy, l->local, &e);
    }
    do {
        cleanup_json json_t *page = NULL;
        const json_t *entries;
        const char *next;
        struct err e = {0};

        r = list_page(copy, l->base, cursor, &page, &e);
        if (r < 0) {
            return copy_entry_failed(copy, l->base, &e);
        }
        entries = json_object_get(page, "entries");
        for (size_t i = 0; i < json_array_size(entries) && r == 0; i++) {
            r = copy_stopped(copy) ? -ECANCELED : fetch_listed(copy, l, json_array_get(entries, i));
        }
        r = r < 0 ? r : page_errors(copy, page);
        next = json_get_string(page, "next_cursor", NULL);
        if (next && json_array_size(entries) == 0) {
            err_set(&e, -EBADMSG, "bad_answer", "the sandbox lists nothing for ever");
            return copy_entry_failed(copy, l->base, &e);
        }
        free(cursor);
        cursor = next ? xstrdup(next) : NULL;
    } while (r == 0 && cursor);
    return r;
}

static int set_modes_later(struct copy *copy)
{
    while (copy->n_later > 0) {
        struct copy_later *l = &copy->later[--copy->n_later];
        cleanup_free char *path = TAKE_PTR(l->path);
        int r = copy_local_chmod_dir(copy->root_fd, path, l->mode);

        if (r < 0) {
            struct err e = {0};

            err_wrap(&e, r, "setting the mode");
            copy_entry_failed(copy, path, &e);
        }
    }
    return 0;
}

static int goal_open(const char *folder, char *top_take, struct goal *ret, struct err *e)
{
    struct stat st;
    int fd = fs_open(folder, O_RDONLY | O_DIRECTORY, 0);

    if (fd < 0) {
        free(top_take);
        return err_wrap(e, fd, "opening '%s'", folder);
    }
    *ret = (struct goal){.root_fd = fd, .top = top_take};
    ret->is_new =
        *top_take && fstatat(fd, top_take, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
    return 0;
}

/* `local` names the copy itself: its folder is made when it is missing. */
static int goal_named(const char *local, struct goal *ret, struct err *e)
{
    cleanup_free char *real = realpath(local, NULL);
    const char *path = real ? real : local;
    cleanup_free char *name = copy_base_name(path);
    cleanup_free char *folder = xstrdup(path);
    size_t len = strlen(folder);
    int r;

    while (len > 0 && folder[len - 1] == '/') {
        len--;
    }
    len -= strlen(name);
    folder[len] = '\0';
    if (!copy_local_path_valid(name)) {
        return err_set(e, -EINVAL, "usage", "'%s' is no name for a copy", local);
    }
    if (len > 0) {
        r = fs_mkdir_all(folder, 0777);
        if (r < 0) {
            return err_wrap(e, r, "making '%s'", folder);
        }
    }
    return goal_open(len > 0 ? folder : ".", TAKE_PTR(name), ret, e);
}

static int goal_find(const char *guest, const char *local, struct goal *ret, struct err *e)
{
    bool content = copy_means_content(guest);
    bool slash = *local && local[strlen(local) - 1] == '/';
    cleanup_free char *name = copy_base_name(guest);
    struct stat st;
    int r;

    if (!*local) {
        return err_set(e, -EINVAL, "usage", "the target is empty; '.' is the folder we are in");
    }
    if (stat(local, &st) < 0) {
        if (!slash || content) {
            return goal_named(local, ret, e);
        }
        r = fs_mkdir_all(local, 0777);
        if (r < 0) {
            return err_wrap(e, r, "making '%s'", local);
        }
        return goal_open(local, TAKE_PTR(name), ret, e);
    }
    if (S_ISDIR(st.st_mode)) {
        return goal_open(local, content ? xstrdup("") : TAKE_PTR(name), ret, e);
    }
    return goal_named(local, ret, e);
}

/* A device or pipe as the target is written to, never replaced. */
static bool local_is_stream(const char *local)
{
    struct stat st;

    return stat(local, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static int copy_out_fd(struct copy *copy, const char *guest, int fd, struct err *e)
{
    uint64_t got = 0;
    int r = get_content(copy, guest, put_fd, &fd, &got, e);

    if (r == 0) {
        copy->files++;
    }
    return r;
}

int copy_out_stdout(struct copy *copy, const char *guest, struct err *e)
{
    return copy_out_fd(copy, guest, STDOUT_FILENO, e);
}

static int fetch_top(struct copy *copy, const struct goal *goal, json_t *entry, const char *guest)
{
    bool is_dir = str_eq(json_get_string(entry, "type", ""), "dir");
    struct err e = {0};
    int r = 0;

    if (*goal->top) {
        r = fetch_one(copy, entry, guest, goal->top, &e);
    } else if (!is_dir) {
        r = err_set(&e, -ENOTDIR, NULL, "is not a folder");
    }
    if (r < 0) {
        return e.code ? copy_entry_failed(copy, guest, &e) : r;
    }
    return is_dir ? fetch_tree(copy, &(struct listing){.base = guest, .local = goal->top}) : 0;
}

int copy_out(struct copy *copy, const char *guest, const char *local, struct err *e)
{
    CLEANUP(goal_done) struct goal goal = {.root_fd = FD_NONE};
    cleanup_json json_t *entry = NULL;
    cleanup_free char *path = NULL;
    int walked;
    int r;

    if (local_is_stream(local)) {
        cleanup_close int fd = fs_open(local, O_WRONLY | O_NOCTTY, 0);

        return fd < 0 ? err_wrap(e, fd, "opening '%s'", local) : copy_out_fd(copy, guest, fd, e);
    }
    r = copy_guest_stat(copy, str_empty(guest) ? "." : guest, &entry, e);
    if (r < 0) {
        return r;
    }
    path = copy_entry_path(entry, "path");
    if (!path || path[0] != '/') {
        return err_set(e, -EBADMSG, "bad_answer", "the sandbox does not say where '%s' is", guest);
    }
    r = goal_find(str_empty(guest) ? "." : guest, local, &goal, e);
    if (r < 0) {
        return r;
    }
    copy->root_fd = goal.root_fd;
    r = copy_pool_start(copy, get_job, e);
    if (r < 0) {
        return r;
    }
    walked = fetch_top(copy, &goal, entry, path);
    r = copy_pool_finish(copy, e);
    if (r == 0 && walked < 0) {
        r = err_set(e, walked, NULL, "the copy was stopped");
    }
    if (r == 0) {
        r = set_modes_later(copy);
    } else if (goal.is_new) {
        int removed = fs_remove_tree(goal.root_fd, goal.top);

        if (removed < 0) {
            ui_warn(&copy->cli->ui, "part of the copy is left at %s: %s", local,
                    strerror(-removed));
        }
    }
    copy->root_fd = FD_NONE;
    return r;
}
