/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Who is asking. A request carries a key as "Authorization: Bearer KEY", "X-API-Key: KEY" or, because
 * browsers cannot set fields on a WebSocket, as the subprotocol "space.key.KEY".
 *
 * Only the SHA-256 of a key is looked up. The answer is kept for AUTH_CACHE_MS, which is how long a
 * key that was revoked elsewhere still works; revoking through this process takes effect at once. A
 * stream that was begun with a key goes on until it ends: revocation stops new requests.
 *
 * Each project may have AUTH_PROJECT_REQUESTS_MAX requests at work at once, streams included, so that one
 * tenant cannot take all threads.
 */
#pragma once

#include "control/control.h"
#include "http/server.h"

#define AUTH_CACHE_MS 2000
#define AUTH_PROJECT_REQUESTS_MAX 256

struct auth;

struct auth *auth_new(struct db *db);
void auth_free(struct auth *auth);
DEFINE_CLEANUP(struct auth *, auth_free);

/* Who a valid key speaks for. */
struct caller {
    struct control_actor actor;
    enum key_scope scope;
};

/* -EKEYREJECTED "unauthorized": no key, none of ours, or a revoked one. */
MUST_CHECK int auth_request(struct auth *auth, const struct http_request *req, struct caller *ret,
                            struct err *e);
/* The same for a key in hand; any string. */
MUST_CHECK int auth_key(struct auth *auth, const char *key, struct caller *ret, struct err *e);
/* Forgets everything that is kept, after a revocation or a change of quota. */
void auth_forget(struct auth *auth);

/* Counts a request of the project; -EUSERS "too_many_requests". Each success is paired with auth_leave(). */
MUST_CHECK int auth_enter(struct auth *auth, const char *project, struct err *e);
void auth_leave(struct auth *auth, const char *project);

/* A new key: *k is filled in (ids, hash, prefix), text receives what is shown once. */
void auth_make_key(struct api_key *k, char text[static KEY_TEXT_SIZE]);
/* SHA-256 in hex. */
void auth_hash(const void *data, size_t len, char ret[static KEY_HASH_SIZE]);
