/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "model/json-text.h"
#include "model/record.h"
#include "model/sandbox.h"
#include "model/tenant.h"

static json_t *json(const char *text)
{
    json_t *root = NULL;
    struct err e = {0};

    if (json_parse_object(text, strlen(text), &root, &e) < 0) {
        TEST_FAIL("the test's own JSON is wrong: %s: %s", text, e.msg);
    }
    return root;
}

/* --- states --- */

static void state_words_parse_back(void)
{
    enum sandbox_state s;

    for (unsigned i = 0; i < SANDBOX_STATE_COUNT_; i++) {
        CHECK(sandbox_state_parse(sandbox_state_name((enum sandbox_state)i), &s));
        CHECK_INT(s, i);
    }
    CHECK(!sandbox_state_parse("", &s));
    CHECK(!sandbox_state_parse("Running", &s));
}

static void deleting_is_reachable_from_all_and_left_for_deleted_only(void)
{
    for (unsigned i = 0; i < SANDBOX_STATE_DELETING; i++) {
        CHECK(sandbox_state_may_move((enum sandbox_state)i, SANDBOX_STATE_DELETING,
                                     SANDBOX_BY_CLIENT));
        CHECK(sandbox_state_may_move((enum sandbox_state)i, SANDBOX_STATE_DELETING,
                                     SANDBOX_BY_POLICY));
        CHECK(!sandbox_state_may_move((enum sandbox_state)i, SANDBOX_STATE_DELETING,
                                      SANDBOX_BY_NODE));
    }
    for (unsigned by = SANDBOX_BY_CLIENT; by <= SANDBOX_BY_NODE; by <<= 1) {
        for (unsigned to = 0; to < SANDBOX_STATE_COUNT_; to++) {
            bool may = sandbox_state_may_move(SANDBOX_STATE_DELETING, (enum sandbox_state)to, by);

            CHECK_INT(may, to == SANDBOX_STATE_DELETED && by == SANDBOX_BY_NODE);
            CHECK(!sandbox_state_may_move(SANDBOX_STATE_DELETED, (enum sandbox_state)to, by));
        }
    }
}

static void only_the_node_says_that_something_runs(void)
{
    for (unsigned from = 0; from < SANDBOX_STATE_COUNT_; from++) {
        CHECK(!sandbox_state_may_move((enum sandbox_state)from, SANDBOX_STATE_RUNNING,
                                      SANDBOX_BY_CLIENT));
        CHECK(!sandbox_state_may_move((enum sandbox_state)from, SANDBOX_STATE_RUNNING,
                                      SANDBOX_BY_POLICY));
        CHECK(!sandbox_state_may_move((enum sandbox_state)from, (enum sandbox_state)from,
                                      SANDBOX_BY_NODE));
    }
}

static void transient_states_can_end_by_the_node(void)
{
    for (unsigned from = 0; from < SANDBOX_STATE_DELETING; from++) {
        bool ends = false;

        for (unsigned to = 0; to < SANDBOX_STATE_COUNT_; to++) {
            ends = ends || sandbox_state_may_move((enum sandbox_state)from, (enum sandbox_state)to,
                                                  SANDBOX_BY_NODE);
        }
        if (sandbox_state_is_transient((enum sandbox_state)from)) {
            CHECK(ends);
            CHECK(sandbox_state_may_move((enum sandbox_state)from, SANDBOX_STATE_FAILED,
                                         SANDBOX_BY_NODE));
            CHECK(!sandbox_state_may_be_desired((enum sandbox_state)from));
        }
    }
}

/* --- bodies --- */

static void empty_body_means_defaults(void)
{
    cleanup_json json_t *body = json("{}");
    cleanup_sandbox_spec struct sandbox_spec spec = {0};

    REQUIRE(sandbox_spec_from_json(body, &spec, NULL) == 0);
    CHECK_STR(spec.template_name, "debian");
    CHECK_INT(spec.shape.vcpus, 1);
    CHECK_INT(spec.shape.memory_mib, 256);
    CHECK_INT(spec.shape.disk_mib, 4096);
    CHECK_INT(spec.timeout_s, 3600);
    CHECK_STR(spec.env, "{}");
    CHECK_STR(spec.metadata, "{}");
}

