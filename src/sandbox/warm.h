/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warm machines: started from the base machine of their shape, rehearsed, running, and waiting for a disk. A create
 * takes one if there is one: whatever the template, it clones the image into the warm machine's open disk file
 * and has a sandbox in the time of a mount. Under emulation the rehearsal counts most: it leaves the
 * translated code of everything that a first command needs.
 *
 * Shapes that were asked for lately have some in stock, more when more were asked for at once, within a budget; a
 * thread refills in the background, one at a time. A warm machine belongs to nobody and has no
 * record, so after a restart of the manager it is ended and another is made.
 */
#pragma once

#include "sandbox/node.h"

struct warm;
struct resident;

struct warm_options {
    unsigned machines_max; /* 0: no warm machines */
    unsigned memory_mib;   /* of all of them together, by their shapes */
};

struct warm *warm_start(struct node *node, const struct warm_options *options);
void warm_stop(struct warm *warm);
/*
 * Puts a warm machine of res's shape into res: machine, channel and open disk, in res's own folder; the
 * machine's disk is empty and not bound yet. -ENOENT: there is none, a cold start must do. Counts the demand.
 */
MUST_CHECK int warm_claim(struct warm *warm, struct resident *res, struct err *e);
/* For metrics: how many are ready now. */
unsigned warm_ready(struct warm *warm);
