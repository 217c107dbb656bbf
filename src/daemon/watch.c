/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching a directory, if asked with all below it. Runs in a worker until the daemon closes the
 * socket; a stream of lines:
 *
 *     {"type":"ready"}                                   from here on nothing is missed
 *     {"type":"create|write|chmod|remove","path","name"} path absolute, name below what is watched
 *     {"type":"rename","path","name","to","to_name"}     within what is watched; in from outside is
 *                                                        a create, out of it a remove
 *     {"type":"overflow"}                                events were lost: look again for yourself
 *
 * A new directory is watched first and read afterwards, and what is found in it is told as created:
 * so nothing that was put there in between is lost. Names told in this way are remembered until the
 * events of that moment have passed, so that they are not told twice.
 *
 * Bounds: WATCH_DIRS_MAX directories; beyond that, and when the kernel's queue or its number of
 * watches is used up, "overflow" is told. A client that does not read fills the pipe, then the
 * kernel's queue, and is told "overflow" too.
 *
 * Directories are opened beneath the watched one without following links, and watched by
 * descriptor: the working directory is /proc/self/fd of the daemon's proc, so that "17" is that
 * descriptor.
 */
#include "daemon/file-worker.h"

#include "base/fs.h"
#include "daemon/file-text.h"
#include "daemon/file-walk.h"
#include "daemon/watch-tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define WATCH_DIRS_MAX 8192u
#define WATCH_MASK \
    (IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | \
     IN_DELETE_SELF | IN_MOVE_SELF | IN_EXCL_UNLINK)
/*
 * How long the second half of a rename may be late. Both are made by one system call, in the middle of which a busy
 * emulated guest may well be made to wait.
 */
#define PAIR_MS 100
#define PAIRS_MAX 16
#define LINE_MAX_BYTES (128u * 1024)
#define FLUSH_BYTES (64u * 1024)

/* The first half of a rename. */
struct half {
    uint32_t cookie;
    char *name; /* owned: below the watched directory; NULL: free */
    int wd;     /* of the directory that moved, -1 */
};

struct watch {
    struct file_worker *w; /* borrowed */
    int inotify_fd;        /* owned */
    dev_t root_dev;        /* no descriptor of the root is kept: that would keep it from being */
    ino_t root_ino;        /* deleted, and its end from being told */
    struct watch_tree tree;
    struct buf out; /* lines */
    struct half halves[PAIRS_MAX];
    char *last_write; /* owned: the name told as written last, to tell a row of writes once */
    uint64_t n_read;  /* bytes of events read so far */
    int *todo;        /* owned: watches of directories still to be read */
    size_t n_todo;
    bool ready;
    bool crowded; /* told that there are too many directories */
    bool over;
};

static void watch_done(struct watch *s)
{
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        free(s->halves[i].name);
    }
    watch_tree_done(&s->tree);
    buf_done(&s->out);
    free(s->last_write);
    free(s->todo);
    s->inotify_fd = fd_close(s->inotify_fd);
}

/* ---- telling ---- */

static int flush(struct watch *s)
{
    int r = s->ready ? file_send_body(s->w->control, s->out.data, s->out.len) : 0;

    if (s->ready) {
        buf_reset(&s->out);
    }
    return r;
}

static int add_path(struct watch *s, const char *key, const char *name_key, const char *name)
{
    const char *base = str_eq(s->w->path, "/") ? "" : s->w->path;
    cleanup_free char *path = *name ? xasprintf("%s/%s", base, name) : xstrdup(s->w->path);
    int r = buf_add(&s->out, ",", 1);

    if (r == 0) {
        r = file_text_member(&s->out, key, path);
    }
    if (r == 0) {
        r = buf_add(&s->out, ",", 1);
    }
    return r < 0 ? r : file_text_member(&s->out, name_key, name);
}

