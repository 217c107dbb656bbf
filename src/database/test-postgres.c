/* SPDX-License-Identifier: Apache-2.0 */

/* What only a server can do to us: go away, come back, end a transaction in favour of another, be shared. */
#include "base/clock.h"
#include "base/test.h"
#include "database/postgres-testbed.h"
#include "database/postgres.h"
#include "database/private.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>

static struct postgres_testbed *bed;

static void end_server(void)
{
    postgres_testbed_free(bed);
}

struct fixture {
    char url[POSTGRES_TESTBED_URL_SIZE];
    struct db *db;
    struct project project;
};

static bool fixture_init(struct fixture *f)
{
    struct organisation org = {.id = "o1", .name = "o"};

    if (!bed) {
        bed = postgres_testbed_new();
        atexit(end_server);
    }
    if (!bed) {
        return false;
    }
    postgres_testbed_database(bed, f->url);
    ASSERT(db_open(f->url, &f->db, NULL) == 0);
    ASSERT(db_organisation_insert(f->db, &org, NULL) == 0);
    f->project = (struct project){.id = "p1", .organisation = "o1", .name = "p"};
    ASSERT(db_project_insert(f->db, &f->project, NULL) == 0);
    return true;
}

static void fixture_done(struct fixture *f)
{
    db_free(f->db);
}
#define FIXTURE(f_) \
    CLEANUP(fixture_done) struct fixture f_ = {0}; \
    if (!fixture_init(&f_)) { \
        TEST_SKIP("there is no PostgreSQL on this system"); \
    }

static int insert(struct fixture *f, struct sandbox *ret, struct err *e)
{
    struct sandbox sb = {
        .desired = SANDBOX_STATE_RUNNING,
        .observed = SANDBOX_STATE_CREATING,
        .generation = 1,
        .template_name = "debian",
        .env = xstrdup("{}"),
        .metadata = xstrdup("{}"),
        .created_at_ms = 1,
    };
    int r;

    id_new(ID_SANDBOX, sb.id);
    snprintf(sb.project, sizeof(sb.project), "%s", f->project.id);
    r = db_sandbox_insert(f->db, &sb, NULL, 100000, e);
    if (r == 0 && ret) {
        *ret = sb;
    } else {
        sandbox_done(&sb);
    }
    return r;
}

/* Until the database takes changes again. */
static int insert_soon(struct fixture *f, struct sandbox *ret)
{
    uint64_t deadline_ns = deadline_in_ms(20000);
    struct err e = {0};
    int r;

    do {
        r = insert(f, ret, &e);
    } while (r == -EHOSTDOWN && !deadline_passed(deadline_ns));
    return r;
}

static int wokenone(void *ctx, const struct sandbox *sb)
{
    (void)sb;
    ++*(int *)ctx;
    return 0;
}

static int count(struct db *db)
{
    int n = 0;
    int r = db_sandbox_list(db, &(struct sandbox_query){0}, wokenone, &n, NULL);

    return r < 0 ? r : n;
}

static void a_server_that_was_restarted_is_used_again(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_sandbox struct sandbox got = {0};

    REQUIRE(insert(&f, &sb, NULL) == 0);
    postgres_testbed_stop(bed);
    postgres_testbed_start(bed);
    CHECK_INT(insert_soon(&f, NULL), 0);
    CHECK_INT(db_sandbox_get(f.db, sb.id, NULL, &got, NULL), 0);
    CHECK_INT(count(f.db), 2);
}

static void a_server_that_died_has_forgotten_nothing(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = {0};

    REQUIRE(insert(&f, &sb, NULL) == 0);
    postgres_testbed_kill(bed);
    postgres_testbed_start(bed);
    CHECK_INT(insert_soon(&f, NULL), 0);
    CHECK_INT(count(f.db), 2);
    sb.changed_at_ms = 7;
    CHECK_INT(db_sandbox_update(f.db, &sb, NULL, NULL), 0);
}

