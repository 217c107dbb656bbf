/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metric.h"

#include <string.h>

#include "base/clock.h"

/* Upper ends of the buckets, in seconds as they are printed and in nanoseconds; then +Inf. */
static const struct {
    const char *text;
    uint64_t ns;
} bounds[] = {{"0.0005", 500000},  {"0.001", 1000000},      {"0.0025", 2500000},
              {"0.005", 5000000},  {"0.01", 10000000},      {"0.025", 25000000},
              {"0.05", 50000000},  {"0.1", 100000000},      {"0.25", 250000000},
              {"0.5", 500000000},  {"1", 1000000000},       {"2.5", 2500000000},
              {"5", 5000000000},   {"10", 10000000000},     {"30", 30000000000},
              {"60", 60000000000}, {"300", 300000000000ull}};

#define N_BOUNDS ARRAY_SIZE(bounds)
_Static_assert(N_BOUNDS + 2 == METRIC_HISTOGRAM_CELLS, "one for +Inf, one for the sum");

static const char *const type_names[] = {
    [METRIC_COUNTER] = "counter", [METRIC_GAUGE] = "gauge", [METRIC_HISTOGRAM] = "histogram"};

const char *const metric_outcomes[METRIC_OUTCOME_COUNT_] = {
    [METRIC_OK] = "ok",
    [METRIC_REFUSED] = "refused",
    [METRIC_NO_ROOM] = "no_room",
    [METRIC_CANCELED] = "canceled",
    [METRIC_TIMED_OUT] = "timed_out",
    [METRIC_UNAVAILABLE] = "unavailable",
    [METRIC_FAILED] = "failed",
};

static struct metric *first;
static struct metric **last = &first;

enum metric_outcome metric_outcome(int r)
{
    switch (-r) {
    case 0:
        return METRIC_OK;
    case EINVAL:
    case ENOENT:
    case EEXIST:
    case ESTALE:
    case EPERM:
    case EACCES:
    case ENOTSUP:
    case ENOTCONN:
    case E2BIG:
    case EBUSY:
        return METRIC_REFUSED;
    case ENOSPC:
    case ENOMEM:
    case EDQUOT:
    case EUSERS:
    case EMFILE:
    case EAGAIN:
        return METRIC_NO_ROOM;
    case ECANCELED:
        return METRIC_CANCELED;
    case ETIMEDOUT:
        return METRIC_TIMED_OUT;
    case EHOSTDOWN:
    case ECONNREFUSED:
    case ECONNRESET:
        return METRIC_UNAVAILABLE;
    default:
        return r > 0 ? METRIC_OK : METRIC_FAILED;
    }
}

static size_t n_values(const struct metric *m, size_t i)
{
    return m->labels[i].name ? m->labels[i].n : 1;
}

static size_t n_series(const struct metric *m)
{
    return n_values(m, 0) * n_values(m, 1);
}

static size_t n_cells(const struct metric *m)
{
    return m->type == METRIC_HISTOGRAM ? METRIC_HISTOGRAM_CELLS : 1;
}

size_t metric_index(const struct metric *m, size_t i, const char *word)
{
    size_t at = 0;

    ASSERT(i < METRIC_LABELS_MAX && m->labels[i].name);
    while (at + 1 < m->labels[i].n && !str_eq(m->labels[i].values[at], word)) {
        at++;
    }
    return at;
}

void metric_register(struct metric *m)
{
    ASSERT(m->name && m->help && n_series(m) > 0 && n_series(m) <= METRIC_SERIES_MAX);
    if (m->cells) {
        return;
    }
    for (size_t i = 0; i < METRIC_LABELS_MAX && m->labels[i].name; i++) {
        for (size_t j = 0; j < m->labels[i].n; j++) {
            ASSERT(m->labels[i].values[j]); /* something new was not given its word */
        }
    }
    m->cells = xnew_n(atomic_int_fast64_t, n_series(m) * n_cells(m));
    *last = m;
    last = &m->next;
}

static atomic_int_fast64_t *series(struct metric *m, struct metric_at at)
{
    size_t i = MIN(at.i[0], n_values(m, 0) - 1);
    size_t j = MIN(at.i[1], n_values(m, 1) - 1);

    return m->cells ? m->cells + (i * n_values(m, 1) + j) * n_cells(m) : NULL;
}

void metric_add(struct metric *m, struct metric_at at, int64_t by)
{
    atomic_int_fast64_t *cell = series(m, at);

    ASSERT(m->type != METRIC_HISTOGRAM && (by >= 0 || m->type == METRIC_GAUGE));
    if (cell) {
        atomic_fetch_add_explicit(cell, by, memory_order_relaxed);
    }
}

static void observe(atomic_int_fast64_t *cells, uint64_t took_ns)
{
    size_t bucket = 0;

    while (bucket < N_BOUNDS && took_ns > bounds[bucket].ns) {
        bucket++;
    }
    atomic_fetch_add_explicit(&cells[N_BOUNDS + 1], (int64_t)took_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&cells[bucket], 1, memory_order_relaxed);
}

void metric_observe(struct metric *m, struct metric_at at, uint64_t took_ns)
{
    atomic_int_fast64_t *cells = series(m, at);

    ASSERT(m->type == METRIC_HISTOGRAM);
    if (cells) {
        observe(cells, took_ns);
    }
}

void metric_histogram_observe(struct metric_histogram *h, uint64_t took_ns)
{
    observe(h->cells, took_ns);
}

/* ---- text ---- */