/* One line. name and to may be NULL. */
static int tell(struct watch *s, const char *type, const char *name, const char *to)
{
    int r = s->out.len > FLUSH_BYTES ? flush(s) : 0;

    free(TAKE_PTR(s->last_write));
    if (r == 0) {
        r = buf_printf(&s->out, "{\"type\":\"%s\"", type);
    }
    if (r == 0 && name) {
        r = add_path(s, "path", "name", name);
    }
    if (r == 0 && to) {
        r = add_path(s, "to", "to_name", to);
    }
    return r < 0 ? r : buf_add_str(&s->out, "}\n");
}

static int tell_write(struct watch *s, const char *name)
{
    int r;

    if (s->last_write && str_eq(s->last_write, name)) {
        return 0;
    }
    r = tell(s, "write", name, /* to */ NULL);
    s->last_write = xstrdup(name);
    return r;
}

/* The hidden names of uploads on their way, see file-write.c. */
static bool is_upload(const char *name)
{
    const char *base = file_base_name(name);

    return str_starts(base, ".space-") && strlen(base) == strlen(".space-0123456789abcdef.tmp") &&
           strspn(base + 7, "0123456789abcdef") == 16 && str_eq(base + 23, ".tmp");
}

/* ---- which directories are watched ---- */

static int crowded(struct watch *s)
{
    if (!s->ready) {
        return -EUSERS;
    }
    if (s->crowded) {
        return 0;
    }
    s->crowded = true;
    return tell(s, "overflow", /* name */ NULL, /* to */ NULL);
}

/* Watches what fd is. Negative errno; -ENOSPC when the user has no more watches. */
static int watch_fd(struct watch *s, int fd)
{
    char number[16];
    int wd;

    snprintf(number, sizeof(number), "%d", fd); /* in the working directory */
    wd = inotify_add_watch(s->inotify_fd, number, WATCH_MASK);
    return wd < 0 ? -errno : wd;
}

/* The watched directory, if its path still leads to it. O_PATH. */
static int open_root(const struct watch *s)
{
    int fd = open(s->w->path, O_PATH | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_dev != s->root_dev || st.st_ino != s->root_ino)) {
        fd_close(fd);
        return -ENOENT;
    }
    return fd < 0 ? -errno : fd;
}

static void forget_wd(void *arg, int wd)
{
    struct watch *s = arg;

    inotify_rm_watch(s->inotify_fd, wd); /* gone already when the directory is */
}

static void want_read(struct watch *s, int wd)
{
    if ((s->n_todo & (s->n_todo + 1)) == 0) {
        s->todo = xrealloc(s->todo, (2 * s->n_todo + 2) * sizeof(*s->todo));
    }
    s->todo[s->n_todo++] = wd;
}

/*
 * name in parent is a directory, or was a moment ago. Already watched: it is put where it is now.
 * again: read it even so.
 */
static int add_dir(struct watch *s, struct watch_node *parent, const char *name, bool again)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX - 1);
    cleanup_close int root_fd = open_root(s);
    cleanup_close int fd = FD_NONE;
    struct watch_node *node;
    int wd;

    if (watch_path(parent, name, &path) < 0) {
        return crowded(s);
    }
    if (root_fd >= 0) {
        fd = fs_open_beneath(root_fd, buf_str(&path), O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
    }
    if (fd < 0) {
        return 0; /* gone, replaced, or not for this user: then there are no events to miss */
    }
    if (s->tree.n >= WATCH_DIRS_MAX) {
        return crowded(s);
    }
    wd = watch_fd(s, fd);
    if (wd < 0) {
        return wd == -ENOSPC || wd == -ENOMEM ? crowded(s) : 0;
    }
    node = watch_find(&s->tree, wd);
    if (node) {
        IGNORE_RESULT(watch_move(node, parent, name)); /* false: a bind mount of its own parent */
        if (again) {
            want_read(s, wd);
        }
        return 0;
    }
    watch_add(&s->tree, parent, name, wd);
    want_read(s, wd);
    return 0;
}

