/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "credential/credential.h"

#include <stdio.h>

#define ORG "o2222222222222222222"
#define PROJECT "p2222222222222222222"
#define SANDBOX "s2222222222222222222"

static void hosts_that_may_be_named(void)
{
    static const char *const good[] = {"example.com", "*.example.com", "a-b.c_d.example.com",
                                       "10.0.0.1", "localhost"};
    static const char *const bad[] = {
        "",        "*",        "*.",       "*.com",     "*x.com",         "a.*.com",
        "**.com",  "a b.com",  ".com",     "a..com",    "-a.com",         "a-.com",
        "A.com",   "a.com.",   "a.com:1",  "a/b",       "https://a.com",  "[::1]",
        "a.com\n", "*.a.com/", "\xc3\xa4", "a.com?x=1", "*.*.example.com"};
    char longest[300];

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        CHECK(credential_host_valid(good[i]));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (credential_host_valid(bad[i])) {
            TEST_FAIL("'%s' is taken for a host", bad[i]);
        }
    }
    for (size_t i = 0; i < sizeof(longest); i++) {
        longest[i] = i % 2 ? '.' : 'a';
    }
    longest[253] = '\0';
    CHECK(credential_host_valid(longest));
    longest[253] = '.';
    longest[255] = '\0';
    CHECK(!credential_host_valid(longest));
}

static void wildcards_stand_for_labels_and_never_for_none(void)
{
    static const struct {
        const char *pattern;
        const char *host;
        bool fits;
    } cases[] = {
        {"*.example.com", "a.example.com", true},
        {"*.example.com", "a.b.example.com", true},
        {"*.example.com", "A.EXAMPLE.COM", true},
        {"*.example.com", "example.com", false},
        {"*.example.com", "xexample.com", false},
        {"*.example.com", ".example.com", false},
        {"*.example.com", "example.com.evil.test", false},
        {"*.example.com", "a.example.comx", false},
        {"example.com", "Example.com", true},
        {"example.com", "a.example.com", false},
        {"example.com", "example.com.", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (credential_host_fits(cases[i].pattern, cases[i].host) != cases[i].fits) {
            TEST_FAIL("%s and %s", cases[i].pattern, cases[i].host);
        }
    }
}

static void paths_that_everybody_reads_alike(void)
{
    static const char *const good[] = {"/", "/a", "/a/b", "/a/b/", "/a%20b", "/~x/.hidden/..."};
    static const char *const bad[] = {"",          "a",     "//",     "/a//b",   "/./a",  "/a/..",
                                      "/%2e%2e/a", "/.%2E", "/a%2fb", "/a%5cb",  "/a\\b", "/a;b/c",
                                      "/%",        "/%zz",  "/%00",   "/a%252e", "/%0a",  "/a/%2e"};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        CHECK(credential_path_plain(good[i]));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (credential_path_plain(bad[i])) {
            TEST_FAIL("'%s' is taken for plain", bad[i]);
        }
    }
}

static struct credential make(const char *name, enum credential_scope scope, const char *host,
                              const char *path, enum credential_type type)
{
    struct credential c = {.scope = scope, .target = {.port = 443}, .inject = {.type = type}};

    snprintf(c.name, sizeof(c.name), "%s", name);
    snprintf(c.organisation, sizeof(c.organisation), ORG);
    snprintf(c.project, sizeof(c.project), "%s", scope == CREDENTIAL_ORGANISATION ? "" : PROJECT);
    snprintf(c.sandbox, sizeof(c.sandbox), "%s", scope == CREDENTIAL_SANDBOX ? SANDBOX : "");
    snprintf(c.target.host, sizeof(c.target.host), "%s", host);
    snprintf(c.target.path, sizeof(c.target.path), "%s", path);
    return c;
}

static const struct credential_request asked = {ORG, PROJECT, SANDBOX, "api.example.com",
                                                443, "GET",   "/v1/x"};

static void check_chosen(struct credential *list, size_t n, const char *want)
{
    const struct credential *all[8];
    const struct credential *chosen[8];
    char got[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        all[i] = &list[i];
    }
    n = credential_choose(all, n, &asked, chosen);
    for (size_t i = 0; i < n; i++) {
        used +=
            (size_t)snprintf(got + used, sizeof(got) - used, "%s%s", i ? " " : "", chosen[i]->name);
    }
    CHECK_STR(got, want);
}

static void the_nearest_fills_a_place_and_shadows_its_name(void)
{
    struct credential list[4] = {
        make("a", CREDENTIAL_ORGANISATION, "api.example.com", "/", CREDENTIAL_BEARER),
        make("b", CREDENTIAL_PROJECT, "*.example.com", "/", CREDENTIAL_BASIC),
        make("c", CREDENTIAL_PROJECT, "api.example.com", "/v1", CREDENTIAL_OAUTH2),
        make("a", CREDENTIAL_SANDBOX, "other.example.com", "/", CREDENTIAL_BEARER),
    };

    check_chosen(list, 1, "a");
    check_chosen(list, 2, "b");
    check_chosen(list, 3, "c");
    /* The sandbox's own "a" is for elsewhere: it hides the organisation's all the same. */
    check_chosen(list, 4, "c");
    check_chosen(list + 3, 1, "");
    snprintf(list[1].target.path, sizeof(list[1].target.path), "/v1/x");
    check_chosen(list, 3, "b");
}

