/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Back from the object store, on whatever node fits; and from one node to another, which is the same after a suspend.
 *
 * One owner at every step. The row names the node before that node is asked. It names another one only after the node before
 * has said no, which means that it has left nothing, or when nobody was there to be asked. An answer that was lost ends the
 * search: the row stays "restoring" on that node, and whoever goes on asks that node first. What a node has of a sandbox
 * whose row names another node, the reconciler removes.
 *
 * Memory first: as long as there is a choice, nodes are asked to refuse when they cannot run the memory; only when all
 * have, one may start it afresh from its disk, if its policy (cold_restore) lets it.
 */
#include "base/clock.h"
#include "base/log.h"
#include "control/place.h"
#include "control/private.h"
#include "database/nodes.h"

#include <stdio.h>
#include <string.h>

struct restore {
    struct control *c;
    const char *id;
    struct busy_hold *hold;
    char organisation[ID_SIZE];
    struct place place; /* the search; not used where there is nothing to choose */
    bool chooses;
    bool memory_first;
    bool memory_only;               /* by its policy */
    char node[SANDBOX_NODE_SIZE];   /* which is asked */
    char was_on[SANDBOX_NODE_SIZE]; /* before */
    struct fleet_origin origin;     /* what its memory is likely to need */
    struct node_call call;          /* how the last one went */
};

struct schedule_wish control_restore_wish(const struct sandbox *sb,
                                          const struct fleet_origin *origin, const char *was_on,
                                          bool elsewhere)
{
    return (struct schedule_wish){
        .shape = sb->shape,
        .template_name = sb->template_name,
        .stored = true,
        .accel = origin->accel,
        .vmm = origin->vmm,
        .cpu = origin->cpu,
        .was_on = was_on,
        .avoid = elsewhere ? was_on : NULL,
    };
}

static void init_restore(struct restore *rs, struct control *c, const struct sandbox *seen,
                         bool elsewhere)
{
    rs->c = c;
    rs->id = seen->id;
    rs->chooses = elsewhere || fleet_chooses(c->fleet);
    rs->memory_only = seen->policy.cold_restore == POLICY_COLD_REFUSE;
    rs->memory_first = rs->chooses || rs->memory_only;
    snprintf(rs->was_on, sizeof(rs->was_on), "%s",
             seen->node[0] ? seen->node : fleet_home(c->fleet));
    memcpy(rs->node, rs->was_on, sizeof(rs->node));
    fleet_origin(c->fleet, seen->node, &rs->origin);
    rs->place = (struct place){
        .fleet = c->fleet,
        .wish = control_restore_wish(seen, &rs->origin, rs->was_on, elsewhere),
    };
}

static int no_node(struct err *e)
{
    return err_set(e, -ENOMEM, "no_capacity", "no node takes sandboxes just now: try again later");
}

/* 1: rs->node is the next one. 0: there is none. */
static int next_node(struct restore *rs)
{
    if (!rs->chooses) {
        return 0;
    }
    if (place_next(&rs->place, rs->node) == 1) {
        return 1;
    }
    if (!rs->memory_first || rs->memory_only) {
        return 0;
    }
    rs->memory_first = false; /* again, all of them */
    rs->place.n_tried = 0;
    return place_next(&rs->place, rs->node);
}

static int ask(struct restore *rs, struct node_sandbox *ret, struct err *e)
{
    cleanup_json json_t *body =
        json_pack("{s:s, s:b}", "organisation", rs->organisation, "need_memory", rs->memory_first);
    struct pollfd cancel = {.fd = busy_cancel_fd(rs->hold), .events = POLLIN};
    int r;

    ASSERT(body);
    rs->call =
        (struct node_call){.deadline_ns = deadline_in_ms(CONTROL_TRANSFER_MS), .watch = &cancel};
    r = node_client_act(fleet_client(rs->c->fleet, rs->node), rs->id, "restore", body, &rs->call,
                        ret, /* ret_json */ NULL, e);
    rs->call.watch = NULL;
    if (r == -ECANCELED && busy_cancelled(rs->hold)) {
        return control_deleted_meanwhile(e);
    }
    return r;
}

