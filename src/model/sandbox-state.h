/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The life of a sandbox, as one table.
 *
 * A sandbox has two states. *Desired* is what its owner (or a policy acting for the owner) asked for
 * last; it is written to the database before anything is done. *Observed* is what was last seen to be
 * true. The control plane drives the second towards the first. This file is about the observed one.
 *
 *   state       what exists                                       who may move it on
 *   creating    a row; perhaps a machine that is coming up        node: running, stopped, failed
 *   running     a machine that answers                            client, policy: pausing, suspending, stopping
 *                                                                 node: stopped (the guest powered off), failed,
 *                                                                 paused (it was idle)
 *   pausing     a machine that is being frozen and saved          node: paused, running (it could not), failed
 *   paused      disk and memory on the node, nothing runs         client, policy: resuming, suspending, stopping
 *                                                                 node: running (a request woke it), failed
 *   resuming    a machine is coming up again, from memory or      node: running, or back to where it came from
 *               cold from the disk of a stopped or failed one           (paused, stopped), failed
 *   suspending  as paused, and an upload under way                node: suspended, back to where it came from
 *                                                                       (paused, running), failed
 *   suspended   only the artifacts in the object store            client, policy: restoring
 *   restoring   artifacts are being fetched                       node: running, suspended (it could not), failed
 *   stopping    a machine that is shutting down                   node: stopped, failed
 *   stopped     a disk on the node, no machine, no memory         client: resuming; node: failed
 *   failed      perhaps a disk; the reason says what happened     client: resuming; policy: restoring (its node died);
 *                                                                 node: running (it was
 *                                                                 found again or brought back), paused, stopped
 *   deleting    parts that still have to be removed               node: deleted
 *   deleted     nothing: the row goes with this step              nobody
 *
 * Every state but the last two may be left for deleting, by the client or by policy. Nothing leaves
 * deleting but deleted: a sandbox whose deletion was accepted never comes back, whatever was under way.
 *
 * Who asks matters: a client may never claim that a machine runs, and a node may never decide that a
 * sandbox should be deleted. The gateway refuses what sandbox_state_may_move() refuses with a sentence;
 * sandbox_state_move() asserts, because by then it is a bug.
 */
#pragma once

#include <stdbool.h>

enum sandbox_state {
    SANDBOX_STATE_CREATING,
    SANDBOX_STATE_RUNNING,
    SANDBOX_STATE_PAUSING,
    SANDBOX_STATE_PAUSED,
    SANDBOX_STATE_RESUMING,
    SANDBOX_STATE_SUSPENDING,
    SANDBOX_STATE_SUSPENDED,
    SANDBOX_STATE_RESTORING,
    SANDBOX_STATE_STOPPING,
    SANDBOX_STATE_STOPPED,
    SANDBOX_STATE_FAILED,
    SANDBOX_STATE_DELETING,
    SANDBOX_STATE_DELETED,
    SANDBOX_STATE_COUNT_,
};

/* Who asks for a move. Flags: a row of the table may allow more than one. */
#define SANDBOX_BY_CLIENT (1u << 0) /* a request of the owner */
#define SANDBOX_BY_POLICY \
    (1u << 1) /* the control plane on the owner's behalf: end of life, idleness */
#define SANDBOX_BY_NODE (1u << 2) /* the node, reporting what is true */

/* The stable word of the API and the database, e.g. "running". */
const char *sandbox_state_name(enum sandbox_state state);

/* True and *ret set, or false when the word names no state. */
bool sandbox_state_parse(const char *word, enum sandbox_state *ret);

/* May BY (exactly one flag) move a sandbox from FROM to TO? Staying where one is, is not a move. */
bool sandbox_state_may_move(enum sandbox_state from, enum sandbox_state to, unsigned by);

/* Moves *state to TO. A move that the table does not allow is a bug and ends the process. */
void sandbox_state_move(enum sandbox_state *state, enum sandbox_state to, unsigned by);

/* The states that may be *desired*: running, paused, suspended, stopped, deleted. */
bool sandbox_state_may_be_desired(enum sandbox_state state);

/* True while something is under way that ends by itself or by a report of the node. */
bool sandbox_state_is_transient(enum sandbox_state state);
