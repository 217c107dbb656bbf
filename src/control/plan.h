/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What to do about one sandbox, given what the database and the node say about it. Pure: the
 * reconciler gathers, this decides, the reconciler acts.
 *
 *   the row says          the node says         then
 *   (no row)              anything              orphan: end it there
 *   desired deleted       anything              finish the deletion
 *   creating, nobody at   anything              abandoned: delete, unless a retry of the same operation may
 *   work on it                                  still come and take it over (PLAN_RETRY_GRACE_MS)
 *   desired stopped       running, paused       stop it
 *   desired paused        running               pause it
 *   resuming              paused                resume it: whoever was at it has died
 *   desired suspended     running, paused       suspend it
 *   suspending            does not have it      ask: what it answers is that it is stored, or that it is lost
 *   restoring             does not have it      suspended: the restore did not finish
 *   running, paused, ...  does not have it      failed: it is lost
 *   another state         running, paused,      observed follows, where the table of states allows it
 *                         stopped, failed
 *   another policy        has it                tell it the policy
 *   another network       has it                tell it the network policy
 *   another end           has it                tell it the end: it keeps to it when there is no control plane
 *
 * The caller must have read the rows both before and after it asked the node, and offer a row as "not on the
 * node" only if its generation was the same both times: then the node really had its chance. A sandbox
 * that somebody works on right now is left alone; the next pass will see the outcome.
 */
#pragma once

#include "control/node-client.h"

/* How long a creation that lost its gateway waits for the client's retry. */
#define PLAN_RETRY_GRACE_MS 120000
/* Two clocks that stop and start with a sandbox at almost the same moment are not the same to the millisecond. */
#define PLAN_END_APART_MS 3000

enum plan_step {
    PLAN_NOTHING,
    PLAN_END_ORPHAN,
    PLAN_FINISH_DELETE,
    PLAN_ABANDON,
    PLAN_STOP,
    PLAN_PAUSE,
    PLAN_RESUME,
    PLAN_SUSPEND,
    PLAN_POLICY,
    PLAN_NETWORK,
    PLAN_END_TIME,
    PLAN_OBSERVE, /* move the observed state to plan.to */
};

struct plan_input {
    const struct sandbox *row;       /* borrowed for the call; NULL: none */
    const struct node_sandbox *node; /* borrowed for the call; NULL: the node does not have it */
    bool has_operation;              /* an idempotent request made it and may be retried */
    int64_t now_ms;
};

struct plan {
    enum plan_step step;
    enum sandbox_state to; /* for PLAN_OBSERVE */
    const char *reason;    /* borrowed from the input or static; may be NULL */
};

struct plan plan_sandbox(const struct plan_input *in);
