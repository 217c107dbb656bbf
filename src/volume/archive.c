/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/archive-internal.h"

#include "base/clock.h"
#include "base/fault.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct archive *archive_new_take(struct store *store, struct kms *kms, unsigned threads)
{
    struct archive *a = xnew(struct archive);

    a->store = store;
    a->kms = kms;
    a->threads = threads;
    ASSERT(pthread_mutex_init(&a->lock, NULL) == 0);
    ASSERT(pthread_mutex_init(&a->images_lock, NULL) == 0);
    return a;
}

void archive_free(struct archive *a)
{
    if (!a) {
        return;
    }
    for (size_t i = 0; i < ARCHIVE_TENANTS_MAX; i++) {
        secret_done(&a->tenants[i].secret);
    }
    pthread_mutex_destroy(&a->images_lock);
    pthread_mutex_destroy(&a->lock);
    store_free(a->store);
    kms_free(a->kms);
    free(a);
}

void archive_manifest_of(const char *organisation, const char *subject,
                         char ret[static STORE_KEY_MAX + 1])
{
    snprintf(ret, STORE_KEY_MAX + 1, "%s/%s.json", organisation, subject);
}

static int not_stored(const char *sandbox, struct err *e)
{
    return err_set(e, -ENOENT, "not_stored", "nothing of sandbox %s is in the object store",
                   sandbox);
}

/* ---- manifests ---- */

static int get_outside(struct archive *a, const char *organisation, const char *subject,
                       struct buf *text, struct manifest_outside *ret, struct err *e)
{
    char key[STORE_KEY_MAX + 1];
    int r;

    archive_manifest_of(organisation, subject, key);
    r = store_get(a->store, key, text, e);
    if (r == 0) {
        r = manifest_read_outside(text->data, text->len, ret, e);
    }
    if (r == 0 && (!str_eq(ret->organisation, organisation) || !str_eq(ret->subject, subject))) {
        manifest_outside_done(ret);
        r = err_set(e, -EBADMSG, "manifest_damaged", "the manifest '%s' is another's", key);
    }
    return r;
}

int archive_get_manifest(struct archive *a, const char *organisation, const char *subject,
                         struct manifest *ret, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    cleanup_manifest_outside struct manifest_outside outside = {0};
    cleanup_secret struct secret key = {0};
    int r = get_outside(a, organisation, subject, &text, &outside, e);

    if (r == 0) {
        r = archive_get_key(a, organisation, outside.key_id, &key, e);
    }
    return r < 0 ? r : manifest_read(text.data, text.len, &key, ret, e);
}

int archive_put_manifest(struct archive *a, const struct manifest *m, const struct secret *key,
                         struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    cleanup_buf struct buf back = BUF_INIT(MANIFEST_BYTES_MAX);
    char name[STORE_KEY_MAX + 1];
    int r = manifest_write(m, key, &text);

    if (r < 0) {
        return err_set(e, r, "too_large", "the sandbox consists of too many pieces to be stored");
    }
    archive_manifest_of(m->organisation, m->subject, name);
    r = FAULT("volume.manifest") ? err_set(e, -EIO, NULL, "storing the manifest")
                                 : store_put(a->store, name, text.data, text.len, e);
    if (r == 0) {
        r = FAULT("volume.read_back") ? err_set(e, -EIO, NULL, "reading the manifest back")
                                      : store_get(a->store, name, &back, e);
    }
    if (r == 0 && (back.len != text.len || memcmp(back.data, text.data, text.len) != 0)) {
        r = err_set(e, -EIO, "not_stored",
                    "the object store gave back another manifest than was put");
    }
    return r;
}

/* ---- images ---- */

int archive_image_name(struct archive *a, int fd, char ret[static CIPHER_NAME_SIZE], struct err *e)
{
    struct known_image image = {0};
    struct stat st;
    int r;

    if (fstat(fd, &st) < 0) {
        return err_wrap(e, -errno, "looking at an image");
    }
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < ARCHIVE_IMAGES_MAX && !image.name[0]; i++) {
        const struct known_image *k = &a->images[i];

        if (k->name[0] && k->device == st.st_dev && k->inode == st.st_ino &&
            k->size == st.st_size && k->changed.tv_sec == st.st_ctim.tv_sec &&
            k->changed.tv_nsec == st.st_ctim.tv_nsec) {
            image = *k;
        }
    }
    pthread_mutex_unlock(&a->lock);
    if (!image.name[0]) {
        image = (struct known_image){st.st_dev, st.st_ino, st.st_size, st.st_ctim, ""};
        r = extent_image_name(fd, (uint64_t)st.st_size, image.name);
        if (r < 0) {
            return err_wrap(e, r, "reading an image");
        }
        pthread_mutex_lock(&a->lock);
        a->images[a->next_image] = image;
        a->next_image = (a->next_image + 1) % ARCHIVE_IMAGES_MAX;
        pthread_mutex_unlock(&a->lock);
    }
    memcpy(ret, image.name, CIPHER_NAME_SIZE);
    return 0;
}

/* ---- the rest ---- */

int archive_age(struct archive *a, const char *organisation, const char *sandbox,
                uint64_t *ret_modified_ms, struct err *e)
{
    cleanup_free char *subject = xasprintf("sandboxes/%s", sandbox);
    char key[STORE_KEY_MAX + 1];
    struct store_object object;
    int r;

    archive_manifest_of(organisation, subject, key);
    r = store_stat(a->store, key, &object, e);
    if (r == 0) {
        *ret_modified_ms = object.modified_ms;
    }
    return r == -ENOENT ? not_stored(sandbox, e) : r;
}

int archive_forget(struct archive *a, const char *organisation, const char *sandbox, struct err *e)
{
    cleanup_free char *subject = xasprintf("sandboxes/%s", sandbox);
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    cleanup_manifest_outside struct manifest_outside outside = {0};
    char name[STORE_KEY_MAX + 1];
    struct err why = {0};
    int r = get_outside(a, organisation, subject, &text, &outside, &why);

    if (r == -ENOENT) {
        return 0;
    }
    if (r < 0 && r != -EBADMSG && r != -ENOTSUP) { /* what cannot be read goes all the same */
        err_copy(e, &why);
        return r;
    }
    archive_manifest_of(organisation, subject, name);
    r = store_remove(a->store, name, e);
    if (r == 0 && outside.key_id[0]) {
        archive_key_of(organisation, outside.key_id, name);
        r = store_remove(a->store, name, e);
    }
    return r;
}

const char *archive_store_name(const struct archive *a)
{
    return a->store->ops->name;
}

const char *archive_keys_name(const struct archive *a)
{
    return a->kms->ops->name;
}
