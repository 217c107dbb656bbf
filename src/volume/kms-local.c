/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys in a folder, for one machine: "root.key" (seal.h), and ORGANISATION.keys, which is sealed under it and holds
 * the versions of that organisation's key, 32 bytes each, the oldest first. A wrapped text is "local:VERSION:BASE64" of the
 * data key sealed under that version.
 *
 * Deleting ORGANISATION.keys shreds; moving it away revokes until it is back. It is read at each use.
 */
#include "volume/kms.h"

#include "base/base64.h"
#include "base/fs.h"
#include "credential/seal.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define VERSIONS_MAX 64u
#define FILE_MAX (VERSIONS_MAX * SEAL_KEY_SIZE + SEAL_OVERHEAD)
#define WRAPPED_PREFIX "local:"

struct kms_local {
    struct kms base;
    int fd; /* owned */
    struct seal_key root;
    pthread_mutex_t lock; /* of writing the files */
};

static void file_name(const char *organisation, char ret[static 32])
{
    snprintf(ret, 32, "%s.keys", organisation);
}

/* All versions, one after the other. -ENOENT: there are none. */
static int read_versions(struct kms_local *k, const char *organisation, struct secret *ret,
                         struct err *e)
{
    cleanup_buf struct buf sealed = BUF_INIT(FILE_MAX);
    char name[32];
    int r;

    file_name(organisation, name);
    r = fs_read_file(k->fd, name, &sealed);
    if (r == -ENOENT) {
        return r;
    }
    if (r < 0) {
        return err_set(e, -EHOSTDOWN, "key_service_unavailable", "reading '%s': %s", name,
                       strerror(-r));
    }
    r = unseal(&k->root, organisation, sealed.data, sealed.len, ret);
    if (r == 0 && (ret->len == 0 || ret->len % SEAL_KEY_SIZE != 0)) {
        secret_done(ret);
        r = -EBADMSG;
    }
    return r < 0 ? kms_damaged(e) : 0;
}

static int write_versions(struct kms_local *k, const char *organisation, const void *data,
                          size_t len, struct err *e)
{
    cleanup_buf struct buf sealed = BUF_INIT(FILE_MAX);
    char name[32];
    int r = seal(&k->root, organisation, data, len, &sealed);

    file_name(organisation, name);
    if (r == 0) {
        r = fs_write_file_durable(k->fd, name, sealed.data, sealed.len, 0600);
    }
    return r < 0 ? err_set(e, -EHOSTDOWN, "key_service_unavailable", "writing '%s': %s", name,
                           strerror(-r))
                 : 0;
}

/* With the lock. old may be empty. */
static int add_version(struct kms_local *k, const char *organisation, const struct secret *old,
                       struct err *e)
{
    cleanup_secret_buf struct buf all = BUF_INIT(VERSIONS_MAX * SEAL_KEY_SIZE);
    unsigned char fresh[SEAL_KEY_SIZE];
    int r;

    random_bytes(fresh, sizeof(fresh));
    r = buf_add(&all, old->p ? old->p : "", old->len);
    if (r == 0) {
        r = buf_add(&all, fresh, sizeof(fresh));
    }
    explicit_bzero(fresh, sizeof(fresh));
    if (r < 0) {
        return err_set(e, -EDQUOT, "too_many_keys",
                       "the key of organisation %s has %u versions, which is as many as may be",
                       organisation, VERSIONS_MAX);
    }
    return write_versions(k, organisation, all.data, all.len, e);
}

static int local_rotate(struct kms *kms, const char *organisation, struct err *e)
{
    struct kms_local *k = (struct kms_local *)kms;
    cleanup_secret struct secret old = {0};
    int r;

    pthread_mutex_lock(&k->lock);
    r = read_versions(k, organisation, &old, e);
    if (r == 0 || r == -ENOENT) {
        r = add_version(k, organisation, &old, e);
    }
    pthread_mutex_unlock(&k->lock);
    return r;
}

/* Makes the first version when there is none. */
static int newest(struct kms_local *k, const char *organisation, struct seal_key *ret,
                  unsigned *ret_version, struct err *e)
{
    cleanup_secret struct secret all = {0};
    int r;

    pthread_mutex_lock(&k->lock);
    r = read_versions(k, organisation, &all, e);
    if (r == -ENOENT) {
        r = add_version(k, organisation, &all, e);
        r = r < 0 ? r : read_versions(k, organisation, &all, e);
    }
    pthread_mutex_unlock(&k->lock);
    if (r < 0) {
        return r;
    }
    *ret_version = (unsigned)(all.len / SEAL_KEY_SIZE);
    return secret_init(&ret->bytes, all.p + all.len - SEAL_KEY_SIZE, SEAL_KEY_SIZE);
}

/* What a sealed data key is bound to; the caller's to free. */
static char *bound_to(const struct kms_use *use)
{
    return xasprintf("%s/%s", use->organisation, use->key_id);
}