static int decide_next(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    const struct restore *rs = ctx;

    if (sb->desired == SANDBOX_STATE_DELETED) {
        return control_not_found(e);
    }
    if (sb->observed !=
        SANDBOX_STATE_RESTORING) { /* we hold it: only a gateway that was taken for dead */
        return err_set(e, -ESTALE, "wrong_state", "the sandbox became %s while it was restored",
                       sandbox_state_name(sb->observed));
    }
    memcpy(sb->node, rs->node, sizeof(sb->node));
    sb->changed_at_ms = control_now_ms(c);
    return 1;
}

static bool may_go_elsewhere(const struct restore *rs, const struct err *e)
{
    return place_is_full(&rs->call, e) ||
           (rs->call.refused && str_eq(e->reason, "memory_does_not_fit"));
}

/* Asks one node after the other; rs->node has been written already. */
static int search(struct restore *rs, struct node_sandbox *ret, struct err *e)
{
    const struct log_ctx log = {.sandbox = rs->id};
    const struct control_change change = {.id = rs->id, .decide = decide_next, .ctx = rs};
    char was[SANDBOX_NODE_SIZE];
    struct err why = {0};
    int r;

    for (;;) {
        why = (struct err){0};
        r = ask(rs, ret, &why);
        memcpy(was, rs->node, sizeof(was));
        if (r == 0 || !may_go_elsewhere(rs, &why) || next_node(rs) == 0) {
            break;
        }
        log_info(&log, "node '%s' does not restore it (%s), asking '%s'", was, why.msg, rs->node);
        r = control_change(rs->c, &change, /* ret */ NULL, &why);
        if (r < 0) {
            break;
        }
    }
    if (r < 0 && e) {
        *e = why;
    }
    return r;
}

/* ---- the row ---- */

struct begin {
    const struct restore *rs; /* borrowed */
    bool from_lost;           /* whatever it was on a node that is lost */
    bool keep_desired;
    unsigned by;
    enum sandbox_state was_observed; /* out */
    enum sandbox_state was_desired;  /* out */
};

/* A node that is gone: what it had is not there. */
static bool lose(struct control *c, struct sandbox *sb)
{
    const unsigned live = 1u << SANDBOX_STATE_RUNNING | 1u << SANDBOX_STATE_PAUSING |
                          1u << SANDBOX_STATE_PAUSED | 1u << SANDBOX_STATE_RESUMING |
                          1u << SANDBOX_STATE_SUSPENDING | 1u << SANDBOX_STATE_RESTORING |
                          1u << SANDBOX_STATE_FAILED;

    if (!(live & (1u << sb->observed))) {
        return false;
    }
    if (sb->observed != SANDBOX_STATE_FAILED) {
        sandbox_move(
            sb, (struct sandbox_move){SANDBOX_STATE_FAILED, SANDBOX_BY_NODE, control_now_ms(c)},
            "its node is lost");
    }
    return true;
}

int control_node_lost(struct control *c, const char *name, struct err *e)
{
    cleanup_node_row struct node_row row = {0};
    int r = db_node_get(c->db, name, &row, e);

    return r == -ENOENT ? 0 : r < 0 ? r : row.lost;
}

/*
 * Read after the sandbox's row: a node that comes back makes all rows that name it newer (db_node_back()), so that what is
 * decided here is written only while the node is lost.
 */
static int check_lost(struct control *c, const char *name, struct err *e)
{
    int r = control_node_lost(c, name, e);

    return r == 0 ? err_set(e, -ESTALE, "node_not_lost", "node '%s' is not lost", name) : MIN(r, 0);
}

