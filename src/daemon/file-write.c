/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a whole file so that at every moment either the old or the new content is there.
 *
 * The content goes into a file without a name in the target's folder (O_TMPFILE; a hidden name
 * where the file system has no such thing), is flushed, and takes the target's place by rename.
 * Only the daemon's word COMMIT, after the last byte, makes it happen: when the client goes away in
 * the middle, the daemon closes the pipe and the socket, and nothing remains, the folders made on
 * the way included.
 *
 *     new file        mode as asked, else 0644; owner is the user
 *     existing file   its permission bits stay unless a mode is asked for; owner and group stay as
 *                     far as the user may give them away (root: always); needs write permission on
 *                     the old file (-EACCES) and that it is not being executed (-ETXTBSY); other
 *                     hard links keep the old content; setuid, setgid, ACLs and extended attributes
 *                     are not carried over
 *     symbolic link   its target is replaced, the link stays; see file-walk.h for whose links are
 *                     followed
 *     anything else   refused
 */
#include "daemon/file-worker.h"

#include "base/fs.h"
#include "base/id.h"
#include "daemon/file-more.h"
#include "daemon/file-text.h"
#include "daemon/file-walk.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Unit of an upload; aligned for O_DIRECT. */
static _Alignas(4096) char piece[1u << 20];

struct upload {
    struct file_spot spot;
    struct stat old; /* st_mode 0: there is no old file */
    int fd;          /* owned */
    char temp[32];   /* name in spot; empty while the file has none */
};

static void upload_done(struct upload *u)
{
    u->fd = fd_close(u->fd);
    if (u->temp[0]) {
        IGNORE_RESULT(unlinkat(u->spot.dir_fd, u->temp, 0)); /* nothing more can be done about it */
    }
    file_spot_done(&u->spot);
}

static void new_temp_name(struct upload *u)
{
    unsigned char random[8];
    char hex[2 * sizeof(random) + 1];

    random_bytes(random, sizeof(random));
    hex_encode(random, sizeof(random), hex);
    snprintf(u->temp, sizeof(u->temp), ".space-%s.tmp", hex);
}

/*
 * May this user write what is there now? Opening it for writing asks the kernel everything at once.
 */
