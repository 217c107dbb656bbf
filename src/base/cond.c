/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cond.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    ASSERT(pthread_condattr_init(&attr) == 0 &&
           pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
           pthread_cond_init(cond, &attr) == 0);
    pthread_condattr_destroy(&attr);
}

int cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % NS_PER_S)};

    if (deadline_ns == DEADLINE_NEVER) {
        pthread_cond_wait(cond, lock);
        return 0;
    }
    return pthread_cond_timedwait(cond, lock, &until) == ETIMEDOUT ? -ETIMEDOUT : 0;
}