static void null_means_absent(void)
{
    cleanup_json json_t *body =
        json("{\"template\":null,\"vcpus\":null,\"env\":null,\"timeout_s\":null}");
    cleanup_sandbox_spec struct sandbox_spec spec = {0};

    REQUIRE(sandbox_spec_from_json(body, &spec, NULL) == 0);
    CHECK_INT(spec.shape.vcpus, 1);
    CHECK_INT(spec.timeout_s, 3600);
}

static void limits_are_inclusive(void)
{
    static const char *const fine[] = {
        "{\"vcpus\":1}",        "{\"vcpus\":8}",
        "{\"memory_mib\":128}", "{\"memory_mib\":16384}",
        "{\"disk_mib\":64}",    "{\"disk_mib\":102400}",
        "{\"timeout_s\":0}",    "{\"timeout_s\":315360000}",
        "{\"template\":\"a\"}", "{\"template\":\"0-9-\"}",
    };

    for (size_t i = 0; i < ARRAY_SIZE(fine); i++) {
        cleanup_json json_t *body = json(fine[i]);
        cleanup_sandbox_spec struct sandbox_spec spec = {0};

        if (sandbox_spec_from_json(body, &spec, NULL) != 0) {
            TEST_FAIL("refused: %s", fine[i]);
        }
    }
}

