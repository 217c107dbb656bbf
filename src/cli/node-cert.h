/* SPDX-License-Identifier: Apache-2.0 */
/* The key and certificate of a node in its folder (--node-tls): what is asked of the authority, and what comes back. */
#pragma once

#include "http/issue.h"

/* A request for the public half of key, signed with it; the caller frees *ret_pem. */
MUST_CHECK int node_cert_request(EVP_PKEY *key, const char *name, char **ret_pem, struct err *e);
/*
 * Reads cert.pem and key.pem; *ret_name is the node's, out of the certificate. The caller frees all. -ENOENT: there are none;
 * -EBADMSG: they are no pair.
 */
MUST_CHECK int node_cert_read(int dir_fd, char **ret_pem, EVP_PKEY **ret_key, char **ret_name,
                              int *ret_days_left, struct err *e);
/*
 * Writes what the authority answered: cert.pem, ca.pem, and key.pem, for the user alone. with_key false: the key is there. uid:
 * whose they are; -1: ours. -EBADMSG: it is no certificate for this key, then nothing was written.
 */
struct node_cert_answer {
    const char *certificate; /* PEM */
    const char *authority;   /* PEM */
    bool with_key;
    uid_t uid;
};
MUST_CHECK int node_cert_write(int dir_fd, const struct node_cert_answer *answer, EVP_PKEY *key,
                               struct err *e);
