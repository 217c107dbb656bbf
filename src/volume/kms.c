/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/kms.h"

#include "base/clock.h"
#include "base/metric.h"

enum kms_op {
    KMS_WRAP,
    KMS_UNWRAP,
    KMS_ROTATE,
    KMS_DESTROY,
    KMS_OP_COUNT_
};

static const char *const op_labels[KMS_OP_COUNT_] = {"wrap", "unwrap", "rotate", "destroy"};

static struct metric requests = {
    .name = "space_volume_key_seconds",
    .help = "What was asked of the key management service, by operation and outcome.",
    .type = METRIC_HISTOGRAM,
    .labels = {{"operation", op_labels, ARRAY_SIZE(op_labels)}, METRIC_OUTCOMES},
    .quiet = true,
};

void kms_metrics_register(void)
{
    metric_register(&requests);
}

static int counted(enum kms_op op, uint64_t begun_ns, int r)
{
    metric_observe(&requests, METRIC_AT(op, metric_outcome(MIN(r, 0))), clock_now_ns() - begun_ns);
    return r;
}

int kms_wrap(struct kms *k, const struct kms_use *use, const struct secret *key, struct buf *ret,
             struct err *e)
{
    uint64_t begun_ns = clock_now_ns();

    ASSERT(id_valid(ID_ORGANISATION, use->organisation));
    return counted(KMS_WRAP, begun_ns, k->ops->wrap(k, use, key, ret, e));
}

int kms_unwrap(struct kms *k, const struct kms_use *use, const char *wrapped, struct secret *ret,
               struct err *e)
{
    uint64_t begun_ns = clock_now_ns();

    ASSERT(id_valid(ID_ORGANISATION, use->organisation));
    return counted(KMS_UNWRAP, begun_ns, k->ops->unwrap(k, use, wrapped, ret, e));
}

int kms_rotate(struct kms *k, const char *organisation, struct err *e)
{
    uint64_t begun_ns = clock_now_ns();

    ASSERT(id_valid(ID_ORGANISATION, organisation));
    return counted(KMS_ROTATE, begun_ns, k->ops->rotate(k, organisation, e));
}

int kms_destroy(struct kms *k, const char *organisation, struct err *e)
{
    uint64_t begun_ns = clock_now_ns();

    ASSERT(id_valid(ID_ORGANISATION, organisation));
    return counted(KMS_DESTROY, begun_ns, k->ops->destroy(k, organisation, e));
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
