/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/store.h"

#include <string.h>

#define KEY_BYTES "abcdefghijklmnopqrstuvwxyz0123456789-."

bool store_key_valid(const char *key)
{
    size_t len = strnlen(key, STORE_KEY_MAX + 1);

    if (len == 0 || len > STORE_KEY_MAX) {
        return false;
    }
    for (const char *at = key;; at++) {
        size_t n = strspn(at, KEY_BYTES);

        if (n == 0 || at[0] == '.') {
            return false;
        }
        at += n;
        if (*at != '/') {
            return *at == '\0';
        }
    }
}

int store_missing(const char *key, struct err *e)
{
    return err_set(e, -ENOENT, "object_missing", "the object store has no object '%s'", key);
}

int store_put(struct store *s, const char *key, const void *data, size_t len, struct err *e)
{
    ASSERT(store_key_valid(key) && len <= STORE_OBJECT_MAX);
    return s->ops->put(s, key, data, len, e);
}

int store_get(struct store *s, const char *key, struct buf *ret, struct err *e)
{
    ASSERT(store_key_valid(key));
    return s->ops->get(s, key, ret, e);
}

int store_stat(struct store *s, const char *key, struct store_object *ret, struct err *e)
{
    ASSERT(store_key_valid(key));
    return s->ops->stat(s, key, ret, e);
}

int store_remove(struct store *s, const char *key, struct err *e)
{
    ASSERT(store_key_valid(key));
    return s->ops->remove(s, key, e);
}

int store_list(struct store *s, const char *prefix, store_list_fn *each, void *ctx, struct err *e)
{
    ASSERT(prefix[0] == '\0' || prefix[strlen(prefix) - 1] == '/');
    return s->ops->list(s, prefix, each, ctx, e);
}

void store_free(struct store *s)
{
    if (s) {
        s->ops->free(s);
    }
}
