/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine: one VMM process that serves a sandbox for a while.
 *
 *     machine_start()  --> WAITING (deferred) -- machine_restore() --> STOPPED
 *                      --> STOPPED (restored from a device state, its vCPUs do not run)
 *                      --> RUNNING (booting a base machine)
 *     machine_resume() / machine_pause() between the two
 *     machine_destroy() from any state, also when the VMM has died
 *
 * A VMM is started by the node manager only (ipc/priv.h), so it survives us: machine_adopt() takes back
 * one that an earlier process of ours started. It is identified by pid and start time, never by pid alone.
 *
 * Thread rules: one machine belongs to one caller at a time (the sandbox's lock). machine_pidfd() may be
 * polled by anyone while the machine exists.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"
#include "ipc/priv.h"
#include "machine/qemu-args.h"

struct machine;
struct machine_driver;

/* Where machines live; one per process, shared by all of them. */
struct machine_host {
    const struct machine_driver *driver; /* static */
    struct priv_client *priv;            /* borrowed */
    const char *run_dir;                 /* borrowed: machines' sockets are run_dir/m/ID/... */
};

struct machine_spec {
    const char *id; /* borrowed */
    uint32_t slot;  /* of the user that it runs as; not in use by another machine */
    enum qemu_accel accel;
    uint32_t vcpus;
    uint32_t memory_mib;
    bool
        base; /* boots kernel and initrd, writes its RAM through to memory_fd; else restores device_state_fd */
    bool deferred; /* the device state is read by machine_restore() only */
    /* Borrowed for the call; FD_NONE where the kind of machine has none. See ipc/priv.h for what each must be. */
    int memory_fd;
    int disk_fd;
    int console_fd;
    int kernel_fd;
    int initrd_fd;
    int device_state_fd;
};

/* What a journal must keep to find the machine again. */
struct machine_record {
    char id[ID_SIZE];
    int32_t pid;
    uint64_t start_time;
    uint32_t slot;
};

/* A VMM: the same table for every kind. */
struct machine_driver {
    const char *name;
    /* Fills version (for manifests and people). -ENOENT: not installed; -ENOTSUP: too old. */
    MUST_CHECK int (*probe)(char version[static 32], struct err *e);
    MUST_CHECK int (*restore)(struct machine *m, uint64_t deadline_ns, struct err *e);
    MUST_CHECK int (*pause)(struct machine *m, uint64_t deadline_ns, struct err *e);
    MUST_CHECK int (*resume)(struct machine *m, uint64_t deadline_ns, struct err *e);
    MUST_CHECK int (*resize_disk)(struct machine *m, uint64_t size_bytes, uint64_t deadline_ns,
                                  struct err *e);
    MUST_CHECK int (*save_state)(struct machine *m, int fd, uint64_t deadline_ns, struct err *e);
    MUST_CHECK int (*ping)(struct machine *m, uint64_t deadline_ns, struct err *e);
};

extern const struct machine_driver machine_driver_qemu;

/* On failure nothing is left of it. */
MUST_CHECK int machine_start(const struct machine_host *host, const struct machine_spec *spec,
                             uint64_t deadline_ns, struct machine **ret, struct err *e);
/* For one that was started deferred: once. */
MUST_CHECK int machine_restore(struct machine *m, uint64_t deadline_ns, struct err *e);
/* -ESRCH: it did not survive; what is left of it is removed. */
MUST_CHECK int machine_adopt(const struct machine_host *host, const struct machine_record *record,
                             struct machine **ret, struct err *e);
/* Ends the VMM and what root made for it; the object and its sockets stay for machine_destroy(). */
MUST_CHECK int machine_kill(struct machine *m, struct err *e);
/* Ends the VMM and removes its cgroup, sockets, everything. NULL is fine. */
void machine_destroy(struct machine *m);
DEFINE_CLEANUP(struct machine *, machine_destroy);
/* Forgets the machine without ending it: for a service that stops while machines live on. */
void machine_forget(struct machine *m);

MUST_CHECK int machine_pause(struct machine *m, uint64_t deadline_ns, struct err *e);
MUST_CHECK int machine_resume(struct machine *m, uint64_t deadline_ns, struct err *e);
/* Grows the disk file and tells the guest. */
MUST_CHECK int machine_resize_disk(struct machine *m, uint64_t size_bytes, uint64_t deadline_ns,
                                   struct err *e);
/* Device state alone, into fd (write-only file); the machine must be paused. */
MUST_CHECK int machine_save_state(struct machine *m, int fd, uint64_t deadline_ns, struct err *e);

const struct machine_record *machine_record(const struct machine *m);
/* Readable once the VMM has ended. */
int machine_pidfd(const struct machine *m);
bool machine_alive(const struct machine *m);
/* The socket of the private channel. */
const char *machine_channel_path(const struct machine *m);
struct qmp *machine_qmp(struct machine *m);
