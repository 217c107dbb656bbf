/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which snapshots go without being asked: those that a policy thins out with age, and, when the pool runs short, the
 * oldest on the node that nobody needs. Each goes with its reason in the sandbox's history.
 *
 * Never touched: what people made or marked, the newest of each kind in a sandbox's own past (what one would go
 * back to), and for a day the present that a rollback left or a recovery found. Deleting one never hurts another: see
 * snapshot.h.
 */
#pragma once

#include "sandbox/resident.h"

/* By the sandbox's policy. With the op lock held. True: there is more to be done, at another time. */
bool retention_thin(struct resident *res, uint64_t now_ms);
/* Is there less room in the pool than it should have? What cannot be read is not short. */
bool retention_pool_is_short(const struct node *node);
/*
 * Removes the oldest one on the node that nobody needs, whatever the policies. A sandbox that an operation holds is
 * passed over. False: there is none.
 */
bool retention_make_room(struct node *node);
