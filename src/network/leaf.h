/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the guest's TLS is answered with: one P-256 key for the life of this process, and for each organisation and name a
 * certificate that the credential manager's authority has signed for it. Certificates are kept until half of their life is over,
 * the least recently used makes room. Thread-safe.
 */
#pragma once

#include <openssl/ssl.h>

#include "credential/client.h"

#define LEAVES_MAX 1024u
/* Half of the seven days that a leaf is good for. */
#define LEAF_KEEP_S (84u * 3600)

struct leaves;

/* client is borrowed and lives longer. */
MUST_CHECK int leaves_new(struct credential_client *client, struct leaves **ret, struct err *e);
void leaves_free(struct leaves *l);
DEFINE_CLEANUP(struct leaves *, leaves_free);

/* A context of its own reference: SSL_CTX_free(). May ask the credential manager: blocks. */
MUST_CHECK int leaves_get(struct leaves *l, const char *organisation, const char *name,
                          SSL_CTX **ret, struct err *e);