/* The error is for clients: it says what to do, and names no host. */
static void a_server_that_is_away_is_an_error_at_once(void)
{
    FIXTURE(f);
    struct err e = {0};
    uint64_t began_ns;

    REQUIRE(insert(&f, NULL, NULL) == 0);
    postgres_testbed_stop(bed);
    began_ns = clock_now_ns();
    for (int i = 0; i < 20; i++) {
        e = (struct err){0};
        CHECK_INT(insert(&f, NULL, &e), -EHOSTDOWN);
        CHECK_STR(e.reason, DB_UNAVAILABLE);
        CHECK_INT(err_http_status(&e), 503);
        CHECK(!strstr(e.msg, "/tmp"));
    }
    CHECK(count(f.db) == -EHOSTDOWN); /* never "none" */
    CHECK_INT(db_ping(f.db, NULL), -EHOSTDOWN);
    CHECK(clock_now_ns() - began_ns < 5 * NS_PER_S);
    postgres_testbed_start(bed);
    CHECK_INT(insert_soon(&f, NULL), 0);
    CHECK_INT(count(f.db), 2);
}

static int stop_server(void *ctx, const struct sandbox *sb)
{
    (void)sb;
    ++*(int *)ctx;
    if (*(int *)ctx == 1) {
        postgres_testbed_kill(bed);
    }
    return 0;
}

/* F17: half a list is an error, not a short list. */
static void a_list_that_breaks_in_the_middle_is_an_error(void)
{
    FIXTURE(f);
    cleanup_free char *sql = xstrdup(
        "INSERT INTO sandboxes SELECT 's' || n, 'p1', 'running', 'running', 1, '', '', 't', "
        "1, 1, 1, '', '{}', repeat('x', 2000), 0, n, 0, 0, 0, '' FROM "
        "generate_series(1, 20000) n");
    int n = 0;

    free(postgres_testbed_sql(f.url, sql));
    CHECK_INT(db_sandbox_list(f.db, &(struct sandbox_query){0}, stop_server, &n, NULL), -EHOSTDOWN);
    CHECK(n > 0 && n < 20000);
    postgres_testbed_start(bed);
    CHECK_INT(insert_soon(&f, NULL), 0);
    CHECK_INT(count(f.db), 20001);
}

struct crosser {
    struct fixture *f;
    char id[2][ID_SIZE];
    int result;
};

/* Reads both and writes both, until nobody was faster. */
static int write_both(struct crosser *x)
{
    struct sandbox sbs[2] = {0};
    int r;

    do {
        r = 0;
        for (int i = 0; i < 2 && r == 0; i++) {
            r = db_sandbox_get(x->f->db, x->id[i], NULL, &sbs[i], NULL);
        }
        if (r == 0) {
            sbs[0].changed_at_ms++;
            sbs[1].changed_at_ms++;
            r = db_sandbox_update_all(x->f->db, sbs, 2, NULL, NULL);
        }
        sandbox_done(&sbs[0]);
        sandbox_done(&sbs[1]);
        sbs[0] = sbs[1] = (struct sandbox){0};
    } while (r == -ESTALE);
    return r;
}

static void *cross(void *arg)
{
    struct crosser *x = arg;

    for (int i = 0; i < 30 && x->result == 0; i++) {
        x->result = write_both(x);
    }
    return NULL;
}

