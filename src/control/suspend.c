/* SPDX-License-Identifier: Apache-2.0 */

/*
 * To the object store; move.c is the way back. Suspending goes through "suspending". The row says "suspended" once the node has
 * said that all of it is stored and was read back; when that answer is lost, the reconciler asks again, and the node looks
 * into the store.
 */
#include "base/clock.h"
#include "control/private.h"

#include <stdio.h>

int control_organisation(struct control *c, const char *project, char ret[static ID_SIZE],
                         struct err *e)
{
    struct project p;
    int r = db_project_get(c->db, project, &p, e);

    return r < 0 ? r : str_copy(ret, ID_SIZE, p.organisation);
}

const char control_moving[] = "it is on its way to another node";

struct suspending {
    const struct control_actor *actor; /* borrowed */
    const char *id;                    /* borrowed */
    struct busy_hold *hold;            /* borrowed */
    bool drop_snapshots;
    const char *reason; /* borrowed; NULL: none */
};

static int suspend_held(struct control *c, const struct suspending *s, struct control_begin *begin,
                        struct sandbox *ret, struct err *e)
{
    struct control_end end = {
        .from = SANDBOX_STATE_SUSPENDING,
        .to = SANDBOX_STATE_SUSPENDED,
        .desired = begin->desired,
        .reason = s->reason,
    };
    cleanup_json json_t *body = json_pack("{s:s, s:b}", "organisation", s->actor->organisation,
                                          "drop_snapshots", s->drop_snapshots);
    struct control_step step = {.action = "suspend",
                                .body = body,
                                .begin = begin,
                                .hold = s->hold,
                                .deadline_ns = deadline_in_ms(CONTROL_TRANSFER_MS)};
    struct node_sandbox node;
    int r = control_begin_move(c, s->actor, s->id, begin, "sandbox.suspend", ret, e);

    ASSERT(body);
    if (r < 0 || ret->observed == SANDBOX_STATE_SUSPENDED) {
        return r;
    }
    step.node = control_node(c, ret);
    r = control_step(c, s->actor, s->id, &step, &node, /* ret_json */ NULL, e);
    return r < 0 ? r : control_end_move(c, s->actor, s->id, &end, ret, e);
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
    CLEANUP(busy_leavep) struct busy_hold *hold = NULL;
    int r;

    ASSERT(c && id && ret);

    r = control_hold(c, actor, id, deadline_in_ms(CONTROL_CHANGE_MS), &hold, e);
    return r < 0 ? r
                 : suspend_held(c, &(struct suspending){actor, id, hold, how->drop_snapshots, NULL},
                                &begin, ret, e);
}

int control_suspend_held(struct control *c, const struct sandbox *seen, struct busy_hold *hold,
                         bool drop_snapshots, struct err *e)
{
    struct control_begin begin = {
        .from = 1u << seen->observed,
        .via = SANDBOX_STATE_SUSPENDING,
        .at = SANDBOX_STATE_SUSPENDED,
        .desired = seen->desired,
        .by = SANDBOX_BY_POLICY,
        .refusal = "suspended",
    };
    bool was_running = seen->observed == SANDBOX_STATE_RUNNING;
    struct control_actor actor = {0};
    cleanup_sandbox struct sandbox sb = {0};
    int r = control_organisation(c, seen->project, actor.organisation, e);

    if (r < 0) {
        return r;
    }
    snprintf(actor.project, sizeof(actor.project), "%s", seen->project);
    return suspend_held(c,
                        &(struct suspending){&actor, seen->id, hold, drop_snapshots,
                                             was_running ? control_moving : NULL},
                        &begin, &sb, e);
}

static int decide_suspending(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    const int64_t *generation = ctx;

    (void)e;
    if (sb->generation != *generation) {
        return 0;
    }
    sandbox_move(
        sb, (struct sandbox_move){SANDBOX_STATE_SUSPENDING, SANDBOX_BY_POLICY, control_now_ms(c)},
        NULL);
    return 1;
}

/* What leaves its node while the row does not say so would be taken for lost. */
static int say_suspending(struct control *c, const struct sandbox *row, struct err *e)
{
    int64_t generation = row->generation;
    const struct control_change change = {.id = row->id,
                                          .decide = decide_suspending,
                                          .ctx = &generation,
                                          .action = "sandbox.suspend"};

    return control_change(c, &change, /* ret */ NULL, e);
}

int control_suspend_row(struct control *c, const struct sandbox *row, struct node_call *call,
                        struct err *e)
{
    struct plan plan = {.step = PLAN_OBSERVE, .to = SANDBOX_STATE_SUSPENDED};
    char organisation[ID_SIZE];
    cleanup_json json_t *body = NULL;
    struct node_sandbox node = {0};
    int r;

    if (row->observed != SANDBOX_STATE_SUSPENDING) {
        return say_suspending(c, row, e); /* the next pass asks */
    }
    r = control_organisation(c, row->project, organisation, e);
    if (r < 0) {
        return r;
    }
    body = json_pack("{s:s}", "organisation", organisation);
    r = node_client_act(control_node(c, row), row->id, "suspend", body, call, &node,
                        /* ret_json */ NULL, e);
    if (r == -ENOENT) {
        plan.to = SANDBOX_STATE_FAILED;
        plan.reason = "the node does not have this sandbox any more, nor does the object store";
        return control_observe(c, row, &plan, /* node */ NULL, e);
    }
    if (r < 0 || node.state != SANDBOX_STATE_SUSPENDED) {
        return r; /* the next pass sees how it ended */
    }
    return control_observe(c, row, &plan, &node, e);
}

static int ask_store(struct control *c, const struct sandbox *row, const char *method,
                     const char *organisation, struct node_call *call, struct err *e)
{
    cleanup_free char *rest = xasprintf("/stored?organisation=%s", organisation);

    return node_client_ask(fleet_any(c->fleet, row->node),
                           &(struct node_ask){.method = method, .id = row->id, .rest = rest}, call,
                           NULL, e);
}

int control_is_stored(struct control *c, const struct sandbox *row, struct node_call *call,
                      struct err *e)
{
    char organisation[ID_SIZE];
    int r = control_organisation(c, row->project, organisation, e);

    return r < 0 ? r : ask_store(c, row, "GET", organisation, call, e);
}

int control_forget_stored(struct control *c, const struct sandbox *row, struct node_call *call,
                          struct err *e)
{
    char organisation[ID_SIZE];
    int r = control_organisation(c, row->project, organisation, e);

    return r < 0 ? r : ask_store(c, row, "DELETE", organisation, call, e);
}

int control_stored(struct control *c, const struct control_actor *actor, const char *id,
                   json_t **ret, struct err *e)
{
    cleanup_free char *rest = xasprintf("/stored?organisation=%s", actor->organisation);
    const struct control_ask ask = {.method = "GET", .rest = rest, .anywhere = true};

    return control_ask(c, actor, id, &ask, ret, e);
}
