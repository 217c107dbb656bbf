/* SPDX-License-Identifier: Apache-2.0 */

/*
 * E2B's rules of a sandbox's network: the gateway before the fake node and a real credential manager, whose program is argv[1].
 * What the network gateway would be told is asked of the manager itself.
 */
#include "harness.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/proc.h"
#include "credential/client.h"
#include "gateway/leftovers.h"

#define NOBODY 65534

static const char *program;

#define HOST "api.example.test"
#define RULES(headers_) "\"rules\":{\"" HOST "\":[{\"transform\":{\"headers\":{" headers_ "}}}]}"
#define CREATE(network_) "{\"templateID\":\"base\",\"network\":{" network_ "}}"

struct vault_world {
    struct world w;
    char dir[40];
    struct proc proc;
    struct credential_client *client; /* owned */
};

/* fresh: the folders are not there yet. */
static void start(struct vault_world *v, bool fresh)
{
    const struct passwd *me = getpwuid(getuid());
    cleanup_free char *state = xasprintf("%s/state", v->dir);
    cleanup_free char *run = xasprintf("%s/run", v->dir);
    cleanup_free char *sockets = xasprintf("%s/credential", run);
    const char *const dirs[] = {v->dir, state, run, sockets};
    const char *argv[] = {program,     "--state-dir",    state,       "--run-dir",
                          run,         "--gateway-user", me->pw_name, "--network-user",
                          me->pw_name, "--user",         "nobody",    NULL};

    for (size_t i = 0; fresh && i < ARRAY_SIZE(dirs); i++) {
        ASSERT(i == 0 || mkdir(dirs[i], 0755) == 0);
        ASSERT(chmod(dirs[i], 0755) == 0);
        ASSERT(getuid() != 0 || chown(dirs[i], NOBODY, NOBODY) == 0);
    }
    ASSERT(chmod(state, 0700) == 0);
    if (getuid() != 0) {
        argv[ARRAY_SIZE(argv) - 3] = NULL;
    }
    ASSERT(proc_spawn(
               &(struct proc_spec){
                   .argv = argv, .stdin_fd = FD_NONE, .stdout_fd = FD_NONE, .stderr_fd = FD_NONE},
               &v->proc, NULL) == 0);
}

static void vault_world_init(struct vault_world *v)
{
    uint64_t deadline_ns = deadline_in_ms(TEST_MS);
    cleanup_free char *url = NULL;
    json_t *answer = NULL;

    world_init(&v->w);
    snprintf(v->dir, sizeof(v->dir), "/tmp/space-rules-XXXXXX");
    ASSERT(mkdtemp(v->dir));
    url = xasprintf("unix:%s/run/" CREDENTIAL_SOCKET, v->dir);
    ASSERT(credential_client_new(url, &v->client, NULL) == 0);
    start(v, /* fresh */ true);
    while (credential_client_call(v->client, "GET", "/v1/verify", NULL, &answer, NULL) < 0) {
        ASSERT(!deadline_passed(deadline_ns));
        usleep(10000);
    }
    json_decref(answer);
    v->w.gateway->credentials = v->client;
}

static void vault_world_done(struct vault_world *v)
{
    cleanup_close int fd = fs_open("/tmp", O_RDONLY | O_DIRECTORY, 0);
    int status = -1;

    v->w.gateway->credentials = NULL;
    credential_client_free(v->client);
    proc_signal(&v->proc, SIGTERM);
    ASSERT(proc_wait(&v->proc, deadline_in_ms(TEST_MS), &status) == 0);
    CHECK_INT(status, 0);
    ASSERT(fs_remove_tree(fd, v->dir + strlen("/tmp/")) == 0);
    world_done(&v->w);
}

#define VAULT_WORLD(v_) \
    CLEANUP(vault_world_done) struct vault_world v_; \
    vault_world_init(&v_)

static int make(struct vault_world *v, const char *body, char ret[static ID_SIZE])
{
    cleanup_answer struct answer a = alice(&v->w, "POST", "/v2/sandboxes", body);

    snprintf(ret, ID_SIZE, "%s", json_get_string(a.json, "sandboxID", ""));
    CHECK(!a.text || (!strstr(a.text, "secret-") && !strstr(a.text, "hidden")));
    return a.status;
}

static int change(struct vault_world *v, const char *id, const char *network)
{
    cleanup_free char *target = xasprintf("/sandboxes/%s/network", id);
    cleanup_answer struct answer a = alice(&v->w, "PUT", target, network);

    return a.status;
}

