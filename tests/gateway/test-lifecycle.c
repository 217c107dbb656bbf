/* SPDX-License-Identifier: Apache-2.0 */

/* The life of sandboxes when things go wrong at the wrong moment: FIELD notes F11, F13, F17, F58. */
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct ask create_of(struct world *w, const char *key)
{
    return (struct ask){.method = "POST",
                        .target = "/v1/sandboxes",
                        .body = "{\"vcpus\":1}",
                        .key = w->keys[ALICE],
                        .idempotency_key = key};
}

/* What list shows while a creation is held: the only sandbox. */
static void only_id(struct world *w, char ret[static ID_SIZE])
{
    cleanup_answer struct answer a = alice(w, "GET", "/v1/sandboxes", NULL);
    json_t *first = json_array_get(json_object_get(a.json, "sandboxes"), 0);

    snprintf(ret, ID_SIZE, "%s", json_get_string(first, "id", ""));
}

static void check_nothing_left(struct world *w)
{
    CHECK_INT(world_rows(w), 0);
    CHECK_INT(fake_node_count(w->node), 0);
}

/* --- F11: deletion against creation --- */

static void delete_during_create_wins(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, NULL);
    struct running create;
    char id[ID_SIZE];
    cleanup_free char *target = NULL;

    fake_node_hold(w.node, FAKE_CREATE);
    ask_start(&create, &w, &ask);
    fake_node_await_held(w.node, FAKE_CREATE, 1);
    only_id(&w, id);
    target = xasprintf("/v1/sandboxes/%s", id);
    {
        cleanup_answer struct answer deleted = alice(&w, "DELETE", target, NULL);
        cleanup_answer struct answer after = alice(&w, "GET", target, NULL);

        CHECK_INT(deleted.status, 204);
        CHECK_INT(after.status, 404);
    }
    fake_node_release(w.node, FAKE_CREATE);
    ask_join(&create);
    CHECK_INT(create.answer.status, 409);
    CHECK_STR(answer_code(&create.answer), "sandbox_deleted");
    answer_done(&create.answer);
    check_nothing_left(&w);
}

static void create_that_comes_through_after_a_foreign_delete_cleans_up(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, NULL);
    struct running create;
    cleanup_sandbox struct sandbox sb = {0};
    char id[ID_SIZE];

    /* Another replica writes "deleted": it knows nothing of our hold. */
    fake_node_hold(w.node, FAKE_CREATE);
    ask_start(&create, &w, &ask);
    fake_node_await_held(w.node, FAKE_CREATE, 1);
    only_id(&w, id);
    REQUIRE(db_sandbox_get(w.db, id, NULL, &sb, NULL) == 0);
    sb.desired = SANDBOX_STATE_DELETED;
    CHECK_INT(db_sandbox_update(w.db, &sb, NULL, NULL), 0);
    fake_node_release(w.node, FAKE_CREATE);
    ask_join(&create);
    CHECK_INT(create.answer.status, 409);
    answer_done(&create.answer);
    check_nothing_left(&w);
}

static void delete_while_the_node_is_down_is_accepted_and_finished_later(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s", id);
    fake_node_fault(w.node, FAKE_DELETE, FAKE_CUT);
    {
        cleanup_answer struct answer deleted = alice(&w, "DELETE", target, NULL);
        cleanup_answer struct answer shown = alice(&w, "GET", target, NULL);
        cleanup_answer struct answer patched = alice(&w, "PATCH", target, "{\"timeout_s\":9}");
        cleanup_answer struct answer started = alice(&w, "POST", target, NULL);

        CHECK_INT(deleted.status, 202);
        CHECK_STR(json_get_string(shown.json, "state", ""), "deleting");
        CHECK_INT(patched.status, 404);
        CHECK_INT(started.status, 405);
    }
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(world_rows(&w), 1); /* still not: nothing was confirmed */
    fake_node_fault(w.node, FAKE_DELETE, FAKE_FINE);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    check_nothing_left(&w);
}