static int check_old(struct file_worker *w, struct upload *u, struct err *e)
{
    cleanup_close int path_fd =
        openat(u->spot.dir_fd, u->spot.name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    cleanup_close int fd = FD_NONE;
    char shown[FILE_TEXT_SHOW_MAX];

    if (path_fd < 0 && errno == ENOENT) {
        u->old.st_mode = 0;
        return 0;
    }
    if (path_fd < 0 || fstat(path_fd, &u->old) < 0) {
        return file_error(e, -errno, w->path);
    }
    if (S_ISDIR(u->old.st_mode)) {
        return file_error(e, -EISDIR, w->path);
    }
    if (!S_ISREG(u->old.st_mode)) {
        return err_set(e, -EINVAL, "not_a_regular_file",
                       "'%s' is not a regular file: it is not overwritten",
                       file_text_show(shown, sizeof(shown), w->path));
    }
    fd = file_worker_reopen(w, path_fd, O_WRONLY | O_NONBLOCK);
    return fd < 0 ? file_error(e, fd, w->path) : 0;
}

static int open_temp(struct file_worker *w, struct upload *u, struct err *e)
{
    if (w->fds_dir >= 0) { /* needed to give it a name later */
        u->fd = openat(u->spot.dir_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    }
    if (u->fd < 0 && (w->fds_dir < 0 || errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT ||
                      errno == EINVAL)) {
        new_temp_name(u);
        u->fd = openat(u->spot.dir_fd, u->temp,
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (u->fd < 0) {
            u->temp[0] = '\0';
        }
    }
    return u->fd < 0 ? file_error(e, -errno, w->path) : 0;
}

/* pipe to file without a copy where the file system can; else through memory. 0 at the end. */
static ssize_t take_chunk(int pipe_fd, int fd)
{
    ssize_t n =
        splice(pipe_fd, /* off_in */ NULL, fd, /* off_out */ NULL, FILE_CHUNK, SPLICE_F_MOVE);
    int r;

    if (n >= 0 || (errno != EINVAL && errno != ENOSYS)) {
        return n < 0 ? -errno : n;
    }
    n = read(pipe_fd, piece, FILE_CHUNK);
    if (n <= 0) {
        return n < 0 ? -errno : 0;
    }
    r = fs_write_all(fd, piece, (size_t)n);
    return r < 0 ? r : n;
}

static int take_rest(int pipe_fd, int fd)
{
    ssize_t n;

    do {
        n = take_chunk(pipe_fd, fd);
    } while (n > 0 || n == -EINTR);
    return (int)n;
}

/*
 * Past the page cache, piece by piece, beginning with the one that is in memory: a guest of 256 MiB
 * does not lose everything it has cached to an upload of 100, its memory stays like the base
 * machine's, and the kernel handles a piece instead of 256 pages.
 */
static int take_direct(int pipe_fd, int fd)
{
    ssize_t n = sizeof(piece);
    int r = 0;

    while (r == 0 && n == (ssize_t)sizeof(piece)) {
        r = fs_write_all(fd, piece, sizeof(piece));
        if (r == -EINVAL && fcntl(fd, F_SETFL, 0) == 0) {
            r = fs_write_all(fd, piece, sizeof(piece)); /* not this way then, whatever it was */
        }
        n = r == 0 ? fs_read_full(pipe_fd, piece, sizeof(piece)) : 0;
    }
    if (r < 0 || n <= 0) {
        return r < 0 ? r : (int)n;
    }
    if (fcntl(fd, F_SETFL, 0) < 0) { /* the end is not a multiple of a block */
        return -errno;
    }
    return fs_write_all(fd, piece, (size_t)n);
}

static int take_all(int pipe_fd, int fd)
{
    ssize_t n = fs_read_full(pipe_fd, piece, sizeof(piece));
    int r;

    if (n == (ssize_t)sizeof(piece) && fcntl(fd, F_SETFL, O_DIRECT) == 0) {
        return take_direct(pipe_fd, fd);
    }
    if (n < 0) {
        return (int)n;
    }
    r = fs_write_all(fd, piece, (size_t)n);
    return r == 0 && n == (ssize_t)sizeof(piece) ? take_rest(pipe_fd, fd) : r;
}

static int receive(struct file_worker *w, int fd, struct err *e)
{
    int r = take_all(w->data, fd);
    char word = 0;
    ssize_t n;

    if (r < 0) {
        return file_error(e, r, w->path);
    }
    do {
        n = recv(w->control, &word, 1, 0);
    } while (n < 0 && errno == EINTR);
    if (n != 1 || word != FILE_COMMIT) {
        return err_set(e, -ECANCELED, NULL, "the upload was cut: nothing was written");
    }
    return 0;
}

/* Owner and mode, then everything to the disk. Owner first: it takes bits away. */
static int settle(const struct file_worker *w, const struct upload *u)
{
    mode_t mode = 0644;

    if (u->old.st_mode != 0) {
        mode = u->old.st_mode & 0777;
        if (fchown(u->fd, u->old.st_uid, u->old.st_gid) < 0) {
            /* Not root: then at least the group, if the user is in it. */
            IGNORE_RESULT(fchown(u->fd, (uid_t)-1, u->old.st_gid));
        }
    }
    if (w->req->mode >= 0) {
        mode = (mode_t)w->req->mode;
    }
    if (w->req->metadata) {
        int r = file_metadata_set(u->fd, w->req->metadata);

        if (r < 0) {
            return r;
        }
    }
    return fchmod(u->fd, mode) < 0 || fsync(u->fd) < 0 ? -errno : 0;
}

/*
 * Names the file, under the target's own name if that is free and otherwise by way of a temporary
 * one.
 */
static int put_in_place(const struct file_worker *w, struct upload *u)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", u->fd);
    if (!u->temp[0] && u->old.st_mode == 0 &&
        linkat(w->fds_dir, number, u->spot.dir_fd, u->spot.name, AT_SYMLINK_FOLLOW) == 0) {
        return 0;
    }
    if (!u->temp[0]) {
        new_temp_name(u);
        if (linkat(w->fds_dir, number, u->spot.dir_fd, u->temp, AT_SYMLINK_FOLLOW) < 0) {
            u->temp[0] = '\0';
            return -errno;
        }
    }
    if (renameat(u->spot.dir_fd, u->temp, u->spot.dir_fd, u->spot.name) < 0) {
        return -errno;
    }
    u->temp[0] = '\0';
    return 0;
}

static int sync_folder(const struct upload *u)
{
    cleanup_close int fd = openat(u->spot.dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) { /* a folder that this user may write but not read */
        return syncfs(u->fd) < 0 ? -errno : 0;
    }
    return fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
}

int file_op_write(struct file_worker *w, struct err *e)
{
    CLEANUP(upload_done) struct upload u = {.spot = FILE_SPOT_INIT, .fd = FD_NONE};
    struct file_place place = {.path = w->path};
    size_t len = strlen(w->req->path);
    int r;

    if (w->req->path[len - 1] == '/') {
        return file_error(e, -EISDIR, w->path);
    }
    r = file_walk(w->path, FILE_WALK_CREATE | FILE_WALK_FOLLOW_LAST, &u.spot, e);
    if (r < 0) {
        return r;
    }
    r = check_old(w, &u, e);
    if (r == 0) {
        r = open_temp(w, &u, e);
    }
    if (r == 0) {
        r = receive(w, u.fd, e);
    }
    if (r == 0) {
        r = settle(w, &u);
        r = r == 0 ? put_in_place(w, &u) : r;
        r = r < 0 ? file_error(e, r, w->path) : 0;
    }
    if (r < 0) {
        if (u.temp[0] && unlinkat(u.spot.dir_fd, u.temp, 0) == 0) {
            u.temp[0] = '\0'; /* now, so that the folder is empty for the undo */
        }
        file_spot_undo(&u.spot);
        return r;
    }
    r = sync_folder(&u);
    if (r < 0) {
        return file_error(e, r, w->path);
    }
    place.dir_fd = u.spot.dir_fd;
    place.at = u.spot.name;
    return file_worker_reply_entry(w, &place, u.old.st_mode == 0, e);
}