static int decide_begin_restore(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    struct begin *b = ctx;
    int r;

    if (sb->desired == SANDBOX_STATE_DELETED) {
        return control_not_found(e);
    }
    b->was_observed = sb->observed;
    b->was_desired = sb->desired;
    if (b->from_lost) {
        if (!str_eq(sb->node, b->rs->was_on)) {
            return 0; /* somebody has done it */
        }
        r = check_lost(c, sb->node, e);
        if (r < 0) {
            return r;
        }
        if (sb->observed != SANDBOX_STATE_SUSPENDED && !lose(c, sb)) {
            return err_set(e, -ESTALE, "wrong_state", "a sandbox that is %s has nothing stored",
                           sandbox_state_name(sb->observed));
        }
    } else if (sb->observed == SANDBOX_STATE_RUNNING || sb->observed == SANDBOX_STATE_RESTORING) {
        sb->desired = b->keep_desired ? sb->desired : SANDBOX_STATE_RUNNING;
        return sb->desired != b->was_desired;
    } else if (sb->observed != SANDBOX_STATE_SUSPENDED) {
        return err_set(e, -ESTALE, "wrong_state", "a sandbox that is %s cannot be restored",
                       sandbox_state_name(sb->observed));
    }
    sb->desired = b->keep_desired ? sb->desired : SANDBOX_STATE_RUNNING;
    memcpy(sb->node, b->rs->node, sizeof(sb->node));
    sandbox_move(sb,
                 (struct sandbox_move){SANDBOX_STATE_RESTORING,
                                       b->from_lost ? SANDBOX_BY_POLICY : b->by, control_now_ms(c)},
                 NULL);
    return 1;
}

struct finish {
    const struct restore *rs; /* borrowed */
    enum sandbox_state to;
    enum sandbox_state desired;
    const char *node; /* it is on; borrowed */
    const char *reason;
    const struct node_sandbox *seen; /* may be NULL */
};

static int decide_finish(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    const struct finish *f = ctx;

    if (sb->desired == SANDBOX_STATE_DELETED) {
        return control_not_found(e);
    }
    if (sb->observed != SANDBOX_STATE_RESTORING) {
        return 0; /* the reconciler saw it first */
    }
    sandbox_move(sb, (struct sandbox_move){f->to, SANDBOX_BY_NODE, control_now_ms(c)}, f->reason);
    sb->desired = f->desired;
    snprintf(sb->node, sizeof(sb->node), "%s", f->node);
    if (f->seen) {
        snprintf(sb->accel, sizeof(sb->accel), "%s", f->seen->accel);
        sb->started_at_ms = f->seen->started_at_ms ? f->seen->started_at_ms : control_now_ms(c);
    }
    return 1;
}

static int finish(struct restore *rs, struct finish *f, const char *project, struct err *e)
{
    const struct control_change change = {
        .id = rs->id, .project = project, .decide = decide_finish, .ctx = f};

    return control_change(rs->c, &change, /* ret */ NULL, e);
}

/* Nothing of it is anywhere but in the store: as it was before. */
static void take_back(struct restore *rs, const struct begin *b, const struct err *why)
{
    struct finish f = {
        .rs = rs,
        .to = b->from_lost ? SANDBOX_STATE_FAILED : SANDBOX_STATE_SUSPENDED,
        .desired = b->was_desired,
        .node = rs->was_on,
        .reason = b->from_lost ? why->msg : NULL,
    };
    bool nothing_there = rs->call.refused || (rs->chooses && rs->call.unreached);

    if (nothing_there && b->was_observed != SANDBOX_STATE_RESTORING) {
        /* The first error is the one to tell. */
        IGNORE_RESULT(finish(rs, &f, /* project */ NULL, /* e */ NULL));
    }
    control_kick(rs->c);
}

/* seen: the row as it was read last; held. The search has its first candidate in rs->node. */
static int run(struct restore *rs, struct begin *b, const struct control_actor *actor,
               struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    const struct control_change change = {.id = rs->id,
                                          .project = actor ? actor->project : NULL,
                                          .decide = decide_begin_restore,
                                          .ctx = b,
                                          .actor = actor,
                                          .action = "sandbox.restore"};
    struct node_sandbox node = {0};
    struct finish f = {.rs = rs, .to = SANDBOX_STATE_RUNNING, .node = rs->node, .seen = &node};
    struct err why = {0};
    int r = control_change(rs->c, &change, &sb, e);

    if (r < 0 || sb.observed != SANDBOX_STATE_RESTORING) {
        return r;
    }
    if (b->was_observed == SANDBOX_STATE_RESTORING && !b->from_lost) {
        /* Another gateway died over it: that node knows what is left to do. */
        memcpy(rs->node, sb.node, sizeof(rs->node));
    }
    r = search(rs, &node, &why);
    if (r < 0) {
        if (!str_eq(why.reason, "sandbox_deleted")) {
            take_back(rs, b, &why);
        }
        if (e) {
            *e = why;
        }
        return r;
    }
    f.desired = sb.desired;
    return finish(rs, &f, actor ? actor->project : NULL, e);
}