static void concurrent_deletes_all_succeed(void)
{
    WORLD(w);
    struct running r[8];
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    int done = 0;

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s", id);
    fake_node_hold(w.node, FAKE_DELETE);
    for (int i = 0; i < 8; i++) {
        ask_start(&r[i], &w,
                  &(struct ask){.method = "DELETE", .target = target, .key = w.keys[ALICE]});
    }
    fake_node_await_held(w.node, FAKE_DELETE, 1);
    fake_node_release(w.node, FAKE_DELETE);
    for (int i = 0; i < 8; i++) {
        ask_join(&r[i]);
        CHECK(r[i].answer.status == 204 || r[i].answer.status == 404);
        done += r[i].answer.status == 204;
        answer_done(&r[i].answer);
    }
    CHECK(done >= 1);
    check_nothing_left(&w);
}

static void lost_delete_answer_is_repeated(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    cleanup_answer struct answer a = {0};

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s", id);
    fake_node_fault(w.node, FAKE_DELETE, FAKE_LOST);
    a = alice(&w, "DELETE", target, NULL);
    CHECK(a.status == 202 || a.status == 204);
    fake_node_fault(w.node, FAKE_DELETE, FAKE_FINE);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    check_nothing_left(&w);
}

/* --- F13: idempotency --- */

static void same_key_same_body_is_one_sandbox(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, "k1");
    cleanup_answer struct answer first = world_ask(&w, &ask);
    cleanup_answer struct answer again = world_ask(&w, &ask);
    struct ask other_order = ask;

    CHECK_INT(first.status, 201);
    CHECK_INT(again.status, 201);
    CHECK(!first.replayed);
    CHECK(again.replayed);
    CHECK_STR(again.text, first.text);
    other_order.body = " { \"vcpus\" : 1 } ";
    {
        cleanup_answer struct answer a = world_ask(&w, &other_order);

        CHECK_INT(a.status, 201);
        CHECK_STR(a.text, first.text);
    }
    CHECK_INT(fake_node_made(w.node), 1);
    CHECK_INT(fake_node_asked(w.node, FAKE_CREATE), 1);
}

static void field_order_does_not_matter(void)
{
    WORLD(w);
    static const char *const bodies[] = {
        "{\"vcpus\":2,\"metadata\":{\"a\":\"1\",\"b\":\"2\"},\"env\":{\"X\":\"y\"}}",
        "{\"env\":{\"X\":\"y\"},\"metadata\":{\"b\":\"2\",\"a\":\"1\"},\"vcpus\":2}",
        "{\"metadata\":{\"\\u0061\":\"1\",\"b\":\"2\"},\n\"env\":{\"X\":\"y\"},\t\"vcpus\":2}",
    };
    struct ask ask = create_of(&w, "k1");

    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
        cleanup_answer struct answer a = {0};

        ask.body = bodies[i];
        a = world_ask(&w, &ask);
        CHECK_INT(a.status, 201);
    }
    CHECK_INT(fake_node_made(w.node), 1);
}

static void ten_at_once_are_one_sandbox(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, "k1");
    struct running r[10];
    char id[ID_SIZE] = "";

    fake_node_hold(w.node, FAKE_CREATE);
    for (int i = 0; i < 10; i++) {
        ask_start(&r[i], &w, &ask);
    }
    fake_node_await_held(w.node, FAKE_CREATE, 1);
    fake_node_release(w.node, FAKE_CREATE);
    for (int i = 0; i < 10; i++) {
        ask_join(&r[i]);
        CHECK_INT(r[i].answer.status, 201);
        if (!id[0]) {
            snprintf(id, sizeof(id), "%s", json_get_string(r[i].answer.json, "id", ""));
        }
        CHECK_STR(json_get_string(r[i].answer.json, "id", ""), id);
        answer_done(&r[i].answer);
    }
    CHECK_INT(fake_node_made(w.node), 1);
    CHECK_INT(fake_node_asked(w.node, FAKE_CREATE), 1);
    CHECK_INT(world_rows(&w), 1);
}

static void same_key_other_body_is_refused(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, "k1");
    cleanup_answer struct answer first = world_ask(&w, &ask);
    cleanup_answer struct answer other = {0};

    ask.body = "{\"vcpus\":2}";
    other = world_ask(&w, &ask);
    CHECK_INT(first.status, 201);
    CHECK_INT(other.status, 409);
    CHECK_STR(answer_code(&other), "idempotency_key_reused");
    CHECK_INT(fake_node_made(w.node), 1);
}

