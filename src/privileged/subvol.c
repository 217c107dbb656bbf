/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subvolumes of the pool, with the kernel's own calls: three ioctls that take an open folder and
 * one name in it. libbtrfsutil offers the same by path, and reading the tree beside; none of that
 * is needed in a root process.
 *
 * The pool's folders belong to the sandbox manager, which may put anything there. So the one
 * component that varies (snapshots/<id>) is opened without following links, and what is to be
 * deleted or copied must be the root of a subvolume.
 */
#include "base/fault.h"
#include "base/fs.h"
#include "privileged/ops.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SUBVOL_ROOT_INODE 256 /* BTRFS_FIRST_FREE_OBJECTID */

/* A place in the pool: an open folder and a name in it. */
struct place {
    int dir_fd; /* owned */
    char name[PRIV_ID_SIZE];
};

static void place_done(struct place *p)
{
    p->dir_fd = fd_close(p->dir_fd);
}

/* Makes snapshots/<id> when make is set; it goes again with its last snapshot. */
static int place_open(const struct priv_ctx *ctx, const struct priv_subvol *what, bool make,
                      struct place *ret)
{
    struct place p = {.dir_fd = FD_NONE};

    if (what->kind == PRIV_SUBVOL_SANDBOX) {
        memcpy(p.name, what->id, sizeof(p.name));
        p.dir_fd = fd_dup(ctx->sandboxes_fd);
    } else {
        snprintf(p.name, sizeof(p.name), "%u", what->n);
        if (make && mkdirat(ctx->snapshots_fd, what->id, 0700) == 0 &&
            fchownat(ctx->snapshots_fd, what->id, ctx->owner_uid, ctx->owner_gid,
                     AT_SYMLINK_NOFOLLOW) < 0) {
            int r = -errno;

            unlinkat(ctx->snapshots_fd, what->id, AT_REMOVEDIR);
            return r;
        }
        p.dir_fd = fs_open_beneath(ctx->snapshots_fd, what->id, O_RDONLY | O_DIRECTORY, 0);
    }
    if (p.dir_fd < 0) {
        return p.dir_fd;
    }
    *ret = p;
    return 0;
}

static bool is_subvolume(int fd)
{
    struct statfs fs;
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) && st.st_ino == SUBVOL_ROOT_INODE &&
           fstatfs(fd, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC;
}

/* Removes snapshots/<id> when it is empty. */
static void drop_empty_parent(const struct priv_ctx *ctx, const struct priv_subvol *what)
{
    if (what->kind == PRIV_SUBVOL_SNAPSHOT) {
        unlinkat(ctx->snapshots_fd, what->id, AT_REMOVEDIR); /* ENOTEMPTY is the usual answer */
    }
}

static int subvol_destroy(const struct place *p)
{
    struct btrfs_ioctl_vol_args args = {0};

    snprintf(args.name, sizeof(args.name), "%s", p->name);
    return ioctl(p->dir_fd, BTRFS_IOC_SNAP_DESTROY, &args) < 0 ? -errno : 0;
}

int subvol_create_run(struct priv_ctx *ctx, const struct priv_request *req,
                      struct priv_answer *answer, struct err *e)
{
    const struct priv_subvol *what = req->body;
    CLEANUP(place_done) struct place to = {.dir_fd = FD_NONE};
    struct btrfs_ioctl_vol_args args = {0};
    int r = place_open(ctx, what, /* make */ true, &to);

    (void)answer;
    if (r < 0) {
        return err_wrap(e, r, "making subvolume '%s'", what->id);
    }
    snprintf(args.name, sizeof(args.name), "%s", to.name);
    if (FAULT("subvol.create") || ioctl(to.dir_fd, BTRFS_IOC_SUBVOL_CREATE, &args) < 0) {
        r = err_wrap(e, -errno, "making subvolume '%s'", what->id);
    } else if (FAULT("subvol.chown") || fchownat(to.dir_fd, to.name, ctx->owner_uid, ctx->owner_gid,
                                                 AT_SYMLINK_NOFOLLOW) < 0) {
        r = err_wrap(e, -errno, "handing over subvolume '%s'", what->id);
        IGNORE_RESULT(subvol_destroy(&to)); /* the first failure is told */
    }
    if (r < 0) {
        drop_empty_parent(ctx, what);
    }
    return r;
}

int subvol_snapshot_run(struct priv_ctx *ctx, const struct priv_request *req,
                        struct priv_answer *answer, struct err *e)
{
    const struct priv_subvol_snapshot *s = req->body;
    CLEANUP(place_done) struct place from = {.dir_fd = FD_NONE};
    CLEANUP(place_done) struct place to = {.dir_fd = FD_NONE};
    struct btrfs_ioctl_vol_args_v2 args = {0};
    cleanup_close int source_fd = FD_NONE;
    int r = place_open(ctx, &s->from, /* make */ false, &from);

    (void)answer;
    if (r == 0) {
        source_fd = fs_open_beneath(from.dir_fd, from.name, O_RDONLY | O_DIRECTORY, 0);
        r = source_fd < 0 ? source_fd : 0;
    }
    if (r < 0 || !is_subvolume(source_fd)) {
        return err_set(e, r < 0 ? r : -ENOENT, "subvolume_not_found",
                       "there is no subvolume '%s' to copy", s->from.id);
    }
    r = place_open(ctx, &s->to, /* make */ true, &to);
    if (r < 0) {
        return err_wrap(e, r, "making snapshot '%s'", s->to.id);
    }
    args.fd = source_fd;
    args.flags = s->flags & PRIV_SUBVOL_READONLY ? BTRFS_SUBVOL_RDONLY : 0;
    snprintf(args.name, sizeof(args.name), "%s", to.name);
    if (FAULT("subvol.snapshot") || ioctl(to.dir_fd, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0) {
        r = err_wrap(e, -errno, "making snapshot '%s'", s->to.id);
        drop_empty_parent(ctx, &s->to);
    }
    return r;
}

int subvol_delete_run(struct priv_ctx *ctx, const struct priv_request *req,
                      struct priv_answer *answer, struct err *e)
{
    const struct priv_subvol *what = req->body;
    CLEANUP(place_done) struct place at = {.dir_fd = FD_NONE};
    cleanup_close int fd = FD_NONE;
    int r = place_open(ctx, what, /* make */ false, &at);

    (void)answer;
    if (r == 0) {
        fd = fs_open_beneath(at.dir_fd, at.name, O_RDONLY | O_DIRECTORY, 0);
        r = fd < 0 ? fd : 0;
    }
    if (r == -ENOENT) {
        return 0;
    }
    if (r < 0) {
        return err_wrap(e, r, "opening subvolume '%s'", what->id);
    }
    if (!is_subvolume(fd)) {
        return err_set(e, -EINVAL, "not_a_subvolume", "'%s' is a plain folder, not a subvolume",
                       what->id);
    }
    fd = fd_close(fd);
    r = FAULT("subvol.destroy") ? -EIO : subvol_destroy(&at);
    if (r < 0 && r != -ENOENT) {
        return err_wrap(e, r, "deleting subvolume '%s'", what->id);
    }
    drop_empty_parent(ctx, what);
    return 0;
}
