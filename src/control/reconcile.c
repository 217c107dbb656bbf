/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The reconciler, node by node: gathers what the rows of a node and the node say, lets plan.c decide, acts. And the end of lives.
 *
 * Order of reading: rows, the node's list, rows again. What the node has and the second reading does
 * not know is an orphan, because rows are written before the node is asked. What the
 * node lacks counts as lost only if the row was the same in both readings. Any reading that fails ends the
 * pass before anything was done: an unreadable answer is not an empty one. A node that cannot be asked is that pass's end, and
 * no other node's.
 *
 * What a node has and no row says that it has is an orphan of a sandbox that is gone, which goes with what is stored of it, or
 * what a sandbox left that lives elsewhere by now: that goes from the node alone.
 */
#include "base/clock.h"
#include "base/log.h"
#include "control/private.h"

#include <stdio.h>
#include <string.h>

#define NODE_CALL_MS 10000
#define EXPIRE_BATCH 256

/* id and generation of every row, as read first. */
struct seen {
    char id[ID_SIZE];
    int64_t generation;
};

struct pass {
    struct control *c;
    struct node_client *client; /* borrowed: the fleet's */
    struct seen *seen;          /* owned; sorted by id */
    size_t n_seen;
    size_t cap_seen;
    struct node_list node; /* owned */
    bool *matched;         /* owned; per item of node: a row knows it */
    struct sandbox *work;  /* owned, and so are their strings; rows that need something */
    size_t n_work;
    size_t cap_work;
};

static void pass_done(struct pass *p)
{
    for (size_t i = 0; i < p->n_work; i++) {
        sandbox_done(&p->work[i]);
    }
    free(p->work);
    free(p->seen);
    free(p->matched);
    node_list_done(&p->node);
}

static int add_seen(void *ctx, const struct sandbox *sb)
{
    struct pass *p = ctx;

    if (p->n_seen == p->cap_seen) {
        p->cap_seen = MAX(p->cap_seen * 2, (size_t)256);
        p->seen = xrealloc(p->seen, p->cap_seen * sizeof(*p->seen));
    }
    p->seen[p->n_seen].generation = sb->generation;
    snprintf(p->seen[p->n_seen].id, ID_SIZE, "%s", sb->id);
    p->n_seen++;
    return 0;
}

static int compare_seen(const void *a, const void *b)
{
    return strcmp(((const struct seen *)a)->id, ((const struct seen *)b)->id);
}

static bool seen_unchanged(const struct pass *p, const struct sandbox *sb)
{
    struct seen key = {0};
    const struct seen *found;

    if (p->n_seen == 0) {
        return false;
    }
    snprintf(key.id, sizeof(key.id), "%s", sb->id);
    found = bsearch(&key, p->seen, p->n_seen, sizeof(key), compare_seen);
    return found && found->generation == sb->generation;
}

static struct plan plan_row(const struct pass *p, const struct sandbox *sb, bool has_operation)
{
    struct plan_input in = {
        .row = sb,
        .node = node_list_find(&p->node, sb->id),
        .has_operation = has_operation,
        .now_ms = control_now_ms(p->c),
    };
    struct plan plan;

    if (!in.node && sb->desired != SANDBOX_STATE_DELETED && !seen_unchanged(p, sb)) {
        return (struct plan){.step = PLAN_NOTHING}; /* too young for the node's list to know it */
    }
    plan = plan_sandbox(&in);
    if (plan.step == PLAN_OBSERVE && !seen_unchanged(p, sb)) {
        return (struct plan){.step = PLAN_NOTHING}; /* the node's list may be older than the row */
    }
    return plan;
}

/*
 * May the node have it, as the row says? A row of before there were several names none, and means the home node; one that is
 * suspended and names none is in the store alone.
 */
static bool may_have(const struct pass *p, const struct sandbox *sb)
{
    const char *name = node_client_name(p->client);

    return sb->node[0]
               ? str_eq(sb->node, name)
               : str_eq(fleet_home(p->c->fleet), name) && sb->observed != SANDBOX_STATE_SUSPENDED;
}

static int gather_row(void *ctx, const struct sandbox *sb)
{
    struct pass *p = ctx;
    const struct node_sandbox *node = node_list_find(&p->node, sb->id);

    if (node && !may_have(p, sb)) {
        return 0; /* what it has is left over */
    }
    if (node) {
        p->matched[node - p->node.items] = true;
    }
    if (plan_row(p, sb, /* has_operation */ false).step == PLAN_NOTHING) {
        return 0;
    }
    if (p->n_work == p->cap_work) {
        p->cap_work = MAX(p->cap_work * 2, (size_t)16);
        p->work = xrealloc(p->work, p->cap_work * sizeof(*p->work));
    }
    sandbox_copy(&p->work[p->n_work++], sb);
    return 0;
}

