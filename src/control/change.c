/* SPDX-License-Identifier: Apache-2.0 */

/* Delete, patch, stop, start. */
#include "base/clock.h"
#include "base/log.h"
#include "control/private.h"

#include <stdio.h>

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
    r = node_client_delete(c->node, id, &call, e);
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

    ASSERT(c && patch && ret);
    return id_valid(ID_SANDBOX, id) ? control_change(c, &change, ret, e) : control_not_found(e);
}

/* Moves to a transient state on the client's behalf. */
struct begin_move {
    enum sandbox_state desired;
    enum sandbox_state via;
    enum sandbox_state at; /* being there already is fine */
    const char *verb;
};

static int decide_begin(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    const struct begin_move *m = ctx;

    (void)c;
    if (sb->desired == SANDBOX_STATE_DELETED) {
        return control_not_found(e);
    }
    if (sb->observed == m->at) {
        return 0;
    }
    if (!sandbox_state_may_move(sb->observed, m->via, SANDBOX_BY_CLIENT)) {
        return err_set(e, -ESTALE, "wrong_state", "a sandbox that is %s cannot be %s",
                       sandbox_state_name(sb->observed), m->verb);
    }
    sb->desired = m->desired;
    sandbox_set_observed(sb, m->via, SANDBOX_BY_CLIENT, NULL);
    return 1;
}

/* Ends a transient state by what the node said. */
struct end_move {
    enum sandbox_state from;
    enum sandbox_state to;
    enum sandbox_state desired;
    const char *reason;
    const struct node_sandbox *node; /* NULL: it said nothing about the machine */
};

static int decide_end(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    const struct end_move *m = ctx;

    if (sb->desired == SANDBOX_STATE_DELETED) {
        return control_not_found(e);
    }
    if (sb->observed != m->from) {
        return 0; /* the reconciler saw it first */
    }
    sandbox_set_observed(sb, m->to, SANDBOX_BY_NODE, m->reason);
    sb->desired = m->desired;
    if (m->node) {
        snprintf(sb->accel, sizeof(sb->accel), "%s", m->node->accel);
        sb->started_at_ms = m->node->started_at_ms ? m->node->started_at_ms : control_now_ms(c);
    }
    return 1;
}

static int begin_move(struct control *c, const struct control_actor *actor, const char *id,
                      struct begin_move *m, const char *action, struct sandbox *ret, struct err *e)
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

static int end_move(struct control *c, const struct control_actor *actor, const char *id,
                    struct end_move *m, struct sandbox *ret, struct err *e)
{
    struct control_change change = {
        .id = id, .project = actor->project, .decide = decide_end, .ctx = m, .actor = actor};

    return control_change(c, &change, ret, e);
}

int control_stop(struct control *c, const struct control_actor *actor, const char *id,
                 struct sandbox *ret, struct err *e)
{
    struct begin_move begin = {
        .desired = SANDBOX_STATE_STOPPED,
        .via = SANDBOX_STATE_STOPPING,
        .at = SANDBOX_STATE_STOPPED,
        .verb = "stopped",
    };
    struct end_move end = {
        .from = SANDBOX_STATE_STOPPING,
        .to = SANDBOX_STATE_STOPPED,
        .desired = SANDBOX_STATE_STOPPED,
    };
    CLEANUP(busy_leavep) struct busy_hold *hold = NULL;
    struct node_call call = {.deadline_ns = deadline_in_ms(CONTROL_CHANGE_MS)};
    struct pollfd cancel;
    int r;

    ASSERT(c && actor && id && ret);

    r = control_get(c, actor, id, ret, e); /* whose it is, before anybody waits for it */
    if (r == 0) {
        r = busy_enter(c->busy, id, 0, call.deadline_ns, &hold, e);
    }
    if (r == 0) {
        r = begin_move(c, actor, id, &begin, "sandbox.stop", ret, e);
    }
    if (r < 0 || ret->observed == SANDBOX_STATE_STOPPED) {
        return r;
    }
    cancel = (struct pollfd){.fd = busy_cancel_fd(hold), .events = POLLIN};
    call.watch = &cancel;
    r = node_client_stop(c->node, id, &call, e);
    if (r < 0) {
        control_kick(c); /* the row says stopping: the reconciler sees to the end of it */
        return r;
    }
    return end_move(c, actor, id, &end, ret, e);
}

int control_start(struct control *c, const struct control_actor *actor, const char *id,
                  struct sandbox *ret, struct err *e)
{
    struct begin_move begin = {
        .desired = SANDBOX_STATE_RUNNING,
        .via = SANDBOX_STATE_RESUMING,
        .at = SANDBOX_STATE_RUNNING,
        .verb = "started",
    };
    struct node_sandbox node = {0};
    struct end_move end = {
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

    r = control_get(c, actor, id, ret, e);
    if (r == 0) {
        r = busy_enter(c->busy, id, 0, call.deadline_ns, &hold, e);
    }
    if (r == 0) {
        r = begin_move(c, actor, id, &begin, "sandbox.start", ret, e);
    }
    if (r < 0 || ret->observed == SANDBOX_STATE_RUNNING) {
        return r;
    }
    cancel = (struct pollfd){.fd = busy_cancel_fd(hold), .events = POLLIN};
    call.watch = &cancel;
    r = node_client_start(c->node, id, &call, &node, &why);
    if (r == 0) {
        return end_move(c, actor, id, &end, ret, e);
    }
    /* Should it have started all the same, the reconciler stops it: the client was told that it is not. */
    end.to = SANDBOX_STATE_STOPPED;
    end.desired = SANDBOX_STATE_STOPPED;
    end.reason = why.msg;
    end.node = NULL;
    IGNORE_RESULT(
        end_move(c, actor, id, &end, ret, /* e */ NULL)); /* the first error is the one to tell */
    control_kick(c);
    if (e) {
        *e = why;
    }
    return r;
}
