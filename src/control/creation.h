/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One attempt to make a sandbox, or all children of a fork: its rows are written and held, now the node is asked,
 * and what came of it is published in one transaction together with the answer of the operation. All or nothing:
 * when it fails, the machines and the rows go again.
 *
 * Where several nodes are, the scheduler has chosen one (place.h). When that one says that it is full, or nobody is there, the
 * row gets the next one's name, and that is asked: before anything was promised, and only when nothing can have been left
 * behind.
 *
 * A creation from a template ends early when its client goes or somebody deletes the sandbox. A fork does not:
 * the node makes children one after the other, and one that it has not begun yet cannot be called off; so it is
 * waited for, and then undone.
 */
#pragma once

#include "control/place.h"
#include "control/private.h"

struct creation {
    const struct control_create *what; /* borrowed: the request */
    struct sandbox *sbs;               /* owned, and so are their strings: the rows, by id */
    struct busy_hold **holds;          /* owned: one for each */
    size_t n;
    struct operation op;          /* owned; key "" without an Idempotency-Key */
    char node[SANDBOX_NODE_SIZE]; /* where all of it is asked for */
    struct place place;           /* the search for it; of a new sandbox only */
    uint64_t deadline_ns;
    bool taken_over; /* an earlier attempt may have left something on the node */
};

void creation_done(struct creation *cr);
/* Room for n sandboxes, all zero; holds none yet. */
void creation_resize(struct creation *cr, size_t n);
/* *ret is what the client is told. */
MUST_CHECK int creation_run(struct control *c, const struct control_actor *actor,
                            struct creation *cr, struct control_answer *ret, struct err *e);
