/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"
#include "base/test.h"
#include "privileged/own-root.h"

#include <fcntl.h>
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
    PRIVATE,
    TMPFS,
    PIVOT,
};

/* All that a jail does to its mounts: see jail/root.c. */
static int in_chroot(const char *dir, const struct stat *root)
{
    struct stat st;
    struct err e = {0};

    if (chroot(dir) < 0 || chdir("/") < 0) {
        return CHROOT;
    }
    if (own_root(&e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return OWN_ROOT;
    }
    if (stat("/", &st) < 0 || st.st_dev != root->st_dev || st.st_ino != root->st_ino) {
        return OTHER_ROOT;
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return PRIVATE;
    }
    if (mount("tmpfs", "/new", "tmpfs", 0, NULL) < 0 || chdir("/new") < 0) {
        return TMPFS;
    }
    return syscall(SYS_pivot_root, ".", ".") < 0 ? PIVOT : FINE;
}

static void read_mounts(struct buf *ret)
{
    REQUIRE(fs_read_file(AT_FDCWD, "/proc/self/mountinfo", ret) == 0);
}

static void a_jail_can_be_made_in_a_plain_chroot(void)
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
        _exit(in_chroot(dir, &root));
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), FINE);
    read_mounts(&after);
    CHECK_STR(buf_str(&after), buf_str(&before));
    CHECK_INT(rmdir(below), 0);
    CHECK_INT(rmdir(dir), 0);
}

static void a_root_that_is_a_mount_stays(void)
{
    char before[64] = "";
    char after[64] = "";
    struct err e = {0};

    REQUIRE(readlink("/proc/self/ns/mnt", before, sizeof(before) - 1) > 0);
    CHECK_INT(own_root(&e), 0);
    REQUIRE(readlink("/proc/self/ns/mnt", after, sizeof(after) - 1) > 0);
    CHECK_STR(after, before);
}

TEST_MAIN(T(a_jail_can_be_made_in_a_plain_chroot), T(a_root_that_is_a_mount_stays))