/* One takes the rows in this order, the other in that: sooner or later they wait for each other. */
static void deadlocks_are_run_again(void)
{
    FIXTURE(f);
    struct crosser x[2] = {{.f = &f}, {.f = &f}};
    cleanup_sandbox struct sandbox a = {0};
    cleanup_sandbox struct sandbox b = {0};
    pthread_t threads[2];

    free(postgres_testbed_sql(f.url, "ALTER ROLE space SET deadlock_timeout = '5ms'"));
    REQUIRE(insert(&f, &a, NULL) == 0 && insert(&f, &b, NULL) == 0);
    for (int i = 0; i < 2; i++) {
        snprintf(x[i].id[i], ID_SIZE, "%s", a.id);
        snprintf(x[i].id[1 - i], ID_SIZE, "%s", b.id);
        ASSERT(pthread_create(&threads[i], NULL, cross, &x[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(x[i].result, 0);
    }
    sandbox_done(&a);
    a = (struct sandbox){0};
    CHECK_INT(db_sandbox_get(f.db, x[0].id[0], NULL, &a, NULL), 0);
    CHECK_INT(a.generation, 61);
}

static void *open_one(void *arg)
{
    CLEANUP(db_freep) struct db *db = NULL;
    struct err e = {0};

    if (db_open(arg, &db, &e) < 0) {
        printf("# %s\n", e.msg);
        return arg;
    }
    return db_ping(db, NULL) < 0 ? arg : NULL;
}

static void programs_that_start_together_migrate_once(void)
{
    FIXTURE(f);
    char url[POSTGRES_TESTBED_URL_SIZE];
    cleanup_free char *rows = NULL;
    cleanup_free char *want = xasprintf("%lld", (long long)db_schema_version());
    pthread_t threads[6];
    void *failed;

    postgres_testbed_database(bed, url);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        ASSERT(pthread_create(&threads[i], NULL, open_one, url) == 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        pthread_join(threads[i], &failed);
        CHECK(!failed);
    }
    rows = postgres_testbed_sql(url, "SELECT COUNT(*) FROM schema_migrations");
    CHECK_STR(rows, want);
}

static void a_newer_schema_is_refused_but_lived_with(void)
{
    FIXTURE(f);
    CLEANUP(db_freep) struct db *db = NULL;
    struct err e = {0};

    free(postgres_testbed_sql(f.url, "INSERT INTO schema_migrations VALUES (1000, 'later', 1)"));
    CHECK_INT(db_open(f.url, &db, &e), -ENOTSUP);
    CHECK_STR(e.reason, "database_too_new");
    CHECK_INT(db_ping(f.db, NULL), 0); /* who was there before goes on */
    CHECK_INT(insert(&f, NULL, NULL), 0);
}

/* A list that is left early must not leave its rows to the next statement. */
static void connections_are_clean_when_they_come_back(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = {0};
    int n = 0;

    free(postgres_testbed_sql(
        f.url, "INSERT INTO sandboxes SELECT 's' || n, 'p1', 'running', 'running', 1, '', '', 't', "
               "1, 1, 1, '', '{}', '{}', 0, n, 0, 0, 0, '' FROM generate_series(1, 9000) n"));
    for (int i = 0; i < 20; i++) {
        sandbox_done(&sb);
        sb = (struct sandbox){0};
        CHECK_INT(db_sandbox_list(f.db, &(struct sandbox_query){.limit = 5 + 8000 * (i % 2)},
                                  wokenone, &n, NULL),
                  0);
        CHECK_INT(db_sandbox_get(f.db, "s17", NULL, &sb, NULL), 0);
        CHECK_STR(sb.id, "s17");
    }
}

static void words_reach_all_who_listen(void)
{
    FIXTURE(f);
    CLEANUP(db_freep) struct db *other = NULL;
    CLEANUP(db_listener_freep) struct db_listener *l = NULL;
    cleanup_close int never_fd = eventfd(0, EFD_CLOEXEC);
    char text[DB_NOTICE_SIZE] = "";
    eventfd_t woken;

    REQUIRE(db_open(f.url, &other, NULL) == 0);
    REQUIRE(db_shared(other));
    REQUIRE(db_listen(f.db, &l, NULL) == 0);
    CHECK_INT(db_listener_wait(l, deadline_in_ms(1), never_fd, text, NULL), 0);
    CHECK_INT(db_say(other, "cancel s1", NULL), 0);
    CHECK_INT(db_say(other, "cancel s2", NULL), 0);
    CHECK_INT(db_listener_wait(l, deadline_in_ms(10000), never_fd, text, NULL), 1);
    CHECK_STR(text, "cancel s1");
    CHECK_INT(db_listener_wait(l, deadline_in_ms(10000), never_fd, text, NULL), 1);
    CHECK_STR(text, "cancel s2");
    CHECK_INT(db_hold_take(f.db, "s3", "a", NULL), 1);
    CHECK_INT(db_turn_hurry(other, "node/", NULL), 0);
    CHECK_INT(db_listener_wait(l, deadline_in_ms(10000), never_fd, text, NULL), 1);
    CHECK_STR(text, "turn");
    CHECK_INT(eventfd_write(never_fd, 1), 0);
    CHECK_INT(db_listener_wait(l, deadline_in_ms(10000), never_fd, text, NULL), 0);
    CHECK_INT(eventfd_read(never_fd, &woken), 0);
    postgres_testbed_kill(bed);
    CHECK_INT(db_listener_wait(l, deadline_in_ms(10000), never_fd, text, NULL), -EHOSTDOWN);
    postgres_testbed_start(bed);
}

static void a_given_hold_is_announced_to_who_wants_it(void)
{
    FIXTURE(f);
    CLEANUP(db_listener_freep) struct db_listener *l = NULL;
    cleanup_close int never_fd = eventfd(0, EFD_CLOEXEC);
    char text[DB_NOTICE_SIZE] = "";
    int64_t alive;

    REQUIRE(db_listen(f.db, &l, NULL) == 0);
    CHECK_INT(db_gateway_beat(f.db, "a", 60000, &alive, NULL), 0);
    CHECK_INT(db_hold_take(f.db, "s1", "a", NULL), 1);
    CHECK_INT(db_hold_take(f.db, "s2", "a", NULL), 1);
    CHECK_INT(db_hold_take(f.db, "s2", "b", NULL), 0);
    CHECK_INT(db_hold_give(f.db, "s1", "a", NULL), 0); /* nobody asked */
    CHECK_INT(db_hold_give(f.db, "s2", "a", NULL), 0);
    CHECK_INT(db_listener_wait(l, deadline_in_ms(10000), never_fd, text, NULL), 1);
    CHECK_STR(text, "given s2");
}

static void passwords_are_in_no_error(void)
{
    CLEANUP(db_freep) struct db *db = NULL;
    struct err e = {0};

    CHECK_INT(db_open("postgresql://space:hushhush@/nothing?host=/nonexistent", &db, &e),
              -EHOSTDOWN);
    CHECK(!strstr(e.msg, "hushhush"));
    e = (struct err){0};
    CHECK(db_open("postgresql://space:hushhush@[::1/nothing", &db, &e) < 0);
    CHECK(!strstr(e.msg, "hushhush"));
}

static void states_mean_what_callers_act_on(void)
{
    CHECK_INT(postgres_errno("23505"), -EEXIST);
    CHECK_INT(postgres_errno("23503"), -EINVAL);
    CHECK_INT(postgres_errno("40001"), -EAGAIN);
    CHECK_INT(postgres_errno("40P01"), -EAGAIN);
    CHECK_INT(postgres_errno("57P01"), -EHOSTDOWN);
    CHECK_INT(postgres_errno("57014"), -EBUSY);
    CHECK_INT(postgres_errno("25006"), -EHOSTDOWN);
    CHECK_INT(postgres_errno("99999"), -EIO);
    CHECK_INT(postgres_errno(NULL), -EIO);
}

TEST_MAIN(T(a_server_that_was_restarted_is_used_again), T(a_server_that_died_has_forgotten_nothing),
          T(a_server_that_is_away_is_an_error_at_once),
          T(a_list_that_breaks_in_the_middle_is_an_error), T(deadlocks_are_run_again),
          T(programs_that_start_together_migrate_once), T(a_newer_schema_is_refused_but_lived_with),
          T(connections_are_clean_when_they_come_back), T(words_reach_all_who_listen),
          T(a_given_hold_is_announced_to_who_wants_it), T(passwords_are_in_no_error),
          T(states_mean_what_callers_act_on))
