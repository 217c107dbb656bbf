/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"
#include "base/test.h"
#include "privileged/own-root.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child says by its exit code: the step that failed. */
enum {
    FINE,
    CHROOT,
    OWN_ROOT,
    OTHER_ROOT,
    NOT_THE_TOP,
    PRIVATE,
    TMPFS,
    PIVOT,
    MOVED,
};

static bool root_is(const struct stat *root)
{
    struct stat st;

    return stat("/", &st) == 0 && st.st_dev == root->st_dev && st.st_ino == root->st_ino;
}

static bool go_to_top(void)
{
    cleanup_close int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    return fd >= 0 && setns(fd, CLONE_NEWNS) == 0;
}

/* All that a jail does to its mounts: see jail/root.c. */
static int in_chroot(const char *dir, const struct stat *root)
{
    struct err e = {0};

    if (chroot(dir) < 0 || chdir("/") < 0) {
        return CHROOT;
    }
    if (own_root(&e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return OWN_ROOT;
    }
    if (!root_is(root)) {
        return OTHER_ROOT;
    }
    if (!go_to_top() || !root_is(root)) {
        return NOT_THE_TOP;
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return PRIVATE;
    }
    if (mount("tmpfs", "/new", "tmpfs", 0, NULL) < 0 || chdir("/new") < 0) {
        return TMPFS;
    }
    return syscall(SYS_pivot_root, ".", ".") < 0 ? PIVOT : FINE;
}

/* A chroot whose root is a mount; and then once more, where nothing is left to do. */
static int in_mounted_chroot(const char *dir, const struct stat *root)
{
    struct statx before;
    struct statx after;
    struct err e = {0};

    (void)root;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", dir, "tmpfs", 0, NULL) < 0 || chroot(dir) < 0 || chdir("/") < 0) {
        return CHROOT;
    }
    if (own_root(&e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return OWN_ROOT;
    }
    if (mkdir("/here", 0755) < 0 || chdir("/here") < 0 || !go_to_top() ||
        access("/here", F_OK) < 0) {
        return NOT_THE_TOP;
    }
    if (statx(AT_FDCWD, "/", 0, STATX_BASIC_STATS, &before) < 0 || chdir("/here") < 0 ||
        own_root(&e) < 0 || statx(AT_FDCWD, "/", 0, STATX_BASIC_STATS, &after) < 0 ||
        before.stx_mnt_id != after.stx_mnt_id || access("../here", F_OK) < 0) {
        return MOVED;
    }
    return FINE;
}

static void read_mounts(struct buf *ret)
{
    REQUIRE(fs_read_file(AT_FDCWD, "/proc/self/mountinfo", ret) == 0);
}

static void leaves_all_as_it_is(int (*child)(const char *dir, const struct stat *root))
{
    char dir[] = "/tmp/own-root-XXXXXX";
    cleanup_free char *below = NULL;
    cleanup_buf struct buf before = BUF_INIT(1u << 20);
    cleanup_buf struct buf after = BUF_INIT(1u << 20);
    struct stat root;
    int status = -1;
    pid_t pid;

    REQUIRE(mkdtemp(dir) != NULL);
    below = xasprintf("%s/new", dir);
    REQUIRE(mkdir(below, 0755) == 0 && stat(dir, &root) == 0);
    read_mounts(&before);
    pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        _exit(child(dir, &root));
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), FINE);
    read_mounts(&after);
    CHECK_STR(buf_str(&after), buf_str(&before));
    CHECK_INT(rmdir(below), 0);
    CHECK_INT(rmdir(dir), 0);
}

static void a_jail_can_be_made_in_a_plain_chroot(void)
{
    leaves_all_as_it_is(in_chroot);
}

static void a_mount_becomes_the_top_and_stays_it(void)
{
    leaves_all_as_it_is(in_mounted_chroot);
}

TEST_MAIN(T(a_jail_can_be_made_in_a_plain_chroot), T(a_mount_becomes_the_top_and_stays_it))