static int gather(struct pass *p, struct err *e)
{
    struct control *c = p->c;
    const char *name = node_client_name(p->client);
    bool home = str_eq(name, fleet_home(c->fleet));
    const struct sandbox_query all = {.node = name, .or_nowhere = home};
    struct node_call call = {.deadline_ns = deadline_in_ms(NODE_CALL_MS)};
    int r = home ? control_check_node(c, e) : 0;

    if (r < 0) {
        return r;
    }
    r = db_sandbox_list(c->db, &all, add_seen, p, e);
    if (r < 0) {
        return err_wrap(e, r, "reading the sandboxes");
    }
    if (p->n_seen > 1) {
        qsort(p->seen, p->n_seen, sizeof(*p->seen), compare_seen);
    }
    r = node_client_list(p->client, &call, &p->node, e);
    if (r < 0) {
        return err_wrap(e, r, "reading what node '%s' has%s%s", name, call.why[0] ? ": " : "",
                        call.why);
    }
    p->matched = xnew_n(bool, p->node.n + 1);
    r = db_sandbox_list(c->db, &all, gather_row, p, e);
    return r < 0 ? err_wrap(e, r, "reading the sandboxes again") : 0;
}

/* The node is told to do what the row says still; what comes of it, the next pass observes. */
static int drive_node(struct control *c, const struct sandbox *row, enum plan_step step,
                      struct node_call *call, struct err *e)
{
    cleanup_sandbox struct sandbox now = {0};
    struct node_sandbox node;
    int r = db_sandbox_get(c->db, row->id, /* project */ NULL, &now, e);

    if (r < 0 || now.generation != row->generation) {
        return r; /* decided on an older row: the next pass decides again */
    }
    switch (step) {
    case PLAN_STOP:
        return node_client_stop(control_node(c, &now), row->id, call, e);
    case PLAN_PAUSE:
        return node_client_act(control_node(c, &now), row->id, "pause", /* body */ NULL, call,
                               &node,
                               /* ret_json */ NULL, e);
    case PLAN_RESUME:
        return node_client_act(control_node(c, &now), row->id, "resume", /* body */ NULL, call,
                               &node,
                               /* ret_json */ NULL, e);
    case PLAN_SUSPEND:
        return control_suspend_row(c, &now, call, e);
    case PLAN_NETWORK:
        return node_client_set_network(control_node(c, &now), &now, call, e);
    case PLAN_END_TIME:
        return node_client_set_end(control_node(c, &now), &now, control_now_ms(c), call, e);
    default:
        ASSERT(step == PLAN_POLICY);
        return node_client_set_policy(control_node(c, &now), row->id, &now.policy, call, e);
    }
}

static int act_on_row(struct pass *p, const struct sandbox *row, const struct plan *plan,
                      struct err *e)
{
    struct control *c = p->c;
    struct node_call call = {.deadline_ns = deadline_in_ms(NODE_CALL_MS)};
    int r;

    switch (plan->step) {
    case PLAN_ABANDON:
        r = control_mark_deleted(c, /* actor */ NULL, row->id, "sandbox.abandon", e);
        if (r < 0) {
            return r;
        }
        return control_finish_delete_held(c, row->id, call.deadline_ns, e);
    case PLAN_FINISH_DELETE:
        return control_finish_delete_held(c, row->id, call.deadline_ns, e);
    case PLAN_STOP:
    case PLAN_PAUSE:
    case PLAN_RESUME:
    case PLAN_SUSPEND:
    case PLAN_POLICY:
    case PLAN_NETWORK:
    case PLAN_END_TIME:
        return drive_node(c, row, plan->step, &call, e);
    case PLAN_OBSERVE:
        return control_observe(c, row, plan, node_list_find(&p->node, row->id), e);
    case PLAN_NOTHING:
    case PLAN_END_ORPHAN:
        break;
    }
    return 0;
}

static void count_repair(struct control *c)
{
    pthread_mutex_lock(&c->mutex);
    c->health.repairs++;
    pthread_mutex_unlock(&c->mutex);
}

static const char *step_name(enum plan_step step)
{
    static const char *const names[] = {
        [PLAN_NOTHING] = "",
        [PLAN_END_ORPHAN] = "ended",
        [PLAN_FINISH_DELETE] = "deleted",
        [PLAN_ABANDON] = "deleted",
        [PLAN_STOP] = "stopped",
        [PLAN_PAUSE] = "paused",
        [PLAN_RESUME] = "resumed",
        [PLAN_SUSPEND] = "suspended",
        [PLAN_POLICY] = "told its policy",
        [PLAN_NETWORK] = "told its network policy",
        [PLAN_END_TIME] = "told its end",
        [PLAN_OBSERVE] = "observed",
    };

    ASSERT((size_t)step < ARRAY_SIZE(names));
    return names[step];
}

