/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One gateway and three nodes: requests go where the row says, creations where there is room, suspended ones wherever they fit;
 * at most one node has a sandbox, whatever fails. FIELD notes F10, F11.
 */
#include <stdio.h>

#include "nodes.h"

static void a_creation_goes_where_room_is(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_where(&t, id), 0);
    nodes_tell(&t, 0, true, SCHEDULE_CORDONED);
    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_where(&t, id), 1);
    CHECK_INT(nodes_row(&t, id), 1);
    nodes_tell(&t, 1, /* alive */ false, SCHEDULE_ACTIVE);
    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_where(&t, id), 2);
    nodes_tell(&t, 2, true, SCHEDULE_DRAINING);
    {
        cleanup_answer struct answer a =
            alice(&t.w, "POST", "/v1/sandboxes", "{\"template\":\"tiny\"}");

        CHECK_INT(a.status, 503);
        CHECK_STR(answer_code(&a), "no_capacity");
    }
    CHECK_INT(world_rows(&t.w), 3);
}

static void a_full_node_passes_a_creation_on(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    fake_node_fault(t.node[0], FAKE_CREATE, FAKE_ERROR);
    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_where(&t, id), 1);
    CHECK_INT(nodes_row(&t, id), 1);
    fake_node_fault(t.node[1], FAKE_CREATE, FAKE_ERROR);
    fake_node_fault(t.node[2], FAKE_CREATE, FAKE_ERROR);
    {
        cleanup_answer struct answer a =
            alice(&t.w, "POST", "/v1/sandboxes", "{\"template\":\"tiny\"}");

        CHECK_INT(a.status, 503);
        CHECK_STR(answer_code(&a), "no_capacity");
    }
    CHECK_INT(world_rows(&t.w), 1);
    CHECK_INT(fake_node_asked(t.node[2], FAKE_CREATE), 1);
}

static void a_node_that_is_not_there_passes_a_creation_on(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    world_stop_node(&t.w);
    t.node[0] = NULL;
    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_where(&t, id), 1);
}

/* It may have made it: nobody else is asked, and what there is of it goes. */
static void a_lost_answer_is_not_asked_of_another_node(void)
{
    NODES_WORLD(t);
    cleanup_answer struct answer a = {0};

    fake_node_fault(t.node[0], FAKE_CREATE, FAKE_LOST);
    a = alice(&t.w, "POST", "/v1/sandboxes", "{\"template\":\"tiny\"}");
    CHECK_INT(a.status, 503);
    CHECK_INT(fake_node_asked(t.node[1], FAKE_CREATE), 0);
    CHECK_INT(fake_node_count(t.node[0]), 0);
    CHECK_INT(world_rows(&t.w), 0);
}

static void requests_go_to_the_row_s_node(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    nodes_tell(&t, 0, true, SCHEDULE_CORDONED);
    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_post(&t, id, "/pause", NULL), 200);
    CHECK_INT(fake_node_asked(t.node[1], FAKE_PAUSE), 1);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    fake_node_guest_answer(t.node[1], 200, "application/json", "{}", 2);
    {
        cleanup_free char *target = xasprintf("/v1/sandboxes/%s/metrics", id);
        cleanup_answer struct answer a = alice(&t.w, "GET", target, NULL);

        CHECK_INT(a.status, 200);
    }
    CHECK_INT(fake_node_asked(t.node[1], FAKE_GUEST), 1);
    CHECK_INT(nodes_post(&t, id, "/fork", "{\"count\":2}"), 201);
    CHECK_INT(fake_node_count(t.node[1]), 3);
    CHECK_INT(nodes_post(&t, id, "/stop", NULL), 200);
    CHECK_INT(nodes_post(&t, id, "/start", NULL), 200);
    {
        cleanup_free char *target = xasprintf("/v1/sandboxes/%s", id);
        cleanup_answer struct answer a = alice(&t.w, "DELETE", target, NULL);

        CHECK_INT(a.status, 204);
    }
    CHECK_INT(fake_node_count(t.node[1]), 2);
    CHECK_INT(fake_node_asked(t.node[0], FAKE_GUEST) + fake_node_asked(t.node[0], FAKE_PAUSE) +
                  fake_node_asked(t.node[0], FAKE_DELETE),
              0);
}