static bool entry_is_dir(int dir_fd, const struct dirent *entry)
{
    struct stat st;

    if (entry->d_type != DT_UNKNOWN) {
        return entry->d_type == DT_DIR;
    }
    return fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static DIR *open_node(const struct watch *s, const struct watch_node *node)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX - 1);
    cleanup_close int root_fd = open_root(s);
    int fd;

    if (root_fd < 0 || watch_path(node, /* name */ NULL, &path) < 0) {
        return NULL;
    }
    fd = path.len > 0 ? fs_open_beneath(root_fd, path.data, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0)
                      : file_worker_reopen(s->w, root_fd, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    return fd < 0 ? NULL : fdopendir(fd);
}

/*
 * announce: what is in it is told as created. again: directories that are known are read again too.
 */
static int read_dir(struct watch *s, struct watch_node *node, bool announce, bool again)
{
    DIR *dir = open_node(s, node);
    struct dirent *entry;
    int queued = 0;
    int r = 0;

    if (!dir) {
        return 0; /* gone, or not for this user */
    }
    while (r == 0 && (entry = readdir(dir))) {
        if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, "..") || is_upload(entry->d_name)) {
            continue;
        }
        if (announce) {
            cleanup_buf struct buf name = BUF_INIT(PATH_MAX - 1);

            if (watch_path(node, entry->d_name, &name) == 0) {
                r = tell(s, "create", buf_str(&name), /* to */ NULL);
                watch_seen_add(node, entry->d_name);
            }
        }
        if (r == 0 && s->w->req->recursive && entry_is_dir(dirfd(dir), entry)) {
            r = add_dir(s, node, entry->d_name, again);
        }
    }
    closedir(dir);
    if (ioctl(s->inotify_fd, FIONREAD, &queued) < 0) {
        queued = 0;
    }
    node->seen_until = s->n_read + (uint64_t)queued;
    return r;
}

static int read_todo(struct watch *s, bool announce, bool again)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < s->n_todo; i++) { /* grows meanwhile */
        struct watch_node *node = watch_find(&s->tree, s->todo[i]);

        if (node) {
            r = read_dir(s, node, announce, again);
        }
    }
    free(TAKE_PTR(s->todo));
    s->n_todo = 0;
    return r;
}

static int new_dir(struct watch *s, struct watch_node *parent, const char *name)
{
    int r = add_dir(s, parent, name, /* again */ false);

    return r < 0 ? r : read_todo(s, /* announce */ true, /* again */ false);
}

/* ---- renames ---- */

static int half_out(struct watch *s, struct half *h)
{
    struct watch_node *node = h->wd >= 0 ? watch_find(&s->tree, h->wd) : NULL;
    int r = is_upload(h->name) ? 0 : tell(s, "remove", h->name, /* to */ NULL);

    if (node && node != s->tree.root) {
        watch_remove(&s->tree, node, forget_wd, s);
    }
    free(TAKE_PTR(h->name));
    return r;
}

static int halves_flush(struct watch *s)
{
    int r = 0;

    for (size_t i = 0; i < PAIRS_MAX && r == 0; i++) {
        r = s->halves[i].name ? half_out(s, &s->halves[i]) : 0;
    }
    return r;
}

static bool halves_wait(const struct watch *s)
{
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        if (s->halves[i].name) {
            return true;
        }
    }
    return false;
}

static struct half *half_find(struct watch *s, uint32_t cookie)
{
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        if (s->halves[i].name && s->halves[i].cookie == cookie) {
            return &s->halves[i];
        }
    }
    return NULL;
}

static int moved_from(struct watch *s, struct watch_node *node, const struct inotify_event *ev,
                      const char *path)
{
    struct watch_node *child = ev->mask & IN_ISDIR ? watch_child(node, ev->name) : NULL;
    struct half *h = NULL;
    int r = 0;

    for (size_t i = 0; i < PAIRS_MAX && !h; i++) {
        h = s->halves[i].name ? NULL : &s->halves[i];
    }
    if (!h) {
        h = &s->halves[0];
        r = half_out(s, h);
    }
    h->cookie = ev->cookie;
    h->name = xstrdup(path);
    h->wd = child ? child->wd : -1;
    return r;
}

