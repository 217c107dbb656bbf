/* SPDX-License-Identifier: Apache-2.0 */
#include "control/busy.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

struct busy_hold {
    struct busy *busy; /* borrowed: outlives its holds */
    char id[ID_SIZE];
    int cancel_fd; /* owned */
    bool cancelled;
    struct busy_hold *next;
};

struct busy {
    pthread_mutex_t mutex; /* guards holds and what is in them */
    pthread_cond_t changed;
    struct busy_hold *holds; /* owned: list; as long as there are requests at work */
};

struct busy *busy_new(void)
{
    struct busy *busy = xnew(struct busy);
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&busy->mutex, NULL);
    pthread_cond_init(&busy->changed, &attr);
    pthread_condattr_destroy(&attr);
    return busy;
}

void busy_free(struct busy *busy)
{
    if (!busy) {
        return;
    }
    ASSERT(!busy->holds);
    pthread_cond_destroy(&busy->changed);
    pthread_mutex_destroy(&busy->mutex);
    free(busy);
}

static struct busy_hold *find(struct busy *busy, const char *id)
{
    for (struct busy_hold *h = busy->holds; h; h = h->next) {
        if (str_eq(h->id, id)) {
            return h;
        }
    }
    return NULL;
}

static struct busy_hold *add(struct busy *busy, const char *id)
{
    struct busy_hold *hold = xnew(struct busy_hold);

    hold->busy = busy;
    hold->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT(hold->cancel_fd >= 0); /* out of descriptors is treated like out of memory */
    snprintf(hold->id, sizeof(hold->id), "%s", id);
    hold->next = busy->holds;
    busy->holds = hold;
    return hold;
}

static void cancel(struct busy_hold *hold)
{
    if (!hold->cancelled) {
        hold->cancelled = true;
        IGNORE_RESULT(eventfd_write(hold->cancel_fd, 1)); /* a counter of 0 takes 1 */
    }
}

/* False when the deadline has passed. */
static bool wait_changed(struct busy *busy, uint64_t deadline_ns)
{
    struct timespec until = {
        .tv_sec = (time_t)(deadline_ns / NS_PER_S),
        .tv_nsec = (long)(deadline_ns % NS_PER_S),
    };

    if (deadline_ns == DEADLINE_NEVER) {
        pthread_cond_wait(&busy->changed, &busy->mutex);
        return true;
    }
    return pthread_cond_timedwait(&busy->changed, &busy->mutex, &until) != ETIMEDOUT;
}

int busy_enter(struct busy *busy, const char *id, unsigned flags, uint64_t deadline_ns,
               struct busy_hold **ret, struct err *e)
{
    struct busy_hold *holder;
    bool in_time = true;

    ASSERT(busy && id && ret);

    pthread_mutex_lock(&busy->mutex);
    while ((holder = find(busy, id)) && in_time) {
        if (flags & BUSY_CANCEL_HOLDER) {
            cancel(holder);
        }
        in_time = wait_changed(busy, deadline_ns);
    }
    if (!holder) {
        *ret = add(busy, id);
    }
    pthread_mutex_unlock(&busy->mutex);
    if (holder) {
        return err_set(e, -ETIMEDOUT, "busy",
                       "another request is still at work on this sandbox: try again");
    }
    return 0;
}

struct busy_hold *busy_try_enter(struct busy *busy, const char *id)
{
    struct busy_hold *hold = NULL;

    ASSERT(busy && id);

    pthread_mutex_lock(&busy->mutex);
    if (!find(busy, id)) {
        hold = add(busy, id);
    }
    pthread_mutex_unlock(&busy->mutex);
    return hold;
}

void busy_leave(struct busy_hold *hold)
{
    struct busy_hold **link;
    struct busy *busy;

    if (!hold) {
        return;
    }
    busy = hold->busy;
    pthread_mutex_lock(&busy->mutex);
    for (link = &busy->holds; *link != hold; link = &(*link)->next) {
        ASSERT(*link);
    }
    *link = hold->next;
    pthread_cond_broadcast(&busy->changed);
    pthread_mutex_unlock(&busy->mutex);
    fd_close(hold->cancel_fd);
    free(hold);
}

int busy_cancel_fd(const struct busy_hold *hold)
{
    ASSERT(hold);
    return hold->cancel_fd;
}

bool busy_cancelled(const struct busy_hold *hold)
{
    bool cancelled;

    ASSERT(hold);
    pthread_mutex_lock(&hold->busy->mutex);
    cancelled = hold->cancelled;
    pthread_mutex_unlock(&hold->busy->mutex);
    return cancelled;
}