/* Invariant 3, node by node. */
static void a_node_that_cannot_be_asked_is_not_empty(void)
{
    NODES_WORLD(t);
    char on_a[ID_SIZE];
    char on_b[ID_SIZE];

    world_make(&t.w, ALICE, on_a);
    nodes_tell(&t, 0, true, SCHEDULE_CORDONED);
    world_make(&t.w, ALICE, on_b);
    fake_node_set(t.node[2], "s0000000000000000009", "running");
    fake_node_fault(t.node[1], FAKE_LIST, FAKE_NONSENSE);
    fake_node_set(t.node[0], on_a, "");
    CHECK(control_reconcile(t.w.control, NULL) < 0);
    nodes_state(&t, on_b, "running");
    nodes_state(&t, on_a, "failed");                          /* the others are compared */
    CHECK(!fake_node_has(t.node[2], "s0000000000000000009")); /* all of them */
    CHECK(!control_health(t.w.control).node_ok);
    fake_node_fault(t.node[1], FAKE_LIST, FAKE_FINE);
    CHECK_INT(control_reconcile(t.w.control, NULL), 0);
    CHECK(control_health(t.w.control).node_ok);
}

static void what_a_sandbox_left_behind_goes_but_not_what_is_stored(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_post(&t, id, "/suspend", NULL), 200);
    nodes_tell(&t, 0, true, SCHEDULE_CORDONED);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    CHECK_INT(nodes_where(&t, id), 1);
    fake_node_set(t.node[0], id, "running"); /* the first node comes back with it */
    CHECK_INT(control_reconcile(t.w.control, NULL), 0);
    CHECK_INT(nodes_where(&t, id), 1);
    CHECK(fake_store_has(id));
    nodes_state(&t, id, "running");
}

static void suspended_here_resumes_there(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_post(&t, id, "/suspend", NULL), 200);
    CHECK_INT(nodes_where(&t, id), -1);
    world_stop_node(&t.w); /* whatever becomes of it */
    t.node[0] = NULL;
    nodes_tell(&t, 0, /* alive */ false, SCHEDULE_ACTIVE);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    CHECK_INT(nodes_where(&t, id), 1);
    CHECK_INT(nodes_row(&t, id), 1);
    nodes_state(&t, id, "running");
}

static void memory_that_fits_nowhere_starts_from_the_disk_in_the_end(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_post(&t, id, "/suspend", NULL), 200);
    fake_node_differs(t.node[0]);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    CHECK_INT(nodes_where(&t, id), 1); /* the next one has what it needs */
    CHECK_INT(nodes_post(&t, id, "/suspend", NULL), 200);
    fake_node_differs(t.node[1]);
    fake_node_differs(t.node[2]);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    CHECK(nodes_where(&t, id) >= 0);
    CHECK_INT(fake_node_cold(t.node[0]) + fake_node_cold(t.node[1]) + fake_node_cold(t.node[2]), 1);
}

static void who_wants_memory_alone_stays_suspended(void)
{
    NODES_WORLD(t);
    cleanup_free char *target = NULL;
    char id[ID_SIZE];

    world_make(&t.w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s", id);
    {
        cleanup_answer struct answer a =
            alice(&t.w, "PATCH", target, "{\"policy\":{\"cold_restore\":\"refuse\"}}");

        CHECK_INT(a.status, 200);
    }
    CHECK_INT(nodes_post(&t, id, "/suspend", NULL), 200);
    for (int i = 0; i < NODES; i++) {
        fake_node_differs(t.node[i]);
    }
    CHECK(nodes_post(&t, id, "/resume", NULL) >= 400);
    nodes_state(&t, id, "suspended");
    CHECK_INT(nodes_where(&t, id), -1);
    CHECK_INT(fake_node_cold(t.node[0]) + fake_node_cold(t.node[1]) + fake_node_cold(t.node[2]), 0);
}

static void a_restore_whose_answer_is_lost_stays_on_its_node(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_post(&t, id, "/suspend", NULL), 200);
    fake_node_fault(t.node[0], FAKE_RESTORE, FAKE_LOST);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 503);
    CHECK_INT(nodes_where(&t, id), 0);
    CHECK_INT(fake_node_asked(t.node[1], FAKE_RESTORE), 0);
    nodes_tell(&t, 0, true, SCHEDULE_CORDONED); /* also when it would not be chosen now */
    fake_node_fault(t.node[0], FAKE_RESTORE, FAKE_FINE);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    CHECK_INT(nodes_where(&t, id), 0);
    CHECK_INT(nodes_row(&t, id), 0);
}

