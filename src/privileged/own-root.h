/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A root that is the root of a mount. Jails make theirs out of ours with pivot_root(2), and private propagation is set
 * on the root of a mount; in a plain chroot, such as a container image that was unpacked and entered, there is
 * neither. There this process goes over to a mount namespace of its own in which its root is mounted onto itself. The
 * machine's other mounts are left as they are, whatever their propagation is.
 *
 * What is mounted afterwards is not seen: the pool must be there before.
 */
#pragma once

#include "base/err.h"

/* Does nothing where the root is that of a mount. Before there are threads; needs root. */
MUST_CHECK int own_root(struct err *e);
