/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pause, resume, snapshots, rollback, fork and policies over the API, with races at barriers: FIELD notes F10, F11,
 * F13 (for forks), F49, F52, F58.
 */
#include "harness.h"

#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SNAPSHOT "{\"snapshot\":\"" FAKE_SNAPSHOT_ID "\"}"

/* Alice's request about one sandbox. */
static struct answer on(struct world *w, const char *id, const char *method, const char *rest,
                        const char *body)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s%s", id, rest);

    return alice(w, method, target, body);
}

static int status_of(struct world *w, const char *id, const char *rest, const char *body)
{
    cleanup_answer struct answer a = on(w, id, "POST", rest, body);

    return a.status;
}

#define CHECK_STATE(w_, id_, wanted_) \
    do { \
        char state_[24]; \
        world_state(w_, id_, state_); \
        CHECK_STR(state_, wanted_); \
    } while (0)

static int64_t number(struct world *w, const char *id, const char *name)
{
    cleanup_answer struct answer a = on(w, id, "GET", "", NULL);

    return json_get_int(a.json, name, -1);
}

/* --- pause and resume --- */

static void pause_and_resume(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    for (int i = 0; i < 2; i++) { /* twice: pausing what is paused is fine */
        cleanup_answer struct answer a = on(&w, id, "POST", "/pause", NULL);

        CHECK_INT(a.status, 200);
        CHECK_STR(json_get_string(a.json, "state", ""), "paused");
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_PAUSE), 1);
    {
        cleanup_answer struct answer listed = alice(&w, "GET", "/v1/sandboxes?state=paused", NULL);
        cleanup_answer struct answer command = on(&w, id, "POST", "/commands", "{\"shell\":\"x\"}");

        CHECK_INT(json_array_size(json_object_get(listed.json, "sandboxes")), 1);
        CHECK_INT(command.status, 409);
        CHECK_STR(answer_code(&command), "sandbox_not_running");
    }
    CHECK_INT(status_of(&w, id, "/start", NULL), 409); /* that is for what is stopped */
    CHECK_INT(control_reconcile(w.control, NULL), 0);  /* a paused sandbox is not lost */
    CHECK_STATE(&w, id, "paused");
    for (int i = 0; i < 2; i++) {
        cleanup_answer struct answer a = on(&w, id, "POST", "/resume", NULL);

        CHECK_INT(a.status, 200);
        CHECK_STR(json_get_string(a.json, "state", ""), "running");
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_RESUME), 1);
    CHECK_INT(fake_node_asked(w.node, FAKE_GUEST), 0);
}

static void bodies_are_strict(void)
{
    static const struct {
        const char *rest;
        const char *body;
        const char *field;
    } cases[] = {
        {"/pause", "{\"durable\":1}", "durable"},
        {"/pause", "{\"memory\":true}", "memory"},
        {"/snapshots", "{\"kind\":\"half\"}", "kind"},
        {"/snapshots", "{\"name\":\"a\\u0007b\"}", "name"},
        {"/rollback", "{}", "snapshot"},
        {"/rollback", "{\"snapshot\":\"../../x\"}", "snapshot"},
        {"/fork", "{\"count\":0}", "count"},
        {"/fork", "{\"count\":101}", "count"},
        {"/fork", "{\"snapshot\":\"nix\"}", "snapshot"},
        {"/fork", "{\"env\":{\"A\":1}}", "A"},
        {"/fork", "{\"template\":\"debian\"}", "template"},
    };
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_answer struct answer a = on(&w, id, "POST", cases[i].rest, cases[i].body);
        const char *field = json_get_string(json_object_get(a.json, "error"), "field", "");

        CHECK_INT(a.status, 400);
        CHECK(strstr(field, cases[i].field) || str_eq(field, "env"));
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_PAUSE) + fake_node_asked(w.node, FAKE_FORK), 0);
}

/* F10: twenty who want it resumed at once. */
static void resume_of_many(struct world *w, const char *id, enum fake_fault fault, int status)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/resume", id);
    struct ask ask = {.method = "POST", .target = target, .key = w->keys[ALICE]};
    struct running r[20];
    unsigned before = fake_node_asked(w->node, FAKE_RESUME);
    int same = 0;

    fake_node_fault(w->node, FAKE_RESUME, fault);
    fake_node_hold(w->node, FAKE_RESUME);
    for (int i = 0; i < 20; i++) {
        ask_start(&r[i], w, &ask);
    }
    fake_node_await_held(w->node, FAKE_RESUME, 1);
    fake_node_release(w->node, FAKE_RESUME);
    for (int i = 0; i < 20; i++) {
        ask_join(&r[i]);
        same += r[i].answer.status == status;
        answer_done(&r[i].answer);
    }
    CHECK_INT(same, 20);
    /* One attempt for all who were there; who came after a failure made one of their own. */
    if (fault == FAKE_FINE) {
        CHECK_INT(fake_node_asked(w->node, FAKE_RESUME) - before, 1);
    }
    fake_node_fault(w->node, FAKE_RESUME, FAKE_FINE);
}

static void many_resumes_are_one(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    CHECK_INT(status_of(&w, id, "/pause", NULL), 200);
    resume_of_many(&w, id, FAKE_ERROR, 503); /* all get that error ... */
    CHECK_STATE(&w, id, "paused");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_STATE(&w, id, "paused");
    resume_of_many(&w, id, FAKE_FINE, 200); /* ... and a new attempt works */
    CHECK_STATE(&w, id, "running");
    CHECK_INT(fake_node_count(w.node), 1);
}