static void a_restore_that_all_refuse_leaves_it_suspended(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_post(&t, id, "/suspend", NULL), 200);
    for (int i = 0; i < NODES; i++) {
        fake_node_fault(t.node[i], FAKE_RESTORE, FAKE_ERROR);
    }
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 503);
    nodes_state(&t, id, "suspended");
    CHECK_INT(nodes_row(&t, id), 0);
    fake_node_fault(t.node[2], FAKE_RESTORE, FAKE_FINE);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    CHECK_INT(nodes_where(&t, id), 2);
}

/* --- why --- */

static json_t *explain(struct nodes *t, const char *body)
{
    cleanup_answer struct answer a = alice(&t->w, "POST", "/v1/schedule/explain", body);

    CHECK_INT(a.status, 200);
    return json_incref(a.json);
}

/* The reason for a node, by its name. */
static void check_reason(json_t *explained, const char *name, const char *reason)
{
    json_t *nodes = json_object_get(explained, "nodes");

    for (size_t i = 0; i < json_array_size(nodes); i++) {
        json_t *node = json_array_get(nodes, i);

        if (str_eq(json_get_string(node, "node", ""), name)) {
            CHECK_STR(json_get_string(node, "reason", ""), reason);
            CHECK(json_get_bool(node, "fits", false) == str_eq(reason, "fits"));
            return;
        }
    }
    CHECK(!"the node is missing");
}

static void the_choice_is_explained(void)
{
    NODES_WORLD(t);
    cleanup_json json_t *fresh = NULL;
    cleanup_json json_t *large = NULL;
    cleanup_json json_t *again = NULL;
    cleanup_free char *about = NULL;
    char id[ID_SIZE];

    nodes_tell(&t, 1, true, SCHEDULE_CORDONED);
    nodes_tell(&t, 2, /* alive */ false, SCHEDULE_ACTIVE);
    fresh = explain(&t, "{\"template\":\"tiny\"}");
    CHECK_STR(json_get_string(fresh, "chosen", ""), "local");
    check_reason(fresh, "local", "fits");
    check_reason(fresh, "node-b", "not_taking");
    check_reason(fresh, "node-c", "not_alive");
    large = explain(&t, "{\"template\":\"tiny\", \"memory_mib\":8704}");
    check_reason(large, "local", "no_memory");
    CHECK_INT(fake_node_asked(t.node[0], FAKE_CREATE), 0);

    world_make(&t.w, ALICE, id);
    nodes_tell(&t, 1, true, SCHEDULE_ACTIVE);
    about = xasprintf("{\"sandbox\":\"%s\"}", id);
    again = explain(&t, about);
    CHECK_STR(json_get_string(again, "chosen", ""), "local"); /* where it was */
    {
        cleanup_answer struct answer a =
            alice(&t.w, "POST", "/v1/schedule/explain", "{\"sandbox\":\"s0000000000000000009\"}");

        CHECK_INT(a.status, 404);
    }
    CHECK_INT(nodes_where(&t, id), 0);
}

/* --- moving --- */

static void a_running_one_is_moved(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    world_make(&t.w, ALICE, id);
    CHECK_INT(control_move(t.w.control, id, &(struct control_move){.from = "local"}, NULL), 0);
    CHECK_INT(nodes_where(&t, id), 1);
    CHECK_INT(nodes_row(&t, id), 1);
    nodes_state(&t, id, "running");
    CHECK_INT(control_move(t.w.control, id, &(struct control_move){.from = "local"}, NULL), 0);
    CHECK_INT(nodes_where(&t, id), 1); /* it is not there any more */
}

static void one_that_sleeps_is_not_woken(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_post(&t, id, "/pause", NULL), 200);
    CHECK_INT(control_move(t.w.control, id, &(struct control_move){.from = "local"}, NULL), 0);
    nodes_state(&t, id, "suspended");
    CHECK_INT(nodes_row(&t, id), -1);
    nodes_tell(&t, 0, true, SCHEDULE_CORDONED);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    CHECK_INT(nodes_where(&t, id), 1);
}

