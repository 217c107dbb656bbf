/* SPDX-License-Identifier: Apache-2.0 */
#include "control/plan.h"

#include "model/lifetime.h"
#include "model/netpolicy.h"

static struct plan nothing(void)
{
    return (struct plan){.step = PLAN_NOTHING};
}

static struct plan observe(const struct sandbox *row, enum sandbox_state to, const char *reason)
{
    if (row->observed == to || !sandbox_state_may_move(row->observed, to, SANDBOX_BY_NODE)) {
        return nothing();
    }
    return (struct plan){.step = PLAN_OBSERVE, .to = to, .reason = reason};
}

/* Must the node hold something for a sandbox in this state? */
static bool lives_on_node(enum sandbox_state state)
{
    return state != SANDBOX_STATE_SUSPENDED && state != SANDBOX_STATE_RESTORING &&
           state != SANDBOX_STATE_FAILED;
}

static struct plan plan_creating(const struct plan_input *in)
{
    if (in->has_operation && in->now_ms < in->row->created_at_ms + PLAN_RETRY_GRACE_MS) {
        return nothing();
    }
    return (struct plan){.step = PLAN_ABANDON, .reason = "the creation was not finished"};
}

/* A row that cannot begin it learns first how the sandbox really is. */
static struct plan plan_suspend(const struct sandbox *row, const struct node_sandbox *node)
{
    bool begins =
        row->observed == SANDBOX_STATE_SUSPENDING ||
        sandbox_state_may_move(row->observed, SANDBOX_STATE_SUSPENDING, SANDBOX_BY_POLICY);

    return begins ? (struct plan){.step = PLAN_SUSPEND} : observe(row, node->state, NULL);
}

static struct plan plan_state(const struct sandbox *row, const struct node_sandbox *node)
{
    const char *reason = node->reason[0] ? node->reason : NULL;

    switch (node->state) {
    case SANDBOX_STATE_RUNNING:
        if (row->desired == SANDBOX_STATE_STOPPED) {
            return (struct plan){.step = PLAN_STOP};
        }
        if (row->desired == SANDBOX_STATE_PAUSED) {
            return (struct plan){.step = PLAN_PAUSE};
        }
        if (row->desired == SANDBOX_STATE_SUSPENDED) {
            return plan_suspend(row, node);
        }
        return observe(row, SANDBOX_STATE_RUNNING, reason);
    case SANDBOX_STATE_STOPPED:
        return observe(row, SANDBOX_STATE_STOPPED, reason ? reason : "the machine has stopped");
    case SANDBOX_STATE_PAUSED:
        if (row->desired == SANDBOX_STATE_STOPPED) {
            return (struct plan){.step = PLAN_STOP};
        }
        if (row->desired == SANDBOX_STATE_SUSPENDED) {
            return plan_suspend(row, node);
        }
        if (row->observed == SANDBOX_STATE_RESUMING && row->desired == SANDBOX_STATE_RUNNING) {
            return (struct plan){.step = PLAN_RESUME};
        }
        return observe(row, SANDBOX_STATE_PAUSED, reason);
    case SANDBOX_STATE_FAILED:
        return observe(row, SANDBOX_STATE_FAILED, reason ? reason : "the machine has failed");
    default:
        return nothing(); /* under way: a later pass sees how it ended */
    }
}

static bool end_differs(const struct plan_input *in)
{
    int64_t ours = lifetime_end(in->row->end_at_ms, in->row->paused_at_ms, in->now_ms);
    int64_t theirs = in->node->end_at_ms;

    return in->node->has_end &&
           (in->row->at_end != in->node->at_end || (ours == 0) != (theirs == 0) ||
            ours > theirs + PLAN_END_APART_MS || theirs > ours + PLAN_END_APART_MS);
}

static bool network_differs(const struct plan_input *in)
{
    cleanup_json json_t *ours = sandbox_network_stack(in->row);

    return ours && in->node->has_network && netpolicy_fingerprint(ours) != in->node->network;
}

static struct plan plan_present(const struct plan_input *in)
{
    const struct sandbox *row = in->row;
    const struct node_sandbox *node = in->node;
    struct plan plan = plan_state(row, node);

    if (plan.step == PLAN_NOTHING && node->has_policy &&
        !policy_equal(&row->policy, &node->policy)) {
        plan.step = PLAN_POLICY;
    }
    if (plan.step == PLAN_NOTHING && network_differs(in)) {
        plan.step = PLAN_NETWORK;
    }
    if (plan.step == PLAN_NOTHING && end_differs(in)) {
        plan.step = PLAN_END_TIME;
    }
    return plan;
}

struct plan plan_sandbox(const struct plan_input *in)
{
    ASSERT(in && (in->row || in->node));

    if (!in->row) {
        return (struct plan){.step = PLAN_END_ORPHAN};
    }
    if (in->row->desired == SANDBOX_STATE_DELETED) {
        return (struct plan){.step = PLAN_FINISH_DELETE};
    }
    if (in->row->observed == SANDBOX_STATE_CREATING) {
        return plan_creating(in);
    }
    if (in->node) {
        return plan_present(in);
    }
    if (in->row->observed == SANDBOX_STATE_SUSPENDING) {
        return (struct plan){.step = PLAN_SUSPEND};
    }
    if (in->row->observed == SANDBOX_STATE_RESTORING) {
        return observe(in->row, SANDBOX_STATE_SUSPENDED, "the restore did not finish");
    }
    if (lives_on_node(in->row->observed)) {
        return observe(in->row, SANDBOX_STATE_FAILED,
                       "the node does not have this sandbox any more");
    }
    return nothing();
}