static void keys_of_tenants_are_independent(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, "k1");
    cleanup_answer struct answer a = world_ask(&w, &ask);
    cleanup_answer struct answer b = {0};

    ask.key = w.keys[BOB];
    b = world_ask(&w, &ask);
    CHECK_INT(a.status, 201);
    CHECK_INT(b.status, 201);
    CHECK(strcmp(json_get_string(a.json, "id", ""), json_get_string(b.json, "id", "")) != 0);
}

static void key_of_a_deleted_sandbox_is_spent(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, "k1");
    cleanup_answer struct answer first = world_ask(&w, &ask);
    cleanup_free char *target =
        xasprintf("/v1/sandboxes/%s", json_get_string(first.json, "id", ""));
    cleanup_answer struct answer deleted = alice(&w, "DELETE", target, NULL);
    cleanup_answer struct answer again = world_ask(&w, &ask);

    CHECK_INT(deleted.status, 204);
    CHECK_INT(again.status, 409);
    CHECK_STR(answer_code(&again), "idempotency_key_spent");
    check_nothing_left(&w);
}

static void failed_attempt_may_be_repeated(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, "k1");
    cleanup_answer struct answer failed = {0};
    cleanup_answer struct answer again = {0};

    fake_node_fault(w.node, FAKE_CREATE, FAKE_ERROR);
    failed = world_ask(&w, &ask);
    CHECK_INT(failed.status, 503);
    CHECK_STR(answer_code(&failed), "no_capacity");
    check_nothing_left(&w);
    fake_node_fault(w.node, FAKE_CREATE, FAKE_FINE);
    again = world_ask(&w, &ask);
    CHECK_INT(again.status, 201);
    CHECK_INT(world_rows(&w), 1);
}

/* The gateway dies after the node made the sandbox and before the answer is written. */
static void crash_between_node_and_answer(struct world *w, const struct ask *ask)
{
    cleanup_answer struct answer a = {0};

    world_fail_sql("UPDATE sandboxes SET desired", 1); /* the write that would publish it ... */
    fake_node_fault(w->node, FAKE_DELETE,
                    FAKE_CUT); /* ... and a process that cannot clean up any more */
    a = world_ask(w, ask);
    CHECK(a.status >= 500);
    CHECK_INT(fake_node_count(w->node), 1);
    fake_node_fault(w->node, FAKE_DELETE, FAKE_FINE);
}

/*
 * As crash_between_node_and_answer(), but as a real crash leaves it: a row in state creating with a
 * dead owner, its operation running, the machine up.
 */
static void leave_what_a_crash_leaves(struct world *w, const struct ask *ask,
                                      char ret_id[static ID_SIZE])
{
    struct running create;
    cleanup_sandbox struct sandbox sb = {0};
    struct operation op = {0};

    fake_node_hold(w->node, FAKE_CREATE);
    ask_start(&create, w, ask);
    fake_node_await_held(w->node, FAKE_CREATE, 1);
    only_id(w, ret_id);
    REQUIRE(db_sandbox_get(w->db, ret_id, NULL, &sb, NULL) == 0);
    if (ask->idempotency_key) {
        REQUIRE(db_operation_get(w->db, w->projects[ALICE], ask->idempotency_key, &op, NULL) == 0);
    }
    /* Let the attempt end and be undone, then put back what was in the database in its middle. */
    fake_node_fault(w->node, FAKE_CREATE, FAKE_ERROR);
    fake_node_release(w->node, FAKE_CREATE);
    ask_join(&create);
    answer_done(&create.answer);
    fake_node_fault(w->node, FAKE_CREATE, FAKE_FINE);
    REQUIRE(world_rows(w) == 0);
    snprintf(sb.owner, sizeof(sb.owner), "rdead");
    snprintf(op.owner, sizeof(op.owner), "rdead");
    REQUIRE(db_sandbox_insert(w->db, &sb,
                              &(struct db_beside){.operation = ask->idempotency_key ? &op : NULL},
                              10, NULL) == 0);
    operation_done(&op);
    world_restart_gateway(w);
}

