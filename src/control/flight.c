/* SPDX-License-Identifier: Apache-2.0 */
#include "control/flight.h"

#include "base/clock.h"
#include "base/cond.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

struct flight {
    struct flights *all; /* borrowed: lives longer */
    struct flight *next; /* while it is in the air */
    char id[ID_SIZE];
    unsigned refs; /* the leader and who waits */
    bool landed;
    int result;
    struct err error;
};

struct flights {
    pthread_mutex_t mutex; /* guards what follows, and the flights */
    pthread_cond_t landed;
    struct flight *first; /* in the air; each is owned by its references */
};

struct flights *flights_new(void)
{
    struct flights *fs = xnew(struct flights);

    pthread_mutex_init(&fs->mutex, NULL);
    cond_init(&fs->landed);
    return fs;
}

void flights_free(struct flights *fs)
{
    if (fs) {
        ASSERT(!fs->first);
        pthread_cond_destroy(&fs->landed);
        pthread_mutex_destroy(&fs->mutex);
        free(fs);
    }
}

static void unref(struct flight *f)
{
    if (--f->refs == 0) {
        free(f);
    }
}

static struct flight *find(struct flights *fs, const char *id)
{
    struct flight *f = fs->first;

    while (f && !str_eq(f->id, id)) {
        f = f->next;
    }
    return f;
}

static int await(struct flights *fs, struct flight *f, uint64_t deadline_ns, struct err *e)
{
    bool in_time = true;
    int r;

    f->refs++;
    while (!f->landed && in_time) {
        in_time = cond_wait_until(&fs->landed, &fs->mutex, deadline_ns) == 0;
    }
    if (!f->landed) {
        r = err_set(e, -ETIMEDOUT, "busy",
                    "another request is still at work on this sandbox: try again");
    } else {
        r = f->result;
        if (r < 0 && e) {
            *e = f->error;
        }
    }
    unref(f);
    return r;
}

int flight_board(struct flights *fs, const char *id, uint64_t deadline_ns, struct flight **ret,
                 struct err *e)
{
    struct flight *f;
    int r = 1;

    ASSERT(fs && id && ret && deadline_ns);
    pthread_mutex_lock(&fs->mutex);
    f = find(fs, id);
    if (f) {
        r = await(fs, f, deadline_ns, e);
    } else {
        f = xnew(struct flight);
        *f = (struct flight){.all = fs, .next = fs->first, .refs = 1};
        snprintf(f->id, sizeof(f->id), "%s", id);
        fs->first = f;
        *ret = f;
    }
    pthread_mutex_unlock(&fs->mutex);
    return r;
}

void flight_land(struct flight *f, int r, const struct err *e)
{
    struct flights *fs = f->all;
    struct flight **at = &fs->first;

    ASSERT(r <= 0);
    pthread_mutex_lock(&fs->mutex);
    while (*at != f) {
        at = &(*at)->next;
    }
    *at = f->next;
    f->landed = true;
    f->result = r;
    if (r < 0 && e) {
        f->error = *e;
    }
    pthread_cond_broadcast(&fs->landed);
    unref(f);
    pthread_mutex_unlock(&fs->mutex);
}
