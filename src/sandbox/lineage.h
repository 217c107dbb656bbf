/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots form a tree: each has a parent, the one that the present came after when it was taken, and the present has
 * one, too. What was rolled back from is a branch beside the present's past. A fork's tree begins at a snapshot of
 * the sandbox that it was forked from (record.origin), on this node.
 *
 *     n1 -- n2 -- n3 -- n6 -- (present)      past: n6, n3, n2, n1
 *             \-- n4 -- n5                   rolled back from
 *
 * A deleted snapshot is taken out of the tree: what came after it comes after its parent, on disk, too, so that no
 * walk into the past ends at a gap. All with the op lock held.
 */
#pragma once

#include "sandbox/resident.h"

/* Did the present come after this one? */
bool lineage_is_past(const struct resident *res, const struct snapshot *snap);
/*
 * Before its manifest goes. An error: it must stay, for what comes after it cannot be written down. In a pool that is
 * full that is no error, since deleting is what makes room in it; it is true in memory then.
 */
MUST_CHECK int lineage_take_out(struct resident *res, const struct snapshot *snap, struct err *e);
/*
 * Which snapshot of which sandbox a fork's life began after. False: it is no fork, its parent has gone, or there was no
 * snapshot before. Takes the parent's op lock: the caller must hold none.
 */
bool lineage_origin(struct resident *res, char ret_sandbox[static ID_SIZE],
                    char ret_snapshot[static ID_SIZE]);
