/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine of a full snapshot, its processes going on. The ways, the fastest first:
 *
 *     stock     a VMM that waits over the base machine's memory; the checkpoint's pages are written into it
 *     delta     the same with a VMM that is started now
 *     mapped    the checkpoint's memory file itself is mapped: for much private memory, and for checkpoints of
 *               machines that did not come from today's base machine
 */
#pragma once

#include "sandbox/bring.h"

/* Borrowed for the call. */
struct restore_source {
    const char *owner; /* whose full snapshot n it is */
    uint32_t n;
    struct bring_identity identity;
    /* Makes the subvolume of res's disk and opens it as res->disk_fd. */
    int (*make_disk)(struct resident *res, void *arg, struct err *e);
    void *arg;
};

/* With the op lock. On failure the caller ends and removes what there is. */
MUST_CHECK int restore_machine(struct resident *res, const struct restore_source *source,
                               uint64_t deadline_ns, struct err *e);
