/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Who works on which sandbox in this process: one exclusive hold per sandbox id, for steps that change
 * its life (create, stop, start, delete, repair). It keeps our own threads from working against each
 * other; what keeps processes apart is the generation of the row (database.h).
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

struct busy *busy_new(void);
/* No hold may be left. */
void busy_free(struct busy *busy);
DEFINE_CLEANUP(struct busy *, busy_free);

#define BUSY_CANCEL_HOLDER (1u << 0) /* ask whoever holds it to stop */

/* Waits for the sandbox until the deadline: -ETIMEDOUT "busy". */
MUST_CHECK int busy_enter(struct busy *busy, const char *id, unsigned flags, uint64_t deadline_ns,
                          struct busy_hold **ret, struct err *e);
/* Without waiting: NULL when somebody works on it. */
struct busy_hold *busy_try_enter(struct busy *busy, const char *id);
void busy_leave(struct busy_hold *hold);
DEFINE_CLEANUP(struct busy_hold *, busy_leave);

/* Becomes readable when somebody asks the holder to stop. Borrowed: lives as long as the hold. */
int busy_cancel_fd(const struct busy_hold *hold);
bool busy_cancelled(const struct busy_hold *hold);
