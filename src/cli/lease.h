/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease of a sandbox that lives only as long as we do: a thread that moves its timeout ahead. Should we be killed without a
 * chance to remove the sandbox, the gateway removes it when the lease has run out.
 */
#pragma once

#include "cli/cli.h"

#define LEASE_S 3600u
#define LEASE_RENEW_MS (10u * 60 * 1000)
#define LEASE_RETRY_MS (60u * 1000)

struct lease;

/* cli is used only to make a client. */
MUST_CHECK int lease_start(const struct cli *cli, const char *sandbox, struct lease **ret,
                           struct err *e);
void lease_stop(struct lease *lease);
DEFINE_CLEANUP(struct lease *, lease_stop);
