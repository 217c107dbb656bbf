/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine of an earlier moment, brought up beside the sandbox's own: from the snapshot's memory, or fresh over its
 * disk. It takes place in a thread, while the caller keeps the present.
 *
 *     past_begin --> past_wait --> the caller takes machine, channel and disk out of next
 *                             \--> past_drop
 */
#pragma once

#include "base/log.h"
#include "sandbox/resident.h"

struct past {
    struct resident *next;         /* owned: the sandbox as it will be; nobody else sees it */
    const struct snapshot *target; /* borrowed: the sandbox's op lock is held all the while */
    bool cold;           /* a fresh machine: a disk snapshot, or memory that does not fit */
    struct err why_cold; /* of memory that does not fit */
    struct err error;
    int result;
    struct log_request request; /* whose it is */
    pthread_t thread;
};

/* With the op lock, which is held until past_wait(). disk_n is the number of the new disk. */
void past_begin(struct past *past, struct resident *res, const struct snapshot *target,
                uint32_t disk_n);
/* The machine is up and its disk is stored, or why not. */
MUST_CHECK int past_wait(struct past *past, struct err *e);
/* Removes what was made, after past_wait(). */
void past_drop(struct past *past);
