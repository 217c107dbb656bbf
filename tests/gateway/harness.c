/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/proc.h"
#include "database/driver.h"
#include "database/postgres-testbed.h"
#include "gateway/bootstrap.h"
#include "http/tls.h"

/* --- a driver that can fail --- */

static struct {
    pthread_mutex_t mutex;
    char prefix[64];
    int nth;   /* fails when it reaches 0 */
    int after; /* rows before they break off; -1: the statement itself fails */
} fault = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct db_driver failing;
static struct postgres_testbed *bed; /* ends with the program */

static void end_server(void)
{
    postgres_testbed_free(bed);
}

bool world_can_share(void)
{
    const char *product = getenv("TEST_DATABASE");

    if (!product || str_eq(product, "sqlite")) {
        return false;
    }
    ASSERT(str_eq(product, "postgresql"));
    if (!bed) {
        bed = postgres_testbed_new();
        ASSERT(bed); /* whoever asks for it has to install it: tools/deps test */
        atexit(end_server);
    }
    return true;
}

static const struct db_driver *base_driver(void)
{
    return world_can_share() ? &db_driver_postgres : &db_driver_sqlite;
}

struct watched_rows {
    struct db_rows *rows;
    int left; /* -1: all */
};
static __thread struct watched_rows watched;

static int failing_query(struct db_conn *conn, const struct db_query *q, struct db_rows **ret,
                         struct err *e)
{
    bool fail = false;
    int after = -1;
    int r;

    pthread_mutex_lock(&fault.mutex);
    if (fault.prefix[0] && str_starts(q->sql, fault.prefix) && --fault.nth == 0) {
        fault.prefix[0] = '\0';
        fail = true;
        after = fault.after;
    }
    pthread_mutex_unlock(&fault.mutex);
    if (fail && after < 0) {
        return err_set(e, -EBUSY, "database_error", "the test says that the database is locked");
    }
    r = base_driver()->query(conn, q, ret, e);
    if (r == 0 && fail) {
        watched = (struct watched_rows){*ret, after};
    }
    return r;
}

static int failing_next(struct db_rows *rows, struct err *e)
{
    if (watched.rows == rows && watched.left-- == 0) {
        watched.rows = NULL;
        return err_set(e, -EIO, "database_error", "the test says that the rows broke off");
    }
    return base_driver()->next(rows, e);
}

static void arm(const char *prefix, int nth, int after)
{
    pthread_mutex_lock(&fault.mutex);
    snprintf(fault.prefix, sizeof(fault.prefix), "%s", prefix ? prefix : "");
    fault.nth = nth;
    fault.after = after;
    pthread_mutex_unlock(&fault.mutex);
}

void world_fail_sql(const char *prefix, int nth)
{
    arm(prefix, nth, -1);
}

void world_break_rows(const char *prefix, int after)
{
    arm(prefix, 1, after);
}

/* --- the world --- */

static int64_t world_now(void *ctx)
{
    struct world *w = ctx;

    return __atomic_load_n(&w->now_ms, __ATOMIC_SEQ_CST);
}

int world_expire(struct world *w)
{
    return control_expire(w->control, /* e */ NULL);
}

void world_advance_ms(struct world *w, int64_t ms)
{
    __atomic_add_fetch(&w->now_ms, ms, __ATOMIC_SEQ_CST);
}

static void *serve(void *arg)
{
    ASSERT(http_server_run(arg, NULL) == 0);
    return NULL;
}

static void start_gateway(struct world *w)
{
    struct http_server_opts opts = {.handler = gateway_handle,
                                    .done = gateway_done,
                                    .name = "space-gateway",
                                    .drain_timeout_ms = 1};
    cleanup_free char *node_url = w->client_tls ? xasprintf("https://127.0.0.1:%u", w->node_port)
                                                : xasprintf("unix:%s", w->socket);
    struct gateway_opts gateway_opts = {0};
    char url[64];

    if (!failing.query) { /* a first gateway may be using it */
        failing = *base_driver();
        failing.query = failing_query;
        failing.next = failing_next;
    }
    ASSERT(db_open_driver(&failing, strchr(w->url, ':') + 1, &w->db, NULL) == 0);
    ASSERT(fleet_new(&(struct fleet_opts){.home = "local", .url = node_url, .tls = w->client_tls},
                     &w->fleet, NULL) == 0);
    w->control = control_new(
        &(struct control_opts){.db = w->db, .fleet = w->fleet, .now_ms = world_now, .now_ctx = w});
    ASSERT(control_share(w->control, NULL) == 0);
    gateway_opts.db = w->db;
    gateway_opts.fleet = w->fleet;
    gateway_opts.control = w->control;
    ASSERT(tokens_open(w->dir, &w->tokens, NULL) == 0);
    ASSERT(!db_shared(w->db) || tokens_share(w->tokens, w->db, NULL) == 0);
    gateway_opts.tokens = w->tokens;
    gateway_opts.state_dir = w->dir;
    gateway_opts.domain = "space.test";
    gateway_opts.limit = w->limit;
    ASSERT(gateway_new(&gateway_opts, &w->gateway, NULL) == 0);
    opts.ctx = w->gateway;
    w->server = http_server_new(&opts);
    ASSERT(http_server_listen_tcp(w->server, "127.0.0.1:0", NULL) == 0);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", http_server_port(w->server));
    ASSERT(pthread_create(&w->thread, NULL, serve, w->server) == 0);
    ASSERT(http_client_new(url, NULL, &w->http, NULL) == 0);
}

