/* SPDX-License-Identifier: Apache-2.0 */
/* From here into a sandbox. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/copy.h"

#define REMOVE_TRIES 5u
#define REMOVE_MS 10000u
#define REMOVE_AGAIN_MS 200

/* Sends what fd has to the call, from where fd stands. */
static int send_content(struct copy *copy, struct http_call *call, int fd, uint64_t *ret_sent,
                        struct err *e)
{
    cleanup_free char *chunk = xmalloc(COPY_CHUNK);

    for (;;) {
        ssize_t n = read(fd, chunk, COPY_CHUNK);
        int r;

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_wrap(e, -errno, "reading");
        }
        if (n == 0) {
            return 0;
        }
        r = http_call_write(call, chunk, (size_t)n, e);
        if (r < 0) {
            return r;
        }
        *ret_sent += (uint64_t)n;
        copy_add_bytes(copy, (uint64_t)n);
        if (copy_stopped(copy)) {
            return err_set(e, -ECANCELED, "interrupted", "interrupted");
        }
    }
}

/* One PUT of everything that fd has. */
static int put_once(struct copy *copy, const char *guest, int fd, int mode, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    const struct pollfd watch = copy_watch(copy);
    cleanup_free char *target = NULL;
    cleanup_free char *what =
        mode < 0 ? xstrdup("files") : xasprintf("files?mode=%04o", (unsigned)mode);
    struct err write_error = {0};
    uint64_t sent = 0;
    int r;

    r = copy_target(copy, what, guest, &target, e);
    r = r < 0 ? r
              : http_call_new(copy->cli->client,
                              &(struct http_call_opts){.method = "PUT",
                                                       .target = target,
                                                       .body_length = HTTP_BODY_STREAM,
                                                       .content_type = "application/octet-stream",
                                                       .watch = &watch},
                              &call, e);
    if (r < 0) {
        return r;
    }
    r = send_content(copy, call, fd, &sent, &write_error);
    if (r == -ECANCELED || (r < 0 && r != -EPIPE && r != -ECONNRESET)) {
        goto out;
    }
    if (r == 0) {
        r = http_call_end(call, &write_error);
    }
    /* A refusal may come before the end of the body and says more than the broken pipe. */
    if (http_call_head(call, e) == 0) {
        int refused = http_call_check(call, e);

        if (refused < 0 || r == 0) {
            r = refused;
            write_error = (struct err){0};
        }
    }
out:
    if (r < 0) {
        /* What did not arrive does not count. */
        copy_add_bytes(copy, (uint64_t)0 - sent);
        if (write_error.code && e) {
            *e = write_error;
        }
        return e && e->code ? e->code : r;
    }
    return 0;
}

