/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing a file, or a directory with all that is in it. Works on descriptors only: each directory
 * is opened beneath its parent without following links, so that a directory swapped for a link
 * while we are at it cannot lead us out. Any depth: the newest REMOVE_OPEN_MAX levels are open, the
 * others are found again through ".." and must be the same inode as on the way down (else -ESTALE).
 * Mount points are not entered. It stops at the first thing that cannot be removed and names it;
 * what is gone is gone.
 */
#include "daemon/file-worker.h"

#include "daemon/file-text.h"
#include "daemon/file-walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define REMOVE_OPEN_MAX 64
/* A directory that somebody goes on filling while we empty it. */
#define REMOVE_AGAIN_MAX 1000

struct level {
    DIR *dir;   /* owned: NULL while it is too far up */
    char *name; /* owned: in the level above */
    dev_t dev;
    ino_t ino;
};

struct removal {
    struct level *levels; /* owned */
    size_t n;
    unsigned n_again;
};

static void removal_done(struct removal *rm)
{
    for (size_t i = 0; i < rm->n; i++) {
        if (rm->levels[i].dir) {
            closedir(rm->levels[i].dir);
        }
        free(rm->levels[i].name);
    }
    free(rm->levels);
}

static DIR *stream(int fd_take)
{
    DIR *dir = fdopendir(fd_take);

    ASSERT(dir); /* it is a directory, opened for reading */
    return dir;
}

/* Goes down into name, which must be a directory on the same file system. */
static int push(struct removal *rm, int parent_fd, const char *name)
{
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct level *top;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        int r = -errno;

        fd_close(fd);
        return r == -ELOOP ? -ENOTDIR : r;
    }
    if (rm->n > 0 && st.st_dev != rm->levels[0].dev) {
        fd_close(fd);
        return -EBUSY;
    }
    rm->levels = xrealloc(rm->levels, (rm->n + 1) * sizeof(*rm->levels));
    top = &rm->levels[rm->n++];
    *top = (struct level){.name = xstrdup(name), .dev = st.st_dev, .ino = st.st_ino};
    top->dir = stream(fd);
    if (rm->n > REMOVE_OPEN_MAX) {
        struct level *old = &rm->levels[rm->n - 1 - REMOVE_OPEN_MAX];

        if (old->dir) {
            closedir(TAKE_PTR(old->dir));
        }
    }
    return 0;
}

/* Opens the level above the top again, through "..". */
static int reopen_parent(struct removal *rm)
{
    struct level *parent = &rm->levels[rm->n - 2];
    struct stat st;
    int fd;

    if (parent->dir) {
        return 0;
    }
    fd = openat(dirfd(rm->levels[rm->n - 1].dir), "..",
                O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    if (fstat(fd, &st) < 0 || st.st_dev != parent->dev || st.st_ino != parent->ino) {
        fd_close(fd);
        return -ESTALE;
    }
    parent->dir = stream(fd);
    return 0;
}

/* The top is read to its end: go up and remove it. */
static int pop(struct removal *rm, int base_fd)
{
    struct level *top = &rm->levels[rm->n - 1];
    int r = rm->n > 1 ? reopen_parent(rm) : 0;
    int parent_fd = rm->n > 1 && r == 0 ? dirfd(rm->levels[rm->n - 2].dir) : base_fd;

    if (r < 0) {
        return r;
    }
    if (unlinkat(parent_fd, top->name, AT_REMOVEDIR) < 0) {
        if (errno == ENOTEMPTY && rm->n_again++ < REMOVE_AGAIN_MAX) {
            rewinddir(top->dir); /* something was added, or skipped because others were removed */
            return 0;
        }
        if (errno != ENOENT) {
            return -errno;
        }
    }
    closedir(top->dir);
    free(top->name);
    rm->n--;
    return 0;
}

static int remove_entry(struct removal *rm, int dir_fd, const struct dirent *entry)
{
    if (entry->d_type != DT_DIR) {
        if (unlinkat(dir_fd, entry->d_name, 0) == 0 || errno == ENOENT) {
            return 0;
        }
        if (errno != EISDIR) {
            return -errno;
        }
    }
    return push(rm, dir_fd, entry->d_name);
}

static int remove_run(struct removal *rm, int base_fd)
{
    while (rm->n > 0) {
        struct level *top = &rm->levels[rm->n - 1];
        struct dirent *entry;
        int r;

        errno = 0;
        entry = readdir(top->dir);
        if (!entry && errno != 0 && errno != ENOENT) { /* ENOENT: somebody else has removed it */
            return -errno;
        }
        if (entry && (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))) {
            continue;
        }
        r = entry ? remove_entry(rm, dirfd(top->dir), entry) : pop(rm, base_fd);
        if (entry && (r == -ENOENT || r == -ENOTDIR)) {
            continue; /* gone or replaced while we looked; the next pass sees what is there now */
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* Where we were when it failed, for the message; cut in the middle levels when it is deep. */
static int remove_error(const struct file_worker *w, const struct removal *rm, int code,
                        struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(FILE_PATH_MAX);
    int r = buf_add_str(&path, w->path);

    for (size_t i = 1; i < rm->n && r == 0; i++) {
        r = buf_printf(&path, "/%s", rm->levels[i].name);
    }
    if (code == -ESTALE) {
        return err_set(e, -ESTALE, "changed", "the directory was moved while it was removed");
    }
    if (code == -ENOTEMPTY) {
        return err_set(e, -EBUSY, NULL, "the directory was filled while it was removed");
    }
    file_error(e, code, buf_str(&path));
    return rm->n > 0
               ? err_wrap(e, e ? e->code : code, "in this directory something cannot be removed")
               : code;
}

static int reply_removed(struct file_worker *w, struct err *e)
{
    cleanup_buf struct buf json = BUF_INIT(FILE_JSON_MAX);
    int r = buf_add_str(&json, "{");

    if (r == 0) {
        r = file_text_member(&json, "removed", w->path);
    }
    if (r == 0) {
        r = buf_add_str(&json, "}");
    }
    return r < 0 ? err_wrap(e, r, "answering")
                 : file_worker_reply_json(w, &json, /* created */ false, e);
}

int file_op_remove(struct file_worker *w, struct err *e)
{
    cleanup_file_spot struct file_spot spot = FILE_SPOT_INIT;
    CLEANUP(removal_done) struct removal rm = {0};
    int r = file_walk(w->path, 0, &spot, e);

    if (r < 0) {
        return r;
    }
    if (str_eq(spot.name, ".")) {
        return err_field(e, -EBUSY, NULL, "path", "the root directory cannot be removed");
    }
    if (unlinkat(spot.dir_fd, spot.name, 0) == 0) {
        return reply_removed(w, e);
    }
    if (errno != EISDIR) {
        return file_error(e, -errno, w->path);
    }
    if (!w->req->recursive) {
        r = unlinkat(spot.dir_fd, spot.name, AT_REMOVEDIR) < 0 ? -errno : 0;
    } else {
        r = push(&rm, spot.dir_fd, spot.name);
        r = r == 0 ? remove_run(&rm, spot.dir_fd) : r;
        if (r < 0) {
            return remove_error(w, &rm, r, e);
        }
    }
    return r < 0 ? file_error(e, r, w->path) : reply_removed(w, e);
}
