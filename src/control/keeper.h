/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The keeper asks the nodes of the database what they have, renews their leases, says which of them are lost, and takes
 * them back. model/lease.h has the protocol; nothing else writes what it writes.
 *
 * Every gateway keeps all nodes: whoever comes first has asked, the others see in the row that the node has told. Two that ask at
 * once do no harm, and a gateway that cannot reach a node changes nothing as long as another one can.
 *
 *     it answers, its row says it lives     renewed in the database, then told so
 *     the same, but it is fenced            first it leaves what is elsewhere by now; then as above
 *     it answers, its row says it is lost   it leaves what is elsewhere, then it is taken back: the next round renews it
 *     silent for LEASE_MS, by the database  lost: evacuate.c takes away what it had
 *     and by this process
 *
 * A fenced node decides nothing and runs nothing. It is granted only by who has compared what it has with the rows after its
 * row said that it lives, and the renewal between is void if that row has another generation by then.
 *
 * Each node is asked by a thread of its own, so that those that do not answer delay no other's renewal.
 */
#pragma once

#include "control/control.h"

struct keeper;

/* What a node told another gateway counts as told to us. A little less than the time between two renewals: rounds take some. */
#define KEEPER_FRESH_MS 4000

/* c is borrowed. A node that told less than fresh_ms ago, by the database's clock, is not asked. */
struct keeper *keeper_new(struct control *c, int64_t fresh_ms);
/* Waits for those it is asking. */
void keeper_free(struct keeper *k);
DEFINE_CLEANUP(struct keeper *, keeper_free);

/* Its thread. Stop before the end. */
void keeper_start(struct keeper *k);
void keeper_stop(struct keeper *k);

/*
 * One round, for the thread and for tests: begins to ask those that are due, and says who is lost. now_ms is this process's
 * monotonic clock. An error: the nodes cannot be read.
 */
MUST_CHECK int keeper_round(struct keeper *k, uint64_t now_ms, struct err *e);
/* Until nobody is being asked. */
void keeper_settle(struct keeper *k);
