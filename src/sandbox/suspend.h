/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suspending: a full snapshot goes to the object store, and then this node holds nothing of the sandbox any more. Coming
 * back from there, on this node or another, is fetch.h.
 *
 *     1. record(suspending), the machine stands still, a full snapshot
 *     2. the volume manager (volume/client.h) stores it: record and history ("meta"), disk, memory, devices; of disk and
 *        memory only what differs from the template and the base machine. It says so when all of it was read back
 *     3. record(suspended): the point of no return
 *     4. machine, disk, snapshots, history and record go
 *
 * A failure before 3 lets the sandbox go on where it was, a crash before 3 lets it run (recover.c). After 3, recover.c goes
 * on with 4. What an attempt that failed has put into the store is found there by the next one, or collected.
 */
#pragma once

#include "sandbox/resident.h"

/* From the copy of the first chunk to the manifest; less than COLLECT_GRACE_MS of volume/collect.h. */
#define SUSPEND_DEADLINE_MS (30ull * 60 * 1000)

struct suspend_wish {
    /* Snapshots that have a name, or are to be kept, go with the node's part; without it: -ESTALE "snapshots_kept". */
    bool drop_snapshots;
};

/*
 * *ret is what the volume manager says of it, for json_decref(). -ESTALE "conflict": it is neither running nor paused.
 * After an error it is as it was.
 */
MUST_CHECK int suspend_sandbox(struct resident *res, const struct suspend_wish *wish, json_t **ret,
                               struct err *e);
/* Since when is it stored? {"modified_ms"}. -ENOENT "not_stored"; -EHOSTDOWN "volume_manager_unavailable". */
MUST_CHECK int suspend_age(const struct node *node, const char *organisation, const char *id,
                           json_t **ret, struct err *e);
/* Removes what is stored of it. Fine when there is nothing, and where there never was a volume manager. */
MUST_CHECK int suspend_forget(const struct node *node, const char *organisation, const char *id,
                              struct err *e);