static void repair_row(struct pass *p, const struct sandbox *row)
{
    struct control *c = p->c;
    CLEANUP(busy_leavep) struct busy_hold *hold = busy_try_enter(c->busy, row->id);
    CLEANUP(operation_done) struct operation op = {0};
    struct log_ctx log = {.sandbox = row->id};
    struct err e = {0};
    struct plan plan;
    int r;

    if (!hold) {
        return;
    }
    r = db_operation_of_sandbox(c->db, row->id, &op, &e);
    if (r < 0 && r != -ENOENT) {
        log_warn(&log, "cannot read the operation of the sandbox, retrying later: %s", e.msg);
        return;
    }
    plan = plan_row(p, row, /* has_operation */ r == 0);
    if (plan.step == PLAN_NOTHING) {
        return;
    }
    r = act_on_row(p, row, &plan, &e);
    if (r < 0 && r != -ENOENT) {
        log_warn(&log, "cannot repair the sandbox, retrying later: %s", e.msg);
        return;
    }
    count_repair(c);
    log_info(&log, "repaired: %s%s%s",
             plan.step == PLAN_OBSERVE ? sandbox_state_name(plan.to) : step_name(plan.step),
             plan.reason ? ": " : "", plan.reason ? plan.reason : "");
}

static void end_orphan(struct pass *p, const struct node_sandbox *orphan)
{
    struct control *c = p->c;
    CLEANUP(busy_leavep) struct busy_hold *hold = busy_try_enter(c->busy, orphan->id);
    struct node_call call = {.deadline_ns = deadline_in_ms(NODE_CALL_MS)};
    struct log_ctx log = {.sandbox = orphan->id};
    cleanup_sandbox struct sandbox sb = {0};
    struct err e = {0};
    bool elsewhere;
    int r;

    if (!hold) {
        return;
    }
    /* Once more, with the sandbox in our hands: the node's answer may be older than a row. */
    r = db_sandbox_get(c->db, orphan->id, /* project */ NULL, &sb, &e);
    elsewhere = r == 0 && !may_have(p, &sb);
    if (r != -ENOENT && !elsewhere) {
        return;
    }
    r = elsewhere ? node_client_leave(p->client, orphan->id, &call, &e)
                  : node_client_delete(p->client, orphan->id, &call, &e);
    if (r < 0) {
        log_warn(&log, "cannot end what node '%s' should not have of it, retrying later: %s",
                 node_client_name(p->client), e.msg);
        return;
    }
    count_repair(c);
    log_warn(&log, "ended what node '%s' should not have: %s", node_client_name(p->client),
             elsewhere ? "the sandbox is elsewhere" : "no record knows it");
}

void control_count_passed(struct control *c, bool fine)
{
    pthread_mutex_lock(&c->mutex);
    c->health.node_ok = fine;
    c->health.last_pass_ms = control_now_ms(c);
    pthread_mutex_unlock(&c->mutex);
}

static void count_pass(struct control *c, const struct node_client *client, int r,
                       const struct err *e)
{
    const char *name = node_client_name(client);
    bool was_ok;
    bool all_ok = fleet_passed(c->fleet, name, r == 0, &was_ok);

    pthread_mutex_lock(&c->mutex);
    c->health.node_ok = all_ok;
    c->health.last_pass_ms = control_now_ms(c);
    c->health.passes++;
    c->health.failed_passes += r < 0;
    pthread_mutex_unlock(&c->mutex);
    if (r < 0 && was_ok) {
        log_error(NULL, "cannot compare node '%s', nothing on it is touched until it can be: %s",
                  name, e->msg);
    } else if (r == 0 && !was_ok) {
        log_info(NULL, "node '%s' can be compared again", name);
    }
}

static int reconcile_node(struct control *c, struct node_client *client, struct err *e)
{
    CLEANUP(pass_done) struct pass p = {.c = c, .client = client};
    struct err mine = {0};
    int r = gather(&p, &mine);

    count_pass(c, client, r, &mine);
    if (r < 0) {
        if (e) {
            *e = mine;
        }
        return r;
    }
    for (size_t i = 0; i < p.n_work; i++) {
        repair_row(&p, &p.work[i]);
    }
    for (size_t i = 0; i < p.node.n; i++) {
        if (!p.matched[i]) {
            end_orphan(&p, &p.node.items[i]);
        }
    }
    return 0;
}

int control_reconcile_node(struct control *c, const char *name, struct err *e)
{
    ASSERT(c && name);
    return reconcile_node(c, fleet_client(c->fleet, name), e);
}

