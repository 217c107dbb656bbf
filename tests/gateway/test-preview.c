/* SPDX-License-Identifier: Apache-2.0 */

/* Visitors of servers in sandboxes: who may come, what they are told, what passes. */
#include "gateway/preview.h"

#include <stdio.h>
#include <string.h>

#include "harness.h"

struct visit {
    const char *host;
    const char *name; /* of one more field; NULL: none */
    const char *value;
    const char *accept; /* NULL: none */
};

static struct answer visit(struct world *w, const struct visit *v)
{
    CLEANUP(http_headers_done) struct http_headers headers = HTTP_HEADERS_INIT;
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct http_call_opts opts = {
        .target = "/x?y", .headers = &headers, .deadline_ns = deadline_in_ms(TEST_MS)};
    struct answer a = {0};
    struct err e = {0};
    int r;

    http_headers_add(&headers, "Host", v->host);
    if (v->name) {
        http_headers_add(&headers, v->name, v->value);
    }
    if (v->accept) {
        http_headers_add(&headers, "Accept", v->accept);
    }
    r = http_call_new(w->http, &opts, &call, &e);
    r = r < 0 ? r : http_call_all(call, 1 << 20, &a.text, &a.len, &e);
    if (r < 0) {
        a.error = r;
        return a;
    }
    a.status = http_call_status(call);
    snprintf(a.type, sizeof(a.type), "%s",
             http_call_header(call, "Content-Type") ? http_call_header(call, "Content-Type") : "");
    if (json_parse_object(a.text, a.len, &a.json, NULL) < 0) {
        a.json = NULL;
    }
    return a;
}

static char *host_of(const char *id, const char *port)
{
    return xasprintf("%s-%s.space.test:7777", port, id);
}

/* One of alice's whose traffic is private. */
static void make_private(struct world *w, char ret_id[static ID_SIZE])
{
    cleanup_sandbox struct sandbox sb = {0};

    world_make(w, ALICE, ret_id);
    ASSERT(db_sandbox_get(w->db, ret_id, NULL, &sb, NULL) == 0);
    free(sb.surface);
    sb.surface =
        xstrdup("{\"network\":{\"allowPublicTraffic\":false,\"maskRequestHost\":\"me:${PORT}\"}}");
    ASSERT(db_sandbox_update(w->db, &sb, NULL, NULL) == 0);
}

static void a_visitor_needs_no_key(void)
{
    WORLD(w);
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    {
        cleanup_free char *host = host_of(id, "80");
        cleanup_answer struct answer a = visit(&w, &(struct visit){.host = host});

        CHECK_INT(a.status, 200);
        CHECK(str_starts(a.text, "GET /x?y HTTP/1.1\r\n"));
        CHECK(strstr(a.text, host));
        CHECK(strstr(a.text, "X-Forwarded-Proto: http\r\n"));
        CHECK(strstr(a.text, "X-Forwarded-For: 127.0.0.1\r\n"));
    }
}

