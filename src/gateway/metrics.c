/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/metrics.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "database/nodes.h"

/* Answers by their first digit; 0 is a connection that was cut before any. */
#define CLASSES 6

struct route_counters {
    atomic_uint_fast64_t answers[CLASSES];
    struct metric_histogram duration;
    atomic_uint_fast64_t bytes_in;
    atomic_uint_fast64_t bytes_out;
};

struct metrics {
    const struct http_router *routers[2]; /* static */
    size_t n_routes;                      /* of both */
    struct route_counters *routes;        /* owned; the last is for requests without a route */
};

struct metrics *metrics_new(const struct http_router *ours, const struct http_router *e2b)
{
    struct metrics *m = xnew(struct metrics);

    ASSERT(ours && e2b);
    m->routers[0] = ours;
    m->routers[1] = e2b;
    m->n_routes = ours->n_routes + e2b->n_routes;
    m->routes = xnew_n(struct route_counters, m->n_routes + 1);
    return m;
}

/* Route number i of both tables. */
static const struct http_route *route_at(const struct metrics *m, size_t i)
{
    const struct http_router *first = m->routers[0];

    return i < first->n_routes ? &first->routes[i] : &m->routers[1]->routes[i - first->n_routes];
}

static size_t index_of(const struct metrics *m, const struct http_route *route)
{
    size_t i = 0;

    while (i < m->n_routes && route_at(m, i) != route) {
        i++;
    }
    return i;
}

void metrics_free(struct metrics *m)
{
    if (m) {
        free(m->routes);
        free(m);
    }
}

void metrics_count(struct metrics *m, const struct http_route *route, const struct http_done *done)
{
    size_t i = index_of(m, route);
    unsigned class = (unsigned)done->status / 100;
    struct route_counters *c;

    c = &m->routes[i];
    atomic_fetch_add_explicit(&c->answers[class < CLASSES ? class : 5], 1, memory_order_relaxed);
    metric_histogram_observe(&c->duration, done->duration_ns);
    atomic_fetch_add_explicit(&c->bytes_in, done->bytes_in, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes_out, done->bytes_out, memory_order_relaxed);
}

/* One family after the other, as the format wants it. */
struct family {
    const char *name;
    enum metric_type type;
    const char *help;
    int (*print)(const struct family *f, struct route_counters *c, const struct metric_pair *pairs,
                 struct buf *out);
    size_t offset; /* of the counter in struct route_counters */
};

static bool asked(struct route_counters *c)
{
    for (unsigned k = 0; k < CLASSES; k++) {
        if (atomic_load_explicit(&c->answers[k], memory_order_relaxed) > 0) {
            return true;
        }
    }
    return false;
}

/* Method and route are ours, out of the table: nothing in them needs escaping. */
static int print_answers(const struct family *f, struct route_counters *c,
                         const struct metric_pair *pairs, struct buf *out)
{
    int r = 0;

    for (unsigned k = 0; k < CLASSES && r == 0; k++) {
        uint64_t n = atomic_load_explicit(&c->answers[k], memory_order_relaxed);

        if (n > 0) {
            r = buf_printf(out, "%s{method=\"%s\",route=\"%s\",class=\"%uxx\"} %llu\n", f->name,
                           pairs[0].value, pairs[1].value, k, (unsigned long long)n);
        }
    }
    return r;
}

static int print_duration(const struct family *f, struct route_counters *c,
                          const struct metric_pair *pairs, struct buf *out)
{
    return metric_histogram_print(out, f->name, pairs, 2, &c->duration);
}

static int print_counter(const struct family *f, struct route_counters *c,
                         const struct metric_pair *pairs, struct buf *out)
{
    atomic_uint_fast64_t *counter = (void *)((char *)c + f->offset);

    return buf_printf(out, "%s{method=\"%s\",route=\"%s\"} %llu\n", f->name, pairs[0].value,
                      pairs[1].value,
                      (unsigned long long)atomic_load_explicit(counter, memory_order_relaxed));
}

