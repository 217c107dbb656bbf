/* SPDX-License-Identifier: Apache-2.0 */

/* What the API says when things go well, and what it says to nonsense. */
#include "harness.h"

#include <ctype.h>
#include <stdio.h>

#include "gateway/openapi.h"
#include "http/ws.h"
#include "wire/frames.h"

/* --- sandboxes --- */

static void create_get_list_patch_delete(void)
{
    WORLD(w);
    cleanup_answer struct answer made = alice(
        &w, "POST", "/v1/sandboxes",
        "{\"template\":\"tiny\",\"vcpus\":2,\"memory_mib\":512,\"disk_mib\":1024,\"timeout_s\":60,"
        "\"env\":{\"TOKEN\":\"hunter2\"},\"metadata\":{\"app\":\"x\"}}");
    const char *id = json_get_string(made.json, "id", "");
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s", id);
    cleanup_answer struct answer got = alice(&w, "GET", target, NULL);
    cleanup_answer struct answer patched =
        alice(&w, "PATCH", target, "{\"metadata\":{\"app\":\"y\"}}");
    cleanup_answer struct answer listed = alice(&w, "GET", "/v1/sandboxes?metadata.app=y", NULL);
    cleanup_answer struct answer deleted = alice(&w, "DELETE", target, NULL);
    cleanup_answer struct answer after = alice(&w, "GET", target, NULL);

    CHECK_INT(made.status, 201);
    CHECK(id_valid(ID_SANDBOX, id));
    CHECK_STR(json_get_string(made.json, "state", ""), "running");
    CHECK_STR(json_get_string(made.json, "accel", ""), "tcg");
    CHECK_INT(json_get_int(made.json, "end_at_ms", 0), w.now_ms + 60000);
    CHECK_STR(got.text, made.text);
    CHECK(strstr(made.text, "hunter2") == NULL);
    CHECK_INT(patched.status, 200);
    CHECK_INT(json_array_size(json_object_get(listed.json, "sandboxes")), 1);
    CHECK_INT(deleted.status, 204);
    CHECK_INT(after.status, 404);
    CHECK_STR(answer_code(&after), "sandbox_not_found");
    CHECK_INT(world_rows(&w), 0);
    CHECK_INT(fake_node_count(w.node), 0);
}

static void nonsense_is_refused_by_name(void)
{
    static const struct {
        const char *body;
        int status;
        const char *code;
        const char *field;
    } cases[] = {
        {"", 400, "", NULL}, /* replaced below: no body at all is a fine default */
        {"[]", 400, "invalid_json", NULL},
        {"{", 400, "invalid_json", NULL},
        {"{\"vcpus\":1,\"vcpus\":2}", 400, "invalid_json", NULL},
        {"{} x", 400, "invalid_json", NULL},
        {"\"\\ud800\"", 400, "invalid_json", NULL},
        {"{\"memory\":1}", 400, "unknown_field", "memory"},
        {"{\"memory_mib\":130}", 400, "not_a_multiple", "memory_mib"},
        {"{\"vcpus\":99}", 400, "out_of_range", "vcpus"},
        {"{\"template\":\"../x\"}", 400, "invalid_name", "template"},
    };
    WORLD(w);

    for (size_t i = 1; i < ARRAY_SIZE(cases); i++) {
        cleanup_answer struct answer a = alice(&w, "POST", "/v1/sandboxes", cases[i].body);
        json_t *error = json_object_get(a.json, "error");

        CHECK_INT(a.status, cases[i].status);
        CHECK_STR(answer_code(&a), cases[i].code);
        CHECK(json_get_string(error, "message", "")[0]);
        if (cases[i].field) {
            CHECK_STR(json_get_string(error, "field", ""), cases[i].field);
        }
    }
    CHECK_INT(fake_node_asked(w.node, FAKE_CREATE), 0);
    CHECK_INT(world_rows(&w), 0);
}

static void no_body_means_defaults(void)
{
    WORLD(w);
    cleanup_answer struct answer a = alice(&w, "POST", "/v1/sandboxes", NULL);

    CHECK_INT(a.status, 201);
    CHECK_STR(json_get_string(a.json, "template", ""), "debian");
    CHECK_INT(json_get_int(a.json, "memory_mib", 0), 256);
}

