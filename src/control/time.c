/* SPDX-License-Identifier: Apache-2.0 */

/* Pause, resume, wake, rollback; and what is only asked of the node. */
#include "base/clock.h"
#include "base/log.h"
#include "control/private.h"

#include <stdio.h>

int control_deleted_meanwhile(struct err *e)
{
    return err_set(e, -ESTALE, "sandbox_deleted", "the sandbox was deleted meanwhile");
}

/*
 * Ends what the node did not do. It said no: the row goes back to where it was. It did not say: the row stays where
 * it is, under way, and the reconciler sees to the end of it.
 */
static void take_back(struct control *c, const struct control_actor *actor, const char *id,
                      const struct control_begin *begin, bool refused)
{
    struct control_end end = {
        .from = begin->via,
        .to = begin->was_observed,
        .desired = begin->was_desired,
    };

    if (refused && begin->was_observed != begin->via) {
        /* The first error is the one to tell. */
        IGNORE_RESULT(control_end_move(c, actor, id, &end, /* ret */ NULL, /* e */ NULL));
    }
    control_kick(c);
}

int control_step(struct control *c, const struct control_actor *actor, const char *id,
                 const struct control_step *step, struct node_sandbox *ret, json_t **ret_json,
                 struct err *e)
{
    struct pollfd cancel = {.fd = busy_cancel_fd(step->hold), .events = POLLIN};
    struct node_call call = {.deadline_ns = step->deadline_ns, .watch = &cancel};
    int r = node_client_act(step->node, id, step->action, step->body, &call, ret, ret_json, e);

    if (r == -ECANCELED && busy_cancelled(step->hold)) {
        return control_deleted_meanwhile(e);
    }
    if (r < 0) {
        take_back(c, actor, id, step->begin, call.refused);
    }
    return r;
}

/* --- pause --- */

static int pause_it(struct control *c, const struct control_actor *actor, const char *id,
                    const struct control_pause *how, bool expired, struct sandbox *ret,
                    struct err *e)
{
    struct control_begin begin = {
        .expired = expired,
        .from = 1u << SANDBOX_STATE_RUNNING,
        .via = SANDBOX_STATE_PAUSING,
        .at = SANDBOX_STATE_PAUSED,
        .desired = how->wakes ? SANDBOX_STATE_RUNNING : SANDBOX_STATE_PAUSED,
        .by = SANDBOX_BY_CLIENT,
        .refusal = "paused",
    };
    struct control_end end = {
        .relaxed = true,
        .from = SANDBOX_STATE_PAUSING,
        .to = SANDBOX_STATE_PAUSED,
        .desired = begin.desired,
    };
    CLEANUP(busy_leavep) struct busy_hold *hold = NULL;
    cleanup_json json_t *body =
        json_pack("{s:b, s:b}", "durable", how->durable, "wake_on_request", how->wakes);
    struct node_sandbox node;
    uint64_t deadline_ns = deadline_in_ms(CONTROL_CHANGE_MS);
    int r;

    ASSERT(c && actor && id && ret && body);

    r = control_hold(c, actor, id, deadline_ns, &hold, e);
    if (r == 0) {
        r = control_begin_move(c, actor, id, &begin, "sandbox.pause", ret, e);
    }
    if (r < 0 || ret->observed == SANDBOX_STATE_PAUSED) {
        return r;
    }
    r = control_step(
        c, actor, id,
        &(struct control_step){control_node(c, ret), "pause", body, &begin, hold, deadline_ns},
        &node,
        /* ret_json */ NULL, e);
    return r < 0 ? r : control_end_move(c, actor, id, &end, ret, e);
}

int control_pause(struct control *c, const struct control_actor *actor, const char *id,
                  const struct control_pause *how, struct sandbox *ret, struct err *e)
{
    return pause_it(c, actor, id, how, /* expired */ false, ret, e);
}

int control_end_by_pause(struct control *c, const struct control_actor *actor, const char *id,
                         bool wakes, struct err *e)
{
    const struct control_pause how = {.durable = true, .wakes = wakes};
    cleanup_sandbox struct sandbox sb = {0};

    return pause_it(c, actor, id, &how, /* expired */ true, &sb, e);
}

