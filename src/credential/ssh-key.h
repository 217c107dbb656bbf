/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private key as OpenSSH writes it ("-----BEGIN OPENSSH PRIVATE KEY-----", PROTOCOL.key), without a passphrase: Ed25519,
 * ECDSA over the curves of NIST, RSA of SSH_KEY_RSA_BITS_MIN bits or more. Reading and signing, nothing else: no I/O, no state.
 */
#pragma once

#include "base/err.h"
#include "credential/secret.h"
#include "wire/ssh-agent.h"

#define SSH_KEY_RSA_BITS_MIN 3072u
#define SSH_KEY_RSA_BITS_MAX 8192u
/* The public half of an RSA key of 8192 bits, and its signature, with their names. */
#define SSH_KEY_BLOB_MAX 2048u

struct ssh_key {
    struct secret bytes;      /* owned: all the rest points in here */
    const char *name;         /* static: "ssh-ed25519" */
    struct ssh_view public;   /* as it travels */
    struct ssh_view parts[6]; /* private: as the kind of key has them */
};

#define cleanup_ssh_key CLEANUP(ssh_key_done)

/* -EINVAL naming "value": what is wrong with it, never what it is. */
MUST_CHECK int ssh_key_parse(const char *pem, size_t len, struct ssh_key *ret, struct err *e);
void ssh_key_done(struct ssh_key *key);
/* Is it one of the ways to sign that this key has? SHA-1 is none. */
bool ssh_key_signs(const struct ssh_key *key, struct ssh_view algorithm);
/* The signature as it travels: its algorithm, and its bytes. -EINVAL. */
MUST_CHECK int ssh_key_sign(const struct ssh_key *key, struct ssh_view algorithm,
                            struct ssh_view data, struct buf *ret, struct err *e);
/* A new Ed25519 key as such a file. */
MUST_CHECK int ssh_key_generate(struct buf *ret, struct err *e);
/* "ssh-ed25519 AAAA..." */
MUST_CHECK int ssh_key_public_text(const struct ssh_key *key, struct buf *ret);
