/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/figures.h"

#include "base/clock.h"
#include "ipc/priv.h"

/* What trace_begin() is told, then what it is called here. */
static const struct {
    const char *name;
    const char *label;
} names[] = {
    {"snapshot before a command", "snapshot_before_command"},
    {"full snapshot", "snapshot_full"},
    {"disk snapshot", "snapshot_disk"},
};

static const char *const operations[] = {"create",
                                         "fork",
                                         "start",
                                         "stop",
                                         "pause",
                                         "resume",
                                         "suspend",
                                         "restore",
                                         "rollback",
                                         "delete",
                                         "snapshot_disk",
                                         "snapshot_full",
                                         "snapshot_before_command",
                                         "other"};
static const char *const kinds[] = {[SNAPSHOT_DISK] = "disk", [SNAPSHOT_FULL] = "full"};
static const char *const claims[FIGURES_CLAIM_COUNT_] = {[FIGURES_DRESSED] = "dressed",
                                                         [FIGURES_PLAIN] = "plain",
                                                         [FIGURES_BLANK] = "blank",
                                                         [FIGURES_COLD] = "cold"};

static struct metric operation_seconds = {
    .name = "space_node_operation_seconds",
    .help = "What was done to sandboxes on this node, by operation and outcome.",
    .type = METRIC_HISTOGRAM,
    .labels = {{"operation", operations, ARRAY_SIZE(operations)}, METRIC_OUTCOMES},
    .quiet = true,
};
static struct metric snapshot_seconds = {
    .name = "space_node_snapshot_seconds",
    .help = "Snapshots taken, for whatever reason, by kind and outcome.",
    .type = METRIC_HISTOGRAM,
    .labels = {{"kind", kinds, ARRAY_SIZE(kinds)}, METRIC_OUTCOMES},
    .quiet = true,
};
static struct metric pause_seconds = {
    .name = "space_node_snapshot_pause_seconds",
    .help = "How long guests stood still for full snapshots.",
    .type = METRIC_HISTOGRAM,
};
static struct metric snapshots = {
    .name = "space_node_snapshots",
    .help = "Snapshots on this node by kind.",
    .type = METRIC_GAUGE,
    .labels = {{"kind", kinds, ARRAY_SIZE(kinds)}},
};
static struct metric snapshot_memory = {
    .name = "space_node_snapshot_memory_bytes",
    .help = "Pages of memory that the full snapshots on this node hold.",
    .type = METRIC_GAUGE,
};
static struct metric deaths = {
    .name = "space_node_machine_deaths_total",
    .help = "Machines that ended by themselves.",
    .type = METRIC_COUNTER,
};
static struct metric warm_claims = {
    .name = "space_node_warm_claims_total",
    .help = "What the stock of warm machines had for those who asked; cold: nothing.",
    .type = METRIC_COUNTER,
    .labels = {{"machine", claims, ARRAY_SIZE(claims)}},
};

void figures_register(void)
{
    static struct metric *const all[] = {&operation_seconds, &snapshot_seconds, &pause_seconds,
                                         &snapshots,         &snapshot_memory,  &deaths,
                                         &warm_claims};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        metric_register(all[i]);
    }
    priv_metrics_register();
}

void figures_count_operation(const char *name, int r, uint64_t took_ns)
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        name = str_eq(names[i].name, name) ? names[i].label : name;
    }
    metric_observe(&operation_seconds,
                   METRIC_AT(metric_index(&operation_seconds, 0, name), metric_outcome(r)),
                   took_ns);
}

void figures_count_snapshot(enum snapshot_kind kind, int r, uint64_t took_ns)
{
    metric_observe(&snapshot_seconds, METRIC_AT(kind, metric_outcome(r)), took_ns);
}

void figures_count_pause(uint64_t pause_us)
{
    metric_observe(&pause_seconds, METRIC_ONLY, pause_us * 1000);
}

void figures_add_snapshot(const struct snapshot *snap, int by)
{
    metric_add(&snapshots, METRIC_AT(snap->kind), by);
    metric_add(&snapshot_memory, METRIC_ONLY, by * (int64_t)snap->private_bytes);
}

void figures_count_death(void)
{
    metric_add(&deaths, METRIC_ONLY, 1);
}

void figures_count_claim(enum figures_claim claim)
{
    metric_add(&warm_claims, METRIC_AT(claim), 1);
}
