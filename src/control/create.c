/* SPDX-License-Identifier: Apache-2.0 */

/* Creation: rows first, then the node (creation.c); and whether a request with a key is one that we know. */
#include "base/clock.h"
#include "base/log.h"
#include "control/creation.h"

#include <stdio.h>
#include <string.h>

static int compare_ids(const void *a, const void *b)
{
    return strcmp(((const struct sandbox *)a)->id, ((const struct sandbox *)b)->id);
}

/* Children are where what they are forked from is. */
static int choose_node(struct control *c, struct creation *cr, struct err *e)
{
    const struct control_create *what = cr->what;

    if (what->fork) {
        memcpy(cr->node, what->parent->node, sizeof(cr->node));
        return 0;
    }
    if (!fleet_chooses(c->fleet)) {
        return str_copy(cr->node, sizeof(cr->node), fleet_home(c->fleet));
    }
    cr->place = (struct place){
        .fleet = c->fleet,
        .wish = {.shape = what->spec->shape, .template_name = what->spec->template_name},
    };
    return place_next(&cr->place, cr->node) == 1
               ? 0
               : err_set(e, -ENOMEM, "no_capacity",
                         "no node takes sandboxes just now: try again later");
}

/* The rows, by id: in that order the client gets them, also from a gateway that takes over. */
static void describe(struct control *c, const struct control_actor *actor, struct creation *cr)
{
    const struct control_create *what = cr->what;
    int64_t now_ms = control_now_ms(c);

    creation_resize(cr, what->fork ? what->fork->count : 1);
    for (size_t i = 0; i < cr->n; i++) {
        struct sandbox *sb = &cr->sbs[i];

        if (what->fork) {
            sandbox_init_fork(sb, what->parent, what->fork, now_ms);
        } else {
            sandbox_init(sb, what->spec, actor->project, now_ms);
        }
        snprintf(sb->owner, sizeof(sb->owner), "%s", c->owner);
        memcpy(sb->node, cr->node, sizeof(sb->node));
    }
    qsort(cr->sbs, cr->n, sizeof(*cr->sbs), compare_ids);
    for (size_t i = 0; i < cr->n && what->fork; i++) {
        snprintf(cr->sbs[i].batch, sizeof(cr->sbs[i].batch), "%s", cr->sbs[0].id);
    }
}

static struct audit_event event_of(struct control *c, const struct control_actor *actor,
                                   const struct creation *cr)
{
    const struct sandbox_fork *fork = cr->what->fork;
    char detail[100];

    if (!fork) {
        return control_event(c, actor, cr->sbs, "sandbox.create", cr->sbs->template_name);
    }
    snprintf(detail, sizeof(detail), "%zu from %s: %s%s", cr->n,
             fork->snapshot[0] ? fork->snapshot : "the present", cr->sbs[0].id,
             cr->n > 1 ? " ..." : "");
    return control_event(c, actor, cr->what->parent, "sandbox.fork", detail);
}

/* New rows, and their operation; -EEXIST: the operation is there already. */
static int begin(struct control *c, const struct control_actor *actor, struct creation *cr,
                 struct err *e)
{
    struct audit_event ev;
    struct db_beside beside = {.audit = &ev};
    int r = choose_node(c, cr, e);

    if (r < 0) {
        return r;
    }
    describe(c, actor, cr);
    if (cr->what->idempotency_key) {
        struct operation *op = &cr->op;

        op->created_at_ms = cr->sbs->created_at_ms;
        snprintf(op->project, sizeof(op->project), "%s", actor->project);
        snprintf(op->key, sizeof(op->key), "%s", cr->what->idempotency_key);
        snprintf(op->fingerprint, sizeof(op->fingerprint), "%s", cr->what->fingerprint);
        snprintf(op->sandbox, sizeof(op->sandbox), "%s", cr->sbs->id);
        snprintf(op->owner, sizeof(op->owner), "%s", c->owner);
        beside.operation = op;
    }
    /* Nobody else can know the ids: this fails only when the other gateways cannot be told. */
    for (size_t i = 0; i < cr->n && r == 0; i++) {
        r = busy_enter(c->busy, cr->sbs[i].id, 0, cr->deadline_ns, &cr->holds[i], e);
    }
    ev = event_of(c, actor, cr);
    if (r == 0) {
        r = db_sandbox_insert_all(c->db, cr->sbs, cr->n, &beside, actor->max_sandboxes, e);
    }
    if (r < 0) {
        creation_done(cr);
    }
    return r;
}

