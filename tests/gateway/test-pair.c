/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Two gateways over one database and one node: whatever one of them does, the other must neither double nor undo, and
 * either can die at any step. FIELD notes F10, F11, F13.
 */
#include <poll.h>
#include <stdio.h>

#include "harness.h"

/* More than a creation without its gateway waits for a retry (control/plan.h). */
#define LONG_MS 1200000

struct pair {
    struct world a;
    struct world b;
    bool is_there;
};

static bool pair_init(struct pair *p)
{
    if (!world_can_share()) {
        return false;
    }
    world_init(&p->a);
    world_init_second(&p->b, &p->a);
    p->is_there = true;
    return true;
}

static void pair_done(struct pair *p)
{
    if (p->is_there) {
        world_done(&p->b);
        world_done(&p->a);
    }
}
#define PAIR(p_) \
    CLEANUP(pair_done) struct pair p_ = {0}; \
    if (!pair_init(&p_)) { \
        TEST_SKIP("there is no database to share: set TEST_DATABASE=postgresql"); \
    }

static int status_at(struct world *w, const char *method, const char *id, const char *rest)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s%s", id, rest);
    cleanup_answer struct answer a = alice(w, method, target, NULL);

    return a.status;
}

static void both_see_the_same(void)
{
    PAIR(p);
    char id[ID_SIZE];

    world_make(&p.a, ALICE, id);
    CHECK_INT(status_at(&p.b, "GET", id, ""), 200);
    CHECK_INT(status_at(&p.b, "DELETE", id, ""), 204);
    CHECK_INT(status_at(&p.a, "GET", id, ""), 404);
    CHECK_INT(fake_node_count(p.a.node), 0);
}

static struct ask create_of(struct world *w, const char *idempotency_key)
{
    return (struct ask){.method = "POST",
                        .target = "/v1/sandboxes",
                        .body = "{\"template\":\"tiny\"}",
                        .key = w->keys[ALICE],
                        .idempotency_key = idempotency_key};
}

/* F13: the same request at both, at once. */
static void one_key_at_both_makes_one(void)
{
    PAIR(p);
    struct running r[10];
    char id[ID_SIZE] = "";

    fake_node_hold(p.a.node, FAKE_CREATE);
    for (int i = 0; i < 10; i++) {
        struct world *w = i % 2 ? &p.b : &p.a;
        struct ask ask = create_of(w, "same");

        ask_start(&r[i], w, &ask);
    }
    fake_node_await_held(p.a.node, FAKE_CREATE, 1);
    fake_node_release(p.a.node, FAKE_CREATE);
    for (int i = 0; i < 10; i++) {
        ask_join(&r[i]);
        CHECK_INT(r[i].answer.status, 201);
        if (i == 0) {
            snprintf(id, sizeof(id), "%s", json_get_string(r[i].answer.json, "id", ""));
        }
        CHECK_STR(json_get_string(r[i].answer.json, "id", ""), id);
        answer_done(&r[i].answer);
    }
    CHECK_INT(fake_node_made(p.a.node), 1);
    CHECK_INT(world_rows(&p.b), 1);
}

/* F10: ten want it here and ten there. */
static void resumes_at_both_are_one(void)
{
    PAIR(p);
    struct running r[20];
    cleanup_free char *target = NULL;
    char id[ID_SIZE];
    unsigned before;

    world_make(&p.a, ALICE, id);
    CHECK_INT(status_at(&p.a, "POST", id, "/pause"), 200);
    before = fake_node_asked(p.a.node, FAKE_RESUME);
    target = xasprintf("/v1/sandboxes/%s/resume", id);
    fake_node_hold(p.a.node, FAKE_RESUME);
    for (int i = 0; i < 20; i++) {
        struct world *w = i % 2 ? &p.b : &p.a;

        ask_start(&r[i], w,
                  &(struct ask){.method = "POST", .target = target, .key = w->keys[ALICE]});
    }
    fake_node_await_held(p.a.node, FAKE_RESUME, 1);
    fake_node_release(p.a.node, FAKE_RESUME);
    for (int i = 0; i < 20; i++) {
        ask_join(&r[i]);
        CHECK_INT(r[i].answer.status, 200);
        answer_done(&r[i].answer);
    }
    CHECK_INT(fake_node_asked(p.a.node, FAKE_RESUME) - before, 1);
}

