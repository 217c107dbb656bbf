/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "control/plan.h"

#include <stdio.h>

#define CREATED_MS 1000

static struct plan plan_of(enum sandbox_state desired, enum sandbox_state observed, int node_state)
{
    struct sandbox row = {.desired = desired, .observed = observed, .created_at_ms = CREATED_MS};
    struct node_sandbox node = {.state = (enum sandbox_state)MAX(node_state, 0)};
    struct plan_input in = {
        .row = &row,
        .node = node_state < 0 ? NULL : &node,
        .now_ms = CREATED_MS + PLAN_RETRY_GRACE_MS,
    };
    struct plan plan = plan_sandbox(&in);

    plan.reason = NULL; /* it may point into what ends here */
    return plan;
}

#define ABSENT (-1)

static void every_plan_is_allowed_by_the_table_of_states(void)
{
    for (unsigned desired = 0; desired < SANDBOX_STATE_COUNT_; desired++) {
        for (unsigned observed = 0; observed < SANDBOX_STATE_DELETING; observed++) {
            for (int node = ABSENT; node < SANDBOX_STATE_COUNT_; node++) {
                struct plan p =
                    plan_of((enum sandbox_state)desired, (enum sandbox_state)observed, node);

                if (p.step == PLAN_OBSERVE) {
                    CHECK(sandbox_state_may_move((enum sandbox_state)observed, p.to,
                                                 SANDBOX_BY_NODE));
                    CHECK(desired != SANDBOX_STATE_DELETED);
                }
                CHECK(p.step != PLAN_END_ORPHAN);
                if (desired == SANDBOX_STATE_DELETED) {
                    CHECK_INT(p.step, PLAN_FINISH_DELETE);
                }
            }
        }
    }
}

static void agreement_needs_nothing(void)
{
    CHECK_INT(plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_RUNNING, SANDBOX_STATE_RUNNING).step,
              PLAN_NOTHING);
    CHECK_INT(plan_of(SANDBOX_STATE_STOPPED, SANDBOX_STATE_STOPPED, SANDBOX_STATE_STOPPED).step,
              PLAN_NOTHING);
    CHECK_INT(plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_FAILED, SANDBOX_STATE_FAILED).step,
              PLAN_NOTHING);
    CHECK_INT(plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_FAILED, ABSENT).step, PLAN_NOTHING);
    CHECK_INT(plan_of(SANDBOX_STATE_SUSPENDED, SANDBOX_STATE_SUSPENDED, ABSENT).step, PLAN_NOTHING);
    CHECK_INT(plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_RUNNING, SANDBOX_STATE_CREATING).step,
              PLAN_NOTHING);
}

/* Who learns that it is not failed can suspend it then; from "failed" there is no way to say that it begins. */
static void a_suspend_begins_where_the_row_can_say_so(void)
{
    struct plan p = plan_of(SANDBOX_STATE_SUSPENDED, SANDBOX_STATE_FAILED, SANDBOX_STATE_RUNNING);

    CHECK_INT(p.step, PLAN_OBSERVE);
    CHECK_INT(p.to, SANDBOX_STATE_RUNNING);
    p = plan_of(SANDBOX_STATE_SUSPENDED, SANDBOX_STATE_RUNNING, SANDBOX_STATE_RUNNING);
    CHECK_INT(p.step, PLAN_SUSPEND);
    p = plan_of(SANDBOX_STATE_SUSPENDED, SANDBOX_STATE_SUSPENDING, ABSENT);
    CHECK_INT(p.step, PLAN_SUSPEND);
}

