/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes, their leases, and tokens to join with; every product has them, see conformance.h. */
#include "database/conformance.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/test.h"
#include "database/nodes.h"

#define LOSERS 6

static const struct node_row one = {
    .name = "one",
    .id = "identity-1",
    .address = "https://192.0.2.1:7443",
    .leased = true,
    .generation = 1,
    .joined_at_ms = 5,
};

/* Until its lease of 1 ms is over. */
static int lose_soon(struct db *db, int64_t renewals, int64_t *ret_generation)
{
    uint64_t deadline_ns = deadline_in_ms(10000);
    int r;

    do {
        r = db_node_lose(db, "one", renewals, ret_generation, NULL);
    } while (r == 0 && !deadline_passed(deadline_ns));
    return r;
}

static int count(void *ctx, const struct node_row *row)
{
    struct buf *names = ctx;

    return buf_printf(names, "%s;", row->name);
}

static void a_node_is_written_found_and_listed(void)
{
    CONFORMANCE_DB(db);
    cleanup_node_row struct node_row row = {0};
    struct node_row local = {.name = "local", .address = "unix:/run/x", .joined_at_ms = 1};
    struct node_row moved = one;
    cleanup_buf struct buf names = BUF_INIT(200);
    struct err e = {0};

    CHECK_INT(db_node_get(db, "one", &row, &e), -ENOENT);
    CHECK_STR(e.reason, "node_not_found");
    CHECK_INT(db_node_put(db, &one, NULL), 0);
    CHECK_INT(db_node_put(db, &local, NULL), 0);
    REQUIRE(db_node_get(db, "one", &row, NULL) == 0);
    CHECK_STR(row.id, "identity-1");
    CHECK_STR(row.address, "https://192.0.2.1:7443");
    CHECK(row.leased && !row.lost && row.wanted == NODE_READY);
    CHECK_INT(row.generation, 1);
    CHECK_INT(row.left_ms, 0);
    CHECK_INT(row.told_ago_ms, -1);
    CHECK_INT(row.joined_at_ms, 5);
    CHECK_STR(row.told, "");
    CHECK(!node_row_takes(&row)); /* before its first lease */
    CHECK_INT(db_node_list(db, count, &names, NULL), 0);
    CHECK_STR(buf_str(&names), "local;one;");

    snprintf(moved.address, sizeof(moved.address), "https://192.0.2.7:7443");
    CHECK_INT(db_node_put(db, &moved, NULL), 0);
    node_row_done(&row);
    REQUIRE(db_node_get(db, "one", &row, NULL) == 0);
    CHECK_STR(row.address, "https://192.0.2.7:7443");
}

static void a_name_belongs_to_one_node(void)
{
    CONFORMANCE_DB(db);
    struct node_row other = one;
    struct node_row unknown = one;
    struct err e = {0};

    snprintf(other.id, sizeof(other.id), "identity-2");
    unknown.id[0] = '\0';
    CHECK_INT(db_node_put(db, &unknown, NULL), 0); /* before it has said who it is */
    CHECK_INT(db_node_put(db, &one, NULL), 0);
    CHECK_INT(db_node_put(db, &other, &e), -EEXIST);
    CHECK_STR(e.reason, "node_exists");
    CHECK_INT(db_node_put(db, &unknown, NULL), 0); /* the id stays */
    CHECK_INT(db_node_put(db, &other, NULL), -EEXIST);
    /* What another machine says at this node's address is not written. */
    CHECK_INT(db_node_renew(db, &other, 60000, &e), -ESTALE);
    snprintf(other.name, sizeof(other.name), "two");
    CHECK_INT(db_node_put(db, &other, NULL), 0);
}

static void what_is_wanted_stays(void)
{
    CONFORMANCE_DB(db);
    struct err e = {0};

    CHECK_INT(db_node_want(db, "one", NODE_CORDONED, &e), -ENOENT);
    CHECK_INT(db_node_put(db, &one, NULL), 0);
    for (int i = 0; i < NODE_WANTED_COUNT_; i++) {
        cleanup_node_row struct node_row row = {0};

        CHECK_INT(db_node_want(db, "one", (enum node_wanted)i, NULL), 0);
        CHECK_INT(db_node_put(db, &one, NULL), 0); /* joining again does not make it ready */
        CHECK_INT(db_node_renew(db, &one, 60000, NULL), 0);
        REQUIRE(db_node_get(db, "one", &row, NULL) == 0);
        CHECK_INT(row.wanted, i);
        CHECK_INT(node_row_takes(&row), i == NODE_READY);
    }
    CHECK_INT(db_node_delete(db, "one", NULL), 0);
    CHECK_INT(db_node_delete(db, "one", &e), -ENOENT);
}

