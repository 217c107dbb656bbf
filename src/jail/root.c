/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"
#include "jail/jail-internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIND_RO (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define BIND_DATA (BIND_RO | MOUNT_ATTR_NOEXEC)
#define BIND_DEV (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)

/*
 * What a VMM reads while it starts. Folders of libraries as a whole: which of them the loader
 * takes, and which modules QEMU loads, changes with every package update. jail_seal() takes all of
 * it away before the guest has run for long. One that is not there is skipped: distributions
 * differ.
 */
static const struct {
    const char *path;
    uint64_t attr;
} binds[] = {
    {"/usr/lib/x86_64-linux-gnu", BIND_RO}, /* Debian's libraries and QEMU's modules */
    {"/usr/lib64", BIND_RO},                /* the loader; the libraries of other distributions */
    {"/etc/ld.so.cache", BIND_DATA},        /* else the loader tries each folder for each library */
    {"/usr/share/qemu", BIND_DATA},         /* option ROMs */
    {"/usr/share/seabios", BIND_DATA},      /* bios-microvm.bin */
    {"/dev/null", BIND_DEV},                /* standard input */
    {"/dev/urandom", BIND_DEV}, /* QEMU's own random numbers, when getrandom is refused */
};

static const struct {
    const char *name;
    const char *target;
} links[] = {
    {"lib", "usr/lib"}, /* the loader's path is compiled into every program */
    {"lib64", "usr/lib64"},
};

/* Files that QEMU can only open by name. A descriptor's entry in procfs leads to the same file. */
static const struct {
    const char *name;
    enum priv_fd which;
} names[] = {
    {PRIV_JAIL_PATH_MEMORY, PRIV_FD_MEMORY},
    {PRIV_JAIL_PATH_KERNEL, PRIV_FD_KERNEL},
    {PRIV_JAIL_PATH_INITRD, PRIV_FD_INITRD},
};

int jail_mount_flags(int mount_fd, uint64_t attr_set, struct err *e)
{
    struct mount_attr attr = {.attr_set = attr_set};

    if (FAULT("jail.mount_flags") ||
        mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0) {
        return err_wrap(e, -errno, "restricting a mount of the jail");
    }
    return 0;
}

struct fs_option {
    const char *key;
    const char *value;
};

/* A new file system, mounted nowhere yet. */
static int jail_new_fs(const char *type, const struct fs_option *options, size_t n, struct err *e)
{
    cleanup_close int fs_fd = fsopen(type, FSOPEN_CLOEXEC);
    int fd;

    if (FAULT("jail.new_fs") || fs_fd < 0) {
        return err_wrap(e, -errno, "making a %s", type);
    }
    for (size_t i = 0; i < n; i++) {
        if (fsconfig(fs_fd, FSCONFIG_SET_STRING, options[i].key, options[i].value, 0) < 0) {
            return err_wrap(e, -errno, "setting %s of a %s", options[i].key, type);
        }
    }
    if (fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
        return err_wrap(e, -errno, "making a %s", type);
    }
    fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NODEV);
    if (fd < 0) {
        return err_wrap(e, -errno, "mounting a %s", type);
    }
    return fd;
}

