/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/mount.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "daemon/network.h"
#include "daemon/uevent.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SANDBOX "/sandbox"
#define SIZE_WAIT_MS 10000
/* Room that lets a command begin before the rest of the disk is there. */
#define ROOM_BYTES (512ull << 20)
/* From fs/ext4/ext4.h; the kernel does not export it. */
#define SPACE_EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)

int mount_flush_device(const char *device, struct err *e)
{
    cleanup_close int fd = fs_open(device, O_RDONLY, 0);

    if (fd < 0) {
        return err_wrap(e, fd, "opening the disk");
    }
    return ioctl(fd, BLKFLSBUF, 0) < 0 ? err_wrap(e, -errno, "dropping the disk's buffers") : 0;
}

int mount_wait_for_size(const char *device, uint64_t bytes, struct err *e)
{
    cleanup_close int news_fd = uevent_listen();
    cleanup_close int fd = fs_open(device, O_RDONLY, 0);
    uint64_t deadline_ns = deadline_in_ms(SIZE_WAIT_MS);
    uint64_t now = 0;

    if (fd < 0) {
        return err_wrap(e, fd, "opening the disk");
    }
    while (ioctl(fd, BLKGETSIZE64, &now) == 0 && now < bytes) {
        if (deadline_passed(deadline_ns)) {
            return err_set(e, -ETIMEDOUT, "disk_too_small",
                           "the disk has %llu bytes and should have %llu", (unsigned long long)now,
                           (unsigned long long)bytes);
        }
        uevent_wait(news_fd, deadline_ns); /* RESIZE=1 */
    }
    return 0;
}

bool mount_device_free(const char *device)
{
    cleanup_close int fd = fs_open(device, O_RDONLY | O_EXCL, 0);

    return fd >= 0;
}

void mount_grow(uint64_t disk_bytes)
{
    cleanup_close int root_fd = fs_open("/", O_RDONLY | O_DIRECTORY, 0);
    uint64_t blocks;
    struct statfs fs;

    if (disk_bytes == 0 || root_fd < 0 || fstatfs(root_fd, &fs) < 0 || fs.f_bsize <= 0) {
        return;
    }
    blocks = disk_bytes / (uint64_t)fs.f_bsize;
    if (ioctl(root_fd, SPACE_EXT4_IOC_RESIZE_FS, &blocks) < 0 && errno != EINVAL) {
        log_warn(NULL, "cannot grow the file system to its disk, ignoring: %s",
                 strerrordesc_np(errno));
    }
}

bool mount_has_room(void)
{
    struct statfs fs;

    return statfs("/", &fs) == 0 && fs.f_bsize > 0 &&
           fs.f_bavail >= ROOM_BYTES / (uint64_t)fs.f_bsize;
}

struct point {
    const char *name; /* below the root of the sandbox */
    const char *type;
    unsigned long flags;
    const char *options;
};

