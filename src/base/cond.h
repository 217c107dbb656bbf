/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Condition variables that are waited on until a deadline of base/clock.h: on the monotonic clock, so that nobody waits
 * longer or shorter when the time of day is set.
 */
#pragma once

#include "base/util.h"

#include <pthread.h>

/* To be ended with pthread_cond_destroy(). */
void cond_init(pthread_cond_t *cond);
/*
 * With the lock held, for a condition of cond_init(). 0: somebody has signalled, or it woke up by itself: look again;
 * -ETIMEDOUT: the deadline has passed. DEADLINE_NEVER waits for ever.
 */
int cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);
