/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/test.h"
#include "model/netpolicy-private.h"

#include <arpa/inet.h>

#define cleanup_policy CLEANUP(netpolicy_unrefp)

static const struct netpolicy *make(const char *text)
{
    cleanup_json json_t *object = json_loads(text, 0, NULL);
    struct netpolicy *policy = NULL;
    struct err e = {0};

    ASSERT(object);
    if (netpolicy_from_json(object, &policy, &e) < 0) {
        TEST_FAIL("%s: %s", text, e.msg);
        policy = netpolicy_none();
    }
    return policy;
}

static struct in_addr addr_of(const char *text)
{
    struct in_addr addr;

    ASSERT(inet_pton(AF_INET, text, &addr) == 1);
    return addr;
}

static struct netpolicy_verdict judge(const struct netpolicy *p, const char *name, const char *addr,
                                      uint16_t port)
{
    const struct netpolicy_query q = {.name = name, .addr = addr_of(addr), .port = port};

    return netpolicy_judge(p, &q);
}

static enum netpolicy_action action(const struct netpolicy *p, const char *name, const char *addr,
                                    uint16_t port)
{
    return judge(p, name, addr, port).action;
}

static void names_are_compared_as_hosts_are(void)
{
    cleanup_policy const struct netpolicy *p =
        make("{\"rules\":[{\"host\":\"*.Example.com\",\"action\":\"allow\"}]}");
    static const struct {
        const char *text;
        size_t len; /* 0: all of it */
        bool fits;
    } cases[] = {
        {"a.example.com", 0, true},
        {"a.b.example.com", 0, true},
        {"A.EXAMPLE.COM", 0, true},
        {"a.example.com.", 0, true},
        {"example.com", 0, false},
        {"xexample.com", 0, false},
        {"example.com.evil.test", 0, false},
        {"a.example.comx", 0, false},
        {"a.example.com\0.evil.test", 24, false},
        {"a.ex\xc3\xa4mple.com", 0, false},
        {"", 0, false},
        {".", 0, false},
        {"a..example.com", 0, false},
        {".example.com", 0, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        size_t len = cases[i].len ? cases[i].len : strlen(cases[i].text);
        char name[NETPOLICY_NAME_MAX + 1];
        bool fits = netpolicy_name(cases[i].text, len, name) == 0 &&
                    action(p, name, "1.1.1.1", 443) == NETPOLICY_ALLOW &&
                    netpolicy_resolves(p, name);

        if (fits != cases[i].fits) {
            TEST_FAIL("'%s' is judged wrongly", cases[i].text);
        }
    }
}

static void what_is_no_policy_is_refused(void)
{
    static const char *const bad[] = {
        "{\"rules\":[{\"host\":\"*\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"*.\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"*x.com\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"a.*.com\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"**.com\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"a b.com\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"http://a.com/x\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"0x7f.1\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"2130706433\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"10.0.0.1\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"a.com\",\"ports\":\"0\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"a.com\",\"ports\":\"65536\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"a.com\",\"ports\":\"90-80\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"a.com\",\"ports\":\"80,81\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"a.com\",\"ports\":80,\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"a.com\",\"action\":\"permit\"}]}",
        "{\"rules\":[{\"host\":\"a.com\"}]}",
        "{\"rules\":[{\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"a.com\",\"cidr\":\"1.0.0.0/8\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"cidr\":\"::ffff:10.0.0.1\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"cidr\":\"[fe80::1%eth0]\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"cidr\":\"10.0.0.1/8\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"cidr\":\"10.0.0.0/33\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"cidr\":\"10.0.0\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"cidr\":\"010.0.0.0/8\",\"action\":\"allow\"}]}",
        "{\"rules\":[{\"host\":\"a.com\",\"path\":\"x\",\"action\":\"inspect\"}]}",
        "{\"rules\":[{\"host\":\"a.com\",\"path\":\"/../x\",\"action\":\"inspect\"}]}",
        "{\"rules\":[{\"host\":\"a.com\",\"methods\":[],\"action\":\"inspect\"}]}",
        "{\"rules\":[{\"host\":\"a.com\",\"methods\":[\"get\"],\"action\":\"inspect\"}]}",
        "{\"rules\":[\"a.com\"]}",
        "{\"rules\":{}}",
        "{\"preset\":\"everything\"}",
        "{\"allow\":[]}",
    };
    char name[NETPOLICY_NAME_MAX + 1];
    char label[64 * 4 + 1];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_json json_t *object = json_loads(bad[i], 0, NULL);
        struct netpolicy *policy = NULL;
        struct err e = {0};

        ASSERT(object);
        if (netpolicy_from_json(object, &policy, &e) != -EINVAL || !e.field[0]) {
            TEST_FAIL("accepted, or without a field: %s", bad[i]);
        }
    }
    memset(label, 'a', sizeof(label));
    CHECK_INT(netpolicy_name(label, 64, name), -EINVAL);
    for (size_t i = 63; i < sizeof(label); i += 64) {
        label[i] = '.';
    }
    CHECK_INT(netpolicy_name(label, 253, name), 0);
    CHECK_INT(netpolicy_name(label, 254, name), -EINVAL);
}