static int put_job(struct copy *copy, const struct copy_job *job, struct err *e)
{
    int r = 0;

    for (unsigned i = 0; i < COPY_TRIES; i++) {
        struct err mine = {0};

        if (lseek(job->fd, 0, SEEK_SET) < 0) {
            return err_wrap(e, -errno, "reading");
        }
        r = put_once(copy, job->guest, job->fd, (int)job->mode, &mine);
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

struct walk {
    struct copy *copy;
    unsigned depth;
};

static int walk_entry(struct walk *w, int dir_fd, const char *name, const char *local,
                      const char *guest);

static int walk_symlink(struct walk *w, int dir_fd, const char *name, const char *guest,
                        struct err *e)
{
    cleanup_free char *target = xmalloc(65536);
    ssize_t n = readlinkat(dir_fd, name, target, 65535);
    struct err mine = {0};
    json_t *more;
    int r;

    if (n < 0) {
        return err_wrap(e, -errno, "reading the link");
    }
    target[n] = '\0';
    for (unsigned i = 0; i < 2; i++) {
        more = json_object();
        copy_json_path(more, "target", target);
        mine = (struct err){0};
        r = copy_guest_post(w->copy, "symlink", guest, more, &mine);
        if (r != -EEXIST || i > 0) {
            break;
        }
        /* A link or file in its place is replaced, as a file would be. A folder is not. */
        r = copy_guest_post(w->copy, "remove", guest, /* more */ NULL, &mine);
        if (r < 0) {
            break;
        }
    }
    if (r < 0 && e) {
        *e = mine;
    }
    return r;
}

/* Takes over fd. */
static int walk_file_take(struct walk *w, int fd, const struct stat *st, const char *local,
                          const char *guest)
{
    struct copy_job *job = xnew(struct copy_job);

    job->fd = fd;
    job->guest = xstrdup(guest);
    job->local = xstrdup(local);
    job->mode = st->st_mode & 0777;
    job->size = (uint64_t)st->st_size;
    return copy_pool_put_take(w->copy, job);
}

static int walk_children(struct walk *w, int fd, const char *local, const char *guest,
                         struct err *e)
{
    DIR *dir = fdopendir(fd);
    const struct dirent *d;
    int r = 0;

    if (!dir) {
        r = -errno;
        fd_close(fd);
        return err_wrap(e, r, "reading the folder");
    }
    while (r == 0) {
        errno = 0;
        d = readdir(dir);
        if (!d) {
            r = errno ? err_wrap(e, -errno, "reading the folder") : 0;
            break;
        }
        if (str_eq(d->d_name, ".") || str_eq(d->d_name, "..")) {
            continue;
        }
        cleanup_free char *child_local = copy_join(local, d->d_name);
        cleanup_free char *child_guest = copy_join(guest, d->d_name);

        r = walk_entry(w, dirfd(dir), d->d_name, child_local, child_guest);
    }
    closedir(dir);
    return r;
}

/* Takes over fd. */
static int walk_dir_take(struct walk *w, int fd, const struct stat *st, const char *local,
                         const char *guest, struct err *e)
{
    unsigned mode = st->st_mode & 0777;
    cleanup_close int dir_fd = fd;
    cleanup_free char *text = xasprintf("%04o", mode | 0700);
    int r;

    if (w->depth >= COPY_DEPTH_MAX) {
        return err_set(e, -ELOOP, "too_deep", "more than %u folders within folders",
                       COPY_DEPTH_MAX);
    }
    r = copy_guest_post(w->copy, "mkdir", guest, json_pack("{s:s}", "mode", text), e);
    if (r < 0) {
        return r;
    }
    if ((mode & 0700) != 0700) {
        copy_later_add(w->copy, guest, mode);
    }
    w->depth++;
    r = walk_children(w, TAKE_FD(dir_fd), local, guest, e);
    w->depth--;
    return r;
}

static int walk_open(struct walk *w, int dir_fd, const char *name, const char *local,
                     const char *guest, struct err *e)
{
    /* Not blocked by a fifo, nothing done to a device. */
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && errno == ELOOP) {
        return walk_symlink(w, dir_fd, name, guest, e);
    }
    if (fd < 0) {
        bool special = errno == ENXIO || errno == ENODEV;

        return special ? err_set(e, -EINVAL, "special_file",
                                 "neither file, folder nor link: passed over")
                       : err_wrap(e, -errno, "opening");
    }
    if (fstat(fd, &st) < 0) {
        int r = -errno;

        fd_close(fd);
        return err_wrap(e, r, "opening");
    }
    if (S_ISDIR(st.st_mode)) {
        return walk_dir_take(w, fd, &st, local, guest, e);
    }
    if (S_ISREG(st.st_mode)) {
        return walk_file_take(w, fd, &st, local, guest);
    }
    fd_close(fd);
    return err_set(e, -EINVAL, "special_file", "neither file, folder nor link: passed over");
}

/* Nothing but what stops the copy comes back. */
static int walk_entry(struct walk *w, int dir_fd, const char *name, const char *local,
                      const char *guest)
{
    struct err e = {0};
    int r;

    if (copy_stopped(w->copy)) {
        return -ECANCELED;
    }
    r = copy_count_entry(w->copy, &e);
    r = r < 0 ? r : walk_open(w, dir_fd, name, local, guest, &e);
    /* What an entry within has told already. */
    if (r < 0 && !e.code) {
        return r;
    }
    return r < 0 ? copy_entry_failed(w->copy, local, &e) : 0;
}

/* Where a source goes: into `guest` when that is a folder, else to that name. *ret_new: nothing is there yet. */
static int resolve_target(struct copy *copy, const char *local, const char *guest, char **ret,
                          bool *ret_new, struct err *e)
{
    cleanup_json json_t *entry = NULL;
    cleanup_free char *probe = NULL;
    cleanup_free char *name = copy_base_name(local);
    bool slash = str_empty(guest) || guest[strlen(guest) - 1] == '/';
    const char *type;
    struct err mine = {0};
    int r;

    r = copy_guest_stat(copy, str_empty(guest) ? "." : guest, &entry, &mine);
    if (r == 0 && str_eq(json_get_string(entry, "type", ""), "symlink")) {
        /* A link to a folder counts as the folder. */
        probe = copy_join(guest, ".");
        json_decref(TAKE_PTR(entry));
        r = copy_guest_stat(copy, probe, &entry, &mine);
        if (r < 0 && r != -ECANCELED) {
            r = -ENOENT;
        }
    }
    if (r < 0 && r != -ENOENT) {
        if (e) {
            *e = mine;
        }
        return r;
    }
    type = r == 0 ? json_get_string(entry, "type", "") : "";
    *ret_new = r < 0;
    if (copy_means_content(local)) {
        *ret = xstrdup(str_empty(guest) ? "." : guest);
    } else if (str_eq(type, "dir") || (r < 0 && slash)) {
        *ret = copy_join(guest, name);
        if (r == 0) {
            cleanup_json json_t *there = NULL;

            r = copy_guest_stat(copy, *ret, &there, &mine);
            *ret_new = r == -ENOENT;
        }
    } else {
        *ret = xstrdup(guest);
    }
    return 0;
}

static int set_modes_later(struct copy *copy, struct err *e)
{
    /* Innermost first: a folder may lose its access bits. */
    while (copy->n_later > 0) {
        struct copy_later *l = &copy->later[--copy->n_later];
        cleanup_free char *path = TAKE_PTR(l->path);
        cleanup_free char *mode = xasprintf("%04o", l->mode);
        struct err mine = {0};
        int r = copy_guest_post(copy, "chmod", path, json_pack("{s:s}", "mode", mode), &mine);

        if (r < 0 && copy_entry_failed(copy, path, &mine) < 0) {
            if (e) {
                *e = mine;
            }
            return r;
        }
    }
    return 0;
}

/*
 * What this copy has newly made goes again. The signal that stopped us must not stop this. An upload that was cut off may
 * still be cleaned up in the sandbox at this moment, so a folder that will not go is asked a few times.
 */
static void remove_partial(struct copy *copy, const char *guest)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/files/remove", copy->sandbox);
    cleanup_json json_t *body = json_pack("{s:b}", "recursive", true);
    struct err e = {0};
    int r = -EIO;

    copy_json_path(body, "path", guest);
    if (copy->user) {
        json_object_set_new(body, "user", json_string(copy->user));
    }
    for (unsigned i = 0; i < REMOVE_TRIES && r < 0 && r != -ENOENT; i++) {
        struct http_json_opts opts = {.method = "POST",
                                      .target = target,
                                      .body = body,
                                      .deadline_ns = deadline_in_ms(REMOVE_MS)};

        if (i > 0) {
            IGNORE_RESULT(poll(NULL, 0, REMOVE_AGAIN_MS)); /* a pause, nothing is awaited */
        }
        e = (struct err){0};
        r = cli_call_opts(copy->cli, &opts, /* ret */ NULL, &e);
    }
    if (r < 0 && r != -ENOENT) {
        ui_warn(&copy->cli->ui, "part of the copy is left in the sandbox at %s: %s", guest, e.msg);
    }
}

int copy_in(struct copy *copy, const char *local, const char *guest, struct err *e)
{
    struct walk w = {.copy = copy};
    cleanup_free char *target = NULL;
    struct stat st;
    bool is_new = false;
    int walked;
    int r;

    if (lstat(local, &st) < 0) {
        return err_wrap(e, -errno, "'%s'", local);
    }
    r = resolve_target(copy, local, guest, &target, &is_new, e);
    r = r < 0 ? r : copy_pool_start(copy, put_job, e);
    if (r < 0) {
        return r;
    }
    walked = walk_entry(&w, AT_FDCWD, local, local, target);
    r = copy_pool_finish(copy, e);
    if (r == 0 && walked < 0) {
        r = err_set(e, walked, NULL, "the copy was stopped");
    }
    r = r < 0 ? r : set_modes_later(copy, e);
    if (r < 0 && is_new && !copy_means_content(target)) {
        remove_partial(copy, target);
    }
    return r;
}

int copy_in_stdin(struct copy *copy, const char *guest, struct err *e)
{
    int r = put_once(copy, guest, STDIN_FILENO, /* mode */ -1, e);

    if (r == 0) {
        copy->files++;
    }
    return r;
}