static void errors_name_the_field(void)
{
    static const struct {
        const char *body;
        const char *field;
        const char *reason;
    } cases[] = {
        {"{\"memory\":1}", "memory", "unknown_field"},
        {"{\"vcpus\":0}", "vcpus", "out_of_range"},
        {"{\"vcpus\":9}", "vcpus", "out_of_range"},
        {"{\"vcpus\":-1}", "vcpus", "out_of_range"},
        {"{\"vcpus\":\"1\"}", "vcpus", "invalid_field"},
        {"{\"vcpus\":1.5}", "vcpus", "invalid_field"},
        {"{\"memory_mib\":127}", "memory_mib", "out_of_range"},
        {"{\"memory_mib\":130}", "memory_mib", "not_a_multiple"},
        {"{\"memory_mib\":16448}", "memory_mib", "out_of_range"},
        {"{\"memory_mib\":4294967552}", "memory_mib", "out_of_range"},
        {"{\"disk_mib\":63}", "disk_mib", "out_of_range"},
        {"{\"disk_mib\":102401}", "disk_mib", "out_of_range"},
        {"{\"timeout_s\":-1}", "timeout_s", "out_of_range"},
        {"{\"timeout_s\":2147483648}", "timeout_s", "out_of_range"},
        {"{\"timeout_s\":1e308}", "timeout_s", "invalid_field"},
        {"{\"timeout_s\":\"60\"}", "timeout_s", "invalid_field"},
        {"{\"timeout_s\":true}", "timeout_s", "invalid_field"},
        {"{\"template\":\"\"}", "template", "invalid_name"},
        {"{\"template\":\"-a\"}", "template", "invalid_name"},
        {"{\"template\":\"../etc\"}", "template", "invalid_name"},
        {"{\"template\":\"Debian\"}", "template", "invalid_name"},
        {"{\"template\":7}", "template", "invalid_field"},
        {"{\"env\":[]}", "env", "invalid_field"},
        {"{\"env\":{\"A\":1}}", "env", "invalid_type"},
        {"{\"env\":{\"1A\":\"x\"}}", "env", "invalid_name"},
        {"{\"env\":{\"A B\":\"x\"}}", "env", "invalid_name"},
        {"{\"env\":{\"\":\"x\"}}", "env", "invalid_name"},
        {"{\"env\":{\"A=B\":\"x\"}}", "env", "invalid_name"},
        {"{\"metadata\":{\"a\":{}}}", "metadata", "invalid_type"},
        {"{\"metadata\":{\"a\\n\":\"x\"}}", "metadata", "invalid_name"},
        {"{\"metadata\":\"x\"}", "metadata", "invalid_field"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_json json_t *body = json(cases[i].body);
        struct sandbox_spec spec = {.timeout_s = 4711};
        struct err e = {0};

        CHECK_INT(sandbox_spec_from_json(body, &spec, &e), -EINVAL);
        CHECK_STR(e.field, cases[i].field);
        CHECK_STR(e.reason, cases[i].reason);
        CHECK(strstr(e.msg, cases[i].field) != NULL);
        CHECK_INT(spec.timeout_s, 4711); /* outputs only on success */
    }
}

static void multiples_are_proposed(void)
{
    struct shape shape = {.vcpus = 1, .memory_mib = 300, .disk_mib = 64};
    struct err e = {0};

    CHECK_INT(shape_check(&shape, &e), -EINVAL);
    CHECK(strstr(e.msg, "use 256 or 320 instead of 300") != NULL);
}

static void check_map_limit(const char *field, size_t pairs, size_t value_len, int want)
{
    cleanup_json json_t *body = json_object();
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    cleanup_free char *value = xmalloc(value_len + 1);
    json_t *map = json_object();
    struct err e = {0};

    memset(value, 'v', value_len);
    value[value_len] = '\0';
    for (size_t i = 0; i < pairs; i++) {
        char key[32];

        snprintf(key, sizeof(key), "k%zu", i);
        json_object_set_new(map, key, json_string(value));
    }
    json_object_set_new(body, field, map);
    CHECK_INT(sandbox_spec_from_json(body, &spec, &e), want);
    CHECK_STR(e.field, want ? field : "");
}

static void maps_are_bounded(void)
{
    check_map_limit("metadata", METADATA_PAIRS_MAX, 1, 0);
    check_map_limit("metadata", METADATA_PAIRS_MAX + 1, 1, -EINVAL);
    check_map_limit("metadata", 1, METADATA_VALUE_MAX, 0);
    check_map_limit("metadata", 1, METADATA_VALUE_MAX + 1, -EINVAL);
    check_map_limit("metadata", METADATA_TOTAL_MAX / METADATA_VALUE_MAX + 1, METADATA_VALUE_MAX,
                    -EINVAL);
    check_map_limit("env", ENV_PAIRS_MAX, 1, 0);
    check_map_limit("env", ENV_PAIRS_MAX + 1, 1, -EINVAL);
    check_map_limit("env", 1, ENV_VALUE_MAX, 0);
    check_map_limit("env", 1, ENV_VALUE_MAX + 1, -EINVAL);
    check_map_limit("env", 5, ENV_VALUE_MAX, -EINVAL);
}

static void patch_needs_something_to_change(void)
{
    static const char *const bad[] = {"{}", "{\"timeout_s\":null}", "{\"timeout_s\":-1}",
                                      "{\"vcpus\":2}", "{\"metadata\":[]}"};
    cleanup_json json_t *body = json("{\"timeout_s\":0,\"metadata\":{\"b\":\"2\",\"a\":\"1\"}}");
    cleanup_sandbox_patch struct sandbox_patch patch = {0};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_json json_t *b = json(bad[i]);

        CHECK_INT(sandbox_patch_from_json(b, &patch, NULL), -EINVAL);
    }
    REQUIRE(sandbox_patch_from_json(body, &patch, NULL) == 0);
    CHECK(patch.has_timeout);
    CHECK_INT(patch.timeout_s, 0);
    CHECK_STR(patch.metadata, "{\"a\":\"1\",\"b\":\"2\"}");
}

/* --- the record --- */

