/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory half of a full snapshot: checkpoints/ID/N/{memory,device}. See snapshot.h.
 */
#pragma once

#include "sandbox/node.h"
#include "sandbox/trace.h"

struct checkpoint_stats {
    uint64_t private_bytes;
    uint64_t pause_ns;
};

/*
 * Saves memory and device state of the running or paused machine while in_pause (the disk's part) is called
 * inside the pause. The machine runs on afterwards if it ran before, also after a failure, which leaves nothing.
 */
struct checkpoint_job {
    struct node *node;
    struct machine *machine;
    const char *sandbox_id;
    uint32_t n;
    uint64_t ram_bytes;
    struct trace *trace;
    bool stay_paused; /* it is paused already, or shall be afterwards */
    bool passing;     /* it need not outlive the host's power */
    int (*in_pause)(void *arg, struct err *e);
    void *arg;
};
MUST_CHECK int checkpoint_save(const struct checkpoint_job *job, struct checkpoint_stats *ret,
                               struct err *e);
/* What a machine is restored from. Each descriptor is the caller's to close. */
struct checkpoint_files {
    int memory_fd;
    int device_fd;
};
/* -EIO "snapshot_damaged": a file is missing, or not as long as the memory of ram_bytes that was saved. */
MUST_CHECK int checkpoint_open(const struct node *node, const char *sandbox_id, uint32_t n,
                               uint64_t ram_bytes, struct checkpoint_files *ret, struct err *e);
/* Empty files for a checkpoint that comes from elsewhere; then they are filled, synced, and kept. */
MUST_CHECK int checkpoint_make(const struct node *node, const char *sandbox_id, uint32_t n,
                               struct checkpoint_files *ret, struct err *e);
MUST_CHECK int checkpoint_keep(const struct checkpoint_files *files, struct err *e);
MUST_CHECK int checkpoint_remove(const struct node *node, const char *sandbox_id, uint32_t n);
MUST_CHECK int checkpoint_exclusive_bytes(const struct node *node, const char *sandbox_id,
                                          uint32_t n, uint64_t *ret);

/*
 * What a machine's memory file is stays reachable under memory/MACHINE-ID (a hard link), since a later full
 * snapshot begins as its reflink; it goes with the machine.
 */
MUST_CHECK int memory_link(const struct node *node, int memory_fd, const char *machine_id);
void memory_unlink(const struct node *node, const char *machine_id);
