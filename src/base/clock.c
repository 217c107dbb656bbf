/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <limits.h>
#include <time.h>

static uint64_t clock_read_ns(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t clock_now_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ns(void)
{
    return clock_read_ns(CLOCK_BOOTTIME);
}

uint64_t clock_wall_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

uint64_t clock_wall_ms(void)
{
    return clock_wall_ns() / NS_PER_MS;
}

uint64_t deadline_in_ms(uint64_t ms)
{
    uint64_t now = clock_now_ns();

    return ms > (UINT64_MAX - now) / NS_PER_MS ? DEADLINE_NEVER : now + ms * NS_PER_MS;
}

bool deadline_passed(uint64_t deadline_ns)
{
    return deadline_ns != DEADLINE_NEVER && clock_now_ns() >= deadline_ns;
}

int deadline_poll_ms(uint64_t deadline_ns)
{
    uint64_t now;
    uint64_t ms;

    if (deadline_ns == DEADLINE_NEVER) {
        return -1;
    }
    now = clock_now_ns();
    if (now >= deadline_ns) {
        return 0;
    }
    ms = (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}