/* "Name: value" of each header that a request of the sandbox to the host gets, one a line. */
static void check_injected(struct vault_world *v, const char *sandbox, const char *host,
                           const char *want)
{
    struct credential_ask ask = {.q = {.project = v->w.projects[ALICE],
                                       .sandbox = sandbox,
                                       .host = host,
                                       .port = 443,
                                       .method = "GET",
                                       .path = "/"}};
    cleanup_buf struct buf got = BUF_INIT(65536);
    cleanup_plan struct plan plan = {0};
    struct project project;

    ASSERT(db_project_get(v->w.db, v->w.projects[ALICE], &project, NULL) == 0);
    ask.q.organisation = project.organisation;
    CHECK_INT(credential_client_use(v->client, &ask, deadline_in_ms(TEST_MS), &plan, NULL), 0);
    for (size_t i = 0; i < plan.n; i++) {
        CHECK_INT(buf_printf(&got, "%s: %s\n", plan.v[i].name, plan.v[i].value), 0);
    }
    CHECK_STR(buf_str(&got), want);
}

static size_t n_credentials(struct vault_world *v)
{
    cleanup_answer struct answer list = alice(&v->w, "GET", "/v1/credentials", NULL);

    CHECK_INT(list.status, 200);
    return json_array_size(json_object_get(list.json, "credentials"));
}

static void from_create_to_kill(void)
{
    char id[ID_SIZE];
    char other[ID_SIZE];
    cleanup_free char *target = NULL;
    VAULT_WORLD(v);

    CHECK_INT(make(&v, CREATE(RULES("\"X-Key\":\"secret-one\"")), id), 201);
    CHECK_INT(make(&v, "{\"templateID\":\"base\"}", other), 201);
    check_injected(&v, id, HOST, "X-Key: secret-one\n");
    check_injected(&v, id, "example.test", "");
    check_injected(&v, other, HOST, "");
    CHECK_INT(change(&v, id, "{" RULES("\"X-Key\":\"secret-two\"") "}"), 204);
    check_injected(&v, id, HOST, "X-Key: secret-two\n");
    CHECK_INT(n_credentials(&v), 1);
    CHECK_INT(change(&v, id, "{}"), 204); /* it replaces all of it */
    check_injected(&v, id, HOST, "");
    CHECK_INT(n_credentials(&v), 0);
    CHECK_INT(change(&v, id, "{" RULES("\"X-Key\":\"secret-two\"") "}"), 204);
    target = xasprintf("/sandboxes/%s", id);
    {
        cleanup_answer struct answer gone = alice(&v.w, "DELETE", target, NULL);

        CHECK_INT(gone.status, 204);
    }
    CHECK_INT(n_credentials(&v), 0);
}

/* One that ended by itself left them. Those of the living, and of other scopes, are let be. */
static void what_is_left_goes_by_itself(void)
{
    char id[ID_SIZE];
    char next[ID_SIZE];
    cleanup_free char *target = NULL;
    size_t n = 0;
    VAULT_WORLD(v);

    CHECK_INT(make(&v, CREATE(RULES("\"X-Key\":\"secret-one\"")), id), 201);
    target = xasprintf("/v1/sandboxes/%s", id);
    {
        cleanup_answer struct answer gone = alice(&v.w, "DELETE", target, NULL);
        cleanup_answer struct answer own =
            alice(&v.w, "POST", "/v1/credentials",
                  "{\"name\":\"mine\",\"target\":{\"host\":\"" HOST "\"},"
                  "\"inject\":{\"type\":\"bearer\"},\"value\":\"secret-mine\"}");

        CHECK_INT(gone.status, 204);
        CHECK_INT(own.status, 201);
    }
    CHECK_INT(make(&v, CREATE(RULES("\"X-Key\":\"secret-two\"")), next), 201);
    CHECK_INT(n_credentials(&v), 3);
    CHECK_INT(leftovers_remove(v.w.db, v.client, &n, NULL), 0);
    CHECK_INT(n, 1);
    CHECK_INT(n_credentials(&v), 2);
    check_injected(&v, next, HOST, "X-Key: secret-two\nAuthorization: Bearer secret-mine\n");
    /* Its time is over. */
    world_advance_ms(&v.w, 400000);
    CHECK_INT(world_expire(&v.w), 0);
    CHECK_INT(world_rows(&v.w), 0);
    CHECK_INT(leftovers_remove(v.w.db, v.client, &n, NULL), 0);
    CHECK_INT(n, 1);
    CHECK_INT(leftovers_remove(v.w.db, v.client, &n, NULL), 0);
    CHECK_INT(n, 0);
    CHECK_INT(n_credentials(&v), 1);
}