static void what_the_node_says_is_observed(void)
{
    struct plan p = plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_RUNNING, ABSENT);

    CHECK_INT(p.step, PLAN_OBSERVE);
    CHECK_INT(p.to, SANDBOX_STATE_FAILED);
    p = plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_RUNNING, SANDBOX_STATE_STOPPED);
    CHECK_INT(p.to, SANDBOX_STATE_STOPPED);
    p = plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_RUNNING, SANDBOX_STATE_FAILED);
    CHECK_INT(p.to, SANDBOX_STATE_FAILED);
    p = plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_FAILED,
                SANDBOX_STATE_RUNNING); /* found again */
    CHECK_INT(p.step, PLAN_OBSERVE);
    CHECK_INT(p.to, SANDBOX_STATE_RUNNING);
    p = plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_RESUMING, SANDBOX_STATE_RUNNING);
    CHECK_INT(p.to, SANDBOX_STATE_RUNNING);
    p = plan_of(SANDBOX_STATE_STOPPED, SANDBOX_STATE_STOPPING, SANDBOX_STATE_STOPPED);
    CHECK_INT(p.to, SANDBOX_STATE_STOPPED);
}

static void what_should_be_stopped_is_stopped(void)
{
    CHECK_INT(plan_of(SANDBOX_STATE_STOPPED, SANDBOX_STATE_STOPPING, SANDBOX_STATE_RUNNING).step,
              PLAN_STOP);
    CHECK_INT(plan_of(SANDBOX_STATE_STOPPED, SANDBOX_STATE_STOPPED, SANDBOX_STATE_RUNNING).step,
              PLAN_STOP);
    CHECK_INT(plan_of(SANDBOX_STATE_STOPPED, SANDBOX_STATE_STOPPING, SANDBOX_STATE_PAUSED).step,
              PLAN_STOP);
}

static void pauses_are_followed_and_driven(void)
{
    struct plan p = plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_RUNNING, SANDBOX_STATE_PAUSED);

    CHECK_INT(p.step, PLAN_OBSERVE); /* it was idle */
    CHECK_INT(p.to, SANDBOX_STATE_PAUSED);
    p = plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_PAUSED, SANDBOX_STATE_RUNNING);
    CHECK_INT(p.step, PLAN_OBSERVE); /* a request woke it */
    CHECK_INT(p.to, SANDBOX_STATE_RUNNING);
    CHECK_INT(plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_PAUSED, SANDBOX_STATE_PAUSED).step,
              PLAN_NOTHING);
    p = plan_of(SANDBOX_STATE_PAUSED, SANDBOX_STATE_PAUSING, SANDBOX_STATE_PAUSED);
    CHECK_INT(p.step, PLAN_OBSERVE);
    CHECK_INT(plan_of(SANDBOX_STATE_PAUSED, SANDBOX_STATE_PAUSING, SANDBOX_STATE_RUNNING).step,
              PLAN_PAUSE);
    CHECK_INT(plan_of(SANDBOX_STATE_PAUSED, SANDBOX_STATE_PAUSED, SANDBOX_STATE_RUNNING).step,
              PLAN_PAUSE);
    CHECK_INT(plan_of(SANDBOX_STATE_RUNNING, SANDBOX_STATE_RESUMING, SANDBOX_STATE_PAUSED).step,
              PLAN_RESUME);
    p = plan_of(SANDBOX_STATE_PAUSED, SANDBOX_STATE_PAUSED, ABSENT); /* its node has lost it */
    CHECK_INT(p.step, PLAN_OBSERVE);
    CHECK_INT(p.to, SANDBOX_STATE_FAILED);
}

static void another_policy_is_told_last(void)
{
    struct sandbox row = {.desired = SANDBOX_STATE_RUNNING,
                          .observed = SANDBOX_STATE_RUNNING,
                          .policy = policy_default()};
    struct node_sandbox node = {.state = SANDBOX_STATE_RUNNING, .policy = policy_default()};
    struct plan_input in = {.row = &row, .node = &node};

    node.has_policy = true;
    CHECK_INT(plan_sandbox(&in).step, PLAN_NOTHING);
    row.policy.idle_pause_s = 60;
    CHECK_INT(plan_sandbox(&in).step, PLAN_POLICY);
    node.state = SANDBOX_STATE_PAUSED; /* one thing at a time */
    CHECK_INT(plan_sandbox(&in).step, PLAN_OBSERVE);
    node.state = SANDBOX_STATE_RUNNING;
    node.has_policy = false;
    CHECK_INT(plan_sandbox(&in).step, PLAN_NOTHING);
}

