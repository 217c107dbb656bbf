/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of jail.h, each in its own file. All run in the jail's child, as root, before exec. */
#pragma once

#include "jail/jail.h"

#include <sys/mount.h>

/*
 * The root file system: root.c. Afterwards "/" is the jail. *ret_kvm_gid is 0 when no group is
 * needed.
 */
MUST_CHECK int jail_root(const struct jail_spec *spec, gid_t *ret_kvm_gid, struct err *e);
/*
 * Makes an empty tmpfs and puts it, not yet as root, over the current root: root.c. Returns its
 * descriptor.
 */
MUST_CHECK int jail_tmpfs(struct err *e);
/*
 * Makes the mount behind root_fd, which jail_tmpfs() returned, the root and lets go of the old one:
 * root.c.
 */
MUST_CHECK int jail_pivot(int root_fd, struct err *e);
#define JAIL_MOUNT_SEALED \
    (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
MUST_CHECK int jail_mount_flags(int mount_fd, uint64_t attr_set, struct err *e);

/*
 * Descriptor numbers and limits: drop.c. error_fd is moved out of the way and stays open until
 * exec.
 */
MUST_CHECK int jail_fds(const struct jail_spec *spec, int *error_fd, struct err *e);
MUST_CHECK int jail_limits(const struct jail_spec *spec, struct err *e);
/* From root to nobody in particular: drop.c. */
MUST_CHECK int jail_identity(const struct jail_spec *spec, gid_t kvm_gid, struct err *e);
