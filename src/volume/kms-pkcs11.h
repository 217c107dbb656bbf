/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys in a token behind a PKCS#11 module: an HSM, or SoftHSM in tests. The key of an organisation is one or more AES-256 secret
 * keys with the label "space-ORGANISATION" and the version as id (CKA_ID, four bytes, big endian): sensitive, not
 * extractable, made in the token. It wraps with AES-GCM in the token; a wrapped text is "pkcs11:VERSION:BASE64" of
 * nonce, cipher text and tag. Which organisation and data key it is for is additional data.
 *
 * The module is loaded into this process and trusted like it. Sessions are opened for each use, so that a token that was away, or
 * whose PIN was changed, needs no restart. An operator revokes by clearing CKA_DECRYPT and CKA_ENCRYPT of the key.
 */
#pragma once

#include "volume/kms.h"

/* All borrowed for the call. */
struct kms_pkcs11_opts {
    const char *module;   /* "/usr/lib/softhsm/libsofthsm2.so" */
    const char *token;    /* its label */
    const char *pin_file; /* read for each login */
};

/* Loads the module; the token may come later. -EINVAL, -ENOENT. */
MUST_CHECK int kms_pkcs11_open(const struct kms_pkcs11_opts *opts, struct kms **ret, struct err *e);