/* Node "one", and sandbox "s1" on it. */
static void put_node_with_sandbox(struct db *db)
{
    struct organisation o = {.id = "o1", .name = "acme"};
    struct project p = {.id = "p1", .organisation = "o1", .name = "web", .max_sandboxes = 5};
    struct sandbox sb = {.id = "s1",
                         .project = "p1",
                         .node = "one",
                         .desired = SANDBOX_STATE_RUNNING,
                         .observed = SANDBOX_STATE_RUNNING,
                         .template_name = "python",
                         .generation = 1,
                         .env = (char[]){"{}"},
                         .metadata = (char[]){"{}"}};

    CHECK_INT(db_organisation_insert(db, &o, NULL), 0);
    CHECK_INT(db_project_insert(db, &p, NULL), 0);
    CHECK_INT(db_node_put(db, &one, NULL), 0);
    CHECK_INT(db_sandbox_insert(db, &sb, NULL, 5, NULL), 0);
}

static void a_node_with_sandboxes_is_not_forgotten(void)
{
    CONFORMANCE_DB(db);
    struct err e = {0};
    int64_t n = -1;

    put_node_with_sandbox(db);
    CHECK_INT(db_node_count_sandboxes(db, "one", &n, NULL), 0);
    CHECK_INT(n, 1);
    CHECK_INT(db_node_delete(db, "one", &e), -EBUSY);
    CHECK_STR(e.reason, "node_not_empty");
}

/* Whoever read the row while its node was lost must not take it away after the node came back. */
static void who_decided_before_it_came_back_is_too_late(void)
{
    CONFORMANCE_DB(db);
    cleanup_sandbox struct sandbox read = {0};
    int64_t generation = 0;

    put_node_with_sandbox(db);
    CHECK_INT(db_node_renew(db, &one, 1, NULL), 0);
    CHECK_INT(lose_soon(db, 1, &generation), 1);
    REQUIRE(db_sandbox_get(db, "s1", NULL, &read, NULL) == 0);
    CHECK_INT(db_node_back(db, "one", generation, NULL), 0);
    snprintf(read.node, sizeof(read.node), "two");
    CHECK_INT(db_sandbox_update(db, &read, NULL, NULL), -ESTALE);
}

static void what_it_tells_is_kept(void)
{
    CONFORMANCE_DB(db);
    cleanup_node_row struct node_row row = {0};
    struct node_row told = one;

    told.capacity = (struct node_capacity){4, 8192, 1000, 1ll << 40, 1ll << 39, 7, 3};
    told.told = (char[]){"{\"kvm\":true}"};
    CHECK_INT(db_node_put(db, &one, NULL), 0);
    CHECK_INT(db_node_renew(db, &told, 60000, NULL), 0);
    REQUIRE(db_node_get(db, "one", &row, NULL) == 0);
    CHECK(memcmp(&row.capacity, &told.capacity, sizeof(row.capacity)) == 0);
    CHECK_STR(row.told, "{\"kvm\":true}");
    CHECK_INT(row.renewals, 1);
    CHECK(row.left_ms > 30000 && row.left_ms <= 60000);
    CHECK(row.told_ago_ms >= 0 && row.told_ago_ms < 30000);
    CHECK(node_row_takes(&row));
}

static void a_lease_that_is_over_is_lost_once(void)
{
    CONFORMANCE_DB(db);
    cleanup_node_row struct node_row row = {0};
    struct node_row second = one;
    struct err e = {0};
    int64_t generation = 0;

    CHECK_INT(db_node_put(db, &one, NULL), 0);
    CHECK_INT(db_node_lose(db, "one", 0, &generation, NULL), 0); /* it never had one */
    CHECK_INT(db_node_renew(db, &one, 60000, NULL), 0);
    CHECK_INT(db_node_lose(db, "one", 1, &generation, NULL), 0); /* it has time left */
    CHECK_INT(db_node_renew(db, &one, 1, NULL), 0);
    CHECK_INT(db_node_lose(db, "one", 1, &generation, NULL), 0); /* renewed since we looked */
    CHECK_INT(lose_soon(db, 2, &generation), 1);
    CHECK_INT(generation, 2);
    CHECK_INT(db_node_lose(db, "one", 2, &generation, NULL), 0);
    CHECK_INT(db_node_renew(db, &one, 60000, &e), -ESTALE);
    CHECK_STR(e.reason, "generation_over");
    second.generation = 2;
    CHECK_INT(db_node_renew(db, &second, 60000, NULL), -ESTALE); /* not before it is clean */
    REQUIRE(db_node_get(db, "one", &row, NULL) == 0);
    CHECK(row.lost && !node_row_takes(&row));

    CHECK_INT(db_node_back(db, "one", 1, NULL), -ESTALE);
    CHECK_INT(db_node_back(db, "one", 2, NULL), 0);
    CHECK_INT(db_node_back(db, "one", 2, NULL), -ESTALE);
    CHECK_INT(db_node_lose(db, "one", 2, &generation, NULL), 0); /* it has none yet */
    CHECK_INT(db_node_renew(db, &one, 60000, NULL), -ESTALE);
    CHECK_INT(db_node_renew(db, &second, 60000, NULL), 0);
}

