/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request that waits for a person. The interceptor's thread that has read it waits here; the island's worker knows when there is an
 * answer:
 *
 *     hold_wait() ── posted ──▶ island_ask() ── none yet: in the island's list ──▶ asks change ──▶ answered
 *
 * Whoever is first to lose interest (the connection is ended; the island goes) leaves; the other one frees.
 */
#pragma once

#include "network/island.h"

/* Longer paths are not asked about: nobody would read them to the end. */
#define HOLD_PATH_MAX 1024u

struct hold_place {
    struct worker *worker;
    /* In the worker's thread: where the asks are; NULL: it is gone. */
    struct island *(*island_of)(void *arg);
    void *arg; /* borrowed: lives until the worker has done what was posted to it before */
};

/*
 * From a thread that is no worker's. NETPOLICY_ALLOW, or NETPOLICY_DENY: no; nobody has answered; the wait was ended by stop_fd
 * becoming readable. what is copied.
 */
enum netpolicy_action hold_wait(const struct hold_place *place, const struct ask_what *what,
                                int stop_fd);

/* In the worker's thread. */
void hold_asks_changed(struct island *island);
void hold_end_all(struct island *island);