static void retry_after_a_crash_gets_the_same_sandbox(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, "k1");
    char id[ID_SIZE];
    cleanup_answer struct answer retry = {0};
    cleanup_answer struct answer again = {0};

    leave_what_a_crash_leaves(&w, &ask, id);
    CHECK_INT(control_reconcile(w.control, NULL), 0); /* it waits for the retry */
    CHECK_INT(world_rows(&w), 1);
    retry = world_ask(&w, &ask);
    CHECK_INT(retry.status, 201);
    CHECK_STR(json_get_string(retry.json, "id", ""), id);
    again = world_ask(&w, &ask);
    CHECK_STR(again.text, retry.text);
    CHECK_INT(fake_node_count(w.node), 1);
    CHECK_INT(world_rows(&w), 1);
}

static void abandoned_creation_without_a_key_is_removed(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, NULL);
    char id[ID_SIZE];

    leave_what_a_crash_leaves(&w, &ask, id);
    fake_node_set(w.node, id, "running");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    check_nothing_left(&w);
}

static void abandoned_creation_with_a_key_is_removed_when_no_retry_comes(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, "k1");
    char id[ID_SIZE];
    cleanup_answer struct answer late = {0};

    leave_what_a_crash_leaves(&w, &ask, id);
    fake_node_set(w.node, id, "running");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(world_rows(&w), 1);
    world_advance_ms(&w, 200000);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    check_nothing_left(&w);
    late = world_ask(&w, &ask); /* it begins afresh */
    CHECK_INT(late.status, 201);
    CHECK(strcmp(json_get_string(late.json, "id", ""), id) != 0);
}

static void answer_that_was_committed_is_replayed_after_a_restart(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, "k1");
    cleanup_answer struct answer first = world_ask(&w, &ask);
    cleanup_answer struct answer again = {0};

    world_restart_gateway(&w);
    again = world_ask(&w, &ask);
    CHECK_INT(first.status, 201);
    CHECK_INT(again.status, 201);
    CHECK_STR(again.text, first.text);
    CHECK_INT(fake_node_made(w.node), 1);
}

static void failed_publication_leaves_nothing(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, "k1");
    cleanup_answer struct answer again = {0};

    crash_between_node_and_answer(&w, &ask);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    check_nothing_left(&w);
    again = world_ask(&w, &ask);
    CHECK_INT(again.status, 201);
}

/* --- the client goes --- */

static void client_that_goes_away_leaves_nothing(void)
{
    WORLD(w);
    int gone_fd = eventfd(0, EFD_CLOEXEC);
    struct pollfd gone = {.fd = gone_fd, .events = POLLIN};
    struct ask ask = create_of(&w, "k1");
    struct running create;
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    cleanup_answer struct answer after = {0};

    ask.watch = &gone;
    fake_node_hold(w.node, FAKE_CREATE);
    ask_start(&create, &w, &ask);
    fake_node_await_held(w.node, FAKE_CREATE, 1);
    only_id(&w, id);
    CHECK_INT(eventfd_write(gone_fd, 1), 0);
    ask_join(&create);
    CHECK_INT(create.answer.error, -ECANCELED);
    answer_done(&create.answer);
    fake_node_await_asked(w.node, FAKE_DELETE, 1); /* it cleans up, still with the creation held */
    fake_node_release(w.node, FAKE_CREATE);
    target = xasprintf("/v1/sandboxes/%s", id);
    after = alice(&w, "DELETE", target, NULL); /* waits for whoever still holds the sandbox */
    CHECK(after.status == 404 || after.status == 204);
    check_nothing_left(&w);
    fd_close(gone_fd);
}

/* --- the node fails --- */

static void failing_node_leaves_no_row(void)
{
    static const struct {
        enum fake_fault fault;
        int status;
    } cases[] = {
        {FAKE_ERROR, 503}, {FAKE_CUT, 503},      {FAKE_HALF, 503},
        {FAKE_LOST, 503},  {FAKE_NONSENSE, 502}, {FAKE_NOT_JSON, 0},
    };
    WORLD(w);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct ask ask = create_of(&w, NULL);
        cleanup_answer struct answer a = {0};

        fake_node_fault(w.node, FAKE_CREATE, cases[i].fault);
        a = world_ask(&w, &ask);
        CHECK(cases[i].status ? a.status == cases[i].status : a.status >= 500);
        CHECK(answer_code(&a)[0]);
        check_nothing_left(&w);
    }
}