static void too_large_a_body_is_413(void)
{
    WORLD(w);
    cleanup_free char *body = xmalloc((2u << 20) + 1);
    cleanup_answer struct answer a = {0};

    memset(body, ' ', 2u << 20);
    body[2u << 20] = '\0';
    a = alice(&w, "POST", "/v1/sandboxes", body);
    CHECK(a.status == 413 || a.error < 0); /* the rest of the body may meet a closed door */
    CHECK_INT(world_rows(&w), 0);
}

static void lists_page_and_filter(void)
{
    WORLD(w);
    cleanup_free char *cursor = xstrdup("");
    int seen = 0;

    for (int i = 0; i < 7; i++) {
        char body[64];

        snprintf(body, sizeof(body), "{\"metadata\":{\"n\":\"%d\"}}", i % 2);
        cleanup_answer struct answer a = alice(&w, "POST", "/v1/sandboxes", body);

        CHECK_INT(a.status, 201);
        world_advance_ms(&w, i % 3);
    }
    for (int pages = 0; pages < 10; pages++) {
        cleanup_free char *target =
            xasprintf("/v1/sandboxes?limit=3%s%s", cursor[0] ? "&cursor=" : "", cursor);
        cleanup_answer struct answer a = alice(&w, "GET", target, NULL);
        const char *next = json_get_string(a.json, "next_cursor", NULL);

        CHECK_INT(a.status, 200);
        seen += (int)json_array_size(json_object_get(a.json, "sandboxes"));
        if (!next) {
            break;
        }
        free(cursor);
        cursor = xstrdup(next);
    }
    CHECK_INT(seen, 7);
    {
        cleanup_answer struct answer a =
            alice(&w, "GET", "/v1/sandboxes?metadata.n=1&state=running,failed", NULL);
        cleanup_answer struct answer none = alice(&w, "GET", "/v1/sandboxes?state=stopped", NULL);

        CHECK_INT(json_array_size(json_object_get(a.json, "sandboxes")), 3);
        CHECK_INT(json_array_size(json_object_get(none.json, "sandboxes")), 0);
    }
}

static void list_parameters_are_checked(void)
{
    static const char *const targets[] = {
        "/v1/sandboxes?limit=0",        "/v1/sandboxes?limit=1001",
        "/v1/sandboxes?limit=x",        "/v1/sandboxes?cursor=x",
        "/v1/sandboxes?cursor=-1-s",    "/v1/sandboxes?state=asleep",
        "/v1/sandboxes?state=running,", "/v1/sandboxes?statee=running",
        "/v1/sandboxes?metadata.=x",    "/v1/audit?limit=0",
    };
    WORLD(w);

    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        cleanup_answer struct answer a = alice(&w, "GET", targets[i], NULL);

        if (str_eq(targets[i], "/v1/sandboxes?state=running,")) {
            CHECK_INT(a.status, 200); /* a comma at the end is harmless */
        } else {
            CHECK_INT(a.status, 400);
        }
    }
}

static void quota_is_a_clear_429(void)
{
    WORLD(w);
    cleanup_free char *target = xasprintf("/v1/projects/%s", w.projects[ALICE]);
    cleanup_answer struct answer set = asks(&w, OPERATOR, "PATCH", target, "{\"max_sandboxes\":1}");
    cleanup_answer struct answer first = alice(&w, "POST", "/v1/sandboxes", "{}");
    cleanup_answer struct answer second = alice(&w, "POST", "/v1/sandboxes", "{}");

    CHECK_INT(set.status, 200);
    CHECK_INT(first.status, 201);
    CHECK_INT(second.status, 429);
    CHECK_STR(answer_code(&second), "sandbox_quota_exceeded");
    CHECK_INT(fake_node_asked(w.node, FAKE_CREATE), 1);
}