int jail_tmpfs(struct err *e)
{
    static const struct fs_option options[] = {{"size", "64k"}, {"mode", "0555"}};
    /*
     * Before 6.15 nothing can be mounted in a detached tree, so it lies over the old root
     * meanwhile.
     */
    cleanup_close int fd = jail_new_fs("tmpfs", options, ARRAY_SIZE(options), e);

    if (fd < 0) {
        return fd;
    }
    if (FAULT("jail.tmpfs") || move_mount(fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0) {
        return err_wrap(e, -errno, "mounting the jail's root");
    }
    return TAKE_FD(fd);
}

int jail_pivot(int root_fd, struct err *e)
{
    /* With both names ".", the old root ends up over the new one, from where it is let go. */
    if (FAULT("jail.pivot") || fchdir(root_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
        umount2(".", MNT_DETACH) < 0 || chdir("/") < 0) {
        return err_wrap(e, -errno, "changing to the jail's root");
    }
    return 0;
}

/*
 * Makes the parents of path (absolute) and path itself, as a folder or as an empty file to mount
 * on.
 */
static int jail_make_target(int root_fd, const char *path, bool folder, struct err *e)
{
    char part[PATH_MAX];
    size_t len = strlen(path);

    ASSERT(path[0] == '/' && len < sizeof(part));
    for (size_t i = 1; i <= len; i++) {
        bool last = i == len;

        if (path[i] != '/' && !last) {
            continue;
        }
        memcpy(part, path + 1, i - 1);
        part[i - 1] = '\0';
        if (last && !folder) {
            cleanup_close int fd = openat(root_fd, part, O_CREAT | O_WRONLY | O_CLOEXEC, 0444);

            if (fd < 0) {
                return err_wrap(e, -errno, "making '%s' in the jail", path);
            }
        } else if (mkdirat(root_fd, part, 0555) < 0 && errno != EEXIST) {
            return err_wrap(e, -errno, "making '%s' in the jail", path);
        }
    }
    return 0;
}

static int jail_attach(int root_fd, int mount_fd, const char *path, bool folder, struct err *e)
{
    int r = jail_make_target(root_fd, path, folder, e);

    if (r < 0) {
        return r;
    }
    if (FAULT("jail.attach") ||
        move_mount(mount_fd, "", root_fd, path + 1, MOVE_MOUNT_F_EMPTY_PATH) < 0) {
        return err_wrap(e, -errno, "mounting '%s' in the jail", path);
    }
    return 0;
}

/* -ENOENT, without text: there is no such file on this host. */
static int jail_bind(int root_fd, const char *path, uint64_t attr, struct err *e)
{
    cleanup_close int tree_fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    struct stat st;
    int r;

    if (tree_fd < 0) {
        return errno == ENOENT ? -ENOENT : err_wrap(e, -errno, "opening '%s' for the jail", path);
    }
    if (FAULT("jail.bind") || fstat(tree_fd, &st) < 0) {
        return err_wrap(e, -errno, "looking at '%s' for the jail", path);
    }
    r = jail_mount_flags(tree_fd, attr, e);
    if (r < 0) {
        return r;
    }
    return jail_attach(root_fd, tree_fd, path, S_ISDIR(st.st_mode), e);
}

/*
 * The device's own mode and group decide; a group that could be more than a device's is not given.
 */
static int jail_bind_kvm(int root_fd, gid_t *ret_gid, struct err *e)
{
    struct stat st;
    int r = jail_bind(root_fd, "/dev/kvm", BIND_DEV, e);

    if (r < 0) {
        return r == -ENOENT ? err_set(e, -ENODEV, "kvm_unusable", "this host has no /dev/kvm") : r;
    }
    if (fstatat(root_fd, "dev/kvm", &st, 0) < 0) {
        return err_wrap(e, -errno, "looking at /dev/kvm");
    }
    if ((st.st_mode & 0006) == 0006) {
        *ret_gid = 0;
    } else if ((st.st_mode & 0060) == 0060 && st.st_gid != 0) {
        *ret_gid = st.st_gid;
    } else {
        return err_set(
            e, -ENODEV, "kvm_unusable",
            "/dev/kvm must be readable and writable for a group of its own (mode 0660, group kvm)");
    }
    return 0;
}

static int jail_make_names(int root_fd, const struct jail_spec *spec, struct err *e)
{
    char target[40];

    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        if (symlinkat(links[i].target, root_fd, links[i].name) < 0) {
            return err_wrap(e, -errno, "making '/%s' in the jail", links[i].name);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (spec->fds[names[i].which] < 0) {
            continue;
        }
        snprintf(target, sizeof(target), "/proc/self/fd/%d", PRIV_JAIL_FD(names[i].which));
        if (FAULT("jail.names") || symlinkat(target, root_fd, names[i].name + 1) < 0) {
            return err_wrap(e, -errno, "making '%s' in the jail", names[i].name);
        }
    }
    return 0;
}

int jail_root(const struct jail_spec *spec, gid_t *ret_kvm_gid, struct err *e)
{
    static const struct fs_option own_processes = {"subset", "pid"};
    cleanup_close int root_fd = FD_NONE;
    cleanup_close int proc_fd = FD_NONE;
    int r;

    if (FAULT("jail.private") || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return err_wrap(e, -errno, "making the mounts private");
    }
    root_fd = jail_tmpfs(e);
    if (root_fd < 0) {
        return root_fd;
    }
    for (size_t i = 0; i < ARRAY_SIZE(binds); i++) {
        r = jail_bind(root_fd, binds[i].path, binds[i].attr, e);
        if (r < 0 && r != -ENOENT) {
            return r;
        }
    }
    r = jail_bind(root_fd, spec->vmm_path, BIND_RO, e);
    if (r < 0) {
        return err_wrap(e, r, "the VMM '%s'", spec->vmm_path);
    }
    if (spec->kvm) {
        r = jail_bind_kvm(root_fd, ret_kvm_gid, e);
        if (r < 0) {
            return r;
        }
    }
    proc_fd = jail_new_fs("proc", &own_processes, 1, e);
    if (proc_fd < 0) {
        return proc_fd;
    }
    r = jail_mount_flags(proc_fd, MOUNT_ATTR_RDONLY, e);
    if (r < 0) {
        return r;
    }
    r = jail_attach(root_fd, proc_fd, "/proc", /* folder */ true, e);
    if (r < 0) {
        return r;
    }
    r = jail_make_names(root_fd, spec, e);
    if (r < 0) {
        return r;
    }
    r = jail_mount_flags(root_fd, JAIL_MOUNT_SEALED, e);
    if (r < 0) {
        return r;
    }
    return jail_pivot(root_fd, e);
}