/* As the format wants it: in the value of a label (quoted) also the quote. */
static int add_escaped(struct buf *out, const char *text, bool quoted)
{
    int r = 0;

    for (; *text && r == 0; text++) {
        if (*text == '\n') {
            r = buf_add_str(out, "\\n");
        } else if (*text == '\\' || (quoted && *text == '"')) {
            r = buf_printf(out, "\\%c", *text);
        } else {
            r = buf_add(out, text, 1);
        }
    }
    return r;
}

int metric_head(struct buf *out, const char *name, enum metric_type type, const char *help)
{
    int r = buf_printf(out, "# HELP %s ", name);

    r = r < 0 ? r : add_escaped(out, help, false);
    return r < 0 ? r : buf_printf(out, "\n# TYPE %s %s\n", name, type_names[type]);
}

/* pairs up to the first without a name. */
static int add_labels(struct buf *out, const struct metric_pair *pairs, size_t n)
{
    int r = 0;

    for (size_t i = 0; i < n && pairs[i].name && r == 0; i++) {
        r = buf_printf(out, "%s%s=\"", i == 0 ? "{" : ",", pairs[i].name);
        r = r < 0 ? r : add_escaped(out, pairs[i].value, true);
        r = r < 0 ? r : buf_add_str(out, "\"");
    }
    return r < 0 || n == 0 || !pairs[0].name ? r : buf_add_str(out, "}");
}

int metric_value(struct buf *out, const char *name, const struct metric_pair *label, double value)
{
    int r = buf_add_str(out, name);

    r = r < 0 ? r : add_labels(out, label, label ? 1 : 0);
    return r < 0 ? r : buf_printf(out, " %.17g\n", value);
}

int metric_single(struct buf *out, const char *name, enum metric_type type, const char *help,
                  double value)
{
    int r = metric_head(out, name, type, help);

    return r < 0 ? r : metric_value(out, name, NULL, value);
}

/* pairs has room for one more label. */
static int print_histogram(const char *name, const int64_t *cells, struct metric_pair *pairs,
                           size_t n, struct buf *out)
{
    int64_t total = 0;
    int r = 0;

    for (size_t b = 0; b <= N_BOUNDS && r == 0; b++) {
        total += cells[b];
        pairs[n] = (struct metric_pair){"le", b < N_BOUNDS ? bounds[b].text : "+Inf"};
        r = buf_printf(out, "%s_bucket", name);
        r = r < 0 ? r : add_labels(out, pairs, n + 1);
        r = r < 0 ? r : buf_printf(out, " %lld\n", (long long)total);
    }
    r = r < 0 ? r : buf_printf(out, "%s_sum", name);
    r = r < 0 ? r : add_labels(out, pairs, n);
    r = r < 0 ? r : buf_printf(out, " %.9f\n", (double)cells[N_BOUNDS + 1] / (double)NS_PER_S);
    r = r < 0 ? r : buf_printf(out, "%s_count", name);
    r = r < 0 ? r : add_labels(out, pairs, n);
    return r < 0 ? r : buf_printf(out, " %lld\n", (long long)total);
}

/* Read once: what is printed of one series adds up. True: something was counted. */
static bool read_cells(atomic_int_fast64_t *from, size_t n, int64_t *ret)
{
    bool counted = false;

    for (size_t c = 0; c < n; c++) {
        ret[c] = atomic_load_explicit(&from[c], memory_order_relaxed);
        counted = counted || ret[c] != 0;
    }
    return counted;
}

int metric_histogram_print(struct buf *out, const char *name, const struct metric_pair *pairs,
                           size_t n, struct metric_histogram *h)
{
    struct metric_pair with_le[METRIC_LABELS_MAX + 1] = {0};
    int64_t cells[METRIC_HISTOGRAM_CELLS];

    ASSERT(n <= METRIC_LABELS_MAX);
    for (size_t i = 0; i < n; i++) {
        with_le[i] = pairs[i];
    }
    return read_cells(h->cells, METRIC_HISTOGRAM_CELLS, cells)
               ? print_histogram(name, cells, with_le, n, out)
               : 0;
}

static int print_series(const struct metric *m, size_t s, struct buf *out)
{
    struct metric_pair pairs[METRIC_LABELS_MAX + 1] = {0};
    const size_t at[METRIC_LABELS_MAX] = {s / n_values(m, 1), s % n_values(m, 1)};
    int64_t cells[METRIC_HISTOGRAM_CELLS];
    size_t n = 0;
    int r;

    if (!read_cells(m->cells + s * n_cells(m), n_cells(m), cells) && m->quiet) {
        return 0;
    }
    for (size_t i = 0; i < METRIC_LABELS_MAX && m->labels[i].name; i++) {
        pairs[n++] = (struct metric_pair){m->labels[i].name, m->labels[i].values[at[i]]};
    }
    if (m->type == METRIC_HISTOGRAM) {
        return print_histogram(m->name, cells, pairs, n, out);
    }
    r = buf_add_str(out, m->name);
    r = r < 0 ? r : add_labels(out, pairs, n);
    return r < 0 ? r : buf_printf(out, " %lld\n", (long long)cells[0]);
}

int metric_print_all(struct buf *out)
{
    int r = 0;

    for (const struct metric *m = first; m && r == 0; m = m->next) {
        r = metric_head(out, m->name, m->type, m->help);
        for (size_t s = 0; s < n_series(m) && r == 0; s++) {
            r = print_series(m, s, out);
        }
    }
    return r;
}
