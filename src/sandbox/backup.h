/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continuous backup: by its policy (backup_every_s) a running sandbox's state goes to the object store while it runs, so that a node
 * that dies takes no more of it along than what happened since.
 *
 *     1. with the op lock: record(durable_at_ms), a full snapshot, its files opened (parts.h)
 *     2. without it: the volume manager stores them; what is stored is replaced in one step, so a failed attempt leaves
 *        the state before
 *     3. the snapshot stays as the sandbox's newest, the one of the backup before goes
 *
 * One transfer of a sandbox at a time: whoever suspends, deletes or leaves it ends a backup under way first, and waits for that
 * (backup_end()). A node that is fenced begins none and ends those under way: what is stored then belongs to whoever restores it.
 */
#pragma once

#include "sandbox/resident.h"

/* If it is due. Takes the op lock; a sandbox that an operation holds is left for the next look. Blocks while bytes travel. */
void backup_look(struct resident *res, uint64_t now_ms, bool (*stop)(void *arg), void *arg);
/* Ends one under way and waits for it. With the op lock held, so that none begins meanwhile. */
void backup_end(struct resident *res);