static int moved_to(struct watch *s, struct watch_node *node, const struct inotify_event *ev,
                    const char *path)
{
    struct half *h = half_find(s, ev->cookie);
    cleanup_free char *from = h ? TAKE_PTR(h->name) : NULL;
    struct watch_node *moved = h && h->wd >= 0 ? watch_find(&s->tree, h->wd) : NULL;
    int r;

    if (from && is_upload(from)) {
        return tell_write(s, path); /* a new content took its place */
    }
    r = from ? tell(s, "rename", from, path) : tell(s, "create", path, /* to */ NULL);
    if (r < 0 || !(ev->mask & IN_ISDIR) || !s->w->req->recursive) {
        return r;
    }
    if (moved) {
        IGNORE_RESULT(watch_move(moved, node,
                                 ev->name)); /* the kernel does not move a directory below itself */
        return 0;
    }
    return new_dir(s, node, ev->name);
}

/* ---- events ---- */

/* What was lost may be directories: read the whole tree again. */
static int overflow(struct watch *s)
{
    int r = tell(s, "overflow", /* name */ NULL, /* to */ NULL);

    if (r == 0) {
        r = halves_flush(s);
    }
    if (r == 0 && s->tree.root && s->w->req->recursive) {
        want_read(s, s->tree.root->wd);
        r = read_todo(s, /* announce */ false, /* again */ true);
    }
    return r;
}

static int on_self(struct watch *s, struct watch_node *node, const struct inotify_event *ev)
{
    if (node == s->tree.root &&
        ev->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)) {
        s->over = true;
        return tell(s, "remove", "", /* to */ NULL);
    }
    if (ev->mask & IN_IGNORED) { /* the directory is gone */
        watch_remove(&s->tree, node, forget_wd, s);
        return 0;
    }
    if (node == s->tree.root && ev->mask & IN_ATTRIB) {
        return tell(s, "chmod", "", /* to */ NULL);
    }
    /* A watched file, or a directory whose parent tells the same. */
    return node == s->tree.root && ev->mask & IN_MODIFY ? tell_write(s, "") : 0;
}

static int on_created(struct watch *s, struct watch_node *node, const struct inotify_event *ev,
                      const char *path)
{
    int r = is_upload(path) ? 0 : tell(s, "create", path, /* to */ NULL);

    if (r == 0 && ev->mask & IN_ISDIR && s->w->req->recursive) {
        r = new_dir(s, node, ev->name);
    }
    return r;
}

/*
 * A directory that this user could not read until now (made by root, then given away) is new to us.
 */
static int on_attrib(struct watch *s, struct watch_node *node, const struct inotify_event *ev,
                     const char *path)
{
    int r = is_upload(path) ? 0 : tell(s, "chmod", path, /* to */ NULL);

    if (r == 0 && ev->mask & IN_ISDIR && s->w->req->recursive && !watch_child(node, ev->name)) {
        r = new_dir(s, node, ev->name);
    }
    return r;
}

static int on_event(struct watch *s, const struct inotify_event *ev, uint64_t position)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX - 1);
    struct watch_node *node = watch_find(&s->tree, ev->wd);

    if (ev->mask & IN_Q_OVERFLOW) {
        return overflow(s);
    }
    if (!node) {
        return 0;
    }
    if (ev->len == 0) {
        return on_self(s, node, ev);
    }
    if (watch_path(node, ev->name, &path) < 0) {
        return 0; /* too deep for a path */
    }
    if (ev->mask & (IN_CREATE | IN_MOVED_TO) && watch_seen_take(node, ev->name, position)) {
        return 0;
    }
    switch (ev->mask &
            (IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO)) {
    case IN_CREATE:
        return on_created(s, node, ev, path.data);
    case IN_MOVED_TO:
        return moved_to(s, node, ev, path.data);
    case IN_MOVED_FROM:
        watch_seen_drop(node, ev->name);
        return moved_from(s, node, ev, path.data);
    case IN_DELETE:
        watch_seen_drop(node, ev->name);
        return is_upload(path.data) ? 0 : tell(s, "remove", path.data, /* to */ NULL);
    case IN_MODIFY:
        return is_upload(path.data) ? 0 : tell_write(s, path.data);
    case IN_ATTRIB:
        return on_attrib(s, node, ev, path.data);
    default:
        return 0;
    }
}