static void stop_gateway(struct world *w)
{
    http_client_free(w->http);
    http_server_stop(w->server);
    pthread_join(w->thread, NULL);
    http_server_free(w->server);
    gateway_free(w->gateway);
    tokens_free(w->tokens);
    control_free(w->control);
    fleet_free(w->fleet);
    db_free(w->db);
}

static void make_tenant(struct world *w, enum tenant who, const char *organisation,
                        const char *scope)
{
    struct bootstrap what = {
        .organisation = organisation, .project = "default", .key_name = "test", .scope = scope};
    cleanup_json json_t *key = NULL;

    ASSERT(bootstrap_run(w->db, &what, &key, NULL) == 0);
    snprintf(w->keys[who], sizeof(w->keys[who]), "%s", json_get_string(key, "key", ""));
    snprintf(w->projects[who], sizeof(w->projects[who]), "%s", json_get_string(key, "project", ""));
}

/* As an operator makes them. */
static void make_certificates(const char *dir)
{
    const char *const gateway[] = {SPACE_TEST_CERTIFICATES, dir, "gateway", NULL};
    const char *const node[] = {SPACE_TEST_CERTIFICATES, dir, "node", "127.0.0.1", NULL};
    const char *const *const calls[] = {gateway, node};

    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        struct proc_spec spec = {
            .argv = calls[i], .stdin_fd = FD_NONE, .stdout_fd = 2, .stderr_fd = 2};
        struct proc p;
        int status = -1;

        ASSERT(proc_spawn(&spec, &p, NULL) == 0);
        ASSERT(proc_wait(&p, deadline_in_ms(TEST_MS), &status) == 0 && status == 0);
        fd_close(p.pidfd);
    }
}

static struct http_tls *open_tls(const char *dir, const char *name, bool client)
{
    cleanup_free char *cert = xasprintf("%s/%s.pem", dir, name);
    cleanup_free char *key = xasprintf("%s/%s-key.pem", dir, name);
    cleanup_free char *ca = xasprintf("%s/ca.pem", dir);
    struct http_tls *tls = NULL;

    ASSERT(http_tls_open(&(struct http_tls_opts){.cert_file = cert,
                                                 .key_file = key,
                                                 .ca_file = ca,
                                                 .peer = client ? NULL : "space-gateway",
                                                 .client = client},
                         &tls, NULL) == 0);
    return tls;
}

void world_start_node(struct world *w)
{
    w->node = fake_node_start_tls(w->socket, w->node_tls, &w->node_port);
}

void world_stop_node(struct world *w)
{
    fake_node_stop(TAKE_PTR(w->node));
}

static void make_place(struct world *w)
{
    *w = (struct world){.now_ms = 1000000000000};
    snprintf(w->dir, sizeof(w->dir), "/tmp/space-gateway-XXXXXX");
    ASSERT(mkdtemp(w->dir));
}

void world_init(struct world *w)
{
    arm(NULL, 0, 0);
    setenv("SPACE_LOG", getenv("TEST_LOG") ? getenv("TEST_LOG") : "error", 1);
    log_init("test");
    make_place(w);
    snprintf(w->socket, sizeof(w->socket), "%s/node.sock", w->dir);
    if (world_can_share()) {
        postgres_testbed_database(bed, w->url);
    } else {
        snprintf(w->url, sizeof(w->url), "sqlite:%s/space.db", w->dir);
    }
    if (str_eq(getenv("TEST_NODE") ? getenv("TEST_NODE") : "", "tls")) {
        make_certificates(w->dir);
        w->node_tls = open_tls(w->dir, "127.0.0.1", /* client */ false);
        w->client_tls = open_tls(w->dir, "gateway", /* client */ true);
    }
    world_start_node(w);
    start_gateway(w);
    make_tenant(w, ALICE, "alice", "organisation");
    make_tenant(w, BOB, "bob", "organisation");
    make_tenant(w, ALICE_MEMBER, "alice", "project");
    make_tenant(w, OPERATOR, "operators", "operator");
}

static void share_with(struct world *w, const struct world *first)
{
    memcpy(w->url, first->url, sizeof(w->url));
    memcpy(w->keys, first->keys, sizeof(w->keys));
    memcpy(w->projects, first->projects, sizeof(w->projects));
    start_gateway(w);
}

void world_init_second(struct world *w, const struct world *first)
{
    make_place(w);
    memcpy(w->socket, first->socket, sizeof(w->socket));
    share_with(w, first);
}

void world_init_second_apart(struct world *w, const struct world *first)
{
    make_place(w);
    snprintf(w->socket, sizeof(w->socket), "%s/node.sock", w->dir);
    world_start_node(w);
    share_with(w, first);
}