static void node_that_is_down_is_named_and_leaves_no_row(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, NULL);
    cleanup_answer struct answer a = {0};
    cleanup_answer struct answer templates = {0};

    world_stop_node(&w);
    a = world_ask(&w, &ask);
    CHECK_INT(a.status, 503);
    CHECK_STR(answer_code(&a), "node_unavailable");
    CHECK(strstr(a.text, w.dir) == NULL); /* no paths of ours */
    CHECK_INT(world_rows(&w), 0);
    templates = alice(&w, "GET", "/v1/templates", NULL);
    CHECK_INT(templates.status, 503);
    world_start_node(&w);
    answer_done(&a);
    a = world_ask(&w, &ask);
    CHECK_INT(a.status, 201);
}

/* --- F17: what cannot be read is not empty --- */

static void check_reconcile_touches_nothing(struct world *w, const char *id)
{
    unsigned deletes = fake_node_asked(w->node, FAKE_DELETE);
    char state[24];

    CHECK(control_reconcile(w->control, NULL) < 0);
    CHECK_INT(fake_node_asked(w->node, FAKE_DELETE), deletes);
    world_state(w, id, state);
    CHECK_STR(state, "running");
}

static void unreadable_lists_of_the_node_touch_nothing(void)
{
    static const enum fake_fault faults[] = {FAKE_ERROR, FAKE_CUT, FAKE_HALF, FAKE_NONSENSE,
                                             FAKE_NOT_JSON};
    WORLD(w);
    char id[3][ID_SIZE];

    for (int i = 0; i < 3; i++) {
        world_make(&w, ALICE, id[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        fake_node_fault(w.node, FAKE_LIST, faults[i]);
        check_reconcile_touches_nothing(&w, id[0]);
    }
    fake_node_fault(w.node, FAKE_LIST, FAKE_FINE);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(fake_node_count(w.node), 3);
    CHECK_INT(world_rows(&w), 3);
}

static void unreadable_rows_touch_nothing(void)
{
    WORLD(w);
    char id[3][ID_SIZE];

    for (int i = 0; i < 3; i++) {
        world_make(&w, ALICE, id[i]);
    }
    world_fail_sql("SELECT id, project_id, desired", 1);
    check_reconcile_touches_nothing(&w, id[0]);
    world_fail_sql("SELECT id, project_id, desired", 2);
    check_reconcile_touches_nothing(&w, id[0]);
    for (int n = 0; n < 3; n++) {
        world_break_rows("SELECT id, project_id, desired", n);
        check_reconcile_touches_nothing(&w, id[0]);
    }
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(fake_node_count(w.node), 3);
    CHECK_INT(world_rows(&w), 3);
}

static void unreachable_node_touches_nothing(void)
{
    WORLD(w);
    char id[ID_SIZE];
    char state[24];

    world_make(&w, ALICE, id);
    world_stop_node(&w);
    CHECK(control_reconcile(w.control, NULL) < 0);
    world_state(&w, id, state);
    CHECK_STR(state, "running");
}

/* --- repairs, both ways --- */

static void orphans_on_the_node_are_ended(void)
{
    WORLD(w);
    char id[ID_SIZE];
    char orphan[ID_SIZE];

    world_make(&w, ALICE, id);
    id_new(ID_SANDBOX, orphan);
    fake_node_set(w.node, orphan, "running");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK(!fake_node_has(w.node, orphan));
    CHECK(fake_node_has(w.node, id));
}

static void lost_stopped_and_failed_machines_are_observed(void)
{
    static const struct {
        const char *node;
        const char *shown;
    } cases[] = {{"", "failed"}, {"failed", "failed"}, {"stopped", "stopped"}};
    WORLD(w);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char id[ID_SIZE];
        char state[24];
        cleanup_free char *target = NULL;
        cleanup_answer struct answer a = {0};

        world_make(&w, ALICE, id);
        fake_node_set(w.node, id, cases[i].node);
        CHECK_INT(control_reconcile(w.control, NULL), 0);
        world_state(&w, id, state);
        CHECK_STR(state, cases[i].shown);
        target = xasprintf("/v1/sandboxes/%s", id);
        a = alice(&w, "GET", target, NULL);
        CHECK(json_get_string(a.json, "reason", NULL) != NULL);
    }
}

static void failed_one_that_is_found_again_runs(void)
{
    WORLD(w);
    char id[ID_SIZE];
    char state[24];

    world_make(&w, ALICE, id);
    fake_node_set(w.node, id, "");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    fake_node_set(w.node, id, "running");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    world_state(&w, id, state);
    CHECK_STR(state, "running");
}

/* Without a pass of the reconciler: what a client asks for counts the node's word at once. */
static void failed_one_that_the_node_brought_back_runs_for_who_asks(void)
{
    static const enum fake_fault faults[] = {FAKE_ERROR, FAKE_CUT, FAKE_HALF, FAKE_NONSENSE};
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *one = NULL;
    cleanup_free char *commands = NULL;
    cleanup_answer struct answer inside = {0};
    cleanup_answer struct answer seen = {0};

    world_make(&w, ALICE, id);
    one = xasprintf("/v1/sandboxes/%s", id);
    commands = xasprintf("/v1/sandboxes/%s/commands", id);
    fake_node_set(w.node, id, "failed");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    fake_node_set(w.node, id, "running");
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) { /* what it does not say changes nothing */
        cleanup_answer struct answer a = {0};

        fake_node_fault(w.node, FAKE_GET, faults[i]);
        a = alice(&w, "GET", commands, NULL);
        CHECK_INT(a.status, 409);
        CHECK_STR(answer_code(&a), "sandbox_not_running");
    }
    fake_node_fault(w.node, FAKE_GET, FAKE_FINE);
    fake_node_guest_answer(w.node, 200, "application/json", "{\"commands\":[]}", 15);
    inside = alice(&w, "GET", commands, NULL);
    CHECK_INT(inside.status, 200);
    seen = alice(&w, "GET", one, NULL);
    CHECK_STR(json_get_string(seen.json, "state", ""), "running");
    CHECK_INT(fake_node_asked(w.node, FAKE_LIST), 1);
}

