/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/test.h"
#include "gateway/rate.h"

#define T0 (1000 * NS_PER_S)

static unsigned take_all(struct rates *rates, const char *key, uint64_t now_ns)
{
    unsigned n = 0;

    while (n < 10000 && rates_take(rates, key, now_ns) == 0) {
        n++;
    }
    return n;
}

static void a_burst_then_the_rate(void)
{
    CLEANUP(rates_freep) struct rates *rates = rates_new((struct rate_limit){10, 25});

    CHECK_INT(take_all(rates, "a", T0), 25);
    CHECK_INT(rates_take(rates, "a", T0), NS_PER_S / 10);
    CHECK_INT(rates_take(rates, "a", T0 + NS_PER_S / 20), NS_PER_S / 20);
    CHECK_INT(take_all(rates, "a", T0 + NS_PER_S / 10), 1);
    CHECK_INT(take_all(rates, "a", T0 + NS_PER_S * 11 / 10), 10);
    CHECK_INT(take_all(rates, "a", T0 + 60 * NS_PER_S), 25); /* it holds no more than that */
}

static void keys_do_not_share(void)
{
    CLEANUP(rates_freep) struct rates *rates = rates_new((struct rate_limit){1, 5});

    CHECK_INT(take_all(rates, "a", T0), 5);
    CHECK_INT(take_all(rates, "b", T0), 5);
    CHECK(rates_take(rates, "a", T0) > 0);
}

static void refusals_cost_nothing(void)
{
    CLEANUP(rates_freep) struct rates *rates = rates_new((struct rate_limit){1, 1});

    CHECK_INT(rates_take(rates, "a", T0), 0);
    for (int i = 0; i < 1000; i++) {
        CHECK_INT(rates_take(rates, "a", T0), NS_PER_S);
    }
    CHECK_INT(rates_take(rates, "a", T0 + NS_PER_S), 0);
}

static void no_limit_is_no_limit(void)
{
    CLEANUP(rates_freep) struct rates *rates = rates_new((struct rate_limit){0, 0});

    CHECK_INT(take_all(rates, "a", T0), 10000);
    CHECK_INT(rates_count(rates), 0);
}

static void what_is_full_is_forgotten(void)
{
    CLEANUP(rates_freep) struct rates *rates = rates_new((struct rate_limit){10, 10});
    char key[32];

    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 5000; i++) {
            snprintf(key, sizeof(key), "%d-%d", round, i);
            CHECK_INT(rates_take(rates, key, T0 + (uint64_t)round * NS_PER_S), 0);
        }
    }
    CHECK(rates_count(rates) <= 2 * 5000);
}

static void gateways_share_the_limit(void)
{
    CLEANUP(rates_freep) struct rates *rates = rates_new((struct rate_limit){10, 20});

    rates_share(rates, 2);
    CHECK_INT(take_all(rates, "a", T0), 10);
    CHECK_INT(rates_take(rates, "a", T0), NS_PER_S / 5);
    rates_share(rates, 100); /* more gateways than tokens: one each */
    CHECK_INT(take_all(rates, "b", T0), 1);
}

TEST_MAIN(T(gateways_share_the_limit), T(a_burst_then_the_rate), T(keys_do_not_share),
          T(refusals_cost_nothing), T(no_limit_is_no_limit), T(what_is_full_is_forgotten))