static void the_first_rule_that_fits_decides(void)
{
    cleanup_policy const struct netpolicy *p =
        make("{\"rules\":[{\"host\":\"bad.a.com\",\"action\":\"deny\"},"
             "{\"host\":\"*.a.com\",\"ports\":\"443\",\"action\":\"allow\"},"
             "{\"host\":\"late.a.com\",\"action\":\"deny\"},"
             "{\"cidr\":\"10.1.0.0/16\",\"ports\":\"5432-5440\",\"action\":\"allow\"},"
             "{\"host\":\"db.a.com\",\"action\":\"ask\"}]}");
    struct netpolicy_verdict v;
    char text[400];

    CHECK_INT(action(p, "bad.a.com", "1.1.1.1", 443), NETPOLICY_DENY);
    CHECK_INT(action(p, "good.a.com", "1.1.1.1", 443), NETPOLICY_ALLOW);
    CHECK_INT(action(p, "good.a.com", "1.1.1.1", 80), NETPOLICY_DENY);
    CHECK_INT(action(p, "late.a.com", "1.1.1.1", 443), NETPOLICY_ALLOW);
    CHECK_INT(action(p, "late.a.com", "1.1.1.1", 80), NETPOLICY_DENY);
    CHECK_INT(action(p, "db.a.com", "1.1.1.1", 22), NETPOLICY_ASK);
    CHECK_INT(action(p, NULL, "10.1.2.3", 5433), NETPOLICY_ALLOW);
    CHECK_INT(action(p, NULL, "10.1.2.3", 5441), NETPOLICY_DENY);
    CHECK_INT(action(p, NULL, "1.1.1.1", 443), NETPOLICY_DENY);
    v = judge(p, "x.test", "10.1.2.3", 5432);
    CHECK(v.action == NETPOLICY_ALLOW && v.by_addr && v.rule == 3);
    netpolicy_explain(p, &v, text, sizeof(text));
    CHECK_STR(text, "rule 3: allow 10.1.0.0/16, ports 5432-5440");
    v = judge(p, "nobody.test", "1.1.1.1", 443);
    netpolicy_explain(p, &v, text, sizeof(text));
    CHECK_STR(text, "no rule fits, so it is denied");
    CHECK(!netpolicy_resolves(p, "bad.a.com") && netpolicy_resolves(p, "late.a.com"));
    CHECK(!netpolicy_resolves(p, "a.com") && !netpolicy_resolves(p, "nobody.test"));
}