static const struct family families[] = {
    {"space_gateway_requests_total", METRIC_COUNTER,
     "Requests by route and first digit of the answer; 0xx: cut before any.", print_answers, 0},
    {"space_gateway_request_seconds", METRIC_HISTOGRAM,
     "Requests by route; a stream lasts as long as its client wants.", print_duration, 0},
    {"space_gateway_received_bytes_total", METRIC_COUNTER, "Bytes of requests' bodies.",
     print_counter, offsetof(struct route_counters, bytes_in)},
    {"space_gateway_sent_bytes_total", METRIC_COUNTER, "Bytes of answers' bodies.", print_counter,
     offsetof(struct route_counters, bytes_out)},
};

static int print_family(struct metrics *m, const struct family *f, struct buf *out)
{
    int r = metric_head(out, f->name, f->type, f->help);

    for (size_t i = 0; i <= m->n_routes && r == 0; i++) {
        const struct http_route *route = i < m->n_routes ? route_at(m, i) : NULL;
        const struct metric_pair pairs[] = {{"method", route ? route->method : "*"},
                                            {"route", route ? route->pattern : "none"}};

        r = asked(&m->routes[i]) ? f->print(f, &m->routes[i], pairs, out) : 0;
    }
    return r;
}

static int print_sandboxes(struct db *db, struct buf *out, struct err *e)
{
    struct sandbox_counts counts = {0};
    int r = db_sandbox_count(db, &counts, e);

    if (r == 0) {
        r = metric_head(out, "space_sandboxes", METRIC_GAUGE,
                        "Sandboxes that there are, by the state last seen.");
    }
    for (unsigned s = 0; s < SANDBOX_STATE_DELETED && r == 0; s++) {
        r = metric_value(out, "space_sandboxes",
                         &(struct metric_pair){"state", sandbox_state_name((enum sandbox_state)s)},
                         (double)counts.n[s]);
    }
    return r;
}

static int count_node(void *ctx, const struct node_row *row)
{
    unsigned *counts = ctx;

    counts[node_row_health(row)]++;
    return 0;
}

static int print_nodes(struct db *db, struct buf *out, struct err *e)
{
    unsigned counts[NODE_HEALTH_COUNT_] = {0};
    int r = db_node_list(db, count_node, counts, e);

    if (r == 0) {
        r = metric_head(out, "space_nodes", METRIC_GAUGE,
                        "Nodes that were added, by their health; none where there is one alone.");
    }
    for (int h = 0; h < NODE_HEALTH_COUNT_ && r == 0; h++) {
        r = metric_value(out, "space_nodes",
                         &(struct metric_pair){"health", node_health_name((enum node_health)h)},
                         (double)counts[h]);
    }
    return r;
}

static int print_reconciler(struct control *control, struct buf *out)
{
    struct control_health h = control_health(control);
    const struct {
        const char *name;
        enum metric_type type;
        const char *help;
        double value;
    } rows[] = {
        {"space_reconciler_passes_total", METRIC_COUNTER,
         "Times that this gateway compared desired with observed state.", (double)h.passes},
        {"space_reconciler_failed_passes_total", METRIC_COUNTER, "Those that did not come through.",
         (double)h.failed_passes},
        {"space_reconciler_repairs_total", METRIC_COUNTER, "What had to be changed.",
         (double)h.repairs},
        {"space_node_up", METRIC_GAUGE, "Did the node answer the last pass?", h.node_ok},
    };
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(rows) && r == 0; i++) {
        r = metric_single(out, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
    }
    return r;
}

int metrics_print(struct metrics *m, struct control *control, struct db *db, struct buf *out,
                  struct err *e)
{
    int r = 0;

    ASSERT(m && control && db && out);

    for (size_t i = 0; i < ARRAY_SIZE(families) && r == 0; i++) {
        r = print_family(m, &families[i], out);
    }
    r = r < 0 ? r : metric_print_all(out);
    r = r < 0 ? r : print_reconciler(control, out);
    if (r == 0 && (print_sandboxes(db, out, e) < 0 || print_nodes(db, out, e) < 0)) {
        /* Without its database a gateway still says that it has none; see space_database_errors_total. */
        log_warn(NULL, "metrics without sandboxes or nodes: the database does not answer");
    }
    return r;
}