int control_restore_held(struct control *c, const struct control_actor *actor,
                         const struct sandbox *seen, struct busy_hold *hold, unsigned by,
                         struct err *e)
{
    struct restore rs = {.hold = hold};
    struct begin b = {.rs = &rs, .by = by};
    int r = actor->organisation[0]
                ? str_copy(rs.organisation, sizeof(rs.organisation), actor->organisation)
                : control_organisation(c, seen->project, rs.organisation, e);

    if (r < 0) {
        return r;
    }
    init_restore(&rs, c, seen, /* elsewhere */ false);
    if (rs.chooses && seen->observed == SANDBOX_STATE_SUSPENDED && next_node(&rs) == 0) {
        return no_node(e);
    }
    return run(&rs, &b, actor, e);
}

/* ---- to another node ---- */

/* Nobody waits for its processes: it sleeps in the store until somebody does. */
static bool may_sleep(const struct sandbox *sb)
{
    return sb->observed == SANDBOX_STATE_PAUSED || sb->desired != SANDBOX_STATE_RUNNING;
}

static int decide_sleep(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    const char *from = ctx;
    int r;

    if (sb->desired == SANDBOX_STATE_DELETED || !str_eq(sb->node, from)) {
        return 0;
    }
    r = check_lost(c, from, e);
    if (r < 0 || !lose(c, sb)) {
        return r;
    }
    sandbox_move(
        sb, (struct sandbox_move){SANDBOX_STATE_RESTORING, SANDBOX_BY_POLICY, control_now_ms(c)},
        NULL);
    sandbox_move(sb,
                 (struct sandbox_move){SANDBOX_STATE_SUSPENDED, SANDBOX_BY_NODE, control_now_ms(c)},
                 "its node is lost; this is its last durable state");
    sb->desired = sb->desired == SANDBOX_STATE_RUNNING ? sb->desired : SANDBOX_STATE_SUSPENDED;
    sb->node[0] = '\0';
    return 1;
}

static int decide_failed(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    const char *from = ctx;
    int r;

    if (sb->desired == SANDBOX_STATE_DELETED || sb->observed == SANDBOX_STATE_FAILED ||
        !str_eq(sb->node, from)) {
        return 0;
    }
    r = check_lost(c, from, e);
    return r < 0 ? r : lose(c, sb);
}

static int change_lost(struct control *c, const struct sandbox *seen, control_decide_fn *decide,
                       const char *action, struct err *e)
{
    char node[SANDBOX_NODE_SIZE];
    const struct control_change change = {
        .id = seen->id, .decide = decide, .ctx = node, .action = action};

    memcpy(node, seen->node, sizeof(node));
    return control_change(c, &change, /* ret */ NULL, e);
}

/* Before anybody is asked to restore it, and without a change to a row that says all there is to say. */
static int check_stored(struct control *c, const struct sandbox *seen, struct err *e)
{
    struct node_call call = {.deadline_ns = deadline_in_ms(CONTROL_CHANGE_MS)};
    struct err mine = {0};
    int r = control_is_stored(c, seen, &call, e);

    if (r == -ENOENT && change_lost(c, seen, decide_failed, /* action */ NULL, &mine) < 0) {
        *e = mine;
        return -EAGAIN;
    }
    return r;
}

static int restore_lost(struct control *c, const struct sandbox *seen, struct busy_hold *hold,
                        struct err *e)
{
    struct restore rs = {.hold = hold};
    struct begin b = {.rs = &rs, .from_lost = true, .keep_desired = true, .by = SANDBOX_BY_POLICY};
    int r = control_organisation(c, seen->project, rs.organisation, e);

    if (r < 0) {
        return r;
    }
    init_restore(&rs, c, seen, /* elsewhere */ true);
    return next_node(&rs) == 0 ? no_node(e) : run(&rs, &b, /* actor */ NULL, e);
}

