/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing a suspended sandbox back, on whatever node it is asked of: the inverse of suspend.h.
 *
 *     1. "meta" is fetched and read: record, snapshot, history
 *     2. record(restoring), then disk, memory and devices are fetched into their places
 *     3. they become the full snapshot that they were
 *     4. the sandbox goes back to it (rollback.h): its processes go on; on a node that cannot run the memory, a fresh machine
 *        starts over the disk, and the history says so
 *
 * A failure or a crash before 4 leaves nothing here, and what is in the store as it was. What is stored stays until the
 * next suspend replaces it or the sandbox is deleted: it is the last durable state.
 */
#pragma once

#include "sandbox/resident.h"

struct fetch_wish {
    const char *id;           /* borrowed, as the next; both valid */
    const char *organisation; /* whose it is */
    bool
        need_memory; /* rather refuse than start afresh from the disk: -ENOTSUP "memory_does_not_fit" */
};

/*
 * *ret (a reference) is running. Running already is fine. -ENOENT "not_stored"; "manifest_damaged", "chunk_damaged",
 * "key_refused", "store_unavailable" and others of the volume manager; -ENOSPC, -ENOMEM.
 */
MUST_CHECK int fetch_sandbox(struct node *node, const struct fetch_wish *wish,
                             struct resident **ret, struct err *e);
