/* SPDX-License-Identifier: Apache-2.0 */

/*
 * F65: what is not yours does not exist. Generated from the route table, so that a new route is covered the day it
 * is added: every route with an id, asked for the caller's own, another tenant's, a random and a deleted
 * one, with a valid, a revoked and no key. Foreign, random and deleted must give the same
 * bytes, and nothing may change for the victim.
 */
#include "gateway/bootstrap.h"
#include "harness.h"

#include <stdio.h>

/* The bytes of everything that the victim could lose. */
static void victim_hash(struct world *w, const char *id, char ret[static KEY_HASH_SIZE])
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_free char *all = NULL;
    struct api_key k = {0};
    struct project p = {0};
    char hash[KEY_HASH_SIZE];

    ASSERT(db_sandbox_get(w->db, id, NULL, &sb, NULL) == 0);
    auth_hash(w->keys[BOB], KEY_TEXT_LEN, hash);
    ASSERT(db_key_by_hash(w->db, hash, &k, NULL) == 0);
    ASSERT(db_project_get(w->db, w->projects[BOB], &p, NULL) == 0);
    all = xasprintf("%s %u %u %lld %s %s %lld %lld %s %lld", sb.id, (unsigned)sb.desired,
                    (unsigned)sb.observed, (long long)sb.generation, sb.metadata, sb.env,
                    (long long)sb.end_at_ms, (long long)k.revoked_at_ms, k.name,
                    (long long)p.max_sandboxes);
    auth_hash(all, strlen(all), ret);
}

/* The pattern with its {id}, {cid} and {snapshot} replaced. */
static char *fill(const char *pattern, const char *id, const char *cid)
{
    cleanup_buf struct buf out = BUF_INIT(4096);

    for (const char *p = pattern; *p;) {
        int r;

        if (str_starts(p, "{id}")) {
            r = buf_add_str(&out, id);
            p += 4;
        } else if (str_starts(p, "{cid}")) {
            r = buf_add_str(&out, cid);
            p += 5;
        } else if (str_starts(p, "{snapshot}")) {
            r = buf_add_str(&out, FAKE_SNAPSHOT_ID);
            p += 10;
        } else {
            r = buf_add(&out, p, 1);
            p++;
        }
        ASSERT(r == 0);
    }
    return buf_take(&out);
}

static const char *const bodies[] = {NULL,
                                     "{}",
                                     "not json",
                                     "{\"timeout_s\":5}",
                                     "{\"max_sandboxes\":1}",
                                     "{\"shell\":\"true\"}",
                                     "{\"snapshot\":\"" FAKE_SNAPSHOT_ID "\"}",
                                     "{\"count\":2}",
                                     "{\"kind\":\"full\"}",
                                     "{\"keep\":true}"};

struct ids {
    char own[ID_SIZE];
    char foreign[ID_SIZE];
    char random[ID_SIZE];
    char deleted[ID_SIZE];
};

static enum id_kind kind_of(const char *pattern)
{
    return strstr(pattern, "/keys/")       ? ID_KEY
           : strstr(pattern, "/projects/") ? ID_PROJECT
                                           : ID_SANDBOX;
}

static void key_id_of(struct world *w, enum tenant who, char ret[static ID_SIZE])
{
    struct api_key k = {0};
    char hash[KEY_HASH_SIZE];

    auth_hash(w->keys[who], KEY_TEXT_LEN, hash);
    ASSERT(db_key_by_hash(w->db, hash, &k, NULL) == 0);
    snprintf(ret, ID_SIZE, "%s", k.id);
}

static void make_ids(struct world *w, enum id_kind kind, struct ids *ret)
{
    id_new(kind, ret->random);
    id_new(
        kind,
        ret->deleted); /* projects and keys are never deleted; for those it is a second random one */
    if (kind == ID_KEY) {
        key_id_of(w, BOB, ret->foreign);
    } else if (kind == ID_PROJECT) {
        snprintf(ret->foreign, ID_SIZE, "%s", w->projects[BOB]);
    } else {
        cleanup_free char *target = NULL;
        cleanup_answer struct answer a = {0};

        world_make(w, BOB, ret->foreign);
        world_make(w, ALICE, ret->deleted);
        target = xasprintf("/v1/sandboxes/%s", ret->deleted);
        a = alice(w, "DELETE", target, NULL);
        ASSERT(a.status == 204);
    }
}

