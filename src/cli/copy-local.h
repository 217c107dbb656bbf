/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating files below one folder here, from names that a sandbox gave.
 *
 * The folder is the descriptor; everything else is a relative path of the sandbox's making. The parent of each
 * entry is opened with openat2(2), RESOLVE_BENEATH and no symbolic links, then the entry is made by its last
 * component alone: nothing outside can be reached, whatever the names are and whatever links exist here or
 * appear meanwhile. Links that are in the place of an entry are replaced, never followed. Files are written
 * under a temporary name and renamed.
 */
#pragma once

#include "base/err.h"

/* A path below the folder: no empty component, none of "." and "..". */
bool copy_local_path_valid(const char *path);
/* A folder; 0 also when there is one. *ret_created may be NULL. */
MUST_CHECK int copy_local_mkdir(int root_fd, const char *path, unsigned mode, bool *ret_created);
/* A link, replacing a file or link. */
MUST_CHECK int copy_local_symlink(int root_fd, const char *path, const char *target);
MUST_CHECK int copy_local_chmod_dir(int root_fd, const char *path, unsigned mode);

struct copy_file {
    int dir_fd; /* owned */
    int fd;     /* owned */
    char temp[32];
    char *name; /* owned */
    uint64_t size;
};
#define COPY_FILE_INIT \
    { \
        .dir_fd = FD_NONE, .fd = FD_NONE \
    }

MUST_CHECK int copy_file_begin(int root_fd, const char *path, struct copy_file *ret);
/* Long runs of zeros become holes. */
MUST_CHECK int copy_file_write(struct copy_file *f, const void *data, size_t len);
/* Gives it its mode and its name. */
MUST_CHECK int copy_file_commit(struct copy_file *f, unsigned mode);
/* Removes what was not committed; safe in any state. */
void copy_file_done(struct copy_file *f);