/* What one of them is making, the other's reconciler takes neither for abandoned nor for an orphan. */
static void a_creation_at_the_other_is_left_alone(void)
{
    PAIR(p);
    struct ask ask = create_of(&p.a, NULL);
    struct running create;

    fake_node_hold(p.a.node, FAKE_CREATE);
    ask_start(&create, &p.a, &ask);
    fake_node_await_held(p.a.node, FAKE_CREATE, 1);
    for (int i = 0; i < 3; i++) {
        world_advance_ms(&p.b, LONG_MS);
        CHECK_INT(control_reconcile(p.b.control, NULL), 0);
    }
    fake_node_release(p.a.node, FAKE_CREATE);
    ask_join(&create);
    CHECK_INT(create.answer.status, 201);
    answer_done(&create.answer);
    CHECK_INT(control_reconcile(p.b.control, NULL), 0);
    CHECK_INT(fake_node_count(p.a.node), 1);
    CHECK_INT(world_rows(&p.a), 1);
}

/* F11: the deletion comes to the gateway that does not make it. */
static void a_deletion_at_the_other_ends_a_creation(void)
{
    PAIR(p);
    struct ask ask = create_of(&p.a, NULL);
    struct running create;
    cleanup_answer struct answer list = {0};
    cleanup_free char *id = NULL;

    fake_node_hold(p.a.node, FAKE_CREATE);
    ask_start(&create, &p.a, &ask);
    fake_node_await_held(p.a.node, FAKE_CREATE, 1);
    list = alice(&p.b, "GET", "/v1/sandboxes", NULL);
    id = xstrdup(
        json_get_string(json_array_get(json_object_get(list.json, "sandboxes"), 0), "id", "none"));
    CHECK_INT(status_at(&p.b, "DELETE", id, ""), 204); /* without a release: it was called off */
    CHECK_INT(status_at(&p.a, "GET", id, ""), 404);
    fake_node_release(p.a.node, FAKE_CREATE);
    ask_join(&create);
    CHECK_INT(create.answer.status, 409);
    CHECK_STR(answer_code(&create.answer), "sandbox_deleted");
    answer_done(&create.answer);
    CHECK_INT(fake_node_count(p.a.node), 0);
    CHECK_INT(world_rows(&p.a), 0);
}

static void a_revoked_key_is_void_at_both(void)
{
    PAIR(p);
    cleanup_answer struct answer made = {0};
    cleanup_answer struct answer other = {0};
    cleanup_answer struct answer gone = {0};
    cleanup_free char *target = NULL;
    uint64_t deadline_ns = deadline_in_ms(TEST_MS);
    struct ask ask = {.method = "GET", .target = "/v1/sandboxes"};
    int status = 200;

    made = alice(&p.a, "POST", "/v1/keys", "{\"name\":\"n\"}");
    CHECK_INT(made.status, 201);
    ask.key = json_get_string(made.json, "key", "");
    other = world_ask(&p.b, &ask);
    CHECK_INT(other.status, 200);
    target = xasprintf("/v1/keys/%s", json_get_string(made.json, "id", ""));
    gone = alice(&p.a, "DELETE", target, NULL);
    CHECK_INT(gone.status, 204);
    while (status == 200 && !deadline_passed(deadline_ns)) { /* it may remember it for seconds */
        cleanup_answer struct answer again = world_ask(&p.b, &ask);

        status = again.status;
    }
    CHECK_INT(status, 401);
}

static void tokens_of_one_are_good_at_the_other(void)
{
    PAIR(p);
    char token[TOKEN_SIZE];

    tokens_make(p.a.tokens, TOKEN_TRAFFIC, "s1", token);
    CHECK(tokens_check(p.b.tokens, TOKEN_TRAFFIC, "s1", token));
}

