/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a path to the folder that holds its last component, for operations that change something.
 * Runs in a worker: inside the sandbox's root, with the rights of the user the client named.
 *
 * The kernel alone would follow every symbolic link. That is harmless for reading, but a client
 * that writes as root into a folder where a lesser user may plant links would change whatever file
 * that user chose. So the walk goes one component at a time, each opened without following, and
 * obeys one rule:
 *
 *     a symbolic link is followed only when root or the acting user owns it,
 *     else -EACCES "untrusted_link".
 *
 * What comes out is a descriptor and a name, so nothing that is renamed or swapped afterwards can
 * move the operation elsewhere. ".." goes to the real parent; the root is its own parent.
 */
#pragma once

#include "base/err.h"
#include "base/util.h"

#include <sys/types.h>

#define FILE_WALK_CREATE (1u << 0)      /* make missing folders on the way, 0755 */
#define FILE_WALK_FOLLOW_LAST (1u << 1) /* if the last component is a link, go where it points */
#define FILE_WALK_LINKS_MAX 40

struct file_spot {
    int dir_fd; /* owned: O_PATH, the folder */
    char *name; /* owned: one component; "." when the path is the root itself */
    /* Folders made on the way, innermost last, for file_spot_undo. */
    char **made; /* owned */
    size_t n_made;
};

#define FILE_SPOT_INIT ((struct file_spot){.dir_fd = FD_NONE})

/*
 * path must be absolute. A last component "..", and the root with WALK_FOLLOW_LAST, are -EINVAL.
 * On failure folders that were made on the way are gone again.
 */
MUST_CHECK int file_walk(const char *path, unsigned flags, struct file_spot *ret, struct err *e);
/* Removes again the folders that the walk made, as far as they are still empty. */
void file_spot_undo(struct file_spot *spot);
void file_spot_done(struct file_spot *spot);
#define cleanup_file_spot CLEANUP(file_spot_done)

/*
 * A sentence and a stable word for an errno, naming the path. The one place where errors of file
 * operations get their text. Returns code.
 */
int file_error(struct err *e, int code, const char *path);
