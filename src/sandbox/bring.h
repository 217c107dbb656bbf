/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing up, and ending, the machine of a sandbox. With the sandbox's op lock held; the disk is open in
 * res->disk_fd. On failure the caller ends what there is with bring_down().
 *
 *     from base        a fresh machine: base memory, the disk bound late, the guest set up (fresh.h: from the stock)
 *     restore.h        the very processes go on: the memory of a full snapshot; the guest gets a new
 *                      clock, fresh randomness and (a fork) a new identity
 */
#pragma once

#include "sandbox/resident.h"

struct base;

/* What the guest is told about the disk in res->disk_fd. Strings are borrowed. */
struct bring_disk {
    const char *default_user;
    const char *fstype;
    bool
        fresh; /* a crash before the set-up has ended loses nothing: nobody has written to it, or another holds the same */
};

/* What a machine starts from. Descriptors are borrowed for the call. */
struct bring_source {
    int memory_fd;
    int device_fd;
    enum qemu_accel accel;
    bool deferred; /* it waits for machine_restore() */
};

/* A VMM of the sandbox's shape with the sandbox's disk in it, stopped or waiting. */
MUST_CHECK int bring_vmm(struct resident *res, const struct bring_source *source,
                         uint64_t deadline_ns, struct err *e);
/* The same over the memory of its base machine, waiting for what device_fd will hold. */
MUST_CHECK int bring_over_base(struct resident *res, const struct base *base, int device_fd,
                               uint64_t deadline_ns, struct err *e);
/* Lets a stopped machine go on, until its guest answers. */
MUST_CHECK int bring_let_run(struct resident *res, uint64_t deadline_ns, struct err *e);

/* The first half: a machine that runs and waits, whatever its disk. */
MUST_CHECK int bring_waiting(struct resident *res, uint64_t deadline_ns, struct err *e);
/* The second half: what is in the disk file becomes the guest's root, at its full size. */
MUST_CHECK int bring_bind(struct resident *res, const struct bring_disk *disk, uint64_t deadline_ns,
                          struct err *e);
MUST_CHECK int bring_from_base(struct resident *res, const struct bring_disk *disk,
                               uint64_t deadline_ns, struct err *e);

struct bring_identity {
    bool new_sandbox; /* another hostname and machine id */
    bool same_disk;   /* a fork's: the authority is there */
};
/* Tells a guest that time has passed, and who it is. */
MUST_CHECK int bring_identity(struct resident *res, const struct bring_identity *identity,
                              uint64_t deadline_ns, struct err *e);
/* Makes the channel of an adopted machine, and waits until the guest answers. */
MUST_CHECK int bring_attach(struct resident *res, struct machine *machine_take,
                            uint64_t deadline_ns, struct err *e);
/* Opens the sandbox's disk. */
MUST_CHECK int bring_open_disk(struct resident *res, struct err *e);
/*
 * Ends the machine, if any, closes the disk and gives back what was used. A machine that cannot be ended (the node
 * manager does not answer) stays the sandbox's: whoever removes things must stop there; whoever undoes a
 * failure may ignore it, since recover.c ends what no record names.
 */
int bring_down(struct resident *res, struct err *e);
