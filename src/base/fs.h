/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and folders. All descriptors are close-on-exec; all functions return negative errno. "Beneath"
 * means openat2(2) with RESOLVE_BENEATH and no symbolic links: the name cannot leave the folder.
 */
#pragma once

#include "base/buf.h"

#include <sys/types.h>

MUST_CHECK int fs_open(const char *path, int flags, mode_t mode);
/* -ENOENT, -ELOOP (a symbolic link on the way) and -EXDEV (leads outside) are meant for the caller. */
MUST_CHECK int fs_open_beneath(int dir_fd, const char *name, int flags, mode_t mode);
/* Everything or an error. */
MUST_CHECK int fs_write_all(int fd, const void *data, size_t len);
/* Reads up to len, fewer only at the end of the file; returns the count. */
MUST_CHECK ssize_t fs_read_full(int fd, void *ret, size_t len);
/* The whole file into b; -E2BIG when it is larger than b's maximum. */
MUST_CHECK int fs_read_fd(int fd, struct buf *b);
MUST_CHECK int fs_read_file(int dir_fd, const char *name, struct buf *b);
/*
 * Replaces name by data so that after a crash either the old or the new content is there: temporary
 * file in the same folder, fsync, rename, fsync of the folder.
 */
MUST_CHECK int fs_write_file_durable(int dir_fd, const char *name, const void *data, size_t len,
                                     mode_t mode);
/*
 * The same without waiting for the file system: a later commit of all of it (on btrfs: making a snapshot) brings the
 * whole file to the disk, too.
 */
MUST_CHECK int fs_write_file_ordered(int dir_fd, const char *name, const void *data, size_t len,
                                     mode_t mode);
/* Makes path and its parents; 0 when it is there already. */
MUST_CHECK int fs_mkdir_all(const char *path, mode_t mode);
/* Makes and opens a folder beneath dir_fd; fine when it exists. */
MUST_CHECK int fs_mkdir_open(int dir_fd, const char *name, mode_t mode);
/* Removes what name is, with everything beneath; never follows links; 0 when it was not there. */
MUST_CHECK int fs_remove_tree(int dir_fd, const char *name);
MUST_CHECK int fs_sync_dir(int dir_fd);
/* Sets O_NONBLOCK. */
MUST_CHECK int fd_set_nonblock(int fd, bool on);
/* A duplicate that is close-on-exec. */
MUST_CHECK int fd_dup(int fd);
