/* SPDX-License-Identifier: Apache-2.0 */
#include "control/place.h"

#include <string.h>

static bool was_tried(const struct place *p, const char *name)
{
    for (size_t i = 0; i < p->n_tried; i++) {
        if (str_eq(p->tried[i], name)) {
            return true;
        }
    }
    return false;
}

/* Room and templates change faster than they are told; whether it lives and takes sandboxes does not. */
bool place_may_ask(enum schedule_why why)
{
    return why == SCHEDULE_UNKNOWN || why == SCHEDULE_NO_TEMPLATE || why == SCHEDULE_TOO_MANY ||
           why == SCHEDULE_NO_CPU || why == SCHEDULE_NO_MEMORY || why == SCHEDULE_NO_POOL;
}

static int take(struct place *p, const struct fleet_choice *choice,
                char ret[static SANDBOX_NODE_SIZE])
{
    memcpy(p->tried[p->n_tried++], choice->name, SANDBOX_NODE_SIZE);
    memcpy(ret, choice->name, SANDBOX_NODE_SIZE);
    p->cold = choice->verdict.cold;
    fleet_count(p->fleet, choice->name, &p->wish.shape);
    return 1;
}

int place_next(struct place *p, char ret[static SANDBOX_NODE_SIZE])
{
    cleanup_free struct fleet_choice *choices = NULL;
    size_t n = 0;
    size_t fit;

    ASSERT(p && p->fleet);
    if (p->n_tried == PLACE_TRIES_MAX) {
        return 0;
    }
    fit = fleet_schedule(p->fleet, &p->wish, &choices, &n);
    for (size_t i = 0; i < fit; i++) {
        if (!was_tried(p, choices[i].name)) {
            return take(p, &choices[i], ret);
        }
    }
    for (size_t i = fit; i < n; i++) {
        if (place_may_ask(choices[i].verdict.why) && !was_tried(p, choices[i].name)) {
            return take(p, &choices[i], ret);
        }
    }
    return 0;
}

bool place_is_full(const struct node_call *call, const struct err *e)
{
    static const char *const reasons[] = {"no_capacity",        "pool_full", "node_full",
                                          "template_not_found", "too_many",  "no_space",
                                          "no_memory"};

    if (call->unreached) {
        return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(reasons) && call->refused; i++) {
        if (str_eq(e->reason, reasons[i])) {
            return true;
        }
    }
    return false;
}