static int read_events(struct watch *s)
{
    _Alignas(struct inotify_event) char data[16384];
    ssize_t n = read(s->inotify_fd, data, sizeof(data));
    uint64_t position = s->n_read;
    int r = 0;

    if (n < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    }
    s->n_read += (uint64_t)n;
    for (ssize_t at = 0; r == 0 && at < n && !s->over;) {
        const struct inotify_event *ev = (const void *)(data + at);

        r = on_event(s, ev, position + (uint64_t)at);
        at += (ssize_t)(sizeof(*ev) + ev->len);
    }
    free(TAKE_PTR(s->last_write));
    return r;
}

static int follow(struct watch *s)
{
    struct pollfd fds[] = {
        {.fd = s->inotify_fd, .events = POLLIN},
        {.fd = s->w->control, .events = POLLIN}, /* readable only when the daemon has closed it */
    };
    int r = 0;

    while (r == 0 && !s->over) {
        int n = poll(fds, ARRAY_SIZE(fds), halves_wait(s) ? PAIR_MS : -1);

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n > 0 && fds[1].revents) {
            return -EPIPE;
        }
        r = n > 0 ? read_events(s) : halves_flush(s);
        if (r == 0) {
            r = flush(s);
        }
    }
    return r;
}

static int start(struct watch *s, struct err *e)
{
    struct file_head head = {.flags = FILE_HEAD_STREAM};
    struct file_worker *w = s->w;
    cleanup_close int root_fd = open(w->path, O_PATH | O_CLOEXEC);
    struct stat st;
    int wd;
    int r;

    if (root_fd < 0 || fstat(root_fd, &st) < 0) {
        return file_error(e, -errno, w->path);
    }
    s->root_dev = st.st_dev;
    s->root_ino = st.st_ino;
    s->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (s->inotify_fd < 0 || fchdir(w->fds_dir) < 0) {
        return err_wrap(e, errno == EMFILE ? -EUSERS : -errno, "starting to watch");
    }
    wd = watch_fd(s, root_fd);
    if (wd < 0) {
        return wd == -ENOSPC
                   ? err_set(e, -EUSERS, "too_many_watches", "this user has no more watches")
                   : file_error(e, wd, w->path);
    }
    watch_add(&s->tree, /* parent */ NULL, "", wd);
    if (S_ISDIR(st.st_mode) && w->req->recursive) {
        want_read(s, wd);
        r = read_todo(s, /* announce */ false, /* again */ false);
        if (r < 0) {
            return err_set(e, r, "too_many_directories",
                           "there are more directories below than can be watched (%u)",
                           WATCH_DIRS_MAX);
        }
    }
    r = file_send_head(w->control, &head);
    if (r == 0) {
        s->ready = true;
        r = tell(s, "ready", /* name */ NULL, /* to */ NULL);
    }
    return r < 0 ? err_wrap(e, r, "answering") : flush(s);
}

int file_op_watch(struct file_worker *w, struct err *e)
{
    CLEANUP(watch_done)
    struct watch s = {.w = w, .inotify_fd = FD_NONE, .out = BUF_INIT(FLUSH_BYTES + LINE_MAX_BYTES)};
    int r = start(&s, e);

    if (r == 0) {
        r = follow(&s);
        IGNORE_RESULT(flush(&s)); /* the last line; when it cannot be told, nobody listens */
    }
    return r < 0 && e->code == 0 ? err_wrap(e, r, "watching") : r;
}
