/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the archive share. */
#pragma once

#include "volume/archive.h"

#include <pthread.h>
#include <sys/types.h>

struct archive {
    struct store *store; /* owned */
    struct kms *kms;     /* owned */
    unsigned threads;
    pthread_mutex_t
        images_lock;      /* held while an image is stored: others that need it wait for it */
    pthread_mutex_t lock; /* guards what follows */
    struct tenant {
        char organisation[ID_SIZE];
        struct secret secret;
        uint64_t until_ns;
    } tenants[ARCHIVE_TENANTS_MAX];
    struct known_image {
        dev_t device;
        ino_t inode;
        off_t size;
        struct timespec changed;
        char name[CIPHER_NAME_SIZE];
    } images[ARCHIVE_IMAGES_MAX];
    size_t next_image; /* the one that is replaced next */
};

/* For who asks and may be told "there is none", which is no failure of its own. */
static inline void err_copy(struct err *e, const struct err *why)
{
    if (e) {
        *e = *why;
    }
}

/* Keys in the store. */
void archive_key_of(const char *organisation, const char *key_id,
                    char ret[static STORE_KEY_MAX + 1]);
void archive_manifest_of(const char *organisation, const char *subject,
                         char ret[static STORE_KEY_MAX + 1]);

/* A new data key, wrapped and put. */
MUST_CHECK int archive_new_key(struct archive *a, const char *organisation, struct secret *ret,
                               char ret_id[static MANIFEST_KEY_ID_SIZE], struct err *e);
MUST_CHECK int archive_get_key(struct archive *a, const char *organisation, const char *id,
                               struct secret *ret, struct err *e);
/* A copy of the tenant's secret, made when there is none. */
MUST_CHECK int archive_tenant(struct archive *a, const char *organisation, struct secret *ret,
                              struct err *e);
void archive_drop_tenant(struct archive *a, const char *organisation);

/* Reads and opens a manifest, and checks that it is the one that was asked for. -ENOENT: there is none. */
MUST_CHECK int archive_get_manifest(struct archive *a, const char *organisation,
                                    const char *subject, struct manifest *ret, struct err *e);
/* Puts it last, and reads it back. */
MUST_CHECK int archive_put_manifest(struct archive *a, const struct manifest *m,
                                    const struct secret *key, struct err *e);

/* The name of the image that fd is. */
MUST_CHECK int archive_image_name(struct archive *a, int fd, char ret[static CIPHER_NAME_SIZE],
                                  struct err *e);