static void what_a_lost_node_ran_is_restored_once(void)
{
    NODES_WORLD(t);
    const struct control_move lost = {.from = "local", .lost = true};
    char id[ID_SIZE];
    char never[ID_SIZE];
    struct err e = {0};

    world_make(&t.w, ALICE, id);
    world_make(&t.w, ALICE, never);
    CHECK_INT(nodes_post(&t, id, "/suspend", NULL), 200);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    CHECK_INT(nodes_where(&t, id), 0);
    CHECK_INT(control_move(t.w.control, id, &lost, &e), -ESTALE); /* nobody says so */
    CHECK_STR(e.reason, "node_not_lost");
    nodes_state(&t, id, "running");
    nodes_lose(&t, 0);
    fake_node_fault(t.node[1], FAKE_RESTORE, FAKE_LOST); /* and the first attempt is cut */
    fake_node_set(t.node[0], id, "");                    /* it is fenced */
    CHECK(control_move(t.w.control, id, &lost, NULL) < 0);
    CHECK_INT(nodes_row(&t, id), 1);
    fake_node_fault(t.node[1], FAKE_RESTORE, FAKE_FINE);
    CHECK_INT(control_move(t.w.control, id, &lost, NULL), 0); /* it is not there any more */
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    CHECK_INT(nodes_where(&t, id), 1);
    nodes_state(&t, id, "running");

    CHECK_INT(control_move(t.w.control, never, &lost, &e), -ENOENT);
    CHECK_STR(e.reason, "not_stored");
    CHECK_INT(nodes_row(&t, never), 0); /* its disk may come back */
    nodes_tell(&t, 0, /* alive */ true, SCHEDULE_ACTIVE);
    CHECK_INT(control_reconcile(t.w.control, NULL), 0);
    nodes_state(&t, never, "running");
    CHECK(fake_store_has(id));
}

/* --- emptying nodes --- */

static void empty_nodes(struct nodes *t)
{
    ASSERT(control_evacuate(t->w.control, NULL) == 0);
}

static void a_lost_node_is_emptied(void)
{
    NODES_WORLD(t);
    char ran[ID_SIZE];
    char paused[ID_SIZE];
    char sleeps[ID_SIZE];
    char never[ID_SIZE];

    world_make(&t.w, ALICE, ran);
    world_make(&t.w, ALICE, paused);
    world_make(&t.w, ALICE, sleeps);
    world_make(&t.w, ALICE, never);
    CHECK_INT(nodes_post(&t, ran, "/suspend", NULL), 200);
    CHECK_INT(nodes_post(&t, ran, "/resume", NULL), 200);
    CHECK_INT(nodes_post(&t, paused, "/suspend", NULL), 200);
    CHECK_INT(nodes_post(&t, paused, "/resume", NULL), 200);
    CHECK_INT(nodes_post(&t, paused, "/pause", NULL), 200);
    CHECK_INT(nodes_post(&t, sleeps, "/suspend", "{\"wake_on_request\":true}"), 200);
    nodes_lose(&t, 0);
    world_stop_node(&t.w);
    t.node[0] = NULL;
    empty_nodes(&t);
    CHECK_INT(nodes_where(&t, ran), 1);
    nodes_state(&t, ran, "running");
    nodes_state(&t, paused, "suspended");
    nodes_state(&t, sleeps, "suspended");
    nodes_state(&t, never, "failed");
    CHECK_INT(nodes_row(&t, never), 0); /* its disk may come back */
    CHECK_INT(fake_node_asked(t.node[1], FAKE_RESTORE), 1);
    empty_nodes(&t); /* again: nothing is left to do */
    CHECK_INT(fake_node_asked(t.node[1], FAKE_RESTORE), 1);
    CHECK_INT(fake_node_asked(t.node[2], FAKE_RESTORE), 0);
    CHECK_INT(nodes_post(&t, paused, "/resume", NULL), 200);
    CHECK_INT(nodes_where(&t, paused), 1);
    CHECK_INT(nodes_post(&t, sleeps, "/resume", NULL), 200);
    CHECK_INT(nodes_where(&t, sleeps), 1);
}

