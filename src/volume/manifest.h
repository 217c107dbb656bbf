/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stored thing consists of. Reading and writing are pure.
 *
 * A stored thing is a sandbox (its record, disk, memory, devices) or an image that sandboxes share: a template's disk, a base
 * machine's memory. Each has one object, JSON in two layers:
 *
 *     outside   version, organisation, subject, the id of the data key, the names of chunks and images that it needs
 *     inside    sealed under the data key: files with size, image, and chunks with their keys
 *
 * The outside is for collecting what nobody needs, which must not need a key; it says nothing that a list of the
 * objects' names does not say. The seal binds organisation, subject and both lists, so that a manifest put
 * in another's place, or one with a name less, does not open.
 *
 * Objects, below an organisation's id:
 *
 *     chunks/NAME            see chunk.h and cipher.h
 *     images/SHA256.json     a manifest of one file, "image"; named by the image's content (extent.h)
 *     sandboxes/ID.json      a manifest; written last, so what it names is there
 *     keys/KEYID             a data key, wrapped by the key management service; and keys/tenant: see cipher.h
 */
#pragma once

#include "base/id.h"
#include "volume/cipher.h"

#define MANIFEST_FILES_MAX 8u
#define MANIFEST_NAME_SIZE 24u
#define MANIFEST_SUBJECT_SIZE 80u
#define MANIFEST_KEY_ID_SIZE 33u
#define MANIFEST_CHUNKS_MAX 131072u /* of all files: a disk of 100 GiB and 16 GiB of memory */
#define MANIFEST_BYTES_MAX (64u * 1024 * 1024) /* of that many chunks, in two layers */
#define MANIFEST_FILE_SIZE_MAX (1ull << 44)

struct manifest_chunk {
    struct chunk_id id;
    uint32_t sealed_len; /* of the object */
};

struct manifest_file {
    char name[MANIFEST_NAME_SIZE];
    uint64_t size;
    char image[CIPHER_NAME_SIZE];  /* what the chunks are laid over; "": zeroes */
    struct manifest_chunk *chunks; /* owned; wiped with the manifest */
    size_t n_chunks;
};

struct manifest {
    char organisation[ID_SIZE];
    char subject[MANIFEST_SUBJECT_SIZE]; /* "sandboxes/ID" or "images/SHA256" */
    char key_id[MANIFEST_KEY_ID_SIZE];
    uint64_t created_at_ms;
    struct manifest_file files[MANIFEST_FILES_MAX];
    size_t n_files;
};

void manifest_done(struct manifest *m);
#define cleanup_manifest CLEANUP(manifest_done)
/* NULL: there is none of that name. */
struct manifest_file *manifest_find(struct manifest *m, const char *name);

/* The whole object. -E2BIG. */
MUST_CHECK int manifest_write(const struct manifest *m, const struct secret *key, struct buf *ret);

/* The outside only: what a collector may read. */
struct manifest_outside {
    char organisation[ID_SIZE];
    char subject[MANIFEST_SUBJECT_SIZE];
    char key_id[MANIFEST_KEY_ID_SIZE];
    char (*chunks)[CIPHER_NAME_SIZE]; /* owned */
    size_t n_chunks;
    char (*images)[CIPHER_NAME_SIZE]; /* owned */
    size_t n_images;
};
void manifest_outside_done(struct manifest_outside *o);
#define cleanup_manifest_outside CLEANUP(manifest_outside_done)
/* -EBADMSG "manifest_damaged". */
MUST_CHECK int manifest_read_outside(const void *text, size_t len, struct manifest_outside *ret,
                                     struct err *e);
/* The inside of a text whose outside was read. -EBADMSG "manifest_damaged": not this key, not this place, or changed. */
MUST_CHECK int manifest_read(const void *text, size_t len, const struct secret *key,
                             struct manifest *ret, struct err *e);

/* A data key's id: 32 hex digits. */
bool manifest_key_id_valid(const char *id);
/* 64 lower-case hex digits. */
bool manifest_name_valid(const char *name);
