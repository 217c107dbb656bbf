/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Object stores behind one interface: a folder (store-dir.c) and S3 (store-s3.c). conformance.c holds what is true of each.
 *
 * A key is 1 to STORE_KEY_MAX bytes of [a-z0-9-./] in segments that are neither empty nor begin with a dot. An object is there
 * whole or not at all, and what was put is there after a power failure. Putting again replaces. Thread-safe.
 *
 * Codes meant for callers: -ENOENT "object_missing"; -EHOSTDOWN "store_unavailable": it does not answer, or not properly,
 * after several tries; -EACCES "store_refused": our credentials are not good for this; -E2BIG: larger than allowed.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define STORE_KEY_MAX 200u
#define STORE_OBJECT_MAX (64u * 1024 * 1024)

struct store;

struct store_object {
    char key[STORE_KEY_MAX + 1];
    uint64_t size;
    uint64_t modified_ms; /* by the store's clock, whole seconds in some */
};

/* Another value than 0 ends the list and is returned. It may change the store. */
typedef int store_list_fn(void *ctx, const struct store_object *object);

struct store_ops {
    const char *name;
    MUST_CHECK int (*put)(struct store *s, const char *key, const void *data, size_t len,
                          struct err *e);
    /* Appends to ret, whose maximum is the limit. */
    MUST_CHECK int (*get)(struct store *s, const char *key, struct buf *ret, struct err *e);
    MUST_CHECK int (*stat)(struct store *s, const char *key, struct store_object *ret,
                           struct err *e);
    /* Fine when it is not there. */
    MUST_CHECK int (*remove)(struct store *s, const char *key, struct err *e);
    /* All whose key begins with prefix, in no order. prefix ends with '/' or is "". */
    MUST_CHECK int (*list)(struct store *s, const char *prefix, store_list_fn *each, void *ctx,
                           struct err *e);
    void (*free)(struct store *s);
};

/* What each kind begins with. */
struct store {
    const struct store_ops *ops; /* static */
};

bool store_key_valid(const char *key);

MUST_CHECK int store_put(struct store *s, const char *key, const void *data, size_t len,
                         struct err *e);
MUST_CHECK int store_get(struct store *s, const char *key, struct buf *ret, struct err *e);
MUST_CHECK int store_stat(struct store *s, const char *key, struct store_object *ret,
                          struct err *e);
MUST_CHECK int store_remove(struct store *s, const char *key, struct err *e);
MUST_CHECK int store_list(struct store *s, const char *prefix, store_list_fn *each, void *ctx,
                          struct err *e);
void store_free(struct store *s);
DEFINE_CLEANUP(struct store *, store_free);

/* What is asked of stores is counted from then on; see base/metric.h. */
void store_metrics_register(void);

int store_missing(const char *key, struct err *e);

/* A folder, made when it is not there. */
MUST_CHECK int store_dir_open(const char *path, struct store **ret, struct err *e);