/* A second gateway on the same database, while the first is in the middle of it. */
static void resume_that_another_gateway_began_is_joined(void)
{
    WORLD(w);
    cleanup_sandbox struct sandbox sb = {0};
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    CHECK_INT(status_of(&w, id, "/pause", NULL), 200);
    REQUIRE(db_sandbox_get(w.db, id, NULL, &sb, NULL) == 0);
    sb.desired = SANDBOX_STATE_RUNNING;
    sandbox_move(&sb, (struct sandbox_move){SANDBOX_STATE_RESUMING, SANDBOX_BY_CLIENT, w.now_ms},
                 NULL);
    REQUIRE(db_sandbox_update(w.db, &sb, NULL, NULL) == 0);
    CHECK_INT(status_of(&w, id, "/resume", NULL), 200);
    CHECK_STATE(&w, id, "running");
}

/* F11: the deletion was accepted while a resume is under way. */
static void delete_during_resume_wins(void)
{
    WORLD(w);
    cleanup_free char *target = NULL;
    struct running resume;
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s/resume", id);
    CHECK_INT(status_of(&w, id, "/pause", NULL), 200);
    fake_node_hold(w.node, FAKE_RESUME);
    ask_start(&resume, &w, &(struct ask){.method = "POST", .target = target, .key = w.keys[ALICE]});
    fake_node_await_held(w.node, FAKE_RESUME, 1);
    {
        cleanup_answer struct answer deleted = on(&w, id, "DELETE", "", NULL);
        cleanup_answer struct answer after = on(&w, id, "GET", "", NULL);

        CHECK_INT(deleted.status, 204);
        CHECK_INT(after.status, 404);
    }
    fake_node_release(w.node, FAKE_RESUME);
    ask_join(&resume);
    CHECK_INT(resume.answer.status, 409);
    CHECK_STR(answer_code(&resume.answer), "sandbox_deleted");
    answer_done(&resume.answer);
    CHECK_INT(world_rows(&w), 0);
    CHECK_INT(fake_node_count(w.node), 0);
}

static void resume_during_delete_starts_nothing(void)
{
    WORLD(w);
    cleanup_free char *target = NULL;
    struct running delete;
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s", id);
    CHECK_INT(status_of(&w, id, "/pause", NULL), 200);
    fake_node_hold(w.node, FAKE_DELETE);
    ask_start(&delete, &w,
              &(struct ask){.method = "DELETE", .target = target, .key = w.keys[ALICE]});
    fake_node_await_held(w.node, FAKE_DELETE, 1);
    {
        cleanup_free char *rest = xasprintf("%s/resume", target);
        struct running resume;

        ask_start(&resume, &w,
                  &(struct ask){.method = "POST", .target = rest, .key = w.keys[ALICE]});
        fake_node_release(w.node, FAKE_DELETE);
        ask_join(&resume);
        CHECK_INT(resume.answer.status, 404);
        answer_done(&resume.answer);
    }
    ask_join(&delete);
    CHECK_INT(delete.answer.status, 204);
    answer_done(&delete.answer);
    CHECK_INT(fake_node_asked(w.node, FAKE_RESUME), 0);
    CHECK_INT(world_rows(&w), 0);
}

static void delete_during_pause_wins(void)
{
    WORLD(w);
    cleanup_free char *target = NULL;
    struct running pausing;
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s/pause", id);
    fake_node_hold(w.node, FAKE_PAUSE);
    ask_start(&pausing, &w,
              &(struct ask){.method = "POST", .target = target, .key = w.keys[ALICE]});
    fake_node_await_held(w.node, FAKE_PAUSE, 1);
    CHECK_STATE(&w, id, "pausing");
    {
        cleanup_answer struct answer deleted = on(&w, id, "DELETE", "", NULL);

        CHECK_INT(deleted.status, 204);
    }
    fake_node_release(w.node, FAKE_PAUSE);
    ask_join(&pausing);
    CHECK_INT(pausing.answer.status, 409);
    answer_done(&pausing.answer);
    CHECK_INT(world_rows(&w), 0);
}

static void pause_and_resume_wait_for_each_other(void)
{
    WORLD(w);
    cleanup_free char *pause_target = NULL;
    cleanup_free char *resume_target = NULL;
    struct running pausing;
    struct running resuming;
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    pause_target = xasprintf("/v1/sandboxes/%s/pause", id);
    resume_target = xasprintf("/v1/sandboxes/%s/resume", id);
    fake_node_hold(w.node, FAKE_PAUSE);
    ask_start(&pausing, &w,
              &(struct ask){.method = "POST", .target = pause_target, .key = w.keys[ALICE]});
    fake_node_await_held(w.node, FAKE_PAUSE, 1);
    ask_start(&resuming, &w,
              &(struct ask){.method = "POST", .target = resume_target, .key = w.keys[ALICE]});
    fake_node_release(w.node, FAKE_PAUSE);
    ask_join(&pausing);
    ask_join(&resuming);
    CHECK_INT(pausing.answer.status, 200);
    CHECK_INT(resuming.answer.status, 200);
    answer_done(&pausing.answer);
    answer_done(&resuming.answer);
    CHECK_STATE(&w, id, "running");
}

