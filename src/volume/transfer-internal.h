/* SPDX-License-Identifier: Apache-2.0 */
/* What both directions of a transfer share: threads that stop at the first failure. */
#pragma once

#include "volume/transfer.h"

#include <pthread.h>

struct crew {
    const struct transfer *t;
    pthread_t threads[TRANSFER_THREADS_MAX];
    unsigned n_threads;
    pthread_mutex_t lock; /* guards what follows, and what the direction says */
    pthread_cond_t changed;
    int error;
    struct err why; /* of the first failure */
};

void crew_init(struct crew *crew, const struct transfer *t);
void crew_done(struct crew *crew);
void crew_start(struct crew *crew, void *(*main)(void *), void *arg);
void crew_join(struct crew *crew);
/* Notes a failure; the first one counts. Without the lock. */
void crew_fail(struct crew *crew, int r, const struct err *why);