/* --- resume and wake --- */

static int resume_held(struct control *c, const struct control_actor *actor, const char *id,
                       struct busy_hold *hold, unsigned by, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct control_begin begin = {
        .from = 1u << SANDBOX_STATE_PAUSED,
        .via = SANDBOX_STATE_RESUMING,
        .at = SANDBOX_STATE_RUNNING,
        .desired = SANDBOX_STATE_RUNNING,
        .by = by,
        .refusal = "resumed",
    };
    struct node_sandbox node = {0};
    struct control_end end = {
        .relaxed = true,
        .from = SANDBOX_STATE_RESUMING,
        .to = SANDBOX_STATE_RUNNING,
        .desired = SANDBOX_STATE_RUNNING,
        .node = &node,
    };
    struct control_step step = {NULL,   "resume", NULL,
                                &begin, hold,     deadline_in_ms(CONTROL_CREATE_MS)};
    const char *action = by == SANDBOX_BY_POLICY ? "sandbox.wake" : "sandbox.resume";
    int r;

    r = control_begin_move(c, actor, id, &begin, action, &sb, e);
    if (r < 0 || sb.observed == SANDBOX_STATE_RUNNING) {
        return r;
    }
    step.node = control_node(c, &sb);
    r = control_step(c, actor, id, &step, &node, /* ret_json */ NULL, e);
    return r < 0 ? r : control_end_move(c, actor, id, &end, /* ret */ NULL, e);
}

/* What it is now, before somebody else was at it, decides. */
static int resume_or_restore(struct control *c, const struct control_actor *actor, const char *id,
                             struct busy_hold *hold, unsigned by, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    int r = control_get(c, actor, id, &sb, e);

    if (r < 0) {
        return r;
    }
    return sb.observed == SANDBOX_STATE_SUSPENDED || sb.observed == SANDBOX_STATE_RESTORING
               ? control_restore_held(c, actor, &sb, hold, by, e)
               : resume_held(c, actor, id, hold, by, e);
}

static int resume(struct control *c, const struct control_actor *actor, const char *id, unsigned by,
                  struct sandbox *ret, struct err *e)
{
    uint64_t deadline_ns = deadline_in_ms(CONTROL_CREATE_MS);
    cleanup_sandbox struct sandbox seen = {0};
    struct flight *flight = NULL;
    struct err mine = {0};
    int r;

    r = control_get(c, actor, id, &seen, e); /* whose it is, before anybody waits for it */
    if (r < 0) {
        return r;
    }
    r = flight_board(c->resumes, id, deadline_ns, &flight, e);
    if (r == 1) {
        struct busy_hold *hold = NULL;

        r = busy_enter(c->busy, id, 0, deadline_ns, &hold, &mine);
        if (r == 0) {
            r = resume_or_restore(c, actor, id, hold, by, &mine);
            busy_leave(hold);
        }
        flight_land(flight, r, &mine);
        if (r < 0 && e) {
            *e = mine;
        }
    }
    if (r < 0) {
        return r;
    }
    sandbox_done(ret);
    return control_get(c, actor, id, ret, e);
}

int control_resume(struct control *c, const struct control_actor *actor, const char *id,
                   struct sandbox *ret, struct err *e)
{
    ASSERT(c && actor && id && ret);
    return resume(c, actor, id, SANDBOX_BY_CLIENT, ret, e);
}

bool control_may_wake(const struct sandbox *sb)
{
    return sb->desired == SANDBOX_STATE_RUNNING &&
           (sb->observed == SANDBOX_STATE_PAUSED || sb->observed == SANDBOX_STATE_RESUMING ||
            sb->observed == SANDBOX_STATE_SUSPENDED || sb->observed == SANDBOX_STATE_RESTORING);
}

int control_wake(struct control *c, const struct control_actor *actor, const char *id,
                 struct sandbox *ret, struct err *e)
{
    ASSERT(c && actor && id && ret);
    return resume(c, actor, id, SANDBOX_BY_POLICY, ret, e);
}

/* --- rollback --- */