static void a_key_that_asks_too_often_waits(void)
{
    WORLD(w);

    w.limit = (struct rate_limit){.per_s = 1, .burst = 3};
    world_restart_gateway(&w);
    for (int i = 0; i < 4; i++) {
        cleanup_answer struct answer a = alice(&w, "GET", "/v1/sandboxes", NULL);
        cleanup_answer struct answer bob = asks(&w, BOB, "GET", "/v1/health", NULL);

        CHECK_INT(bob.status, 200);
        if (i < 3) {
            CHECK_INT(a.status, 200);
            CHECK_STR(a.retry_after, "");
        } else {
            CHECK_INT(a.status, 429);
            CHECK_STR(answer_code(&a), "rate_limited");
            CHECK_STR(a.retry_after, "1");
        }
    }
    {
        cleanup_answer struct answer bob = asks(&w, BOB, "GET", "/v1/sandboxes", NULL);

        CHECK_INT(bob.status, 200);
    }
}

static void a_thousand_rows_are_listed_quickly(void)
{
    WORLD(w);
    uint64_t best_ns = UINT64_MAX;

    for (int i = 0; i < 1000; i++) {
        cleanup_sandbox_spec struct sandbox_spec spec = {
            .shape = shape_default(),
            .template_name = "debian",
            .env = xstrdup("{}"),
            .metadata = xstrdup("{\"app\":\"bench\",\"n\":\"1\"}")};
        cleanup_sandbox struct sandbox sb = {0};

        sandbox_init(&sb, &spec, w.projects[ALICE], w.now_ms + i);
        REQUIRE(db_sandbox_insert(w.db, &sb, NULL, 2000, NULL) == 0);
    }
    for (int i = 0; i < 5; i++) {
        uint64_t begin_ns = clock_now_ns();
        cleanup_answer struct answer a = alice(&w, "GET", "/v1/sandboxes?limit=1000", NULL);

        best_ns = MIN(best_ns, clock_now_ns() - begin_ns);
        CHECK_INT(json_array_size(json_object_get(a.json, "sandboxes")), 1000);
    }
    printf("# 1000 rows, listed and parsed: %.1f ms\n", (double)best_ns / (double)NS_PER_MS);
    /* An order of magnitude above what is expected, for busy machines. */
    CHECK(!TEST_TIMES_COUNT || best_ns < 500 * NS_PER_MS);
}

/* --- keys, projects, the rest --- */

static void keys_and_projects(void)
{
    WORLD(w);
    cleanup_answer struct answer project =
        alice(&w, "POST", "/v1/projects", "{\"name\":\"second\"}");
    cleanup_answer struct answer twice = alice(&w, "POST", "/v1/projects", "{\"name\":\"second\"}");
    cleanup_answer struct answer key =
        alice(&w, "POST", "/v1/keys", "{\"name\":\"ci\",\"project\":\"second\"}");
    const char *text = json_get_string(key.json, "key", "");
    cleanup_answer struct answer used =
        world_ask(&w, &(struct ask){.method = "GET", .target = "/v1/sandboxes", .key = text});
    cleanup_answer struct answer listed = alice(&w, "GET", "/v1/keys", NULL);
    cleanup_free char *target = xasprintf("/v1/keys/%s", json_get_string(key.json, "id", ""));
    cleanup_answer struct answer revoked = alice(&w, "DELETE", target, NULL);
    cleanup_answer struct answer again = alice(&w, "DELETE", target, NULL);
    cleanup_answer struct answer refused =
        world_ask(&w, &(struct ask){.method = "GET", .target = "/v1/sandboxes", .key = text});
    cleanup_answer struct answer nowhere = alice(&w, "POST", "/v1/keys", "{\"project\":\"third\"}");

    CHECK_INT(project.status, 201);
    CHECK_INT(twice.status, 409);
    CHECK_STR(answer_code(&twice), "name_taken");
    CHECK_INT(key.status, 201);
    CHECK(key_text_valid(text));
    CHECK_INT(used.status, 200);
    CHECK(strstr(listed.text, text) == NULL); /* shown once */
    CHECK(strstr(listed.text, json_get_string(key.json, "prefix", "?")) != NULL);
    CHECK_INT(revoked.status, 204);
    CHECK_INT(again.status, 204);
    CHECK_INT(refused.status, 401);
    CHECK_INT(nowhere.status, 400);
    CHECK_STR(json_get_string(json_object_get(nowhere.json, "error"), "field", ""), "project");
}

