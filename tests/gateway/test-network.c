/* SPDX-License-Identifier: Apache-2.0 */

/* What organisations and projects let their sandboxes reach: who may say it, and how the node learns of it. */
#include "harness.h"

#define ORGANISATION "/v1/organisation/network"
#define DENY "{\"preset\":\"inherit\",\"rules\":[{\"action\":\"deny\",\"host\":\"bad.com\"}]}"

static void told(struct world *w, const char *id, const char *want)
{
    cleanup_free char *text = fake_node_network(w->node, id);

    CHECK_STR(text, want);
}

static void levels_reach_running_sandboxes_and_new_ones(void)
{
    WORLD(w);
    cleanup_free char *of_project = xasprintf("/v1/projects/%s/network", w.projects[ALICE]);
    char old[ID_SIZE];
    char young[ID_SIZE];
    char bobs[ID_SIZE];

    world_make(&w, ALICE, old);
    world_make(&w, BOB, bobs);
    told(&w, old, "{\"preset\":\"none\"}");
    {
        cleanup_answer struct answer a = alice(&w, "PUT", ORGANISATION, DENY);
        cleanup_answer struct answer b = alice(&w, "GET", ORGANISATION, NULL);

        CHECK_INT(a.status, 200);
        CHECK_INT(json_get_int(a.json, "pending", -1), 0);
        CHECK_STR(json_get_string(b.json, "level", ""), "organisation");
        CHECK(json_equal(json_object_get(a.json, "network"), json_object_get(b.json, "network")));
    }
    told(&w, old, "{\"outer\":{\"organisation\":" DENY "},\"preset\":\"inherit\"}");
    told(&w, bobs, "{\"preset\":\"none\"}");
    {
        cleanup_answer struct answer a = alice(&w, "PUT", of_project, "{\"preset\":\"internet\"}");

        CHECK_INT(a.status, 200);
    }
    world_make(&w, ALICE, young);
    told(&w, old,
         "{\"outer\":{\"organisation\":" DENY ",\"project\":{\"preset\":\"internet\"}},"
         "\"preset\":\"inherit\"}");
    told(&w, young,
         "{\"outer\":{\"organisation\":" DENY ",\"project\":{\"preset\":\"internet\"}},"
         "\"preset\":\"inherit\"}");
    CHECK_INT(control_reconcile(w.control, NULL), 0); /* and they agree: nothing is told again */
    CHECK_INT(fake_node_asked(w.node, FAKE_NETWORK), 2);
}

static void who_could_not_be_told_is_told_later(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    fake_node_fault(w.node, FAKE_NETWORK, FAKE_ERROR);
    {
        cleanup_answer struct answer a = alice(&w, "PUT", ORGANISATION, DENY);

        CHECK_INT(a.status, 200);
        CHECK_INT(json_get_int(a.json, "pending", -1), 1);
    }
    told(&w, id, "{\"preset\":\"none\"}");
    fake_node_fault(w.node, FAKE_NETWORK, FAKE_FINE);
    CHECK_INT(control_reconcile(w.control, NULL), 0);
    told(&w, id, "{\"outer\":{\"organisation\":" DENY "},\"preset\":\"inherit\"}");
}

static void only_who_manages_says_it_and_only_what_is_one(void)
{
    WORLD(w);
    cleanup_free char *of_alice = xasprintf("/v1/projects/%s/network", w.projects[ALICE]);
    static const char *const bad[] = {"{}", "[]", "{\"preset\":\"inherit\",\"observe\":true}",
                                      "{\"preset\":\"inherit\",\"outer\":{}}"};
    cleanup_answer struct answer member = asks(&w, ALICE_MEMBER, "PUT", ORGANISATION, DENY);
    cleanup_answer struct answer member_sees = asks(&w, ALICE_MEMBER, "GET", ORGANISATION, NULL);
    cleanup_answer struct answer bob = asks(&w, BOB, "PUT", of_alice, DENY);
    cleanup_answer struct answer bob_sees = asks(&w, BOB, "GET", of_alice, NULL);
    cleanup_free char *own = NULL;
    char id[ID_SIZE];

    CHECK_INT(member.status, 403);
    CHECK_INT(member_sees.status, 200);
    CHECK_INT(bob.status, 404);
    CHECK_INT(bob_sees.status, 404);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_answer struct answer a = alice(&w, "PUT", ORGANISATION, bad[i]);

        CHECK_INT(a.status, 400);
    }
    world_make(&w, ALICE, id);
    own = xasprintf("/v1/sandboxes/%s/network", id);
    {
        cleanup_answer struct answer a =
            alice(&w, "PATCH", own, "{\"preset\":\"internet\",\"outer\":{}}");

        CHECK_INT(a.status, 400); /* a sandbox does not say what is around it */
    }
}

static void a_token_answers_without_a_key(void)
{
    WORLD(w);
    static const struct {
        const char *after; /* of the sandbox's id */
        int status;
    } cases[] = {
        {".7." FAKE_ASK_TOKEN, 204},
        {".7.0123456789abcdee", 404},
        {".8." FAKE_ASK_TOKEN, 404},
        {".7.", 404},
        {".7", 404},
        {"", 404},
        {".-7." FAKE_ASK_TOKEN, 404},
        {".7/../8." FAKE_ASK_TOKEN, 404},
    };
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *body =
            xasprintf("{\"token\":\"%s%s\",\"allow\":true}", id, cases[i].after);
        cleanup_answer struct answer a = world_ask(
            &w, &(struct ask){.method = "POST", .target = "/v1/network-answers", .body = body});

        if (a.status != cases[i].status) {
            TEST_FAIL("'%s' is answered with %d", cases[i].after, a.status);
        }
        CHECK(a.status == 204 || str_eq(answer_code(&a), "no_such_ask"));
    }
    {
        cleanup_answer struct answer a = world_ask(
            &w, &(struct ask){.method = "POST",
                              .target = "/v1/network-answers",
                              .body = "{\"token\":\"s2222222222222222222.7." FAKE_ASK_TOKEN
                                      "\",\"allow\":true}"});

        CHECK_INT(a.status, 404); /* no such sandbox: the same words */
        CHECK_STR(answer_code(&a), "no_such_ask");
    }
}

TEST_MAIN(T(a_token_answers_without_a_key), T(levels_reach_running_sandboxes_and_new_ones),
          T(who_could_not_be_told_is_told_later), T(only_who_manages_says_it_and_only_what_is_one))
