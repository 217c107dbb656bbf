/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copying processes (copy.c) that run. Each has the user of a machine's slot, so none may outlive the machine: ending a machine ends
 * them first, and they die with us. They are not in the machine's cgroup: to move a process there costs
 * the kernel a grace period, 10 to 20 ms, and a snapshot would wait for it.
 */
#pragma once

#include "base/err.h"

#include <stdint.h>
#include <sys/types.h>

#define COPIES_MAX 256u

struct copies {
    struct copies_entry {
        pid_t pid; /* our child, not reaped yet */
        uint32_t slot;
    } list[COPIES_MAX];
    size_t n;
};

bool copies_full(const struct copies *c);
/* There is room. */
void copies_add(struct copies *c, pid_t pid, uint32_t slot);
/* Whoever reaps children says which. True: it was one of these. */
bool copies_reaped(struct copies *c, pid_t pid);
/* Kills and reaps those of a slot. -ETIMEDOUT: one has not ended yet. */
MUST_CHECK int copies_end(struct copies *c, uint32_t slot, uint64_t deadline_ns);