static void pause_that_the_node_refuses_leaves_it_running(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    fake_node_fault(w.node, FAKE_PAUSE, FAKE_ERROR);
    CHECK_INT(status_of(&w, id, "/pause", NULL), 503);
    CHECK_STATE(&w, id, "running");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(fake_node_asked(w.node, FAKE_PAUSE), 1); /* it was called off, not put off */
}

/* The node was asked and did not say what came of it: what was asked for is seen through. */
static void pause_without_an_answer_is_finished_by_the_reconciler(void)
{
    static const enum fake_fault faults[] = {FAKE_CUT, FAKE_LOST};

    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        WORLD(w);
        char id[ID_SIZE];

        world_make(&w, ALICE, id);
        fake_node_fault(w.node, FAKE_PAUSE, faults[i]);
        CHECK_INT(status_of(&w, id, "/pause", NULL), 503);
        CHECK_STATE(&w, id, "pausing");
        fake_node_fault(w.node, FAKE_PAUSE, FAKE_FINE);
        CHECK_INT(control_reconcile(w.control, NULL), 0); /* pauses it, if it is not */
        CHECK_INT(control_reconcile(w.control, NULL), 0); /* sees it paused */
        CHECK_STATE(&w, id, "paused");
    }
}

static void resume_without_an_answer_is_finished_by_the_reconciler(void)
{
    static const enum fake_fault faults[] = {FAKE_CUT, FAKE_LOST};

    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        WORLD(w);
        char id[ID_SIZE];

        world_make(&w, ALICE, id);
        CHECK_INT(status_of(&w, id, "/pause", NULL), 200);
        fake_node_fault(w.node, FAKE_RESUME, faults[i]);
        CHECK_INT(status_of(&w, id, "/resume", NULL), 503);
        CHECK_STATE(&w, id, "resuming");
        fake_node_fault(w.node, FAKE_RESUME, FAKE_FINE);
        CHECK_INT(control_reconcile(w.control, NULL), 0);
        CHECK_INT(control_reconcile(w.control, NULL), 0);
        CHECK_STATE(&w, id, "running");
    }
}

/* --- asleep --- */

/* The node paused it for idleness: the next request to its inside wakes it, once. */
static void idle_one_is_woken_by_a_request(void)
{
    WORLD(w);
    cleanup_free char *target = NULL;
    struct running r[8];
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s/files/stat?path=x", id);
    fake_node_set(w.node, id, "paused");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_STATE(&w, id, "paused");
    fake_node_hold(w.node, FAKE_RESUME);
    for (int i = 0; i < 8; i++) {
        ask_start(&r[i], &w,
                  &(struct ask){.method = "GET", .target = target, .key = w.keys[ALICE]});
    }
    fake_node_await_held(w.node, FAKE_RESUME, 1);
    fake_node_release(w.node, FAKE_RESUME);
    for (int i = 0; i < 8; i++) {
        ask_join(&r[i]);
        CHECK_INT(r[i].answer.status, 200);
        answer_done(&r[i].answer);
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_RESUME), 1);
    CHECK_INT(fake_node_asked(w.node, FAKE_GUEST), 8);
    CHECK_STATE(&w, id, "running");
}

static void pause_may_be_asked_for_with_waking(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    CHECK_INT(status_of(&w, id, "/pause", "{\"wake_on_request\":true,\"durable\":false}"), 200);
    CHECK_STATE(&w, id, "paused");
    {
        cleanup_answer struct answer a = on(&w, id, "GET", "/files/stat?path=x", NULL);

        CHECK_INT(a.status, 200);
    }
    CHECK_STATE(&w, id, "running");
}

static void waking_that_fails_is_an_error_not_a_state(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    CHECK_INT(status_of(&w, id, "/pause", "{\"wake_on_request\":true}"), 200);
    fake_node_fault(w.node, FAKE_RESUME, FAKE_ERROR);
    {
        cleanup_answer struct answer a = on(&w, id, "GET", "/files/stat?path=x", NULL);

        CHECK_INT(a.status, 503);
        CHECK_STR(answer_code(&a), "no_capacity");
    }
    CHECK_STATE(&w, id, "paused");
    fake_node_fault(w.node, FAKE_RESUME, FAKE_FINE);
    {
        cleanup_answer struct answer a = on(&w, id, "GET", "/files/stat?path=x", NULL);

        CHECK_INT(a.status, 200);
    }
}

static void woken_behind_our_back_is_seen(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    fake_node_set(w.node, id, "paused");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    fake_node_set(w.node, id, "running");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_STATE(&w, id, "running");
    CHECK_INT(fake_node_asked(w.node, FAKE_PAUSE), 0);
}

static void recovered_ones_are_followed(void)
{
    static const char *const states[] = {"failed",  "running", "paused",
                                         "running", "failed",  "paused"};
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        fake_node_set(w.node, id, states[i]);
        CHECK_INT(control_reconcile(w.control, NULL), 0);
        CHECK_STATE(&w, id, states[i]);
    }
}

/* --- F52, F58: time stands still with it --- */

