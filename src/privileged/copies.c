/* SPDX-License-Identifier: Apache-2.0 */
#include "privileged/copies.h"

#include "base/sock.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

bool copies_full(const struct copies *c)
{
    return c->n == COPIES_MAX;
}

void copies_add(struct copies *c, pid_t pid, uint32_t slot)
{
    ASSERT(c->n < COPIES_MAX && pid > 0);
    c->list[c->n++] = (struct copies_entry){pid, slot};
}

bool copies_reaped(struct copies *c, pid_t pid)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->list[i].pid == pid) {
            c->list[i] = c->list[--c->n];
            return true;
        }
    }
    return false;
}

/* Kills one, if it has not ended yet, and reaps it. Not reaped, its number is its own. */
static int end_one(pid_t pid, uint64_t deadline_ns)
{
    cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    int r = pidfd < 0 ? -errno : 0;

    if (r == 0) {
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        r = sock_wait(pidfd, POLLIN, deadline_ns);
    }
    return r < 0 ? r : waitpid(pid, NULL, WNOHANG) == pid ? 0 : -ECHILD;
}

int copies_end(struct copies *c, uint32_t slot, uint64_t deadline_ns)
{
    for (size_t i = c->n; i-- > 0;) {
        if (c->list[i].slot == slot) {
            int r = end_one(c->list[i].pid, deadline_ns);

            if (r < 0) {
                return r;
            }
            c->list[i] = c->list[--c->n];
        }
    }
    return 0;
}