static const struct point points[] = {
    {"proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
    {"sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
    {"dev", "tmpfs", MS_NOSUID | MS_STRICTATIME, "mode=0755,size=4m,nr_inodes=4096"},
    {"dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"},
    {"dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"},
    {"run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755"},
};

/* Mounts on a folder of the sandbox, which is made if it is missing; no symlink on the way is followed. */
static int mount_point(int root_fd, const struct point *p, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    char path[64];

    /* The whole is made by fs_open_beneath's rules: a symlink in the place of a folder is an error. */
    if (mkdirat(root_fd, p->name, 0755) < 0 && errno != EEXIST && errno != EROFS) {
        return err_wrap(e, -errno, "making /%s on the disk", p->name);
    }
    fd = fs_open_beneath(root_fd, p->name, O_PATH | O_DIRECTORY, 0);
    if (fd < 0) {
        return err_wrap(e, fd, "/%s on the disk is no folder", p->name);
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (mount(p->type, path, p->type, p->flags, p->options) < 0) {
        return err_wrap(e, -errno, "mounting /%s", p->name);
    }
    return 0;
}

static int make_nodes(int root_fd, struct err *e)
{
    static const struct {
        const char *name;
        unsigned major;
        unsigned minor;
    } nodes[] = {
        {"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
        {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
    };
    static const char *const links[][2] = {
        {"/proc/self/fd", "fd"},       {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
        {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
    };
    cleanup_close int dev_fd = fs_open_beneath(root_fd, "dev", O_RDONLY | O_DIRECTORY, 0);
    mode_t before = umask(0);

    if (dev_fd < 0) {
        return err_wrap(e, dev_fd, "opening /dev");
    }
    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
        if (mknodat(dev_fd, nodes[i].name, S_IFCHR | 0666,
                    makedev(nodes[i].major, nodes[i].minor)) < 0) {
            return err_wrap(e, -errno, "making /dev/%s", nodes[i].name);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        if (symlinkat(links[i][0], dev_fd, links[i][1]) < 0) {
            return err_wrap(e, -errno, "making /dev/%s", links[i][1]);
        }
    }
    umask(before);
    return 0;
}

static int mount_points(int root_fd, struct err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        int r = mount_point(root_fd, &points[i], e);

        if (r == 0 && str_eq(points[i].name, "dev")) {
            r = make_nodes(root_fd, e);
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int mount_cgroup(int root_fd, int cgroup_ns_fd, struct err *e)
{
    static const struct point point = {"sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                                       NULL};

    if (cgroup_ns_fd < 0) {
        return 0;
    }
    if (setns(cgroup_ns_fd, CLONE_NEWCGROUP) < 0) {
        return err_wrap(e, -errno, "entering the workload's cgroup namespace");
    }
    return mount_point(root_fd, &point, e);
}

int mount_open_plain(int dir_fd, const char *name, uint64_t flags)
{
    const struct open_how how = {
        .flags = flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NONBLOCK),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };
    int fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));

    return fd < 0 ? -errno : fd;
}

/*
 * Where the file is a plain one of the same length, as in a fork, with no other name: this is the least that the
 * file system can be asked for, and none of its code is warm in a machine that was just restored.
 */
static bool overwrite(int etc_fd, const char *name, const char *line)
{
    cleanup_close int fd = mount_open_plain(etc_fd, name, O_WRONLY);
    ssize_t len = (ssize_t)strlen(line);
    struct stat st;

    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
           st.st_size == len && pwrite(fd, line, (size_t)len, 0) == len;
}

/* One identity file, replaced, never written through what the workload may have put in its place. */
static void write_file(int etc_fd, const char *name, const char *text)
{
    cleanup_close int fd = FD_NONE;
    char line[128];
    bool ended = text[0] && text[strlen(text) - 1] == '\n';

    if (!text[0]) {
        return;
    }
    snprintf(line, sizeof(line), "%s%s", text, ended ? "" : "\n");
    if (overwrite(etc_fd, name, line)) {
        return;
    }
    if (unlinkat(etc_fd, name, 0) < 0 && errno != ENOENT) {
        return; /* the workload has made a folder of it: its own affair */
    }
    fd = openat(etc_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || fs_write_all(fd, line, strlen(line)) < 0) {
        log_warn(NULL, "cannot write /etc/%s, ignoring: %s", name, strerrordesc_np(errno));
    }
}

static void write_files(int etc_fd, const char *hostname, const char *machine_id)
{
    write_file(etc_fd, "hostname", hostname);
    write_file(etc_fd, "machine-id", machine_id);
}

/* Once: from then on the file is the tenant's. */
static void set_resolver(void)
{
    cleanup_close int etc_fd = fs_open_beneath(AT_FDCWD, "etc", O_RDONLY | O_DIRECTORY, 0);

    if (etc_fd >= 0) {
        write_file(etc_fd, "resolv.conf", NETWORK_RESOLV_CONF);
    }
}

void mount_write_identity(const char *hostname, const char *machine_id)
{
    cleanup_close int root_fd = fs_open("/", O_PATH | O_DIRECTORY, 0);
    cleanup_close int etc_fd =
        root_fd < 0 ? FD_NONE : fs_open_beneath(root_fd, "etc", O_RDONLY | O_DIRECTORY, 0);

    if (etc_fd >= 0) {
        write_files(etc_fd, hostname, machine_id);
    }
}

bool mount_write_identity_at(int root_fd, const char *hostname, const char *machine_id)
{
    cleanup_close int etc_fd = mount_open_plain(root_fd, "etc", O_RDONLY | O_DIRECTORY);

    if (etc_fd < 0) {
        return false;
    }
    write_files(etc_fd, hostname, machine_id);
    return true;
}

/*
 * Mounting writes the superblock and the journal's several times, each time waiting for the host's disk. Where
 * nothing can be lost yet it need not: barriers come with the remount, before any program runs.
 */
static int mount_disk(const struct mount_spec *spec, struct err *e)
{
    const char *options = spec->fresh ? "nobarrier" : NULL;

    if (mount(spec->device, SANDBOX, spec->fstype, MS_RELATIME, options) < 0) {
        return err_wrap(e, -errno, "mounting the disk");
    }
    if (spec->fresh && mount(NULL, SANDBOX, NULL, MS_REMOUNT | MS_RELATIME, "barrier") < 0) {
        return err_wrap(e, -errno, "turning on the disk's barriers");
    }
    return 0;
}

int mount_sandbox(const struct mount_spec *spec, struct err *e)
{
    cleanup_close int root_fd = FD_NONE;
    int r;

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return err_wrap(e, -errno, "making a mount namespace");
    }
    r = mount_disk(spec, e);
    if (r < 0) {
        return r;
    }
    root_fd = fs_open(SANDBOX, O_RDONLY | O_DIRECTORY, 0);
    if (root_fd < 0) {
        return err_wrap(e, root_fd, "opening the disk's root");
    }
    r = mount_points(root_fd, e);
    if (r == 0) {
        r = mount_cgroup(root_fd, spec->cgroup_ns_fd, e);
    }
    if (r < 0) {
        return r;
    }
    if (fchdir(root_fd) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
        chdir("/") < 0) {
        return err_wrap(e, -errno, "moving to the disk");
    }
    set_resolver();
    mount_write_identity(spec->hostname, spec->machine_id);
    return 0;
}
