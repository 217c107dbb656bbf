/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children of a sandbox: each a sandbox of its own from then on, sharing disk blocks and memory with its parent
 * until they differ.
 *
 *     from a running or paused parent     it is snapshotted in full (a pause of some ms), children resume its processes
 *     from a full snapshot                the same, without the parent
 *     from a disk snapshot, or a parent   children start fresh over that disk
 *     without a machine
 *
 * Each child is wholly there or not at all: on a failure, those that are there already are removed.
 */
#pragma once

#include "sandbox/resident.h"

#define FORK_CHILDREN_MAX 100

struct fork_wish {
    const char (*ids)[ID_SIZE]; /* borrowed: the children's ids, made by the caller */
    size_t n;
    const char *snapshot; /* borrowed; NULL: the present */
    const json_t *env;    /* borrowed; NULL: the parent's */
    int64_t end_at_ms;    /* of their lives; 0: never */
    enum sandbox_at_end at_end;
};

/* Children in the order of their ids, each with a reference in ret[0..n). Idempotent by the children's ids. */
MUST_CHECK int fork_sandbox(struct resident *parent, const struct fork_wish *wish,
                            struct resident **ret, struct err *e);
