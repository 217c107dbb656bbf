/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's side of its one network interface. Every guest has the same address, since each lives alone on an
 * island of its own (src/jail/net.h): snapshots and forks need no renumbering. Done once, before the machine
 * is saved as a base machine; what restores it finds eth0 up.
 */
#pragma once

#include "base/err.h"

#define NETWORK_RESOLV_CONF "nameserver 10.0.0.1\noptions timeout:3 attempts:2\n"

MUST_CHECK int network_loopback_up(struct err *e);
/* -ENODEV: there is no eth0. */
MUST_CHECK int network_eth0_up(struct err *e);
