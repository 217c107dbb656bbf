/* SPDX-License-Identifier: Apache-2.0 */
#include "network/figures.h"

#include "base/metric.h"
#include "network/gate.h"

static const char *const kinds[] = {[EGRESS_CONNECTION] = "connection", [EGRESS_NAME] = "name"};
static const char *const actions[NETPOLICY_ACTION_COUNT_] = {[NETPOLICY_DENY] = "deny",
                                                             [NETPOLICY_ALLOW] = "allow",
                                                             [NETPOLICY_INSPECT] = "inspect",
                                                             [NETPOLICY_ASK] = "ask"};
static const char *const directions[] = {"up", "down"};
static const char *const verdicts[] = {"allowed", "refused"};

static struct metric decisions = {
    .name = "space_network_decisions_total",
    .help = "Connections and refused names by what was decided.",
    .type = METRIC_COUNTER,
    .labels = {{"kind", kinds, ARRAY_SIZE(kinds)}, {"action", actions, ARRAY_SIZE(actions)}},
};
static struct metric over_limit = {
    .name = "space_network_over_limit_total",
    .help = "Connections refused because their sandbox had too many.",
    .type = METRIC_COUNTER,
};
static struct metric bytes = {
    .name = "space_network_bytes_total",
    .help = "Bytes of connections that have ended; up: from the sandbox.",
    .type = METRIC_COUNTER,
    .labels = {{"direction", directions, ARRAY_SIZE(directions)}},
};
static struct metric requests = {
    .name = "space_network_inspected_requests_total",
    .help = "HTTP requests of connections that were looked into.",
    .type = METRIC_COUNTER,
    .labels = {{"verdict", verdicts, ARRAY_SIZE(verdicts)}},
};

void figures_register(void)
{
    metric_register(&decisions);
    metric_register(&over_limit);
    metric_register(&bytes);
    metric_register(&requests);
}

void figures_count_decision(const struct egress_entry *entry)
{
    metric_add(&decisions, METRIC_AT(entry->kind, entry->action), 1);
}

void figures_count_refused(void)
{
    metric_add(&over_limit, METRIC_ONLY, 1);
}

void figures_count_bytes(uint64_t up, uint64_t down)
{
    metric_add(&bytes, METRIC_AT(0), (int64_t)up);
    metric_add(&bytes, METRIC_AT(1), (int64_t)down);
}

void figures_count_inspected(uint32_t n, bool refused)
{
    metric_add(&requests, METRIC_AT(0), n);
    metric_add(&requests, METRIC_AT(1), refused);
}

int figures_print(struct gate *gate, struct buf *out)
{
    cleanup_json json_t *totals = gate_totals(gate);
    int r = metric_single(out, "space_network_sandboxes", METRIC_GAUGE,
                          "Sandboxes whose connections go through this gateway.",
                          (double)json_get_int(totals, "sandboxes", 0));

    r = r < 0 ? r
              : metric_single(out, "space_network_connections", METRIC_GAUGE,
                              "Connections that are open.",
                              (double)json_get_int(totals, "connections", 0));
    return r < 0 ? r : metric_print_all(out);
}
