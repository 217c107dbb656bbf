/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workload's mount namespace, built by a helper child and kept by descriptors:
 *
 *     /               the sandbox's disk, grown to its device
 *     /proc /sys      fresh, as every Linux has them
 *     /dev            a tmpfs with the harmless nodes, pts and shm: neither the disk nor our port are in it
 *     /run            tmpfs
 *     /sys/fs/cgroup  cgroup2, seen from the workload's own cgroup
 *
 * The initramfs's root cannot be pivoted away, so the disk is moved over "/" as switch_root(8) does. Nothing
 * on the disk is trusted: mount points are opened without following symlinks, inside the disk only.
 */
#pragma once

#include "base/err.h"

struct mount_spec {
    const char *device;     /* "/dev/vda" */
    const char *fstype;     /* "ext4" */
    bool fresh;             /* nobody has written to the disk yet */
    int cgroup_ns_fd;       /* FD_NONE: no cgroup file system */
    const char *hostname;   /* for /etc/hostname; "" leaves it alone */
    const char *machine_id; /* for /etc/machine-id; "" leaves it alone */
};

/* Drops what the kernel remembers of the device: the host has just put another content beneath it. */
MUST_CHECK int mount_flush_device(const char *device, struct err *e);
/*
 * Waits until the device has at least this size: the host has enlarged it, and the news reaches the driver by
 * interrupt. In a helper child. -ETIMEDOUT.
 */
MUST_CHECK int mount_wait_for_size(const char *device, uint64_t bytes, struct err *e);
/* True when nothing holds the device any more (it can be opened exclusively). */
bool mount_device_free(const char *device);
/* In a helper child: leaves it in the new namespace, inside the sandbox's root. */
MUST_CHECK int mount_sandbox(const struct mount_spec *spec, struct err *e);
/* In a child inside the sandbox: grows the file system to so many bytes; quick when it is that large already. */
void mount_grow(uint64_t disk_bytes);
/* In a child inside the sandbox: there is enough free for a start, so growing can wait until the first commands run. */
bool mount_has_room(void);
/*
 * Opens a file or folder of the tenant's disk below dir_fd: not through symbolic links nor onto another file system, and without
 * waiting. flags are open(2)'s. Returns the descriptor, -errno.
 */
MUST_CHECK int mount_open_plain(int dir_fd, const char *name, uint64_t flags);
/* In a child inside the sandbox: the identity files, never through symlinks. Failure is not fatal: the disk is the tenant's. */
void mount_write_identity(const char *hostname, const char *machine_id);
/*
 * The same from outside, by the sandbox's root. False, and nothing is done, when /etc is not a plain folder of its disk: what is
 * mounted there may be served by a program of the workload, and could keep its caller waiting.
 */
bool mount_write_identity_at(int root_fd, const char *hostname, const char *machine_id);
