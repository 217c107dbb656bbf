/* SPDX-License-Identifier: Apache-2.0 */
#include "control/creation.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

/* What all children of a fork look like together; see the limits of metadata. */
#define ANSWER_MAX (8u << 20)

void creation_resize(struct creation *cr, size_t n)
{
    ASSERT(cr->n == 0 && n >= 1 && n <= SANDBOX_FORK_MAX);
    cr->sbs = xnew_n(struct sandbox, n);
    cr->holds = xnew_n(struct busy_hold *, n);
    cr->n = n;
}

void creation_done(struct creation *cr)
{
    for (size_t i = 0; i < cr->n; i++) {
        sandbox_done(&cr->sbs[i]);
        busy_leave(cr->holds[i]);
    }
    free(cr->sbs);
    free(cr->holds);
    operation_done(&cr->op);
    cr->sbs = NULL;
    cr->holds = NULL;
    cr->n = 0;
}

static bool is_fork(const struct creation *cr)
{
    return cr->what->fork != NULL;
}

/* One descriptor that is ready when the client has gone or somebody wants the sandbox deleted. */
static int watch_both(const struct creation *cr, int *ret_fd)
{
    cleanup_close int fd = epoll_create1(EPOLL_CLOEXEC);
    const struct pollfd *client = cr->what->watch;
    struct epoll_event ev = {.events = EPOLLIN};

    if (fd < 0) {
        return -errno;
    }
    if (epoll_ctl(fd, EPOLL_CTL_ADD, busy_cancel_fd(cr->holds[0]), &ev) < 0) {
        return -errno;
    }
    if (client) {
        ev.events = (uint32_t)client->events; /* poll and epoll share these bits on Linux */
        if (epoll_ctl(fd, EPOLL_CTL_ADD, client->fd, &ev) < 0) {
            return -errno;
        }
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int ask_create(struct control *c, const struct control_actor *actor, struct creation *cr,
                      struct node_call *call, struct node_sandbox *ret, struct err *e)
{
    cleanup_json json_t *spec = NULL;
    cleanup_close int watch_fd = FD_NONE;
    struct pollfd watch;
    /* The row is there: who changes these from now on finds it. */
    int r = control_read_outer(c, actor, cr->sbs, e);

    if (r < 0) {
        return r;
    }
    spec = sandbox_node_spec(cr->sbs, actor->organisation);
    if (!spec) {
        return err_set(e, -EUCLEAN, "database_error", "the record of the sandbox is damaged");
    }
    r = watch_both(cr, &watch_fd);
    if (r < 0) {
        return err_wrap(e, r, "watching the client");
    }
    watch = (struct pollfd){.fd = watch_fd, .events = POLLIN};
    call->watch = &watch;
    r = node_client_create(fleet_client(c->fleet, cr->node), spec, call, ret, e);
    call->watch = NULL;
    return r;
}

static json_t *fork_body(const struct creation *cr)
{
    const struct sandbox_fork *fork = cr->what->fork;
    json_t *children = json_array();
    json_t *body = json_pack("{s:o}", "children", children);

    for (size_t i = 0; i < cr->n; i++) {
        json_array_append_new(children, json_string(cr->sbs[i].id));
    }
    json_object_set_new(body, "end_at_ms", json_integer(cr->sbs[0].end_at_ms));
    json_object_set_new(body, "at_end", json_string(sandbox_at_end_name(cr->sbs[0].at_end)));
    if (fork->snapshot[0]) {
        json_object_set_new(body, "snapshot", json_string(fork->snapshot));
    }
    if (fork->env) {
        json_object_set_new(body, "env", json_loads(fork->env, 0, NULL));
    }
    return body;
}

static int ask_fork(struct control *c, struct creation *cr, struct node_call *call,
                    struct node_sandbox *ret, struct err *e)
{
    cleanup_json json_t *body = fork_body(cr);
    struct pollfd gone;
    int r;

    r = node_client_fork(fleet_client(c->fleet, cr->node), cr->what->parent->id, body, call, ret,
                         cr->n, e);
    if (r < 0 || !cr->what->watch) {
        return r;
    }
    gone = *cr->what->watch;
    return poll(&gone, 1, 0) > 0 ? err_set(e, -ECANCELED, "canceled", "the request was given up")
                                 : 0;
}

static int decide_node(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    const struct creation *cr = ctx;

    (void)c;
    if (sb->desired == SANDBOX_STATE_DELETED) {
        return control_deleted_meanwhile(e);
    }
    memcpy(sb->node, cr->node, sizeof(sb->node));
    return 1;
}

/* 1: the row names another node now, which is to be asked. 0: there is none. */
static int go_elsewhere(struct control *c, struct creation *cr, struct err *e)
{
    struct log_ctx log = {.sandbox = cr->sbs[0].id};
    const struct control_change change = {.id = cr->sbs[0].id, .decide = decide_node, .ctx = cr};
    char was[SANDBOX_NODE_SIZE];
    int r;

    memcpy(was, cr->node, sizeof(was));
    if (!cr->place.fleet || cr->taken_over || place_next(&cr->place, cr->node) == 0) {
        return 0;
    }
    log_info(&log, "node '%s' cannot take it, asking '%s'", was, cr->node);
    r = control_change(c, &change, /* ret */ NULL, e);
    return r < 0 ? r : 1;
}

static int ask_one(struct control *c, const struct control_actor *actor, struct creation *cr,
                   struct node_call *call, struct node_sandbox *ret, struct err *e)
{
    int r = str_eq(cr->node, fleet_home(c->fleet)) ? control_check_node(c, e) : 0;

    if (r < 0) {
        call->unreached = true; /* it was not asked */
        return r;
    }
    return is_fork(cr) ? ask_fork(c, cr, call, ret, e) : ask_create(c, actor, cr, call, ret, e);
}

static int ask_node(struct control *c, const struct control_actor *actor, struct creation *cr,
                    struct node_sandbox *ret, bool *ret_unreached, struct err *e)
{
    struct node_call call;
    int next;
    int r;

    do {
        *e = (struct err){0};
        call = (struct node_call){.deadline_ns = cr->deadline_ns};
        r = ask_one(c, actor, cr, &call, ret, e);
        next = 0;
        if (r < 0 && place_is_full(&call, e)) {
            struct err mine = {0};

            next = go_elsewhere(c, cr, &mine);
            *e = next < 0 ? mine : *e;
            r = next < 0 ? next : r;
        }
    } while (next == 1);
    *ret_unreached = r < 0 && call.unreached && !cr->taken_over;
    for (size_t i = 0; i < cr->n && r == 0; i++) {
        if (!str_eq(ret[i].id, cr->sbs[i].id) || ret[i].state != SANDBOX_STATE_RUNNING) {
            r = err_set(e, -EPROTO, "bad_answer", "the node says the new sandbox is %s%s%s",
                        sandbox_state_name(ret[i].state), ret[i].reason[0] ? ": " : "",
                        ret[i].reason);
        }
    }
    return r;
}

static int becomes_running(struct control *c, struct sandbox *sb, const struct node_sandbox *node,
                           struct err *e)
{
    if (sb->desired == SANDBOX_STATE_DELETED) {
        return err_set(e, -ESTALE, "sandbox_deleted",
                       "the sandbox was deleted while it was being created");
    }
    if (sb->observed != SANDBOX_STATE_CREATING) {
        /* We hold it: only another gateway could have done that. */
        return err_set(e, -ESTALE, "wrong_state",
                       "the sandbox became %s while it was being created",
                       sandbox_state_name(sb->observed));
    }
    sandbox_move(
        sb, (struct sandbox_move){SANDBOX_STATE_RUNNING, SANDBOX_BY_NODE, control_now_ms(c)}, NULL);
    snprintf(sb->accel, sizeof(sb->accel), "%s", node->accel);
    sb->owner[0] = '\0';
    sb->started_at_ms = node->started_at_ms ? node->started_at_ms : control_now_ms(c);
    sb->changed_at_ms = control_now_ms(c);
    return 0;
}

static int print_answer(const struct creation *cr, struct buf *out)
{
    int r;

    if (!is_fork(cr) || cr->what->alone) {
        return sandbox_print(cr->sbs, out);
    }
    r = buf_add_str(out, "{\"sandboxes\":[");
    for (size_t i = 0; i < cr->n && r == 0; i++) {
        r = buf_add_str(out, i ? "," : "");
        if (r == 0) {
            r = sandbox_print(&cr->sbs[i], out);
        }
    }
    return r < 0 ? r : buf_add_str(out, "]}");
}

static int publish_once(struct control *c, const struct control_actor *actor, struct creation *cr,
                        const struct node_sandbox *nodes, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(ANSWER_MAX);
    struct db_beside beside = {.operation = cr->op.key[0] ? &cr->op : NULL};
    int r = 0;

    for (size_t i = 0; i < cr->n && r == 0; i++) {
        char id[ID_SIZE];

        memcpy(id, cr->sbs[i].id, sizeof(id));
        sandbox_done(&cr->sbs[i]);
        memcpy(cr->sbs[i].id, id,
               sizeof(id)); /* it is named in what follows also when that fails */
        r = db_sandbox_get(c->db, id, actor->project, &cr->sbs[i], e);
        if (r == -ENOENT) {
            return control_deleted_meanwhile(e);
        }
        if (r == 0) {
            r = becomes_running(c, &cr->sbs[i], &nodes[i], e);
        }
    }
    if (r == 0 && print_answer(cr, &text) < 0) {
        r = err_set(e, -E2BIG, NULL, "the sandbox is too large to be shown");
    }
    if (r < 0) {
        return r;
    }
    free(cr->op.answer);
    cr->op.answer = buf_take(&text);
    cr->op.status = 201;
    return db_sandbox_update_all(c->db, cr->sbs, cr->n, &beside, e);
}

static int publish(struct control *c, const struct control_actor *actor, struct creation *cr,
                   const struct node_sandbox *nodes, struct err *e)
{
    int r = -ESTALE;

    for (int i = 0; i < CONTROL_CAS_TRIES && r == -ESTALE; i++) {
        *e = (struct err){0};
        r = publish_once(c, actor, cr, nodes, e);
        if (r == -ESTALE && !str_eq(e->reason, "conflict")) {
            break;
        }
    }
    return r;
}

/* 0: nothing is left of it, on the node nor in the database. op goes with it; it may be NULL. */
static int undo_one(struct control *c, struct node_client *node, const char *id,
                    const struct node_call *how, const struct operation *op, const char *why)
{
    struct log_ctx log = {.sandbox = id};
    struct node_call call = *how;
    struct err e = {0};
    int r = 0;

    if (!how->unreached) {
        r = node_client_delete(node, id, &call, &e);
    }
    if (r == 0) {
        r = control_remove_row(c, id, op, why, &e);
    }
    if (r == 0) {
        return 0;
    }
    log_warn(&log, "cannot clean up after a failed creation, retrying later: %s", e.msg);
    if (control_mark_deleted(c, /* actor */ NULL, id, "sandbox.abandon", NULL) == 0 && op) {
        /* A retry with the same key must not wait for what never comes; it would find out itself. */
        IGNORE_RESULT(db_operation_delete(c->db, op->project, op->key, NULL));
    }
    return r;
}

/* The creation has failed: nothing of it may stay. What cannot be removed now, the reconciler removes. */
static void undo(struct control *c, struct creation *cr, bool unreached, const char *why)
{
    struct node_call how = {.deadline_ns = deadline_in_ms(CONTROL_UNDO_MS), .unreached = unreached};
    bool left = false;

    for (size_t i = 0; i < cr->n; i++) {
        const struct operation *op = i + 1 == cr->n && cr->op.key[0] ? &cr->op : NULL;

        left =
            undo_one(c, fleet_client(c->fleet, cr->node), cr->sbs[i].id, &how, op, why) < 0 || left;
    }
    if (left) {
        control_kick(c);
    }
}

int creation_run(struct control *c, const struct control_actor *actor, struct creation *cr,
                 struct control_answer *ret, struct err *e)
{
    struct log_ctx log = {.sandbox = cr->sbs[0].id};
    cleanup_free struct node_sandbox *nodes = xnew_n(struct node_sandbox, cr->n);
    struct err mine = {0};
    bool unreached = false;
    int r;

    r = ask_node(c, actor, cr, nodes, &unreached, &mine);
    if (r == -ECANCELED && busy_cancelled(cr->holds[0])) {
        r = err_set(&mine, -ESTALE, "sandbox_deleted",
                    "the sandbox was deleted while it was being created");
    }
    if (r == 0) {
        r = publish(c, actor, cr, nodes, &mine);
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
