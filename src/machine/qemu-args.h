/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of a jailed QEMU, from numbers alone. Pure: the node manager's jail composes it from
 * a request's integers, so that nobody outside of root decides what is executed.
 *
 * A base machine boots the kernel with its RAM written through to the memory file; every other machine
 * maps that file private (copy on write) and waits for a device state (-incoming defer). Both
 * have the same devices in the same order, since a device state fits only the machine it came from:
 * console (ISA serial), channel (virtio-serial, port "space.0"), disk (virtio-blk), network (virtio-net on a tap).
 *
 * Source of the options: QEMU 10.0 documentation, system/invocation; "microvm" machine type.
 */
#pragma once

#include "base/buf.h"

#include <stdint.h>

#define QEMU_PATH "/usr/bin/qemu-system-x86_64"
/* The oldest version whose memory-backend-file knows rom=off with readonly=on. */
#define QEMU_VERSION_MIN_MAJOR 8
#define QEMU_VERSION_MIN_MINOR 2
/* To be raised with every change of devices or kernel command line: saved base machines are tied to them. */
#define QEMU_ARGS_VERSION 5
#define QEMU_ARGS_MAX 64
#define QEMU_ARGS_BYTES 4096
/* The names by which QMP commands refer to what the command line made. */
#define QEMU_NODE_DISK "disk"
/* All guests have the same one: each is alone on its wire. The jail's rules (jail/net-rules.c) know it. */
#define QEMU_GUEST_MAC "02:53:50:00:00:02"
#define QEMU_FDSET_DEVICE_STATE "/dev/fdset/2"

enum qemu_accel {
    QEMU_ACCEL_TCG,
    QEMU_ACCEL_KVM
};

struct qemu_args_spec {
    const char *id; /* borrowed: [a-z0-9] only; the VMM's name in ps */
    enum qemu_accel accel;
    uint32_t vcpus;
    uint32_t memory_mib;
    uint32_t
        tsc_khz; /* of the host, under emulation; 0: not constant, the guest counts timer ticks */
    bool
        boot; /* boots kernel and initrd with RAM shared into the memory file; else waits for a device state */
    const char *memory_path; /* borrowed: names inside the jail */
    const char *kernel_path; /* borrowed: with boot */
    const char *initrd_path; /* borrowed: with boot */
    int disk_fd;
    int qmp_fd;
    int channel_fd;
    int net_fd;          /* a tap */
    int device_state_fd; /* without boot */
};

/* The strings lie in text; argv points into it and ends with NULL. */
struct qemu_args {
    const char *argv[QEMU_ARGS_MAX];
    char text[QEMU_ARGS_BYTES];
};

/* -EINVAL: an id with other characters, or zero sizes; -E2BIG: does not fit. */
MUST_CHECK int qemu_args_build(const struct qemu_args_spec *spec, struct qemu_args *ret);