static bool has_id(const struct http_route *route)
{
    return strstr(route->pattern, "{id}") != NULL;
}

static void same_answer(const char *what, const struct answer *a, const struct answer *b)
{
    if (a->status != b->status || a->len != b->len ||
        (a->len && memcmp(a->text, b->text, a->len) != 0) || !str_eq(a->type, b->type)) {
        TEST_FAIL("%s: %d %s\n#   differs from: %d %s", what, a->status, a->text ? a->text : "",
                  b->status, b->text ? b->text : "");
    }
}

static void check_route(struct world *w, const struct http_route *route, const char *body)
{
    struct ids ids = {0};
    char cid[ID_SIZE];
    char before[KEY_HASH_SIZE];
    char after[KEY_HASH_SIZE];
    char victim[ID_SIZE];
    const char *forbidden[3] = {ids.foreign, ids.random, ids.deleted};
    /* What only operators may is refused before anything is looked for. */
    int want = route->flags & ROUTE_OPERATOR ? 403 : 404;
    struct answer answers[3] = {0};
    cleanup_free char *what =
        xasprintf("%s %s with %s", route->method, route->pattern, body ? body : "no body");

    id_new(ID_COMMAND, cid);
    world_make(w, BOB, victim);
    make_ids(w, kind_of(route->pattern), &ids);
    if (kind_of(route->pattern) == ID_SANDBOX) {
        snprintf(ids.foreign, sizeof(ids.foreign), "%s", victim);
    }
    victim_hash(w, victim, before);
    for (int i = 0; i < 3; i++) {
        cleanup_free char *target = fill(route->pattern, forbidden[i], cid);

        answers[i] = world_ask(
            w, &(struct ask){
                   .method = route->method, .target = target, .body = body, .key = w->keys[ALICE]});
        if (answers[i].status != want) {
            TEST_FAIL("%s: another's thing gives %d, not %d: %s", what, answers[i].status, want,
                      answers[i].text ? answers[i].text : "");
        }
    }
    same_answer(what, &answers[0], &answers[1]);
    same_answer(what, &answers[2], &answers[1]);
    victim_hash(w, victim, after);
    CHECK_STR(after, before);
    CHECK(fake_node_has(w->node, victim));
    for (int i = 0; i < 3; i++) {
        answer_done(&answers[i]);
    }
}

static void what_is_not_yours_does_not_exist(void)
{
    WORLD(w);
    int checked = 0;

    for (size_t i = 0; i < gateway_router.n_routes; i++) {
        const struct http_route *route = &gateway_router.routes[i];

        for (size_t b = 0; b < ARRAY_SIZE(bodies) && has_id(route); b++) {
            if (bodies[b] && (str_eq(route->method, "GET") || str_eq(route->method, "DELETE"))) {
                continue;
            }
            check_route(&w, route, bodies[b]);
            checked++;
        }
    }
    CHECK(checked > 60);
    for (enum fake_op op = FAKE_GUEST; op < FAKE_OP_COUNT_; op++) {
        CHECK_INT(fake_node_asked(w.node, op), 0); /* nothing reached any guest, nor the node */
    }
}

/* A key that never was, one that was revoked, and none: the same on every route, and never a 404. */
static void without_a_valid_key_nothing_is_said(void)
{
    WORLD(w);
    char id[ID_SIZE];
    char cid[ID_SIZE];
    char key_id[ID_SIZE];
    cleanup_free char *revoke = NULL;
    cleanup_answer struct answer revoked = {0};
    const char *const keys[] = {NULL, "", "e2b_", "e2b_0000000000000000000000000000000000000000",
                                w.keys[ALICE_MEMBER]};

    world_make(&w, ALICE, id);
    id_new(ID_COMMAND, cid);
    key_id_of(&w, ALICE_MEMBER, key_id);
    revoke = xasprintf("/v1/keys/%s", key_id);
    {
        cleanup_answer struct answer warm = world_ask(
            &w,
            &(struct ask){.method = "GET", .target = "/v1/sandboxes", .key = w.keys[ALICE_MEMBER]});

        CHECK_INT(warm.status, 200); /* it is in the cache now */
    }
    revoked = alice(&w, "DELETE", revoke, NULL);
    CHECK_INT(revoked.status, 204);
    for (size_t i = 0; i < gateway_router.n_routes; i++) {
        const struct http_route *route = &gateway_router.routes[i];
        cleanup_free char *target = fill(route->pattern, id, cid);

        if (route->flags & (ROUTE_PUBLIC | ROUTE_LOCAL)) {
            continue;
        }
        for (size_t k = 0; k < ARRAY_SIZE(keys); k++) {
            cleanup_answer struct answer a = world_ask(
                &w, &(struct ask){.method = route->method, .target = target, .key = keys[k]});

            if (a.status != 401 || !str_eq(answer_code(&a), "unauthorized")) {
                TEST_FAIL("%s %s with key '%s': %d", route->method, route->pattern,
                          keys[k] ? keys[k] : "(none)", a.status);
            }
        }
    }
    CHECK(fake_node_has(w.node, id));
    CHECK_INT(fake_node_asked(w.node, FAKE_GUEST), 0);
}

