/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of a sandbox, on this node.
 *
 *     disk   snapshots/ID/N            read-only subvolume: the disk at one moment, taken while the
 *                                      guest runs, after it has flushed
 *     full   and checkpoints/ID/N/     memory (a reflink of what the machine started from, plus its
 *                                      private pages) and device (the device state)
 *     both   manifests/ID-N.json       a snapshot that lacks it or its disk was never taken, and what is found
 *                                      of it is removed (recover.c). Of a full one it is written last, of a
 *                                      disk one with the disk, by one commit of the pool
 *
 * N grows by one per sandbox and is never used again; it also numbers the subvolumes that a rollback makes the
 * sandbox's own disk. Snapshots share blocks with each other and with the disk; deleting one in any order never
 * hurts another. All functions but the pure ones are called with the sandbox's op lock held.
 */
#pragma once

#include "base/json.h"
#include "sandbox/record.h"

#define SNAPSHOT_NAME_MAX 64
#define SNAPSHOTS_MAX 4096 /* per sandbox */

struct resident;
struct node;

enum snapshot_kind {
    SNAPSHOT_DISK,
    SNAPSHOT_FULL
};

struct snapshot {
    struct snapshot *next; /* the next older one */
    char id[ID_SIZE];
    uint32_t n;
    uint32_t parent_n; /* the snapshot before it in the sandbox's history; 0: none */
    enum snapshot_kind kind;
    uint64_t created_at_ms;
    char made_by[16];                 /* request, schedule, command, pause, rollback, fork */
    char command[ID_SIZE];            /* made_by command: before which one */
    char name[SNAPSHOT_NAME_MAX + 1]; /* given by people; may be empty */
    bool keep;                        /* retention leaves it alone */
    /* What a full one is tied to: a machine that differs boots from the disk instead. */
    char accel[8];
    char vmm_version[32];
    char guest_id[65];
    uint32_t vcpus;
    uint32_t memory_mib;
    uint64_t private_bytes; /* of RAM, at that moment */
    uint64_t pause_us;      /* how long the guest stood still */
};

struct snapshot_wish {
    enum snapshot_kind kind;
    const char *made_by; /* static */
    const char *name;    /* borrowed; "" or NULL: none */
    const char *command; /* borrowed; NULL: none */
    bool keep;
    bool stay_paused; /* full: the machine stands still afterwards */
    bool passing;     /* full: it goes in a moment, so it need not be on the disk */
};

/* Pure. */
json_t *snapshot_to_json(const struct snapshot *snap);
MUST_CHECK int snapshot_from_json(json_t *root, struct snapshot *ret);
/* -EINVAL with field. */
MUST_CHECK int snapshot_name_check(const char *name, struct err *e);

/*
 * Takes one; *ret lives in the sandbox's list. A full one of a running sandbox pauses it briefly and lets it go on.
 * -ESTALE "not_running": a full snapshot needs a machine.
 */
MUST_CHECK int snapshot_take(struct resident *res, const struct snapshot_wish *wish,
                             struct snapshot **ret, struct err *e);
/* By id; NULL: there is none. */
struct snapshot *snapshot_find(struct resident *res, const char *id);
/*
 * The newest of a kind that the present came after; NULL: there is none. What was rolled back from is newer, but
 * is not the present's past.
 */
struct snapshot *snapshot_newest(struct resident *res, enum snapshot_kind kind);
MUST_CHECK int snapshot_delete(struct resident *res, struct snapshot *snap, struct err *e);
MUST_CHECK int snapshot_delete_all(struct resident *res, struct err *e);
/* The subvolume with number n: 0 is the one that the sandbox was made with. */
struct priv_subvol snapshot_subvolume(const struct resident *res, uint32_t n);
/* Writes the manifest of a changed snapshot (name, keep). */
MUST_CHECK int snapshot_save(struct resident *res, const struct snapshot *snap, struct err *e);
/* Puts one that was read from its manifest into the list. */
void snapshot_adopt(struct resident *res, const struct snapshot *snap);
/* False only when it certainly has none. */
bool snapshot_has_disk(const struct resident *res, const struct snapshot *snap);
void snapshot_free_list(struct resident *res);
/* Bytes that only this snapshot holds: what deleting it would give back. */
MUST_CHECK int snapshot_exclusive_bytes(struct resident *res, const struct snapshot *snap,
                                        uint64_t *ret);
/* -ENOTSUP with the difference: the node cannot run this memory. */
MUST_CHECK int snapshot_fits_node(const struct node *node, const struct snapshot *snap,
                                  struct err *e);
