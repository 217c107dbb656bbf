/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base machines: one per shape, booted once up to "the daemon waits, no disk mounted", rehearsed, then
 * saved. Every machine of that shape starts from it, whatever its template.
 *
 * A base lives in machines/KEY/{memory,device,manifest.json}. KEY names everything that a saved machine is
 * tied to (accelerator, vCPUs, memory, VMM version, guest kernel and initrd), so it never changes and a
 * new version is simply another folder. It is built under a temporary name and renamed: a half-made base is
 * never seen. Concurrent requests for one base share one build.
 *
 * Whether KVM really works is found out here: a host may offer /dev/kvm and yet not run a guest (nested
 * virtualisation that lacks what a kernel needs). The first base that cannot boot under KVM but can under
 * emulation switches the node to emulation, and says so. Once a machine has run under KVM nothing
 * switches any more: what fails then is a build, not KVM.
 *
 * A base takes over a hundred MiB of the pool, and whoever may create chooses among thousands of
 * shapes: at most BASES_MAX are kept, those that were wanted last and the usual shape's. Machines that began
 * from one that is given up do not notice: they have links to its memory.
 */
#pragma once

#include "sandbox/node.h"

/* The disk that a base machine has seen; a sandbox's is never smaller. */
#define BASE_DISK_BYTES (64ull << 20)
#define BASE_REHEARSAL_TEMPLATE "tiny"
#define BASES_MAX 16
#define BASE_KEY_SIZE 96

struct base {
    struct base *next;
    char key[BASE_KEY_SIZE];
    uint32_t vcpus;
    uint32_t memory_mib;
    enum qemu_accel accel;
    int dir_fd;       /* owned */
    unsigned users;   /* guarded by node.lock, as what follows */
    uint64_t used_ns; /* when it was wanted last */
};

/* Finds or builds, which takes seconds. The result is given back with base_put(). */
MUST_CHECK int base_get(struct node *node, uint32_t vcpus, uint32_t memory_mib, struct base **ret,
                        struct err *e);
void base_put(struct node *node, struct base *base);
/* For the start: is machines/NAME one that this VMM and guest could use? */
bool base_is_current(struct node *node, const char *name);
/* A new descriptor of the device state, at its beginning. */
MUST_CHECK int base_open_device_state(const struct base *base);
void base_free_all(struct node *node);
