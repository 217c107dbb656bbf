/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/output.h"

#include "base/test.h"

static void streams_come_out_apart_and_in_order(void)
{
    struct output_budget budget = {.max = 1 << 20};
    CLEANUP(output_freep) struct output *o = output_new(&budget, 8192);
    struct output_run run;

    output_add(o, OUTPUT_STDOUT, "one", 3);
    output_add(o, OUTPUT_STDOUT, "two", 3);
    output_add(o, OUTPUT_STDERR, "ERR", 3);
    output_add(o, OUTPUT_STDOUT, "three", 5);
    CHECK_INT(output_end(o), 14);
    REQUIRE(output_peek(o, 0, &run));
    CHECK_INT(run.kind, OUTPUT_STDOUT);
    CHECK_INT(run.len, 6);
    CHECK_MEM(run.data, "onetwo", 6);
    REQUIRE(output_peek(o, 8, &run));
    CHECK_INT(run.kind, OUTPUT_STDERR);
    CHECK_INT(run.len, 1);
    REQUIRE(output_peek(o, 9, &run));
    CHECK_MEM(run.data, "three", 5);
    CHECK(!output_peek(o, 14, &run));
}

static void full_ring_keeps_the_newest(void)
{
    struct output_budget budget = {.max = 1 << 20};
    CLEANUP(output_freep) struct output *o = output_new(&budget, 8192);
    char block[1000];
    struct output_run run;

    for (int i = 0; i < 20; i++) {
        memset(block, 'a' + i, sizeof(block));
        output_add(o, i % 2 ? OUTPUT_STDERR : OUTPUT_STDOUT, block, sizeof(block));
    }
    CHECK_INT(output_end(o), 20000);
    CHECK_INT(output_first(o), 20000 - 8192);
    REQUIRE(output_peek(o, output_first(o), &run));
    CHECK_INT(run.data[0], 'a' + 11);
    CHECK_INT(run.kind, OUTPUT_STDERR);
}

static void held_bytes_leave_no_room(void)
{
    struct output_budget budget = {.max = 1 << 20};
    CLEANUP(output_freep) struct output *o = output_new(&budget, 4096);
    char block[4096] = {0};

    CHECK_INT(output_room(o, 0), 4096);
    output_add(o, OUTPUT_PTY, block, 4000);
    CHECK_INT(output_room(o, 0), 96);
    CHECK_INT(output_room(o, 4000), 4096);
    CHECK_INT(output_room(o, OUTPUT_HOLD_NOTHING), 4096);
    output_add(o, OUTPUT_PTY, block, 96);
    CHECK_INT(output_room(o, 0), 0);
    CHECK_INT(output_room(o, 10), 10);
}

static void budget_stops_growth(void)
{
    struct output_budget budget = {.max = 8192};
    CLEANUP(output_freep) struct output *a = output_new(&budget, 1 << 20);
    CLEANUP(output_freep) struct output *b = output_new(&budget, 1 << 20);
    char block[4096] = {0};

    for (int i = 0; i < 100; i++) {
        output_add(a, OUTPUT_STDOUT, block, sizeof(block));
        output_add(b, OUTPUT_STDOUT, block, sizeof(block));
    }
    CHECK(budget.used <= budget.max);
    CHECK_INT(output_memory(a) - 16 * 8, 8192);
    CHECK_INT(output_end(b) - output_first(b), 8192);
    CHECK_INT(output_room(a, output_first(a)), 0);
    output_trim(a, output_end(a));
    CHECK_INT(output_memory(a), 0);
    CHECK_INT(output_room(b, output_first(b)),
              0); /* twice its size would be over the budget still */
}

static void byte_by_byte_alternation_is_bounded(void)
{
    struct output_budget budget = {.max = 4 << 20};
    CLEANUP(output_freep) struct output *o = output_new(&budget, 1 << 20);

    for (int i = 0; i < 200000; i++) {
        output_add(o, i % 2 ? OUTPUT_STDERR : OUTPUT_STDOUT, i % 2 ? "e" : "o", 1);
    }
    CHECK_INT(output_end(o) - output_first(o), OUTPUT_RUNS_MAX);
    CHECK(output_memory(o) <= 1 << 20);
    CHECK_INT(output_room(o, output_first(o)),
              0); /* a holding reader is not robbed of the oldest run */
    CHECK(output_room(o, output_first(o) + 1) > 0);
}

