/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/output.h"

#include <string.h>

/* Where a stretch of one stream begins; two fields in eight bytes, there may be many. */
struct run {
    uint64_t start : 62;
    uint64_t kind : 2;
};

#define RUNS_START ((size_t)16)

struct output {
    struct output_budget *budget; /* borrowed: lives as long as the daemon */
    char *data;                   /* owned; size bytes; byte at offset o is data[o & (size - 1)] */
    struct run *runs;             /* owned; n_slots of them, a ring; the oldest at head */
    size_t capacity;              /* size may grow up to this; a power of two */
    size_t size;                  /* a power of two, or 0 */
    size_t n_slots;               /* a power of two, or 0 */
    size_t head;
    size_t n_runs;
    uint64_t first;
    uint64_t end;
};

static size_t power_of_two(size_t n)
{
    size_t p = OUTPUT_START;

    while (p < n) {
        p *= 2;
    }
    return p;
}

struct output *output_new(struct output_budget *budget, size_t capacity)
{
    struct output *o = xnew(struct output);

    ASSERT(budget && capacity <= ((size_t)1 << 30));

    o->budget = budget;
    o->capacity = power_of_two(capacity);
    return o;
}

/* What of the memory counts against the budget: the first OUTPUT_START bytes of a ring are free. */
static size_t charged(size_t size, size_t n_slots)
{
    return (size > OUTPUT_START ? size - OUTPUT_START : 0) +
           (n_slots > RUNS_START ? (n_slots - RUNS_START) * sizeof(struct run) : 0);
}

static void recharge(struct output *o, size_t size, size_t n_slots)
{
    o->budget->used -= charged(o->size, o->n_slots);
    o->budget->used += charged(size, n_slots);
    o->size = size;
    o->n_slots = n_slots;
}

void output_free(struct output *o)
{
    if (!o) {
        return;
    }
    recharge(o, 0, 0);
    free(o->data);
    free(o->runs);
    free(o);
}

uint64_t output_first(const struct output *o)
{
    return o->first;
}

uint64_t output_end(const struct output *o)
{
    return o->end;
}

size_t output_memory(const struct output *o)
{
    return o->size + o->n_slots * sizeof(struct run);
}

static struct run *run_at(const struct output *o, size_t i)
{
    return &o->runs[(o->head + i) & (o->n_slots - 1)];
}

/* The largest size the ring may have now. */
static size_t size_allowed(const struct output *o)
{
    size_t size = MAX(o->size, OUTPUT_START);
    size_t used = o->budget->used;

    while (size < o->capacity) {
        size_t more = charged(size * 2, o->n_slots) - charged(o->size, o->n_slots);

        if (used + more > o->budget->max) {
            break;
        }
        size *= 2;
    }
    return size;
}

static bool runs_may_grow(const struct output *o)
{
    size_t slots = MAX(o->n_slots * 2, RUNS_START);

    return slots <= OUTPUT_RUNS_MAX &&
           o->budget->used + charged(o->size, slots) - charged(o->size, o->n_slots) <=
               o->budget->max;
}

size_t output_room(const struct output *o, uint64_t hold)
{
    uint64_t keep_from = MAX(MIN(hold, o->end), o->first);
    size_t kept = (size_t)(o->end - keep_from);
    size_t allowed = size_allowed(o);

    /* One more run must fit as well: its slot is free, can be made, or the oldest run can go. */
    if (o->n_runs == o->n_slots && !runs_may_grow(o) && o->n_runs > 0) {
        uint64_t second = o->n_runs > 1 ? run_at(o, 1)->start : o->end;

        if (second > keep_from && kept > 0) {
            return 0;
        }
    }
    return allowed > kept ? allowed - kept : 0;
}

static void copy_out(const struct output *o, uint64_t offset, char *dst, size_t len)
{
    size_t at = (size_t)(offset & (o->size - 1));
    size_t before_wrap = MIN(len, o->size - at);

    memcpy(dst, o->data + at, before_wrap);
    memcpy(dst + before_wrap, o->data, len - before_wrap);
}

