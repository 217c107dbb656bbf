/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations on a sandbox. Each takes the sandbox's op lock, so that conflicting requests wait for each
 * other; each is idempotent; each leaves either its result or nothing.
 *
 *     create   record(creating) -> subvolume -> disk clone -> machine -> guest set-up -> record(running)
 *     stop     record(stopping) -> guest torn down -> machine gone -> record(stopped)
 *     start    record(resuming) -> machine over the old disk -> guest set-up -> record(running)
 *     delete   record(deleting) -> machine gone -> subvolume gone -> record gone
 *
 * After a crash recover.c finishes what the record says was under way: creating and deleting end as
 * deleted (a create that was not answered never happened), stopping as stopped, resuming as failed.
 */
#pragma once

#include "sandbox/resident.h"

/* Asked between steps: true ends a create early, because nobody waits for it any more. */
struct lifecycle_caller {
    bool (*gone)(void *arg);
    void *arg;
};

/*
 * 0: *ret (a reference) is running; *ret_existed tells that it was there already. -EEXIST "sandbox_exists": the
 * id is taken by one with another spec. -ECANCELED: the caller has gone, nothing is left.
 */
MUST_CHECK int lifecycle_create(struct node *node, const struct record *rec,
                                const struct lifecycle_caller *caller, struct resident **ret,
                                bool *ret_existed, struct err *e);
MUST_CHECK int lifecycle_stop(struct resident *res, struct err *e);
/* With the op lock held: goes on with a stop that could not be finished. */
void lifecycle_finish_stop(struct resident *res);
MUST_CHECK int lifecycle_start(struct resident *res, struct err *e);
MUST_CHECK int lifecycle_delete(struct resident *res, struct err *e);
/* As above, but what is in the object store stays: the sandbox is on another node, and that is all there is of it. */
MUST_CHECK int lifecycle_leave(struct resident *res, struct err *e);
/* With the op lock held: the machine has ended by itself; the sandbox becomes failed. */
void lifecycle_machine_died(struct resident *res);
/* With the op lock held (or before anyone else knows the sandbox): removes all there is of it. */
MUST_CHECK int lifecycle_remove_all(struct resident *res, struct err *e);