struct members {
    struct sandbox *sbs; /* owned, and so are their strings */
    size_t n;
};

static void members_done(struct members *m)
{
    for (size_t i = 0; i < m->n; i++) {
        sandbox_done(&m->sbs[i]);
    }
    free(m->sbs);
}

static int add_member(void *ctx, const struct sandbox *sb)
{
    struct members *m = ctx;

    if (m->n < SANDBOX_FORK_MAX) {
        sandbox_copy(&m->sbs[m->n++], sb);
    }
    return 0;
}

/* The sandboxes that an operation makes or made, by id, without those that are being deleted. */
static int read_members(struct control *c, const struct operation *op, struct members *ret,
                        struct err *e)
{
    struct sandbox_query q = {.project = op->project, .batch = op->sandbox};
    size_t kept = 0;
    int r;

    ret->sbs = xnew_n(struct sandbox, SANDBOX_FORK_MAX);
    r = db_sandbox_get(c->db, op->sandbox, op->project, ret->sbs, e);
    if (r == 0 && !ret->sbs->batch[0]) {
        ret->n = 1;
    } else if (r == 0 || r == -ENOENT) { /* the first of a batch may be gone before the others */
        sandbox_done(ret->sbs);
        r = db_sandbox_list(c->db, &q, add_member, ret, e);
    }
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < ret->n; i++) {
        if (ret->sbs[i].desired == SANDBOX_STATE_DELETED) {
            sandbox_done(&ret->sbs[i]);
        } else {
            ret->sbs[kept++] = ret->sbs[i];
        }
    }
    ret->n = kept;
    qsort(ret->sbs, ret->n, sizeof(*ret->sbs), compare_ids);
    return 0;
}

static int replay(struct control *c, struct operation *op, struct control_answer *ret,
                  struct err *e)
{
    CLEANUP(members_done) struct members m = {0};
    int r = read_members(c, op, &m, e);

