/* SPDX-License-Identifier: Apache-2.0 */
#include "model/sandbox-state.h"

#include <string.h>

#include "base/util.h"

#define TO(state) (1u << SANDBOX_STATE_##state)

/* Where each actor may move a sandbox that is in this state. See the header for what the rows mean. */
struct moves {
    const char *name;
    unsigned client;
    unsigned policy;
    unsigned node;
    bool desirable;
    bool transient;
};

static const struct moves states[SANDBOX_STATE_COUNT_] = {
    [SANDBOX_STATE_CREATING] =
        {
            .name = "creating",
            .client = TO(DELETING),
            .policy = TO(DELETING),
            .node = TO(RUNNING) | TO(STOPPED) | TO(FAILED),
            .transient = true,
        },
    [SANDBOX_STATE_RUNNING] =
        {
            .name = "running",
            .client = TO(PAUSING) | TO(SUSPENDING) | TO(STOPPING) | TO(DELETING),
            .policy = TO(PAUSING) | TO(SUSPENDING) | TO(STOPPING) | TO(DELETING),
            .node = TO(PAUSED) | TO(STOPPED) | TO(FAILED),
            .desirable = true,
        },
    [SANDBOX_STATE_PAUSING] =
        {
            .name = "pausing",
            .client = TO(DELETING),
            .policy = TO(DELETING),
            .node = TO(PAUSED) | TO(RUNNING) | TO(FAILED),
            .transient = true,
        },
    [SANDBOX_STATE_PAUSED] =
        {
            .name = "paused",
            .client = TO(RESUMING) | TO(SUSPENDING) | TO(STOPPING) | TO(DELETING),
            .policy = TO(RESUMING) | TO(SUSPENDING) | TO(STOPPING) | TO(DELETING),
            .node = TO(RUNNING) | TO(FAILED),
            .desirable = true,
        },
    [SANDBOX_STATE_RESUMING] =
        {
            .name = "resuming",
            .client = TO(DELETING),
            .policy = TO(DELETING),
            .node = TO(RUNNING) | TO(PAUSED) | TO(STOPPED) | TO(FAILED),
            .transient = true,
        },
    [SANDBOX_STATE_SUSPENDING] =
        {
            .name = "suspending",
            .client = TO(DELETING),
            .policy = TO(DELETING),
            .node = TO(SUSPENDED) | TO(PAUSED) | TO(RUNNING) | TO(FAILED),
            .transient = true,
        },
    [SANDBOX_STATE_SUSPENDED] =
        {
            .name = "suspended",
            .client = TO(RESTORING) | TO(DELETING),
            .policy = TO(RESTORING) | TO(DELETING),
            .desirable = true,
        },
    [SANDBOX_STATE_RESTORING] =
        {
            .name = "restoring",
            .client = TO(DELETING),
            .policy = TO(DELETING),
            .node = TO(RUNNING) | TO(SUSPENDED) | TO(FAILED),
            .transient = true,
        },
    [SANDBOX_STATE_STOPPING] =
        {
            .name = "stopping",
            .client = TO(DELETING),
            .policy = TO(DELETING),
            .node = TO(STOPPED) | TO(FAILED),
            .transient = true,
        },
    [SANDBOX_STATE_STOPPED] =
        {
            .name = "stopped",
            .client = TO(RESUMING) | TO(DELETING),
            .policy = TO(DELETING),
            .node = TO(FAILED),
            .desirable = true,
        },
    [SANDBOX_STATE_FAILED] =
        {
            .name = "failed",
            .client = TO(RESUMING) | TO(DELETING),
            .policy = TO(RESTORING) | TO(DELETING),
            .node = TO(RUNNING) | TO(PAUSED) | TO(STOPPED),
        },
    [SANDBOX_STATE_DELETING] =
        {
            .name = "deleting",
            .node = TO(DELETED),
            .transient = true,
        },
    [SANDBOX_STATE_DELETED] =
        {
            .name = "deleted",
            .desirable = true,
        },
};

const char *sandbox_state_name(enum sandbox_state state)
{
    ASSERT((unsigned)state < SANDBOX_STATE_COUNT_);
    return states[state].name;
}

bool sandbox_state_parse(const char *word, enum sandbox_state *ret)
{
    ASSERT(word && ret);

    for (unsigned i = 0; i < SANDBOX_STATE_COUNT_; i++) {
        if (strcmp(states[i].name, word) == 0) {
            *ret = (enum sandbox_state)i;
            return true;
        }
    }
    return false;
}

bool sandbox_state_may_move(enum sandbox_state from, enum sandbox_state to, unsigned by)
{
    const struct moves *m;

    ASSERT((unsigned)from < SANDBOX_STATE_COUNT_ && (unsigned)to < SANDBOX_STATE_COUNT_);

    m = &states[from];
    switch (by) {
    case SANDBOX_BY_CLIENT:
        return (m->client & (1u << to)) != 0;
    case SANDBOX_BY_POLICY:
        return (m->policy & (1u << to)) != 0;
    case SANDBOX_BY_NODE:
        return (m->node & (1u << to)) != 0;
    default:
        ASSERT(by == SANDBOX_BY_CLIENT || by == SANDBOX_BY_POLICY || by == SANDBOX_BY_NODE);
        return false;
    }
}

void sandbox_state_move(enum sandbox_state *state, enum sandbox_state to, unsigned by)
{
    ASSERT(state);
    ASSERT(sandbox_state_may_move(*state, to, by));
    *state = to;
}

bool sandbox_state_may_be_desired(enum sandbox_state state)
{
    ASSERT((unsigned)state < SANDBOX_STATE_COUNT_);
    return states[state].desirable;
}

bool sandbox_state_is_transient(enum sandbox_state state)
{
    ASSERT((unsigned)state < SANDBOX_STATE_COUNT_);
    return states[state].transient;
}