static void settled_ring_is_small_and_whole(void)
{
    struct output_budget budget = {.max = 4 << 20};
    CLEANUP(output_freep) struct output *o = output_new(&budget, 1 << 20);
    char block[65536];
    struct output_run run;

    memset(block, 'x', sizeof(block));
    for (int i = 0; i < 10; i++) {
        output_add(o, OUTPUT_STDOUT, block, sizeof(block));
    }
    output_trim(o, output_end(o) - 5000);
    CHECK(output_memory(o) <= 8192 + 16 * 8);
    CHECK_INT(output_first(o), 655360 - 5000);
    REQUIRE(output_peek(o, output_first(o), &run));
    CHECK_INT(run.data[0], 'x');
    output_add(o, OUTPUT_STDERR, "late", 4);
    CHECK_INT(output_end(o), 655364);
}

/* A ring that cannot go wrong: every byte ever, with its stream. */
struct model {
    char *data;
    uint8_t *kind;
    uint64_t first_possible; /* nothing before this may still be there */
    size_t end;
};

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void compare(const struct output *o, const struct model *m)
{
    uint64_t at = output_first(o);
    struct output_run run;

    CHECK_INT(output_end(o), m->end);
    while (output_peek(o, at, &run)) {
        REQUIRE(run.len > 0 && at + run.len <= m->end);
        REQUIRE(memcmp(run.data, m->data + at, run.len) == 0);
        for (size_t i = 0; i < run.len; i++) {
            REQUIRE(m->kind[at + i] == run.kind);
        }
        at += run.len;
    }
    CHECK_INT(at, m->end);
}

/* Random sizes, streams, holds, trims: what is there is right, what is held stays. */
static void any_history_agrees_with_a_simple_model(void)
{
    enum {
        SIZE = 1 << 20
    };
    cleanup_free char *data = xmalloc(SIZE);
    cleanup_free uint8_t *kind = xmalloc(SIZE);

    for (uint32_t seed = 1; seed <= 40; seed++) {
        struct output_budget budget = {.max = 4096u << (seed % 6)};
        CLEANUP(output_freep) struct output *o = output_new(&budget, 4096u << (seed % 5));
        struct model m = {.data = data, .kind = kind};
        uint32_t state = seed;
        uint64_t hold = OUTPUT_HOLD_NOTHING;

        while (m.end + 9000 < SIZE / 4) {
            uint32_t what = next_random(&state) % 16;
            size_t room = output_room(o, hold);
            size_t len = MIN((size_t)(next_random(&state) % (seed % 3 ? 40 : 9000)), room);

            if (what == 0) {
                hold = hold == OUTPUT_HOLD_NOTHING ? output_first(o) : OUTPUT_HOLD_NOTHING;
            } else if (what == 1) {
                output_settle(o);
            } else if (what == 2 && hold == OUTPUT_HOLD_NOTHING) {
                output_trim(o, output_first(o) + next_random(&state) % 100);
            } else if (what == 3 && hold != OUTPUT_HOLD_NOTHING) {
                hold = MIN(hold + next_random(&state) % 3000, output_end(o));
            } else {
                enum output_kind k = (enum output_kind)(next_random(&state) % 2);

                for (size_t i = 0; i < len; i++) {
                    data[m.end + i] = (char)next_random(&state);
                    kind[m.end + i] = (uint8_t)k;
                }
                output_add(o, k, data + m.end, len);
                m.end += len;
                if (len > 0) {
                    CHECK(hold == OUTPUT_HOLD_NOTHING || output_first(o) <= hold);
                }
                if (room == 0 && hold != OUTPUT_HOLD_NOTHING) {
                    hold = output_end(o);
                }
            }
            CHECK(output_memory(o) <= budget.max + 2 * OUTPUT_START);
            if (next_random(&state) % 64 == 0) {
                compare(o, &m);
            }
        }
        compare(o, &m);
        output_free(o);
        CHECK_INT(budget.used, 0);
        o = NULL;
    }
}

TEST_MAIN(T(streams_come_out_apart_and_in_order), T(full_ring_keeps_the_newest),
          T(held_bytes_leave_no_room), T(budget_stops_growth),
          T(byte_by_byte_alternation_is_bounded), T(settled_ring_is_small_and_whole),
          T(any_history_agrees_with_a_simple_model))
