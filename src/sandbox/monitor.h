/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the machines: one that ends by itself makes its sandbox failed, at once and with a reason.
 * Keeps the console logs short on the way.
 */
#pragma once

#include "sandbox/node.h"

struct monitor;

struct recovery;

/* recovery is borrowed: stop it after the monitor. */
struct monitor *monitor_start(struct node *node, struct recovery *recovery);
void monitor_stop(struct monitor *monitor);
