/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/metrics.h"

#include "base/clock.h"
#include "sandbox/resident.h"

static int print_metric(struct buf *out, const char *name, const char *type, const char *help,
                        double value)
{
    return buf_printf(out,
                      "# HELP space_node_%s %s\n# TYPE space_node_%s %s\nspace_node_%s %.17g\n",
                      name, help, name, type, name, value);
}

static int print_states(struct node *node, struct buf *out)
{
    unsigned counts[SANDBOX_STATE_COUNT_] = {0};
    int r;

    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        counts[resident_state(res)]++;
    }
    r = buf_add_str(out, "# HELP space_node_sandboxes Sandboxes on this node by state.\n"
                         "# TYPE space_node_sandboxes gauge\n");
    for (size_t s = 0; s < ARRAY_SIZE(counts) && r == 0; s++) {
        r = buf_printf(out, "space_node_sandboxes{state=\"%s\"} %u\n",
                       sandbox_state_name((enum sandbox_state)s), counts[s]);
    }
    return r;
}

int metrics_print(struct node *node, struct buf *out)
{
    struct node_counters c;
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    int r = node_pool_space(node, &free_bytes, &total_bytes);

    pthread_mutex_lock(&node->lock);
    c = node->counters;
    pthread_mutex_unlock(&node->lock);
    const struct {
        const char *name;
        const char *type;
        const char *help;
        double value;
    } rows[] = {
        {"creates_total", "counter", "Sandboxes created.", (double)c.created},
        {"create_failures_total", "counter", "Creates that failed.", (double)c.create_failed},
        {"create_seconds_total", "counter", "Time spent in creates.",
         (double)c.create_ns / (double)NS_PER_S},
        {"deletes_total", "counter", "Sandboxes deleted.", (double)c.deleted},
        {"machine_deaths_total", "counter", "Machines that ended by themselves.",
         (double)c.machine_deaths},
        {"pool_free_bytes", "gauge", "Free space of the pool.", (double)free_bytes},
        {"pool_size_bytes", "gauge", "Size of the pool.", (double)total_bytes},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows) && r == 0; i++) {
        r = print_metric(out, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
    }
    return r < 0 ? r : print_states(node, out);
}
