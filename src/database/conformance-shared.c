/* SPDX-License-Identifier: Apache-2.0 */

/* What gateways need that share a database; every product has it, see conformance.h. */
#include "database/conformance.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/test.h"

#define TAKERS 6

struct taker {
    struct db *db; /* borrowed */
    int result;
};

static void holds_are_exclusive_among_the_living(void)
{
    CONFORMANCE_DB(db);
    int64_t alive = 0;

    CHECK_INT(db_gateway_beat(db, "a", 60000, &alive, NULL), 0);
    CHECK_INT(alive, 1);
    CHECK_INT(db_gateway_beat(db, "b", 60000, &alive, NULL), 0);
    CHECK_INT(alive, 2);
    CHECK_INT(db_hold_take(db, "s1", "a", NULL), 1);
    CHECK_INT(db_hold_take(db, "s1", "a", NULL), 1);
    CHECK_INT(db_hold_take(db, "s1", "b", NULL), 0);
    CHECK_INT(db_hold_take(db, "s2", "b", NULL), 1);
    CHECK_INT(db_hold_give(db, "s1", "b", NULL), 0); /* not b's to give */
    CHECK_INT(db_hold_take(db, "s1", "b", NULL), 0);
    CHECK_INT(db_hold_give(db, "s1", "a", NULL), 0);
    CHECK_INT(db_hold_take(db, "s1", "b", NULL), 1);
    CHECK_INT(db_hold_take(db, "s1", "a", NULL), 0);
}

static void what_the_dead_held_is_free(void)
{
    CONFORMANCE_DB(db);
    int64_t alive = 0;
    uint64_t deadline_ns = deadline_in_ms(10000);

    CHECK_INT(db_gateway_beat(db, "a", 1, &alive, NULL), 0);
    CHECK_INT(db_hold_take(db, "s1", "a", NULL), 1);
    while (alive > 0 && !deadline_passed(deadline_ns)) {
        CHECK_INT(db_gateway_beat(db, "b", 1, &alive, NULL), 0); /* its own time is as short */
        alive = db_hold_take(db, "s1", "b", NULL) == 1 ? 0 : 1;
    }
    CHECK_INT(alive, 0);
    CHECK_INT(db_gateway_beat(db, "a", 60000, &alive, NULL), 0);
    CHECK_INT(db_hold_take(db, "s3", "a", NULL), 1);
    CHECK_INT(db_gateway_end(db, "a", NULL), 0);
    CHECK_INT(db_hold_take(db, "s3", "b", NULL), 1);
}

static void turns_are_taken_once_and_come_again(void)
{
    CONFORMANCE_DB(db);
    char name[DB_TURN_SIZE];
    int64_t next_ms = 0;

    CHECK_INT(db_turn_take(db, "a", 60000, name, &next_ms, NULL), 0);
    CHECK(next_ms > 1000);
    CHECK_INT(db_turn_add(db, "node/n1", NULL), 0);
    CHECK_INT(db_turn_add(db, "node/n1", NULL), 0);
    CHECK_INT(db_turn_add(db, "node/n2", NULL), 0);
    REQUIRE(db_turn_take(db, "a", 60000, name, &next_ms, NULL) == 1);
    CHECK_STR(name, "node/n1");
    REQUIRE(db_turn_take(db, "b", 60000, name, &next_ms, NULL) == 1);
    CHECK_STR(name, "node/n2");
    CHECK_INT(db_turn_take(db, "b", 60000, name, &next_ms, NULL), 0);
    CHECK(next_ms > 30000);

    CHECK_INT(db_turn_done(db, "node/n1", "a", 60000, NULL), 0);
    CHECK_INT(db_turn_take(db, "b", 60000, name, &next_ms, NULL), 0);
    CHECK_INT(db_turn_hurry(db, "node/", NULL), 0);
    REQUIRE(db_turn_take(db, "b", 60000, name, &next_ms, NULL) == 1);
    CHECK_STR(name, "node/n1");
    CHECK_INT(db_turn_take(db, "a", 60000, name, &next_ms, NULL), 0); /* n2 is under way still */
    CHECK_INT(db_turn_done(db, "node/n2", "b", 60000, NULL), 0); /* but was hurried meanwhile */
    REQUIRE(db_turn_take(db, "a", 60000, name, &next_ms, NULL) == 1);
    CHECK_STR(name, "node/n2");

    CHECK_INT(db_turn_done(db, "node/n2", "b", 0, NULL), 0); /* not b's */
    CHECK_INT(db_turn_take(db, "b", 60000, name, &next_ms, NULL), 0);
    CHECK_INT(db_turn_done(db, "node/n2", "a", 0, NULL), 0);
    CHECK_INT(db_turn_remove(db, "node/n1", NULL), 0);
    REQUIRE(db_turn_take(db, "b", 60000, name, &next_ms, NULL) == 1);
    CHECK_STR(name, "node/n2");
}

static void a_turn_outlives_who_took_it(void)
{
    CONFORMANCE_DB(db);
    uint64_t deadline_ns = deadline_in_ms(10000);
    char name[DB_TURN_SIZE];
    int64_t next_ms = 0;
    int r = 0;

    CHECK_INT(db_turn_add(db, "node/n1", NULL), 0);
    CHECK_INT(db_turn_take(db, "a", 1, name, &next_ms, NULL), 1);
    while (r == 0 && !deadline_passed(deadline_ns)) {
        r = db_turn_take(db, "b", 60000, name, &next_ms, NULL);
    }
    CHECK_INT(r, 1);
}

static void *take_turns(void *arg)
{
    struct taker *t = arg;
    char name[DB_TURN_SIZE];
    int64_t next_ms;
    int r;

    while ((r = db_turn_take(t->db, "me", 60000, name, &next_ms, NULL)) == 1) {
        t->result++;
    }
    if (r < 0) {
        t->result = r;
    }
    return NULL;
}

static void many_take_each_turn_once(void)
{
    CONFORMANCE_DB(db);
    struct taker takers[TAKERS];
    pthread_t threads[TAKERS];
    char name[DB_TURN_SIZE];
    int64_t next_ms;
    int n = 0;

    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "node/n%d", i);
        CHECK_INT(db_turn_add(db, name, NULL), 0);
    }
    for (int i = 0; i < TAKERS; i++) {
        takers[i] = (struct taker){.db = db};
        ASSERT(pthread_create(&threads[i], NULL, take_turns, &takers[i]) == 0);
    }
    for (int i = 0; i < TAKERS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(takers[i].result >= 0);
        n += takers[i].result;
    }
    /* Who finds all others busy taking them ends early; nothing is taken twice. */
    while (db_turn_take(db, "me", 60000, name, &next_ms, NULL) == 1) {
        n++;
    }
    CHECK_INT(n, 40);
}

static void the_first_secret_is_everybodys(void)
{
    CONFORMANCE_DB(db);
    char first[16] = "one";
    char second[16] = "two";

    CHECK_INT(db_secret_agree(db, "s", first, sizeof(first), NULL), 0);
    CHECK_INT(db_secret_agree(db, "s", second, sizeof(second), NULL), 0);
    CHECK_STR(first, "one");
    CHECK_STR(second, "one");
}

TEST_MAIN(T(holds_are_exclusive_among_the_living), T(what_the_dead_held_is_free),
          T(turns_are_taken_once_and_come_again), T(a_turn_outlives_who_took_it),
          T(many_take_each_turn_once), T(the_first_secret_is_everybodys))