static void what_is_deleted_on_a_lost_node_is_gone(void)
{
    NODES_WORLD(t);
    cleanup_free char *target = NULL;
    char before[ID_SIZE];
    char after[ID_SIZE];

    world_make(&t.w, ALICE, before);
    world_make(&t.w, ALICE, after);
    CHECK_INT(nodes_post(&t, after, "/suspend", NULL), 200);
    CHECK_INT(nodes_post(&t, after, "/resume", NULL), 200);
    world_stop_node(&t.w);
    t.node[0] = NULL;
    target = xasprintf("/v1/sandboxes/%s", before);
    {
        cleanup_answer struct answer a = alice(&t.w, "DELETE", target, NULL);

        CHECK_INT(a.status, 202); /* accepted: the node cannot be asked */
    }
    empty_nodes(&t);
    CHECK_INT(world_rows(&t.w), 2); /* nor is it lost */
    nodes_lose(&t, 0);
    empty_nodes(&t);
    CHECK_INT(nodes_where(&t, after), 1);
    CHECK_INT(world_rows(&t.w), 1);
    fake_node_fault(t.node[1], FAKE_LIST, FAKE_FINE);
    free(target);
    target = xasprintf("/v1/sandboxes/%s", after);
    {
        cleanup_answer struct answer a = alice(&t.w, "DELETE", target, NULL);

        CHECK_INT(a.status, 204);
    }
    CHECK(!fake_store_has(after));
}

static void a_deletion_does_not_wait_for_a_lost_node(void)
{
    NODES_WORLD(t);
    cleanup_free char *target = NULL;
    char id[ID_SIZE];

    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_post(&t, id, "/suspend", NULL), 200);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    nodes_lose(&t, 0);
    target = xasprintf("/v1/sandboxes/%s", id);
    {
        cleanup_answer struct answer a = alice(&t.w, "DELETE", target, NULL);

        CHECK_INT(a.status, 204);
    }
    CHECK(!fake_store_has(id));
    CHECK_INT(nodes_where(&t, id), 0); /* it stands still there, until the node is back */
    CHECK_INT(fake_node_asked(t.node[0], FAKE_DELETE), 0);
    nodes_tell(&t, 0, /* alive */ true, SCHEDULE_ACTIVE);
    CHECK_INT(control_reconcile(t.w.control, NULL), 0);
    CHECK_INT(nodes_where(&t, id), -1);
}

static void a_restore_from_a_lost_node_waits_for_room(void)
{
    NODES_WORLD(t);
    char id[ID_SIZE];

    world_make(&t.w, ALICE, id);
    CHECK_INT(nodes_post(&t, id, "/suspend", NULL), 200);
    CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
    nodes_lose(&t, 0);
    fake_node_set(t.node[0], id, "");
    nodes_tell(&t, 1, true, SCHEDULE_CORDONED);
    nodes_tell(&t, 2, true, SCHEDULE_CORDONED);
    CHECK_INT(
        control_move(t.w.control, id, &(struct control_move){.from = "local", .lost = true}, NULL),
        -ENOMEM);
    nodes_tell(&t, 2, true, SCHEDULE_ACTIVE);
    empty_nodes(&t);
    CHECK_INT(nodes_where(&t, id), 2);
    nodes_state(&t, id, "running");
}

static void a_drained_node_is_emptied_and_nobody_is_woken(void)
{
    NODES_WORLD(t);
    char ran[ID_SIZE];
    char sleeps[ID_SIZE];
    char stopped[ID_SIZE];
    struct node_row row = {.wanted = NODE_DRAINING, .name = "local", .address = "unix:/nowhere"};

    world_make(&t.w, ALICE, ran);
    world_make(&t.w, ALICE, sleeps);
    world_make(&t.w, ALICE, stopped);
    CHECK_INT(nodes_post(&t, sleeps, "/suspend", "{\"wake_on_request\":true}"), 200);
    CHECK_INT(nodes_post(&t, stopped, "/stop", NULL), 200);
    nodes_tell(&t, 0, true, SCHEDULE_DRAINING);
    ASSERT(db_node_put(t.w.db, &row, NULL) == 0);
    empty_nodes(&t);
    CHECK_INT(nodes_where(&t, ran), 1);
    nodes_state(&t, ran, "running");
    CHECK_INT(nodes_where(&t, sleeps), -1);
    nodes_state(&t, sleeps, "suspended");
    CHECK_INT(nodes_row(&t, sleeps), -1);
    CHECK_INT(nodes_where(&t, stopped), 0);
    CHECK_INT(fake_node_asked(t.node[1], FAKE_RESTORE), 1);
}

