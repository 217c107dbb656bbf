/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key management services behind one interface: a sealed file here (kms-local.c), Vault or OpenBao Transit
 * (kms-transit.c), AWS KMS (kms-aws.c), a PKCS#11 module (kms-pkcs11.c). conformance-kms.c holds what is true of each.
 *
 * A service has one key-encryption key for each organisation, which never leaves it (of the local one: never
 * leaves this process and its sealed file). It wraps data keys; wrapped text is KMS_WRAPPED_MAX printable bytes at most,
 * and bound to the organisation and to what the data key is for. Wrapping uses the newest version of the organisation's key,
 * making it when there is none; unwrapping uses the version that the text names.
 *
 * Nothing is cached here: a key that is revoked fails the next unwrap. Thread-safe.
 *
 * Codes meant for callers: -EACCES "key_refused": the key is revoked, disabled or deleted, or the service does not let us;
 * -EHOSTDOWN "key_service_unavailable"; -EBADMSG "key_damaged": the text is not what the service once gave.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"
#include "credential/secret.h"

#define KMS_WRAPPED_MAX 2048u

struct kms;

struct kms_use {
    const char *organisation; /* borrowed; a valid id */
    const char *key_id;       /* borrowed; what the data key is bound to */
};

struct kms_ops {
    const char *name;
    MUST_CHECK int (*wrap)(struct kms *k, const struct kms_use *use, const struct secret *key,
                           struct buf *ret, struct err *e);
    MUST_CHECK int (*unwrap)(struct kms *k, const struct kms_use *use, const char *wrapped,
                             struct secret *ret, struct err *e);
    /* A new version; old ones go on unwrapping. */
    MUST_CHECK int (*rotate)(struct kms *k, const char *organisation, struct err *e);
    /* The organisation's key and all that it has wrapped are unreadable for ever. Fine when there is none. */
    MUST_CHECK int (*destroy)(struct kms *k, const char *organisation, struct err *e);
    void (*free)(struct kms *k);
};

struct kms {
    const struct kms_ops *ops; /* static */
};

MUST_CHECK int kms_wrap(struct kms *k, const struct kms_use *use, const struct secret *key,
                        struct buf *ret, struct err *e);
MUST_CHECK int kms_unwrap(struct kms *k, const struct kms_use *use, const char *wrapped,
                          struct secret *ret, struct err *e);
MUST_CHECK int kms_rotate(struct kms *k, const char *organisation, struct err *e);
MUST_CHECK int kms_destroy(struct kms *k, const char *organisation, struct err *e);
/* What is asked of them is counted from then on; see base/metric.h. */
void kms_metrics_register(void);
void kms_free(struct kms *k);
DEFINE_CLEANUP(struct kms *, kms_free);

int kms_refused(const char *organisation, const char *why, struct err *e);
int kms_damaged(struct err *e);

/* A folder with a root key (made when it is not there) and, sealed under it, a file of key versions for each organisation. */
MUST_CHECK int kms_local_open(const char *dir, struct kms **ret, struct err *e);
