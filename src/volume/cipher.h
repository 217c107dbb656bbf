/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How chunks and manifests are encrypted. AES-256-GCM throughout; pure.
 *
 * Each tenant (organisation) has a secret of its own, wrapped by its key in the key management service. The packed bytes of a
 * chunk give, keyed with that secret, the chunk's name and the chunk's key:
 *
 *     digest = SHA-256(packed)     name = HMAC(secret, "name" | digest)     key = HMAC(secret, "key" | digest)
 *
 * The same bytes have the same name within a tenant, and are stored once; no one without the secret can tell from
 * a name what is in a chunk, nor whether two tenants have the same. A key encrypts one text only, so
 * the nonce is constant. The name and the length are additional data.
 *
 * The keys of the chunks stand in the manifest, which is sealed with a data key of its own (manifest.h). So who has the
 * manifest's data key can read that snapshot, without the tenant's secret, and what is bound to what (sandbox, snapshot,
 * file, place, size) is what the one seal over the manifest binds. A chunk that is changed, cut or swapped for another has
 * not the key that its place in the manifest names, and is refused.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "credential/secret.h"

#define CIPHER_KEY_SIZE 32u
#define CIPHER_TAG_SIZE 16u
#define CIPHER_NONCE_SIZE 12u
#define CIPHER_NAME_SIZE 65u /* hex and a NUL */

struct chunk_id {
    char name[CIPHER_NAME_SIZE];
    unsigned char key[CIPHER_KEY_SIZE];
};

void cipher_chunk_id(const struct secret *tenant, const void *packed, size_t len,
                     struct chunk_id *ret);
/* Into ret, which has room for len + CIPHER_TAG_SIZE; returns that. */
size_t cipher_seal_chunk(const struct chunk_id *id, const void *packed, size_t len, void *ret);
/* Into ret (len - CIPHER_TAG_SIZE bytes). -EBADMSG: not this chunk, or changed. */
MUST_CHECK int cipher_open_chunk(const struct chunk_id *id, const void *sealed, size_t len,
                                 void *ret);

/* A whole text under a data key, bound to what `about` says; nonce | text | tag is appended. -E2BIG. */
MUST_CHECK int cipher_seal(const struct secret *key, const char *about, const void *data,
                           size_t len, struct buf *ret);
/* Appends the text. -EBADMSG: another key, another `about`, or changed. */
MUST_CHECK int cipher_open(const struct secret *key, const char *about, const void *sealed,
                           size_t len, struct buf *ret);
/* A new random key. */
void cipher_new_key(struct secret *ret);
/* Lower-case hex of SHA-256. */
void cipher_sha256_hex(const void *data, size_t len, char ret[static CIPHER_NAME_SIZE]);
