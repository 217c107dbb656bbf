/* SPDX-License-Identifier: Apache-2.0 */
#include "jail/fault.h"

#ifdef SPACE_FAULTS

#include <stdio.h>
#include <sys/mman.h>

/* Shared with children, so that a point in the jail child counts like one in the node manager. */
static int *passed;
static int fail_at;

void fault_init(void)
{
    const char *at = getenv("SPACE_FAULT_AT");
    uint64_t value = 0;

    if (!at || str_to_u64(at, 10000, &value) < 0) {
        return;
    }
    fail_at = (int)value;
    passed = mmap(NULL, sizeof(*passed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(passed != MAP_FAILED);
}

bool fault_hit(const char *name)
{
    if (!passed || __atomic_add_fetch(passed, 1, __ATOMIC_SEQ_CST) != fail_at) {
        return false;
    }
    fprintf(stderr, "fault point %d: %s\n", fail_at, name);
    errno = EIO;
    return true;
}

#endif
