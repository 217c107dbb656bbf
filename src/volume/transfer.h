/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file to and from the store, in chunks, by several threads. Memory is bounded by the number of threads.
 *
 *     up      the caller's thread compares and reads (extent.h) --> chunks --> threads compress, seal, put
 *     down    threads get, open, check, and write each at its place
 *
 * The first failure ends it, what was put stays (it is named by its content: the next attempt finds it there and goes on
 * where this one stopped; what nobody comes back for is collected, collect.h).
 */
#pragma once

#include "volume/extent.h"
#include "volume/manifest.h"
#include "volume/store.h"

#define TRANSFER_THREADS 4u
#define TRANSFER_THREADS_MAX 32u

struct transfer {
    struct store *store;      /* borrowed, as all here */
    const char *organisation; /* whose chunks these are */
    unsigned threads;         /* 0: TRANSFER_THREADS */
    int watch_fd;             /* a socket: its hang-up ends the transfer with -ECANCELED; FD_NONE */
    /* May a chunk that is there be used, or is it about to be collected? NULL: it may. */
    bool (*may_reuse)(void *ctx, const struct store_object *object);
    void *ctx;
};

struct transfer_stats {
    uint64_t chunks;
    uint64_t plain_bytes;    /* of the file, in those */
    uint64_t stored_bytes;   /* of all objects that it consists of */
    uint64_t uploaded_bytes; /* of those that were not there yet */
};

/* Fills in ret->size and ret->chunks; name and image are the caller's. Adds to stats. */
MUST_CHECK int transfer_upload(const struct transfer *t, const struct secret *tenant,
                               const struct extent_pair *pair, struct manifest_file *ret,
                               struct transfer_stats *stats, struct err *e);
/*
 * Over what fd holds already: the file's image, or nothing. -EIO "object_missing": a chunk is not there; -EBADMSG
 * "chunk_damaged": it was changed, cut, or is another.
 */
MUST_CHECK int transfer_download(const struct transfer *t, const struct manifest_file *file, int fd,
                                 struct transfer_stats *stats, struct err *e);
/* -ECANCELED "client_gone" once who asked has hung up. */
MUST_CHECK int transfer_watch(const struct transfer *t, struct err *e);
/* The key of a chunk in the store. */
void transfer_chunk_key(const char *organisation, const char *name,
                        char ret[static STORE_KEY_MAX + 1]);
