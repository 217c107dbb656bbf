/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that are one system call at heart: stat, mkdir, move, chmod, chown, symlink. */
#include "daemon/file-worker.h"

#include "daemon/file-text.h"
#include "daemon/file-walk.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <linux/fs.h>

int file_op_stat(struct file_worker *w, struct err *e)
{
    struct file_place place = {
        .dir_fd = AT_FDCWD, .at = w->path, .path = w->path, .more = w->req->more};

    return file_worker_reply_entry(w, &place, /* created */ false, e);
}

static int reply_spot(struct file_worker *w, const struct file_spot *spot, const char *path,
                      bool created, struct err *e)
{
    struct file_place place = {.dir_fd = spot->dir_fd, .at = spot->name, .path = path};

    return file_worker_reply_entry(w, &place, created, e);
}

/* The folder itself or, as `mkdir -p` takes it, a link to one. */
static bool is_folder(const struct file_spot *spot)
{
    struct stat st;

    return fstatat(spot->dir_fd, spot->name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

int file_op_mkdir(struct file_worker *w, struct err *e)
{
    cleanup_file_spot struct file_spot spot = FILE_SPOT_INIT;
    int r = file_walk(w->path, w->req->recursive ? FILE_WALK_CREATE : 0, &spot, e);
    bool created;

    if (r < 0) {
        return r;
    }
    if (w->req->mode >= 0) {
        umask(0);
    }
    created = mkdirat(spot.dir_fd, spot.name, w->req->mode >= 0 ? (mode_t)w->req->mode : 0755) == 0;
    r = created ? 0 : -errno;
    umask(022);
    if (!created && !(r == -EEXIST && is_folder(&spot))) {
        file_spot_undo(&spot);
        return file_error(e, r, w->path);
    }
    return reply_spot(w, &spot, w->path, created, e);
}

/* Which of the two paths an errno of rename(2) is about. */
static int move_error(const struct file_worker *w, const char *to, int code, struct err *e)
{
    switch (-code) {
    case EINVAL:
        return err_field(e, -EINVAL, "into_itself", "to",
                         "a directory cannot be moved into itself");
    case EISDIR:
    case EEXIST:
    case ENOTEMPTY:
    case ENOSPC:
    case EDQUOT:
    case ENAMETOOLONG:
        return file_error(e, code, to);
    case ENOTDIR:
        return err_field(e, -EEXIST, NULL, "to", "a directory cannot replace a file");
    default:
        return file_error(e, code, w->path);
    }
}

static int refuse_root(const struct file_spot *spot, const char *path, struct err *e)
{
    return str_eq(spot->name, ".") ? file_error(e, -EBUSY, path) : 0;
}

int file_op_move(struct file_worker *w, struct err *e)
{
    cleanup_file_spot struct file_spot from = FILE_SPOT_INIT;
    cleanup_file_spot struct file_spot to = FILE_SPOT_INIT;
    cleanup_free char *to_path = file_worker_absolute(w, w->req->to);
    struct stat st;
    int r = file_walk(w->path, 0, &from, e);

    if (r == 0) {
        r = refuse_root(&from, w->path, e);
    }
    if (r == 0 && fstatat(from.dir_fd, from.name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        r = file_error(e, -errno, w->path); /* before anything is made for it */
    }
    if (r == 0) {
        r = file_walk(to_path, FILE_WALK_CREATE, &to, e);
    }
    if (r == 0) {
        r = refuse_root(&to, to_path, e);
    }
    if (r < 0) {
        return r;
    }
    if (renameat2(from.dir_fd, from.name, to.dir_fd, to.name,
                  w->req->overwrite ? 0 : RENAME_NOREPLACE) < 0) {
        r = -errno;
        file_spot_undo(&to);
        return move_error(w, to_path, r, e);
    }
    return reply_spot(w, &to, to_path, /* created */ false, e);
}

/* The thing itself, without following a link and without opening it for real. */
static int open_thing(struct file_worker *w, struct file_spot *spot, struct stat *st, struct err *e)
{
    int r = file_walk(w->path, 0, spot, e);
    int fd;

    if (r < 0) {
        return r;
    }
    fd = openat(spot->dir_fd, spot->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, st) < 0) {
        r = -errno;
        fd_close(fd);
        return file_error(e, r, w->path);
    }
    return fd;
}

int file_op_chmod(struct file_worker *w, struct err *e)
{
    cleanup_file_spot struct file_spot spot = FILE_SPOT_INIT;
    struct stat st;
    cleanup_close int fd = open_thing(w, &spot, &st, e);
    char number[16];

    if (fd < 0) {
        return fd;
    }
    if (S_ISLNK(st.st_mode)) {
        return err_field(
            e, -EINVAL, "is_a_link", "path",
            "the path is a symbolic link, which has no mode: name the file it points to");
    }
    snprintf(number, sizeof(number), "%d", fd);
    if (w->fds_dir < 0 || fchmodat(w->fds_dir, number, (mode_t)w->req->mode, 0) < 0) {
        return file_error(e, w->fds_dir < 0 ? -EOPNOTSUPP : -errno, w->path);
    }
    return reply_spot(w, &spot, w->path, /* created */ false, e);
}

int file_op_chown(struct file_worker *w, struct err *e)
{
    cleanup_file_spot struct file_spot spot = FILE_SPOT_INIT;
    struct stat st;
    uid_t uid = (uid_t)-1;
    gid_t gid = (gid_t)-1;
    cleanup_close int fd = FD_NONE;

    if (w->req->owner && file_names_uid(&w->names, w->req->owner, &uid) < 0) {
        return err_field(e, -EINVAL, "user_not_found", "owner",
                         "there is no such user in the sandbox");
    }
    if (w->req->group && file_names_gid(&w->names, w->req->group, &gid) < 0) {
        return err_field(e, -EINVAL, "group_not_found", "group",
                         "there is no such group in the sandbox");
    }
    fd = open_thing(w, &spot, &st, e);
    if (fd < 0) {
        return fd;
    }
    if (fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0) {
        return file_error(e, -errno, w->path);
    }
    return reply_spot(w, &spot, w->path, /* created */ false, e);
}

int file_op_symlink(struct file_worker *w, struct err *e)
{
    cleanup_file_spot struct file_spot spot = FILE_SPOT_INIT;
    int r = file_walk(w->path, FILE_WALK_CREATE, &spot, e);

    if (r < 0) {
        return r;
    }
    if (symlinkat(w->req->target, spot.dir_fd, spot.name) < 0) {
        r = -errno;
        file_spot_undo(&spot);
        return file_error(e, r, w->path);
    }
    return reply_spot(w, &spot, w->path, /* created */ true, e);
}
