/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node: what the sandbox manager knows and holds, once per process.
 *
 * Folders of the pool, all entered by descriptor. A sandbox's disk is sandboxes/ID/disk.img in a subvolume of
 * its own (after a rollback snapshots/ID/N/disk.img); its record is records/ID.json, outside of the
 * subvolume, so that no snapshot or rollback ever touches what we know about it. manifests/, checkpoints/
 * and memory/: see snapshot.h and checkpoint.h.
 *
 * Locks, in the order in which they are taken: resident.op, base.build, resident.lock, node.lock. No lock is held
 * while a client is waited for.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"
#include "machine/machine.h"
#include "model/shape.h"

#include <pthread.h>
#include <sys/types.h>

#define NODE_POOL_RESERVE_BYTES (512ull << 20) /* below this much free space nothing new is begun */
#define NODE_MEMORY_RESERVE_BYTES (512ull << 20) /* the host keeps this much available */
#define NODE_RESIDENTS_MAX 4096

struct resident;
struct base;
struct netgate;
struct trust;
struct tenure;

struct node {
    const char *state_dir; /* borrowed: lives as long as main */
    const char *run_dir;   /* borrowed: lives as long as main */
    int pool_fd;           /* owned, like the folders in it */
    int templates_fd;
    int machines_fd;
    int sandboxes_fd;
    int records_fd;
    int snapshots_fd;
    int manifests_fd;
    int checkpoints_fd;
    int memory_fd;
    char *volume_socket; /* owned: where the volume manager listens */
    uid_t client_uid;    /* who besides root may ask us */
    struct machine_host host;
    struct trust *trust; /* owned */
    char vmm_version[32];
    uint32_t tsc_khz;  /* see machine/tsc.h */
    char guest_id[65]; /* names kernel and initrd; part of a base machine's identity */
    enum qemu_accel accel;
    char accel_why[200]; /* for people: why it is not KVM */

    struct netgate *netgate; /* owned: the network gateway's control socket */
    bool network_dirty;      /* atomic: see network.c */

    struct tenure *tenure; /* owned by main; NULL: nothing is leased */
    struct warm *warm;     /* borrowed: main's; NULL: no warm machines */
    struct reaper *reaper; /* borrowed: main's */

    pthread_mutex_t lock;       /* guards what follows */
    struct resident *residents; /* owned: list */
    struct base *bases;         /* owned: list */
    size_t n_residents;
    uint64_t last_number;
    uint64_t slots[(PRIV_MACHINE_SLOT_MAX + 1) / 64];
    bool stopping;
};

struct node_options {
    const char *state_dir;
    const char *run_dir;
    bool allow_kvm;
    uid_t client_uid;
};

/* Opens the pool and probes the VMM. Errors say what to install or repair. */
MUST_CHECK int node_open(const struct node_options *options, struct node **ret, struct err *e);
void node_close(struct node *node);
DEFINE_CLEANUP(struct node *, node_close);

/* A machine user's slot that nobody has; -EUSERS when all are taken. */
MUST_CHECK int node_slot_take(struct node *node, uint32_t *ret);
void node_slot_mark(struct node *node, uint32_t slot);
void node_slot_give(struct node *node, uint32_t slot);
/* The node manager knows better: a machine has that slot. It must not be given back. */
bool node_slot_refused(const struct err *why);

/* Room for one more disk (disk_mib 0: it is there already) and machine? -ENOSPC "pool_full", -ENOMEM "no_capacity". */
MUST_CHECK int node_check_room(struct node *node, const struct shape *shape, struct err *e);
/* Free and total bytes of the pool. */
MUST_CHECK int node_pool_space(const struct node *node, uint64_t *ret_free, uint64_t *ret_total);
#define NODE_IDENTITY_SIZE 64
/*
 * What tells this node from all others, for as long as its pool lives: the file system's id and the pool's place in it.
 * Gateways that share a database take care with it that a name is not given to two nodes.
 */
MUST_CHECK int node_identity(const struct node *node, char ret[static NODE_IDENTITY_SIZE]);
const char *node_accel_name(enum qemu_accel accel);