static void the_quota_is_one(void)
{
    PAIR(p);
    struct running r[12];
    int made = 0;

    REQUIRE(db_project_set_quota(p.a.db, p.a.projects[ALICE], 5, NULL) == 0);
    world_restart_gateway(&p.b); /* what it remembers of the keys */
    for (int i = 0; i < 12; i++) {
        struct world *w = i % 2 ? &p.b : &p.a;
        struct ask ask = create_of(w, NULL);

        ask_start(&r[i], w, &ask);
    }
    for (int i = 0; i < 12; i++) {
        ask_join(&r[i]);
        CHECK(r[i].answer.status == 201 || r[i].answer.status == 429);
        made += r[i].answer.status == 201;
        answer_done(&r[i].answer);
    }
    CHECK_INT(made, 5);
    CHECK_INT(world_rows(&p.a), 5);
}

/* --- death --- */

/* A gateway that was killed in the middle: its row, its operation and its hold are there, itself not. */
static void leave_half_a_creation(struct pair *p, const char *owner, int64_t lease_ms,
                                  char ret_id[static ID_SIZE])
{
    struct ask ask = create_of(&p->a, "half");
    struct running create;
    cleanup_answer struct answer list = {0};
    cleanup_sandbox struct sandbox sb = {0};
    CLEANUP(operation_done) struct operation op = {0};
    struct node_call call = {.deadline_ns = deadline_in_ms(TEST_MS)};
    const char *id;
    int64_t alive;

    fake_node_hold(p->a.node, FAKE_CREATE);
    ask_start(&create, &p->a, &ask);
    fake_node_await_held(p->a.node, FAKE_CREATE, 1);
    list = alice(&p->b, "GET", "/v1/sandboxes", NULL);
    id = json_get_string(json_array_get(json_object_get(list.json, "sandboxes"), 0), "id", "none");
    ASSERT(db_sandbox_get(p->a.db, id, NULL, &sb, NULL) == 0);
    ASSERT(db_operation_get(p->a.db, p->a.projects[ALICE], "half", &op, NULL) == 0);
    fake_node_release(p->a.node, FAKE_CREATE);
    ask_join(&create);
    answer_done(&create.answer);
    ASSERT(node_client_delete(fleet_client(p->a.fleet, "local"), id, &call, NULL) == 0);

    /* As it was in the middle, in the name of somebody else. */
    snprintf(ret_id, ID_SIZE, "%s", id);
    {
        cleanup_sandbox struct sandbox now = {0};

        ASSERT(db_sandbox_get(p->a.db, id, NULL, &now, NULL) == 0);
        ASSERT(db_sandbox_delete(p->a.db, &now, &(struct db_beside){.operation = &op}, NULL) == 0);
    }
    snprintf(sb.owner, sizeof(sb.owner), "%s", owner);
    snprintf(op.owner, sizeof(op.owner), "%s", owner);
    ASSERT(db_gateway_beat(p->a.db, owner, lease_ms, &alive, NULL) == 0);
    ASSERT(db_hold_take(p->a.db, id, owner, NULL) == 1);
    ASSERT(db_sandbox_insert(p->a.db, &sb, &(struct db_beside){.operation = &op}, 100, NULL) == 0);
}

static void a_retry_after_a_death_goes_on_with_the_same_id(void)
{
    PAIR(p);
    char id[ID_SIZE];
    struct ask ask;
    cleanup_answer struct answer again = {0};

    leave_half_a_creation(&p, "rdead", 300, id);
    ask = create_of(&p.b, "half");
    again = world_ask(&p.b, &ask);
    CHECK_INT(again.status, 201);
    CHECK_STR(json_get_string(again.json, "id", ""), id);
    CHECK_INT(world_rows(&p.b), 1);
    CHECK_INT(fake_node_count(p.a.node), 1);
}

