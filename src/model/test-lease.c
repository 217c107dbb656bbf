/* SPDX-License-Identifier: Apache-2.0 */
#include "model/lease.h"

#include "base/test.h"

#include <string.h>

static void the_node_stops_before_it_is_taken_for_dead(void)
{
    CHECK(lease_node_ms() > LEASE_MS / 2); /* several renewals may fail */
    CHECK(lease_node_ms() > 4 * LEASE_RENEW_MS);
    CHECK(lease_node_ms() + LEASE_FENCE_MS < LEASE_MS);
}

static const struct lease fresh = {.epoch = "e1"};

static void a_node_that_nobody_leases_goes_on(void)
{
    CHECK(!lease_over(&fresh, 0));
    CHECK(!lease_over(&fresh, INT64_MAX));
}

static void grants_count_from_the_stamp_and_never_shorten(void)
{
    struct lease l = fresh;

    CHECK_INT(lease_take(&l, &(struct lease_grant){"e1", 1000, 500}, 1400), 0);
    CHECK(!lease_over(&l, 1499));
    CHECK(lease_over(&l, 1500));
    CHECK_INT(lease_take(&l, &(struct lease_grant){"e1", 900, 500}, 1410), 0); /* overtaken */
    CHECK(!lease_over(&l, 1499));
    CHECK_INT(lease_take(&l, &(struct lease_grant){"e1", 1300, 500}, 9000), 0); /* hours late */
    CHECK(lease_over(&l, 9000));
}

static void what_no_gateway_says_is_refused(void)
{
    static const struct {
        struct lease_grant grant;
        int want;
    } cases[] = {
        {{"e2", 10, 100}, -ESTALE},      {{"", 10, 100}, -ESTALE},
        {{"e1", 51, 100}, -EINVAL},      {{"e1", -1, 100}, -EINVAL},
        {{"e1", 10, 0}, -EINVAL},        {{"e1", 10, -1}, -EINVAL},
        {{"e1", 10, LEASE_MS}, -EINVAL}, {{"e1", 10, INT64_MAX}, -EINVAL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct lease l = fresh;

        CHECK_INT(lease_take(&l, &cases[i].grant, 50), cases[i].want);
        CHECK(memcmp(&l, &fresh, sizeof(l)) == 0);
    }
}

static void a_gateway_believes_its_own_clock_too(void)
{
    struct lease_watch w = {0};

    CHECK(!lease_watch_look(&w, 1, 7, 0)); /* the first look says nothing */
    CHECK(!lease_watch_look(&w, 1, 7, LEASE_MS - 1));
    CHECK(!lease_watch_look(&w, 1, 8, LEASE_MS)); /* just renewed */
    CHECK(!lease_watch_look(&w, 1, 8, 2 * LEASE_MS - 1));
    CHECK(lease_watch_look(&w, 1, 8, 2 * LEASE_MS));
    CHECK(!lease_watch_look(&w, 2, 8, 2 * LEASE_MS)); /* another generation: from the beginning */
}

/* --- a simulation: real time in ms, clocks that go wrong, messages that take as long as they like --- */

static uint64_t seed;

static int64_t random_below(int64_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

/* Parts in 10,000 that a clock is fast; and where it began. */
struct clock {
    int64_t fast;
    int64_t offset_ms;
};

static int64_t clock_read(const struct clock *c, int64_t real_ms)
{
    return c->offset_ms + real_ms + real_ms * c->fast / 10000;
}

#define PENDING 4

struct world {
    struct clock node;
    struct clock database;
    struct lease lease;
    int64_t dead_at_ms; /* by the database's clock */
    struct {
        struct lease_grant grant;
        int64_t arrives_ms; /* real; 0: none */
    } pending[PENDING];
    int64_t still_since_ms; /* real; when it was over by the node's clock. -1: it runs */
};

static void deliver(struct world *w, int64_t real_ms)
{
    for (size_t i = 0; i < PENDING; i++) {
        if (w->pending[i].arrives_ms > 0 && w->pending[i].arrives_ms <= real_ms) {
            CHECK_INT(lease_take(&w->lease, &w->pending[i].grant, clock_read(&w->node, real_ms)),
                      0);
            w->pending[i].arrives_ms = 0;
        }
    }
}

/* The answer with the stamp takes stamp_ms, the database as long again, the grant whatever it takes. */
static void renew(struct world *w, int64_t real_ms, int64_t slow_ms)
{
    int64_t written_ms = real_ms + random_below(slow_ms);

    for (size_t i = 0; i < PENDING; i++) {
        if (w->pending[i].arrives_ms == 0) {
            w->pending[i].grant =
                (struct lease_grant){"e1", clock_read(&w->node, real_ms), lease_node_ms()};
            w->pending[i].arrives_ms = written_ms + 1 + random_below(4 * slow_ms);
            w->dead_at_ms = MAX(w->dead_at_ms, clock_read(&w->database, written_ms) + LEASE_MS);
            return;
        }
    }
}

static void run_world(struct world *w, int64_t end_ms)
{
    int64_t cut_ms = end_ms / 2 + random_below(end_ms / 4);
    int64_t slow_ms = 1 + random_below(20000);

    w->still_since_ms = -1;
    for (int64_t real_ms = 1; real_ms < end_ms; real_ms += 50) {
        bool dead;

        deliver(w, real_ms);
        if (real_ms < cut_ms && real_ms % LEASE_RENEW_MS < 50) {
            renew(w, real_ms, slow_ms);
        }
        if (!lease_over(&w->lease, clock_read(&w->node, real_ms))) {
            w->still_since_ms = -1;
        } else if (w->still_since_ms < 0) {
            w->still_since_ms = real_ms;
        }
        dead = w->dead_at_ms > 0 && clock_read(&w->database, real_ms) >= w->dead_at_ms;
        if (dead && w->lease.leased &&
            (w->still_since_ms < 0 || real_ms - w->still_since_ms < LEASE_FENCE_MS - 100)) {
            TEST_FAIL("seed %llu: taken for dead at %lld, but it stood still since %lld",
                      (unsigned long long)seed, (long long)real_ms, (long long)w->still_since_ms);
            return;
        }
    }
    CHECK(w->still_since_ms >= 0); /* a node that is cut off does stop */
}

static void no_clock_and_no_delay_makes_two_of_one(void)
{
    static const int64_t rates[] = {-99, 0, 99}; /* just below 1 % */

    for (size_t n = 0; n < ARRAY_SIZE(rates); n++) {
        for (size_t d = 0; d < ARRAY_SIZE(rates); d++) {
            for (uint64_t i = 0; i < 20; i++) {
                struct world w = {
                    .node = {rates[n], 5000},
                    .database = {rates[d], 1700000000000},
                    .lease = fresh,
                };

                seed = i * 977 + n * 31 + d;
                run_world(&w, 400000);
            }
        }
    }
}

TEST_MAIN(T(the_node_stops_before_it_is_taken_for_dead), T(a_node_that_nobody_leases_goes_on),
          T(grants_count_from_the_stamp_and_never_shorten), T(what_no_gateway_says_is_refused),
          T(a_gateway_believes_its_own_clock_too), T(no_clock_and_no_delay_makes_two_of_one))