static void timeouts_count_from_the_change(void)
{
    cleanup_json json_t *body = json("{\"timeout_s\":60}");
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    cleanup_sandbox struct sandbox sb = {0};

    REQUIRE(sandbox_spec_from_json(body, &spec, NULL) == 0);
    sandbox_init(&sb, &spec, "pproject", 1000);
    CHECK(id_valid(ID_SANDBOX, sb.id));
    CHECK_INT(sb.end_at_ms, 61000);
    sandbox_apply(&sb, &(struct sandbox_patch){.has_timeout = true, .timeout_s = 10}, 5000);
    CHECK_INT(sb.end_at_ms, 15000);
    sandbox_apply(&sb, &(struct sandbox_patch){.has_timeout = true, .timeout_s = 0}, 5000);
    CHECK_INT(sb.end_at_ms, 0);
}

static void move(struct sandbox *sb, enum sandbox_state to, unsigned by, int64_t now_ms)
{
    sandbox_move(sb, (struct sandbox_move){to, by, now_ms}, NULL);
}

static void time_stands_still_while_paused(void)
{
    cleanup_json json_t *body = json("{\"timeout_s\":60}");
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    cleanup_sandbox struct sandbox sb = {0};

    REQUIRE(sandbox_spec_from_json(body, &spec, NULL) == 0);
    sandbox_init(&sb, &spec, "pproject", 1000);
    move(&sb, SANDBOX_STATE_RUNNING, SANDBOX_BY_NODE, 2000);
    move(&sb, SANDBOX_STATE_PAUSING, SANDBOX_BY_CLIENT, 3000);
    CHECK_INT(sb.paused_at_ms, 0); /* it may fail yet */
    move(&sb, SANDBOX_STATE_PAUSED, SANDBOX_BY_NODE, 4000);
    CHECK_INT(sb.paused_at_ms, 4000);
    CHECK_INT(sb.end_at_ms, 61000);
    move(&sb, SANDBOX_STATE_RESUMING, SANDBOX_BY_CLIENT, 10000);
    move(&sb, SANDBOX_STATE_PAUSED, SANDBOX_BY_NODE, 11000); /* that did not work */
    CHECK_INT(sb.paused_at_ms, 4000);
    sandbox_apply(&sb, &(struct sandbox_patch){.has_timeout = true, .timeout_s = 10}, 12000);
    CHECK_INT(sb.end_at_ms, 14000);
    move(&sb, SANDBOX_STATE_RUNNING, SANDBOX_BY_NODE, 24000); /* woken */
    CHECK_INT(sb.paused_at_ms, 0);
    CHECK_INT(sb.end_at_ms, 34000);
    move(&sb, SANDBOX_STATE_PAUSED, SANDBOX_BY_NODE, 30000); /* idle */
    move(&sb, SANDBOX_STATE_FAILED, SANDBOX_BY_NODE, 29000); /* and a clock that was set back */
    CHECK_INT(sb.end_at_ms, 34000);
    CHECK_INT(sb.paused_at_ms, 0);
}

static void paused_one_shows_what_is_left(void)
{
    cleanup_json json_t *body = json("{\"timeout_s\":60}");
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_buf struct buf out = BUF_INIT(65536);
    cleanup_json json_t *shown = NULL;

    REQUIRE(sandbox_spec_from_json(body, &spec, NULL) == 0);
    sandbox_init(&sb, &spec, "pproject", 1000);
    move(&sb, SANDBOX_STATE_RUNNING, SANDBOX_BY_NODE, 2000);
    move(&sb, SANDBOX_STATE_PAUSED, SANDBOX_BY_NODE, 11000);
    REQUIRE(sandbox_print(&sb, &out) == 0);
    REQUIRE(json_parse_object(out.data, out.len, &shown, NULL) == 0);
    CHECK(json_is_null(json_object_get(shown, "end_at_ms")));
    CHECK_INT(json_get_int(shown, "paused_at_ms", 0), 11000);
    CHECK_INT(json_get_int(shown, "remaining_ms", 0), 50000);
    CHECK(json_is_null(json_object_get(shown, "parent")));
    CHECK_STR(json_get_string(json_object_get(shown, "policy"), "recover", ""), "memory");
}

