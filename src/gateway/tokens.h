/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens that open one sandbox's inside: what a client shows instead of an API key to whoever reaches
 * the sandbox by its own address.
 *
 *     kind     | shown in                        | opens
 *     ENVD     | X-Access-Token, file signatures | files, processes, terminals (port 49983)
 *     TRAFFIC  | E2b-Traffic-Access-Token        | every other port, when its traffic is not public
 *     UPLOAD   | the address of a file of a     | that template's uploads; here the id is the template's
 *              | template's build               |
 *
 * Nothing is stored: a token is "envd_" resp. "traffic_" and the HMAC-SHA256, in hex, of kind and sandbox id
 * under a secret of the gateway. It is the same each time, and good for as long as the sandbox lives; a fork has
 * an id, and so tokens, of its own. The secret is a file of 32 random bytes in the gateway's state folder,
 * made once, readable by the gateway alone. Gateways over one database agree on the secret of the first of them, which
 * is in the database then. Who replaces it revokes every token.
 *
 * Threads: immutable once opened.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"
#include "database/database.h"

enum token_kind {
    TOKEN_ENVD,
    TOKEN_TRAFFIC,
    TOKEN_UPLOAD,
    TOKEN_KIND_COUNT_
};

#define TOKEN_SIZE 80 /* with the NUL */

struct tokens;

/* The secret of state_dir, which is made when it is not there. -EBADMSG: the file is not one of ours. */
MUST_CHECK int tokens_open(const char *state_dir, struct tokens **ret, struct err *e);
/* Before the first use: all gateways of the database have one secret afterwards. */
MUST_CHECK int tokens_share(struct tokens *t, struct db *db, struct err *e);
void tokens_free(struct tokens *t);
DEFINE_CLEANUP(struct tokens *, tokens_free);

void tokens_make(const struct tokens *t, enum token_kind kind, const char *sandbox,
                 char ret[static TOKEN_SIZE]);
/* Any bytes, or NULL, in time that does not depend on them. */
bool tokens_check(const struct tokens *t, enum token_kind kind, const char *sandbox,
                  const char *token);
