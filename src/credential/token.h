/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens that are fetched with a secret and live for a while: OAuth 2 (RFC 6749: client credentials, refresh token) and
 * installation tokens of a GitHub App. They are kept in locked memory until shortly before they end, per credential and
 * version of its secret; two requests that need the same one fetch it once.
 *
 * A tenant chooses the address that is asked. It is https, verified as always, and, unless the operator allows it, neither
 * private nor ours (post.h). Thread-safe; blocks for POST_MS at most.
 */
#pragma once

#include "credential/credential.h"
#include "credential/post.h"
#include "credential/secret.h"

/* A token that ends sooner than that is not used any more. */
#define TOKEN_SPARE_S 60
/* When the server does not say how long it is good. */
#define TOKEN_DEFAULT_S 300

struct tokens;

struct tokens *tokens_new(const struct post_opts *opts);
void tokens_free(struct tokens *t);
DEFINE_CLEANUP(struct tokens *, tokens_free);

/*
 * The token for the credential, whose secret is `secret`. *ret_refresh is set when the server has given a new refresh token
 * in place of the old one, which has to be stored before anything else. -EHOSTDOWN "token_unavailable", -EACCES
 * "token_refused".
 */
MUST_CHECK int tokens_get(struct tokens *t, const struct credential *c, const struct secret *secret,
                          struct secret *ret, struct secret *ret_refresh, struct err *e);
/* Forgets what is kept for a credential: it was rotated, changed or removed. */
void tokens_forget(struct tokens *t, const char *id);

/* Pure, for tests: the signed assertion (RS256) of a GitHub App. key: PEM. */
MUST_CHECK int token_github_assertion(const char *app, const struct secret *key, uint64_t now_s,
                                      struct buf *ret, struct err *e);
