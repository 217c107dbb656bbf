/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From "the kernel has started us" to "the port is open": what PID 1 must do before it can serve.
 *
 * The initramfs holds /init (this program), /modules/order (one module file name a line) with the modules beside
 * it, and the empty folders dev, proc, sys, sandbox, run. There is no udev.
 *
 * So that no workload can starve the daemon: two cgroups, "daemon" (protected memory, ten times the CPU
 * weight) and "workload" (pids.max and memory.max below what the machine has), oom_score_adj -1000.
 */
#pragma once

#include "base/err.h"
#include "daemon/workload.h"

/* File systems, console, modules, limits. A failure is fatal: there is nobody to tell but the console. */
MUST_CHECK int guest_prepare(struct err *e);
/* Without cgroup v2 both descriptors are FD_NONE and that is no failure. */
MUST_CHECK int guest_make_cgroups(struct workload_cgroups *ret, struct err *e);
/* Waits until the virtio port of that name is there and opens it, non-blocking. */
MUST_CHECK int guest_open_port(const char *name, uint64_t deadline_ns, int *ret_fd, struct err *e);
