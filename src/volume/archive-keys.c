/* SPDX-License-Identifier: Apache-2.0 */
/* The archive's data keys, and each tenant's secret. */
#include "volume/archive-internal.h"

#include "base/clock.h"
#include "base/fault.h"

#include <stdio.h>
#include <string.h>

/* The tenant's secret among the data keys. */
#define TENANT "tenant"

void archive_key_of(const char *organisation, const char *key_id,
                    char ret[static STORE_KEY_MAX + 1])
{
    snprintf(ret, STORE_KEY_MAX + 1, "%s/keys/%s", organisation, key_id);
}

static int put_key(struct archive *a, const struct kms_use *use, const struct secret *key,
                   struct err *e)
{
    cleanup_buf struct buf wrapped = BUF_INIT(KMS_WRAPPED_MAX);
    char name[STORE_KEY_MAX + 1];
    int r = kms_wrap(a->kms, use, key, &wrapped, e);

    if (r < 0) {
        return r;
    }
    archive_key_of(use->organisation, use->key_id, name);
    return store_put(a->store, name, wrapped.data, wrapped.len, e);
}

static int get_key(struct archive *a, const struct kms_use *use, struct secret *ret, struct err *e)
{
    cleanup_buf struct buf wrapped = BUF_INIT(KMS_WRAPPED_MAX);
    char name[STORE_KEY_MAX + 1];
    int r;

    archive_key_of(use->organisation, use->key_id, name);
    r = store_get(a->store, name, &wrapped, e);
    if (r == -E2BIG) {
        return kms_damaged(e);
    }
    if (r == 0) {
        r = kms_unwrap(a->kms, use, buf_str(&wrapped), ret, e);
    }
    if (r == 0 && ret->len != CIPHER_KEY_SIZE) {
        secret_done(ret);
        r = kms_damaged(e);
    }
    return r;
}

int archive_new_key(struct archive *a, const char *organisation, struct secret *ret,
                    char ret_id[static MANIFEST_KEY_ID_SIZE], struct err *e)
{
    const struct kms_use use = {organisation, ret_id};
    cleanup_secret struct secret key = {0};
    unsigned char id[(MANIFEST_KEY_ID_SIZE - 1) / 2];
    int r;

    random_bytes(id, sizeof(id));
    hex_encode(id, sizeof(id), ret_id);
    cipher_new_key(&key);
    r = FAULT("volume.key") ? err_set(e, -EIO, NULL, "storing a key") : put_key(a, &use, &key, e);
    if (r == 0) {
        *ret = key;
        key = (struct secret){0};
    }
    return r;
}

int archive_get_key(struct archive *a, const char *organisation, const char *id, struct secret *ret,
                    struct err *e)
{
    int r = get_key(a, &(struct kms_use){organisation, id}, ret, e);

    /* What was asked for is there, only its key is not. */
    return r == -ENOENT
               ? err_set(e, -EIO, "object_missing",
                         "the object store has lost a wrapped key of organisation %s", organisation)
               : r;
}

/* ---- tenants ---- */

static struct tenant *cached(struct archive *a, const char *organisation)
{
    for (size_t i = 0; i < ARCHIVE_TENANTS_MAX; i++) {
        struct tenant *t = &a->tenants[i];

        if (t->secret.p && deadline_passed(t->until_ns)) {
            secret_done(&t->secret);
        }
        if (t->secret.p && str_eq(t->organisation, organisation)) {
            return t;
        }
    }
    return NULL;
}

/* In the place of the one that is forgotten next. */
static void remember(struct archive *a, const char *organisation, const struct secret *secret)
{
    struct tenant *place = cached(a, organisation);

    for (size_t i = 0; !place && i < ARCHIVE_TENANTS_MAX; i++) {
        place = a->tenants[i].secret.p ? NULL : &a->tenants[i];
    }
    place = place ? place : &a->tenants[0];
    secret_done(&place->secret);
    ASSERT(str_copy(place->organisation, sizeof(place->organisation), organisation) == 0);
    IGNORE_RESULT(secret_init(&place->secret, secret->p, secret->len)); /* it is not too long */
    place->until_ns = deadline_in_ms(ARCHIVE_CACHE_MS);
}

void archive_drop_tenant(struct archive *a, const char *organisation)
{
    struct tenant *t;

    pthread_mutex_lock(&a->lock);
    t = cached(a, organisation);
    if (t) {
        secret_done(&t->secret);
    }
    pthread_mutex_unlock(&a->lock);
}

static int load_tenant(struct archive *a, const char *organisation, struct secret *ret,
                       struct err *e)
{
    const struct kms_use use = {organisation, TENANT};
    struct err why = {0};
    int r = get_key(a, &use, ret, &why);

    if (r != -ENOENT) {
        if (r < 0) {
            err_copy(e, &why);
        }
        return r;
    }
    /* Two nodes may do this at once; the later one stays, and chunks that the other named are kept twice. */
    cipher_new_key(ret);
    r = put_key(a, &use, ret, e);
    if (r < 0) {
        secret_done(ret);
    }
    return r;
}

int archive_tenant(struct archive *a, const char *organisation, struct secret *ret, struct err *e)
{
    cleanup_secret struct secret loaded = {0};
    struct tenant *t;
    int r = 0;

    pthread_mutex_lock(&a->lock);
    t = cached(a, organisation);
    if (t) {
        r = secret_init(ret, t->secret.p, t->secret.len);
    }
    pthread_mutex_unlock(&a->lock);
    if (t) {
        return r;
    }
    r = load_tenant(a, organisation, &loaded, e);
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&a->lock);
    remember(a, organisation, &loaded);
    pthread_mutex_unlock(&a->lock);
    *ret = loaded;
    loaded = (struct secret){0};
    return 0;
}

/* ---- rotation ---- */

struct rewrapping {
    struct archive *a;
    const char *organisation;
    uint64_t n;
    struct err *e;
};

static int rewrap_one(void *ctx, const struct store_object *object)
{
    struct rewrapping *w = ctx;
    const char *id = strrchr(object->key, '/') + 1;
    const struct kms_use use = {w->organisation, id};
    cleanup_secret struct secret key = {0};
    int r = get_key(w->a, &use, &key, w->e);

    if (r == -ENOENT) {
        return 0; /* deleted meanwhile */
    }
    if (r == 0) {
        r = put_key(w->a, &use, &key, w->e);
    }
    w->n += r == 0;
    return r;
}

int archive_rotate(struct archive *a, const char *organisation, uint64_t *ret_keys, struct err *e)
{
    struct rewrapping w = {.a = a, .organisation = organisation, .e = e};
    cleanup_free char *prefix = xasprintf("%s/keys/", organisation);
    int r = kms_rotate(a->kms, organisation, e);

    if (r == 0) {
        r = store_list(a->store, prefix, rewrap_one, &w, e);
    }
    if (r < 0) {
        return err_wrap(e, r, "after %llu keys were wrapped anew", (unsigned long long)w.n);
    }
    *ret_keys = w.n;
    return 0;
}

int archive_shred(struct archive *a, const char *organisation, struct err *e)
{
    archive_drop_tenant(a, organisation);
    return kms_destroy(a->kms, organisation, e);
}
