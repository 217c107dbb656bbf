/* SPDX-License-Identifier: Apache-2.0 */

/* Delete, patch, stop, start; and what moves have in common. */
#include "base/clock.h"
#include "base/log.h"
#include "control/private.h"

#include <stdio.h>

/*
 * Whoever is lost stands still, and what it has left of a sandbox without a row, the reconciler removes when it is back. The
 * database is asked only about nodes of which nothing is heard.
 */
static int delete_on_node(struct control *c, const struct sandbox *sb, struct node_call *call,
                          struct err *e)
{
    const unsigned without_node = 1u << SANDBOX_STATE_SUSPENDING | 1u << SANDBOX_STATE_SUSPENDED |
                                  1u << SANDBOX_STATE_RESTORING | 1u << SANDBOX_STATE_FAILED;
    int lost = fleet_alive(c->fleet, sb->node) ? 0 : control_node_lost(c, sb->node, e);
    int r = lost < 0 ? lost : 0;

    if (lost == 0) {
        r = node_client_delete(control_node(c, sb), sb->id, call, e);
    }
    if (r < 0 || (lost == 0 && !(without_node & (1u << sb->observed)))) {
        return r; /* a node forgets what it has stored itself */
    }
    return control_forget_stored(c, sb, call, e);
}

int control_finish_delete_held(struct control *c, const char *id, uint64_t deadline_ns,
                               struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct node_call call = {.deadline_ns = deadline_ns};
    int r;

    r = db_sandbox_get(c->db, id, /* project */ NULL, &sb, e);
    if (r < 0) {
        return r == -ENOENT ? 0 : r;
    }
    ASSERT(sb.desired == SANDBOX_STATE_DELETED);
    r = control_check_node(c, e);
    r = r < 0 ? r : delete_on_node(c, &sb, &call, e);
    if (r < 0) {
        return r;
    }
    return control_remove_row(c, id, /* operation */ NULL, sb.reason, e);
}

int control_finish_delete(struct control *c, const char *id, uint64_t deadline_ns, struct err *e)
{
    CLEANUP(busy_leavep) struct busy_hold *hold = NULL;
    int r;

    r = busy_enter(c->busy, id, BUSY_CANCEL_HOLDER, deadline_ns, &hold, e);
    return r < 0 ? r : control_finish_delete_held(c, id, deadline_ns, e);
}

int control_delete(struct control *c, const struct control_actor *actor, const char *id,
                   bool *ret_done, struct err *e)
{
    struct log_ctx log = {.sandbox = id};
    struct err later = {0};
    int r;

    ASSERT(c && actor && id && ret_done);

    if (!id_valid(ID_SANDBOX, id)) {
        return control_not_found(e);
    }
    r = control_mark_deleted(c, actor, id, "sandbox.delete", e);
    if (r < 0) {
        return r;
    }
    r = control_finish_delete(c, id, deadline_in_ms(CONTROL_DELETE_MS), &later);
    if (r < 0) {
        log_warn(&log, "cannot finish the deletion now, retrying later: %s", later.msg);
        control_kick(c);
    }
    *ret_done = r == 0;
    return 0;
}

static int decide_patch(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    if (sb->desired == SANDBOX_STATE_DELETED) {
        return control_not_found(e);
    }
    sandbox_apply(sb, ctx, control_now_ms(c));
    return 1;
}

/* What could not be said to the node now, the reconciler says later: it compares. */
static void push_policy(struct control *c, const struct sandbox *sb)
{
    struct node_call call = {.deadline_ns = deadline_in_ms(CONTROL_UNDO_MS)};
    struct log_ctx log = {.sandbox = sb->id};
    struct err e = {0};

    if (node_client_set_policy(control_node(c, sb), sb->id, &sb->policy, &call, &e) < 0) {
        log_warn(&log, "cannot tell the node the new policy, retrying later: %s", e.msg);
        control_kick(c);
    }
}

static void push_network(struct control *c, const struct sandbox *sb)
{
    struct node_call call = {.deadline_ns = deadline_in_ms(CONTROL_UNDO_MS)};
    struct log_ctx log = {.sandbox = sb->id};
    struct err e = {0};

    if (node_client_set_network(control_node(c, sb), sb, &call, &e) < 0) {
        log_warn(&log, "cannot tell the node the new network policy, retrying later: %s", e.msg);
        control_kick(c);
    }
}

