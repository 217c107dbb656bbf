/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The closed list: each primitive with its size, its validator and its handler in one table
 * (ops.c). To add one is a security change.
 *
 * priv_check() is pure and fuzzed: it decides from the packet's bytes and the number of descriptors
 * alone. What it refuses no correct client sends; the server then closes the connection.
 * priv_dispatch() runs what priv_check() let through.
 */
#pragma once

#include "base/err.h"
#include "ipc/priv.h"
#include "jail/cgroup.h"
#include "privileged/copies.h"

/* Until when machines may run, by CLOCK_BOOTTIME. */
struct priv_fence {
    bool known;        /* somebody has said it since we began */
    uint64_t until_ns; /* 0: for ever */
    bool up;           /* it is over: they stand still */
};

struct priv_ctx {
    struct cgroup_host cgroups; /* owned */
    struct copies copies;
    struct sock_fprog vmm_filter; /* owned */
    uint32_t tsc_khz;             /* see machine/tsc.h */
    uid_t first_uid;              /* of slot 0, see ipc/priv.h */
    struct priv_fence fence;      /* see fence.c */
    const char *vmm_path;         /* borrowed: lives as long as the process */
    int sandboxes_fd;             /* owned: the pool's folders */
    int snapshots_fd;             /* owned */
    int network_fd;               /* owned: the node manager's own network namespace */
    uid_t owner_uid;              /* of everything in the pool: the sandbox manager's user */
    gid_t owner_gid;
};

/* What a handler gets. */
struct priv_request {
    const void *body; /* borrowed: aligned, of the operation's size */
    int fds
        [PRIV_FD_COUNT_]; /* borrowed: FD_NONE where none was sent; by the operation's own enum */
};

struct priv_answer {
    struct priv_reply reply;
    int fd; /* owned: sent along if it is one */
};

struct priv_op_def {
    const char *name;
    size_t size;
    bool (*valid)(const void *body);
    /*
     * Returns 0, 1 or a negative errno with its sentence in e; fills answer's union and fd on
     * success.
     */
    int (*run)(struct priv_ctx *ctx, const struct priv_request *req, struct priv_answer *answer,
               struct err *e);
};

/* The operation of a well-formed packet, or NULL. packet need not be aligned. */
const struct priv_op_def *priv_check(const void *packet, size_t len, size_t n_fds);
/* Runs the packet, for which priv_check() returned op, and fills the whole answer. */
void priv_dispatch(struct priv_ctx *ctx, const struct priv_op_def *op, const void *packet,
                   const int *fds, struct priv_answer *answer);

/* -ENOENT with a sentence. */
MUST_CHECK int machine_need(struct priv_ctx *ctx, const char *id, uint32_t *ret_slot,
                            struct err *e);
/* Its living VMM; *ret_pidfd is the caller's. -ESRCH "vmm_failed". */
MUST_CHECK int machine_vmm(struct priv_ctx *ctx, const char *id, uint32_t slot, pid_t *ret_pid,
                           int *ret_pidfd, struct err *e);

/*
 * Looks at the clock: machines whose time is over stand still when this returns. In how many ms to look again, for
 * poll(2).
 */
int fence_look(struct priv_ctx *ctx);

/* Validators: valid.c. */
bool priv_id_valid(const char id[PRIV_ID_SIZE]);
bool machine_start_valid(const void *body);
bool machine_id_valid(const void *body);
bool machine_copy_valid(const void *body);
bool machine_socket_valid(const void *body);
bool machine_next_valid(const void *body);
bool lease_valid(const void *body);
bool subvol_valid(const void *body);
bool subvol_snapshot_valid(const void *body);

/* Handlers: machine.c, subvol.c and fence.c. */
#define PRIV_HANDLER(name_) \
    int name_(struct priv_ctx *ctx, const struct priv_request *req, struct priv_answer *answer, \
              struct err *e)
PRIV_HANDLER(machine_start_run);
PRIV_HANDLER(machine_seal_run);
PRIV_HANDLER(machine_kill_run);
PRIV_HANDLER(machine_next_run);
PRIV_HANDLER(machine_stats_run);
PRIV_HANDLER(machine_copy_run);
PRIV_HANDLER(machine_socket_run);
PRIV_HANDLER(lease_run);
PRIV_HANDLER(subvol_create_run);
PRIV_HANDLER(subvol_snapshot_run);
PRIV_HANDLER(subvol_delete_run);
