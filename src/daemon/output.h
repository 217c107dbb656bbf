/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command has written: a ring of bytes with offsets.
 *
 * Bytes of all the command's streams stand in one line, in the order in which they were read from the
 * pipes; an offset counts them from the command's start, so "offset 1000" means the same byte for ever.
 * Beside the bytes stands a list of runs (where a stretch of one stream begins), so that standard output
 * and standard error come out apart again.
 *
 *        first            hold                 end
 *     ---+----------------+--------------------+---
 *        | may be dropped | a reader needs it  |
 *
 * The ring keeps the newest bytes: adding to a full ring drops the oldest. A reader that must lose nothing
 * passes its own offset as the hold; then output_room() says how much may be added without touching a
 * byte at or after it, and the caller stops reading the pipe when that is 0 (backpressure).
 *
 * Memory: a ring starts at OUTPUT_START and doubles up to its capacity while the budget, which all rings
 * of the daemon share, has room. When it has none the ring stays as it is: it then keeps less, or holds
 * its command back earlier, but no flood of output can make the daemon grow past the budget plus
 * OUTPUT_START for each command. output_settle() gives back what an ended command does not fill.
 */
#pragma once

#include "base/util.h"

#define OUTPUT_START ((size_t)4096)
/* Runs per ring: a program that alternates streams byte by byte may not cost 16 times its output. */
#define OUTPUT_RUNS_MAX ((size_t)32768)

enum output_kind {
    OUTPUT_STDOUT,
    OUTPUT_STDERR,
    OUTPUT_PTY,
    OUTPUT_KIND_COUNT_
};

/* Nothing is held: the oldest bytes may go. */
#define OUTPUT_HOLD_NOTHING UINT64_MAX

struct output_budget {
    size_t max;  /* bytes all rings together may use above OUTPUT_START each */
    size_t used; /* private */
};

struct output_run {
    enum output_kind kind;
    const char *data; /* borrowed: until the next call that changes the ring */
    size_t len;
};

struct output;

/* capacity is rounded up to a power of two; the budget is borrowed and must outlive the ring. */
struct output *output_new(struct output_budget *budget, size_t capacity);
void output_free(struct output *o);
DEFINE_CLEANUP(struct output *, output_free);

/* The offset of the oldest byte that is still here, and of the byte that comes next. */
uint64_t output_first(const struct output *o);
uint64_t output_end(const struct output *o);
/* Memory held for bytes and runs. */
size_t output_memory(const struct output *o);

/* How many bytes may be added now without dropping one at or after hold. */
size_t output_room(const struct output *o, uint64_t hold);
/* Adds len bytes of one stream; drops the oldest as needed. The caller asked output_room() before. */
void output_add(struct output *o, enum output_kind kind, const void *data, size_t len);
/*
 * The longest piece of one stream at offset that lies in one stretch of memory. False when there is
 * nothing at offset yet. offset must not be older than output_first().
 */
bool output_peek(const struct output *o, uint64_t offset, struct output_run *ret);
/* Drops everything before offset and gives memory back. */
void output_trim(struct output *o, uint64_t offset);
/* The command has ended: keep what is here in as little memory as it needs. */
void output_settle(struct output *o);
