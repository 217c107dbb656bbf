/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies the private pages of a machine's RAM into a file.
 *
 * A machine maps its base memory file private, so its RAM is that file plus the pages it has written
 * since. Those are exactly the pages of the mapping that are present and not file-backed: bits 63 and 61 of
 * /proc/PID/pagemap (Linux Documentation/admin-guide/mm/pagemap.rst), or swapped out (bit 62). Written
 * into a reflink of the base file, they make it the machine's RAM; nothing else is copied.
 *
 * To keep the machine's pause short it is done in rounds: the first while it runs, the last
 * while it is paused. A later round writes only what has changed: pages that are soft-dirty (bit 55)
 * where the kernel tracks that, else those whose hash differs from what the round before has written.
 *
 * The descriptors are opened by root and used by a process with the machine's own user and nothing else:
 * access to /proc/PID/mem is checked when it is opened.
 */
#pragma once

#include "base/err.h"

struct memory_copy_files {
    int mem_fd;         /* /proc/PID/mem */
    int pagemap_fd;     /* /proc/PID/pagemap */
    int maps_fd;        /* /proc/PID/maps */
    int clear_refs_fd;  /* /proc/PID/clear_refs, or FD_NONE */
    int out_fd;         /* a reflink of the base memory file, O_RDWR */
    int pages_fd;       /* for the map of what out_fd holds of the machine: see below */
    bool soft_dirty;    /* what memory_copy_soft_dirty() says */
    uint64_t ram_inode; /* of the base memory file: tells the RAM among the mappings */
};

/* Does this kernel track soft-dirty pages? Looks at a page of the caller's. */
bool memory_copy_soft_dirty(void);

struct memory_copy_stats {
    uint64_t private_pages; /* now */
    uint64_t written_pages; /* in this round */
    uint64_t duration_ns;
};

struct memory_copy;

/* The files are borrowed. -ENOENT: the process has no RAM mapping of that size. */
MUST_CHECK int memory_copy_new(const struct memory_copy_files *files, uint64_t ram_bytes,
                               struct memory_copy **ret);
void memory_copy_free(struct memory_copy *copy);
DEFINE_CLEANUP(struct memory_copy *, memory_copy_free);
/* With so many threads: more than one only while the machine stands still, for they take its processors. */
MUST_CHECK int memory_copy_round(struct memory_copy *copy, unsigned threads,
                                 struct memory_copy_stats *ret);

/*
 * The map of pages: from MEMORY_PAGES_AT on, a bit for each page of the RAM (the first in the lowest bit of the first
 * byte), set for those that differ from what the machine began as. What is before it is the caller's.
 */
#define MEMORY_PAGES_AT 4096
/*
 * The other direction, before the machine has run: the pages that the map names go from out_fd into the RAM. mem_fd is
 * open for writing then.
 */
MUST_CHECK int memory_copy_load(struct memory_copy *copy, struct memory_copy_stats *ret);

/*
 * The copying process: a round for each one-byte message (one of these) on a SOCK_SEQPACKET socket, answered with
 * struct memory_copy_answer, until the other end hangs up. Never returns.
 */
#define MEMORY_COPY_RUNNING 'r' /* the machine runs beside it */
#define MEMORY_COPY_PAUSED 'p'  /* and the map is written */
#define MEMORY_COPY_LOAD 'l'

struct memory_copy_answer {
    int32_t code;
    uint32_t page_bytes;
    struct memory_copy_stats stats;
};
NORETURN void memory_copy_serve(const struct memory_copy_files *files, uint64_t ram_bytes,
                                int control_fd);