static void secrets_do_not_pass_and_what_is_none_does(void)
{
    WORLD(w);
    cleanup_free char *bearer = NULL;
    cleanup_free char *host = NULL;
    char envd[TOKEN_SIZE];
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    host = host_of(id, "80");
    bearer = xasprintf("bearer  %s", w.keys[ALICE]);
    tokens_make(w.tokens, TOKEN_ENVD, id, envd);
    const struct {
        const char *name;
        const char *value;
        bool passes;
    } cases[] = {
        {"X-API-Key", w.keys[ALICE], false},
        {"X-API-Key", "of my own", true},
        {"Authorization", bearer, false},
        {"Authorization", "Bearer mine", true},
        {"X-Access-Token", envd, false},
        {"X-Access-Token", "mine", true},
        {"E2b-Traffic-Access-Token", "secret-1", false},
        {"Cookie", "a=b", true},
        {"X-Forwarded-For", "6.6.6.6", false},
        {"Proxy-Authorization", "secret-2", false},
        {"X-Forwarded-Host", "evil", false},
        {"Te", "trailers", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_answer struct answer a = visit(
            &w, &(struct visit){.host = host, .name = cases[i].name, .value = cases[i].value});

        CHECK_INT(a.status, 200);
        if ((strstr(a.text, cases[i].value) != NULL) != cases[i].passes) {
            TEST_FAIL("%s: %s %s", cases[i].name, cases[i].value,
                      cases[i].passes ? "does not pass" : "passes");
        }
    }
}

static void private_traffic_needs_its_token(void)
{
    WORLD(w);
    cleanup_free char *host = NULL;
    char right[TOKEN_SIZE];
    char envd[TOKEN_SIZE];
    char other[TOKEN_SIZE];
    char id[ID_SIZE];
    char neighbour[ID_SIZE];

    make_private(&w, id);
    make_private(&w, neighbour);
    host = host_of(id, "80");
    tokens_make(w.tokens, TOKEN_TRAFFIC, id, right);
    tokens_make(w.tokens, TOKEN_ENVD, id, envd);
    tokens_make(w.tokens, TOKEN_TRAFFIC, neighbour, other);
    const struct {
        const char *token;
        int status;
        const char *words;
    } cases[] = {
        {NULL, 403, "is missing"}, {"", 403, "is invalid"},    {"traffic_0", 403, "is invalid"},
        {envd, 403, "is invalid"}, {other, 403, "is invalid"}, {w.keys[ALICE], 403, "is invalid"},
        {right, 200, NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_answer struct answer a =
            visit(&w, &(struct visit){.host = host,
                                      .name = cases[i].token ? "e2b-traffic-access-token" : NULL,
                                      .value = cases[i].token});

        CHECK_INT(a.status, cases[i].status);
        if (cases[i].words) {
            CHECK(a.json && strstr(json_get_string(a.json, "message", ""), cases[i].words));
            CHECK_INT(json_get_int(a.json, "code", 0), 403);
        } else {
            CHECK(strstr(a.text, "Host: me:80\r\n")); /* the mask */
            CHECK(!strstr(a.text, right));
        }
    }
}

static void the_api_tells_the_token_to_its_owner_alone(void)
{
    WORLD(w);
    cleanup_free char *target = NULL;
    char right[TOKEN_SIZE];
    char id[ID_SIZE];

    make_private(&w, id);
    tokens_make(w.tokens, TOKEN_TRAFFIC, id, right);
    target = xasprintf("/v1/sandboxes/%s/ports/8080", id);
    {
        cleanup_answer struct answer a = alice(&w, "GET", target, NULL);
        cleanup_answer struct answer b =
            world_ask(&w, &(struct ask){.method = "GET", .target = target, .key = w.keys[BOB]});
        cleanup_free char *start = xasprintf("http://8080-%s.space.test:", id);

        CHECK_INT(a.status, 200);
        CHECK_STR(json_get_string(a.json, "token", NULL), right);
        CHECK(!json_get_bool(a.json, "public", true));
        CHECK(str_starts(json_get_string(a.json, "url", ""), start));
        CHECK_INT(b.status, 404);
        CHECK_STR(answer_code(&b), "sandbox_not_found");
    }
}

static void what_is_not_there_is_told_as_the_clients_know_it(void)
{
    WORLD(w);
    char running[ID_SIZE];
    char paused[ID_SIZE];
    char absent[ID_SIZE];

    world_make(&w, ALICE, running);
    world_make(&w, ALICE, paused);
    id_new(ID_SANDBOX, absent);
    {
        cleanup_free char *target = xasprintf("/v1/sandboxes/%s/pause", paused);
        cleanup_answer struct answer a = alice(&w, "POST", target, "{}");

        CHECK_INT(a.status, 200);
    }
    const struct {
        const char *id;
        const char *port;
        int status;
        const char *message;
        bool names_port;
    } cases[] = {
        {absent, "80", 502, "The sandbox was not found", false},
        {paused, "80", 502, "The sandbox was not found", false},
        {"nonsense", "80", 502, "The sandbox was not found", false},
        {running, "81", 502, "The sandbox is running but port is not open", true},
        {running, "429", 429, "Too many connections to the sandbox are open", false},
        {running, "25", 502, "The server in the sandbox did not answer in HTTP", true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *host = host_of(cases[i].id, cases[i].port);
        cleanup_answer struct answer a = visit(&w, &(struct visit){.host = host});
        cleanup_answer struct answer page =
            visit(&w, &(struct visit){.host = host,
                                      .accept = "text/html,application/xhtml+xml,*/*;q=0.8"});

        CHECK_INT(a.status, cases[i].status);
        CHECK_STR(a.type, "application/json");
        CHECK_STR(json_get_string(a.json, "message", NULL), cases[i].message);
        CHECK_STR(json_get_string(a.json, "sandboxId", NULL), cases[i].id);
        CHECK_INT(json_get_int(a.json, "code", 0), cases[i].status);
        CHECK((json_object_get(a.json, "port") != NULL) == cases[i].names_port);
        CHECK_INT(page.status, cases[i].status);
        CHECK_STR(page.type, "text/html; charset=utf-8");
        CHECK(strstr(page.text, cases[i].id) && strstr(page.text, "</html>"));
    }
}

static void visitors_cannot_keep_the_owner_out(void)
{
    WORLD(w);
    char project[ID_SIZE];
    char id[ID_SIZE];

    world_make(&w, ALICE, id);
    memcpy(project, w.projects[ALICE], sizeof(project));
    project[0] = 'v';
    for (int i = 0; i < AUTH_PROJECT_REQUESTS_MAX; i++) {
        CHECK_INT(auth_enter(w.gateway->auth, project, NULL), 0);
    }
    {
        cleanup_free char *host = host_of(id, "80");
        cleanup_free char *target = xasprintf("/v1/sandboxes/%s", id);
        cleanup_answer struct answer visitor = visit(&w, &(struct visit){.host = host});
        cleanup_answer struct answer owner = alice(&w, "GET", target, NULL);

        CHECK_INT(visitor.status, 429);
        CHECK_INT(owner.status, 200);
    }
    for (int i = 0; i < AUTH_PROJECT_REQUESTS_MAX; i++) {
        auth_leave(w.gateway->auth, project);
    }
}

static void policies_are_read_strictly(void)
{
    static const struct {
        const char *surface;
        bool private;
        const char *mask;
    } cases[] = {
        {NULL, false, ""},
        {"", false, ""},
        {"{}", false, ""},
        {"{\"network\":{}}", false, ""},
        {"{\"network\":{\"allowPublicTraffic\":true}}", false, ""},
        {"{\"network\":{\"allowPublicTraffic\":false}}", true, ""},
        {"{\"network\":{\"maskRequestHost\":\"localhost:${PORT}\"}}", false, "localhost:8080"},
        {"{\"network\":{\"maskRequestHost\":\"${PORT}.${PORT}.x\"}}", false, "8080.8080.x"},
        {"{\"network\":{\"maskRequestHost\":\"a b\"}}", false, ""},
        {"{\"network\":{\"maskRequestHost\":\"a\\r\\nX: y\"}}", false, ""},
        {"not json", true, ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct preview_policy p;

        preview_policy_read(cases[i].surface, 8080, &p);
        CHECK_INT(p.private, cases[i].private);
        CHECK_STR(p.mask_host, cases[i].mask);
    }
}

static void who_wants_a_page(void)
{
    CHECK(!preview_wants_page(NULL));
    CHECK(!preview_wants_page("*/*"));
    CHECK(!preview_wants_page("application/json"));
    CHECK(!preview_wants_page("application/json, text/html"));
    CHECK(preview_wants_page("text/html"));
    CHECK(preview_wants_page("text/html,application/json;q=0.9"));
}

TEST_MAIN(T(a_visitor_needs_no_key), T(secrets_do_not_pass_and_what_is_none_does),
          T(private_traffic_needs_its_token), T(the_api_tells_the_token_to_its_owner_alone),
          T(what_is_not_there_is_told_as_the_clients_know_it),
          T(visitors_cannot_keep_the_owner_out), T(policies_are_read_strictly), T(who_wants_a_page))
