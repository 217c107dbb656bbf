/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Our daemon's line of a watch as filesystem.FilesystemEvent. A rename is told as inotify's users know it: the old name is
 * renamed, the new one created. Pure.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"

#define FS_CHANGES_MAX 2

struct fs_change {
    const char *type; /* static: "EVENT_TYPE_CREATE", ... */
    const char *name; /* borrowed from the line: below what is watched; "." is that itself */
    const char *path; /* borrowed from the line; NULL: it is not there any more */
};

/*
 * How many events the line is, at most FS_CHANGES_MAX. -EIO "events_lost": there were more than could be told. A line that
 * says nothing to these clients is none.
 */
MUST_CHECK int fs_changes_of(json_t *line, struct fs_change ret[static FS_CHANGES_MAX],
                             struct err *e);
/* {"name","type"}; the caller ends it with json_decref(). */
json_t *fs_change_event(const struct fs_change *change);
/* From here on nothing is missed. */
bool fs_change_is_ready(json_t *line);
