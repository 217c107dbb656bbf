/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes and snapshots that a verb makes for its own work (diff, bisect) and removes at its end, whatever way
 * that comes: while a struct scratch is open signals are only read, so Ctrl-C ends the request under way and then
 * everything made is removed. Should space itself be killed, the sandboxes end by themselves after SCRATCH_LIFE_S.
 */
#pragma once

#include "cli/cli.h"
#include "cli/sigs.h"

#define SCRATCH_MAX 4u
#define SCRATCH_LIFE_S 3600

struct scratch {
    struct cli *cli; /* borrowed */
    struct sigs sigs;
    char *made[SCRATCH_MAX]; /* owned: the API's paths of what is to be removed */
    size_t n_made;
};

MUST_CHECK int scratch_open(struct scratch *s, struct cli *cli, struct err *e);
/* Removes everything; what cannot be removed is told. */
void scratch_close(struct scratch *s);
/* One request; -ECANCELED: a signal asked us to end. */
MUST_CHECK int scratch_call(struct scratch *s, const char *method, const char *target,
                            const json_t *body, json_t **ret, struct err *e);
/* A child of a sandbox at a snapshot. */
MUST_CHECK int scratch_fork(struct scratch *s, const char *sandbox, const char *snapshot,
                            char ret[static ID_SIZE], struct err *e);
/* A disk snapshot of the present. */
MUST_CHECK int scratch_snapshot(struct scratch *s, const char *sandbox, char ret[static ID_SIZE],
                                struct err *e);
/* Removes the newest thing made, now. */
void scratch_drop(struct scratch *s);
/* What to exit with after an error of the above; tells it, unless a signal was the reason. */
int scratch_failed(struct scratch *s, const struct err *e);
