/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox's owner wants done without asking: snapshots, how long they are kept, when an idle machine
 * is paused, what happens after a machine ended by itself. Pure: decides, does not perform.
 *
 * Retention thins out with age, tier by tier: of each hour of the last day at most keep_hourly snapshots
 * ... It is written as four tiers, each a span of age, the width of its slots, and how many slots there are:
 *
 *     the last hour    as they were taken, keep_hour newest
 *     the last day     one in each hour, keep_day newest
 *     the last week    one in each day, keep_week newest
 *     beyond           one in each week, keep_month newest
 *
 * Kept always: what is marked so, and the newest of each kind in the present's own past (what one would go back to).
 */
#pragma once

#include "base/json.h"

enum policy_recover {
    POLICY_RECOVER_MEMORY,
    POLICY_RECOVER_DISK,
    POLICY_RECOVER_NONE
};

/* What is taken before each command starts. */
enum policy_before {
    POLICY_BEFORE_NONE,
    POLICY_BEFORE_DISK
};

/* Brought back on a node that cannot run its memory: afresh from its disk, or not at all. */
enum policy_cold {
    POLICY_COLD_ALLOW,
    POLICY_COLD_REFUSE
};

struct policy {
    uint32_t disk_every_s; /* 0: no snapshots by schedule */
    uint32_t full_every_s;
    uint32_t backup_every_s; /* 0: its state goes to the object store only when it is suspended */
    uint32_t keep_hour;
    uint32_t keep_day;
    uint32_t keep_week;
    uint32_t keep_month;
    uint32_t idle_pause_s; /* 0: never */
    enum policy_recover recover;
    enum policy_before before_commands;
    enum policy_cold cold_restore;
};

struct policy policy_default(void);
/* An object with any of the fields; what is not named keeps its default. -EINVAL naming the field. */
MUST_CHECK int policy_from_json(json_t *object, struct policy *ret, struct err *e);
json_t *policy_to_json(const struct policy *policy);
bool policy_equal(const struct policy *a, const struct policy *b);

/* A snapshot as retention sees it. */
struct policy_item {
    uint64_t created_at_ms;
    bool full;
    bool fixed; /* marked to be kept, or the newest of its kind, or of no schedule's making */
    bool drop;  /* out: it may go */
};

/* Items newest first. Sets drop where the policy wants them gone. */
void policy_thin(const struct policy *policy, uint64_t now_ms, struct policy_item *items, size_t n);
