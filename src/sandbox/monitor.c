/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/monitor.h"

#include "base/clock.h"
#include "sandbox/console.h"
#include "sandbox/lifecycle.h"
#include "sandbox/recovery.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A machine that starts between two looks is in the next one; ends are seen at once from then on. */
#define LOOK_EVERY_MS 500
/* An end that an operation has to deal with first stays ready for poll: that must not make us spin. */
#define BUSY_LOOK_MS 50

struct monitor {
    struct node *node;         /* borrowed: lives longer */
    struct recovery *recovery; /* borrowed: lives longer */
    pthread_t thread;
    int stop_fd; /* owned */
};

/* The descriptors of the machines now, and the sandboxes (referenced) that they belong to. */
struct watch {
    struct pollfd fds[NODE_RESIDENTS_MAX + 1];
    struct resident *residents[NODE_RESIDENTS_MAX + 1];
    nfds_t n;
};

static void collect(struct monitor *monitor, struct watch *w)
{
    w->fds[0] = (struct pollfd){.fd = monitor->stop_fd, .events = POLLIN};
    w->n = 1;
    for (struct resident *res = resident_next_take(monitor->node, NULL); res;
         res = resident_next_take(monitor->node, res)) {
        pthread_mutex_lock(&res->lock);
        if (res->machine && w->n <= NODE_RESIDENTS_MAX) {
            int copy = dup(machine_pidfd(res->machine)); /* the machine may go while we wait */

            if (copy >= 0) {
                w->fds[w->n] = (struct pollfd){.fd = copy, .events = POLLIN};
                w->residents[w->n++] = resident_find(monitor->node, res->record.id);
            }
        }
        pthread_mutex_unlock(&res->lock);
    }
}

/* False: busy with an operation, which finds out by itself, or the next look does. */
static bool handle_end(struct monitor *monitor, struct resident *res)
{
    if (pthread_mutex_trylock(&res->op) != 0) {
        return false;
    }
    if (!res->gone && res->machine && !machine_alive(res->machine) &&
        (resident_state(res) == SANDBOX_STATE_RUNNING ||
         resident_state(res) == SANDBOX_STATE_PAUSED)) {
        lifecycle_machine_died(res);
        recovery_wake(monitor->recovery);
    }
    pthread_mutex_unlock(&res->op);
    return true;
}

/* False: an end could not be dealt with yet. */
static bool finish(struct monitor *monitor, struct watch *w)
{
    bool all = true;

    for (nfds_t i = 1; i < w->n; i++) {
        if (w->residents[i]) {
            if (w->fds[i].revents) {
                all = handle_end(monitor, w->residents[i]) && all;
            } else {
                console_trim(w->residents[i]->node, w->residents[i]->record.machine.id);
            }
            resident_unref(w->residents[i]);
        }
        close(w->fds[i].fd);
    }
    return all;
}

static void *monitor_main(void *arg)
{
    struct monitor *monitor = arg;
    struct watch *w = xnew(struct watch);
    bool stop = false;

    while (!stop) {
        collect(monitor, w);
        IGNORE_RESULT(
            poll(w->fds, w->n, LOOK_EVERY_MS)); /* an interrupted wait only looks sooner */
        stop = w->fds[0].revents != 0;
        if (!finish(monitor, w)) {
            IGNORE_RESULT(
                poll(w->fds, 1, BUSY_LOOK_MS)); /* the end of the service is seen in it, too */
        }
    }
    free(w);
    return NULL;
}

struct monitor *monitor_start(struct node *node, struct recovery *recovery)
{
    struct monitor *monitor = xnew(struct monitor);

    monitor->node = node;
    monitor->recovery = recovery;
    monitor->stop_fd = eventfd(0, EFD_CLOEXEC);
    ASSERT(monitor->stop_fd >= 0);
    ASSERT(pthread_create(&monitor->thread, NULL, monitor_main, monitor) == 0);
    return monitor;
}

void monitor_stop(struct monitor *monitor)
{
    uint64_t one = 1;

    ASSERT(write(monitor->stop_fd, &one, sizeof(one)) == sizeof(one));
    pthread_join(monitor->thread, NULL);
    fd_close(monitor->stop_fd);
    free(monitor);
}
