/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-walk.h"

#include "daemon/file-request.h"
#include "daemon/file-text.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* code: what the client gets; from: what the kernel said. */
static const struct {
    int from;
    int code;
    const char *reason; /* NULL: the general one */
    const char *text;
} sentences[] = {
    {ENOENT, ENOENT, NULL, "does not exist"},
    {EACCES, EACCES, NULL, "is not accessible to this user"},
    {EPERM, EPERM, NULL, "cannot be changed by this user"},
    {ENOTDIR, ENOTDIR, NULL, "has a part that is not a directory"},
    {EISDIR, EISDIR, NULL, "is a directory"},
    {ENOTEMPTY, ENOTEMPTY, NULL, "is a directory that is not empty"},
    {EEXIST, EEXIST, NULL, "exists already"},
    {ENAMETOOLONG, ENAMETOOLONG, NULL, "has a part longer than this file system allows"},
    {ELOOP, ELOOP, NULL, "leads through too many symbolic links"},
    {ENOSPC, ENOSPC, NULL, "cannot be written: the disk is full"},
    {EDQUOT, ENOSPC, "quota_exceeded", "cannot be written: the disk quota is used up"},
    {EROFS, EROFS, NULL, "is on a read-only file system"},
    {ETXTBSY, ETXTBSY, NULL, "is a program that is running"},
    {EBUSY, EBUSY, NULL, "is in use, perhaps as a mount point"},
    {EXDEV, EXDEV, NULL, "and the destination are on different file systems: copy, then remove"},
    {EFBIG, EFBIG, NULL, "would be larger than this file system allows"},
    {EMLINK, ENOSPC, "too_many_links", "cannot be made: its directory has too many entries"},
    {EIO, EIO, "io_error", "cannot be read or written: the disk reports an error"},
    {ENXIO, EINVAL, "not_a_regular_file", "is a device or socket that cannot be opened"},
    {ENODEV, EINVAL, "not_a_regular_file", "is a device that cannot be opened"},
};

int file_error(struct err *e, int code, const char *path)
{
    char shown[FILE_TEXT_SHOW_MAX];

    ASSERT(code < 0);
    file_text_show(shown, sizeof(shown), path);
    for (size_t i = 0; i < ARRAY_SIZE(sentences); i++) {
        if (sentences[i].from == -code) {
            return err_set(e, -sentences[i].code, sentences[i].reason, "'%s' %s", shown,
                           sentences[i].text);
        }
    }
    return err_set(e, code, NULL, "'%s': %s", shown,
                   strerrordesc_np(-code) ? strerrordesc_np(-code) : "error");
}

void file_spot_done(struct file_spot *spot)
{
    for (size_t i = 0; i < spot->n_made; i++) {
        free(spot->made[i]);
    }
    free(spot->made);
    free(spot->name);
    spot->dir_fd = fd_close(spot->dir_fd);
    *spot = FILE_SPOT_INIT;
}

void file_spot_undo(struct file_spot *spot)
{
    cleanup_close int fd = spot->n_made > 0 ? fcntl(spot->dir_fd, F_DUPFD_CLOEXEC, 3) : FD_NONE;

    while (spot->n_made > 0 && fd >= 0) {
        int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

        fd_close(fd);
        fd = up;
        /*
         * Only an empty folder of that name goes, and only if it may: whatever else is not ours to
         * undo.
         */
        if (up < 0 || unlinkat(up, spot->made[spot->n_made - 1], AT_REMOVEDIR) < 0) {
            break;
        }
        free(spot->made[--spot->n_made]);
    }
}

struct walk {
    struct file_spot spot;
    char *rest;       /* owned: what is still to be walked */
    size_t at;        /* of rest */
    const char *path; /* borrowed: for errors */
    unsigned flags;
    int n_links;
};

static void walk_forget_made(struct walk *w)
{
    while (w->spot.n_made > 0) {
        free(w->spot.made[--w->spot.n_made]);
    }
}

static void walk_done(struct walk *w)
{
    file_spot_done(&w->spot);
    free(w->rest);
}

/*
 * The next component into name; returns its length, 0 at the end. *ret_last: nothing but slashes
 * follows.
 */
static size_t walk_next(struct walk *w, char name[static 256], bool *ret_last, int *ret_error)
{
    size_t len;

    *ret_error = 0;
    for (;;) {
        w->at += strspn(w->rest + w->at, "/");
        len = strcspn(w->rest + w->at, "/");
        if (len != 1 || w->rest[w->at] != '.') {
            break;
        }
        w->at += 1;
    }
    if (len > 255) {
        *ret_error = -ENAMETOOLONG;
        return 0;
    }
    memcpy(name, w->rest + w->at, len);
    name[len] = '\0';
    w->at += len;
    *ret_last = true;
    for (const char *p = w->rest + w->at; *p; p++) {
        if (*p != '/' && !(*p == '.' && (p[1] == '/' || p[1] == '\0') && p[-1] == '/')) {
            *ret_last = false;
        }
    }
    return len;
}

