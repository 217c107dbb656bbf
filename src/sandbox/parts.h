/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full snapshot as files for the object store: record and history ("meta"), disk, memory, devices, and the images that
 * disk and memory began as. Once they are open, what becomes of the snapshot does not matter to them.
 */
#pragma once

#include "sandbox/resident.h"
#include "volume/client.h"

enum {
    PART_META,
    PART_DISK,
    PART_MEMORY,
    PART_DEVICE,
    PART_COUNT_
};

struct parts {
    struct archive_file files[PART_COUNT_]; /* the descriptors are owned */
};

/* Before parts_open(); parts_done() is fine after it. */
void parts_init(struct parts *p);
void parts_done(struct parts *p);
/* With the op lock held. What is open after an error, parts_done() closes. */
MUST_CHECK int parts_open(struct resident *res, const struct snapshot *snap, struct parts *p,
                          struct err *e);
/* Stores them as the sandbox's durable state; without a lock if need be. gone and arg as in struct volume_call. */
MUST_CHECK int parts_store(struct resident *res, const struct parts *p, bool (*gone)(void *arg),
                           void *arg, json_t **ret, struct err *e);
/* What its disk and its memory began as, to be closed by the caller; not touched where it is not here (any more). */
void parts_open_images(struct resident *res, int *ret_disk_fd, int *ret_memory_fd);
