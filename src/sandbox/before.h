/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk snapshot before each command, for sandboxes whose policy wants it, tagged with the command: `space bisect`
 * then names the command after which a test fails, and a rollback undoes it.
 *
 * The command's id is chosen here, before it exists; the daemon takes it over (header x-space-command). A command that
 * the daemon then refuses leaves a snapshot all the same, which thinning takes with the others.
 */
#pragma once

#include "sandbox/resident.h"

/* To the daemon, in the lower case that HTTP/2 wants. Never passed on from clients. */
#define BEFORE_HEADER "x-space-command"

/*
 * Takes the op lock. *ret is the id that the command must get; "" when the policy wants no snapshot, or the sandbox does
 * not run. An error means that there is none, and the command must not start.
 */
MUST_CHECK int before_command(struct resident *res, char ret[static ID_SIZE], struct err *e);
