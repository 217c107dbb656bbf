/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done without being asked: snapshots and backups (backup.h) by each sandbox's policy, their thinning out with age, pausing of idle
 * sandboxes, and making room when the pool runs short. A few threads share the sandboxes, one look a second; a
 * sandbox that is busy with an operation is left for the next look. A guest that does not answer costs the
 * others of its thread two seconds once in a while, and is then left alone for minutes.
 *
 * What is thinned out and what goes when the pool runs short: retention.h. A sandbox whose life time is over is
 * stopped here when the control plane, whose work ending it is, has not done so for a while: no machine works on
 * for ever because a gateway is down.
 *
 * Below a last reserve the sandbox with the largest disk of its own is paused, so that one guest that writes without
 * end stops itself and not everybody. A VMM whose guest has run into a full pool stands still without
 * being asked (QEMU's werror=enospc); when there is room again all are told to go on.
 *
 * What a running guest uses of its machine is asked for in between and kept (usage.h).
 *
 * Idle is what the guest's daemon sees: no command runs, no terminal or file request is open, nothing has
 * asked, and the processor rests. A job that is quiet but works is not idle.
 */
#pragma once

#include "sandbox/node.h"

struct scheduler;

struct scheduler *scheduler_start(struct node *node);
void scheduler_stop(struct scheduler *scheduler);