static void paused_time_does_not_count(void)
{
    WORLD(w);
    cleanup_answer struct answer made = alice(&w, "POST", "/v1/sandboxes", "{\"timeout_s\":60}");
    const char *id = json_get_string(made.json, "id", "");
    int64_t begin_ms = w.now_ms;

    world_advance_ms(&w, 10000);
    CHECK_INT(status_of(&w, id, "/pause", NULL), 200);
    world_advance_ms(&w, 120000);
    CHECK_INT(control_expire(w.control, NULL), 0);
    CHECK_STATE(&w, id, "paused");
    {
        cleanup_answer struct answer a = on(&w, id, "GET", "", NULL);

        CHECK(json_is_null(json_object_get(a.json, "end_at_ms")));
        CHECK_INT(json_get_int(a.json, "paused_at_ms", 0), begin_ms + 10000);
        CHECK_INT(json_get_int(a.json, "remaining_ms", 0), 50000);
    }
    CHECK_INT(status_of(&w, id, "/resume", NULL), 200);
    CHECK_INT(number(&w, id, "end_at_ms"), begin_ms + 180000);
    CHECK_INT(control_expire(w.control, NULL), 0);
    CHECK_STATE(&w, id, "running"); /* not killed at once */
    world_advance_ms(&w, 49999);
    CHECK_INT(control_expire(w.control, NULL), 0);
    CHECK_STATE(&w, id, "running");
    world_advance_ms(&w, 1);
    CHECK_INT(control_expire(w.control, NULL), 0);
    CHECK_INT(world_rows(&w), 0);
}

static void six_pauses_add_up(void)
{
    WORLD(w);
    cleanup_answer struct answer made = alice(&w, "POST", "/v1/sandboxes", "{\"timeout_s\":60}");
    const char *id = json_get_string(made.json, "id", "");
    int64_t begin_ms = w.now_ms;

    for (int i = 1; i <= 6; i++) {
        CHECK_INT(status_of(&w, id, "/pause", NULL), 200);
        world_advance_ms(&w, 1000);
        world_restart_gateway(&w); /* what stands still is in the database */
        world_advance_ms(&w, 1000);
        CHECK_INT(status_of(&w, id, "/resume", NULL), 200);
        CHECK_INT(number(&w, id, "end_at_ms"), begin_ms + 60000 + i * 2000);
    }
}

static void timeout_set_while_paused_counts_from_the_resume(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    CHECK_INT(status_of(&w, id, "/pause", NULL), 200);
    world_advance_ms(&w, 5000);
    {
        cleanup_answer struct answer a = on(&w, id, "PATCH", "", "{\"timeout_s\":30}");

        CHECK_INT(json_get_int(a.json, "remaining_ms", 0), 30000);
    }
    world_advance_ms(&w, 5000);
    CHECK_INT(status_of(&w, id, "/resume", NULL), 200);
    CHECK_INT(number(&w, id, "end_at_ms"), w.now_ms + 30000);
}

static void failed_resume_does_not_move_the_end_twice(void)
{
    WORLD(w);
    cleanup_answer struct answer made = alice(&w, "POST", "/v1/sandboxes", "{\"timeout_s\":60}");
    const char *id = json_get_string(made.json, "id", "");
    int64_t begin_ms = w.now_ms;

    CHECK_INT(status_of(&w, id, "/pause", NULL), 200);
    world_advance_ms(&w, 1000);
    fake_node_fault(w.node, FAKE_RESUME, FAKE_ERROR);
    CHECK_INT(status_of(&w, id, "/resume", NULL), 503);
    world_advance_ms(&w, 1000);
    fake_node_fault(w.node, FAKE_RESUME, FAKE_FINE);
    CHECK_INT(status_of(&w, id, "/resume", NULL), 200);
    CHECK_INT(number(&w, id, "end_at_ms"), begin_ms + 62000);
}

static void idle_pauses_stop_the_clock_too(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id); /* 3600 s by default */
    fake_node_set(w.node, id, "paused");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    world_advance_ms(&w, 10000000);
    CHECK_INT(control_expire(w.control, NULL), 0);
    CHECK_INT(world_rows(&w), 1);
    fake_node_set(w.node, id, "running");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(control_expire(w.control, NULL), 0);
    CHECK_INT(number(&w, id, "end_at_ms"), w.now_ms + 3600000);
}

/* The expiry has chosen it, and then it was paused. */
static void pause_beats_an_expiry_that_was_decided_before(void)
{
    WORLD(w);
    cleanup_sandbox struct sandbox picked = {0};
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    world_advance_ms(&w, 3600000);
    REQUIRE(db_sandbox_get(w.db, id, NULL, &picked, NULL) == 0);
    CHECK_INT(status_of(&w, id, "/pause", NULL), 200);
    CHECK_INT(control_expire_one(w.control, &picked, NULL), -ESTALE);
    CHECK_STATE(&w, id, "paused");
}

/* --- snapshots, rollback --- */

