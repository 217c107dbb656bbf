/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an entry tells beyond itself when it is asked to ("more=1"), for clients of an API that wants it:
 *
 *     "resolved":{"path","type","mode"}    of a link: what it leads to in the end; absent when it leads nowhere
 *     "metadata":{"key":"value"}           of a regular file: what was given with its upload; absent when empty
 *
 * Metadata stands in extended attributes, user.e2b.KEY, where the tools of that API look for it. It belongs to the content: each
 * upload replaces all of it.
 */
#pragma once

#include "base/err.h"
#include "daemon/file-entry.h"

/* Of keys and values together; and of one key, so that its attribute's name fits into the kernel's 255 bytes. */
#define FILE_METADATA_MAX 4096u
#define FILE_METADATA_KEY_MAX 246u
/* As JSON text: each byte may be escaped. */
#define FILE_METADATA_TEXT_MAX (4u * FILE_METADATA_MAX)

/* Adds ,"resolved":... or ,"metadata":... -E2BIG; what cannot be read is left out. */
MUST_CHECK int file_more_add(struct buf *b, const struct file_place *place, const struct stat *st);

/* Pure: a JSON object of strings, printable ASCII, within the limits. -EINVAL with field "metadata". */
MUST_CHECK int file_metadata_check(const char *text, struct err *e);
/* On a file that was just made; text has been checked. */
MUST_CHECK int file_metadata_set(int fd, const char *text);
