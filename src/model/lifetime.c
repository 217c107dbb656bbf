/* SPDX-License-Identifier: Apache-2.0 */
#include "model/lifetime.h"

#include "base/util.h"

int64_t lifetime_end(int64_t end_at_ms, int64_t paused_at_ms, int64_t now_ms)
{
    if (end_at_ms == 0 || paused_at_ms == 0) {
        return end_at_ms;
    }
    return end_at_ms + MAX(now_ms - paused_at_ms, (int64_t)0);
}

void lifetime_enter(int64_t *end_at_ms, int64_t *paused_at_ms, enum sandbox_state to,
                    int64_t now_ms)
{
    switch (to) {
    case SANDBOX_STATE_PAUSED:
    case SANDBOX_STATE_SUSPENDED:
        *paused_at_ms = *paused_at_ms ? *paused_at_ms : now_ms;
        break;
    case SANDBOX_STATE_RUNNING:
    case SANDBOX_STATE_STOPPED:
    case SANDBOX_STATE_FAILED:
        *end_at_ms = lifetime_end(*end_at_ms, *paused_at_ms, now_ms);
        *paused_at_ms = 0;
        break;
    default:
        break; /* under way: as it was */
    }
}
