/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-entry.h"

#include "base/fs.h"
#include "daemon/file-more.h"
#include "daemon/file-request.h"
#include "daemon/file-text.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-$@+"

/* ---- names of users and groups ---- */

/*
 * name:password:id:... ; false at the end of the text. Lines that are not of this form come out
 * with a NULL name.
 */
static bool next_line(const char **text, const char **ret_name, size_t *ret_len, uint32_t *ret_id)
{
    const char *line = *text;
    size_t len = strcspn(line, "\n");
    const char *colon = memchr(line, ':', len);
    const char *second = colon ? memchr(colon + 1, ':', (size_t)(line + len - colon - 1)) : NULL;
    char digits[11] = "";
    uint64_t id;
    size_t n;

    if (!*line) {
        return false;
    }
    *ret_name = NULL;
    *text = line + len + (line[len] == '\n');
    if (!second) {
        return true;
    }
    n = strspn(second + 1, "0123456789");
    if (n == 0 || n >= sizeof(digits) ||
        (second[1 + n] != ':' && second[1 + n] != '\n' && second[1 + n])) {
        return true;
    }
    memcpy(digits, second + 1, n);
    if (str_to_u64(digits, UINT32_MAX - 1, &id) < 0) {
        return true;
    }
    *ret_len = (size_t)(colon - line);
    if (*ret_len > 0 && strspn(line, NAME_CHARS) == *ret_len) {
        *ret_name = line;
        *ret_id = (uint32_t)id;
    }
    return true;
}

int file_names_find_id(const char *text, const char *name, uint32_t *ret)
{
    const char *found;
    size_t len;
    uint32_t id;

    while (next_line(&text, &found, &len, &id)) {
        if (found && len == strlen(name) && memcmp(found, name, len) == 0) {
            *ret = id;
            return 0;
        }
    }
    return -ENOENT;
}

int file_names_find_name(const char *text, uint32_t wanted, char *ret, size_t size)
{
    const char *found;
    size_t len;
    uint32_t id;

    while (next_line(&text, &found, &len, &id)) {
        if (found && id == wanted && len < size) {
            memcpy(ret, found, len);
            ret[len] = '\0';
            return 0;
        }
    }
    return -ENOENT;
}

/*
 * A regular file or nothing; whatever else stands there (a FIFO, a link to one) does not hold us
 * up.
 */
static char *read_names(const char *path)
{
    cleanup_buf struct buf b = BUF_INIT(FILE_NAMES_MAX);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || fs_read_fd(fd, &b) < 0) {
        return xstrdup("");
    }
    return buf_take(&b);
}

static void load(struct file_names *names)
{
    if (!names->users) {
        names->users = read_names("/etc/passwd");
        names->groups = read_names("/etc/group");
    }
}

void file_names_done(struct file_names *names)
{
    free(names->users);
    free(names->groups);
    *names = (struct file_names){0};
}

const char *file_names_user(struct file_names *names, uid_t uid)
{
    load(names);
    if (!names->user[0] || names->last_uid != uid) {
        names->last_uid = uid;
        if (file_names_find_name(names->users, uid, names->user, sizeof(names->user)) < 0) {
            snprintf(names->user, sizeof(names->user), "%u", uid);
        }
    }
    return names->user;
}

const char *file_names_group(struct file_names *names, gid_t gid)
{
    load(names);
    if (!names->group[0] || names->last_gid != gid) {
        names->last_gid = gid;
        if (file_names_find_name(names->groups, gid, names->group, sizeof(names->group)) < 0) {
            snprintf(names->group, sizeof(names->group), "%u", gid);
        }
    }
    return names->group;
}

static int find_id(const char *text, const char *name, uint32_t *ret)
{
    uint64_t id;

    if (str_to_u64(name, UINT32_MAX - 1, &id) == 0) {
        *ret = (uint32_t)id;
        return 0;
    }
    return file_names_find_id(text, name, ret);
}

int file_names_uid(struct file_names *names, const char *name, uid_t *ret)
{
    load(names);
    return find_id(names->users, name, ret);
}

int file_names_gid(struct file_names *names, const char *name, gid_t *ret)
{
    load(names);
    return find_id(names->groups, name, ret);
}

/* ---- entries ---- */

const char *file_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

const char *file_type_word(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "dir";
    case S_IFLNK:
        return "symlink";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    case S_IFCHR:
        return "char";
    default:
        return "block";
    }
}

int64_t file_mtime_ms(const struct stat *st)
{
    int64_t seconds = st->st_mtim.tv_sec;

    /* A planted time stamp may be anything. */
    if (seconds > INT64_MAX / 1000 - 1 || seconds < INT64_MIN / 1000 + 1) {
        return 0;
    }
    return seconds * 1000 + st->st_mtim.tv_nsec / 1000000;
}

static int add_target(struct buf *b, const struct file_place *place)
{
    char target[FILE_PATH_MAX + 1];
    ssize_t n = readlinkat(place->dir_fd, place->at, target, sizeof(target) - 1);
    int r;

    if (n < 0 && (errno == EINVAL || errno == ENOENT)) {
        return -ENOENT; /* replaced since it was looked at */
    }
    if (n < 0) {
        return 0; /* links of procfs that are not for this user */
    }
    target[n] = '\0';
    r = buf_add(b, ",", 1);
    return r < 0 ? r : file_text_member(b, "target", target);
}

int file_entry_add(struct buf *b, const struct file_place *place, const struct stat *st,
                   struct file_names *names)
{
    size_t before = b->len;
    int r = buf_add(b, "{", 1);

    if (r == 0) {
        r = file_text_member(b, "name", file_base_name(place->path));
    }
    if (r == 0) {
        r = buf_add(b, ",", 1);
    }
    if (r == 0) {
        r = file_text_member(b, "path", place->path);
    }
    if (r == 0) {
        r = buf_printf(b, ",\"type\":\"%s\",\"size\":%lld,\"mode\":\"%04o\",\"uid\":%u,\"gid\":%u",
                       file_type_word(st->st_mode), (long long)st->st_size, st->st_mode & 07777,
                       st->st_uid, st->st_gid);
    }
    if (r == 0) {
        r = buf_printf(b, ",\"owner\":\"%s\",\"group\":\"%s\",\"mtime_ms\":%lld",
                       file_names_user(names, st->st_uid), file_names_group(names, st->st_gid),
                       (long long)file_mtime_ms(st));
    }
    if (r == 0 && S_ISLNK(st->st_mode)) {
        r = add_target(b, place);
    }
    if (r == 0 && place->more) {
        r = file_more_add(b, place, st);
    }
    if (r == 0) {
        r = buf_add(b, "}", 1);
    }
    if (r < 0) {
        b->len = before;
    }
    return r;
}
