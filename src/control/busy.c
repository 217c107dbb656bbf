/* SPDX-License-Identifier: Apache-2.0 */
#include "control/busy.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"

struct busy_hold {
    struct busy *busy; /* borrowed: outlives its holds */
    char id[ID_SIZE];
    int cancel_fd; /* owned */
    bool cancelled;
    struct busy_hold *next;
};

/* A word that another process has given a hold back may be lost with its connection. */
#define REMOTE_LOOK_MS 500

struct busy {
    const struct busy_remote *remote; /* borrowed; NULL: no other process */
    pthread_mutex_t mutex;            /* guards holds and what is in them */
    pthread_cond_t changed;
    struct busy_hold *holds; /* owned: list; as long as there are requests at work */
};

struct busy *busy_new(void)
{
    struct busy *busy = xnew(struct busy);

    pthread_mutex_init(&busy->mutex, NULL);
    cond_init(&busy->changed);
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
    return cond_wait_until(&busy->changed, &busy->mutex, deadline_ns) == 0;
}

void busy_set_remote(struct busy *busy, const struct busy_remote *remote)
{
    ASSERT(busy && !busy->holds);
    busy->remote = remote;
}

void busy_look_again(struct busy *busy)
{
    pthread_mutex_lock(&busy->mutex);
    pthread_cond_broadcast(&busy->changed);
    pthread_mutex_unlock(&busy->mutex);
}

void busy_cancel(struct busy *busy, const char *id)
{
    struct busy_hold *holder;

    pthread_mutex_lock(&busy->mutex);
    holder = find(busy, id);
    if (holder) {
        cancel(holder);
    }
    pthread_mutex_unlock(&busy->mutex);
}

static int still_busy(struct err *e)
{
    return err_set(e, -ETIMEDOUT, "busy",
                   "another request is still at work on this sandbox: try again");
}

/* Out of this process's table, without a word to the others. */
static void remove_hold(struct busy_hold *hold)
{
    struct busy *busy = hold->busy;
    struct busy_hold **link;

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

/* The hold is ours in this process; now among all. */
static int take_remote(struct busy_hold *hold, unsigned flags, uint64_t deadline_ns, struct err *e)
{
    struct busy *busy = hold->busy;
    int r;

    while ((r = busy->remote->take(busy->remote->ctx, hold->id, e)) == 0) {
        if (deadline_passed(deadline_ns)) {
            return still_busy(e);
        }
        if (flags & BUSY_CANCEL_HOLDER) {
            busy->remote->ask(busy->remote->ctx, hold->id);
        }
        pthread_mutex_lock(&busy->mutex);
        IGNORE_RESULT(wait_changed(busy, MIN(deadline_ns, deadline_in_ms(REMOTE_LOOK_MS))));
        pthread_mutex_unlock(&busy->mutex);
    }
    return r < 0 ? r : 0;
}

int busy_enter(struct busy *busy, const char *id, unsigned flags, uint64_t deadline_ns,
               struct busy_hold **ret, struct err *e)
{
    struct busy_hold *holder;
    struct busy_hold *hold = NULL;
    bool in_time = true;
    int r = 0;

    ASSERT(busy && id && ret);

    pthread_mutex_lock(&busy->mutex);
    while ((holder = find(busy, id)) && in_time) {
        if (flags & BUSY_CANCEL_HOLDER) {
            cancel(holder);
        }
        in_time = wait_changed(busy, deadline_ns);
    }
    if (!holder) {
        hold = add(busy, id);
    }
    pthread_mutex_unlock(&busy->mutex);
    if (!hold) {
        return still_busy(e);
    }
    if (busy->remote) {
        r = take_remote(hold, flags, deadline_ns, e);
    }
    if (r < 0) {
        remove_hold(hold);
        return r;
    }
    *ret = hold;
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
    if (hold && busy->remote && busy->remote->take(busy->remote->ctx, id, /* e */ NULL) != 1) {
        remove_hold(TAKE_PTR(hold));
    }
    return hold;
}

void busy_leave(struct busy_hold *hold)
{
    if (!hold) {
        return;
    }
    if (hold->busy->remote) {
        hold->busy->remote->give(hold->busy->remote->ctx, hold->id);
    }
    remove_hold(hold);
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