static void children_keep_what_is_not_said(void)
{
    cleanup_json json_t *body = json(
        "{\"timeout_s\":60,\"metadata\":{\"a\":\"b\"},\"env\":{\"E\":\"1\"},\"template\":\"tiny\","
        "\"policy\":{\"idle_pause_s\":9}}");
    cleanup_json json_t *none = json("{}");
    cleanup_json json_t *all =
        json("{\"count\":100,\"timeout_s\":0,\"metadata\":{},\"env\":{\"E\":\"2\"},"
             "\"snapshot\":\"n0000000000000000000\"}");
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    cleanup_sandbox_fork struct sandbox_fork plain = {0};
    cleanup_sandbox_fork struct sandbox_fork full = {0};
    cleanup_sandbox struct sandbox parent = {0};
    cleanup_sandbox struct sandbox a = {0};
    cleanup_sandbox struct sandbox b = {0};

    REQUIRE(sandbox_spec_from_json(body, &spec, NULL) == 0);
    REQUIRE(sandbox_fork_from_json(none, &plain, NULL) == 0);
    REQUIRE(sandbox_fork_from_json(all, &full, NULL) == 0);
    sandbox_init(&parent, &spec, "pproject", 1000);
    sandbox_init_fork(&a, &parent, &plain, 5000);
    sandbox_init_fork(&b, &parent, &full, 5000);
    CHECK_INT(plain.count, 1);
    CHECK_INT(full.count, 100);
    CHECK_STR(full.snapshot, "n0000000000000000000");
    CHECK_STR(a.metadata, parent.metadata);
    CHECK_STR(a.env, parent.env);
    CHECK_STR(a.template_name, "tiny");
    CHECK_STR(a.parent, parent.id);
    CHECK_INT(a.end_at_ms, 65000);
    CHECK_INT(a.policy.idle_pause_s, 9);
    CHECK_INT(a.observed, SANDBOX_STATE_CREATING);
    CHECK_STR(b.metadata, "{}");
    CHECK_STR(b.env, "{\"E\":\"2\"}");
    CHECK_INT(b.end_at_ms, 0);
}

static void printed_sandbox_is_json_and_keeps_env_to_itself(void)
{
    cleanup_json json_t *body = json(
        "{\"env\":{\"SECRET\":\"hunter2\"},\"metadata\":{\"q\\\"\":\"\\u20ac\"},\"timeout_s\":0}");
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_buf struct buf out = BUF_INIT(65536);
    cleanup_json json_t *shown = NULL;

    REQUIRE(sandbox_spec_from_json(body, &spec, NULL) == 0);
    sandbox_init(&sb, &spec, "pproject", 1000);
    snprintf(sb.reason, sizeof(sb.reason), "a \"quote\"\n and \xff");
    REQUIRE(sandbox_print(&sb, &out) == 0);
    REQUIRE(json_parse_object(out.data, out.len, &shown, NULL) == 0);
    CHECK(strstr(out.data, "hunter2") == NULL);
    CHECK_STR(json_get_string(shown, "id", ""), sb.id);
    CHECK_STR(json_get_string(shown, "state", ""), "creating");
    CHECK_STR(json_get_string(shown, "reason", ""), "a \"quote\"\n and \xef\xbf\xbd");
    CHECK(json_is_null(json_object_get(shown, "end_at_ms")));
    CHECK_STR(json_string_value(json_object_get(json_object_get(shown, "metadata"), "q\"")),
              "\xe2\x82\xac");
    sb.desired = SANDBOX_STATE_DELETED;
    CHECK_INT(sandbox_shown_state(&sb), SANDBOX_STATE_DELETING);
}

