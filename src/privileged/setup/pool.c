/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"
#include "privileged/setup/setup.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MIB (1024ull * 1024)
/* A template, a base machine and a few sandboxes; below that mkfs.btrfs becomes unhappy, too. */
#define POOL_MIB_MIN 1024u
#define PATH_SIZE 4096u
#define LOOP_MAJOR 7
#define LOOP_TRIES 16

static void pool_path(const struct setup *s, const char *name, char ret[PATH_SIZE])
{
    snprintf(ret, PATH_SIZE, "%s/%s", s->state_dir, name);
}

static bool on_btrfs(const char *path)
{
    struct statfs fs;

    return statfs(path, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC;
}

/* A mount of its own: other device than the folder that it lies in. */
static bool pool_mounted(const struct setup *s)
{
    char path[PATH_SIZE];
    struct stat pool;
    struct stat state;

    pool_path(s, "pool", path);
    return stat(path, &pool) == 0 && stat(s->state_dir, &state) == 0 && pool.st_dev != state.st_dev;
}

/* Opening the device loads its module where there is one. */
static int need_device(const char *path, const char *what, struct err *e)
{
    cleanup_close int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0) {
        return err_set(e, -errno, "kernel_unsuitable",
                       "this kernel has no %s (%s: %s): load or enable it", what, path,
                       strerror(errno));
    }
    return 0;
}

static int need_btrfs(struct err *e)
{
    const char *const modprobe[] = {"/sbin/modprobe", "-q", "btrfs", NULL};

    for (int tries = 0; tries < 2; tries++) {
        cleanup_buf struct buf b = BUF_INIT(65536);
        int r = fs_read_file(AT_FDCWD, "/proc/filesystems", &b);

        if (r < 0) {
            return err_wrap(e, r, "reading /proc/filesystems");
        }
        if (strstr(buf_str(&b), "\tbtrfs\n")) {
            return 0;
        }
        if (tries == 0) {
            IGNORE_RESULT(setup_run(modprobe, /* e */ NULL)); /* the second look tells */
        }
    }
    return err_set(e, -ENODEV, "kernel_unsuitable",
                   "this kernel has no btrfs: load the module or use a kernel that has it");
}

int setup_kernel(const struct setup *s, struct err *e)
{
    int r = need_btrfs(e);

    if (r == 0 && !on_btrfs(s->state_dir)) {
        r = need_device("/dev/loop-control", "loop devices", e);
    }
    return r < 0 ? r : need_device("/dev/net/tun", "tun devices", e);
}

/* How large a new image is to be. */
static int pool_size(const struct setup *s, uint64_t *ret_mib, struct err *e)
{
    uint64_t free_mib;
    uint64_t mib;
    struct statvfs fs;

    if (statvfs(s->state_dir, &fs) < 0) {
        return err_wrap(e, -errno, "looking at '%s'", s->state_dir);
    }
    free_mib = (uint64_t)fs.f_bavail * fs.f_frsize / MIB;
    mib = s->pool_mib ? s->pool_mib : free_mib / 4 * 3;
    if (s->pool_mib && s->pool_mib < POOL_MIB_MIN) {
        return err_set(e, -EINVAL, "pool_too_small",
                       "a pool of %llu MiB is too small: the smallest is %u MiB",
                       (unsigned long long)s->pool_mib, POOL_MIB_MIN);
    }
    if (mib < POOL_MIB_MIN || mib > free_mib) {
        return err_set(e, -ENOSPC, "no_space",
                       "'%s' has %llu MiB free; the pool needs %llu MiB: free some space or name "
                       "another --state-dir",
                       s->state_dir, (unsigned long long)free_mib,
                       (unsigned long long)MAX(mib, (uint64_t)POOL_MIB_MIN));
    }
    *ret_mib = mib;
    return 0;
}

static int pool_make_image(const struct setup *s, const char *image, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    char fresh[PATH_SIZE];
    uint64_t mib = 0;
    int r = pool_size(s, &mib, e);
    const char *const mkfs[] = {"/sbin/mkfs.btrfs", "--quiet", "--force", "--label",
                                "space-pool",       fresh,     NULL};

    if (r < 0) {
        return r;
    }
    pool_path(s, "pool.img.new", fresh);
    fd = open(fresh, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)(mib * MIB)) < 0) {
        return err_wrap(e, -errno, "making '%s'", fresh);
    }
    r = setup_run(mkfs, e);
    if (r == 0 && (fsync(fd) < 0 || rename(fresh, image) < 0)) {
        r = err_wrap(e, -errno, "making '%s'", image);
    }
    if (r < 0) {
        unlink(fresh);
        return r;
    }
    printf("made pool %s, %llu MiB, sparse\n", image, (unsigned long long)mib);
    return 0;
}

