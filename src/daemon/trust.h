/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The authority that a sandbox trusts for connections that are looked into on their way out: as a file of its own, where
 * update-ca-certificates finds it and NODE_EXTRA_CA_CERTS points, and at the end of the system's bundle, which OpenSSL, curl, git and
 * Python read. An image without a bundle gets none: tools would then trust nothing else.
 *
 * The host key by which connections with SSH are looked into is trusted the same way: OpenSSH is told to ask a script, which knows that one key
 * as anybody's and says nothing about others. So a host that shows its own key is as known or unknown as it would be anyway.
 *
 * The disk is the tenant's: nothing is opened through symbolic links, off the disk or of another kind than a plain file, so that a
 * caller in process 1 cannot be kept waiting. Failure is not fatal.
 */
#pragma once

#include "base/util.h"

#define TRUST_PEM_MAX 4096u
/* "ssh-ed25519 " and 68 characters. */
#define TRUST_SSH_MAX 128u

/* In the root's folders, in the place of another organisation's; pem is what setup-spec.c has checked. */
void trust_install(int root_fd, const char *pem);
/* line: "ssh-ed25519 AAAA...", as setup-spec.c has checked it. */
void trust_install_ssh(int root_fd, const char *line);
/* Is there a bundle with the authority in it? Then the variables of trust_env() help. */
bool trust_present(int root_fd);
/* The i-th variable, "K=V"; NULL behind the last. */
const char *trust_env(size_t i);