/* The same for the end of its life; that waits for nobody: who has little time left cannot. */
static void push_end(struct control *c, const struct sandbox *sb)
{
    struct node_call call = {.deadline_ns = deadline_in_ms(CONTROL_UNDO_MS)};
    struct log_ctx log = {.sandbox = sb->id};
    struct err e = {0};

    if (node_client_set_end(control_node(c, sb), sb, control_now_ms(c), &call, &e) < 0) {
        log_warn(&log, "cannot tell the node the new end, retrying later: %s", e.msg);
        control_kick(c);
    }
}

int control_patch(struct control *c, const struct control_actor *actor, const char *id,
                  const struct sandbox_patch *patch, struct sandbox *ret, struct err *e)
{
    struct control_change change = {
        .id = id,
        .project = actor->project,
        .decide = decide_patch,
        .ctx = (void *)(uintptr_t)patch,
        .actor = actor,
        .action = "sandbox.change",
    };
    CLEANUP(busy_leavep) struct busy_hold *hold = NULL;
    int r = 0;

    ASSERT(c && patch && ret);
    if (!id_valid(ID_SANDBOX, id)) {
        return control_not_found(e);
    }
    if (patch->has_policy ||
        patch->network) { /* two of these must reach the node in the order of their rows */
        r = control_hold(c, actor, id, deadline_in_ms(CONTROL_CHANGE_MS), &hold, e);
    }
    if (r == 0) {
        r = control_change(c, &change, ret, e);
    }
    if (r == 0 && patch->has_policy) {
        push_policy(c, ret);
    }
    if (r == 0 && patch->network) {
        push_network(c, ret);
    }
    if (r == 0 && (patch->has_timeout || patch->has_at_end)) {
        push_end(c, ret);
    }
    return r;
}

static int decide_begin(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    struct control_begin *m = ctx;

    if (sb->desired == SANDBOX_STATE_DELETED) {
        return control_not_found(e);
    }
    if (m->expired && (sb->end_at_ms == 0 || sb->end_at_ms > control_now_ms(c))) {
        return err_set(e, -ESTALE, "not_expired", "its time goes on");
    }
    m->was_observed = sb->observed;
    m->was_desired = sb->desired;
    if (sb->observed == m->at) {
        bool moving =
            str_eq(sb->reason, control_moving); /* who asks for it by name wants it to stay so */

        sb->desired = m->desired;
        sb->reason[0] = moving ? '\0' : sb->reason[0];
        return m->was_desired != m->desired || moving;
    }
    if (sb->observed == m->via && sb->desired == m->desired) {
        return 0; /* another gateway is at it, or died over it: the node knows what is left to do */
    }
    if (!(m->from & (1u << sb->observed))) {
        return err_set(e, -ESTALE, "wrong_state", "a sandbox that is %s cannot be %s",
                       sandbox_state_name(sb->observed), m->refusal);
    }
    sb->desired = m->desired;
    sandbox_move(sb, (struct sandbox_move){m->via, m->by, control_now_ms(c)}, NULL);
    return 1;
}

static int decide_end(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    const struct control_end *m = ctx;

    if (sb->desired == SANDBOX_STATE_DELETED) {
        return control_not_found(e);
    }
    if (sb->observed != m->from) {
        return 0; /* the reconciler saw it first */
    }
    sandbox_move(sb, (struct sandbox_move){m->to, SANDBOX_BY_NODE, control_now_ms(c)}, m->reason);
    sb->desired = m->desired;
    if (m->node) {
        snprintf(sb->accel, sizeof(sb->accel), "%s", m->node->accel);
        sb->started_at_ms = m->node->started_at_ms ? m->node->started_at_ms : control_now_ms(c);
    }
    return 1;
}

int control_begin_move(struct control *c, const struct control_actor *actor, const char *id,
                       struct control_begin *m, const char *action, struct sandbox *ret,
                       struct err *e)
{
    struct control_change change = {
        .id = id,
        .project = actor->project,
        .decide = decide_begin,
        .ctx = m,
        .actor = actor,
        .action = action,
    };

    return control_change(c, &change, ret, e);
}

int control_end_move(struct control *c, const struct control_actor *actor, const char *id,
                     struct control_end *m, struct sandbox *ret, struct err *e)
{
    struct control_change change = {
        .id = id,
        .project = actor->project,
        .decide = decide_end,
        .ctx = m,
        .actor = actor,
        .relaxed = m->relaxed,
    };

    return control_change(c, &change, ret, e);
}

int control_hold(struct control *c, const struct control_actor *actor, const char *id,
                 uint64_t deadline_ns, struct busy_hold **ret, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    int r = control_get(c, actor, id, &sb, e); /* whose it is, before anybody waits for it */

    return r < 0 ? r : busy_enter(c->busy, id, 0, deadline_ns, ret, e);
}

