/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Who works on which sandbox: one exclusive hold per sandbox id, for steps that change its life (create, stop, start,
 * delete, repair). It keeps threads from working against each other, and gateways that share a database; what is
 * written is decided by the generation of the row in any case (database.h).
 *
 * A hold may be cancellable: whoever wants the sandbox gone asks the holder to stop, by an event
 * descriptor that the holder watches while it waits for the node, and then waits for its turn.
 *
 * One mutex guards the table; nothing blocking happens under it. A hold may be kept across anything.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"

#include <stdint.h>

struct busy;
struct busy_hold;

/*
 * Holds that other processes respect, too: share.c has them in the database. Asked after the hold is ours in this
 * process, given back before it is not. Called without a lock, from any thread.
 */
struct busy_remote {
    void *ctx; /* borrowed: lives as long as the table */
    int (*take)(void *ctx, const char *id, struct err *e); /* 1: ours; 0: another process has it */
    void (*give)(void *ctx, const char *id);
    void (*ask)(void *ctx, const char *id); /* whoever has it, elsewhere, is asked to stop */
};

struct busy *busy_new(void);
/* Before the first hold. remote is borrowed: lives as long as the table. */
void busy_set_remote(struct busy *busy, const struct busy_remote *remote);
/* Another process has given a hold back: whoever waits looks again. */
void busy_look_again(struct busy *busy);
/* Another process wants the sandbox gone. */
void busy_cancel(struct busy *busy, const char *id);

/* No hold may be left. */
void busy_free(struct busy *busy);
DEFINE_CLEANUP(struct busy *, busy_free);

#define BUSY_CANCEL_HOLDER (1u << 0) /* ask whoever holds it to stop */

/* Waits for the sandbox until the deadline: -ETIMEDOUT "busy". Other errors are the remote table's. */
MUST_CHECK int busy_enter(struct busy *busy, const char *id, unsigned flags, uint64_t deadline_ns,
                          struct busy_hold **ret, struct err *e);
/* Without waiting: NULL when somebody works on it, or that cannot be known. */
struct busy_hold *busy_try_enter(struct busy *busy, const char *id);
void busy_leave(struct busy_hold *hold);
DEFINE_CLEANUP(struct busy_hold *, busy_leave);

/* Becomes readable when somebody asks the holder to stop. Borrowed: lives as long as the hold. */
int busy_cancel_fd(const struct busy_hold *hold);
bool busy_cancelled(const struct busy_hold *hold);