static void what_is_not_in_scope_is_not_there(void)
{
    struct credential c = make("a", CREDENTIAL_SANDBOX, "api.example.com", "/", CREDENTIAL_BEARER);

    check_chosen(&c, 1, "a");
    snprintf(c.sandbox, sizeof(c.sandbox), "s3333333333333333333");
    check_chosen(&c, 1, "");
    c = make("a", CREDENTIAL_PROJECT, "api.example.com", "/", CREDENTIAL_BEARER);
    snprintf(c.project, sizeof(c.project), "p3333333333333333333");
    check_chosen(&c, 1, "");
    c = make("a", CREDENTIAL_ORGANISATION, "api.example.com", "/", CREDENTIAL_BEARER);
    snprintf(c.organisation, sizeof(c.organisation), "o3333333333333333333");
    check_chosen(&c, 1, "");
    c = make("a", CREDENTIAL_ORGANISATION, "api.example.com", "/", CREDENTIAL_BEARER);
    c.target.port = 8443;
    check_chosen(&c, 1, "");
    c.target.port = 443;
    c.target.n_methods = 1;
    snprintf(c.target.methods[0], sizeof(c.target.methods[0]), "POST");
    check_chosen(&c, 1, "");
}

static int parse(const char *text, struct credential *ret, struct err *e)
{
    cleanup_json json_t *json = NULL;
    int r = json_parse_object(text, strlen(text), &json, e);

    return r < 0 ? r : credential_from_json(json, ret, e);
}