static int local_wrap(struct kms *kms, const struct kms_use *use, const struct secret *key,
                      struct buf *ret, struct err *e)
{
    struct kms_local *k = (struct kms_local *)kms;
    CLEANUP(seal_key_done) struct seal_key kek = {0};
    cleanup_buf struct buf sealed = BUF_INIT(KMS_WRAPPED_MAX / 2);
    cleanup_free char *about = bound_to(use);
    unsigned version = 0;
    int r = newest(k, use->organisation, &kek, &version, e);

    if (r < 0) {
        return r;
    }
    r = seal(&kek, about, key->p, key->len, &sealed);
    if (r == 0) {
        r = buf_printf(ret, WRAPPED_PREFIX "%u:", version);
    }
    if (r == 0) {
        r = base64_encode(sealed.data, sealed.len, ret);
    }
    return r < 0 ? err_wrap(e, r, "wrapping a key") : 0;
}

static int parse_wrapped(const char *wrapped, uint64_t *ret_version, struct buf *ret)
{
    char number[4] = "";
    const char *colon;

    if (!str_starts(wrapped, WRAPPED_PREFIX)) {
        return -EBADMSG;
    }
    wrapped += strlen(WRAPPED_PREFIX);
    colon = strchr(wrapped, ':');
    if (!colon || colon - wrapped >= (ptrdiff_t)sizeof(number)) {
        return -EBADMSG;
    }
    memcpy(number, wrapped, (size_t)(colon - wrapped));
    if (str_to_u64(number, VERSIONS_MAX, ret_version) < 0 || *ret_version == 0) {
        return -EBADMSG;
    }
    return base64_decode(colon + 1, strlen(colon + 1), ret) < 0 ? -EBADMSG : 0;
}

static int local_unwrap(struct kms *kms, const struct kms_use *use, const char *wrapped,
                        struct secret *ret, struct err *e)
{
    struct kms_local *k = (struct kms_local *)kms;
    CLEANUP(seal_key_done) struct seal_key kek = {0};
    cleanup_secret struct secret all = {0};
    cleanup_buf struct buf sealed = BUF_INIT(KMS_WRAPPED_MAX);
    cleanup_free char *about = bound_to(use);
    uint64_t version = 0;
    int r = parse_wrapped(wrapped, &version, &sealed);

    if (r < 0) {
        return kms_damaged(e);
    }
    r = read_versions(k, use->organisation, &all, e);
    if (r == -ENOENT) {
        return kms_refused(use->organisation, "it was deleted or revoked", e);
    }
    if (r < 0) {
        return r;
    }
    if (version * SEAL_KEY_SIZE > all.len) {
        return kms_refused(use->organisation, "that version of it is not there", e);
    }
    IGNORE_RESULT(secret_init(&kek.bytes, all.p + (version - 1) * SEAL_KEY_SIZE,
                              SEAL_KEY_SIZE)); /* it is not too long */
    r = unseal(&kek, about, sealed.data, sealed.len, ret);
    return r < 0 ? kms_damaged(e) : 0;
}

static int local_destroy(struct kms *kms, const char *organisation, struct err *e)
{
    struct kms_local *k = (struct kms_local *)kms;
    char name[32];
    int r;

    file_name(organisation, name);
    pthread_mutex_lock(&k->lock);
    r = unlinkat(k->fd, name, 0) < 0 && errno != ENOENT ? -errno : fs_sync_dir(k->fd);
    pthread_mutex_unlock(&k->lock);
    return r < 0 ? err_wrap(e, r, "deleting '%s'", name) : 0;
}

static void local_free(struct kms *kms)
{
    struct kms_local *k = (struct kms_local *)kms;

    seal_key_done(&k->root);
    pthread_mutex_destroy(&k->lock);
    fd_close(k->fd);
    free(k);
}

static const struct kms_ops ops = {
    .name = "local",
    .wrap = local_wrap,
    .unwrap = local_unwrap,
    .rotate = local_rotate,
    .destroy = local_destroy,
    .free = local_free,
};

int kms_local_open(const char *dir, struct kms **ret, struct err *e)
{
    CLEANUP(seal_key_done) struct seal_key root = {0};
    cleanup_free char *path = xasprintf("%s/root.key", dir);
    struct kms_local *k;
    int r = fs_mkdir_all(dir, 0700);
    int fd = r < 0 ? r : fs_open(dir, O_RDONLY | O_DIRECTORY, 0);

    if (fd < 0) {
        return err_wrap(e, fd, "opening the keys in '%s'", dir);
    }
    r = seal_key_load(path, /* create */ true, &root, e);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    k = xnew(struct kms_local);
    k->base.ops = &ops;
    k->fd = fd;
    k->root = root;
    root = (struct seal_key){0};
    ASSERT(pthread_mutex_init(&k->lock, NULL) == 0);
    *ret = &k->base;
    return 0;
}
