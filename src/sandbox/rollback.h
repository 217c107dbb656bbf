/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going back in place: the same sandbox, at an earlier moment.
 *
 *     1. the present stands still and is snapshotted (made_by "rollback"), so that one can return to it
 *     2. meanwhile the past's disk becomes a new subvolume, writable, with the next number (past.h), and
 *     3. a machine comes up on it: from the snapshot's memory, or fresh over its disk
 *     4. one write of the record makes it the sandbox's disk and machine
 *     5. the old machine and the old subvolume go
 *
 * A failure or a crash before 4 leaves the present as it was, after 4 the past is in place; what is left over is
 * removed at once or by recover.c.
 */
#pragma once

#include "sandbox/resident.h"

struct rollback_result {
    char before_id[ID_SIZE]; /* the snapshot of the present as it was */
    bool cold; /* a fresh machine over the disk: a disk snapshot, or memory that does not fit */
};

MUST_CHECK int rollback_to(struct resident *res, const char *snapshot_id,
                           struct rollback_result *ret, struct err *e);
/*
 * With the op lock held, for a sandbox without machine (it ended by itself): comes back from its newest full snapshot,
 * or from its disk when there is none that this node can run. The disk as it was found stays as a snapshot.
 */
MUST_CHECK int rollback_recover(struct resident *res, struct err *e);
/* The same from a given snapshot, for a sandbox that has no present yet (fetch.h). The machine is fresh if need be. */
MUST_CHECK int rollback_enter(struct resident *res, struct snapshot *target, struct err *e);
/* The same without looking at snapshots: a fresh machine over its disk. */
MUST_CHECK int rollback_recover_disk(struct resident *res, struct err *e);
