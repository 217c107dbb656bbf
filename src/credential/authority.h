/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The certificate authority of each organisation, for connections that are looked into. Its key is made at first need,
 * sealed in our vault, and never leaves this process: whoever holds a connection makes a key of its own, sends the public half
 * and a name, and gets a certificate for them that lasts AUTHORITY_LEAF_DAYS.
 *
 * The authority's certificate is not secret; it goes into the guests' trust stores. It may sign server certificates only
 * (path length 0), and only the sandboxes of its own organisation trust it. Thread-safe.
 */
#pragma once

#include "base/err.h"
#include "credential/vault.h"

#define AUTHORITY_YEARS 10
#define AUTHORITY_LEAF_DAYS 7
#define AUTHORITY_PEM_MAX 4096u
/* SubjectPublicKeyInfo of a P-256 key is 91 bytes; others are not wanted. */
#define AUTHORITY_SPKI_MAX 128u

struct authority;

/* vault is borrowed and lives longer. */
struct authority *authority_new(struct vault *vault);
void authority_free(struct authority *a);
DEFINE_CLEANUP(struct authority *, authority_free);

/* The certificate of the organisation's authority, which is made if there is none yet. *ret_new: it was. */
MUST_CHECK int authority_certificate(struct authority *a, const char *organisation, struct buf *ret,
                                     bool *ret_new, struct err *e);
/* A certificate for a name (or an address in four numbers) and a public key (DER). -EINVAL. */
MUST_CHECK int authority_sign(struct authority *a, const char *organisation, const char *name,
                              const void *spki, size_t len, struct buf *ret, struct err *e);
