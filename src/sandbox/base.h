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
 * emulation switches the node to emulation, and says so.
 */
#pragma once

#include "sandbox/node.h"

/* The disk that a base machine has seen; a sandbox's is never smaller. */
#define BASE_DISK_BYTES (64ull << 20)
#define BASE_REHEARSAL_TEMPLATE "tiny"

struct base {
    struct base *next;
    char key[96];
    uint32_t vcpus;
    uint32_t memory_mib;
    enum qemu_accel accel;
    int memory_fd; /* owned: read-only */
    int dir_fd;    /* owned */
};

/* Finds or builds; the result lives as long as the node. Building takes seconds. */
MUST_CHECK int base_get(struct node *node, uint32_t vcpus, uint32_t memory_mib,
                        const struct base **ret, struct err *e);
/* A new descriptor of the device state, at its beginning. */
MUST_CHECK int base_open_device_state(const struct base *base);
void base_free_all(struct node *node);