/* --- operators --- */

static struct answer operator(struct nodes *t, const char *method, const char *target,
                              const char *body)
{
    return asks(&t->w, OPERATOR, method, target, body);
}

static int want(struct nodes *t, const char *wanted)
{
    cleanup_free char *body = xasprintf("{\"wanted\":\"%s\"}", wanted);
    cleanup_answer struct answer a = operator(t, "PATCH", "/v1/nodes/local", body);

    return a.status;
}

static void operators_add_and_see_nodes(void)
{
    NODES_WORLD(t);
    cleanup_free char *body =
        xasprintf("{\"name\":\"local\",\"address\":\"unix:%s\"}", t.socket[0]);
    cleanup_answer struct answer none = operator(&t, "GET", "/v1/nodes", NULL);
    cleanup_answer struct answer added = operator(&t, "POST", "/v1/nodes", body);
    cleanup_answer struct answer again = operator(&t, "POST", "/v1/nodes", body);
    cleanup_answer struct answer list = operator(&t, "GET", "/v1/nodes", NULL);
    json_t *node = json_array_get(json_object_get(list.json, "nodes"), 0);

    CHECK_INT(json_array_size(json_object_get(none.json, "nodes")), 0);
    CHECK_INT(added.status, 201);
    CHECK_INT(again.status, 201); /* the address may be another one */
    CHECK_INT(json_array_size(json_object_get(list.json, "nodes")), 1);
    CHECK_STR(json_get_string(node, "health", ""), "new");
    CHECK_STR(json_get_string(node, "wanted", ""), "ready");
    CHECK(json_is_null(json_object_get(node, "lease_left_ms")));
}

static void a_node_with_sandboxes_is_not_forgotten(void)
{
    NODES_WORLD(t);
    cleanup_free char *body =
        xasprintf("{\"name\":\"local\",\"address\":\"unix:%s\"}", t.socket[0]);
    cleanup_answer struct answer added = operator(&t, "POST", "/v1/nodes", body);
    cleanup_answer struct answer full = {0};
    cleanup_answer struct answer gone = {0};
    char id[ID_SIZE];

    CHECK_INT(added.status, 201);
    world_make(&t.w, ALICE, id);
    full = operator(&t, "DELETE", "/v1/nodes/local", NULL);
    CHECK_INT(full.status, 409);
    CHECK_STR(answer_code(&full), "node_not_empty");
    CHECK_INT(want(&t, "draining"), 200);
    CHECK_INT(want(&t, "removed"), 400);
    CHECK_INT(want(&t, "whatever"), 400);
    ASSERT(control_read_nodes(t.w.control, NULL) == 0);
    nodes_tell(&t, 1, true, SCHEDULE_ACTIVE); /* it has no row */
    empty_nodes(&t);
    CHECK_INT(nodes_where(&t, id), 1);
    gone = operator(&t, "DELETE", "/v1/nodes/local", NULL);
    CHECK_INT(gone.status, 204);
    CHECK_INT(fake_node_lease_ends(t.node[0]), 1);
    CHECK_INT(want(&t, "ready"), 404);
}