/* Moves the bytes into a ring of another size; what is kept must fit. */
static void resize_data(struct output *o, size_t size)
{
    size_t len = (size_t)(o->end - o->first);
    char *fresh = NULL;

    ASSERT(len <= size);
    if (size > 0) {
        size_t at = (size_t)(o->first & (size - 1));
        size_t before_wrap = MIN(len, size - at);

        fresh = xmalloc(size);
        if (len > 0) {
            copy_out(o, o->first, fresh + at, before_wrap);
            copy_out(o, o->first + before_wrap, fresh, len - before_wrap);
        }
    }
    free(o->data);
    o->data = fresh;
    recharge(o, size, o->n_slots);
}

static void resize_runs(struct output *o, size_t n_slots)
{
    struct run *fresh = n_slots > 0 ? xnew_n(struct run, n_slots) : NULL;

    ASSERT(o->n_runs <= n_slots);
    for (size_t i = 0; i < o->n_runs; i++) {
        fresh[i] = *run_at(o, i);
    }
    free(o->runs);
    o->runs = fresh;
    o->head = 0;
    recharge(o, o->size, n_slots);
}

static void drop_before(struct output *o, uint64_t offset)
{
    ASSERT(offset >= o->first && offset <= o->end);

    o->first = offset;
    while (o->n_runs > 0 && (o->n_runs > 1 ? run_at(o, 1)->start : o->end) <= offset) {
        o->head = (o->head + 1) & (o->n_slots - 1);
        o->n_runs--;
    }
}

static void begin_run(struct output *o, enum output_kind kind)
{
    if (o->n_runs > 0 && run_at(o, o->n_runs - 1)->kind == (uint64_t)kind) {
        return;
    }
    if (o->n_runs == o->n_slots) {
        if (o->n_slots == 0 || runs_may_grow(o)) {
            resize_runs(o, MAX(o->n_slots * 2, RUNS_START));
        } else {
            drop_before(o, o->n_runs > 1 ? run_at(o, 1)->start : o->end);
        }
    }
    *run_at(o, o->n_runs) = (struct run){.start = o->end, .kind = (uint64_t)kind};
    o->n_runs++;
}

void output_add(struct output *o, enum output_kind kind, const void *data, size_t len)
{
    size_t allowed = size_allowed(o);
    size_t kept = (size_t)(o->end - o->first);
    size_t at;
    size_t before_wrap;

    ASSERT(o && kind < OUTPUT_KIND_COUNT_ && len <= allowed);

    if (len == 0) {
        return;
    }
    if (kept + len > allowed) {
        drop_before(o, o->end - (allowed - len));
        kept = allowed - len;
    }
    if (kept + len > o->size) {
        size_t size = MAX(o->size, OUTPUT_START);

        while (size < kept + len) {
            size *= 2;
        }
        resize_data(o, size);
    }
    begin_run(o, kind);
    at = (size_t)(o->end & (o->size - 1));
    before_wrap = MIN(len, o->size - at);
    memcpy(o->data + at, data, before_wrap);
    memcpy(o->data, (const char *)data + before_wrap, len - before_wrap);
    o->end += len;
}

/* The last run that begins at or before offset. */
static size_t run_find(const struct output *o, uint64_t offset)
{
    size_t low = 0;
    size_t high = o->n_runs;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (run_at(o, middle)->start <= offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

bool output_peek(const struct output *o, uint64_t offset, struct output_run *ret)
{
    size_t i;
    size_t at;
    uint64_t run_end;

    ASSERT(o && ret && offset >= o->first);

    if (offset >= o->end) {
        return false;
    }
    i = run_find(o, offset);
    run_end = i + 1 < o->n_runs ? run_at(o, i + 1)->start : o->end;
    at = (size_t)(offset & (o->size - 1));
    ret->kind = (enum output_kind)run_at(o, i)->kind;
    ret->data = o->data + at;
    ret->len = MIN((size_t)(run_end - offset), o->size - at);
    return true;
}

void output_trim(struct output *o, uint64_t offset)
{
    drop_before(o, MAX(MIN(offset, o->end), o->first));
    output_settle(o);
}

void output_settle(struct output *o)
{
    size_t len = (size_t)(o->end - o->first);
    size_t size = len > 0 ? power_of_two(len) : 0;
    size_t n_slots = RUNS_START;

    while (n_slots < o->n_runs) {
        n_slots *= 2;
    }
    if (o->n_runs == 0) {
        n_slots = 0;
    }
    if (size < o->size) {
        resize_data(o, size);
    }
    if (n_slots < o->n_slots) {
        resize_runs(o, n_slots);
    }
}