static void lists_show_only_what_is_yours(void)
{
    static const char *const lists[] = {"/v1/sandboxes", "/v1/keys", "/v1/projects", "/v1/audit"};
    WORLD(w);
    char id[ID_SIZE];
    char key_id[ID_SIZE];

    world_make(&w, BOB, id);
    key_id_of(&w, BOB, key_id);
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        cleanup_answer struct answer a = alice(&w, "GET", lists[i], NULL);

        CHECK_INT(a.status, 200);
        CHECK(strstr(a.text, id) == NULL);
        CHECK(strstr(a.text, key_id) == NULL);
        CHECK(strstr(a.text, w.projects[BOB]) == NULL);
    }
    {
        cleanup_free char *cursor = xasprintf("/v1/sandboxes?cursor=9999999999999-%s", id);
        cleanup_answer struct answer a = alice(&w, "GET", cursor, NULL);

        CHECK_STR(a.text, "{\"sandboxes\":[],\"next_cursor\":null}");
    }
}

static void project_keys_cannot_manage(void)
{
    WORLD(w);
    int refused = 0;

    for (size_t i = 0; i < gateway_router.n_routes; i++) {
        const struct http_route *route = &gateway_router.routes[i];
        cleanup_free char *target = fill(route->pattern, w.projects[ALICE], "c");

        if ((route->flags & (ROUTE_ORGANISATION | ROUTE_OPERATOR)) &&
            !(route->flags & ROUTE_LOCAL)) {
            cleanup_answer struct answer a = world_ask(
                &w, &(struct ask){
                        .method = route->method, .target = target, .key = w.keys[ALICE_MEMBER]});

            CHECK_INT(a.status, 403);
            CHECK_STR(answer_code(&a), route->flags & ROUTE_OPERATOR ? "operator_key_needed"
                                                                     : "organisation_key_needed");
            refused++;
        }
    }
    CHECK(refused >= 5);
}

#define QUOTA "{\"max_sandboxes\":7}"

/* Quotas are the operator's, whatever the organisation of the project; nobody gets there by a key or a project of its own. */
static void quotas_are_the_operators(void)
{
    static const struct {
        enum tenant who;
        const char *method;
        const char *target; /* NULL: alice's project */
        const char *body;
        int status;
    } cases[] = {
        {ALICE_MEMBER, "PATCH", NULL, QUOTA, 403},
        {ALICE, "PATCH", NULL, QUOTA, 403},
        {BOB, "PATCH", NULL, QUOTA, 403},
        {OPERATOR, "PATCH", NULL, QUOTA, 200},
        {OPERATOR, "GET", NULL, NULL, 200},
        {ALICE, "POST", "/v1/projects", "{\"name\":\"large\",\"max_sandboxes\":1001}", 403},
        {ALICE, "POST", "/v1/projects", "{\"name\":\"small\",\"max_sandboxes\":1000}", 201},
        {OPERATOR, "POST", "/v1/projects", "{\"name\":\"large\",\"max_sandboxes\":1001}", 201},
        {ALICE, "POST", "/v1/keys", "{\"name\":\"k\",\"scope\":\"operator\"}", 403},
        {ALICE, "POST", "/v1/keys", "{\"name\":\"k\",\"scope\":\"organisation\"}", 201},
        {OPERATOR, "POST", "/v1/keys", "{\"name\":\"k\",\"scope\":\"operator\"}", 201},
    };
    WORLD(w);
    cleanup_free char *project = xasprintf("/v1/projects/%s", w.projects[ALICE]);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_answer struct answer a =
            asks(&w, cases[i].who, cases[i].method, cases[i].target ? cases[i].target : project,
                 cases[i].body);

        CHECK_INT(a.status, cases[i].status);
        if (a.status == 403 && cases[i].who != ALICE_MEMBER) {
            CHECK_STR(answer_code(&a), "operator_key_needed");
        }
    }
    {
        cleanup_answer struct answer seen = alice(&w, "GET", project, NULL);

        CHECK_INT(json_get_int(seen.json, "max_sandboxes", 0), 7);
    }
}