static int move_lost(struct control *c, const struct sandbox *seen, struct busy_hold *hold,
                     struct err *e)
{
    struct err mine = {0};
    int r = check_lost(c, seen->node, &mine);

    r = r < 0 ? r : check_stored(c, seen, &mine);
    if (r == 0) {
        r = may_sleep(seen) ? change_lost(c, seen, decide_sleep, "sandbox.node_lost", &mine)
                            : restore_lost(c, seen, hold, &mine);
    }
    if (r < 0 && e) {
        *e = mine;
    }
    return r;
}

static int decide_nowhere(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    (void)c;
    (void)e;
    if (sb->desired == SANDBOX_STATE_DELETED || sb->observed != SANDBOX_STATE_SUSPENDED ||
        !str_eq(sb->node, ctx)) {
        return 0;
    }
    sb->node[0] = '\0';
    return 1;
}

/* What sleeps in the store is on no node; a request wakes it wherever it fits. */
static int forget_node(struct control *c, const struct sandbox *seen, struct err *e)
{
    char node[SANDBOX_NODE_SIZE];
    const struct control_change change = {.id = seen->id, .decide = decide_nowhere, .ctx = node};

    memcpy(node, seen->node, sizeof(node));
    return control_change(c, &change, /* ret */ NULL, e);
}

static int restore_elsewhere(struct control *c, const struct sandbox *seen, struct busy_hold *hold,
                             struct err *e)
{
    struct restore rs = {.hold = hold};
    struct begin b = {.rs = &rs, .keep_desired = true, .by = SANDBOX_BY_POLICY};
    int r = control_organisation(c, seen->project, rs.organisation, e);

    if (r < 0) {
        return r;
    }
    init_restore(&rs, c, seen, /* elsewhere */ true);
    if (seen->observed == SANDBOX_STATE_SUSPENDED && next_node(&rs) == 0) {
        return no_node(e);
    }
    return run(&rs, &b, /* actor */ NULL, e);
}

int control_move_held(struct control *c, const char *id, const struct control_move *how,
                      struct busy_hold *hold, struct err *e)
{
    const unsigned moves = 1u << SANDBOX_STATE_RUNNING | 1u << SANDBOX_STATE_PAUSED;
    cleanup_sandbox struct sandbox sb = {0};
    bool goes_on; /* it sleeps only to be moved */
    int r = db_sandbox_get(c->db, id, /* project */ NULL, &sb, e);

    if (r < 0 || sb.desired == SANDBOX_STATE_DELETED) {
        return r == -ENOENT || r == 0 ? control_not_found(e) : r;
    }
    if (!str_eq(sb.node, how->from)) {
        return 0;
    }
    goes_on = sb.observed == SANDBOX_STATE_RUNNING || str_eq(sb.reason, control_moving);
    if (how->lost && sb.observed != SANDBOX_STATE_SUSPENDED) {
        return move_lost(c, &sb, hold, e);
    }
    if (moves & (1u << sb.observed)) {
        r = control_suspend_held(c, &sb, hold, how->drop_snapshots, e);
        if (r == 0) {
            sandbox_done(&sb);
            r = db_sandbox_get(c->db, id, /* project */ NULL, &sb, e);
        }
        if (r < 0) {
            return r;
        }
    }
    if (!how->lost && (sb.observed == SANDBOX_STATE_RESTORING ||
                       (sb.observed == SANDBOX_STATE_SUSPENDED && goes_on))) {
        return restore_elsewhere(c, &sb, hold, e);
    }
    if (sb.observed == SANDBOX_STATE_SUSPENDED) {
        return forget_node(c, &sb, e);
    }
    return err_set(e, -ESTALE, "wrong_state", "a sandbox that is %s cannot be moved",
                   sandbox_state_name(sb.observed));
}

int control_move(struct control *c, const char *id, const struct control_move *how, struct err *e)
{
    CLEANUP(busy_leavep) struct busy_hold *hold = NULL;
    int r;

    ASSERT(c && id && how && how->from);
    r = busy_enter(c->busy, id, 0, deadline_in_ms(CONTROL_CHANGE_MS), &hold, e);
    return r < 0 ? r : control_move_held(c, id, how, hold, e);
}
