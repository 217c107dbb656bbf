/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The lease of a node: how its own clock and the control plane's fit together, so that no sandbox runs twice. Pure.
 *
 * Theory of operation. Once every LEASE_RENEW_MS a gateway
 *
 *     1. asks the node, which answers with a stamp: its own monotonic clock, read while it answers;
 *     2. writes into the database that the node lives for LEASE_MS from now, by the database's clock;
 *     3. tells the node: you may run machines until that stamp of yours plus lease_node_ms().
 *
 * What the node counts from is a moment before the database's, so that it does not matter how long any of the messages
 * took, or whether one comes hours late: an old stamp gives an old end. Nothing is compared between two clocks but how fast
 * they go. A gateway that dies between 2 and 3 has only made the control plane wait longer.
 *
 * The arithmetic. Let every clock be wrong by at most 1 part in LEASE_RATE (1 %; crystals are wrong by less than 0.02 %, and
 * NTP slews by 0.05 % at most). Read the stamp at the real time t, so that step 2 is at t or later.
 *
 *     the control plane takes the node for dead not before   t + LEASE_MS / (1 + 1/R)
 *     the node's own clock has counted N at the latest at     t + N / (1 - 1/R)
 *     all that runs there stands still                        LEASE_FENCE_MS later
 *
 *     so   N = (LEASE_MS / (1 + 1/R) - LEASE_FENCE_MS) * (1 - 1/R)     is strictly before, rounded down.
 *
 * LEASE_FENCE_MS is for the node manager, which has one thread: the longest thing it does, ending a machine that hangs, may take
 * 10 s, and it is looked at the end once a second.
 *
 * The database's clock may be set, and a server that takes over may have another one. That is why a gateway takes a node for
 * dead only when its own monotonic clock, too, says that it has seen no renewal for LEASE_MS: see lease_watch.
 */
#pragma once

#include "base/util.h"

#define LEASE_MS 60000
#define LEASE_RENEW_MS 5000
#define LEASE_FENCE_MS 15000
#define LEASE_RATE 100
/* A node's epoch is random for each start of its sandbox manager: stamps of another one mean nothing. */
#define LEASE_EPOCH_SIZE 33

/* For how long a node may go on from its stamp, by its own clock. */
int64_t lease_node_ms(void);

/* The node's half: what it was granted last. Times by its own clock, which goes on while the host sleeps. */
struct lease {
    char epoch[LEASE_EPOCH_SIZE];
    bool leased;      /* somebody has ever granted it anything: it stands still without */
    int64_t until_ms; /* of use while leased */
};

struct lease_grant {
    char epoch[LEASE_EPOCH_SIZE];
    int64_t stamp_ms;
    int64_t for_ms;
};

/*
 * Only ever makes it longer. -ESTALE: a stamp of another epoch; -EINVAL: one that cannot have been read (negative or in the
 * future), or longer than lease_node_ms(). Nothing has changed then.
 */
MUST_CHECK int lease_take(struct lease *l, const struct lease_grant *grant, int64_t now_ms);
bool lease_over(const struct lease *l, int64_t now_ms);

/* A gateway's half: since when it sees the same renewal. */
struct lease_watch {
    int64_t renewals;
    int64_t generation;
    uint64_t since_ms; /* by this gateway's monotonic clock; 0: it has not looked yet */
};
/* Looks at what the database says. True: nothing was renewed for LEASE_MS. */
bool lease_watch_look(struct lease_watch *w, int64_t generation, int64_t renewals, uint64_t now_ms);
