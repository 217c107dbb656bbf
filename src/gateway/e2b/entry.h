/* SPDX-License-Identifier: Apache-2.0 */

/* A file as filesystem.EntryInfo says it. */
#pragma once

#include "gateway/e2b/inside.h"

/* Pure: from our daemon's entry; the caller ends it with json_decref(). NULL: its name is not UTF-8, or it is no entry. */
json_t *e2b_entry(json_t *entry);
/* Asks the daemon; path as inside_path() gives it. */
MUST_CHECK int fs_entry(struct inside *in, const char *path, json_t **ret, struct err *e);
/* What may be watched: a file is none to E2B, though our daemon would watch it. -EINVAL, -ENOENT. */
MUST_CHECK int fs_check_directory(struct inside *in, const char *path, struct err *e);
