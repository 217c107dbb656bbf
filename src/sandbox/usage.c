/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/usage.h"

void usage_done(struct usage *u)
{
    free(u->kept);
    *u = (struct usage){0};
}

/* i: 0 is the oldest. */
static const struct usage_sample *sample_at(const struct usage *u, unsigned i)
{
    ASSERT(i < u->n);
    return &u->kept[(u->next + USAGE_KEPT - u->n + i) % USAGE_KEPT];
}

void usage_add(struct usage *u, int64_t at_ms, json_t *guest)
{
    json_t *cpu = json_object_get(guest, "cpu");
    json_t *memory = json_object_get(guest, "memory");
    json_t *disk = json_object_get(guest, "disk");

    if (u->n > 0 && sample_at(u, u->n - 1)->at_ms > at_ms) {
        return;
    }
    if (!u->kept) {
        u->kept = xnew_n(struct usage_sample, USAGE_KEPT);
    }
    u->kept[u->next] = (struct usage_sample){
        .at_ms = at_ms,
        .cpu_count = json_get_int(cpu, "count", 1),
        .cpu_user_ms = json_get_int(cpu, "user_ms", 0),
        .cpu_system_ms = json_get_int(cpu, "system_ms", 0),
        .cpu_idle_ms = json_get_int(cpu, "idle_ms", 0),
        .cpu_iowait_ms = json_get_int(cpu, "iowait_ms", 0),
        .memory_total = json_get_int(memory, "total_bytes", 0),
        .memory_available = json_get_int(memory, "available_bytes", 0),
        .memory_cached = json_get_int(memory, "cached_bytes", 0),
        .disk_total = json_get_int(disk, "total_bytes", 0),
        .disk_free = json_get_int(disk, "free_bytes", 0),
    };
    u->next = (u->next + 1) % USAGE_KEPT;
    u->n = MIN(u->n + 1, USAGE_KEPT);
}

static json_t *sample_to_json(const struct usage_sample *s, bool before)
{
    return json_pack(
        "{s:I, s:b, s:{s:I, s:I, s:I, s:I, s:I}, s:{s:I, s:I, s:I}, s:{s:I, s:I}}", "at_ms",
        (json_int_t)s->at_ms, "before", before, "cpu", "count", (json_int_t)s->cpu_count, "user_ms",
        (json_int_t)s->cpu_user_ms, "system_ms", (json_int_t)s->cpu_system_ms, "idle_ms",
        (json_int_t)s->cpu_idle_ms, "iowait_ms", (json_int_t)s->cpu_iowait_ms, "memory",
        "total_bytes", (json_int_t)s->memory_total, "available_bytes",
        (json_int_t)s->memory_available, "cached_bytes", (json_int_t)s->memory_cached, "disk",
        "total_bytes", (json_int_t)s->disk_total, "free_bytes", (json_int_t)s->disk_free);
}

json_t *usage_to_json(const struct usage *u, const struct usage_window *window)
{
    json_t *all = json_array();

    for (unsigned i = 0; i < u->n; i++) {
        const struct usage_sample *s = sample_at(u, i);

        if (s->at_ms > window->to_ms) {
            break;
        }
        if (s->at_ms < window->from_ms) {
            json_array_clear(all);
        }
        json_array_append_new(all, sample_to_json(s, s->at_ms < window->from_ms));
    }
    return all;
}