static void creation_under_way_is_left_alone(void)
{
    WORLD(w);
    struct ask ask = create_of(&w, NULL);
    struct running create;

    fake_node_hold(w.node, FAKE_CREATE);
    ask_start(&create, &w, &ask);
    fake_node_await_held(w.node, FAKE_CREATE, 1);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(world_rows(&w), 1);
    fake_node_release(w.node, FAKE_CREATE);
    ask_join(&create);
    CHECK_INT(create.answer.status, 201);
    answer_done(&create.answer);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(world_rows(&w), 1);
    CHECK_INT(fake_node_count(w.node), 1);
}

/* --- stop and start --- */

static void stop_and_start(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *stop = NULL;
    cleanup_free char *start = NULL;

    world_make(&w, ALICE, id);
    stop = xasprintf("/v1/sandboxes/%s/stop", id);
    start = xasprintf("/v1/sandboxes/%s/start", id);
    for (int i = 0; i < 2; i++) { /* twice: stopping what is stopped is fine */
        cleanup_answer struct answer a = alice(&w, "POST", stop, NULL);

        CHECK_INT(a.status, 200);
        CHECK_STR(json_get_string(a.json, "state", ""), "stopped");
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_STOP), 1);
    for (int i = 0; i < 2; i++) {
        cleanup_answer struct answer a = alice(&w, "POST", start, NULL);

        CHECK_INT(a.status, 200);
        CHECK_STR(json_get_string(a.json, "state", ""), "running");
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_START), 1);
}

