/* SPDX-License-Identifier: Apache-2.0 */
#include "model/lease.h"

#include <string.h>

int64_t lease_node_ms(void)
{
    int64_t dead_ms = (int64_t)LEASE_MS * LEASE_RATE / (LEASE_RATE + 1);

    return (dead_ms - LEASE_FENCE_MS) * (LEASE_RATE - 1) / LEASE_RATE;
}

int lease_take(struct lease *l, const struct lease_grant *grant, int64_t now_ms)
{
    ASSERT(l && grant && now_ms >= 0);

    if (!str_eq(grant->epoch, l->epoch)) {
        return -ESTALE;
    }
    if (grant->stamp_ms < 0 || grant->stamp_ms > now_ms || grant->for_ms <= 0 ||
        grant->for_ms > lease_node_ms()) {
        return -EINVAL;
    }
    l->until_ms = l->leased ? MAX(l->until_ms, grant->stamp_ms + grant->for_ms)
                            : grant->stamp_ms + grant->for_ms;
    l->leased = true;
    return 0;
}

bool lease_over(const struct lease *l, int64_t now_ms)
{
    return l->leased && now_ms >= l->until_ms;
}

bool lease_watch_look(struct lease_watch *w, int64_t generation, int64_t renewals, uint64_t now_ms)
{
    ASSERT(w);

    if (w->since_ms == 0 || w->renewals != renewals || w->generation != generation) {
        *w = (struct lease_watch){renewals, generation, MAX(now_ms, (uint64_t)1)};
        return false;
    }
    return now_ms - w->since_ms >= LEASE_MS;
}