/* It was lost, and is removed before anybody has cleaned it: what it has left must not go on. */
static void a_removed_node_goes_on_without_what_is_elsewhere(void)
{
    for (int fails = 0; fails < 2; fails++) {
        NODES_WORLD(t);
        cleanup_free char *body =
            xasprintf("{\"name\":\"local\",\"address\":\"unix:%s\"}", t.socket[0]);
        cleanup_answer struct answer added = operator(&t, "POST", "/v1/nodes", body);
        cleanup_answer struct answer gone = {0};
        char id[ID_SIZE];

        CHECK_INT(added.status, 201);
        world_make(&t.w, ALICE, id);
        CHECK_INT(nodes_post(&t, id, "/suspend", NULL), 200);
        CHECK_INT(nodes_post(&t, id, "/resume", NULL), 200);
        nodes_lose(&t, 0);
        fake_node_fence(t.node[0]);
        empty_nodes(&t);
        CHECK_INT(nodes_row(&t, id), 1);
        CHECK(fake_node_has(t.node[0], id));
        fake_node_fault(t.node[0], FAKE_DELETE, fails ? FAKE_ERROR : FAKE_FINE);
        gone = operator(&t, "DELETE", "/v1/nodes/local", NULL);
        CHECK_INT(gone.status, 204);
        CHECK_INT(fake_node_has(t.node[0], id), fails);
        CHECK_INT(fake_node_lease_ends(t.node[0]), !fails);
        CHECK(fake_node_has(t.node[1], id) && fake_store_has(id));
        fake_node_fault(t.node[0], FAKE_DELETE, FAKE_FINE);
    }
}

static void wrong_nodes_are_refused(void)
{
    NODES_WORLD(t);
    static const char *const wrong[] = {
        "{}",
        "{\"name\":\"a\"}",
        "{\"name\":\"No Name\",\"address\":\"https://192.0.2.1:7443\"}",
        "{\"name\":\"\",\"address\":\"https://192.0.2.1:7443\"}",
        "{\"name\":\"a\",\"address\":\"http://192.0.2.1:7443\"}",
        "{\"name\":\"a\",\"address\":\"192.0.2.1\"}",
        "{\"name\":\"a\",\"address\":\"https://u@192.0.2.1\"}",
        "{\"name\":\"a\",\"address\":\"https://192.0.2.1:7443\",\"more\":1}",
        /* This gateway has no certificate for other machines. */
        "{\"name\":\"a\",\"address\":\"https://192.0.2.1:7443\"}",
    };
    cleanup_answer struct answer list = {0};

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        cleanup_answer struct answer a = operator(&t, "POST", "/v1/nodes", wrong[i]);

        CHECK_INT(a.status, 400);
    }
    list = operator(&t, "GET", "/v1/nodes", NULL);
    CHECK_INT(json_array_size(json_object_get(list.json, "nodes")), 0);
    {
        cleanup_answer struct answer a = alice(&t.w, "GET", "/v1/nodes", NULL);

        CHECK_INT(a.status, 403);
    }
}

static void templates_of_all_nodes_are_listed(void)
{
    NODES_WORLD(t);
    cleanup_answer struct answer a = {0};

    world_stop_node(&t.w);
    t.node[0] = NULL;
    a = alice(&t.w, "GET", "/v1/templates", NULL);
    CHECK_INT(a.status, 200);
}

TEST_MAIN(T(a_creation_goes_where_room_is), T(a_full_node_passes_a_creation_on),
          T(a_node_that_is_not_there_passes_a_creation_on),
          T(a_lost_answer_is_not_asked_of_another_node), T(requests_go_to_the_row_s_node),
          T(a_node_that_cannot_be_asked_is_not_empty),
          T(what_a_sandbox_left_behind_goes_but_not_what_is_stored),
          T(suspended_here_resumes_there),
          T(memory_that_fits_nowhere_starts_from_the_disk_in_the_end),
          T(who_wants_memory_alone_stays_suspended),
          T(a_restore_whose_answer_is_lost_stays_on_its_node),
          T(a_restore_that_all_refuse_leaves_it_suspended), T(the_choice_is_explained),
          T(a_running_one_is_moved), T(one_that_sleeps_is_not_woken),
          T(what_a_lost_node_ran_is_restored_once), T(a_lost_node_is_emptied),
          T(what_is_deleted_on_a_lost_node_is_gone), T(a_deletion_does_not_wait_for_a_lost_node),
          T(a_restore_from_a_lost_node_waits_for_room),
          T(a_drained_node_is_emptied_and_nobody_is_woken), T(templates_of_all_nodes_are_listed),
          T(operators_add_and_see_nodes), T(a_removed_node_goes_on_without_what_is_elsewhere),
          T(a_node_with_sandboxes_is_not_forgotten), T(wrong_nodes_are_refused))
