/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/test.h"
#include "control/flight.h"

#include <pthread.h>

#define PASSENGERS 8

struct passenger {
    struct flights *fs;
    const char *id;
    uint64_t deadline_ns;
    pthread_t thread;
    int lands_with; /* when it comes so late that it leads a flight of its own */
    const struct err *why;
    int r;
    struct err e;
};

static void *board(void *arg)
{
    struct passenger *p = arg;
    struct flight *f = NULL;

    p->r = flight_board(p->fs, p->id, p->deadline_ns, &f, &p->e);
    if (p->r == 1) {
        flight_land(f, p->lands_with, p->why);
    }
    return NULL;
}

/* Passengers board while one is in the air; it lands with r. How many got an outcome that is not r's? */
static int fly(int r, const struct err *why)
{
    struct flights *fs = flights_new();
    struct passenger p[PASSENGERS] = {0};
    struct flight *f = NULL;
    int others = 0;

    ASSERT(flight_board(fs, "s1", deadline_in_ms(30000), &f, NULL) == 1);
    for (int i = 0; i < PASSENGERS; i++) {
        p[i].fs = fs;
        p[i].id = "s1";
        p[i].deadline_ns = deadline_in_ms(30000);
        p[i].lands_with = r;
        p[i].why = why;
        ASSERT(pthread_create(&p[i].thread, NULL, board, &p[i]) == 0);
    }
    flight_land(f, r, why);
    for (int i = 0; i < PASSENGERS; i++) {
        pthread_join(p[i].thread, NULL);
        /* One that came after the landing led a flight of its own: 1. */
        others += p[i].r != 1 && (p[i].r != r || (r < 0 && !str_eq(p[i].e.reason, why->reason)));
    }
    flights_free(fs);
    return others;
}

static void all_get_the_outcome_of_one(void)
{
    struct err why = {0};

    CHECK_INT(fly(0, NULL), 0);
    err_set(&why, -ENOMEM, "no_capacity", "no memory");
    CHECK_INT(fly(-ENOMEM, &why), 0);
}

static void a_late_one_gives_up_at_its_deadline(void)
{
    struct flights *fs = flights_new();
    struct flight *f = NULL;
    struct flight *none = NULL;
    struct err e = {0};

    REQUIRE(flight_board(fs, "s1", deadline_in_ms(30000), &f, NULL) == 1);
    CHECK_INT(flight_board(fs, "s1", deadline_in_ms(1), &none, &e), -ETIMEDOUT);
    CHECK_STR(e.reason, "busy");
    flight_land(f, 0, NULL);
    flights_free(fs);
}

static void flights_of_others_do_not_matter(void)
{
    struct flights *fs = flights_new();
    struct flight *a = NULL;
    struct flight *b = NULL;
    struct flight *again = NULL;

    CHECK_INT(flight_board(fs, "s1", deadline_in_ms(30000), &a, NULL), 1);
    CHECK_INT(flight_board(fs, "s2", deadline_in_ms(30000), &b, NULL), 1);
    flight_land(a, 0, NULL);
    CHECK_INT(flight_board(fs, "s1", deadline_in_ms(30000), &again, NULL), 1);
    flight_land(again, 0, NULL);
    flight_land(b, 0, NULL);
    flights_free(fs);
}

TEST_MAIN(T(all_get_the_outcome_of_one), T(a_late_one_gives_up_at_its_deadline),
          T(flights_of_others_do_not_matter))
