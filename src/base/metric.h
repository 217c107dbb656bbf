/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this program counts, in the Prometheus text format (exposition format 0.0.4).
 *
 * A metric is a static struct: its name, its help, its labels, each with all the values that it may ever have. So the number
 * of series is known when the program is compiled, and no id of a sandbox or a tenant can become a label. Counting is one
 * atomic addition. A metric that was not registered counts nothing: whoever prints registers.
 *
 *     static struct metric taken = {.name = "space_node_snapshots_taken_total", .type = METRIC_COUNTER,
 *                                   .help = "Snapshots taken.", .labels = {{"kind", kinds, ARRAY_SIZE(kinds)}}};
 *     metric_register(&taken);                      in main, before the first thread
 *     metric_add(&taken, METRIC_AT(kind), 1);
 *
 * What is not counted but looked up when somebody asks is printed by metric_head() and metric_value().
 * Thread-safe, but for metric_register().
 */
#pragma once

#include "base/buf.h"
#include "base/util.h"

#include <stdatomic.h>
#include <stdint.h>

#define METRIC_LABELS_MAX 2u
/* Series of one metric: more is a mistake in the program. */
#define METRIC_SERIES_MAX 256u

enum metric_type {
    METRIC_COUNTER,
    METRIC_GAUGE,
    METRIC_HISTOGRAM /* of durations, in seconds */
};

struct metric_label {
    const char *name;          /* static; NULL: there is none */
    const char *const *values; /* static */
    size_t n;
};

struct metric {
    const char *name;
    const char *help;
    enum metric_type type;
    struct metric_label labels[METRIC_LABELS_MAX];
    bool quiet; /* a series is printed once it has counted something */
    /* Ours. */
    atomic_int_fast64_t *cells; /* owned, for as long as the program runs; NULL: not registered */
    struct metric *next;
};

/* Which series: an index into the values of each label. Beyond the last means the last. */
struct metric_at {
    size_t i[METRIC_LABELS_MAX];
};
#define METRIC_AT(...) ((struct metric_at){.i = {__VA_ARGS__}})
#define METRIC_ONLY METRIC_AT(0)

/* Where word is among the values of label number i; the last when it is none of them. */
size_t metric_index(const struct metric *m, size_t i, const char *word);

/* Twice is once. */
void metric_register(struct metric *m);
/* Of a counter or gauge; by can be negative for a gauge only. */
void metric_add(struct metric *m, struct metric_at at, int64_t by);
/* Of a histogram. */
void metric_observe(struct metric *m, struct metric_at at, uint64_t took_ns);
/* All that were registered, in that order. */
MUST_CHECK int metric_print_all(struct buf *out);

/* How something went, as the value of a label. */
enum metric_outcome {
    METRIC_OK,
    METRIC_REFUSED,  /* what was asked for is not possible */
    METRIC_NO_ROOM,  /* memory, disk, quota */
    METRIC_CANCELED, /* whoever asked has gone */
    METRIC_TIMED_OUT,
    METRIC_UNAVAILABLE, /* something that it needs is away */
    METRIC_FAILED,
    METRIC_OUTCOME_COUNT_
};
extern const char *const metric_outcomes[METRIC_OUTCOME_COUNT_];
#define METRIC_OUTCOMES \
    { \
        "outcome", metric_outcomes, METRIC_OUTCOME_COUNT_ \
    }
/* r: 0 or a negative errno. */
enum metric_outcome metric_outcome(int r);

/* --- what is looked up when somebody asks, or counted in tables of one's own --- */

struct metric_pair {
    const char *name;  /* NULL: none */
    const char *value; /* any text: it is escaped */
};

/* A cell for each bucket, one for +Inf, one for the sum of nanoseconds. */
#define METRIC_HISTOGRAM_CELLS 19u
struct metric_histogram {
    atomic_int_fast64_t cells[METRIC_HISTOGRAM_CELLS];
};
void metric_histogram_observe(struct metric_histogram *h, uint64_t took_ns);
/* Prints nothing, and returns 0, when nothing was observed. pairs: n labels, METRIC_LABELS_MAX at most. */
MUST_CHECK int metric_histogram_print(struct buf *out, const char *name,
                                      const struct metric_pair *pairs, size_t n,
                                      struct metric_histogram *h);
MUST_CHECK int metric_head(struct buf *out, const char *name, enum metric_type type,
                           const char *help);
/* label may be NULL. */
MUST_CHECK int metric_value(struct buf *out, const char *name, const struct metric_pair *label,
                            double value);
/* One without labels, with its head. */
MUST_CHECK int metric_single(struct buf *out, const char *name, enum metric_type type,
                             const char *help, double value);
