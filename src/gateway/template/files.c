/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/template/files.h"

#include "base/fs.h"
#include "gateway/template/recipe.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER "files"
#define NEW_PREFIX ".new-"

struct files {
    int dir_fd;           /* owned */
    pthread_mutex_t lock; /* held while room is made and counted */
};

struct files_put {
    int dir_fd; /* borrowed: of all files */
    int fd;     /* owned */
    char name[ID_SIZE + TEMPLATE_HASH_SIZE];
    char temporary[sizeof(NEW_PREFIX) + ID_SIZE];
    bool kept;
};

int files_open(const char *state_dir, struct files **ret, struct err *e)
{
    cleanup_close int state_fd = fs_open(state_dir, O_RDONLY | O_DIRECTORY, 0);
    struct files *f;
    int dir_fd;

    dir_fd = state_fd < 0 ? state_fd : fs_mkdir_open(state_fd, FOLDER, 0700);
    if (dir_fd < 0) {
        return err_wrap(e, dir_fd, "opening '%s/" FOLDER "'", state_dir);
    }
    f = xnew(struct files);
    f->dir_fd = dir_fd;
    pthread_mutex_init(&f->lock, NULL);
    *ret = f;
    return 0;
}

void files_free(struct files *f)
{
    if (f) {
        fd_close(f->dir_fd);
        pthread_mutex_destroy(&f->lock);
        free(f);
    }
}

static void path_of(const char *project, const char *hash,
                    char ret[static ID_SIZE + TEMPLATE_HASH_SIZE])
{
    ASSERT(id_valid(ID_PROJECT, project) && template_hash_valid(hash));
    snprintf(ret, ID_SIZE + TEMPLATE_HASH_SIZE, "%s.%s", project, hash);
}

bool files_have(const struct files *f, const char *project, const char *hash)
{
    char path[ID_SIZE + TEMPLATE_HASH_SIZE];

    path_of(project, hash, path);
    return faccessat(f->dir_fd, path, R_OK, 0) == 0;
}

int files_get(const struct files *f, const char *project, const char *hash, int *ret_fd,
              struct err *e)
{
    char path[ID_SIZE + TEMPLATE_HASH_SIZE];
    int fd;

    path_of(project, hash, path);
    fd = fs_open_beneath(f->dir_fd, path, O_RDONLY, 0);
    if (fd < 0) {
        return fd == -ENOENT ? err_set(e, fd, "files_not_uploaded",
                                       "the files of a COPY step were not uploaded: %.16s...", hash)
                             : err_wrap(e, fd, "opening an uploaded file");
    }
    /* Only to know what is in use: without it, it goes earlier. */
    IGNORE_RESULT(
        futimens(fd, (const struct timespec[]){{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}}));
    *ret_fd = fd;
    return 0;
}

/* Bytes that the project holds, after the old ones and the remains of cut uploads have gone. */
static int count_and_clean(int dir_fd, const char *project, uint64_t *ret)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    time_t now = time(NULL);
    struct dirent *entry;
    uint64_t sum = 0;

    if (!dir) {
        fd_close(fd);
        return -errno;
    }
    while ((entry = readdir(dir))) {
        struct stat st;

        if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, "..")) {
            continue;
        }
        if (fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            continue;
        }
        if (now - st.st_mtime > FILES_AGE_S && unlinkat(dir_fd, entry->d_name, 0) == 0) {
            continue;
        }
        if (str_starts(entry->d_name, project)) {
            sum += (uint64_t)st.st_size;
        }
    }
    closedir(dir);
    *ret = sum;
    return 0;
}

int files_put_begin(struct files *f, const char *project, const char *hash, uint64_t size,
                    struct files_put **ret, struct err *e)
{
    CLEANUP(files_put_freep) struct files_put *put = xnew(struct files_put);
    char id[ID_SIZE];
    uint64_t held = 0;
    int r;

    put->fd = FD_NONE;
    put->dir_fd = f->dir_fd;
    path_of(project, hash, put->name);
    pthread_mutex_lock(&f->lock);
    r = count_and_clean(put->dir_fd, project, &held);
    pthread_mutex_unlock(&f->lock);
    if (r == 0 && (size > FILES_ONE_MAX || held + size > FILES_PROJECT_MAX)) {
        return err_set(e, -ENOSPC, "too_many_files",
                       "an uploaded archive may have %llu MiB, all of a project %llu MiB",
                       FILES_ONE_MAX >> 20, FILES_PROJECT_MAX >> 20);
    }
    id_new(ID_REQUEST, id);
    snprintf(put->temporary, sizeof(put->temporary), NEW_PREFIX "%s", id);
    if (r == 0) {
        put->fd = fs_open_beneath(put->dir_fd, put->temporary, O_RDWR | O_CREAT | O_EXCL, 0600);
        r = put->fd < 0 ? put->fd : 0;
    }
    if (r < 0) {
        return err_wrap(e, r, "making an uploaded file");
    }
    *ret = TAKE_PTR(put);
    return 0;
}

int files_put_fd(const struct files_put *put)
{
    return put->fd;
}

int files_put_keep(struct files_put *put, struct err *e)
{
    if (renameat(put->dir_fd, put->temporary, put->dir_fd, put->name) < 0) {
        return err_wrap(e, -errno, "keeping an uploaded file");
    }
    put->kept = true;
    return 0;
}

void files_put_free(struct files_put *put)
{
    if (!put) {
        return;
    }
    if (put->fd >= 0 && !put->kept) {
        IGNORE_RESULT(unlinkat(put->dir_fd, put->temporary, 0)); /* the next one cleans */
    }
    fd_close(put->fd);
    free(put);
}
