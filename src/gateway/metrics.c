/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/metrics.h"

#include <stdatomic.h>

#include "base/clock.h"

/* Answers by their first digit; 0 is a connection that was cut before any. */
#define CLASSES 6

struct route_counters {
    atomic_uint_fast64_t answers[CLASSES];
    atomic_uint_fast64_t duration_ns;
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
    atomic_fetch_add_explicit(&c->duration_ns, done->duration_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes_in, done->bytes_in, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes_out, done->bytes_out, memory_order_relaxed);
}

static int print_route(struct metrics *m, size_t i, struct buf *out)
{
    const struct http_route *route = i < m->n_routes ? route_at(m, i) : NULL;
    const char *method = route ? route->method : "*";
    const char *pattern = route ? route->pattern : "none";
    struct route_counters *c = &m->routes[i];
    uint64_t total = 0;
    int r = 0;

    for (unsigned k = 0; k < CLASSES && r == 0; k++) {
        uint64_t n = atomic_load_explicit(&c->answers[k], memory_order_relaxed);

        total += n;
        if (n > 0) {
            r = buf_printf(
                out,
                "space_gateway_requests_total{method=\"%s\",route=\"%s\",class=\"%uxx\"} %llu\n",
                method, pattern, k, (unsigned long long)n);
        }
    }
    if (r < 0 || total == 0) {
        return r;
    }
    return buf_printf(
        out,
        "space_gateway_request_seconds_sum{method=\"%s\",route=\"%s\"} %.6f\n"
        "space_gateway_request_seconds_count{method=\"%s\",route=\"%s\"} %llu\n"
        "space_gateway_received_bytes_total{method=\"%s\",route=\"%s\"} %llu\n"
        "space_gateway_sent_bytes_total{method=\"%s\",route=\"%s\"} %llu\n",
        method, pattern,
        (double)atomic_load_explicit(&c->duration_ns, memory_order_relaxed) / (double)NS_PER_S,
        method, pattern, (unsigned long long)total, method, pattern,
        (unsigned long long)atomic_load_explicit(&c->bytes_in, memory_order_relaxed), method,
        pattern, (unsigned long long)atomic_load_explicit(&c->bytes_out, memory_order_relaxed));
}

static int print_sandboxes(struct db *db, struct buf *out, struct err *e)
{
    struct sandbox_counts counts = {0};
    int r = db_sandbox_count(db, &counts, e);

    if (r == 0) {
        r = buf_add_str(out, "# TYPE space_sandboxes gauge\n");
    }
    for (unsigned s = 0; s < SANDBOX_STATE_DELETED && r == 0; s++) {
        r = buf_printf(out, "space_sandboxes{state=\"%s\"} %lld\n",
                       sandbox_state_name((enum sandbox_state)s), (long long)counts.n[s]);
    }
    return r;
}

static int print_reconciler(struct control *control, struct buf *out)
{
    struct control_health h = control_health(control);

    return buf_printf(out,
                      "# TYPE space_reconciler_passes_total counter\n"
                      "space_reconciler_passes_total %llu\n"
                      "# TYPE space_reconciler_failed_passes_total counter\n"
                      "space_reconciler_failed_passes_total %llu\n"
                      "# TYPE space_reconciler_repairs_total counter\n"
                      "space_reconciler_repairs_total %llu\n"
                      "# TYPE space_node_up gauge\n"
                      "space_node_up %d\n",
                      (unsigned long long)h.passes, (unsigned long long)h.failed_passes,
                      (unsigned long long)h.repairs, h.node_ok);
}

int metrics_print(struct metrics *m, struct control *control, struct db *db, struct buf *out,
                  struct err *e)
{
    int r;

    ASSERT(m && control && db && out);

    r = buf_add_str(out, "# TYPE space_gateway_requests_total counter\n"
                         "# TYPE space_gateway_request_seconds summary\n"
                         "# TYPE space_gateway_received_bytes_total counter\n"
                         "# TYPE space_gateway_sent_bytes_total counter\n");
    for (size_t i = 0; i <= m->n_routes && r == 0; i++) {
        r = print_route(m, i, out);
    }
    if (r == 0) {
        r = print_reconciler(control, out);
    }
    if (r == 0) {
        r = print_sandboxes(db, out, e);
    }
    return r;
}
