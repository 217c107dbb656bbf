/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sandbox manager counts while it works; metrics.h prints it. Thread-safe, no lock; counts nothing before
 * figures_register().
 */
#pragma once

#include "base/metric.h"
#include "sandbox/snapshot.h"

/* In main, before the first thread. */
void figures_register(void);

/* name: as in trace.h, or "delete". r as it was returned. */
void figures_count_operation(const char *name, int r, uint64_t took_ns);
void figures_count_snapshot(enum snapshot_kind kind, int r, uint64_t took_ns);
/* How long a guest stood still for a full snapshot. */
void figures_count_pause(uint64_t pause_us);
/* One more (1) or less (-1) of them on this node. */
void figures_add_snapshot(const struct snapshot *snap, int by);
/* A machine ended by itself. */
void figures_count_death(void);

/* What the stock of warm machines had. */
enum figures_claim {
    FIGURES_DRESSED,
    FIGURES_PLAIN,
    FIGURES_BLANK,
    FIGURES_COLD, /* nothing */
    FIGURES_CLAIM_COUNT_
};
void figures_count_claim(enum figures_claim claim);
