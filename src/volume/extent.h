/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a file differs from the image that it began as.
 *
 * A clone shares its extents with what it was cloned from until either is written to. Where both have the same bytes of the
 * same device at the same place (FIEMAP), they are equal and nobody reads them; what remains is read and compared in
 * blocks, since a file system writes more than what has changed. Extents that cannot be compared
 * (compressed, inline, not yet allocated, another file system, no FIEMAP) are read, too. The image's extents are read
 * before and after the file's: when they have moved meanwhile, nothing is taken for shared.
 */
#pragma once

#include "base/err.h"
#include "volume/cipher.h"

#define EXTENT_BLOCK 4096u

/* A run of blocks that differ; the last one may be shorter than a block. */
typedef int extent_fn(void *ctx, uint64_t offset, uint64_t length);

struct extent_pair {
    int fd;
    int base_fd;   /* FD_NONE: zeroes */
    uint64_t size; /* of the file; its base is taken to go on with zeroes where it is shorter */
};

/* In rising order. What each returns, when it is not 0, ends it. */
MUST_CHECK int extent_diff(const struct extent_pair *pair, extent_fn *each, void *ctx);

/*
 * The name of an image: SHA-256 over its size and its blocks of 64 KiB that are not all zeroes, so that holes do not
 * count. Reads it all.
 */
MUST_CHECK int extent_image_name(int fd, uint64_t size, char ret[static CIPHER_NAME_SIZE]);
