/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How often a key may ask: a token bucket for each. It holds `burst` tokens at most, gains `per_s` a second, and each
 * request takes one. A bucket that is full again is forgotten, so that the table is as large as the number of keys in
 * use just now. Thread-safe.
 */
#pragma once

#include <stdint.h>

#include "base/id.h"
#include "base/util.h"

/* What a busy program does not reach over one machine's network; a runaway loop does. */
#define RATE_PER_S_DEFAULT 1000u
#define RATE_BURST_DEFAULT 2000u
#define RATE_MAX 1000000u

struct rate_limit {
    uint32_t per_s; /* 0: no limit */
    uint32_t burst; /* at least 1 where there is a limit */
};

struct rates;

struct rates *rates_new(struct rate_limit limit);
void rates_free(struct rates *rates);
DEFINE_CLEANUP(struct rates *, rates_free);

/* n gateways serve the same keys: this one gives its share of the limit, so that all together give no more than it. */
void rates_share(struct rates *rates, unsigned n);
/* 0, or how many nanoseconds from now_ns (monotonic) there is a token again. */
uint64_t rates_take(struct rates *rates, const char *key_id, uint64_t now_ns);
/* Buckets that are kept: for tests. */
unsigned rates_count(struct rates *rates);
