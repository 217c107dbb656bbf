/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file is, as the JSON entry of the API:
 *
 *     {"name","path","type","size","mode":"0644","uid","gid","owner","group","mtime_ms","target"?}
 *
 * with name_base64, path_base64 and target_base64 where those are not UTF-8. owner and group are
 * names from the sandbox's own /etc/passwd and /etc/group, or the number in decimal.
 */
#pragma once

#include "base/buf.h"
#include "base/util.h"

#include <sys/stat.h>

/* /etc/passwd and /etc/group, read once per worker, at most FILE_NAMES_MAX bytes each. */
#define FILE_NAMES_MAX (1u << 20)

struct file_names {
    char *users;    /* owned: text of /etc/passwd; NULL: not read yet */
    char *groups;   /* owned: text of /etc/group */
    uid_t last_uid; /* the answer given last, for listings where all is one user's */
    gid_t last_gid;
    char user[64];
    char group[64];
};

void file_names_done(struct file_names *names);
/*
 * Borrowed until the next call. Names with characters that have no place in a name count as absent.
 */
const char *file_names_user(struct file_names *names, uid_t uid);
const char *file_names_group(struct file_names *names, gid_t gid);
/* The inverse; a decimal number needs no entry. -ENOENT. */
MUST_CHECK int file_names_uid(struct file_names *names, const char *name, uid_t *ret);
MUST_CHECK int file_names_gid(struct file_names *names, const char *name, gid_t *ret);
/*
 * Pure: the id field of the line for name, the name of the line with that id; in passwd(5) or
 * group(5) text.
 */
MUST_CHECK int file_names_find_id(const char *text, const char *name, uint32_t *ret);
MUST_CHECK int file_names_find_name(const char *text, uint32_t id, char *ret, size_t size);

/*
 * Where an entry is, and its path as the client sees it (without trailing slashes); its name is the
 * path's end.
 */
struct file_place {
    int dir_fd;       /* borrowed: AT_FDCWD for an absolute `at` */
    const char *at;   /* borrowed: what to look up in dir_fd */
    const char *path; /* borrowed */
    bool more;        /* with what file-more.h adds */
};

/* The last component of a path, "/" for the root. Points into path. */
const char *file_base_name(const char *path);

/*
 * Adds the JSON object. st is of the entry itself (never followed). -E2BIG; -ENOENT: a link that is
 * gone.
 */
MUST_CHECK int file_entry_add(struct buf *b, const struct file_place *place, const struct stat *st,
                              struct file_names *names);
/* "file", "dir", ... */
const char *file_type_word(mode_t mode);
int64_t file_mtime_ms(const struct stat *st);