void world_done(struct world *w)
{
    cleanup_close int tmp_fd = FD_NONE;

    stop_gateway(w);
    if (w->node) {
        fake_node_stop(w->node);
    }
    http_tls_free(w->node_tls);
    http_tls_free(w->client_tls);
    tmp_fd = fs_open("/tmp", O_RDONLY | O_DIRECTORY, 0);
    ASSERT(tmp_fd >= 0);
    ASSERT(fs_remove_tree(tmp_fd, w->dir + 5) == 0);
}

void world_restart_gateway(struct world *w)
{
    stop_gateway(w);
    start_gateway(w);
}

/* --- asking --- */

void answer_done(struct answer *a)
{
    free(a->text);
    json_decref(a->json);
    *a = (struct answer){0};
}

static void copy_header(struct http_call *call, const char *name, char *ret, size_t size)
{
    const char *value = http_call_header(call, name);

    snprintf(ret, size, "%s", value ? value : "");
}

struct answer world_ask(struct world *w, const struct ask *ask)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct http_headers headers = HTTP_HEADERS_INIT;
    struct answer a = {0};
    struct http_call_opts opts = {
        .method = ask->method,
        .target = ask->target,
        .headers = &headers,
        .body_length = ask->body ? (int64_t)strlen(ask->body) : 0,
        .content_type = ask->body ? "application/json" : NULL,
        .deadline_ns = deadline_in_ms(TEST_MS),
        .watch = ask->watch,
    };
    int r;

    if (ask->key) {
        http_headers_add(&headers, "X-API-Key", ask->key);
    }
    if (ask->idempotency_key) {
        http_headers_add(&headers, "Idempotency-Key", ask->idempotency_key);
    }
    if (ask->accept) {
        http_headers_add(&headers, "Accept", ask->accept);
    }
    r = http_call_new(w->http, &opts, &call, NULL);
    if (r == 0 && ask->body && ask->body[0]) {
        r = http_call_write(call, ask->body, strlen(ask->body), NULL);
        r = r < 0 ? r : http_call_end(call, NULL);
    }
    if (r == 0) {
        r = http_call_head(call, NULL);
    }
    if (r == 0) {
        a.status = http_call_status(call);
        copy_header(call, "X-Request-Id", a.request_id, sizeof(a.request_id));
        copy_header(call, "Content-Type", a.type, sizeof(a.type));
        copy_header(call, "Retry-After", a.retry_after, sizeof(a.retry_after));
        a.replayed = http_call_header(call, "Idempotent-Replayed") != NULL;
        r = http_call_all(call, 64u << 20, &a.text, &a.len, NULL);
    }
    a.error = r;
    if (r == 0 && a.len > 0) {
        IGNORE_RESULT(json_parse_any(a.text, a.len, &a.json, NULL)); /* not every answer is JSON */
    }
    http_headers_done(&headers);
    return a;
}

static void *ask_thread(void *arg)
{
    struct running *r = arg;

    r->answer = world_ask(r->w, &r->ask);
    return NULL;
}

void ask_start(struct running *r, struct world *w, const struct ask *ask)
{
    *r = (struct running){.w = w, .ask = *ask};
    ASSERT(pthread_create(&r->thread, NULL, ask_thread, r) == 0);
}

void ask_join(struct running *r)
{
    ASSERT(pthread_join(r->thread, NULL) == 0);
}

struct answer asks(struct world *w, enum tenant who, const char *method, const char *target,
                   const char *body)
{
    return world_ask(
        w, &(struct ask){.method = method, .target = target, .body = body, .key = w->keys[who]});
}

struct answer alice(struct world *w, const char *method, const char *target, const char *body)
{
    return asks(w, ALICE, method, target, body);
}

const char *answer_code(const struct answer *a)
{
    return json_get_string(json_object_get(a->json, "error"), "code", "");
}

void world_make(struct world *w, enum tenant who, char ret_id[static ID_SIZE])
{
    cleanup_answer struct answer a = world_ask(
        w, &(struct ask){
               .method = "POST", .target = "/v1/sandboxes", .body = "{}", .key = w->keys[who]});

    if (a.status != 201) {
        printf("# %d %s\n", a.status, a.text ? a.text : "");
    }
    ASSERT(a.status == 201);
    snprintf(ret_id, ID_SIZE, "%s", json_get_string(a.json, "id", ""));
}

void world_state(struct world *w, const char *id, char ret[static 24])
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s", id);
    cleanup_answer struct answer a = alice(w, "GET", target, NULL);

    snprintf(ret, 24, "%s", a.status == 200 ? json_get_string(a.json, "state", "") : "");
}

static int count_row(void *ctx, const struct sandbox *sb)
{
    ASSERT(sb->id[0]);
    ++*(int *)ctx;
    return 0;
}

int world_rows(struct world *w)
{
    int n = 0;

    ASSERT(db_sandbox_list(w->db, &(struct sandbox_query){0}, count_row, &n, NULL) == 0);
    return n;
}