static void snapshots_are_shown_without_what_is_the_nodes(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_answer struct answer made = {0};
    cleanup_answer struct answer listed = {0};
    cleanup_answer struct answer got = {0};
    cleanup_answer struct answer changed = {0};
    cleanup_answer struct answer deleted = {0};
    cleanup_answer struct answer history = {0};
    cleanup_answer struct answer audit = {0};
    cleanup_free char *seen = NULL;

    world_make(&w, ALICE, id);
    made = on(&w, id, "POST", "/snapshots", "{\"kind\":\"full\",\"name\":\"x\",\"keep\":true}");
    seen = fake_node_guest_seen(w.node);
    listed = on(&w, id, "GET", "/snapshots", NULL);
    got = on(&w, id, "GET", "/snapshots/" FAKE_SNAPSHOT_ID, NULL);
    changed = on(&w, id, "PATCH", "/snapshots/" FAKE_SNAPSHOT_ID, "{\"keep\":false}");
    deleted = on(&w, id, "DELETE", "/snapshots/" FAKE_SNAPSHOT_ID, NULL);
    history = on(&w, id, "GET", "/history", NULL);
    audit = alice(&w, "GET", "/v1/audit", NULL);
    CHECK_INT(made.status, 201);
    CHECK(strstr(seen, "\"kind\":\"full\"") && strstr(seen, "\"name\":\"x\"") &&
          strstr(seen, "\"keep\":true"));
    CHECK_STR(json_get_string(made.json, "id", ""), FAKE_SNAPSHOT_ID);
    CHECK_STR(json_get_string(made.json, "parent", ""), "n0000000000000000000");
    CHECK_INT(listed.status, 200);
    CHECK_INT(json_array_size(json_object_get(listed.json, "snapshots")), 1);
    CHECK(json_is_null(json_object_get(listed.json, "origin")));
    CHECK(json_get_bool(made.json, "past", false));
    CHECK_STR(got.text, made.text);
    CHECK(strstr(listed.text, "secret") == NULL);
    CHECK_INT(changed.status, 200);
    CHECK_INT(deleted.status, 204);
    CHECK_INT(history.status, 200);
    CHECK_STR(
        json_get_string(json_array_get(json_object_get(history.json, "history"), 0), "event", ""),
        "created");
    CHECK(strstr(audit.text, "snapshot.create") && strstr(audit.text, "snapshot.delete"));
}

static void unknown_snapshots_are_404(void)
{
    static const char *const ids[] = {"n0000000000000000009", "x", "n", "..", "%2e%2e%2fx"};
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        cleanup_free char *rest = xasprintf("/snapshots/%s", ids[i]);
        cleanup_answer struct answer a = on(&w, id, "GET", rest, NULL);

        CHECK(a.status == 404 || a.status == 400);
    }
    CHECK_INT(status_of(&w, id, "/rollback", "{\"snapshot\":\"n0000000000000000009\"}"), 404);
    CHECK_INT(status_of(&w, id, "/fork", "{\"snapshot\":\"n0000000000000000009\"}"), 404);
    CHECK_STATE(&w, id, "running");
    CHECK_INT(world_rows(&w), 1);
}

static void unreadable_snapshots_are_an_error(void)
{
    static const enum fake_fault faults[] = {FAKE_NONSENSE, FAKE_NOT_JSON, FAKE_HALF, FAKE_CUT};
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        cleanup_answer struct answer a = {0};

        fake_node_fault(w.node, FAKE_SNAPSHOT, faults[i]);
        a = on(&w, id, "GET", "/snapshots", NULL);
        CHECK(a.status == 502 || a.status == 503);
    }
}

static void rollback_from_any_state(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    {
        cleanup_answer struct answer a = on(&w, id, "POST", "/rollback", SNAPSHOT);

        CHECK_INT(a.status, 200);
        CHECK_STR(json_get_string(a.json, "id", ""), id);
        CHECK_STR(json_get_string(a.json, "state", ""), "running");
        CHECK_STR(json_get_string(a.json, "before", ""), "n0000000000000000002");
        CHECK(json_is_true(json_object_get(a.json, "cold")));
    }
    CHECK_INT(status_of(&w, id, "/pause", NULL), 200);
    CHECK_INT(status_of(&w, id, "/rollback", SNAPSHOT), 200);
    CHECK_STATE(&w, id, "running");
    CHECK_INT(status_of(&w, id, "/stop", NULL), 200);
    CHECK_INT(status_of(&w, id, "/rollback", SNAPSHOT), 200);
    CHECK_STATE(&w, id, "running");
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_STATE(&w, id, "running");
}

/* F49 as far as it is ours: an error leaves the state from before, and timeout and policy are the current ones. */
static void rollback_that_fails_leaves_it_as_it_was(void)
{
    static const char *const moves[] = {NULL, "/pause", "/stop"};
    static const char *const states[] = {"running", "paused", "stopped"};

    for (size_t i = 0; i < ARRAY_SIZE(moves); i++) {
        WORLD(w);
        char id[ID_SIZE];

        world_make(&w, ALICE, id);
        if (moves[i]) {
            CHECK_INT(status_of(&w, id, moves[i], NULL), 200);
        }
        fake_node_fault(w.node, FAKE_ROLLBACK, FAKE_ERROR);
        CHECK_INT(status_of(&w, id, "/rollback", SNAPSHOT), 503);
        CHECK_STATE(&w, id, states[i]);
        CHECK_INT(control_reconcile(w.control, NULL), 0);
        CHECK_STATE(&w, id, states[i]);
    }
}

/* --- fork --- */

static size_t children_of(const struct answer *a)
{
    return json_array_size(json_object_get(a->json, "sandboxes"));
}

static const char *child(const struct answer *a, size_t i, const char *field)
{
    return json_get_string(json_array_get(json_object_get(a->json, "sandboxes"), i), field, "");
}

static struct ask fork_of(struct world *w, const char *target, const char *body, const char *key)
{
    return (struct ask){.method = "POST",
                        .target = target,
                        .body = body,
                        .key = w->keys[ALICE],
                        .idempotency_key = key};
}