static void a_node_without_lease_is_never_lost(void)
{
    CONFORMANCE_DB(db);
    struct node_row local = one;
    int64_t generation = 0;

    local.leased = false;
    CHECK_INT(db_node_put(db, &local, NULL), 0);
    CHECK_INT(db_node_renew(db, &local, 0, NULL), 0);
    CHECK_INT(db_node_lose(db, "one", 0, &generation, NULL), 0);
    CHECK_INT(db_node_renew(db, &local, 1, NULL),
              -ESTALE); /* somebody says that it is not leased */
}

struct loser {
    struct db *db; /* borrowed */
    int result;
};

static void *lose_thread(void *arg)
{
    struct loser *l = arg;
    int64_t generation;

    l->result = lose_soon(l->db, 1, &generation);
    return NULL;
}

static void many_lose_a_node_once(void)
{
    CONFORMANCE_DB(db);
    struct loser losers[LOSERS];
    pthread_t threads[LOSERS];
    cleanup_node_row struct node_row row = {0};
    int64_t generation = 0;
    int won = 0;

    CHECK_INT(db_node_put(db, &one, NULL), 0);
    CHECK_INT(db_node_renew(db, &one, 200, NULL), 0);
    for (int i = 0; i < LOSERS; i++) {
        losers[i] = (struct loser){.db = db};
        /* The last ones race with nobody but prove that it stays at one. */
        ASSERT(pthread_create(&threads[i], NULL, lose_thread, &losers[i]) == 0);
        if (i == 0) {
            CHECK(db_node_lose(db, "one", 0, &generation, NULL) == 0);
        }
    }
    for (uint64_t until_ns = deadline_in_ms(10000); !row.lost && !deadline_passed(until_ns);) {
        node_row_done(&row);
        REQUIRE(db_node_get(db, "one", &row, NULL) == 0);
    }
    for (int i = 0; i < LOSERS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(losers[i].result >= 0);
        won += losers[i].result;
    }
    CHECK_INT(won, 1);
    node_row_done(&row);
    REQUIRE(db_node_get(db, "one", &row, NULL) == 0);
    CHECK_INT(row.generation, 2);
}

static void a_token_is_good_once_and_not_for_long(void)
{
    CONFORMANCE_DB(db);
    uint64_t deadline_ns = deadline_in_ms(10000);
    struct err e = {0};
    int r = 0;

    CHECK_INT(db_node_token_use(db, "h1", &e), -EACCES);
    CHECK_STR(e.reason, "token_refused");
    CHECK_INT(db_node_token_add(db, "h1", 60000, NULL), 0);
    CHECK_INT(db_node_token_use(db, "h1", NULL), 0);
    CHECK_INT(db_node_token_use(db, "h1", NULL), -EACCES);
    for (int i = 0; r == 0 && !deadline_passed(deadline_ns); i++) {
        char hash[32];

        snprintf(hash, sizeof(hash), "short-%d", i);
        CHECK_INT(db_node_token_add(db, hash, 1, NULL), 0);
        r = db_node_token_use(db, hash, NULL); /* a quick machine may be in time: again */
    }
    CHECK_INT(r, -EACCES);
}

TEST_MAIN(T(a_node_is_written_found_and_listed), T(a_name_belongs_to_one_node),
          T(what_is_wanted_stays), T(a_node_with_sandboxes_is_not_forgotten),
          T(who_decided_before_it_came_back_is_too_late), T(what_it_tells_is_kept),
          T(a_lease_that_is_over_is_lost_once), T(a_node_without_lease_is_never_lost),
          T(many_lose_a_node_once), T(a_token_is_good_once_and_not_for_long))