/* A running sandbox stays "running" all the time; another goes through "resuming". */
static int begin_rollback(struct control *c, const struct control_actor *actor, const char *id,
                          struct control_begin *begin, struct sandbox *ret, struct err *e)
{
    *begin = (struct control_begin){
        .from =
            1u << SANDBOX_STATE_PAUSED | 1u << SANDBOX_STATE_STOPPED | 1u << SANDBOX_STATE_FAILED,
        .via = SANDBOX_STATE_RESUMING,
        .at = SANDBOX_STATE_RUNNING,
        .desired = SANDBOX_STATE_RUNNING,
        .by = SANDBOX_BY_CLIENT,
        .refusal = "rolled back",
    };
    return control_begin_move(c, actor, id, begin, /* action */ NULL, ret, e);
}

/* Also for a running sandbox: its machine is another one. */
static int decide_rolled_back(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    const struct node_sandbox *node = ctx;

    if (sb->desired == SANDBOX_STATE_DELETED) {
        return control_not_found(e);
    }
    if (sandbox_state_may_move(sb->observed, SANDBOX_STATE_RUNNING, SANDBOX_BY_NODE)) {
        sandbox_move(
            sb, (struct sandbox_move){SANDBOX_STATE_RUNNING, SANDBOX_BY_NODE, control_now_ms(c)},
            NULL);
    }
    if (sb->observed != SANDBOX_STATE_RUNNING) {
        return 0;
    }
    snprintf(sb->accel, sizeof(sb->accel), "%s", node->accel);
    sb->started_at_ms = node->started_at_ms ? node->started_at_ms : control_now_ms(c);
    return 1;
}

int control_rollback(struct control *c, const struct control_actor *actor, const char *id,
                     const char *snapshot, struct sandbox *ret, struct control_rollback *ret_how,
                     struct err *e)
{
    CLEANUP(busy_leavep) struct busy_hold *hold = NULL;
    cleanup_json json_t *body = json_pack("{s:s}", "snapshot", snapshot);
    cleanup_json json_t *answer = NULL;
    struct node_sandbox node = {0};
    struct control_begin begin;
    struct control_change change = {
        .id = id, .project = actor->project, .decide = decide_rolled_back, .ctx = &node};
    struct control_step step = {NULL,   "rollback", body,
                                &begin, NULL,       deadline_in_ms(CONTROL_CREATE_MS)};
    int r;

    ASSERT(c && actor && id && snapshot && ret && ret_how && body);

    r = control_hold(c, actor, id, step.deadline_ns, &hold, e);
    if (r == 0) {
        r = begin_rollback(c, actor, id, &begin, ret, e);
    }
    if (r < 0) {
        return r;
    }
    step.hold = hold;
    step.node = control_node(c, ret);
    r = control_step(c, actor, id, &step, &node, &answer, e);
    if (r < 0) {
        return r;
    }
    control_audit(c, actor, "sandbox.rollback", id, snapshot);
    *ret_how = (struct control_rollback){.cold = json_get_bool(answer, "cold", false)};
    snprintf(ret_how->before, sizeof(ret_how->before), "%s", json_get_string(answer, "before", ""));
    return control_change(c, &change, ret, e);
}

/* --- the rest --- */

int control_ask(struct control *c, const struct control_actor *actor, const char *id,
                const struct control_ask *ask, json_t **ret, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct node_call call = {.deadline_ns = deadline_in_ms(CONTROL_CHANGE_MS), .watch = ask->watch};
    struct node_ask what = {.method = ask->method, .id = id, .rest = ask->rest, .body = ask->body};
    int r;

    ASSERT(c && actor && id && ask);

    r = control_get(c, actor, id, &sb, e);
    if (r == 0 && sb.desired == SANDBOX_STATE_DELETED) {
        r = control_not_found(e);
    }
    if (r == 0) {
        r = node_client_ask(ask->anywhere ? fleet_any(c->fleet, sb.node) : control_node(c, &sb),
                            &what, &call, ret, e);
    }
    if (r == 0 && ask->action) {
        control_audit(c, actor, ask->action, id, ask->rest);
    }
    return r;
}