static void fork_makes_children(void)
{
    WORLD(w);
    cleanup_answer struct answer made =
        alice(&w, "POST", "/v1/sandboxes",
              "{\"metadata\":{\"app\":\"x\"},\"timeout_s\":60,\"policy\":{\"idle_pause_s\":30}}");
    const char *id = json_get_string(made.json, "id", "");
    cleanup_answer struct answer forked = {0};
    cleanup_answer struct answer other = {0};
    cleanup_answer struct answer one = {0};

    world_advance_ms(&w, 1000);
    forked = on(&w, id, "POST", "/fork", "{\"count\":3}");
    other =
        on(&w, id, "POST", "/fork",
           "{\"metadata\":{\"app\":\"y\"},\"timeout_s\":0,\"snapshot\":\"" FAKE_SNAPSHOT_ID "\"}");
    CHECK_INT(forked.status, 201);
    CHECK_INT(children_of(&forked), 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *c = json_array_get(json_object_get(forked.json, "sandboxes"), i);

        CHECK_STR(child(&forked, i, "state"), "running");
        CHECK_STR(child(&forked, i, "parent"), id);
        CHECK_STR(json_get_string(json_object_get(c, "metadata"), "app", ""), "x");
        CHECK_INT(json_get_int(c, "end_at_ms", 0), w.now_ms + 60000);
        CHECK_INT(json_get_int(json_object_get(c, "policy"), "idle_pause_s", 0), 30);
        CHECK(strcmp(child(&forked, i, "id"), id) != 0);
        CHECK(i == 0 || strcmp(child(&forked, i, "id"), child(&forked, i - 1, "id")) > 0);
    }
    CHECK_INT(other.status, 201);
    CHECK_INT(children_of(&other), 1); /* one by default */
    one = on(&w, child(&other, 0, "id"), "GET", "", NULL);
    CHECK_STR(json_get_string(json_object_get(one.json, "metadata"), "app", ""), "y");
    CHECK(json_is_null(json_object_get(one.json, "end_at_ms")));
    CHECK_INT(world_rows(&w), 5);
    CHECK_INT(fake_node_count(w.node), 5);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(world_rows(&w), 5);
}

static void fork_counts_against_the_quota_as_a_whole(void)
{
    WORLD(w);
    cleanup_free char *project = xasprintf("/v1/projects/%s", w.projects[ALICE]);
    cleanup_answer struct answer set =
        asks(&w, OPERATOR, "PATCH", project, "{\"max_sandboxes\":4}");
    char id[ID_SIZE];

    CHECK_INT(set.status, 200);
    world_make(&w, ALICE, id);
    {
        cleanup_answer struct answer a = on(&w, id, "POST", "/fork", "{\"count\":4}");

        CHECK_INT(a.status, 429);
        CHECK_STR(answer_code(&a), "sandbox_quota_exceeded");
    }
    CHECK_INT(world_rows(&w), 1);
    CHECK_INT(fake_node_asked(w.node, FAKE_FORK), 0);
    CHECK_INT(status_of(&w, id, "/fork", "{\"count\":3}"), 201);
    CHECK_INT(world_rows(&w), 4);
}

static void fork_that_fails_leaves_nothing(void)
{
    static const enum fake_fault faults[] = {FAKE_ERROR, FAKE_CUT, FAKE_HALF, FAKE_NONSENSE,
                                             FAKE_LOST};

    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        WORLD(w);
        char id[ID_SIZE];

        world_make(&w, ALICE, id);
        fake_node_fault(w.node, FAKE_FORK, faults[i]);
        CHECK(status_of(&w, id, "/fork", "{\"count\":5}") >= 500);
        CHECK_INT(world_rows(&w), 1);
        CHECK_INT(fake_node_count(w.node), 1);
        CHECK_STATE(&w, id, "running");
    }
}

static void fork_that_cannot_be_published_leaves_nothing(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    world_fail_sql("UPDATE sandboxes SET desired", 3); /* of the third child: all or none */
    CHECK(status_of(&w, id, "/fork", "{\"count\":5}") >= 500);
    CHECK_INT(world_rows(&w), 1);
    CHECK_INT(fake_node_count(w.node), 1);
}

static void fork_with_a_key_is_made_once(void)
{
    WORLD(w);
    cleanup_free char *target = NULL;
    struct running r[10];
    struct ask ask;
    char first[ID_SIZE] = "";
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s/fork", id);
    ask = fork_of(&w, target, "{\"count\":3}", "k1");
    fake_node_hold(w.node, FAKE_FORK);
    for (int i = 0; i < 10; i++) {
        ask_start(&r[i], &w, &ask);
    }
    fake_node_await_held(w.node, FAKE_FORK, 1);
    fake_node_release(w.node, FAKE_FORK);
    for (int i = 0; i < 10; i++) {
        ask_join(&r[i]);
        CHECK_INT(r[i].answer.status, 201);
        if (!first[0]) {
            snprintf(first, sizeof(first), "%s", child(&r[i].answer, 0, "id"));
        }
        CHECK_STR(child(&r[i].answer, 0, "id"), first);
        answer_done(&r[i].answer);
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_FORK), 1);
    CHECK_INT(world_rows(&w), 4);
    ask.body = "{\"count\":4}";
    {
        cleanup_answer struct answer a = world_ask(&w, &ask);

        CHECK_INT(a.status, 409);
        CHECK_STR(answer_code(&a), "idempotency_key_reused");
    }
}

