/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System call filters, compiled once at start from the lists in filter-vmm.c and in
 * src/privileged/syscalls.c. A child has only to install the finished program: no library code runs
 * between clone and exec.
 *
 * A call on no list ends the whole process with SIGSYS. The node manager's filter is inherited by
 * the VMM, so it allows what either of them needs; the VMM then adds its own, shorter one.
 */
#pragma once

#include "base/err.h"

#include <linux/filter.h>

struct filter_rule {
    const char *
        name; /* static: as in the kernel's table; one that this machine does not have is skipped */
    int refuse;   /* 0: allowed; else the errno that the call fails with */
    bool has_arg; /* allowed only if (argument & mask) == value */
    unsigned arg;
    uint64_t mask;
    uint64_t value;
};

/* What QEMU (and any VMM) may do: filter-vmm.c. */
extern const struct filter_rule filter_vmm_rules[];
extern const size_t filter_vmm_n_rules;

/*
 * Compiles rules, and then those of more (may be NULL) whose call rules does not mention.
 * ret->filter is owned by the caller (free()).
 */
MUST_CHECK int jail_filter_build(const struct filter_rule *rules, size_t n,
                                 const struct filter_rule *more, size_t n_more,
                                 struct sock_fprog *ret, struct err *e);
/* For this thread, for ever; no_new_privs must be set. Only a system call, no memory. */
MUST_CHECK int jail_filter_install(const struct sock_fprog *program);
