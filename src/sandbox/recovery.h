/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings back sandboxes whose machine ended by itself: from their newest full snapshot, or fresh over their
 * disk. One at a time in a thread of its own, so that neither the watch over the others nor the start of
 * the service waits for it. A sandbox that keeps dying is left failed, with the reason.
 */
#pragma once

#include "sandbox/node.h"

#define RECOVERY_TRIES 3
#define RECOVERY_WINDOW_MS (10u * 60 * 1000)

struct recovery;

struct recovery *recovery_start(struct node *node);
/* Waits for the one that is being brought back. */
void recovery_stop(struct recovery *recovery);
/* There may be something to do: a sandbox has wants_recovery. */
void recovery_wake(struct recovery *recovery);
