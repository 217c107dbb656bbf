/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a checkpoint's memory has that the base machine's has not. A checkpoint of a machine that came from a base
 * machine notes which pages differ (file "pages", beside "memory"): a machine that maps the base's memory, whose
 * pages everybody has in the page cache already, gets those pages written into its own, and is the one of
 * the checkpoint. Such a VMM can be started before it is known which checkpoint it is for.
 *
 * The file is a struct delta_head, then the map (machine/memory-copy.h). It is not synced: the hash in the head tells
 * whether the map is whole, and without a map the checkpoint's memory file is mapped itself.
 */
#pragma once

#include "machine/memory-copy.h"
#include "sandbox/base.h"
#include "sandbox/node.h"

/* More than this is mapped rather than copied: 64 MiB take 20 ms to write and are not shared by siblings. */
#define DELTA_PAGES_MAX 16384u

struct delta_head {
    char magic[8];
    uint64_t hash; /* of the map, XXH3 */
    uint64_t n_pages;
    uint64_t n_set;
    uint64_t base_inode;
    char base_key[BASE_KEY_SIZE]; /* "": what it began as is no base machine's memory */
};

/* What the file that a machine's memory began as is, for the head. */
void delta_describe(struct node *node, int memory_fd, struct delta_head *ret);
/* Reads the map that the copier has written, and writes the head. */
MUST_CHECK int delta_seal(int pages_fd, struct delta_head *head, uint64_t ram_bytes);
/*
 * The map of a checkpoint for machines of this base, if there is a whole one that is not too large. -ENOENT: map the
 * memory file instead. *ret_fd is the caller's.
 */
MUST_CHECK int delta_open(const struct node *node, const char *sandbox_id, uint32_t n,
                          const struct base *base, int *ret_fd);
/* Writes the pages into the memory of a machine that has not run yet. */
MUST_CHECK int delta_load(const struct node *node, struct machine *m, uint32_t memory_mib,
                          int memory_fd, int pages_fd, struct err *e);
/* One exchange with a copying process. */
MUST_CHECK int delta_ask(int control_fd, char how, uint64_t deadline_ns,
                         struct memory_copy_stats *ret);
