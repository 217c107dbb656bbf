/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/kms.h"

int kms_wrap(struct kms *k, const struct kms_use *use, const struct secret *key, struct buf *ret,
             struct err *e)
{
    ASSERT(id_valid(ID_ORGANISATION, use->organisation));
    return k->ops->wrap(k, use, key, ret, e);
}

int kms_unwrap(struct kms *k, const struct kms_use *use, const char *wrapped, struct secret *ret,
               struct err *e)
{
    ASSERT(id_valid(ID_ORGANISATION, use->organisation));
    return k->ops->unwrap(k, use, wrapped, ret, e);
}

int kms_rotate(struct kms *k, const char *organisation, struct err *e)
{
    ASSERT(id_valid(ID_ORGANISATION, organisation));
    return k->ops->rotate(k, organisation, e);
}

int kms_destroy(struct kms *k, const char *organisation, struct err *e)
{
    ASSERT(id_valid(ID_ORGANISATION, organisation));
    return k->ops->destroy(k, organisation, e);
}

void kms_free(struct kms *k)
{
    if (k) {
        k->ops->free(k);
    }
}

int kms_refused(const char *organisation, const char *why, struct err *e)
{
    return err_set(e, -EACCES, "key_refused",
                   "the key of organisation %s cannot be used: %s; what it protects cannot be read",
                   organisation, why);
}

int kms_damaged(struct err *e)
{
    return err_set(e, -EBADMSG, "key_damaged",
                   "a wrapped key is damaged, or was wrapped by another key");
}
