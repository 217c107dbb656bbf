/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/copy-local.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/id.h"

#define HOLE_BYTES 4096u
#define TEMP_PREFIX ".space-cp-"

bool copy_local_path_valid(const char *path)
{
    const char *at = path;

    do {
        size_t len = strcspn(at, "/");

        if (len == 0 || len > 255 || (len == 1 && at[0] == '.') ||
            (len == 2 && at[0] == '.' && at[1] == '.')) {
            return false;
        }
        at += len;
        if (*at == '/') {
            at++;
            if (!*at) {
                return false;
            }
        }
    } while (*at);
    return true;
}

/* Opens the parent of the entry; *ret_name points into path. */
static int open_parent(int root_fd, const char *path, const char **ret_name)
{
    const char *slash = strrchr(path, '/');
    cleanup_free char *parent = NULL;
    int fd;

    if (!copy_local_path_valid(path)) {
        return -EINVAL;
    }
    if (!slash) {
        *ret_name = path;
        return fd_dup(root_fd);
    }
    parent = xstrndup(path, (size_t)(slash - path));
    fd = fs_open_beneath(root_fd, parent, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd >= 0) {
        *ret_name = slash + 1;
    }
    return fd;
}

static void temp_name(char ret[static 32])
{
    unsigned char random[8];
    char hex[17];

    random_bytes(random, sizeof(random));
    hex_encode(random, sizeof(random), hex);
    snprintf(ret, 32, TEMP_PREFIX "%s", hex);
}

int copy_local_mkdir(int root_fd, const char *path, unsigned mode, bool *ret_created)
{
    const char *name = NULL;
    cleanup_close int parent_fd = open_parent(root_fd, path, &name);
    cleanup_close int fd = FD_NONE;
    bool created;

    if (parent_fd < 0) {
        return parent_fd;
    }
    created = mkdirat(parent_fd, name, 0700) == 0;
    if (!created && errno != EEXIST) {
        return -errno;
    }
    fd = openat(parent_fd, name,
                (created ? O_RDONLY : O_PATH) | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    /* The owner can enter and fill it until the copy is complete. */
    if (created && fchmod(fd, (mode & 0777) | 0700) < 0) {
        return -errno;
    }
    if (ret_created) {
        *ret_created = created;
    }
    return 0;
}

int copy_local_symlink(int root_fd, const char *path, const char *target)
{
    const char *name = NULL;
    cleanup_close int parent_fd = open_parent(root_fd, path, &name);
    char temp[32];

    if (parent_fd < 0) {
        return parent_fd;
    }
    temp_name(temp);
    if (symlinkat(target, parent_fd, temp) < 0) {
        return -errno;
    }
    if (renameat(parent_fd, temp, parent_fd, name) < 0) {
        int r = -errno;

        unlinkat(parent_fd, temp, 0);
        return r;
    }
    return 0;
}

int copy_local_chmod_dir(int root_fd, const char *path, unsigned mode)
{
    cleanup_close int fd = FD_NONE;

    if (!copy_local_path_valid(path)) {
        return -EINVAL;
    }
    fd = fs_open_beneath(root_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd < 0) {
        return fd;
    }
    return fchmod(fd, mode & 0777) < 0 ? -errno : 0;
}

int copy_file_begin(int root_fd, const char *path, struct copy_file *ret)
{
    struct copy_file f = COPY_FILE_INIT;
    const char *name = NULL;

    f.dir_fd = open_parent(root_fd, path, &name);
    if (f.dir_fd < 0) {
        return f.dir_fd;
    }
    temp_name(f.temp);
    f.fd = openat(f.dir_fd, f.temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (f.fd < 0) {
        int r = -errno;

        fd_close(f.dir_fd);
        return r;
    }
    f.name = xstrdup(name);
    *ret = f;
    return 0;
}

static bool all_zero(const char *data, size_t len)
{
    return len > 0 && data[0] == 0 && memcmp(data, data + 1, len - 1) == 0;
}

int copy_file_write(struct copy_file *f, const void *data, size_t len)
{
    const char *at = data;

    while (len > 0) {
        size_t n = MIN(len, HOLE_BYTES - (size_t)(f->size % HOLE_BYTES));
        bool hole = all_zero(at, n);

        /* As many blocks of one kind as there are, in one go. */
        while (n < len && all_zero(at + n, MIN((size_t)HOLE_BYTES, len - n)) == hole) {
            n += MIN((size_t)HOLE_BYTES, len - n);
        }
        if (hole) {
            if (lseek(f->fd, (off_t)n, SEEK_CUR) < 0) {
                return -errno;
            }
        } else {
            int r = fs_write_all(f->fd, at, n);

            if (r < 0) {
                return r;
            }
        }
        f->size += n;
        at += n;
        len -= n;
    }
    return 0;
}

int copy_file_commit(struct copy_file *f, unsigned mode)
{
    if (ftruncate(f->fd, (off_t)f->size) < 0 || fchmod(f->fd, mode & 0777) < 0) {
        return -errno;
    }
    /* A network file system tells about a full disk here. */
    if (close(TAKE_FD(f->fd)) < 0 && errno != EINTR) {
        return -errno;
    }
    if (renameat(f->dir_fd, f->temp, f->dir_fd, f->name) < 0) {
        return -errno;
    }
    f->temp[0] = '\0';
    return 0;
}

void copy_file_done(struct copy_file *f)
{
    if (f->dir_fd >= 0 && f->temp[0]) {
        unlinkat(f->dir_fd, f->temp, 0);
    }
    fd_close(f->fd);
    fd_close(f->dir_fd);
    free(f->name);
    *f = (struct copy_file)COPY_FILE_INIT;
}
