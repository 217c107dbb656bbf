/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/metrics.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/metric.h"
#include "ipc/netgate.h"
#include "sandbox/resident.h"
#include "sandbox/trust.h"
#include "sandbox/warm.h"
#include "volume/client.h"

static int print_states(struct node *node, struct buf *out)
{
    unsigned counts[SANDBOX_STATE_COUNT_] = {0};
    int r;

    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        counts[resident_state(res)]++;
    }
    r = metric_head(out, "space_node_sandboxes", METRIC_GAUGE, "Sandboxes on this node by state.");
    for (size_t s = 0; s < ARRAY_SIZE(counts) && r == 0; s++) {
        r = metric_value(out, "space_node_sandboxes",
                         &(struct metric_pair){"state", sandbox_state_name((enum sandbox_state)s)},
                         counts[s]);
    }
    return r;
}

static int print_node(struct node *node, struct buf *out)
{
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    int r = node_pool_space(node, &free_bytes, &total_bytes);

    r = r < 0 ? r
              : metric_single(out, "space_node_pool_free_bytes", METRIC_GAUGE,
                              "Free space of the pool.", (double)free_bytes);
    r = r < 0 ? r
              : metric_single(out, "space_node_pool_size_bytes", METRIC_GAUGE, "Size of the pool.",
                              (double)total_bytes);
    r = r < 0 ? r
              : metric_single(out, "space_node_warm_machines", METRIC_GAUGE,
                              "Machines kept ready for the next creates.",
                              node->warm ? warm_ready(node->warm) : 0);
    return r < 0 ? r : print_states(node, out);
}

/* ---- the services beside us: each gives {"text": ...} ---- */

static int ask_volume(struct node *node, json_t **ret, struct err *e)
{
    const struct volume_call call = {.op = "metrics",
                                     .deadline_ns = deadline_in_ms(METRICS_SERVICE_MS)};

    return volume_call(node->volume_socket, &call, ret, e);
}

static int ask_network(struct node *node, json_t **ret, struct err *e)
{
    return netgate_call_take(node->netgate, json_pack("{s:s}", "op", "metrics"), /* fds */ NULL, 0,
                             ret, e);
}

static int ask_credential(struct node *node, json_t **ret, struct err *e)
{
    return trust_metrics(node->trust, METRICS_SERVICE_MS, ret, e);
}

static const struct {
    const char *name;
    int (*ask)(struct node *node, json_t **ret, struct err *e);
} services[] = {
    {"volume", ask_volume},
    {"network", ask_network},
    {"credential", ask_credential},
};

static int print_services(struct node *node, struct buf *out)
{
    bool up[ARRAY_SIZE(services)];
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(services) && r == 0; i++) {
        cleanup_json json_t *answer = NULL;
        struct err e = {0};

        up[i] = services[i].ask(node, &answer, &e) == 0;
        if (up[i]) {
            r = buf_add_str(out, json_get_string(answer, "text", ""));
        } else {
            log_debug(NULL, "no metrics of the %s service: %s", services[i].name, e.msg);
        }
    }
    r = r < 0 ? r
              : metric_head(out, "space_node_service_up", METRIC_GAUGE,
                            "Does the service answer the sandbox manager?");
    for (size_t i = 0; i < ARRAY_SIZE(services) && r == 0; i++) {
        r = metric_value(out, "space_node_service_up",
                         &(struct metric_pair){"service", services[i].name}, up[i]);
    }
    return r;
}

int metrics_print(struct node *node, struct buf *out)
{
    int r = print_node(node, out);

    r = r < 0 ? r : metric_print_all(out);
    return r < 0 ? r : print_services(node, out);
}
