/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes in an object store: what the volume manager does, apart from talking to its clients.
 *
 *     store    tenant's secret --> data key wrapped, put --> images that are not there yet --> chunks of what differs
 *              --> manifest put --> manifest read back, byte by byte. Only then it is said to be stored.
 *     fetch    manifest --> data key unwrapped --> each file: its image (a clone of the one that is here, when its name
 *              is right, else fetched), its chunks over that, synced
 *     forget   manifest, then data key; chunks and images are collected (collect.h)
 *
 * One object names what is stored of a sandbox, so storing again replaces it in one step, and a failed attempt leaves what
 * was stored before. Whoever is the sandbox's node sees to it that it is one attempt at a time.
 *
 * A tenant's secret is cached for ARCHIVE_CACHE_MS at most: all that it is good for is to name chunks. A data key is
 * unwrapped for each fetch, and not kept. Thread-safe.
 */
#pragma once

#include "volume/kms.h"
#include "volume/transfer.h"

#define ARCHIVE_CACHE_MS 60000u
#define ARCHIVE_TENANTS_MAX 64u /* in the cache */
#define ARCHIVE_IMAGES_MAX 64u  /* whose names are remembered */

struct archive;

/* Takes over both. threads: for each transfer; 0: the default. */
struct archive *archive_new_take(struct store *store, struct kms *kms, unsigned threads);
void archive_free(struct archive *a);
DEFINE_CLEANUP(struct archive *, archive_free);

/* All borrowed. */
struct archive_file {
    char name[MANIFEST_NAME_SIZE];
    int fd;      /* store: read; fetch: written, from empty */
    int base_fd; /* store: the image that it began as; fetch: what may be that image; FD_NONE: none */
};
struct archive_job {
    const char *organisation;
    const char *sandbox;
    const struct archive_file *files;
    size_t n_files;
    int watch_fd; /* as in struct transfer */
};
struct archive_result {
    uint64_t created_at_ms; /* of what is stored */
    struct transfer_stats stats;
    unsigned images; /* that had to be stored, or fetched */
};

/* Codes of store.h and kms.h; -ECANCELED; -EIO "not_stored": what was read back is not what was put. */
MUST_CHECK int archive_store(struct archive *a, const struct archive_job *job,
                             struct archive_result *ret, struct err *e);
/* And -ENOENT "not_stored": nothing of that sandbox is; -EBADMSG "manifest_damaged", "chunk_damaged"; -EIO "object_missing". */
MUST_CHECK int archive_fetch(struct archive *a, const struct archive_job *job,
                             struct archive_result *ret, struct err *e);
/* Since when is the sandbox stored as it is? -ENOENT "not_stored". Needs no key. */
MUST_CHECK int archive_age(struct archive *a, const char *organisation, const char *sandbox,
                           uint64_t *ret_modified_ms, struct err *e);
/* Fine when there is nothing. */
MUST_CHECK int archive_forget(struct archive *a, const char *organisation, const char *sandbox,
                              struct err *e);

/* A new version of the organisation's key; all its data keys are wrapped by it afterwards. Counts them. */
MUST_CHECK int archive_rotate(struct archive *a, const char *organisation, uint64_t *ret_keys,
                              struct err *e);
/* Destroys the organisation's key: nothing that is stored of it can ever be read again. */
MUST_CHECK int archive_shred(struct archive *a, const char *organisation, struct err *e);

/* The kinds of its store and of its key management service. */
const char *archive_store_name(const struct archive *a);
const char *archive_keys_name(const struct archive *a);
