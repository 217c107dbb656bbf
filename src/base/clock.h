/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines, not timeouts: a uint64_t deadline_ns on the monotonic clock travels down through calls.
 */
#pragma once

#include "base/util.h"

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull
/* A deadline that never comes. */
#define DEADLINE_NEVER UINT64_MAX

uint64_t clock_now_ns(void);  /* monotonic */
uint64_t clock_boot_ns(void); /* monotonic, and goes on while the host sleeps */
uint64_t clock_wall_ms(void); /* milliseconds since 1970 */
uint64_t clock_wall_ns(void); /* nanoseconds since 1970 */
uint64_t deadline_in_ms(uint64_t ms);
bool deadline_passed(uint64_t deadline_ns);
/* For poll(2) and epoll_wait(2): milliseconds left, rounded up, 0 when passed, -1 for never. */
int deadline_poll_ms(uint64_t deadline_ns);
