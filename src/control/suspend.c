/* SPDX-License-Identifier: Apache-2.0 */

/*
 * To the object store and back. Suspending goes through "suspending"; restoring, which is how a suspended sandbox is
 * resumed, through "restoring". The row says "suspended" once the node has said that all of it is stored and was read
 * back; when that answer is lost, the reconciler asks again, and the node looks into the store.
 */
#include "base/clock.h"
#include "control/private.h"

/* Bytes travel: the node's own limit is shorter than this. */
#define SUSPEND_MS (31u * 60 * 1000)

int control_organisation(struct control *c, const char *project, char ret[static ID_SIZE],
                         struct err *e)
{
    struct project p;
    int r = db_project_get(c->db, project, &p, e);

    return r < 0 ? r : str_copy(ret, ID_SIZE, p.organisation);
}

int control_suspend(struct control *c, const struct control_actor *actor, const char *id,
                    const struct control_suspend *how, struct sandbox *ret, struct err *e)
{
    struct control_begin begin = {
        .from = 1u << SANDBOX_STATE_RUNNING | 1u << SANDBOX_STATE_PAUSED,
        .via = SANDBOX_STATE_SUSPENDING,
        .at = SANDBOX_STATE_SUSPENDED,
        .desired = how->wakes ? SANDBOX_STATE_RUNNING : SANDBOX_STATE_SUSPENDED,
        .by = SANDBOX_BY_CLIENT,
        .refusal = "suspended",
    };
    struct control_end end = {
        .from = SANDBOX_STATE_SUSPENDING,
        .to = SANDBOX_STATE_SUSPENDED,
        .desired = begin.desired,
    };
    CLEANUP(busy_leavep) struct busy_hold *hold = NULL;
    cleanup_json json_t *body = json_pack("{s:s, s:b}", "organisation", actor->organisation,
                                          "drop_snapshots", how->drop_snapshots);
    struct node_sandbox node;
    uint64_t deadline_ns = deadline_in_ms(SUSPEND_MS);
    int r;

    ASSERT(c && id && ret && body);

    r = control_hold(c, actor, id, deadline_in_ms(CONTROL_CHANGE_MS), &hold, e);
    if (r == 0) {
        r = control_begin_move(c, actor, id, &begin, "sandbox.suspend", ret, e);
    }
    if (r < 0 || ret->observed == SANDBOX_STATE_SUSPENDED) {
        return r;
    }
    r = control_step(c, actor, id,
                     &(struct control_step){"suspend", body, &begin, hold, deadline_ns}, &node,
                     /* ret_json */ NULL, e);
    return r < 0 ? r : control_end_move(c, actor, id, &end, ret, e);
}

int control_restore_held(struct control *c, const struct control_actor *actor, const char *id,
                         struct busy_hold *hold, unsigned by, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct control_begin begin = {
        .from = 1u << SANDBOX_STATE_SUSPENDED,
        .via = SANDBOX_STATE_RESTORING,
        .at = SANDBOX_STATE_RUNNING,
        .desired = SANDBOX_STATE_RUNNING,
        .by = by,
        .refusal = "restored",
    };
    struct node_sandbox node = {0};
    struct control_end end = {
        .from = SANDBOX_STATE_RESTORING,
        .to = SANDBOX_STATE_RUNNING,
        .desired = SANDBOX_STATE_RUNNING,
        .node = &node,
    };
    cleanup_json json_t *body = json_pack("{s:s}", "organisation", actor->organisation);
    struct control_step step = {"restore", body, &begin, hold, deadline_in_ms(SUSPEND_MS)};
    int r;

    ASSERT(body);
    r = control_begin_move(c, actor, id, &begin, "sandbox.restore", &sb, e);
    if (r < 0 || sb.observed == SANDBOX_STATE_RUNNING) {
        return r;
    }
    r = control_step(c, actor, id, &step, &node, /* ret_json */ NULL, e);
    return r < 0 ? r : control_end_move(c, actor, id, &end, /* ret */ NULL, e);
}

int control_suspend_row(struct control *c, const struct sandbox *row, struct node_call *call,
                        struct err *e)
{
    struct plan plan = {.step = PLAN_OBSERVE, .to = SANDBOX_STATE_SUSPENDED};
    char organisation[ID_SIZE];
    cleanup_json json_t *body = NULL;
    struct node_sandbox node = {0};
    int r = control_organisation(c, row->project, organisation, e);

    if (r < 0) {
        return r;
    }
    body = json_pack("{s:s}", "organisation", organisation);
    r = node_client_act(c->node, row->id, "suspend", body, call, &node, /* ret_json */ NULL, e);
    if (r == -ENOENT) {
        plan.to = SANDBOX_STATE_FAILED;
        plan.reason = "the node does not have this sandbox any more, nor does the object store";
        return control_observe(c, row, &plan, /* node */ NULL, e);
    }
    if (r < 0 || node.state != SANDBOX_STATE_SUSPENDED ||
        row->observed != SANDBOX_STATE_SUSPENDING) {
        return r; /* the next pass sees how it ended */
    }
    return control_observe(c, row, &plan, &node, e);
}

int control_forget_stored(struct control *c, const struct sandbox *row, struct node_call *call,
                          struct err *e)
{
    const unsigned without_node = 1u << SANDBOX_STATE_SUSPENDING | 1u << SANDBOX_STATE_SUSPENDED |
                                  1u << SANDBOX_STATE_RESTORING | 1u << SANDBOX_STATE_FAILED;
    cleanup_free char *rest = NULL;
    char organisation[ID_SIZE];
    int r;

    if (!(without_node & (1u << row->observed))) {
        return 0; /* the node forgets it itself */
    }
    r = control_organisation(c, row->project, organisation, e);
    if (r < 0) {
        return r;
    }
    rest = xasprintf("/stored?organisation=%s", organisation);
    return node_client_ask(c->node,
                           &(struct node_ask){.method = "DELETE", .id = row->id, .rest = rest},
                           call, NULL, e);
}

int control_stored(struct control *c, const struct control_actor *actor, const char *id,
                   json_t **ret, struct err *e)
{
    cleanup_free char *rest = xasprintf("/stored?organisation=%s", actor->organisation);
    const struct control_ask ask = {.method = "GET", .rest = rest};

    return control_ask(c, actor, id, &ask, ret, e);
}
