/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "model/netpolicy.h"

#include <arpa/inet.h>

#define cleanup_policy CLEANUP(netpolicy_unrefp)

/* NULL: that level has none. */
static const struct netpolicy *make(const char *organisation, const char *project,
                                    const char *sandbox)
{
    const char *const texts[NETPOLICY_LEVEL_COUNT_] = {organisation, project, sandbox};
    cleanup_json json_t *object = netpolicy_stack_json(texts);
    struct netpolicy *policy = NULL;
    struct err e = {0};

    ASSERT(object);
    if (netpolicy_stack_from_json(object, &policy, &e) < 0) {
        TEST_FAIL("%s", e.msg);
        policy = netpolicy_none();
    }
    return policy;
}

static struct netpolicy_query query(const char *name, const char *addr, uint16_t port)
{
    struct netpolicy_query q = {.name = name, .port = port};

    ASSERT(inet_pton(AF_INET, addr, &q.addr) == 1);
    return q;
}

static struct netpolicy_verdict judge(const struct netpolicy *p, const char *name, const char *addr)
{
    const struct netpolicy_query q = query(name, addr, 443);

    return netpolicy_judge(p, &q);
}

static enum netpolicy_action action(const struct netpolicy *p, const char *name)
{
    return judge(p, name, "1.1.1.1").action;
}

static enum netpolicy_action request(const struct netpolicy *p, const char *name,
                                     const char *method, const char *path)
{
    struct netpolicy_query q = query(name, "1.1.1.1", 443);

    q.method = method;
    q.path = path;
    return netpolicy_judge(p, &q).action;
}

#define DENY_BAD "{\"preset\":\"inherit\",\"rules\":[{\"host\":\"*.bad.com\",\"action\":\"deny\"}]}"
#define ALLOW_ALL "{\"preset\":\"internet\"}"

static void what_an_outer_level_denies_stays_denied(void)
{
    cleanup_policy const struct netpolicy *p =
        make(DENY_BAD, NULL,
             "{\"preset\":\"internet\",\"rules\":[{\"host\":\"a.bad.com\",\"action\":\"allow\"}]}");
    cleanup_policy const struct netpolicy *q = make(
        NULL, "{\"preset\":\"custom\",\"rules\":[{\"host\":\"only.com\",\"action\":\"allow\"}]}",
        ALLOW_ALL);
    cleanup_policy const struct netpolicy *none =
        make("{\"preset\":\"none\"}", ALLOW_ALL, ALLOW_ALL);
    struct netpolicy_verdict v = judge(p, "a.bad.com", "1.1.1.1");
    char text[400];

    CHECK(v.action == NETPOLICY_DENY && v.level == NETPOLICY_ORGANISATION && v.rule == 0);
    netpolicy_explain(p, &v, text, sizeof(text));
    CHECK_STR(text, "organisation, rule 0: deny *.bad.com");
    CHECK(!netpolicy_resolves(p, "a.bad.com") && netpolicy_resolves(p, "good.com"));
    CHECK_INT(action(p, "good.com"), NETPOLICY_ALLOW);
    CHECK_INT(action(q, "only.com"), NETPOLICY_ALLOW);
    v = judge(q, "other.com", "1.1.1.1");
    CHECK(v.action == NETPOLICY_DENY && v.level == NETPOLICY_PROJECT);
    netpolicy_explain(q, &v, text, sizeof(text));
    CHECK_STR(text, "project, no rule fits, so it is denied");
    CHECK(netpolicy_is_closed(none) && !netpolicy_is_closed(p) && !netpolicy_is_closed(q));
}

static void an_inner_level_narrows_and_a_silent_one_inherits(void)
{
    cleanup_policy const struct netpolicy *narrow = make(ALLOW_ALL, "{\"preset\":\"registries\"}",
                                                         "{\"rules\":[{\"host\":\"pypi"
                                                         ".org\",\"action\":\"allow\"}]}");
    cleanup_policy const struct netpolicy *unsaid = make(DENY_BAD, ALLOW_ALL, NULL);
    cleanup_policy const struct netpolicy *nobody = make(DENY_BAD, NULL, NULL);
    cleanup_policy const struct netpolicy *alone = make(NULL, NULL, NULL);
    cleanup_policy const struct netpolicy *closed = make(ALLOW_ALL, NULL, "{\"preset\":\"none\"}");
    struct netpolicy_verdict v;
    char text[400];

    CHECK_INT(action(narrow, "pypi"
                             ".org"),
              NETPOLICY_ALLOW);
    CHECK_INT(action(narrow, "rubygems"
                             ".org"),
              NETPOLICY_DENY);
    CHECK_INT(action(narrow, "example.com"), NETPOLICY_DENY);
    CHECK_INT(action(unsaid, "example.com"), NETPOLICY_ALLOW);
    CHECK_INT(action(unsaid, "x.bad.com"), NETPOLICY_DENY);
    v = judge(nobody, "example.com", "1.1.1.1");
    CHECK_INT(v.action, NETPOLICY_DENY);
    netpolicy_explain(nobody, &v, text, sizeof(text));
    CHECK_STR(text, "no rule of any level fits, so it is denied");
    CHECK(netpolicy_is_closed(nobody) && netpolicy_is_closed(alone) && netpolicy_is_closed(closed));
    CHECK_INT(action(closed, "example.com"), NETPOLICY_DENY);
}

