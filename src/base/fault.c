/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

#ifdef SPACE_FAULTS

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Shared with children, so that a point in the jail child counts like one in the node manager. */
static int *passed;
static int fail_at;
static const char *only = "";   /* static: the environment's */
static int killer_fd = FD_NONE; /* the killer's pipe; with SPACE_FAULT_KILL */
static int self_fd = FD_NONE;   /* the program's pidfd */

/* A bystander that can still name the program when a child in a pid namespace no longer can. */
static void fault_start_killer(void)
{
    pid_t program = getpid();
    int ends[2];
    char byte;

    self_fd = (int)syscall(SYS_pidfd_open, program, 0);
    ASSERT(self_fd >= 0 && pipe(ends) == 0);
    if (fork() == 0) {
        close(ends[1]);
        if (read(ends[0], &byte, 1) == 1) {
            kill(program, SIGKILL);
        }
        _exit(0);
    }
    close(ends[0]);
    killer_fd = ends[1];
}

void fault_init(void)
{
    const char *at = getenv("SPACE_FAULT_AT");
    uint64_t value = 0;

    if (!at || str_to_u64(at, 10000, &value) < 0) {
        return;
    }
    fail_at = (int)value;
    only = getenv("SPACE_FAULT_ONLY") ? getenv("SPACE_FAULT_ONLY") : "";
    passed = mmap(NULL, sizeof(*passed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(passed != MAP_FAILED);
    if (getenv("SPACE_FAULT_KILL")) {
        fault_start_killer();
    }
}

bool fault_hit(const char *name)
{
    if (!passed || !str_starts(name, only) ||
        __atomic_add_fetch(passed, 1, __ATOMIC_SEQ_CST) != fail_at) {
        return false;
    }
    fprintf(stderr, "fault point %d: %s\n", fail_at, name);
    if (killer_fd >= 0) {
        struct pollfd p = {.fd = self_fd, .events = POLLIN};

        if (write(killer_fd, "k", 1) == 1) {
            poll(&p, 1, -1);
        }
        return false; /* only a child gets here: it goes on without its parent */
    }
    errno = EIO;
    return true;
}

#endif
