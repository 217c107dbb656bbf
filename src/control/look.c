/* SPDX-License-Identifier: Apache-2.0 */

/* One sandbox as its node sees it, written into its row: by the reconciler for all, at once for who asks for one. */
#include "base/clock.h"
#include "control/private.h"

#include <stdio.h>

/* Somebody waits for it, and the row as it is does as well. */
#define LOOK_MS 3000

struct observe {
    const struct plan *plan;
    const struct node_sandbox *node;
    int64_t generation;
};

static int decide_observed(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    const struct observe *o = ctx;

    (void)e;
    if (sb->generation != o->generation) {
        return 0; /* decided on an older row: the next pass decides again */
    }
    sandbox_move(sb, (struct sandbox_move){o->plan->to, SANDBOX_BY_NODE, control_now_ms(c)},
                 o->plan->reason);
    if (o->node && o->plan->to == SANDBOX_STATE_RUNNING) {
        snprintf(sb->accel, sizeof(sb->accel), "%s", o->node->accel);
        sb->started_at_ms = o->node->started_at_ms ? o->node->started_at_ms : control_now_ms(c);
    }
    return 1;
}

int control_observe(struct control *c, const struct sandbox *row, const struct plan *plan,
                    const struct node_sandbox *node, struct err *e)
{
    struct observe o = {.plan = plan, .node = node, .generation = row->generation};
    struct control_change change = {
        .id = row->id, .decide = decide_observed, .ctx = &o, .action = "sandbox.observed"};

    ASSERT(plan->step == PLAN_OBSERVE);
    return control_change(c, &change, /* ret */ NULL, e);
}

static bool ask_node(struct control *c, const struct sandbox *sb, struct node_sandbox *ret)
{
    struct node_call call = {.deadline_ns = deadline_in_ms(LOOK_MS)};
    cleanup_json json_t *answer = NULL;

    return node_client_ask(control_node(c, sb),
                           &(struct node_ask){.method = "GET", .id = sb->id, .rest = ""}, &call,
                           &answer, /* e */ NULL) == 0 &&
           node_sandbox_from_json(answer, ret, /* e */ NULL) == 0 && str_eq(ret->id, sb->id);
}

int control_look(struct control *c, const struct control_actor *actor, const char *id,
                 struct sandbox *ret, struct err *e)
{
    CLEANUP(busy_leavep) struct busy_hold *hold = NULL;
    struct node_sandbox node;
    struct plan plan;
    int r;

    ASSERT(c && actor && id && ret);

    r = control_get(c, actor, id, ret, e);
    if (r < 0 || ret->desired == SANDBOX_STATE_DELETED || !ask_node(c, ret, &node)) {
        return r;
    }
    plan = plan_sandbox(&(struct plan_input){.row = ret, .node = &node});
    hold = plan.step == PLAN_OBSERVE ? busy_try_enter(c->busy, id) : NULL;
    if (!hold) {
        return 0; /* nothing new, or somebody works on it and will write what comes of that */
    }
    r = control_observe(c, ret, &plan, &node, e);
    if (r < 0) {
        return r;
    }
    sandbox_done(ret);
    return control_get(c, actor, id, ret, e);
}
