/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What makes several gateways over one database one control plane.
 *
 * Theory of operation. Each gateway process has an id (control->owner) and a lease in the database, which a thread of
 * its own renews every BEAT_MS. What it holds (busy.h) it holds among all gateways, for as long as the lease: when it
 * dies, the others may go on with its sandboxes SHARE_LEASE_MS later. A gateway that could not renew in time lives on;
 * what others took over meanwhile it notices by the generation of the rows.
 *
 * The same thread listens to what the others say:
 *
 *     given ID     a hold was given back that somebody waits for
 *     cancel ID    whoever holds ID is asked to stop: somebody deletes the sandbox
 *     turn         there is something to do for a reconciler
 *     pass ok|bad  a pass has ended; for health checks
 *
 * Words may be lost with a connection, so that nobody depends on them: they only make things sooner.
 *
 * Threads: share_start() to share_stop() around everything that takes a hold.
 */
#pragma once

#include "control/busy.h"
#include "database/database.h"

#define SHARE_LEASE_MS 15000
#define SHARE_BEAT_MS 4000

struct share;

/* What the thread does with words; called from it. */
struct share_opts {
    struct db *db;     /* borrowed: lives longer */
    struct busy *busy; /* borrowed: lives longer */
    const char *owner; /* borrowed: lives longer */
    void *ctx;
    void (*due)(void *ctx);               /* there may be a turn */
    void (*passed)(void *ctx, bool fine); /* another gateway's pass has ended */
};

/* The first lease is taken before it returns. From then on holds are shared. */
MUST_CHECK int share_start(const struct share_opts *opts, struct share **ret, struct err *e);
/* Gives up the lease, and every hold with it. NULL is fine. */
void share_stop(struct share *s);
/* How many gateways live; at least 1. */
unsigned share_alive(const struct share *s);