static void json_is_checked_field_by_field(void)
{
    static const struct {
        const char *text;
        const char *field; /* NULL: it is fine */
    } cases[] = {
        {"{\"name\":\"a\",\"target\":{\"host\":\"a.com\"},\"inject\":{\"type\":\"bearer\"}}", NULL},
        {"{\"name\":\"a b\",\"target\":{\"host\":\"a.com\"},\"inject\":{\"type\":\"bearer\"}}",
         "name"},
        {"{\"name\":\"a\",\"target\":{\"host\":\"*\"},\"inject\":{\"type\":\"bearer\"}}",
         "target.host"},
        {"{\"name\":\"a\",\"target\":{\"host\":\"a.com\",\"port\":0},\"inject\":{\"type\":"
         "\"bearer\"}}",
         "port"},
        {"{\"name\":\"a\",\"target\":{\"host\":\"a.com\",\"path\":\"/a/"
         "..\"},\"inject\":{\"type\":\"bearer\"}}",
         "target.path"},
        {"{\"name\":\"a\",\"target\":{\"host\":\"a.com\",\"methods\":[\"get\"]},\"inject\":{"
         "\"type\":\"bearer\"}}",
         "target.methods"},
        {"{\"name\":\"a\",\"target\":{\"host\":\"a.com\"},\"inject\":{\"type\":\"magic\"}}",
         "inject.type"},
        {"{\"name\":\"a\",\"target\":{\"host\":\"a.com\"},\"inject\":{\"type\":\"header\",\"name\":"
         "\"Host\"}}",
         "inject.name"},
        {"{\"name\":\"a\",\"target\":{\"host\":\"a.com\"},\"inject\":{\"type\":\"header\",\"name\":"
         "\"a b\"}}",
         "inject.name"},
        {"{\"name\":\"a\",\"target\":{\"host\":\"a.com\"},\"inject\":{\"type\":\"bearer\",\"name\":"
         "\"x\"}}",
         "inject.name"},
        {"{\"name\":\"a\",\"target\":{\"host\":\"a.com\"},\"inject\":{\"type\":\"oauth2\",\"client_"
         "id\":\"x\","
         "\"token_url\":\"http://a.com/t\"}}",
         "inject.token_url"},
        {"{\"name\":\"a\",\"target\":{\"host\":\"a.com\"},\"inject\":{\"type\":\"sigv4\"}}",
         "inject.client_id"},
        {"{\"name\":\"a\",\"scope\":\"sandbox\",\"target\":{\"host\":\"a.com\"},\"inject\":{"
         "\"type\":\"bearer\"}}",
         "sandbox"},
        {"{\"name\":\"a\",\"scope\":\"world\",\"target\":{\"host\":\"a.com\"},\"inject\":{\"type\":"
         "\"bearer\"}}",
         "scope"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct credential c;
        struct err e = {0};
        const char *field = cases[i].field ? cases[i].field : "";
        int r = parse(cases[i].text, &c, &e);

        if ((r == 0) != !field[0] || (r < 0 && !str_eq(e.field, field))) {
            TEST_FAIL("%s gives %d, '%s' in '%s'", cases[i].text, r, e.msg, e.field);
        }
    }
}

static void what_is_written_is_read_back(void)
{
    struct credential c =
        make("a", CREDENTIAL_SANDBOX, "*.example.com", "/v1", CREDENTIAL_PLACEHOLDER);
    struct credential back;
    cleanup_json json_t *json = NULL;
    cleanup_json json_t *shown = NULL;
    struct err e = {0};

    snprintf(c.id, sizeof(c.id), "v2222222222222222222");
    snprintf(c.vault, sizeof(c.vault), "sealed");
    snprintf(c.ref, sizeof(c.ref), "a/b");
    c.ours = true;
    c.inject.surfaces = CREDENTIAL_IN_QUERY | CREDENTIAL_IN_BODY;
    c.expires_at_ms = 5;
    c.rate_count = 6;
    c.rate_s = 7;
    c.created_at_ms = 8;
    c.rotated_at_ms = 9;
    json = credential_json(&c, /* private */ true);
    CHECK_INT(credential_from_private(json, &back, &e), 0);
    CHECK_STR(e.msg, "");
    CHECK_MEM(&back, &c, sizeof(c));
    shown = credential_json(&c, /* private */ false);
    CHECK(!json_object_get(shown, "ref") && !json_object_get(shown, "organisation"));
}

static void values_must_fit_their_way(void)
{
    struct credential c = make("a", CREDENTIAL_PROJECT, "a.com", "/", CREDENTIAL_BEARER);

    CHECK_INT(credential_value_valid(&c, "12345678", 8, NULL), 0);
    CHECK_INT(credential_value_valid(&c, "1234567", 7, NULL), -EINVAL);
    CHECK_INT(credential_value_valid(&c, "12345678\n", 9, NULL), -EINVAL);
    CHECK_INT(credential_value_valid(&c, "1234\0678", 8, NULL), -EINVAL);
    CHECK_INT(credential_value_valid(&c, " 12345678", 9, NULL), -EINVAL);
    c.inject.type = CREDENTIAL_GITHUB_APP;
    CHECK_INT(credential_value_valid(&c, "12345678\n", 9, NULL), 0);
    c.inject.type = CREDENTIAL_COOKIE;
    CHECK_INT(credential_value_valid(&c, "1234;5678", 9, NULL), -EINVAL);
}

static struct credential webhook(const char *name, enum credential_scope scope)
{
    struct credential c = {.scope = scope,
                           .organisation = ORG,
                           .project = PROJECT,
                           .sandbox = SANDBOX,
                           .target = {.host = "approve.example.com", .port = 443, .path = "/"},
                           .inject = {.type = CREDENTIAL_WEBHOOK}};

    snprintf(c.name, sizeof(c.name), "%s", name);
    return c;
}

static void webhooks_go_into_no_request(void)
{
    const struct credential hooks[] = {webhook("b", CREDENTIAL_ORGANISATION),
                                       webhook("z", CREDENTIAL_PROJECT),
                                       webhook("y", CREDENTIAL_PROJECT)};
    const struct credential *const all[] = {&hooks[0], &hooks[1], &hooks[2]};
    const struct credential *chosen[ARRAY_SIZE(all)];
    struct credential_request q = {.organisation = ORG,
                                   .project = PROJECT,
                                   .sandbox = SANDBOX,
                                   .host = "approve.example.com",
                                   .port = 443,
                                   .method = "POST",
                                   .path = "/"};
    cleanup_json json_t *anywhere =
        json_pack("{s:s, s:{s:s}, s:{s:s}, s:s}", "name", "a", "target", "host", "*.example.com",
                  "inject", "type", "webhook", "value", "a signing key");
    struct credential c;

    CHECK_INT(credential_choose(all, ARRAY_SIZE(all), &q, chosen), 0);
    CHECK_STR(credential_webhook(all, ARRAY_SIZE(all), &q)->name, "y");
    q.project = "p3333333333333333333";
    CHECK_STR(credential_webhook(all, ARRAY_SIZE(all), &q)->name, "b");
    q.organisation = "o3333333333333333333";
    CHECK(!credential_webhook(all, ARRAY_SIZE(all), &q));
    CHECK_INT(credential_from_json(anywhere, &c, NULL), -EINVAL);
}

TEST_MAIN(T(hosts_that_may_be_named), T(wildcards_stand_for_labels_and_never_for_none),
          T(paths_that_everybody_reads_alike), T(the_nearest_fills_a_place_and_shadows_its_name),
          T(what_is_not_in_scope_is_not_there), T(json_is_checked_field_by_field),
          T(what_is_written_is_read_back), T(webhooks_go_into_no_request),
          T(values_must_fit_their_way))
