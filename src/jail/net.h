/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network of a machine is an island: the network namespace of its jail, which holds a tap, a loopback
 * interface and no way out. It is made before the VMM is executed and vanishes with it.
 *
 *     guest 10.0.0.2/30 ── virtio-net ── tap "guest" 10.0.0.1/30 ─┐
 *                                                                │  rules (net-rules.c)
 *       TCP to anywhere          ──TPROXY──▶ the listening socket of PRIV_SOCKET_TCP
 *       UDP to port 53, anywhere ──────────▶ the socket of PRIV_SOCKET_DNS
 *       anything else            dropped, or refused at once where that costs nothing
 *
 * "Anywhere is local" (a route of type local for 0.0.0.0/0): the kernel delivers what the guest sends to any
 * address in the namespace itself, and forwards nothing. Only what comes from the guest's one address and
 * hardware address passes. IPv6 is dropped at the door, in both directions. While nobody listens,
 * connections are reset at once.
 *
 * Every machine has one from its start, warm ones included, and all of them are alike: a snapshot
 * or a fork finds the same neighbour with the same hardware address. The VMM has no call to make a socket.
 */
#pragma once

#include "base/err.h"
#include "ipc/priv.h"

#define JAIL_NET_TAP "guest"

/* In the jail's child, as root, before the root is swapped: *ret_fd is the tap. */
MUST_CHECK int jail_net(int *ret_fd, struct err *e);

/*
 * Can this kernel do it? Makes one, in a namespace that the process stays in and that ends with it; root. The error says what
 * is missing.
 */
MUST_CHECK int jail_net_check(struct err *e);

/*
 * A socket in the network namespace of the process behind pidfd. The caller, single-threaded, goes there for a
 * moment and back to home_fd; if it could not come back, the process ends. -ESRCH: the process has ended.
 */
MUST_CHECK int jail_net_socket(int pidfd, int home_fd, enum priv_socket_kind kind, int *ret_fd,
                               struct err *e);
