/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stock of warm machines (see warm-machine.h): plain ones for every template of their shape, and dressed ones
 * for the templates and disk sizes that were asked for lately. A create takes a dressed one and has a
 * sandbox in the time of one exchange with its guest, or a plain one, in the time of a mount. Under emulation the
 * rehearsal counts most: it leaves the translated code of everything that a first command needs.
 *
 * Restores and forks take VMMs that are started and wait (blank ones).
 *
 * What was asked for lately is in stock, more when more was asked for at once, within a budget; a thread refills in the
 * background, one at a time, and gives up what is stale: dead, of a template that has been made anew, or not
 * wanted any more. After a restart of the manager all are ended and made again.
 */
#pragma once

#include "base/json.h"
#include "sandbox/node.h"

struct warm;
struct resident;
struct template;

struct warm_options {
    unsigned machines_max; /* 0: no warm machines */
    unsigned memory_mib;   /* of all of them together, by their shapes */
};

struct warm *warm_start(struct node *node, const struct warm_options *options);
void warm_stop(struct warm *warm);
/*
 * Puts a warm machine of res's shape into res: machine, channel and open disk, in the place of res's disk. With t, a
 * machine dressed with this template is looked for first: then *ret_dressed is true, the disk is mounted, and only the
 * identity is missing. Else the disk is empty and not bound yet. -ENOENT: there is none, a cold start must do. Counts the demand.
 */
MUST_CHECK int warm_claim(struct warm *warm, struct resident *res, const struct template *t,
                          bool *ret_dressed, struct err *e);
/*
 * A VMM that waits for a device state, for a restore into res, whose shape counts with its disk: a disk of that size and
 * without content, in the place of res's, and *ret_device_fd, the caller's, into which the state is written. -ENOENT: none.
 */
MUST_CHECK int warm_claim_blank(struct warm *warm, struct resident *res, int *ret_device_fd,
                                struct err *e);
/* What is ready now: [{"template" ("": of any), "vcpus", "memory_mib", "disk_mib", "ready"}]. */
json_t *warm_json(struct warm *warm);
/* For metrics: how many are ready now. */
unsigned warm_ready(struct warm *warm);