#define FILLED "\"X-Key\":\"Bearer ${e2b.secrets.openai}\""

static int secret(struct vault_world *v, const char *method, const char *which, const char *body,
                  json_t **ret)
{
    cleanup_free char *target = xasprintf("/secrets%s%s", which[0] ? "/" : "", which);
    cleanup_answer struct answer a = alice(&v->w, method, target, body);

    CHECK(!a.text || !strstr(a.text, "hidden"));
    if (ret) {
        *ret = json_incref(a.json);
    }
    return a.status;
}

static void secrets_live(void)
{
    cleanup_json json_t *made = NULL;
    cleanup_json json_t *now = NULL;
    cleanup_json json_t *list = NULL;
    const char *id;
    VAULT_WORLD(v);

    CHECK_INT(secret(&v, "POST", "",
                     "{\"name\":\"OpenAI\",\"value\":\"hidden-one\",\"metadata\":{\"a\":\"b\"}}",
                     &made),
              201);
    id = json_get_string(made, "secretID", "");
    CHECK_STR(json_get_string(made, "name", ""), "openai");
    CHECK_INT(json_get_int(made, "currentVersion", 0), 1);
    CHECK_STR(json_get_string(json_object_get(made, "metadata"), "a", ""), "b");
    CHECK_INT(secret(&v, "POST", "", "{\"name\":\"openai\",\"value\":\"hidden-two\"}", NULL), 409);
    CHECK_INT(secret(&v, "GET", id, NULL, NULL), 200);
    CHECK_INT(secret(&v, "POST", "openai", "{\"value\":\"hidden-three\"}", NULL), 200);
    CHECK_INT(secret(&v, "POST", id, "{\"value\":\"hidden-four\",\"metadata\":{}}", &now), 200);
    CHECK_INT(json_get_int(now, "currentVersion", 0), 3);
    CHECK_STR(json_get_string(now, "createdAt", "-"), json_get_string(made, "createdAt", ""));
    CHECK_INT(json_object_size(json_object_get(now, "metadata")), 0);
    CHECK_INT(secret(&v, "GET", "", NULL, &list), 200);
    CHECK_INT(json_array_size(list), 1);
    CHECK(json_equal(json_array_get(list, 0), now));
    {
        cleanup_answer struct answer others = asks(&v.w, BOB, "GET", "/secrets/openai", NULL);
        cleanup_answer struct answer none = asks(&v.w, BOB, "GET", "/secrets", NULL);

        CHECK_INT(others.status, 404);
        CHECK_INT(json_array_size(none.json), 0);
    }
    CHECK_INT(secret(&v, "DELETE", "openai", NULL, NULL), 204);
    CHECK_INT(secret(&v, "DELETE", "openai", NULL, NULL), 404);
    CHECK_INT(secret(&v, "GET", id, NULL, NULL), 404);
    CHECK_INT(secret(&v, "POST", id, "{\"value\":\"hidden-five\"}", NULL), 404);
}

static void wrong_secrets_are_refused(void)
{
    static const char *const bad[] = {
        "{}",
        "{\"name\":\"a\"}",
        "{\"name\":\"a\",\"value\":5}",
        "{\"name\":\"a\",\"value\":\"short\"}",
        "{\"name\":\"a\",\"value\":\"a \\u0000 within\"}",
        "{\"name\":\"a b\",\"value\":\"hidden-one\"}",
        "{\"name\":\"sec_a\",\"value\":\"hidden-one\"}",
        "{\"name\":\"\",\"value\":\"hidden-one\"}",
        "{\"name\":\"a\",\"value\":\"hidden-one\",\"metadata\":5}",
        "{\"name\":\"a\",\"value\":\"hidden-one\",\"metadata\":{\"a\":1}}",
    };
    VAULT_WORLD(v);

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (secret(&v, "POST", "", bad[i], NULL) != 400) {
            TEST_FAIL("%s is not refused", bad[i]);
        }
    }
    CHECK_INT(secret(&v, "POST", "", "{\"name\":\"a\",\"value\":\"hidden-one\",\"team\":1}", NULL),
              201); /* what is not known is ignored */
    CHECK_INT(secret(&v, "POST", "a", "{\"value\":\"short\"}", NULL), 400);
    CHECK_INT(secret(&v, "GET", "a/b", NULL, NULL), 404);
}