static void node_spec_carries_everything(void)
{
    cleanup_json json_t *body = json("{\"env\":{\"A\":\"1\"},\"vcpus\":2}");
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *node = NULL;

    REQUIRE(sandbox_spec_from_json(body, &spec, NULL) == 0);
    sandbox_init(&sb, &spec, "pproject", 1000);
    node = sandbox_node_spec(&sb, "oorg");
    REQUIRE(node);
    CHECK_STR(json_get_string(node, "id", ""), sb.id);
    CHECK_STR(json_get_string(node, "org", ""), "oorg");
    CHECK_INT(json_get_int(node, "vcpus", 0), 2);
    CHECK_STR(json_get_string(json_object_get(node, "env"), "A", ""), "1");
    free(sb.env);
    sb.env = xstrdup("damaged");
    CHECK(sandbox_node_spec(&sb, "oorg") == NULL);
}

/* --- text --- */

static void json_text_escapes_what_json_forbids(void)
{
    static const struct {
        const char *in;
        size_t len;
        const char *out;
    } cases[] = {
        {"plain", 5, "\"plain\""},
        {"", 0, "\"\""},
        {"a\"b\\c", 5, "\"a\\\"b\\\\c\""},
        {"\n\r\t\x01\x7f", 5, "\"\\n\\r\\t\\u0001\\u007f\""},
        {"a\0b", 3, "\"a\\u0000b\""},
        {"\xe2\x82\xac", 3, "\"\xe2\x82\xac\""},
        {"\xe2\x82", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xc0\x80", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xf0\x9f\x98\x80", 4, "\"\xf0\x9f\x98\x80\""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_buf struct buf out = BUF_INIT(256);

        CHECK_INT(json_text_bytes(&out, cases[i].in, cases[i].len), 0);
        CHECK_STR(buf_str(&out), cases[i].out);
    }
}

static void utf8_prefix_stops_at_a_broken_character(void)
{
    CHECK_INT(utf8_valid_prefix("abc", 3), 3);
    CHECK_INT(utf8_valid_prefix("a\xe2\x82", 3), 1);
    CHECK_INT(utf8_valid_prefix("\xff", 1), 0);
    CHECK_INT(utf8_valid_prefix("\xe2\x82\xac", 3), 3);
}

static void names_follow_their_rules(void)
{
    CHECK_INT(tenant_name_check("name", "a b", NULL), 0);
    CHECK_INT(tenant_name_check("name", "", NULL), -EINVAL);
    CHECK_INT(tenant_name_check("name", " a", NULL), -EINVAL);
    CHECK_INT(tenant_name_check("name", "a\n", NULL), -EINVAL);
    CHECK_INT(tenant_name_check(
                  "name", "1234567890123456789012345678901234567890123456789012345678901234", NULL),
              -EINVAL);
    CHECK(key_text_valid("e2b_0123456789abcdef0123456789abcdef01234567"));
    CHECK(!key_text_valid("e2b_0123456789abcdef0123456789abcdef0123456"));
    CHECK(!key_text_valid("e2b_0123456789ABCDEF0123456789abcdef01234567"));
    CHECK(!key_text_valid(""));
    CHECK_INT(idempotency_key_check("a-B.9", NULL), 0);
    CHECK_INT(idempotency_key_check("", NULL), -EINVAL);
    CHECK_INT(idempotency_key_check("a b", NULL), -EINVAL);
}

TEST_MAIN(T(state_words_parse_back), T(deleting_is_reachable_from_all_and_left_for_deleted_only),
          T(only_the_node_says_that_something_runs), T(transient_states_can_end_by_the_node),
          T(empty_body_means_defaults), T(null_means_absent), T(limits_are_inclusive),
          T(errors_name_the_field), T(multiples_are_proposed), T(maps_are_bounded),
          T(patch_needs_something_to_change), T(timeouts_count_from_the_change),
          T(time_stands_still_while_paused), T(paused_one_shows_what_is_left),
          T(children_keep_what_is_not_said), T(printed_sandbox_is_json_and_keeps_env_to_itself),
          T(node_spec_carries_everything), T(json_text_escapes_what_json_forbids),
          T(utf8_prefix_stops_at_a_broken_character), T(names_follow_their_rules))
