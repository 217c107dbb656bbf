/* SPDX-License-Identifier: Apache-2.0 */
/* The token behind kms-pkcs11.c: module, session, keys. */
#pragma once

#include "volume/kms-pkcs11.h"

#include <p11-kit/pkcs11.h>
#include <pthread.h>

#define PKCS11_VERSIONS_MAX 256u

struct pkcs11 {
    struct kms base;
    void *library;       /* owned: dlopen */
    CK_FUNCTION_LIST *f; /* the module's */
    char *token;         /* owned, as the next */
    char *pin_file;
    pthread_mutex_t lock; /* one session at a time */
};

/* Opens a session and logs in. *ret is closed with f->C_CloseSession(). */
MUST_CHECK int pkcs11_begin(struct pkcs11 *p, CK_SESSION_HANDLE *ret, struct err *e);

struct pkcs11_key {
    CK_OBJECT_HANDLE handle;
    uint32_t version;
};
/* All versions of an organisation's key, in no order; returns how many, at most PKCS11_VERSIONS_MAX. */
MUST_CHECK int pkcs11_find(struct pkcs11 *p, CK_SESSION_HANDLE session, const char *organisation,
                           struct pkcs11_key ret[static PKCS11_VERSIONS_MAX], struct err *e);
MUST_CHECK int pkcs11_generate(struct pkcs11 *p, CK_SESSION_HANDLE session,
                               const char *organisation, struct pkcs11_key *ret_key, struct err *e);
/* The error for a return value that is not CKR_OK. */
int pkcs11_failed(CK_RV rv, const char *doing, const char *organisation, struct err *e);
