/* SPDX-License-Identifier: Apache-2.0 */
#include "privileged/own-root.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 5.8 says it; before 6.0 headers do not. */
#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x2000
#endif

static int is_mount_root(bool *ret)
{
    struct statx st;

    if (statx(AT_FDCWD, "/", AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &st) < 0) {
        return -errno;
    }
    *ret = (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
    return 0;
}

/*
 * Entering the namespace that we are in leads to its real root, above the chroot: only there can the mount that holds
 * the chroot be made private. The descriptor leads back.
 */
static int make_private(void)
{
    cleanup_close int self_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    if (self_fd < 0 || setns(self_fd, CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return -errno;
    }
    return 0;
}

static int mount_onto_itself(int root_fd)
{
    cleanup_close int tree_fd =
        open_tree(root_fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH);

    if (tree_fd < 0 ||
        move_mount(tree_fd, "", root_fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) <
            0 ||
        fchdir(tree_fd) < 0 || chroot(".") < 0 || chdir("/") < 0) {
        return -errno;
    }
    return 0;
}

int own_root(struct err *e)
{
    cleanup_close int root_fd = FD_NONE;
    bool is_root = false;
    int r = is_mount_root(&is_root);

    if (r < 0 || is_root) {
        return r < 0 ? err_wrap(e, r, "looking at the root folder") : 0;
    }
    if (unshare(CLONE_NEWNS) < 0) {
        return err_wrap(e, -errno, "making a mount namespace for the chroot that this is");
    }
    root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    r = root_fd < 0 ? -errno : make_private();
    r = r < 0 ? r : mount_onto_itself(root_fd);
    return r < 0 ? err_wrap(e, r, "making the chroot that this is the root of a mount") : 0;
}
