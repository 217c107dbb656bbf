/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings back sandboxes whose machine ended by itself: from their newest full snapshot, or fresh over their
 * disk. A few at a time, in threads of their own, so that neither the watch over the others nor the start of
 * the service waits for them, and a host that comes up again with many is not brought down by all at once. A sandbox that keeps dying is left failed, with the reason.
 */
#pragma once

#include "sandbox/node.h"

#define RECOVERY_AT_ONCE \
    4 /* a VMM's start is work for the processor: more at once make all of them late */
#define RECOVERY_TRIES 3
#define RECOVERY_WINDOW_MS (10u * 60 * 1000)

struct recovery;

struct recovery *recovery_start(struct node *node);
/* Waits for those that are being brought back. */
void recovery_stop(struct recovery *recovery);
/* There may be something to do: a sandbox has wants_recovery. */
void recovery_wake(struct recovery *recovery);