static void the_strictest_word_counts(void)
{
    cleanup_policy const struct netpolicy *p =
        make("{\"preset\":\"inherit\",\"rules\":[{\"host\":\"pay.com\",\"action\":\"ask\"}]}", NULL,
             "{\"rules\":[{\"host\":\"pay.com\",\"methods\":[\"DELETE\"],\"action\":\"deny\"},"
             "{\"host\":\"pay.com\",\"action\":\"allow\"}]}");
    cleanup_policy const struct netpolicy *q =
        make("{\"preset\":\"inherit\",\"rules\":[{\"host\":\"pay.com\",\"methods\":[\"POST\"],"
             "\"action\":\"deny\"}]}",
             NULL, ALLOW_ALL);
    cleanup_policy const struct netpolicy *r =
        make("{\"preset\":\"inherit\",\"rules\":[{\"host\":\"pay.com\",\"methods\":[\"POST\"],"
             "\"action\":\"deny\"}]}",
             NULL, NULL);

    /* Looked into, so that the sandbox's own denial is not passed by; then each request is asked about. */
    CHECK_INT(action(p, "pay.com"), NETPOLICY_INSPECT);
    CHECK_INT(request(p, "pay.com", "GET", "/"), NETPOLICY_ASK);
    CHECK_INT(request(p, "pay.com", "DELETE", "/"), NETPOLICY_DENY);
    CHECK_INT(action(q, "pay.com"), NETPOLICY_INSPECT);
    CHECK_INT(request(q, "pay.com", "GET", "/"), NETPOLICY_ALLOW);
    CHECK_INT(request(q, "pay.com", "POST", "/"), NETPOLICY_DENY);
    /* Nobody allows anything: there is nothing to look into. */
    CHECK_INT(action(r, "pay.com"), NETPOLICY_DENY);
    CHECK(netpolicy_is_closed(r));
}

#define TEN "{\"cidr\":\"10.0.0.0/8\",\"action\":\"allow\"}"

static void private_addresses_are_named_by_all_who_decide(void)
{
    cleanup_policy const struct netpolicy *p = make(ALLOW_ALL, NULL, "{\"rules\":[" TEN "]}");
    cleanup_policy const struct netpolicy *q =
        make("{\"preset\":\"internet\",\"rules\":[" TEN "]}", NULL, "{\"rules\":[" TEN "]}");
    cleanup_policy const struct netpolicy *r =
        make("{\"preset\":\"inherit\",\"rules\":[" TEN "]}", NULL,
             "{\"preset\":\"inherit\",\"rules\":[{\"host\":\"db.com\",\"action\":\"allow\"}]}");
    cleanup_policy const struct netpolicy *s =
        make("{\"preset\":\"inherit\",\"rules\":[{\"cidr\":\"1.1.1.0/24\",\"action\":\"deny\"}]}",
             NULL, ALLOW_ALL);
    struct in_addr ten = query(NULL, "10.1.2.3", 443).addr;
    struct in_addr one = query(NULL, "1.1.1.1", 443).addr;

    CHECK_INT(judge(p, NULL, "10.1.2.3").action, NETPOLICY_DENY);
    CHECK(!netpolicy_addr_allowed(p, ten, 443) && !netpolicy_addr_named(p, ten, 443));
    CHECK_INT(judge(q, NULL, "10.1.2.3").action, NETPOLICY_ALLOW);
    CHECK(netpolicy_addr_allowed(q, ten, 443) && netpolicy_addr_named(q, ten, 443));
    CHECK(netpolicy_addr_allowed(r, ten, 443) && netpolicy_addr_named(r, ten, 443));
    CHECK(netpolicy_addr_allowed(r, one, 443) && !netpolicy_addr_named(r, one, 443));
    /* A name that is allowed cannot be pointed at what is denied. */
    CHECK_INT(judge(s, "any.com", "8.8.8.8").action, NETPOLICY_ALLOW);
    CHECK(!netpolicy_addr_allowed(s, one, 443));
}