static int stop(struct control *c, const struct control_actor *actor, const char *id, bool expired,
                struct sandbox *ret, struct err *e)
{
    struct control_begin begin = {
        .expired = expired,
        .from = 1u << SANDBOX_STATE_RUNNING | 1u << SANDBOX_STATE_PAUSED,
        .via = SANDBOX_STATE_STOPPING,
        .at = SANDBOX_STATE_STOPPED,
        .desired = SANDBOX_STATE_STOPPED,
        .by = SANDBOX_BY_CLIENT,
        .refusal = "stopped",
    };
    struct control_end end = {
        .from = SANDBOX_STATE_STOPPING,
        .to = SANDBOX_STATE_STOPPED,
        .desired = SANDBOX_STATE_STOPPED,
    };
    CLEANUP(busy_leavep) struct busy_hold *hold = NULL;
    struct node_call call = {.deadline_ns = deadline_in_ms(CONTROL_CHANGE_MS)};
    struct pollfd cancel;
    int r;

    ASSERT(c && actor && id && ret);

    r = control_hold(c, actor, id, call.deadline_ns, &hold, e);
    if (r == 0) {
        r = control_begin_move(c, actor, id, &begin, "sandbox.stop", ret, e);
    }
    if (r < 0 || ret->observed == SANDBOX_STATE_STOPPED) {
        return r;
    }
    cancel = (struct pollfd){.fd = busy_cancel_fd(hold), .events = POLLIN};
    call.watch = &cancel;
    r = node_client_stop(control_node(c, ret), id, &call, e);
    if (r == -ECANCELED && busy_cancelled(hold)) {
        return control_deleted_meanwhile(e);
    }
    if (r < 0) {
        control_kick(c); /* the row says stopping: the reconciler sees to the end of it */
        return r;
    }
    return control_end_move(c, actor, id, &end, ret, e);
}

int control_stop(struct control *c, const struct control_actor *actor, const char *id,
                 struct sandbox *ret, struct err *e)
{
    return stop(c, actor, id, /* expired */ false, ret, e);
}

int control_end_by_stop(struct control *c, const struct control_actor *actor, const char *id,
                        struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};

    return stop(c, actor, id, /* expired */ true, &sb, e);
}

int control_start(struct control *c, const struct control_actor *actor, const char *id,
                  struct sandbox *ret, struct err *e)
{
    struct control_begin begin = {
        .from = 1u << SANDBOX_STATE_STOPPED | 1u << SANDBOX_STATE_FAILED,
        .via = SANDBOX_STATE_RESUMING,
        .at = SANDBOX_STATE_RUNNING,
        .desired = SANDBOX_STATE_RUNNING,
        .by = SANDBOX_BY_CLIENT,
        .refusal = "started",
    };
    struct node_sandbox node = {0};
    struct control_end end = {
        .relaxed = true,
        .from = SANDBOX_STATE_RESUMING,
        .to = SANDBOX_STATE_RUNNING,
        .desired = SANDBOX_STATE_RUNNING,
        .node = &node,
    };
    CLEANUP(busy_leavep) struct busy_hold *hold = NULL;
    struct node_call call = {.deadline_ns = deadline_in_ms(CONTROL_CREATE_MS)};
    struct err why = {0};
    struct pollfd cancel;
    int r;

    ASSERT(c && actor && id && ret);

    r = control_hold(c, actor, id, call.deadline_ns, &hold, e);
    if (r == 0) {
        r = control_begin_move(c, actor, id, &begin, "sandbox.start", ret, e);
    }
    if (r < 0 || ret->observed == SANDBOX_STATE_RUNNING) {
        return r;
    }
    cancel = (struct pollfd){.fd = busy_cancel_fd(hold), .events = POLLIN};
    call.watch = &cancel;
    r = node_client_start(control_node(c, ret), id, &call, &node, &why);
    if (r == 0) {
        return control_end_move(c, actor, id, &end, ret, e);
    }
    if (r == -ECANCELED && busy_cancelled(hold)) {
        return control_deleted_meanwhile(e);
    }
    /* Should it have started all the same, the reconciler stops it: the client was told that it is not. */
    end.to = SANDBOX_STATE_STOPPED;
    end.desired = SANDBOX_STATE_STOPPED;
    end.reason = why.msg;
    end.node = NULL;
    /* The first error is the one to tell. */
    IGNORE_RESULT(control_end_move(c, actor, id, &end, ret, /* e */ NULL));
    control_kick(c);
    if (e) {
        *e = why;
    }
    return r;
}