    if (r == 0 && m.n == 0) {
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

/* The rows into cr, each held; the first one's hold is the caller's already. */
static int adopt_members(struct control *c, struct creation *cr, struct members *m,
                         struct busy_hold *first_take, struct err *e)
{
    int r = 0;

    creation_resize(cr, m->n);
    cr->holds[0] = first_take;
    memcpy(cr->node, m->sbs[0].node, sizeof(cr->node));
    for (size_t i = 0; i < m->n; i++) {
        cr->sbs[i] = m->sbs[i];
        m->sbs[i] = (struct sandbox){0};
        if (r == 0 && i > 0) {
            r = busy_enter(c->busy, cr->sbs[i].id, 0, cr->deadline_ns, &cr->holds[i], e);
        }
    }
    return r;
}

static size_t expected(const struct control_create *what)
{
    return what->fork ? what->fork->count : 1;
}

/* Whoever ran the operation does not any more (we hold its first sandbox): go on in its place. */
static int take_over(struct control *c, struct operation *op, struct creation *cr,
                     struct busy_hold *first_take, struct err *e)
{
    CLEANUP(busy_leavep) struct busy_hold *first = first_take;
    CLEANUP(members_done) struct members m = {0};
    int r;

    r = read_members(c, op, &m, e);
    if (r < 0) {
        return r;
    }
    if (m.n < expected(cr->what)) { /* it was called off; what is left of it is being removed */
        r = db_operation_delete(c->db, op->project, op->key, e);
        return r < 0 ? r : KNOWN_GONE;
    }
    r = db_operation_take_over(c->db, op, c->owner, e);
    if (r == -ESTALE) {
        return KNOWN_GONE; /* it ended or has another owner: look again */
    }
    if (r == 0) {
        r = adopt_members(c, cr, &m, TAKE_PTR(first), e);
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
                      struct busy_hold *first_take, struct control_answer *ret, struct err *e)
{
    CLEANUP(busy_leavep) struct busy_hold *first = first_take;
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
    return take_over(c, &op, cr, TAKE_PTR(first), e);
}

static int resolve_known(struct control *c, const struct control_actor *actor, struct creation *cr,
                         struct control_answer *ret, struct err *e)
{
    CLEANUP(operation_done) struct operation op = {0};
    struct busy_hold *hold = NULL;
    int r;

    r = db_operation_get(c->db, actor->project, cr->what->idempotency_key, &op, e);
    if (r == -ENOENT) {
        return KNOWN_GONE;
    }
    if (r < 0) {
        return r;
    }
    if (!str_eq(op.fingerprint, cr->what->fingerprint)) {
        return err_field(
            e, -EEXIST, "idempotency_key_reused", "Idempotency-Key",
            "this key came with another request before: use a new key for a new request");
    }
    if (op.status) {
        r = replay(c, &op, ret, e);
        return r < 0 ? r : KNOWN_ANSWERED;
    }
    /* It runs, or its gateway has died. Our turn comes when nobody here works on it. */
    r = busy_enter(c->busy, op.sandbox, 0, cr->deadline_ns, &hold, e);
    return r < 0 ? r : look_again(c, &op, cr, hold, ret, e);
}

static uint64_t deadline_of(const struct control_create *what)
{
    size_t others = expected(what) - 1;

    return deadline_in_ms(CONTROL_CREATE_MS + others * CONTROL_FORK_CHILD_MS);
}

int control_create(struct control *c, const struct control_actor *actor,
                   const struct control_create *what, struct control_answer *ret, struct err *e)
{
    uint64_t deadline_ns = deadline_of(what);
    int r;

    ASSERT(c && actor && what && ret);
    ASSERT(!what->spec == (what->fork && what->parent));
    ASSERT(!what->idempotency_key || what->fingerprint);

    do {
        CLEANUP(creation_done) struct creation cr = {.what = what, .deadline_ns = deadline_ns};

        r = begin(c, actor, &cr, e);
        if (r == -EEXIST && what->idempotency_key) {
            r = resolve_known(c, actor, &cr, ret, e);
            if (r == KNOWN_ANSWERED) {
                return 0;
            }
            if (r == KNOWN_GONE) {
                continue;
            }
        }
        return r < 0 ? r : creation_run(c, actor, &cr, ret, e);
    } while (!deadline_passed(deadline_ns));
    return err_set(e, -ETIMEDOUT, "operation_running",
                   "a request with this key is still at work: try again");
}

int control_fork(struct control *c, const struct control_actor *actor, const char *id,
                 const struct control_create *what, struct control_answer *ret, struct err *e)
{
    cleanup_sandbox struct sandbox parent = {0};
    struct control_create mine = *what;
    int r = control_get(c, actor, id, &parent, e);

    ASSERT(what->fork && !what->spec);
    if (r < 0) {
        return r;
    }
    if (parent.desired == SANDBOX_STATE_DELETED) {
        return control_not_found(e);
    }
    if (parent.observed == SANDBOX_STATE_CREATING) {
        return err_set(e, -ESTALE, "wrong_state", "a sandbox that is creating cannot be forked");
    }
    mine.parent = &parent;
    return control_create(c, actor, &mine, ret, e);
}

int control_answer_id(const struct control_answer *answer, char ret[static ID_SIZE], struct err *e)
{
    cleanup_json json_t *body = NULL;
    json_t *list;
    const char *id;
    int r = json_parse_object(answer->body, strlen(answer->body), &body, e);

    if (r < 0) {
        return r;
    }
    list = json_object_get(body, "sandboxes");
    id = json_get_string(json_is_array(list) ? json_array_get(list, 0) : body, "id", "");
    if (!id_valid(ID_SANDBOX, id)) {
        return err_set(e, -EPROTO, "bad_answer", "the new sandbox has no id");
    }
    snprintf(ret, ID_SIZE, "%s", id);
    return 0;
}