static int walk_enter_root(struct walk *w)
{
    w->spot.dir_fd = fd_close(w->spot.dir_fd);
    w->spot.dir_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return w->spot.dir_fd < 0 ? -errno : 0;
}

/* link_fd is the link itself, O_PATH. Puts its text in front of what is still to be walked. */
static int walk_link(struct walk *w, int link_fd, const struct stat *st, struct err *e)
{
    char shown[FILE_TEXT_SHOW_MAX];
    char text[FILE_PATH_MAX + 1];
    char *rest;
    ssize_t n;
    int r = 0;

    if (st->st_uid != 0 && st->st_uid != geteuid()) {
        file_text_show(shown, sizeof(shown), w->path);
        return err_set(
            e, -EACCES, "untrusted_link",
            "'%s' leads through a symbolic link of uid %u, which is not followed for uid %u", shown,
            st->st_uid, geteuid());
    }
    if (++w->n_links > FILE_WALK_LINKS_MAX) {
        return file_error(e, -ELOOP, w->path);
    }
    n = readlinkat(link_fd, "", text, sizeof(text) - 1);
    if (n <= 0) {
        return file_error(e, n < 0 ? -errno : -ENOENT, w->path);
    }
    text[n] = '\0';
    if (text[0] == '/') {
        r = walk_enter_root(w);
    }
    if (r < 0) {
        return file_error(e, r, w->path);
    }
    walk_forget_made(w); /* where we are now is not below what was made before */
    rest = xasprintf("%s/%s", text, w->rest + w->at);
    if (strlen(rest) > 4 * (size_t)FILE_PATH_MAX) {
        free(rest);
        return file_error(e, -ENAMETOOLONG, w->path);
    }
    free(w->rest);
    w->rest = rest;
    w->at = 0;
    return 0;
}

static int walk_make(struct walk *w, const char *name)
{
    if (mkdirat(w->spot.dir_fd, name, 0755) < 0) {
        return errno == EEXIST ? 0 : -errno;
    }
    w->spot.made = xrealloc(w->spot.made, (w->spot.n_made + 1) * sizeof(*w->spot.made));
    w->spot.made[w->spot.n_made++] = xstrdup(name);
    return 0;
}

/* One component that is not the last: a folder to go into, or a link. */
static int walk_step(struct walk *w, const char *name, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    struct stat st;
    int r = 0;

    fd = openat(w->spot.dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && w->flags & FILE_WALK_CREATE) {
        r = walk_make(w, name);
        if (r == 0) {
            fd = openat(w->spot.dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        }
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        return file_error(e, r < 0 ? r : -errno, w->path);
    }
    if (S_ISLNK(st.st_mode)) {
        return walk_link(w, fd, &st, e);
    }
    if (!S_ISDIR(st.st_mode)) {
        return file_error(e, -ENOTDIR, w->path);
    }
    if (str_eq(name, "..")) {
        walk_forget_made(w);
    }
    fd_close(w->spot.dir_fd);
    w->spot.dir_fd = TAKE_FD(fd);
    return 0;
}

/* The last component: 1 when the walk is over, 0 when a link leads on. */
static int walk_last(struct walk *w, const char *name, struct err *e)
{
    if (w->flags & FILE_WALK_FOLLOW_LAST) {
        cleanup_close int fd = openat(w->spot.dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;

        if (fd < 0 && errno != ENOENT) {
            return file_error(e, -errno, w->path);
        }
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode)) {
            return walk_link(w, fd, &st, e);
        }
    }
    w->spot.name = xstrdup(name);
    return 1;
}

static int walk_run(struct walk *w, struct err *e)
{
    char name[256];
    bool last = false;
    int r = walk_enter_root(w);

    if (r < 0) {
        return file_error(e, r, w->path);
    }
    for (;;) {
        size_t len = walk_next(w, name, &last, &r);

        if (r < 0) {
            return file_error(e, r, w->path);
        }
        if (len == 0 && w->flags & FILE_WALK_FOLLOW_LAST) {
            return file_error(e, -EISDIR, w->path);
        }
        if (len == 0) {
            w->spot.name = xstrdup(".");
            return 0;
        }
        if (last && str_eq(name, "..")) {
            return err_field(e, -EINVAL, "invalid_field", "path", "the path must not end in '..'");
        }
        r = last ? walk_last(w, name, e) : walk_step(w, name, e);
        if (r != 0) {
            return r < 0 ? r : 0;
        }
    }
}

int file_walk(const char *path, unsigned flags, struct file_spot *ret, struct err *e)
{
    CLEANUP(walk_done) struct walk w = {.spot = FILE_SPOT_INIT, .path = path, .flags = flags};
    int r;

    ASSERT(path[0] == '/');
    w.rest = xstrdup(path);
    r = walk_run(&w, e);
    if (r < 0) {
        file_spot_undo(&w.spot);
        return r;
    }
    *ret = w.spot;
    w.spot = FILE_SPOT_INIT;
    return 0;
}
