/* SPDX-License-Identifier: Apache-2.0 */

/* Creation: row first, then the node, then what was observed together with the answer. */
#include "base/clock.h"
#include "base/log.h"
#include "control/private.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

/* One attempt that this process makes, its own or one that it took over. */
struct creation {
    struct sandbox sb;          /* owned */
    struct operation op;        /* owned; key "" without an Idempotency-Key */
    struct busy_hold *hold;     /* owned */
    const struct pollfd *watch; /* borrowed: the client's */
    uint64_t deadline_ns;
    bool taken_over; /* an earlier attempt may have left something on the node */
};

static void creation_done(struct creation *cr)
{
    sandbox_done(&cr->sb);
    operation_done(&cr->op);
    busy_leave(cr->hold);
    cr->hold = NULL;
}

/* One descriptor that is ready when the client has gone or somebody wants the sandbox deleted. */
static int watch_both(const struct creation *cr, int *ret_fd)
{
    cleanup_close int fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN};

    if (fd < 0) {
        return -errno;
    }
    if (epoll_ctl(fd, EPOLL_CTL_ADD, busy_cancel_fd(cr->hold), &ev) < 0) {
        return -errno;
    }
    if (cr->watch) {
        ev.events = (uint32_t)cr->watch->events; /* poll and epoll share these bits on Linux */
        if (epoll_ctl(fd, EPOLL_CTL_ADD, cr->watch->fd, &ev) < 0) {
            return -errno;
        }
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int ask_node(struct control *c, const struct control_actor *actor, struct creation *cr,
                    struct node_sandbox *ret, bool *ret_unreached, struct err *e)
{
    cleanup_json json_t *spec = sandbox_node_spec(&cr->sb, actor->organisation);
    cleanup_close int watch_fd = FD_NONE;
    struct node_call call = {.deadline_ns = cr->deadline_ns};
    struct pollfd watch;
    int r;

    if (!spec) {
        return err_set(e, -EUCLEAN, "database_error", "the record of the sandbox is damaged");
    }
    r = watch_both(cr, &watch_fd);
    if (r < 0) {
        return err_wrap(e, r, "watching the client");
    }
    watch = (struct pollfd){.fd = watch_fd, .events = POLLIN};
    call.watch = &watch;
    r = node_client_create(c->node, spec, &call, ret, e);
    *ret_unreached = r < 0 && call.unreached && !cr->taken_over;
    if (r == 0 && (!str_eq(ret->id, cr->sb.id) || ret->state != SANDBOX_STATE_RUNNING)) {
        return err_set(e, -EPROTO, "bad_answer", "the node says the new sandbox is %s%s%s",
                       sandbox_state_name(ret->state), ret->reason[0] ? ": " : "", ret->reason);
    }
    return r;
}

struct publish {
    struct creation *cr;
    const struct node_sandbox *node;
    const char *node_name;
};

static int decide_running(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    struct publish *p = ctx;
    cleanup_buf struct buf text = BUF_INIT(256 * 1024);

    if (sb->desired == SANDBOX_STATE_DELETED) {
        return err_set(e, -ESTALE, "sandbox_deleted",
                       "the sandbox was deleted while it was being created");
    }
    if (sb->observed !=
        SANDBOX_STATE_CREATING) { /* we hold it: only another gateway could have done that */
        return err_set(e, -ESTALE, "wrong_state",
                       "the sandbox became %s while it was being created",
                       sandbox_state_name(sb->observed));
    }
    sandbox_set_observed(sb, SANDBOX_STATE_RUNNING, SANDBOX_BY_NODE, NULL);
    snprintf(sb->node, sizeof(sb->node), "%s", p->node_name);
    snprintf(sb->accel, sizeof(sb->accel), "%s", p->node->accel);
    sb->owner[0] = '\0';
    sb->started_at_ms = p->node->started_at_ms ? p->node->started_at_ms : control_now_ms(c);
    if (sandbox_print(sb, &text) < 0) {
        return err_set(e, -E2BIG, NULL, "the sandbox is too large to be shown");
    }
    free(p->cr->op.answer);
    p->cr->op.answer = buf_take(&text);
    p->cr->op.status = 201;
    return 1;
}

static int publish(struct control *c, const struct control_actor *actor, struct creation *cr,
                   const struct node_sandbox *node, struct err *e)
{
    struct publish p = {.cr = cr, .node = node, .node_name = node_client_name(c->node)};
    struct control_change change = {
        .id = cr->sb.id,
        .project = actor->project,
        .decide = decide_running,
        .ctx = &p,
        .actor = actor,
        .operation = cr->op.key[0] ? &cr->op : NULL,
    };

    return control_change(c, &change, &cr->sb, e);
}

/* The creation has failed: nothing of it may stay. What cannot be removed now, the reconciler removes. */
static void undo(struct control *c, struct creation *cr, bool unreached, const char *why)
{
    struct log_ctx log = {.sandbox = cr->sb.id};
    struct node_call call = {.deadline_ns = deadline_in_ms(CONTROL_UNDO_MS)};
    const struct operation *op = cr->op.key[0] ? &cr->op : NULL;
    struct err e = {0};
    int r = 0;

    if (!unreached) {
        r = node_client_delete(c->node, cr->sb.id, &call, &e);
    }
    if (r == 0) {
        r = control_remove_row(c, cr->sb.id, op, why, &e);
    }
    if (r == 0) {
        return;
    }
    log_warn(&log, "cannot clean up after a failed creation, retrying later: %s", e.msg);
    if (control_mark_deleted(c, /* actor */ NULL, cr->sb.id, "sandbox.abandon", &e) == 0 && op) {
        /* A retry with the same key must not wait for a sandbox that never comes. */
        IGNORE_RESULT(
            db_operation_delete(c->db, op->project, op->key, NULL)); /* it would find out itself */
    }
    control_kick(c);
}

static int run_creation(struct control *c, const struct control_actor *actor, struct creation *cr,
                        struct control_answer *ret, struct err *e)
{
    struct log_ctx log = {.sandbox = cr->sb.id};
    struct node_sandbox node = {0};
    struct err mine = {0};
    bool unreached = false;
    int r;

    r = ask_node(c, actor, cr, &node, &unreached, &mine);
    if (r == -ECANCELED && busy_cancelled(cr->hold)) {
        r = err_set(&mine, -ESTALE, "sandbox_deleted",
                    "the sandbox was deleted while it was being created");
    }
    if (r == 0) {
        r = publish(c, actor, cr, &node, &mine);
    }
    if (r < 0) {
        log_info(&log, "creation failed: %s", mine.msg);
        undo(c, cr, unreached, mine.msg);
        if (e) {
            *e = mine;
        }
        return r;
    }
    *ret = (struct control_answer){.status = 201, .body = TAKE_PTR(cr->op.answer)};
    return 0;
}

/* A new row, and its operation; -EEXIST: the operation is there already. */
static int begin(struct control *c, const struct control_actor *actor,
                 const struct control_create *what, struct creation *cr, struct err *e)
{
    struct audit_event ev;
    struct db_beside beside = {.audit = &ev};
    int r;

    sandbox_init(&cr->sb, what->spec, actor->project, control_now_ms(c));
    snprintf(cr->sb.owner, sizeof(cr->sb.owner), "%s", c->owner);
    snprintf(cr->sb.node, sizeof(cr->sb.node), "%s", node_client_name(c->node));
    if (what->idempotency_key) {
        struct operation *op = &cr->op;

        op->created_at_ms = cr->sb.created_at_ms;
        snprintf(op->project, sizeof(op->project), "%s", actor->project);
        snprintf(op->key, sizeof(op->key), "%s", what->idempotency_key);
        snprintf(op->fingerprint, sizeof(op->fingerprint), "%s", what->fingerprint);
        snprintf(op->sandbox, sizeof(op->sandbox), "%s", cr->sb.id);
        snprintf(op->owner, sizeof(op->owner), "%s", c->owner);
        beside.operation = op;
    }
    r = busy_enter(c->busy, cr->sb.id, 0, cr->deadline_ns, &cr->hold, e);
    ASSERT(r == 0); /* nobody else can know the id */
    ev = control_event(c, actor, &cr->sb, "sandbox.create", cr->sb.template_name);
    r = db_sandbox_insert(c->db, &cr->sb, &beside, actor->max_sandboxes, e);
    if (r < 0) {
        creation_done(cr);
    }
    return r;
}

static int replay(struct control *c, struct operation *op, struct control_answer *ret,
                  struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    int r = db_sandbox_get(c->db, op->sandbox, op->project, &sb, e);

    if (r == -ENOENT || (r == 0 && sb.desired == SANDBOX_STATE_DELETED)) {
        return err_field(e, -EEXIST, "idempotency_key_spent", "Idempotency-Key",
                         "this key made sandbox '%s', which has been deleted since: use a new key",
                         op->sandbox);
    }
    if (r < 0) {
        return r;
    }
    *ret = (struct control_answer){
        .status = (int)op->status, .body = TAKE_PTR(op->answer), .replayed = true};
    return 0;
}

/* How a request whose key is known goes on. */
enum known {
    KNOWN_ANSWERED,   /* *ret is filled */
    KNOWN_GONE,       /* the operation has gone: begin afresh */
    KNOWN_TAKEN_OVER, /* *cr is filled: run it */
};

/* Whoever ran the operation does not any more (we hold the sandbox): go on in its place. */
static int take_over(struct control *c, struct operation *op, struct creation *cr, struct err *e)
{
    int r;

    r = db_sandbox_get(c->db, op->sandbox, op->project, &cr->sb, e);
    if (r == -ENOENT || (r == 0 && (cr->sb.desired == SANDBOX_STATE_DELETED))) {
        sandbox_done(&cr->sb);
        r = db_operation_delete(c->db, op->project, op->key, e);
        return r < 0 ? r : KNOWN_GONE;
    }
    if (r == 0) {
        r = db_operation_take_over(c->db, op, c->owner, e);
    }
    if (r == -ESTALE) {
        return KNOWN_GONE; /* it ended or has another owner: look again */
    }
    if (r < 0) {
        return r;
    }
    cr->op = *op;
    *op = (struct operation){0};
    cr->taken_over = true;
    return KNOWN_TAKEN_OVER;
}

static int look_again(struct control *c, const struct operation *old, struct creation *cr,
                      struct control_answer *ret, struct err *e)
{
    CLEANUP(operation_done) struct operation op = {0};
    int r = db_operation_get(c->db, old->project, old->key, &op, e);

    if (r == -ENOENT) {
        return KNOWN_GONE;
    }
    if (r < 0) {
        return r;
    }
    if (!str_eq(op.sandbox, old->sandbox)) {
        return KNOWN_GONE;
    }
    if (op.status) {
        r = replay(c, &op, ret, e);
        return r < 0 ? r : KNOWN_ANSWERED;
    }
    return take_over(c, &op, cr, e);
}

static int resolve_known(struct control *c, const struct control_actor *actor,
                         const struct control_create *what, struct creation *cr,
                         struct control_answer *ret, struct err *e)
{
    CLEANUP(operation_done) struct operation op = {0};
    int r;

    r = db_operation_get(c->db, actor->project, what->idempotency_key, &op, e);
    if (r == -ENOENT) {
        return KNOWN_GONE;
    }
    if (r < 0) {
        return r;
    }
    if (!str_eq(op.fingerprint, what->fingerprint)) {
        return err_field(
            e, -EEXIST, "idempotency_key_reused", "Idempotency-Key",
            "this key came with another request before: use a new key for a new request");
    }
    if (op.status) {
        r = replay(c, &op, ret, e);
        return r < 0 ? r : KNOWN_ANSWERED;
    }
    /* It runs, or its gateway has died. Our turn comes when nobody here works on it. */
    r = busy_enter(c->busy, op.sandbox, 0, cr->deadline_ns, &cr->hold, e);
    if (r < 0) {
        return r;
    }
    r = look_again(c, &op, cr, ret, e);
    if (r != KNOWN_TAKEN_OVER) {
        busy_leave(TAKE_PTR(cr->hold));
    }
    return r;
}

int control_create(struct control *c, const struct control_actor *actor,
                   const struct control_create *what, struct control_answer *ret, struct err *e)
{
    uint64_t deadline_ns = deadline_in_ms(CONTROL_CREATE_MS);
    int r;

    ASSERT(c && actor && what && what->spec && ret);
    ASSERT(!what->idempotency_key || what->fingerprint);

    do {
        CLEANUP(creation_done)
        struct creation cr = {.watch = what->watch, .deadline_ns = deadline_ns};

        r = begin(c, actor, what, &cr, e);
        if (r == -EEXIST && what->idempotency_key) {
            r = resolve_known(c, actor, what, &cr, ret, e);
            if (r == KNOWN_ANSWERED) {
                return 0;
            }
            if (r == KNOWN_GONE) {
                continue;
            }
        }
        return r < 0 ? r : run_creation(c, actor, &cr, ret, e);
    } while (!deadline_passed(deadline_ns));
    return err_set(e, -ETIMEDOUT, "operation_running",
                   "a request with this key is still at work: try again");
}