static void audit_log_tells_who_did_what(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_answer struct answer a = {0};

    world_make(&w, ALICE, id);
    a = alice(&w, "GET", "/v1/audit", NULL);
    CHECK_INT(a.status, 200);
    CHECK(strstr(a.text, "sandbox.create") != NULL);
    CHECK(strstr(a.text, id) != NULL);
}

static void health_metrics_and_openapi(void)
{
    WORLD(w);
    cleanup_answer struct answer health =
        world_ask(&w, &(struct ask){.method = "GET", .target = "/v1/health"});
    cleanup_answer struct answer openapi =
        world_ask(&w, &(struct ask){.method = "GET", .target = "/v1/openapi.json"});
    cleanup_answer struct answer metrics =
        world_ask(&w, &(struct ask){.method = "GET", .target = "/metrics"});

    CHECK_INT(health.status, 200);
    CHECK(json_is_true(json_object_get(health.json, "ok")));
    CHECK_INT(openapi.status, 200);
    CHECK_INT(openapi.len, openapi_text_len);
    CHECK_INT(metrics.status, 200);
    CHECK(strstr(
        metrics.text,
        "space_gateway_requests_total{method=\"GET\",route=\"/v1/health\",class=\"2xx\"} 1"));
    CHECK(strstr(metrics.text, "space_sandboxes{state=\"running\"} 0"));
}

static void failing_database_is_503_without_details(void)
{
    WORLD(w);
    cleanup_answer struct answer a = {0};

    world_fail_sql("SELECT", 1);
    a = alice(&w, "GET", "/v1/sandboxes", NULL);
    CHECK_INT(a.status, 503);
    CHECK_STR(answer_code(&a), "database_unavailable");
    CHECK(strstr(a.text, "test says") == NULL);
}

static void broken_list_is_never_half_a_list(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_answer struct answer a = {0};

    world_make(&w, ALICE, id);
    world_make(&w, ALICE, id);
    world_break_rows("SELECT id, project_id, desired", 1);
    a = alice(&w, "GET", "/v1/sandboxes", NULL);
    CHECK_INT(a.status, 503);
}

static void unknown_paths_and_methods(void)
{
    WORLD(w);
    cleanup_answer struct answer path = alice(&w, "GET", "/v1/nonsense", NULL);
    cleanup_answer struct answer method = alice(&w, "PUT", "/v1/sandboxes", NULL);
    cleanup_answer struct answer console = alice(&w, "GET", "/", NULL);

    CHECK_INT(path.status, 404);
    CHECK_INT(method.status, 405);
    CHECK_INT(console.status, 404);
    CHECK(path.request_id[0]);
}

/* --- the OpenAPI file against the routes, both ways --- */

static json_t *openapi(void)
{
    json_t *doc = NULL;

    ASSERT(json_parse_object(openapi_text, openapi_text_len, &doc, NULL) == 0);
    return doc;
}

static void lower(const char *method, char ret[static 8])
{
    snprintf(ret, 8, "%s", method);
    for (char *p = ret; *p; p++) {
        *p = (char)tolower((unsigned char)*p);
    }
}

static void every_route_is_described(void)
{
    cleanup_json json_t *doc = openapi();
    json_t *paths = json_object_get(doc, "paths");

    for (size_t i = 0; i < gateway_router.n_routes; i++) {
        const struct http_route *route = &gateway_router.routes[i];
        json_t *op;
        char method[8];

        lower(route->method, method);
        op = json_object_get(json_object_get(paths, route->pattern), method);
        if (!(route->flags & ROUTE_UNDOCUMENTED) != (op != NULL)) {
            TEST_FAIL("%s %s: described and served do not agree", route->method, route->pattern);
        }
        if (op &&
            ((route->flags & ROUTE_PUBLIC) != 0) != (json_object_get(op, "security") != NULL)) {
            TEST_FAIL("%s %s: whether a key is needed does not agree", route->method,
                      route->pattern);
        }
    }
}