static void fork_key_is_spent_when_the_last_child_is_gone(void)
{
    WORLD(w);
    cleanup_free char *target = NULL;
    cleanup_answer struct answer made = {0};
    struct ask ask;
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s/fork", id);
    ask = fork_of(&w, target, "{\"count\":2}", "k1");
    made = world_ask(&w, &ask);
    for (size_t i = 0; i < 2; i++) {
        cleanup_answer struct answer again = world_ask(&w, &ask);
        cleanup_answer struct answer gone = on(&w, child(&made, i, "id"), "DELETE", "", NULL);

        CHECK_INT(again.status, 201);
        CHECK(again.replayed);
        CHECK_STR(again.text, made.text);
        CHECK_INT(gone.status, 204);
    }
    {
        cleanup_answer struct answer a = world_ask(&w, &ask);

        CHECK_INT(a.status, 409);
        CHECK_STR(answer_code(&a), "idempotency_key_spent");
    }
}

/* What a gateway that died in the middle of a fork leaves: rows in creating, the operation running. */
static void leave_half_a_fork(struct world *w, const struct ask *ask, struct sandbox sbs[2])
{
    cleanup_answer struct answer listed = {0};
    struct operation op = {0};
    struct running r;
    size_t n = 0;

    fake_node_hold(w->node, FAKE_FORK);
    ask_start(&r, w, ask);
    fake_node_await_held(w->node, FAKE_FORK, 1);
    listed = alice(w, "GET", "/v1/sandboxes?state=creating", NULL);
    REQUIRE(children_of(&listed) == 2);
    for (size_t i = 2; i > 0; i--) {
        REQUIRE(db_sandbox_get(w->db, child(&listed, i - 1, "id"), NULL, &sbs[n++], NULL) == 0);
    }
    REQUIRE(db_operation_get(w->db, w->projects[ALICE], ask->idempotency_key, &op, NULL) == 0);
    fake_node_fault(w->node, FAKE_FORK, FAKE_ERROR);
    fake_node_release(w->node, FAKE_FORK);
    ask_join(&r);
    answer_done(&r.answer);
    fake_node_fault(w->node, FAKE_FORK, FAKE_FINE);
    for (size_t i = 0; i < 2; i++) {
        snprintf(sbs[i].owner, sizeof(sbs[i].owner), "rdead");
    }
    snprintf(op.owner, sizeof(op.owner), "rdead");
    REQUIRE(db_sandbox_insert_all(w->db, sbs, 2, &(struct db_beside){.operation = &op}, 10, NULL) ==
            0);
    operation_done(&op);
    fake_node_set(w->node, sbs[1].id, "running"); /* the node had begun */
    world_restart_gateway(w);
}

static void fork_of_a_dead_gateway_is_taken_over(void)
{
    WORLD(w);
    struct sandbox sbs[2] = {0};
    cleanup_free char *target = NULL;
    cleanup_answer struct answer a = {0};
    struct ask ask;
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s/fork", id);
    ask = fork_of(&w, target, "{\"count\":2}", "k1");
    leave_half_a_fork(&w, &ask, sbs);
    CHECK_INT(control_reconcile(w.control, NULL), 0); /* it waits for the retry */
    CHECK_INT(world_rows(&w), 3);
    a = world_ask(&w, &ask);
    CHECK_INT(a.status, 201);
    CHECK_STR(child(&a, 0, "id"), sbs[0].id);
    CHECK_STR(child(&a, 1, "id"), sbs[1].id);
    CHECK_INT(world_rows(&w), 3);
    CHECK_INT(fake_node_count(w.node), 3);
    sandbox_done(&sbs[0]);
    sandbox_done(&sbs[1]);
}

static void fork_of_a_dead_gateway_is_removed_when_no_retry_comes(void)
{
    WORLD(w);
    struct sandbox sbs[2] = {0};
    cleanup_free char *target = NULL;
    struct ask ask;
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s/fork", id);
    ask = fork_of(&w, target, "{\"count\":2}", "k1");
    leave_half_a_fork(&w, &ask, sbs);
    world_advance_ms(&w, 200000);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(world_rows(&w), 1);
    CHECK_INT(fake_node_count(w.node), 1);
    sandbox_done(&sbs[0]);
    sandbox_done(&sbs[1]);
}

static void client_that_leaves_a_fork_leaves_nothing(void)
{
    WORLD(w);
    cleanup_close int gone_fd = eventfd(0, EFD_CLOEXEC);
    struct pollfd gone = {.fd = gone_fd, .events = POLLIN};
    cleanup_free char *target = NULL;
    struct running r;
    struct ask ask;
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s/fork", id);
    ask = fork_of(&w, target, "{\"count\":2}", NULL);
    ask.watch = &gone;
    fake_node_hold(w.node, FAKE_FORK);
    ask_start(&r, &w, &ask);
    fake_node_await_held(w.node, FAKE_FORK, 1);
    CHECK_INT(eventfd_write(gone_fd, 1), 0);
    ask_join(&r);
    answer_done(&r.answer);
    fake_node_release(w.node, FAKE_FORK);
    fake_node_await_asked(w.node, FAKE_DELETE, 2); /* each is ended ... */
    world_restart_gateway(&w);                     /* (which waits for the handler) */
    CHECK_INT(world_rows(&w), 1);
    CHECK_INT(fake_node_count(w.node), 1);
}

/* --- policies --- */

