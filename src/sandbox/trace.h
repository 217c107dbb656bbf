/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the time of an operation goes: its steps, each with the time since the one before. The newest
 * operations of each sandbox are kept in memory, for 'space trace' and for benchmarks.
 *
 *     trace_begin(&res->trace, "create");
 *     ...                              trace_mark(&res->trace, "disk cloned");
 *     trace_end(&res->trace, r);
 *
 * With the sandbox's op lock held. Marks outside of an operation are passed over.
 */
#pragma once

#include "base/json.h"

#define TRACE_STEPS_MAX 24
#define TRACE_KEPT 8

struct trace_operation {
    const char *name;  /* static; NULL: none */
    uint64_t begun_ms; /* wall clock */
    uint64_t begun_ns;
    uint64_t total_ns; /* 0: still under way */
    int result;
    bool part; /* of another sandbox's operation, which is counted */
    size_t n;
    struct {
        const char *name; /* static */
        uint64_t took_ns;
    } steps[TRACE_STEPS_MAX];
};

struct trace {
    struct trace_operation kept[TRACE_KEPT]; /* a ring */
    unsigned next;
    struct trace_operation *now; /* into kept; NULL: none under way */
    uint64_t marked_ns;
};

void trace_begin(struct trace *trace, const char *operation);
/* What another sandbox's operation does to this one: metrics have it there. */
void trace_begin_part(struct trace *trace, const char *operation);
void trace_mark(struct trace *trace, const char *step);
void trace_end(struct trace *trace, int result);
/* An array, newest first. */
json_t *trace_to_json(const struct trace *trace);