static void what_is_paused_can_be_stopped(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *pause = NULL;
    cleanup_free char *stop = NULL;
    cleanup_answer struct answer paused = {0};
    cleanup_answer struct answer a = {0};

    world_make(&w, ALICE, id);
    pause = xasprintf("/v1/sandboxes/%s/pause", id);
    stop = xasprintf("/v1/sandboxes/%s/stop", id);
    paused = alice(&w, "POST", pause, NULL);
    CHECK_INT(paused.status, 200);
    a = alice(&w, "POST", stop, NULL);
    CHECK_INT(a.status, 200);
    CHECK_STR(json_get_string(a.json, "state", ""), "stopped");
    CHECK_INT(fake_node_asked(w.node, FAKE_RESUME), 0);
}

static void stop_that_fails_is_finished_by_the_reconciler(void)
{
    WORLD(w);
    char id[ID_SIZE];
    char state[24];
    cleanup_free char *target = NULL;
    cleanup_answer struct answer a = {0};

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s/stop", id);
    fake_node_fault(w.node, FAKE_STOP, FAKE_CUT);
    a = alice(&w, "POST", target, NULL);
    CHECK_INT(a.status, 503);
    fake_node_fault(w.node, FAKE_STOP, FAKE_FINE);
    CHECK_INT(control_reconcile(w.control, NULL), 0); /* stops it */
    CHECK_INT(control_reconcile(w.control, NULL), 0); /* sees it stopped */
    world_state(&w, id, state);
    CHECK_STR(state, "stopped");
}

static void start_that_fails_leaves_it_stopped(void)
{
    WORLD(w);
    char id[ID_SIZE];
    char state[24];
    cleanup_free char *stop = NULL;
    cleanup_free char *start = NULL;
    cleanup_answer struct answer stopped = {0};
    cleanup_answer struct answer a = {0};

    world_make(&w, ALICE, id);
    stop = xasprintf("/v1/sandboxes/%s/stop", id);
    start = xasprintf("/v1/sandboxes/%s/start", id);
    stopped = alice(&w, "POST", stop, NULL);
    fake_node_fault(w.node, FAKE_START, FAKE_ERROR);
    a = alice(&w, "POST", start, NULL);
    CHECK_INT(a.status, 503);
    CHECK_STR(answer_code(&a), "no_capacity");
    world_state(&w, id, state);
    CHECK_STR(state, "stopped");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    world_state(&w, id, state);
    CHECK_STR(state, "stopped");
}

/* --- F58: the end of life --- */

static void copy_first(struct world *w, struct sandbox *ret)
{
    char id[ID_SIZE];

    only_id(w, id);
    ASSERT(db_sandbox_get(w->db, id, NULL, ret, NULL) == 0);
}

static void time_over_deletes(void)
{
    WORLD(w);
    char id[ID_SIZE];
    char state[24];

    world_make(&w, ALICE, id); /* 3600 s by default */
    world_advance_ms(&w, 3599999);
    CHECK_INT(control_expire(w.control, NULL), 0);
    world_state(&w, id, state);
    CHECK_STR(state, "running");
    world_advance_ms(&w, 1);
    CHECK_INT(control_expire(w.control, NULL), 0);
    check_nothing_left(&w);
}

static void extension_beats_an_expiry_that_was_decided_before(void)
{
    WORLD(w);
    char id[ID_SIZE];
    char state[24];
    cleanup_sandbox struct sandbox picked = {0};
    cleanup_free char *target = NULL;
    cleanup_answer struct answer a = {0};

    world_make(&w, ALICE, id);
    world_advance_ms(&w, 3600000);
    copy_first(&w, &picked); /* the expiry has chosen it, and stops to think */
    target = xasprintf("/v1/sandboxes/%s", id);
    a = alice(&w, "PATCH", target, "{\"timeout_s\":600}");
    CHECK_INT(a.status, 200);
    CHECK_INT(control_expire_one(w.control, &picked, NULL), -ESTALE);
    world_state(&w, id, state);
    CHECK_STR(state, "running");
    CHECK_INT(fake_node_asked(w.node, FAKE_DELETE), 0);
}

static void extension_after_the_kill_began_is_refused(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;
    cleanup_answer struct answer a = {0};

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s", id);
    world_advance_ms(&w, 3600000);
    fake_node_fault(w.node, FAKE_DELETE, FAKE_CUT);
    CHECK_INT(control_expire(w.control, NULL), 0);
    a = alice(&w, "PATCH", target, "{\"timeout_s\":600}");
    CHECK_INT(a.status, 404);
    fake_node_fault(w.node, FAKE_DELETE, FAKE_FINE);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    check_nothing_left(&w);
}

