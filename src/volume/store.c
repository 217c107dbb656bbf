/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/store.h"

#include "base/clock.h"
#include "base/metric.h"

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

/* ---- what is counted ---- */

enum store_op {
    STORE_PUT,
    STORE_GET,
    STORE_STAT,
    STORE_REMOVE,
    STORE_LIST,
    STORE_OP_COUNT_
};

static const char *const op_labels[STORE_OP_COUNT_] = {"put", "get", "stat", "remove", "list"};
static const char *const directions[] = {"sent", "received"};

static struct metric requests = {
    .name = "space_volume_store_seconds",
    .help = "What was asked of the object store, by operation and outcome, with all its tries.",
    .type = METRIC_HISTOGRAM,
    .labels = {{"operation", op_labels, ARRAY_SIZE(op_labels)}, METRIC_OUTCOMES},
    .quiet = true,
};
static struct metric bytes = {
    .name = "space_volume_store_bytes_total",
    .help = "Bytes of objects to and from the object store.",
    .type = METRIC_COUNTER,
    .labels = {{"direction", directions, ARRAY_SIZE(directions)}},
};

void store_metrics_register(void)
{
    metric_register(&requests);
    metric_register(&bytes);
}

static int counted(enum store_op op, uint64_t begun_ns, int r)
{
    metric_observe(&requests, METRIC_AT(op, metric_outcome(MIN(r, 0))), clock_now_ns() - begun_ns);
    return r;
}

/* ---- */

int store_put(struct store *s, const char *key, const void *data, size_t len, struct err *e)
{
    uint64_t begun_ns = clock_now_ns();
    int r;

    ASSERT(store_key_valid(key) && len <= STORE_OBJECT_MAX);
    r = counted(STORE_PUT, begun_ns, s->ops->put(s, key, data, len, e));
    metric_add(&bytes, METRIC_AT(0), r < 0 ? 0 : (int64_t)len);
    return r;
}

int store_get(struct store *s, const char *key, struct buf *ret, struct err *e)
{
    uint64_t begun_ns = clock_now_ns();
    size_t before = ret->len;
    int r;

    ASSERT(store_key_valid(key));
    r = counted(STORE_GET, begun_ns, s->ops->get(s, key, ret, e));
    metric_add(&bytes, METRIC_AT(1), r < 0 ? 0 : (int64_t)(ret->len - before));
    return r;
}

int store_stat(struct store *s, const char *key, struct store_object *ret, struct err *e)
{
    uint64_t begun_ns = clock_now_ns();

    ASSERT(store_key_valid(key));
    return counted(STORE_STAT, begun_ns, s->ops->stat(s, key, ret, e));
}

int store_remove(struct store *s, const char *key, struct err *e)
{
    uint64_t begun_ns = clock_now_ns();

    ASSERT(store_key_valid(key));
    return counted(STORE_REMOVE, begun_ns, s->ops->remove(s, key, e));
}

int store_list(struct store *s, const char *prefix, store_list_fn *each, void *ctx, struct err *e)
{
    uint64_t begun_ns = clock_now_ns();

    ASSERT(prefix[0] == '\0' || prefix[strlen(prefix) - 1] == '/');
    return counted(STORE_LIST, begun_ns, s->ops->list(s, prefix, each, ctx, e));
}

void store_free(struct store *s)
{
    if (s) {
        s->ops->free(s);
    }
}
