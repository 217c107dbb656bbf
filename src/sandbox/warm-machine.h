/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One warm machine: started from the base machine of its shape, running, and nobody's yet.
 *
 *     plain     has an empty disk file and has rehearsed: mounted a clone, run a command, unmounted. Any template
 *               can be cloned into its disk
 *     dressed   a plain one that has gone on: its disk is a clone of one template at one size, mounted and grown,
 *               and a command of that template has run. Only its identity is missing
 *
 *     blank     a VMM over the base machine's memory that waits for a device state: for restores and forks. Its guest does
 *               not run; disk and device state are files of its folder, filled when it is known with what
 *
 * It is a resident in no list, in a folder of its own below sandboxes/, without a record: recover.c ends and
 * sweeps what is left of it after a crash.
 */
#pragma once

#include "sandbox/resident.h"
#include "sandbox/template.h"

/* NULL with the reason in e. Takes as long as a machine's start and rehearsal: 0.5 s when idle, emulated. */
struct resident *warm_machine_new(struct node *node, unsigned vcpus, unsigned memory_mib,
                                  struct err *e);
/* Of a plain one. On failure it is good for nothing but warm_machine_discard(). */
MUST_CHECK int warm_machine_dress(struct resident *res, const struct template *t, unsigned disk_mib,
                                  struct err *e);
/* A blank one; shape.disk_mib counts, too. */
struct resident *warm_machine_blank(struct node *node, const struct shape *shape, struct err *e);
/* Its VMM lives and its guest, if it has one, answers. */
bool warm_machine_is_fresh(const struct resident *res);
/* The device state of a blank one, to be written: once, before it is given. */
MUST_CHECK int warm_machine_device(const struct resident *res, struct err *e);
/* Ends it and removes its folder. */
void warm_machine_discard(struct resident *res);
/*
 * Makes machine, channel and open disk those of the sandbox `to`, and its folder the place of to's disk. On failure
 * `from` is discarded. `from` is taken.
 */
MUST_CHECK int warm_machine_give(struct resident *from, struct resident *to, struct err *e);