static void timeout_can_be_shortened_lengthened_and_dropped(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_free char *target = NULL;

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s", id);
    {
        cleanup_answer struct answer shorter = alice(&w, "PATCH", target, "{\"timeout_s\":10}");
        cleanup_answer struct answer longer = alice(&w, "PATCH", target, "{\"timeout_s\":7200}");
        cleanup_answer struct answer never = alice(&w, "PATCH", target, "{\"timeout_s\":0}");

        CHECK_INT(json_get_int(shorter.json, "end_at_ms", 0), w.now_ms + 10000);
        CHECK_INT(json_get_int(longer.json, "end_at_ms", 0), w.now_ms + 7200000);
        CHECK(json_is_null(json_object_get(never.json, "end_at_ms")));
    }
    world_advance_ms(&w, 1000000000);
    CHECK_INT(control_expire(w.control, NULL), 0);
    CHECK_INT(world_rows(&w), 1);
}

static void unreadable_expiry_list_ends_nothing(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    world_advance_ms(&w, 3600000);
    world_break_rows("SELECT id, project_id, desired", 0);
    CHECK(control_expire(w.control, NULL) < 0);
    CHECK_INT(fake_node_count(w.node), 1);
}

/* --- the thread itself --- */

static void reconciler_thread_repairs_on_its_own(void)
{
    WORLD(w);
    char id[ID_SIZE];
    char orphan[ID_SIZE];

    world_make(&w, ALICE, id);
    id_new(ID_SANDBOX, orphan);
    fake_node_set(w.node, orphan, "running");
    control_start_reconciler(w.control);
    fake_node_await_asked(w.node, FAKE_DELETE, 1);
    control_stop_reconciler(w.control);
    CHECK(!fake_node_has(w.node, orphan));
    CHECK(fake_node_has(w.node, id));
    CHECK(control_health(w.control).node_ok);
    CHECK_INT(control_health(w.control).repairs, 1);
}

TEST_MAIN(T(delete_during_create_wins),
          T(create_that_comes_through_after_a_foreign_delete_cleans_up),
          T(delete_while_the_node_is_down_is_accepted_and_finished_later),
          T(concurrent_deletes_all_succeed), T(lost_delete_answer_is_repeated),
          T(same_key_same_body_is_one_sandbox), T(field_order_does_not_matter),
          T(ten_at_once_are_one_sandbox), T(same_key_other_body_is_refused),
          T(keys_of_tenants_are_independent), T(key_of_a_deleted_sandbox_is_spent),
          T(failed_attempt_may_be_repeated), T(retry_after_a_crash_gets_the_same_sandbox),
          T(abandoned_creation_without_a_key_is_removed),
          T(abandoned_creation_with_a_key_is_removed_when_no_retry_comes),
          T(answer_that_was_committed_is_replayed_after_a_restart),
          T(failed_publication_leaves_nothing), T(client_that_goes_away_leaves_nothing),
          T(failing_node_leaves_no_row), T(node_that_is_down_is_named_and_leaves_no_row),
          T(unreadable_lists_of_the_node_touch_nothing), T(unreadable_rows_touch_nothing),
          T(unreachable_node_touches_nothing), T(orphans_on_the_node_are_ended),
          T(lost_stopped_and_failed_machines_are_observed), T(failed_one_that_is_found_again_runs),
          T(failed_one_that_the_node_brought_back_runs_for_who_asks),
          T(creation_under_way_is_left_alone), T(stop_and_start), T(what_is_paused_can_be_stopped),
          T(stop_that_fails_is_finished_by_the_reconciler), T(start_that_fails_leaves_it_stopped),
          T(time_over_deletes), T(extension_beats_an_expiry_that_was_decided_before),
          T(extension_after_the_kill_began_is_refused),
          T(timeout_can_be_shortened_lengthened_and_dropped),
          T(unreadable_expiry_list_ends_nothing), T(reconciler_thread_repairs_on_its_own))