static void the_list_of_secrets_has_pages(void)
{
    VAULT_WORLD(v);

    for (unsigned i = 0; i < 5; i++) {
        cleanup_free char *body =
            xasprintf("{\"name\":\"n%u\",\"value\":\"hidden-one\"}", (i * 3) % 5);

        CHECK_INT(secret(&v, "POST", "", body, NULL), 201);
    }
    {
        cleanup_answer struct answer first = alice(&v.w, "GET", "/secrets?limit=3", NULL);
        cleanup_answer struct answer rest =
            alice(&v.w, "GET", "/secrets?limit=3&nextToken=n2", NULL);
        cleanup_answer struct answer wrong = alice(&v.w, "GET", "/secrets?limit=0", NULL);
        cleanup_answer struct answer strange = alice(&v.w, "GET", "/secrets?nextToken=*", NULL);

        CHECK_INT(json_array_size(first.json), 3);
        CHECK_STR(json_get_string(json_array_get(first.json, 2), "name", ""), "n2");
        CHECK_INT(json_array_size(rest.json), 2);
        CHECK_STR(json_get_string(json_array_get(rest.json, 0), "name", ""), "n3");
        CHECK_INT(wrong.status, 400);
        CHECK_INT(strange.status, 400);
    }
}

/* A secret reaches requests by way of rules, as it is at that moment. */
static void secrets_are_filled_into_headers(void)
{
    char id[ID_SIZE];
    VAULT_WORLD(v);

    CHECK_INT(make(&v, CREATE(RULES(FILLED)), id), 400); /* there is none of that name yet */
    CHECK_INT(secret(&v, "POST", "", "{\"name\":\"openai\",\"value\":\"hidden-one\"}", NULL), 201);
    CHECK_INT(make(&v, CREATE(RULES(FILLED)), id), 201);
    check_injected(&v, id, HOST, "X-Key: Bearer hidden-one\n");
    CHECK_INT(secret(&v, "POST", "openai", "{\"value\":\"hidden-two\"}", NULL), 200);
    check_injected(&v, id, HOST, "X-Key: Bearer hidden-two\n");
    /* A value that the header could not carry is not taken, and the one before stays. */
    CHECK_INT(secret(&v, "POST", "openai", "{\"value\":\"hidden\\nthree\"}", NULL), 400);
    check_injected(&v, id, HOST, "X-Key: Bearer hidden-two\n");
    CHECK_INT(secret(&v, "DELETE", "openai", NULL, NULL), 204);
    {
        struct credential_ask ask = {.q = {.project = v.w.projects[ALICE],
                                           .sandbox = id,
                                           .host = HOST,
                                           .port = 443,
                                           .method = "GET",
                                           .path = "/"}};
        cleanup_plan struct plan plan = {0};
        struct project project;
        struct err e = {0};

        ASSERT(db_project_get(v.w.db, v.w.projects[ALICE], &project, NULL) == 0);
        ask.q.organisation = project.organisation;
        CHECK(credential_client_use(v.client, &ask, deadline_in_ms(TEST_MS), &plan, &e) < 0);
        CHECK_STR(e.reason, "secret_not_found");
    }
}

static void what_cannot_be_filled_in_is_refused(void)
{
    static const char *const bad[] = {
        CREATE(RULES("\"X-Key\":\"${e2b.secrets.openai} and more\"")),
        CREATE(RULES("\"X-Key\":\"${e2b.secrets.openai}${e2b.secrets.openai}\"")),
        CREATE(RULES("\"X-Key\":\"${e2b.secrets.openai\"")),
        CREATE(RULES("\"X-Key\":\"${e2b.secrets.}\"")),
        CREATE(RULES("\"X-Key\":\"${e2b.secrets.other}\"")),
        CREATE(RULES("\"X-Key\":\"${e2b.identity.tokens.aws}\"")),
        CREATE(RULES("\"X-Key\":\"a\\n${e2b.secrets.openai}\"")),
    };
    char id[ID_SIZE];
    VAULT_WORLD(v);

    CHECK_INT(secret(&v, "POST", "", "{\"name\":\"openai\",\"value\":\"hidden-one\"}", NULL), 201);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (make(&v, bad[i], id) != 400) {
            TEST_FAIL("%s is not refused", bad[i]);
        }
    }
    CHECK_INT(n_credentials(&v), 0);
    CHECK_INT(world_rows(&v.w), 0);
}

