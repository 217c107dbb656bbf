/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/trace.h"

#include "base/clock.h"
#include "sandbox/figures.h"

void trace_begin(struct trace *trace, const char *operation)
{
    if (trace->now) {
        return; /* an operation inside another one: its steps are the outer one's */
    }
    trace->now = &trace->kept[trace->next++ % TRACE_KEPT];
    *trace->now = (struct trace_operation){
        .name = operation, .begun_ms = clock_wall_ms(), .begun_ns = clock_now_ns()};
    trace->marked_ns = trace->now->begun_ns;
}

void trace_begin_part(struct trace *trace, const char *operation)
{
    trace_begin(trace, operation);
    trace->now->part = true;
}

void trace_mark(struct trace *trace, const char *step)
{
    uint64_t now_ns = clock_now_ns();
    struct trace_operation *op = trace->now;

    if (op && op->n < TRACE_STEPS_MAX) {
        op->steps[op->n].name = step;
        op->steps[op->n++].took_ns = now_ns - trace->marked_ns;
    }
    trace->marked_ns = now_ns;
}

void trace_end(struct trace *trace, int result)
{
    if (trace->now) {
        trace->now->total_ns = clock_now_ns() - trace->now->begun_ns;
        trace->now->result = result;
        if (!trace->now->part) {
            figures_count_operation(trace->now->name, result, trace->now->total_ns);
        }
        trace->now = NULL;
    }
}

static json_t *operation_to_json(const struct trace_operation *op)
{
    json_t *steps = json_array();

    for (size_t i = 0; i < op->n; i++) {
        json_array_append_new(steps, json_pack("{s:s, s:I}", "step", op->steps[i].name, "took_us",
                                               (json_int_t)(op->steps[i].took_ns / 1000)));
    }
    return json_pack("{s:s, s:I, s:I, s:b, s:o}", "operation", op->name, "at_ms",
                     (json_int_t)op->begun_ms, "took_us", (json_int_t)(op->total_ns / 1000), "ok",
                     op->result >= 0, "steps", steps);
}

json_t *trace_to_json(const struct trace *trace)
{
    json_t *all = json_array();

    for (unsigned i = 1; i <= TRACE_KEPT; i++) {
        const struct trace_operation *op = &trace->kept[(trace->next - i) % TRACE_KEPT];

        if (op->name) {
            json_array_append_new(all, operation_to_json(op));
        }
    }
    return all;
}
