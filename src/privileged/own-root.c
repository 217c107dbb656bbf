/* SPDX-License-Identifier: Apache-2.0 */
#include "privileged/own-root.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 5.8; libraries may be older. */
#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif

static int look(int dir_fd, struct statx *ret)
{
    return statx(dir_fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, ret) < 0 ? -errno : 0;
}

/* Entering the namespace that we are in leads to its top, out of any chroot. */
static int go_to_top(void)
{
    cleanup_close int self_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    return self_fd < 0 || setns(self_fd, CLONE_NEWNS) < 0 ? -errno : 0;
}

static int go_back(int root_fd)
{
    return fchdir(root_fd) < 0 || chroot(".") < 0 ? -errno : 0;
}

/* 1: the root is the top; 0: it is not; either way it is the root afterwards. */
static int is_top(int root_fd)
{
    cleanup_close int cwd_fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup_close int top_fd = FD_NONE;
    struct statx ours;
    struct statx top;
    int r = cwd_fd < 0 ? -errno : go_to_top();

    if (r < 0) {
        return r;
    }
    top_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    r = top_fd < 0 ? -errno : look(top_fd, &top);
    r = r < 0 ? r : look(root_fd, &ours);
    if (r == 0 && top.stx_mnt_id == ours.stx_mnt_id && top.stx_ino == ours.stx_ino) {
        return fchdir(cwd_fd) < 0 ? -errno : 1;
    }
    IGNORE_RESULT(go_back(root_fd)); /* what failed before counts */
    return r;
}

/* From the top of a namespace of our own. The old root ends up over the new one, from where it is let go. */
static int put_on_top(int root_fd)
{
    cleanup_close int tree_fd =
        open_tree(root_fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH);

    if (tree_fd < 0 ||
        move_mount(tree_fd, "", root_fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) <
            0 ||
        fchdir(tree_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
        umount2(".", MNT_DETACH) < 0 || chdir("/") < 0) {
        return -errno;
    }
    return 0;
}

static int leave(void)
{
    cleanup_close int root_fd = FD_NONE;
    int r;

    if (unshare(CLONE_NEWNS) < 0) {
        return -errno;
    }
    root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC); /* in the new namespace */
    r = root_fd < 0 ? -errno : go_to_top();
    if (r == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        r = -errno;
    }
    return r < 0 ? r : put_on_top(root_fd);
}

int own_root(struct err *e)
{
    cleanup_close int root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = root_fd < 0 ? -errno : is_top(root_fd);

    if (r == 0) {
        r = leave();
    }
    return r < 0 ? err_wrap(e, r, "making a mount namespace for the chroot that this is") : 0;
}