/* They are there after the manager has started anew. */
static void secrets_stay(void)
{
    uint64_t deadline_ns = deadline_in_ms(TEST_MS);
    int status = -1;
    VAULT_WORLD(v);

    CHECK_INT(secret(&v, "POST", "", "{\"name\":\"openai\",\"value\":\"hidden-one\"}", NULL), 201);
    CHECK_INT(secret(&v, "POST", "openai", "{\"value\":\"hidden-two\"}", NULL), 200);
    proc_signal(&v.proc, SIGTERM);
    ASSERT(proc_wait(&v.proc, deadline_ns, &status) == 0);
    start(&v, /* fresh */ false);
    {
        char id[ID_SIZE];
        int made = make(&v, CREATE(RULES(FILLED)), id);

        while (made == 503 && !deadline_passed(deadline_ns)) {
            usleep(10000);
            made = make(&v, CREATE(RULES(FILLED)), id);
        }
        CHECK_INT(made, 201);
        check_injected(&v, id, HOST, "X-Key: Bearer hidden-two\n");
    }
}

static void there_are_no_volumes(void)
{
    VAULT_WORLD(v);
    cleanup_answer struct answer list = alice(&v.w, "GET", "/volumes", NULL);
    cleanup_answer struct answer made = alice(&v.w, "POST", "/volumes", "{\"name\":\"v\"}");
    cleanup_answer struct answer one = alice(&v.w, "GET", "/volumes/v", NULL);

    CHECK_INT(list.status, 200);
    CHECK_INT(json_array_size(list.json), 0);
    CHECK_INT(made.status, 501);
    CHECK(strstr(json_get_string(made.json, "message", ""), "not supported"));
    CHECK_INT(json_get_int(made.json, "code", 0), 501);
    CHECK_INT(one.status, 404);
}

static void what_cannot_be_kept_is_refused(void)
{
    static const char *const bad[] = {
        CREATE(RULES("\"X-Key\":\"short\"")),
        CREATE(RULES("\"X-Key\":5")),
        CREATE(RULES("\"X Key\":\"long enough\"")),
        CREATE(RULES("\"Host\":\"long enough\"")),
        CREATE(RULES("\"X-Key\":\"long\\nenough\"")),
        CREATE("\"rules\":{\"a b\":[{\"transform\":{\"headers\":{\"X\":\"long enough\"}}}]}"),
        CREATE("\"rules\":{\"1.2.3.4/8\":[{\"transform\":{\"headers\":{\"X\":\"long enough\"}}}]}"),
        CREATE("\"rules\":{\"" HOST "\":[{},{}]}"),
        CREATE("\"rules\":{\"" HOST "\":{}}"),
        CREATE("\"rules\":{\"" HOST "\":[5]}"),
        CREATE("\"rules\":{\"" HOST "\":[{\"transform\":5}]}"),
        CREATE("\"rules\":[]"),
    };
    char id[ID_SIZE];
    VAULT_WORLD(v);

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (make(&v, bad[i], id) != 400) {
            TEST_FAIL("%s is not refused", bad[i]);
        }
    }
    CHECK_INT(fake_node_made(v.w.node), 0);
    CHECK_INT(make(&v, CREATE("\"rules\":{}"), id), 201);
    CHECK_INT(make(&v, CREATE("\"rules\":{\"" HOST "\":[]}"), id), 201);
    CHECK_INT(change(&v, id, "{" RULES("\"X-Key\":\"short\"") "}"), 400);
    CHECK_INT(n_credentials(&v), 0);
}

static void without_a_credential_manager_nothing_is_made(void)
{
    char id[ID_SIZE];
    VAULT_WORLD(v);

    v.w.gateway->credentials = NULL;
    CHECK_INT(make(&v, CREATE(RULES("\"X-Key\":\"secret-one\"")), id), 503);
    CHECK_INT(world_rows(&v.w), 0);
    CHECK_INT(make(&v, "{\"templateID\":\"base\"}", id), 201);
    CHECK_INT(change(&v, id, "{" RULES("\"X-Key\":\"secret-one\"") "}"), 503);
    CHECK_INT(change(&v, id, "{}"), 204);
}

static const struct test_case cases[] = {
    T(from_create_to_kill),
    T(what_is_left_goes_by_itself),
    T(what_cannot_be_kept_is_refused),
    T(secrets_live),
    T(wrong_secrets_are_refused),
    T(the_list_of_secrets_has_pages),
    T(secrets_are_filled_into_headers),
    T(what_cannot_be_filled_in_is_refused),
    T(secrets_stay),
    T(there_are_no_volumes),
    T(without_a_credential_manager_nothing_is_made),
};

int main(int argc, char **argv)
{
    program = argc > 1 ? argv[1] : NULL;
    ASSERT(program);
    return test_run_all(cases, ARRAY_SIZE(cases), argc - 1, argv + 1); /* the first is ours */
}
