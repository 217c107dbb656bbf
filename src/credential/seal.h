/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing: AES-256-GCM over a few bytes, bound to a name, so that a sealed file put in another's place does not open.
 *
 *     "SPACE1" | nonce (12) | cipher text | tag (16)        additional data: the name
 *
 * Nonces are random: safe for 2^32 seals under one key, far beyond what a node ever writes.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "credential/secret.h"

#define SEAL_KEY_SIZE 32u
#define SEAL_OVERHEAD 34u

struct seal_key {
    struct secret bytes; /* owned */
};

/*
 * Reads a key of 32 bytes, or 64 hex digits and a line's end. With create set it makes one (mode 0600) when the file is not
 * there. -EINVAL: not a key. -EACCES: others may read the file.
 */
MUST_CHECK int seal_key_load(const char *path, bool create, struct seal_key *ret, struct err *e);
void seal_key_done(struct seal_key *key);

/* Appends the sealed bytes; -E2BIG. */
MUST_CHECK int seal(const struct seal_key *key, const char *name, const void *data, size_t len,
                    struct buf *ret);
/* -EBADMSG: not sealed with this key and name, or changed since. */
MUST_CHECK int unseal(const struct seal_key *key, const char *name, const void *data, size_t len,
                      struct secret *ret);