static void what_a_death_left_is_removed_once_its_lease_is_over(void)
{
    PAIR(p);
    char id[ID_SIZE];
    uint64_t deadline_ns = deadline_in_ms(TEST_MS);

    leave_half_a_creation(&p, "rdead", 1500, id);
    world_advance_ms(&p.a, LONG_MS);
    world_advance_ms(&p.b, LONG_MS);
    CHECK_INT(control_reconcile(p.b.control, NULL), 0);
    CHECK_INT(world_rows(&p.b), 1); /* for all that is known it is at work on it */
    while (world_rows(&p.b) > 0 && !deadline_passed(deadline_ns)) {
        CHECK_INT(control_reconcile(p.a.control, NULL), 0);
        CHECK_INT(control_reconcile(p.b.control, NULL), 0);
    }
    CHECK_INT(world_rows(&p.b), 0);
    CHECK_INT(fake_node_count(p.a.node), 0);
}

/* A second machine whose node has the same name would take the first one's sandboxes for lost. */
static void a_gateway_with_another_node_touches_nothing(void)
{
    PAIR(p);
    struct err e = {0};
    char id[ID_SIZE];
    char other[ID_SIZE] = "";

    world_make(&p.a, ALICE, id);
    world_done(&p.b);
    p.b = (struct world){0};
    world_init_second_apart(&p.b, &p.a);
    CHECK_INT(control_check_node(p.b.control, &e), -ENOTUNIQ);
    CHECK_STR(e.reason, "other_node");
    CHECK_INT(control_reconcile(p.b.control, NULL), -ENOTUNIQ);
    {
        struct ask ask = create_of(&p.b, NULL);
        cleanup_answer struct answer refused = world_ask(&p.b, &ask);

        CHECK_INT(refused.status, 503);
        CHECK_STR(answer_code(&refused), "other_node");
    }
    CHECK_INT(status_at(&p.b, "DELETE", id, ""), 202); /* accepted, and left to who can do it */
    CHECK_INT(control_reconcile(p.a.control, NULL), 0);
    CHECK_INT(world_rows(&p.a), 0);
    CHECK_INT(fake_node_count(p.a.node), 0);
    world_make(&p.a, ALICE, other);
    CHECK_INT(control_reconcile(p.b.control, NULL), -ENOTUNIQ);
    CHECK_INT(fake_node_count(p.a.node), 1);
}

/* --- the threads --- */

/* Whoever takes the turns: what has to be done is done, by one of them, also when the other is gone. */
static void reconcilers_take_turns(void)
{
    PAIR(p);
    char id[ID_SIZE];
    uint64_t deadline_ns;

    control_start_reconciler(p.a.control);
    control_start_reconciler(p.b.control);
    for (int round = 0; round < 3; round++) {
        world_make(&p.a, ALICE, id);
        fake_node_fault(p.a.node, FAKE_DELETE, FAKE_CUT);
        CHECK_INT(status_at(&p.b, "DELETE", id, ""), 202);
        fake_node_fault(p.a.node, FAKE_DELETE, FAKE_FINE);
        if (round == 2) {
            control_stop_reconciler(p.b.control);
        }
        control_kick(p.a.control);
        deadline_ns = deadline_in_ms(TEST_MS);
        while (world_rows(&p.a) > 0 && !deadline_passed(deadline_ns)) {
            poll(NULL, 0, 10);
        }
        CHECK_INT(world_rows(&p.a), 0);
    }
    control_stop_reconciler(p.a.control);
    CHECK_INT(fake_node_count(p.a.node), 0);
    CHECK_INT(control_gateways(p.b.control), 2);
}

TEST_MAIN(T(both_see_the_same), T(one_key_at_both_makes_one), T(resumes_at_both_are_one),
          T(a_creation_at_the_other_is_left_alone), T(a_deletion_at_the_other_ends_a_creation),
          T(a_revoked_key_is_void_at_both), T(tokens_of_one_are_good_at_the_other),
          T(the_quota_is_one), T(a_retry_after_a_death_goes_on_with_the_same_id),
          T(what_a_death_left_is_removed_once_its_lease_is_over),
          T(a_gateway_with_another_node_touches_nothing), T(reconcilers_take_turns))
