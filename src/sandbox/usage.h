/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox has used of its machine over time: samples of its guest's own figures, the newest USAGE_KEPT, in memory.
 * They are gone when the node's process ends; the history is for charts and for the question "what was it doing an hour ago",
 * not for bills.
 *
 * A sample's counters of processor time are the guest's, since it has been up: the use between two samples is their
 * difference, and a counter that has gone down means another boot or a rollback.
 */
#pragma once

#include "base/json.h"

#define USAGE_EVERY_MS 15000u
/* Two hours: 40 KiB of a sandbox that lives so long. */
#define USAGE_KEPT 480u

struct usage_sample {
    int64_t at_ms; /* wall clock */
    int64_t cpu_count;
    int64_t cpu_user_ms;
    int64_t cpu_system_ms;
    int64_t cpu_idle_ms;
    int64_t cpu_iowait_ms;
    int64_t memory_total;
    int64_t memory_available;
    int64_t memory_cached;
    int64_t disk_total;
    int64_t disk_free;
};

struct usage {
    struct usage_sample *kept; /* owned: a ring; NULL before the first one */
    unsigned n;
    unsigned next;
};

struct usage_window {
    int64_t from_ms;
    int64_t to_ms; /* both are in it */
};

void usage_done(struct usage *u);
/* guest: the answer to the daemon's /metrics. A sample that is older than the newest (the clock was set) is left out. */
void usage_add(struct usage *u, int64_t at_ms, json_t *guest);
/*
 * An array, oldest first, each as the daemon's /metrics has it and with at_ms. The one before the window is first, if there is
 * one, for the difference, and has "before": true.
 */
json_t *usage_to_json(const struct usage *u, const struct usage_window *window);
