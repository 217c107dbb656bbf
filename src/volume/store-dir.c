/* SPDX-License-Identifier: Apache-2.0 */
/* An object is a file beneath the folder; it is written beside its place, synced and renamed. */
#include "volume/store.h"

#include "base/fs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 8u

struct store_dir {
    struct store base;
    int fd; /* owned */
};

static int dir_fd_of(struct store *s)
{
    return ((struct store_dir *)s)->fd;
}

static int failed(int r, const char *what, const char *key, struct err *e)
{
    if (r == -ENOENT || r == -ENOTDIR || r == -EISDIR) {
        return store_missing(key, e);
    }
    if (r == -E2BIG) {
        return err_set(e, r, NULL, "the object '%s' is larger than it may be", key);
    }
    return err_set(e, -EHOSTDOWN, "store_unavailable", "%s object '%s': %s", what, key,
                   strerror(-r));
}

static int make_folder(int fd, const char *name)
{
    cleanup_close int made = fs_mkdir_open(fd, name, 0700);
    int r = made < 0 ? made : fs_sync_dir(fd);

    return r < 0 ? r : TAKE_FD(made);
}

/* The folder that the key lies in, and in *ret_name what follows. */
static int open_parent(int root_fd, const char *key, bool make, const char **ret_name)
{
    cleanup_free char *path = xstrdup(key);
    char *name = path;
    int fd = fd_dup(root_fd);

    for (char *slash = strchr(name, '/'); slash && fd >= 0; slash = strchr(name, '/')) {
        int next;

        *slash = '\0';
        next = fs_open_beneath(fd, name, O_RDONLY | O_DIRECTORY, 0);
        if (next == -ENOENT && make) {
            next = make_folder(fd, name);
        }
        fd_close(fd);
        fd = next;
        name = slash + 1;
    }
    *ret_name = key + (name - path);
    return fd;
}

static int dir_put(struct store *s, const char *key, const void *data, size_t len, struct err *e)
{
    const char *name = NULL;
    cleanup_close int fd = open_parent(dir_fd_of(s), key, /* make */ true, &name);
    int r = fd < 0 ? fd : fs_write_file_durable(fd, name, data, len, 0600);

    return r < 0
               ? failed(r == -ENOENT || r == -EISDIR || r == -ENOTDIR ? -EIO : r, "writing", key, e)
               : 0;
}

static int dir_get(struct store *s, const char *key, struct buf *ret, struct err *e)
{
    int r = fs_read_file(dir_fd_of(s), key, ret);

    return r < 0 ? failed(r, "reading", key, e) : 0;
}

static void describe(const struct stat *st, const char *key, struct store_object *ret)
{
    ASSERT(str_copy(ret->key, sizeof(ret->key), key) == 0);
    ret->size = (uint64_t)st->st_size;
    ret->modified_ms =
        (uint64_t)st->st_mtim.tv_sec * 1000 + (uint64_t)st->st_mtim.tv_nsec / 1000000;
}

static int dir_stat(struct store *s, const char *key, struct store_object *ret, struct err *e)
{
    struct stat st;

    if (fstatat(dir_fd_of(s), key, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return failed(-errno, "looking at", key, e);
    }
    describe(&st, key, ret);
    return S_ISREG(st.st_mode) ? 0 : store_missing(key, e);
}

static int dir_remove(struct store *s, const char *key, struct err *e)
{
    if (unlinkat(dir_fd_of(s), key, 0) < 0 && errno != ENOENT && errno != ENOTDIR) {
        return failed(-errno, "removing", key, e);
    }
    return 0;
}

struct listing {
    store_list_fn *each;
    void *ctx;
};

static int list_folder(int fd, const char *prefix, const struct listing *l, unsigned depth);

static int list_entry(int fd, const char *prefix, const char *name, const struct listing *l,
                      unsigned depth)
{
    struct store_object object;
    char key[STORE_KEY_MAX + 2];
    struct stat st;
    int len = snprintf(key, sizeof(key), "%s%s", prefix, name);

    if (len > (int)STORE_KEY_MAX || !store_key_valid(key)) {
        return 0; /* not ours, or a file in the making */
    }
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
        cleanup_close int sub = fs_open_beneath(fd, name, O_RDONLY | O_DIRECTORY, 0);

        snprintf(key + len, sizeof(key) - (size_t)len, "/");
        return sub < 0 ? sub : list_folder(sub, key, l, depth + 1);
    }
    if (!S_ISREG(st.st_mode)) {
        return 0;
    }
    describe(&st, key, &object);
    return l->each(l->ctx, &object);
}

static int list_folder(int fd, const char *prefix, const struct listing *l, unsigned depth)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    struct dirent *entry;
    int r = 0;

    if (!dir) {
        fd_close(own);
        return -errno;
    }
    errno = 0;
    while (r == 0 && (entry = readdir(dir))) {
        r = list_entry(fd, prefix, entry->d_name, l, depth);
        errno = 0;
    }
    r = r == 0 ? -errno : r;
    closedir(dir);
    return r;
}

static int dir_list(struct store *s, const char *prefix, store_list_fn *each, void *ctx,
                    struct err *e)
{
    const struct listing l = {each, ctx};
    cleanup_close int fd = FD_NONE;
    int r;

    if (!prefix[0]) {
        r = list_folder(dir_fd_of(s), prefix, &l, 0);
    } else {
        cleanup_free char *path = xstrndup(prefix, strlen(prefix) - 1);

        fd = fs_open_beneath(dir_fd_of(s), path, O_RDONLY | O_DIRECTORY, 0);
        r = fd == -ENOENT ? 0 : fd < 0 ? fd : list_folder(fd, prefix, &l, 0);
    }
    return r < 0 ? err_wrap(e, r, "listing objects '%s'", prefix) : r;
}

static void dir_free(struct store *s)
{
    fd_close(dir_fd_of(s));
    free(s);
}

static const struct store_ops ops = {
    .name = "folder",
    .put = dir_put,
    .get = dir_get,
    .stat = dir_stat,
    .remove = dir_remove,
    .list = dir_list,
    .free = dir_free,
};

int store_dir_open(const char *path, struct store **ret, struct err *e)
{
    struct store_dir *s;
    int r = fs_mkdir_all(path, 0700);
    int fd = r < 0 ? r : fs_open(path, O_RDONLY | O_DIRECTORY, 0);

    if (fd < 0) {
        return err_wrap(e, fd, "opening the object store '%s'", path);
    }
    s = xnew(struct store_dir);
    s->base.ops = &ops;
    s->fd = fd;
    *ret = &s->base;
    return 0;
}