/* The sandbox may reach one address; the organisation allows names. The guest must not choose both. */
static void a_rule_for_an_address_is_not_widened_by_a_name(void)
{
    cleanup_policy const struct netpolicy *p =
        make(ALLOW_ALL, NULL, "{\"rules\":[{\"cidr\":\"8.8.8.0/24\",\"action\":\"allow\"}]}");
    struct netpolicy_verdict v = judge(p, "other.com", "8.8.8.8");

    CHECK(v.action == NETPOLICY_ALLOW && !v.by_addr && v.pinned);
    v = judge(p, NULL, "8.8.8.8");
    CHECK(v.action == NETPOLICY_ALLOW && v.by_addr && !v.pinned);
    CHECK_INT(judge(p, "other.com", "9.9.9.9").action, NETPOLICY_DENY);
}

static void observing_does_not_pass_by_outer_levels(void)
{
    cleanup_policy const struct netpolicy *p =
        make("{\"preset\":\"internet\",\"rules\":[{\"host\":\"*.bad.com\",\"action\":\"deny\"},"
             "{\"host\":\"pay.com\",\"action\":\"ask\"}]}",
             NULL, "{\"observe\":true}");
    static const struct {
        const char *name;
        bool observed;
        enum netpolicy_action action;
    } cases[] = {{"any.com", true, NETPOLICY_ALLOW},
                 {"a.bad.com", false, NETPOLICY_DENY},
                 {"pay.com", true, NETPOLICY_ASK}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct netpolicy_query q = query(cases[i].name, "1.1.1.1", 443);
        struct netpolicy_verdict v = netpolicy_judge(p, &q);

        if (netpolicy_observed(p, &q, &v) != cases[i].observed || v.action != cases[i].action) {
            TEST_FAIL("'%s' is observed wrongly: %s", cases[i].name,
                      netpolicy_action_name(v.action));
        }
    }
    CHECK(netpolicy_resolves(p, "any.com") && !netpolicy_resolves(p, "a.bad.com"));
}

static void each_level_says_what_it_says(void)
{
    cleanup_policy const struct netpolicy *p = make(DENY_BAD, ALLOW_ALL, NULL);
    cleanup_json json_t *question = json_pack("{s:s, s:i}", "host", "x.bad.com", "port", 443);
    cleanup_json json_t *answer = NULL;
    static const char *const want[][2] = {
        {"organisation", "deny"}, {"project", "allow"}, {"sandbox", NULL}};
    json_t *levels;

    REQUIRE(netpolicy_explain_json(p, question, &answer, NULL) == 0);
    levels = json_object_get(answer, "levels");
    CHECK_STR(json_get_string(answer, "level", ""), "organisation");
    CHECK_INT(json_array_size(levels), 3);
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        const char *got = json_get_string(json_array_get(levels, i), "action", NULL);

        CHECK_STR(json_get_string(json_array_get(levels, i), "level", ""), want[i][0]);
        CHECK(want[i][1] ? got && str_eq(got, want[i][1]) : !got);
    }
}

static void outer_levels_have_less_room_and_say_their_preset(void)
{
    static const char *const bad[] = {
        "{}", "{\"rules\":[]}", "{\"preset\":\"inherit\",\"observe\":true}",
        "{\"preset\":\"inherit\",\"outer\":{}}", "{\"preset\":\"everything\"}"};
    static const char *const no_stacks[] = {
        "{\"outer\":{\"node\":{\"preset\":\"none\"}}}", "{\"outer\":{\"project\":{}}}",
        "{\"outer\":{\"sandbox\":{\"preset\":\"none\"}}}", "{\"outer\":[]}"};
    json_t *rules = json_array();
    cleanup_json json_t *big = json_pack("{s:s, s:o}", "preset", "inherit", "rules", rules);
    struct netpolicy *policy = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_json json_t *object = json_loads(bad[i], 0, NULL);

        if (netpolicy_outer_from_json(object, &policy, NULL) != -EINVAL) {
            TEST_FAIL("an outer level may say %s", bad[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(no_stacks); i++) {
        cleanup_json json_t *object = json_loads(no_stacks[i], 0, NULL);

        if (netpolicy_stack_from_json(object, &policy, NULL) != -EINVAL ||
            netpolicy_from_json(object, &policy, NULL) != -EINVAL) {
            TEST_FAIL("accepted: %s", no_stacks[i]);
        }
    }
    for (int i = 0; i < 500; i++) {
        json_array_append_new(
            rules, json_pack("{s:s, s:s}", "host", "some.example.com", "action", "deny"));
    }
    CHECK_INT(netpolicy_outer_from_json(big, &policy, NULL), -EINVAL);
}

TEST_MAIN(T(what_an_outer_level_denies_stays_denied),
          T(an_inner_level_narrows_and_a_silent_one_inherits), T(the_strictest_word_counts),
          T(private_addresses_are_named_by_all_who_decide),
          T(a_rule_for_an_address_is_not_widened_by_a_name),
          T(observing_does_not_pass_by_outer_levels), T(each_level_says_what_it_says),
          T(outer_levels_have_less_room_and_say_their_preset))