int control_clear_node(struct control *c, const char *name, struct err *e)
{
    CLEANUP(pass_done) struct pass p = {.c = c, .client = fleet_client(c->fleet, name)};
    CLEANUP(pass_done) struct pass after = {.c = c, .client = p.client};
    bool left = false;
    int r = gather(&p, e);

    for (size_t i = 0; i < p.node.n && r == 0; i++) {
        if (!p.matched[i]) {
            end_orphan(&p, &p.node.items[i]);
            left = true;
        }
    }
    if (r < 0 || !left) {
        return r;
    }
    r = gather(&after, e);
    left = false;
    for (size_t i = 0; i < after.node.n && r == 0; i++) {
        left = left || !after.matched[i];
    }
    return r < 0 ? r : left;
}

struct round {
    struct control *c;
    struct err *e; /* may be NULL */
    int r;
};

static int each_node(void *ctx, struct node_client *client)
{
    struct round *round = ctx;
    struct err mine = {0};
    int r = reconcile_node(round->c, client, &mine);

    if (r < 0 && round->r == 0) { /* the first one counts; the others are compared all the same */
        round->r = r;
        if (round->e) {
            *round->e = mine;
        }
    }
    return 0;
}

int control_reconcile(struct control *c, struct err *e)
{
    struct round round = {.c = c, .e = e};

    ASSERT(c);
    IGNORE_RESULT(fleet_each(c->fleet, each_node, &round)); /* each_node() never ends it early */
    return round.r;
}

/* --- the end of lives --- */

/* Paused or stopped, as its owner wished. */
static int keep_at_end(struct control *c, const struct sandbox *row, struct err *e)
{
    struct control_actor actor = {0};
    int r;

    snprintf(actor.project, sizeof(actor.project), "%s", row->project);
    r = row->at_end == SANDBOX_AT_END_STOP
            ? control_end_by_stop(c, &actor, row->id, e)
            : control_end_by_pause(c, &actor, row->id, row->at_end == SANDBOX_AT_END_SLEEP, e);
    if (r == 0 && c->still) {
        c->still(c->still_ctx, row->id);
    }
    return r;
}

int control_expire_one(struct control *c, const struct sandbox *row, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct audit_event ev;
    int r;

    ASSERT(c && row && row->end_at_ms > 0);
    if (row->at_end != SANDBOX_AT_END_DELETE) {
        return keep_at_end(c, row, e);
    }

    sandbox_copy(&sb, row);
    sb.desired = SANDBOX_STATE_DELETED;
    snprintf(sb.reason, sizeof(sb.reason), "its time of %lld s was over", (long long)sb.timeout_s);
    ev = control_event(c, /* actor */ NULL, &sb, "sandbox.expire", sb.reason);
    r = db_sandbox_update(c->db, &sb, &(struct db_beside){.audit = &ev}, e);
    if (r < 0) {
        return r; /* extended or deleted since we looked */
    }
    return control_finish_delete(c, sb.id, deadline_in_ms(NODE_CALL_MS), e);
}

struct expired {
    struct sandbox *rows; /* owned, and so are their strings */
    size_t n;
};

static void expired_done(struct expired *x)
{
    for (size_t i = 0; i < x->n; i++) {
        sandbox_done(&x->rows[i]);
    }
    free(x->rows);
}

static int add_expired(void *ctx, const struct sandbox *sb)
{
    struct expired *x = ctx;

    ASSERT(x->n < EXPIRE_BATCH);
    sandbox_copy(&x->rows[x->n++], sb);
    return 0;
}

int control_expire(struct control *c, struct err *e)
{
    CLEANUP(expired_done) struct expired x = {0};
    struct sandbox_query q = {.expired_at_ms = control_now_ms(c), .limit = EXPIRE_BATCH};
    int r;

    ASSERT(c);
    x.rows = xnew_n(struct sandbox, EXPIRE_BATCH);
    r = db_sandbox_list(c->db, &q, add_expired, &x, e);
    if (r < 0) {
        return err_wrap(e, r, "looking for sandboxes whose time is over");
    }
    for (size_t i = 0; i < x.n; i++) {
        struct log_ctx log = {.sandbox = x.rows[i].id};
        struct err mine = {0};

        r = control_expire_one(c, &x.rows[i], &mine);
        if (r == 0) {
            log_info(&log, "its time was over, %s",
                     x.rows[i].at_end == SANDBOX_AT_END_DELETE
                         ? "deleted"
                         : sandbox_at_end_name(x.rows[i].at_end));
        } else if (r != -ESTALE && r != -ENOENT) {
            log_warn(&log, "its time is over but it cannot be ended yet, retrying later: %s",
                     mine.msg);
        }
    }
    return 0;
}
