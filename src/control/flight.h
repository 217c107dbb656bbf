/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One attempt for all who want the same at the same time. The first to board a sandbox's flight leads: it does the
 * work and lands with the outcome; whoever boards before that waits for it and gets the same outcome, be it an
 * error. So twenty requests that find a sandbox asleep wake it once, and fail once.
 *
 * One mutex guards all; nothing blocking but the wait happens under it.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"

#include <stdint.h>

struct flights;
struct flight;

struct flights *flights_new(void);
/* Nobody may be on board. */
void flights_free(struct flights *fs);

/*
 * 1: *ret is the caller's to land. 0: somebody else's has landed well meanwhile. An error: theirs, or -ETIMEDOUT
 * "busy" when it did not land by the deadline.
 */
MUST_CHECK int flight_board(struct flights *fs, const char *id, uint64_t deadline_ns,
                            struct flight **ret, struct err *e);
/* r and e (may be NULL when r is 0): what all others get. */
void flight_land(struct flight *f, int r, const struct err *e);