static void another_end_is_told(void)
{
    static const struct {
        const char *name;
        int64_t ours;
        int64_t paused;
        int64_t theirs;
        enum plan_step step;
    } cases[] = {
        {"for ever", 0, 0, 0, PLAN_NOTHING},
        {"the same", 90000, 0, 90000, PLAN_NOTHING},
        {"almost the same", 90000, 0, 90000 + PLAN_END_APART_MS, PLAN_NOTHING},
        {"theirs is later", 90000, 0, 90001 + PLAN_END_APART_MS, PLAN_END_TIME},
        {"theirs is sooner", 90000, 0, 89999 - PLAN_END_APART_MS, PLAN_END_TIME},
        {"ours is for ever", 0, 0, 90000, PLAN_END_TIME},
        {"theirs is for ever", 90000, 0, 0, PLAN_END_TIME},
        {"paused, with as much left", 90000, 40000, 100000, PLAN_NOTHING},
        {"paused, with less left", 90000, 40000, 90000, PLAN_END_TIME},
    };

    CHECK_INT(plan_sandbox(&(struct plan_input){
                               .row = &(struct sandbox){.desired = SANDBOX_STATE_RUNNING,
                                                        .observed = SANDBOX_STATE_RUNNING,
                                                        .at_end = SANDBOX_AT_END_PAUSE},
                               .node = &(struct node_sandbox){.state = SANDBOX_STATE_RUNNING,
                                                              .has_end = true}})
                  .step,
              PLAN_END_TIME);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        enum sandbox_state state = cases[i].paused ? SANDBOX_STATE_PAUSED : SANDBOX_STATE_RUNNING;
        struct sandbox row = {.desired = state,
                              .observed = state,
                              .end_at_ms = cases[i].ours,
                              .paused_at_ms = cases[i].paused};
        struct node_sandbox node = {.state = state, .has_end = true, .end_at_ms = cases[i].theirs};

        printf("# %s\n", cases[i].name);
        CHECK_INT(
            plan_sandbox(&(struct plan_input){.row = &row, .node = &node, .now_ms = 50000}).step,
            cases[i].step);
    }
}

static void no_row_is_an_orphan(void)
{
    struct node_sandbox node = {.state = SANDBOX_STATE_RUNNING};

    CHECK_INT(plan_sandbox(&(struct plan_input){.node = &node}).step, PLAN_END_ORPHAN);
}

static void abandoned_creations_wait_for_a_retry_only_with_a_key(void)
{
    struct sandbox row = {.desired = SANDBOX_STATE_RUNNING,
                          .observed = SANDBOX_STATE_CREATING,
                          .created_at_ms = CREATED_MS};
    struct plan_input in = {.row = &row, .now_ms = CREATED_MS + 1};

    CHECK_INT(plan_sandbox(&in).step, PLAN_ABANDON);
    in.has_operation = true;
    CHECK_INT(plan_sandbox(&in).step, PLAN_NOTHING);
    in.now_ms = CREATED_MS + PLAN_RETRY_GRACE_MS;
    CHECK_INT(plan_sandbox(&in).step, PLAN_ABANDON);
}

TEST_MAIN(T(every_plan_is_allowed_by_the_table_of_states), T(agreement_needs_nothing),
          T(a_suspend_begins_where_the_row_can_say_so), T(what_the_node_says_is_observed),
          T(what_should_be_stopped_is_stopped), T(no_row_is_an_orphan),
          T(pauses_are_followed_and_driven), T(another_policy_is_told_last), T(another_end_is_told),
          T(abandoned_creations_wait_for_a_retry_only_with_a_key))