static bool is_served(const char *method, const char *pattern)
{
    for (size_t i = 0; i < gateway_router.n_routes; i++) {
        char lowered[8];

        lower(gateway_router.routes[i].method, lowered);
        if (str_eq(lowered, method) && str_eq(gateway_router.routes[i].pattern, pattern)) {
            return true;
        }
    }
    return false;
}

static void everything_described_is_served(void)
{
    cleanup_json json_t *doc = openapi();
    const char *pattern;
    const char *method;
    json_t *ops;
    json_t *op;

    json_object_foreach(json_object_get(doc, "paths"), pattern, ops)
    {
        json_object_foreach(ops, method, op)
        {
            if (str_eq(method, "parameters")) { /* of all methods of the path */
                continue;
            }
            if (!is_served(method, pattern)) {
                TEST_FAIL("%s %s is described but not served", method, pattern);
            }
            CHECK(json_get_string(op, "operationId", NULL) != NULL);
            CHECK(json_object_size(json_object_get(op, "responses")) > 0);
        }
    }
}

/* "#/components/schemas/X" must lead somewhere; checks the whole tree. */
static void check_refs(json_t *doc, json_t *node)
{
    const char *key;
    json_t *value;
    size_t i;

    if (json_is_array(node)) {
        json_array_foreach(node, i, value)
        {
            check_refs(doc, value);
        }
        return;
    }
    json_object_foreach(node, key, value)
    {
        char kind[32];
        char name[64];

        if (!str_eq(key, "$ref")) {
            check_refs(doc, value);
        } else if (sscanf(json_string_value(value), "#/components/%31[a-z]/%63[A-Za-z]", kind,
                          name) != 2 ||
                   !json_object_get(json_object_get(json_object_get(doc, "components"), kind),
                                    name)) {
            TEST_FAIL("%s leads nowhere", json_string_value(value));
        }
    }
}

static void references_lead_somewhere(void)
{
    cleanup_json json_t *doc = openapi();

    check_refs(doc, doc);
}

static void schema_has_field(json_t *doc, const char *schema, const char *field)
{
    json_t *s =
        json_object_get(json_object_get(json_object_get(doc, "components"), "schemas"), schema);

    if (!json_object_get(json_object_get(s, "properties"), field)) {
        TEST_FAIL("the schema %s does not have the field %s that was answered", schema, field);
    }
}

static void answered_fields_are_described(void)
{
    WORLD(w);
    cleanup_json json_t *doc = openapi();
    cleanup_answer struct answer made = alice(&w, "POST", "/v1/sandboxes", "{}");
    cleanup_answer struct answer keys = alice(&w, "GET", "/v1/keys", NULL);
    cleanup_answer struct answer projects = alice(&w, "GET", "/v1/projects", NULL);
    cleanup_answer struct answer audit = alice(&w, "GET", "/v1/audit", NULL);
    const struct {
        const char *schema;
        json_t *object;
    } cases[] = {
        {"Sandbox", made.json},
        {"Key", json_array_get(json_object_get(keys.json, "keys"), 0)},
        {"Project", json_array_get(json_object_get(projects.json, "projects"), 0)},
        {"AuditEvent", json_array_get(json_object_get(audit.json, "events"), 0)},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *key;
        json_t *value;

        CHECK(json_object_size(cases[i].object) > 0);
        json_object_foreach(cases[i].object, key, value)
        {
            schema_has_field(doc, cases[i].schema, key);
        }
    }
}

TEST_MAIN(T(create_get_list_patch_delete), T(nonsense_is_refused_by_name),
          T(no_body_means_defaults), T(too_large_a_body_is_413), T(lists_page_and_filter),
          T(list_parameters_are_checked), T(quota_is_a_clear_429),
          T(a_key_that_asks_too_often_waits), T(a_thousand_rows_are_listed_quickly),
          T(keys_and_projects), T(audit_log_tells_who_did_what), T(health_metrics_and_openapi),
          T(failing_database_is_503_without_details), T(broken_list_is_never_half_a_list),
          T(unknown_paths_and_methods), T(every_route_is_described),
          T(everything_described_is_served), T(references_lead_somewhere),
          T(answered_fields_are_described))
