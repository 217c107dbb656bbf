/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-more.h"

#include "base/json.h"
#include "daemon/file-text.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PREFIX "user.e2b."
#define NAME_SIZE (sizeof(PREFIX) + FILE_METADATA_KEY_MAX)
/* The names of all attributes of a file, also of others' making: XATTR_LIST_MAX. */
#define NAMES_MAX 65536

static bool is_printable(const char *s)
{
    for (; *s; s++) {
        if (*s < 0x20 || *s > 0x7e) {
            return false;
        }
    }
    return true;
}

int file_metadata_check(const char *text, struct err *e)
{
    cleanup_json json_t *map = NULL;
    size_t total = 0;
    const char *key;
    json_t *value;

    if (json_parse_untrusted(text, strlen(text), &map, NULL) < 0) {
        return err_field(e, -EINVAL, "invalid_field", "metadata",
                         "'metadata' must be a JSON object of strings");
    }
    json_object_foreach(map, key, value)
    {
        const char *s = json_string_value(value);

        if (!s || strlen(s) != json_string_length(value) || !is_printable(s) ||
            !is_printable(key)) {
            return err_field(e, -EINVAL, "invalid_field", "metadata",
                             "keys and values of 'metadata' must be of printable ASCII");
        }
        if (!*key || strlen(key) > FILE_METADATA_KEY_MAX) {
            return err_field(e, -EINVAL, "invalid_field", "metadata",
                             "a key of 'metadata' may have 1 to %u bytes", FILE_METADATA_KEY_MAX);
        }
        total += strlen(key) + strlen(s);
    }
    return total <= FILE_METADATA_MAX
               ? 0
               : err_field(e, -EINVAL, "invalid_field", "metadata",
                           "'metadata' may have %u bytes in all", FILE_METADATA_MAX);
}

int file_metadata_set(int fd, const char *text)
{
    cleanup_json json_t *map = json_loads(text, 0, NULL);
    const char *key;
    json_t *value;

    json_object_foreach(map, key, value)
    {
        char name[NAME_SIZE];
        int n = snprintf(name, sizeof(name), PREFIX "%s", key);

        ASSERT(n > 0 && (size_t)n < sizeof(name)); /* the key was checked */
        if (fsetxattr(fd, name, json_string_value(value), json_string_length(value), 0) < 0) {
            return -errno;
        }
    }
    return 0;
}

/* --- metadata --- */

static int add_pair(struct buf *b, int fd, const char *name, bool first)
{
    char value[FILE_METADATA_MAX + 1];
    ssize_t n = fgetxattr(fd, name, value, sizeof(value) - 1);
    int r;

    if (n < 0) {
        return 0; /* gone, or larger than ours are */
    }
    value[n] = '\0';
    r = buf_add_str(b, first ? ",\"metadata\":{" : ",");
    if (r == 0) {
        r = file_text_json(b, name + strlen(PREFIX));
    }
    if (r == 0) {
        r = buf_add_str(b, ":");
    }
    if (r == 0) {
        r = file_text_json(b, value);
    }
    return r < 0 ? r : 1;
}

static int add_metadata(struct buf *b, const struct file_place *place)
{
    cleanup_close int fd =
        openat(place->dir_fd, place->at, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    cleanup_free char *names = NULL;
    bool first = true;
    ssize_t n;
    int r = 0;

    if (fd < 0 || (n = flistxattr(fd, NULL, 0)) <= 0) {
        return 0;
    }
    names = xmalloc(NAMES_MAX);
    n = flistxattr(fd, names, NAMES_MAX);
    for (ssize_t at = 0; at < n && r >= 0; at += (ssize_t)strlen(names + at) + 1) {
        if (str_starts(names + at, PREFIX)) {
            r = add_pair(b, fd, names + at, first);
            first = first && r != 1;
        }
    }
    return r < 0 || first ? MIN(r, 0) : buf_add_str(b, "}");
}

/* --- links --- */

/* The worker's root is the sandbox's, so that the whole path means the same to us. */
static int add_resolved(struct buf *b, const struct file_place *place)
{
    cleanup_free char *path = realpath(place->path, NULL);
    struct stat st;
    int r;

    if (!path || stat(path, &st) < 0) {
        return 0;
    }
    r = buf_add_str(b, ",\"resolved\":{");
    if (r == 0) {
        r = file_text_member(b, "path", path);
    }
    return r < 0 ? r
                 : buf_printf(b, ",\"type\":\"%s\",\"mode\":\"%04o\"}", file_type_word(st.st_mode),
                              st.st_mode & 07777);
}

int file_more_add(struct buf *b, const struct file_place *place, const struct stat *st)
{
    if (S_ISLNK(st->st_mode)) {
        return add_resolved(b, place);
    }
    return S_ISREG(st->st_mode) ? add_metadata(b, place) : 0;
}