static void policy_goes_to_the_node(void)
{
    WORLD(w);
    cleanup_answer struct answer made =
        alice(&w, "POST", "/v1/sandboxes", "{\"policy\":{\"disk_every_s\":60}}");
    cleanup_answer struct answer bad =
        alice(&w, "POST", "/v1/sandboxes", "{\"policy\":{\"disk_every\":60}}");
    const char *id = json_get_string(made.json, "id", "");

    CHECK_INT(made.status, 201);
    CHECK_INT(bad.status, 400);
    CHECK_STR(json_get_string(json_object_get(bad.json, "error"), "field", ""), "disk_every");
    {
        cleanup_free char *kept = fake_node_policy(w.node, id);

        CHECK(strstr(kept, "\"disk_every_s\": 60") != NULL);
    }
    {
        cleanup_answer struct answer a =
            on(&w, id, "PATCH", "", "{\"policy\":{\"idle_pause_s\":30,\"recover\":\"disk\"}}");
        cleanup_free char *kept = fake_node_policy(w.node, id);
        json_t *policy = json_object_get(a.json, "policy");

        CHECK_INT(a.status, 200);
        CHECK_INT(json_get_int(policy, "idle_pause_s", 0), 30);
        CHECK_INT(json_get_int(policy, "disk_every_s", -1), 0); /* all of it anew */
        CHECK(strstr(kept, "\"idle_pause_s\": 30") != NULL);
    }
    {
        cleanup_answer struct answer a = on(&w, id, "PATCH", "", "{\"policy\":{\"recover\":7}}");

        CHECK_INT(a.status, 400);
    }
}

static void policy_that_did_not_arrive_is_told_later(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    fake_node_fault(w.node, FAKE_POLICY, FAKE_CUT);
    {
        cleanup_answer struct answer a =
            on(&w, id, "PATCH", "", "{\"policy\":{\"idle_pause_s\":30}}");

        CHECK_INT(a.status, 200); /* it is written: it will hold */
    }
    fake_node_fault(w.node, FAKE_POLICY, FAKE_FINE);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    {
        cleanup_free char *kept = fake_node_policy(w.node, id);

        CHECK(strstr(kept, "\"idle_pause_s\": 30") != NULL);
    }
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(fake_node_asked(w.node, FAKE_POLICY), 2); /* once is enough */
}

static void the_end_goes_to_the_node(void)
{
    WORLD(w);
    cleanup_answer struct answer made = alice(&w, "POST", "/v1/sandboxes", "{\"timeout_s\":60}");
    const char *id = json_get_string(made.json, "id", "");

    CHECK_INT(made.status, 201);
    CHECK_INT(fake_node_end_at_ms(w.node, id), w.now_ms + 60000);
    {
        cleanup_answer struct answer a = on(&w, id, "PATCH", "", "{\"timeout_s\":600}");

        CHECK_INT(a.status, 200);
        CHECK_INT(fake_node_end_at_ms(w.node, id), w.now_ms + 600000);
    }
    fake_node_fault(w.node, FAKE_END, FAKE_CUT);
    {
        cleanup_answer struct answer a = on(&w, id, "PATCH", "", "{\"timeout_s\":0}");

        CHECK_INT(a.status, 200); /* it is written: it will hold */
        CHECK_INT(fake_node_end_at_ms(w.node, id), w.now_ms + 600000);
    }
    fake_node_fault(w.node, FAKE_END, FAKE_FINE);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(fake_node_end_at_ms(w.node, id), 0);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    CHECK_INT(fake_node_asked(w.node, FAKE_END), 3); /* once is enough */
}

TEST_MAIN(T(pause_and_resume), T(the_end_goes_to_the_node), T(bodies_are_strict),
          T(many_resumes_are_one), T(resume_that_another_gateway_began_is_joined),
          T(delete_during_resume_wins), T(resume_during_delete_starts_nothing),
          T(delete_during_pause_wins), T(pause_and_resume_wait_for_each_other),
          T(pause_that_the_node_refuses_leaves_it_running),
          T(pause_without_an_answer_is_finished_by_the_reconciler),
          T(resume_without_an_answer_is_finished_by_the_reconciler),
          T(idle_one_is_woken_by_a_request), T(pause_may_be_asked_for_with_waking),
          T(waking_that_fails_is_an_error_not_a_state), T(woken_behind_our_back_is_seen),
          T(recovered_ones_are_followed), T(paused_time_does_not_count), T(six_pauses_add_up),
          T(timeout_set_while_paused_counts_from_the_resume),
          T(failed_resume_does_not_move_the_end_twice), T(idle_pauses_stop_the_clock_too),
          T(pause_beats_an_expiry_that_was_decided_before),
          T(snapshots_are_shown_without_what_is_the_nodes), T(unknown_snapshots_are_404),
          T(unreadable_snapshots_are_an_error), T(rollback_from_any_state),
          T(rollback_that_fails_leaves_it_as_it_was), T(fork_makes_children),
          T(fork_counts_against_the_quota_as_a_whole), T(fork_that_fails_leaves_nothing),
          T(fork_that_cannot_be_published_leaves_nothing), T(fork_with_a_key_is_made_once),
          T(fork_key_is_spent_when_the_last_child_is_gone), T(fork_of_a_dead_gateway_is_taken_over),
          T(fork_of_a_dead_gateway_is_removed_when_no_retry_comes),
          T(client_that_leaves_a_fork_leaves_nothing), T(policy_goes_to_the_node),
          T(policy_that_did_not_arrive_is_told_later))