static void private_addresses_need_a_rule(void)
{
    static const char *const private[] = {
        "0.0.0.0",     "10.0.0.1",        "100.64.0.1", "100.127.255.255",
        "127.0.0.1",   "169.254.169.254", "172.16.0.1", "172.31.255.255",
        "192.0.0.1",   "192.168.1.1",     "198.18.0.1", "198.51.100.1",
        "203.0.113.1", "224.0.0.1",       "240.0.0.1",  "255.255.255.255",
    };
    static const char *const public[] = {"1.1.1.1",         "100.63.0.1", "100.128.0.1",
                                         "172.15.0.1",      "172.32.0.1", "192.0.1.1",
                                         "223.255.255.255", "11.0.0.1"};
    cleanup_policy const struct netpolicy *p = make("{\"preset\":\"internet\"}");
    cleanup_policy const struct netpolicy *q =
        make("{\"preset\":\"internet\",\"rules\":[{\"cidr\":\"1.1.1.0/24\",\"action\":\"deny\"},"
             "{\"cidr\":\"10.0.0.0/8\",\"ports\":\"443\",\"action\":\"allow\"}]}");

    for (size_t i = 0; i < ARRAY_SIZE(private); i++) {
        if (action(p, NULL, private[i], 80) != NETPOLICY_DENY ||
            netpolicy_addr_allowed(p, addr_of(private[i]), 80)) {
            TEST_FAIL("%s is let through", private[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(public); i++) {
        if (action(p, NULL, public[i], 80) != NETPOLICY_ALLOW ||
            !netpolicy_addr_allowed(p, addr_of(public[i]), 80)) {
            TEST_FAIL("%s is not let through", public[i]);
        }
    }
    CHECK_INT(action(p, "a.test", "10.0.0.1", 80),
              NETPOLICY_ALLOW); /* its address is looked at then */
    CHECK(!netpolicy_addr_allowed(q, addr_of("1.1.1.9"), 443));
    CHECK(netpolicy_addr_allowed(q, addr_of("10.9.9.9"), 443));
    CHECK(netpolicy_addr_named(q, addr_of("10.9.9.9"), 443));
    CHECK(!netpolicy_addr_allowed(q, addr_of("10.9.9.9"), 80));
    CHECK(netpolicy_addr_allowed(q, addr_of("10.9.9.9"), NETPOLICY_ANY_PORT));
    CHECK(!netpolicy_addr_named(q, addr_of("8.8.8.8"), 443));
}

static void requests_are_judged_one_by_one(void)
{
    cleanup_policy const struct netpolicy *p =
        make("{\"rules\":[{\"host\":\"a.com\",\"methods\":[\"GET\"],\"path\":\"/v1/\",\"action\":"
             "\"allow\"},{\"host\":\"a.com\",\"path\":\"/v1/secret\",\"action\":\"deny\"},"
             "{\"host\":\"a.com\",\"methods\":[\"POST\"],\"action\":\"inspect\"}]}");
    struct netpolicy_query q = {.name = "a.com", .port = 443};

    CHECK_INT(netpolicy_judge(p, &q).action, NETPOLICY_INSPECT);
    q.method = "GET";
    q.path = "/v1/x";
    CHECK_INT(netpolicy_judge(p, &q).action, NETPOLICY_ALLOW);
    q.path = "/v2/x";
    CHECK_INT(netpolicy_judge(p, &q).action, NETPOLICY_DENY);
    q.method = "POST";
    CHECK_INT(netpolicy_judge(p, &q).action, NETPOLICY_INSPECT);
    q.path = "/v1/secret";
    CHECK_INT(netpolicy_judge(p, &q).action, NETPOLICY_DENY);
}

static void presets_are_what_they_say(void)
{
    cleanup_policy const struct netpolicy *none = netpolicy_none();
    cleanup_policy const struct netpolicy *registries = make("{\"preset\":\"registries\"}");
    cleanup_policy const struct netpolicy *denial =
        make("{\"rules\":[{\"host\":\"a.com\",\"action\":\"deny\"}]}");
    cleanup_policy const struct netpolicy *observe = make("{\"observe\":true}");
    char host[NETPRESET_HOST_SIZE];

    REQUIRE(netpreset_registry(0, host));
    CHECK(netpolicy_is_closed(none) && netpolicy_is_closed(denial));
    CHECK(!netpolicy_is_closed(registries) && !netpolicy_is_closed(observe));
    CHECK(netpolicy_resolves(registries, host));
    CHECK_INT(action(registries, host, "1.1.1.1", 443), NETPOLICY_ALLOW);
    CHECK_INT(action(registries, host, "1.1.1.1", 22), NETPOLICY_DENY);
    CHECK_INT(action(registries, "a.com", "1.1.1.1", 443), NETPOLICY_DENY);
    {
        const struct netpolicy_query q = {.name = "a.com", .addr = addr_of("1.1.1.1"), .port = 1};
        struct netpolicy_verdict v = netpolicy_judge(observe, &q);

        CHECK(netpolicy_observed(observe, &q, &v) && netpolicy_resolves(observe, "a.com"));
        CHECK_INT(v.action, NETPOLICY_ALLOW);
    }
}

/* How long one decision takes; *ret_allowed is how many of a thousand names are allowed. */
static uint64_t time_decisions(const struct netpolicy *p, unsigned *ret_allowed)
{
    uint64_t begun = clock_now_ns();

    *ret_allowed = 0;
    for (int i = 0; i < 1000; i++) {
        char name[64];

        snprintf(name, sizeof(name), "a.b.c.host%d.example.com", i);
        *ret_allowed += action(p, name, "1.1.1.1", 443) == NETPOLICY_ALLOW;
    }
    return (clock_now_ns() - begun) / 1000;
}

static void a_thousand_rules_are_decided_quickly(void)
{
    json_t *rules = json_array();
    cleanup_json json_t *object = json_pack("{s:o}", "rules", rules);
    struct netpolicy *made = NULL;
    uint64_t best_ns = UINT64_MAX;

    for (int i = 0; i < 1000; i++) {
        char host[64];
        char cidr[32];

        snprintf(host, sizeof(host), "%shost%d.example.com", i % 2 ? "*." : "", i);
        snprintf(cidr, sizeof(cidr), "20.%d.%d.0/24", i / 200, i % 200);
        json_array_append_new(rules,
                              i % 3 ? json_pack("{s:s, s:s}", "host", host, "action", "allow")
                                    : json_pack("{s:s, s:s}", "cidr", cidr, "action", "allow"));
    }
    REQUIRE(netpolicy_from_json(object, &made, NULL) == 0);
    cleanup_policy const struct netpolicy *p = made;

    for (int i = 0; i < 5; i++) {
        unsigned allowed = 0;
        uint64_t ns = time_decisions(p, &allowed);

        best_ns = MIN(best_ns, ns);
        CHECK_INT(allowed, 333); /* those with "*." that are no cidr rules */
    }
    printf("# %llu ns a decision\n", (unsigned long long)best_ns);
    CHECK(!TEST_TIMES_COUNT || best_ns < 50000);
}

static void a_policy_comes_back_as_it_was_given(void)
{
    static const char text[] = "{\"preset\":\"custom\",\"rules\":[{\"host\":\"a.com\",\"action\":"
                               "\"allow\",\"note\":\"why\"}]}";
    cleanup_policy const struct netpolicy *p = make(text);
    cleanup_free char *again = json_text(netpolicy_json(p));

    CHECK_STR(again, text);
}

TEST_MAIN(T(names_are_compared_as_hosts_are), T(what_is_no_policy_is_refused),
          T(the_first_rule_that_fits_decides), T(private_addresses_need_a_rule),
          T(requests_are_judged_one_by_one), T(presets_are_what_they_say),
          T(a_thousand_rules_are_decided_quickly), T(a_policy_comes_back_as_it_was_given))