/* Opens /dev/loopN; the node may be missing where no udev runs. */
static int loop_open(int number, char ret_path[PATH_SIZE])
{
    int fd;

    snprintf(ret_path, PATH_SIZE, "/dev/loop%d", number);
    fd = open(ret_path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT &&
        mknod(ret_path, S_IFBLK | 0600, makedev(LOOP_MAJOR, (unsigned)number)) == 0) {
        fd = open(ret_path, O_RDWR | O_CLOEXEC);
    }
    return fd < 0 ? -errno : fd;
}

/*
 * Binds the image to a free loop device, which is freed again when its mount goes. Returns the
 * device's fd.
 */
static int loop_attach(int image_fd, char ret_path[PATH_SIZE], struct err *e)
{
    cleanup_close int control_fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    struct loop_config config = {.fd = (uint32_t)image_fd, .block_size = 4096};

    if (control_fd < 0) {
        return err_wrap(e, -errno, "opening /dev/loop-control");
    }
    for (int tries = 0; tries < LOOP_TRIES; tries++) {
        cleanup_close int fd = FD_NONE;
        int number = ioctl(control_fd, LOOP_CTL_GET_FREE);

        if (number < 0) {
            return err_wrap(e, -errno, "finding a free loop device");
        }
        fd = loop_open(number, ret_path);
        if (fd < 0) {
            return err_wrap(e, fd, "opening '%s'", ret_path);
        }
        /* Direct I/O, so that the image's pages are not cached twice; not every file system can. */
        config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
        if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
            return TAKE_FD(fd);
        }
        config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
        if (errno == EINVAL && ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
            return TAKE_FD(fd);
        }
        if (errno != EBUSY) { /* EBUSY: another program was faster */
            return err_wrap(e, -errno, "binding '%s'", ret_path);
        }
    }
    return err_set(e, -EBUSY, NULL, "every loop device is taken by another program");
}

static int pool_mount(const char *image, const char *at, struct err *e)
{
    cleanup_close int image_fd = open(image, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    cleanup_close int loop_fd = FD_NONE;
    char device[PATH_SIZE];

    if (image_fd < 0) {
        return err_wrap(e, -errno, "opening '%s'", image);
    }
    loop_fd = loop_attach(image_fd, device, e);
    if (loop_fd < 0) {
        return loop_fd;
    }
    if (mount(device, at, "btrfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME, NULL) < 0) {
        return err_wrap(e, -errno, "mounting '%s' at '%s'", image, at);
    }
    printf("mounted pool at %s\n", at);
    return 0;
}

static int pool_folders(const struct setup *s, struct err *e)
{
    static const char *const names[] = {"pool", "pool/templates", "pool/machines", "pool/sandboxes",
                                        "pool/snapshots"};
    char path[PATH_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        int r;

        pool_path(s, names[i], path);
        r = setup_folder(path, s->sandbox_uid, s->sandbox_gid, 0700, e);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int setup_pool(const struct setup *s, struct err *e)
{
    char image[PATH_SIZE];
    char at[PATH_SIZE];
    int r = 0;

    pool_path(s, "pool", at);
    pool_path(s, "pool.img", image);
    if (!on_btrfs(s->state_dir) && !pool_mounted(s)) {
        r = setup_folder(at, 0, 0, 0700, e); /* nobody fills it while nothing is mounted there */
        if (r == 0 && access(image, F_OK) < 0) {
            r = pool_make_image(s, image, e);
        }
        if (r == 0) {
            r = pool_mount(image, at, e);
        }
    }
    if (r == 0) {
        r = pool_folders(s, e);
    }
    if (r == 0 && !on_btrfs(at)) {
        r = err_set(e, -EINVAL, "pool_not_btrfs",
                    "'%s' is mounted, but it is not a btrfs: unmount it", at);
    }
    return r;
}

int setup_pool_down(const struct setup *s, struct err *e)
{
    char at[PATH_SIZE];

    if (!pool_mounted(s)) {
        return 0;
    }
    pool_path(s, "pool", at);
    if (umount2(at, UMOUNT_NOFOLLOW) < 0) {
        return err_set(e, -errno, "pool_busy", "cannot unmount '%s': %s%s", at, strerror(errno),
                       errno == EBUSY ? " (stop the services and their sandboxes first)" : "");
    }
    printf("unmounted pool from %s\n", at);
    return 0;
}
