/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A root that is the root of the mount namespace. Jails make theirs out of ours with pivot_root(2), and sealing one
 * enters its namespace at the top. In a chroot, such as a container image that was unpacked and entered, what lies above
 * would stay in every jail, and where the root is no mount, no jail could be made at all. There this process goes over
 * to a mount namespace of its own that holds nothing but what it sees. The machine's other mounts are left as they
 * are, whatever their propagation is.
 *
 * What is mounted afterwards is not seen: the pool must be there before.
 */
#pragma once

#include "base/err.h"

/* Does nothing where all is well. Before there are threads; needs root. A changed root is the working directory, too. */
MUST_CHECK int own_root(struct err *e);