static void an_organisation_makes_so_many_projects(void)
{
    WORLD(w);
    int status = 201;

    for (int i = 1; i <= ORGANISATION_MAX_PROJECTS; i++) { /* it has one */
        cleanup_free char *body = xasprintf("{\"name\":\"p%d\"}", i);
        cleanup_answer struct answer a = alice(&w, "POST", "/v1/projects", body);

        CHECK_INT(a.status, i < ORGANISATION_MAX_PROJECTS ? 201 : 429);
        status = a.status;
    }
    CHECK_INT(status, 429);
}

static void operators_keys_are_revoked_by_operators(void)
{
    WORLD(w);
    char key_id[ID_SIZE];
    cleanup_free char *target = NULL;
    cleanup_json json_t *key = NULL;

    ASSERT(bootstrap_run(w.db,
                         &(struct bootstrap){.organisation = "alice",
                                             .project = "default",
                                             .key_name = "op",
                                             .scope = "operator"},
                         &key, NULL) == 0);
    snprintf(key_id, sizeof(key_id), "%s", json_get_string(key, "id", ""));
    target = xasprintf("/v1/keys/%s", key_id);
    {
        cleanup_answer struct answer a = alice(&w, "DELETE", target, NULL);

        CHECK_INT(a.status, 403);
        CHECK_STR(answer_code(&a), "operator_key_needed");
    }
    {
        cleanup_answer struct answer a = world_ask(
            &w, &(struct ask){
                    .method = "DELETE", .target = target, .key = json_get_string(key, "key", "")});

        CHECK_INT(a.status, 204);
    }
}

/* Another project of the same organisation is another tenant for sandboxes. */
static void projects_of_one_organisation_are_apart(void)
{
    WORLD(w);
    char id[ID_SIZE];
    cleanup_answer struct answer project =
        alice(&w, "POST", "/v1/projects", "{\"name\":\"second\"}");
    cleanup_answer struct answer key =
        alice(&w, "POST", "/v1/keys",
              "{\"name\":\"k\",\"project\":\"second\",\"scope\":\"organisation\"}");
    cleanup_free char *target = NULL;
    cleanup_answer struct answer a = {0};

    CHECK_INT(project.status, 201);
    CHECK_INT(key.status, 201);
    world_make(&w, ALICE, id);
    target = xasprintf("/v1/sandboxes/%s", id);
    a = world_ask(&w, &(struct ask){.method = "GET",
                                    .target = target,
                                    .key = json_get_string(key.json, "key", "")});
    CHECK_INT(a.status, 404);
}

/* Revoked through another gateway: the cache must not outlive its few seconds. */
static void revocation_elsewhere_takes_effect_within_the_cache_time(void)
{
    WORLD(w);
    struct ask ask = {.method = "GET", .target = "/v1/sandboxes", .key = w.keys[ALICE_MEMBER]};
    char key_id[ID_SIZE];
    uint64_t revoked_ns;
    int status = 200;

    key_id_of(&w, ALICE_MEMBER, key_id);
    {
        cleanup_answer struct answer warm = world_ask(&w, &ask);

        CHECK_INT(warm.status, 200);
    }
    REQUIRE(db_key_revoke(w.db, key_id, 1, NULL) == 0);
    revoked_ns = clock_now_ns();
    while (status == 200 && clock_now_ns() - revoked_ns < 10 * NS_PER_S) {
        cleanup_answer struct answer a = world_ask(&w, &ask);

        status = a.status;
    }
    CHECK_INT(status, 401);
    CHECK(clock_now_ns() - revoked_ns < 5 * NS_PER_S);
}

TEST_MAIN(T(what_is_not_yours_does_not_exist), T(without_a_valid_key_nothing_is_said),
          T(lists_show_only_what_is_yours), T(project_keys_cannot_manage),
          T(projects_of_one_organisation_are_apart), T(quotas_are_the_operators),
          T(an_organisation_makes_so_many_projects), T(operators_keys_are_revoked_by_operators),
          T(revocation_elsewhere_takes_effect_within_the_cache_time))
