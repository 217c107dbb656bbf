/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The authority that signs certificates of nodes that join: ca.pem and ca-key.pem of a folder, as space-certificates makes
 * them. What a certificate says is ours, never the request's: the node's name, the host of its address, for servers only, 90
 * days. Of a request only the key counts, and that its owner has signed it.
 *
 * Requests come from whoever has a token, or from who claims to be a node: their bytes are parsed here, by OpenSSL, bounded.
 * Thread-safe.
 */
#pragma once

#include "base/err.h"
#include "base/util.h"

struct node_authority;

/* PEM of a request or a certificate is at most so long. */
#define NODE_PEM_MAX 8192u
#define NODE_CERT_DAYS 90

/* Reads the files once. -EINVAL: they are no authority. */
MUST_CHECK int node_authority_open(const char *dir, struct node_authority **ret, struct err *e);
void node_authority_free(struct node_authority *a);
DEFINE_CLEANUP(struct node_authority *, node_authority_free);

/* Its certificate, PEM. */
const char *node_authority_pem(const struct node_authority *a);

struct node_request {
    const char *csr;  /* PKCS #10, PEM */
    const char *name; /* the node's, checked */
    const char *host; /* of its address */
};
/* -EINVAL "invalid_csr": it is none, its key is none of P-256, P-384, Ed25519, RSA of 3072 to 8192 bits, or did not sign it. */
MUST_CHECK int node_authority_issue(struct node_authority *a, const struct node_request *req,
                                    char **ret_pem, struct err *e);
/*
 * Is this a certificate that we gave the node of that name, which is good still, and whose key has made the request, too?
 * -EACCES "certificate_refused".
 */
MUST_CHECK int node_authority_knows(struct node_authority *a, const struct node_request *req,
                                    const char *certificate, struct err *e);
