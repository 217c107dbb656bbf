/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"

#include "base/id.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int fs_open(const char *path, int flags, mode_t mode)
{
    int fd = open(path, flags | O_CLOEXEC, mode);

    return fd < 0 ? -errno : fd;
}

int fs_open_beneath(int dir_fd, const char *name, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .mode = (flags & (O_CREAT | O_TMPFILE)) ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd;

    for (int tries = 0; tries < 16; tries++) {
        fd = syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) {
            break; /* EAGAIN: a rename elsewhere raced with the look-up */
        }
    }
    return fd < 0 ? -errno : (int)fd;
}

int fs_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

ssize_t fs_read_full(int fd, void *ret, size_t len)
{
    size_t got = 0;

    while (got < len) {
        ssize_t n = read(fd, (char *)ret + got, len - got);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        if (n == 0) {
            break;
        }
        got += (size_t)n;
    }
    return (ssize_t)got;
}

int fs_read_fd(int fd, struct buf *b)
{
    char chunk[4096];

    for (;;) {
        ssize_t n = read(fd, chunk, sizeof(chunk));
        int r;

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : 0;
        }
        r = buf_add(b, chunk, (size_t)n);
        if (r < 0) {
            return r;
        }
    }
}

int fs_read_file(int dir_fd, const char *name, struct buf *b)
{
    cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (fd < 0) {
        return -errno;
    }
    return fs_read_fd(fd, b);
}

int fs_sync_dir(int dir_fd)
{
    return fsync(dir_fd) < 0 ? -errno : 0;
}

/* Hands what was written to the file system, or waits until it is on the disk. */
static int store(int fd, bool durable)
{
    const unsigned all =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

    return (durable ? fsync(fd) : sync_file_range(fd, 0, 0, all)) < 0 ? -errno : 0;
}

static int write_temporary(int dir_fd, const char *temp, const void *data, size_t len, mode_t mode,
                           bool durable)
{
    cleanup_close int fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    int r;

    if (fd < 0) {
        return -errno;
    }
    r = fs_write_all(fd, data, len);
    return r < 0 ? r : store(fd, durable);
}

static int replace_file(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
                        bool durable)
{
    char temp[300];
    char random[ID_SIZE];
    int r;

    id_new(ID_REQUEST, random);
    if (snprintf(temp, sizeof(temp), ".%s.%s", name, random) >= (int)sizeof(temp)) {
        return -ENAMETOOLONG;
    }
    r = write_temporary(dir_fd, temp, data, len, mode, durable);
    if (r == 0 && renameat(dir_fd, temp, dir_fd, name) < 0) {
        r = -errno;
    }
    if (r < 0) {
        unlinkat(dir_fd, temp, 0);
    }
    return r;
}

int fs_write_file_durable(int dir_fd, const char *name, const void *data, size_t len, mode_t mode)
{
    int r = replace_file(dir_fd, name, data, len, mode, /* durable */ true);

    return r < 0 ? r : fs_sync_dir(dir_fd);
}

int fs_write_file_ordered(int dir_fd, const char *name, const void *data, size_t len, mode_t mode)
{
    return replace_file(dir_fd, name, data, len, mode, /* durable */ false);
}

int fs_mkdir_all(const char *path, mode_t mode)
{
    cleanup_free char *copy = xstrdup(path);

    for (char *slash = copy + 1; *copy && (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(copy, mode) < 0 && errno != EEXIST) {
            return -errno;
        }
        *slash = '/';
    }
    return mkdir(copy, mode) < 0 && errno != EEXIST ? -errno : 0;
}

int fs_mkdir_open(int dir_fd, const char *name, mode_t mode)
{
    if (mkdirat(dir_fd, name, mode) < 0 && errno != EEXIST) {
        return -errno;
    }
    return fs_open_beneath(dir_fd, name, O_RDONLY | O_DIRECTORY, 0);
}

static int remove_entries(int dir_fd)
{
    cleanup_close int copy = fd_dup(dir_fd);
    struct dirent *entry;
    DIR *dir;
    int r = 0;

    if (copy < 0) {
        return copy;
    }
    dir = fdopendir(copy);
    if (!dir) {
        return -errno;
    }
    copy = FD_NONE; /* closedir closes it */
    while (r == 0 && (errno = 0, entry = readdir(dir))) {
        if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, "..")) {
            r = fs_remove_tree(dir_fd, entry->d_name);
        }
    }
    if (r == 0 && errno) {
        r = -errno;
    }
    closedir(dir);
    return r;
}

int fs_remove_tree(int dir_fd, const char *name)
{
    cleanup_close int fd = FD_NONE;
    int r;

    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }
    if (errno != EISDIR && errno != EPERM) {
        return -errno;
    }
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    r = remove_entries(fd);
    if (r < 0) {
        return r;
    }
    return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int fd_set_nonblock(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0) {
        return -errno;
    }
    flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
    return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

int fd_dup(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    return copy < 0 ? -errno : copy;
}
