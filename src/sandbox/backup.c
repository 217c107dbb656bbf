/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/backup.h"

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/parts.h"
#include "sandbox/tenure.h"

#include <string.h>

#define MADE_BY "backup"
/* After a failure, unless the policy says sooner. */
#define RETRY_MS 60000u

struct job {
    struct resident *res; /* borrowed */
    bool (*stop)(void *arg);
    void *arg;
    char snapshot[ID_SIZE];
    struct parts parts;
};

/* The attempt before counts, whatever became of it; after a start of ours it is in the record. */
static bool is_due(const struct resident *res, uint64_t now_ms)
{
    uint64_t every_ms = (uint64_t)res->record.policy.backup_every_s * 1000;
    uint64_t last_ms = MAX(res->record.durable_at_ms, res->record.started_at_ms);

    if (every_ms == 0) {
        return false;
    }
    return res->backup_again_ms > 0 ? now_ms >= res->backup_again_ms : now_ms >= last_ms + every_ms;
}

static void set_next(struct resident *res, uint64_t begun_ms, bool failed)
{
    uint64_t every_ms = (uint64_t)res->record.policy.backup_every_s * 1000;

    res->backup_again_ms =
        failed ? clock_wall_ms() + MIN(every_ms, (uint64_t)RETRY_MS) : begun_ms + every_ms;
}

static bool is_over(void *arg)
{
    struct job *job = arg;
    struct resident *res = job->res;

    return __atomic_load_n(&res->backup_unwanted, __ATOMIC_RELAXED) || resident_unwanted(res) ||
           tenure_fenced(res->node->tenure) || job->stop(job->arg);
}

/* Those of backups before; the newest one is what a recovery here goes back to. */
static void drop_older(struct resident *res, const char *newest)
{
    struct snapshot *next;

    for (struct snapshot *s = res->snapshots; s; s = next) {
        struct err e = {0};

        next = s->next;
        if (str_eq(s->made_by, MADE_BY) && !s->keep && !s->name[0] && !str_eq(s->id, newest) &&
            snapshot_delete(res, s, &e) < 0) {
            log_warn(&(struct log_ctx){.sandbox = res->record.id},
                     "the snapshot of an earlier backup stays: %s", e.msg);
        }
    }
}

/* With the op lock held. */
static int begin(struct job *job, uint64_t now_ms, struct err *e)
{
    const struct snapshot_wish wish = {.kind = SNAPSHOT_FULL, .made_by = MADE_BY};
    struct resident *res = job->res;
    struct snapshot *snap = NULL;
    int r;

    res->record.durable_at_ms = now_ms; /* whatever comes of it: deleting asks the store */
    r = resident_save(res, RECORD_SURVIVES_PROCESS, e);
    if (r == 0) {
        r = snapshot_take(res, &wish, &snap, e);
    }
    if (r < 0) {
        return r;
    }
    memcpy(job->snapshot, snap->id, sizeof(job->snapshot));
    return parts_open(res, snap, &job->parts, e);
}

static void finish(struct job *job, uint64_t begun_ms, int r, const struct err *e)
{
    struct resident *res = job->res;

    pthread_mutex_lock(&res->op);
    if (!res->gone) {
        set_next(res, begun_ms, r < 0);
        if (r == 0) {
            drop_older(res, job->snapshot);
        }
    }
    pthread_mutex_unlock(&res->op);
    if (r < 0 && r != -ECANCELED) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id},
                 "no backup by schedule, trying again: %s", e->msg);
    }
}

/* With the op lock held, which it gives back. */
static void run(struct job *job, uint64_t now_ms)
{
    struct resident *res = job->res;
    struct err e = {0};
    int r = begin(job, now_ms, &e);

    __atomic_store_n(&res->backup_unwanted, false, __ATOMIC_RELAXED);
    pthread_mutex_lock(&res->transfer); /* nobody has it: who wants it has the op lock */
    pthread_mutex_unlock(&res->op);
    r = r < 0 ? r : parts_store(res, &job->parts, is_over, job, /* ret */ NULL, &e);
    pthread_mutex_unlock(&res->transfer);
    finish(job, now_ms, r, &e);
}

void backup_look(struct resident *res, uint64_t now_ms, bool (*stop)(void *arg), void *arg)
{
    struct job job = {.res = res, .stop = stop, .arg = arg};

    if (pthread_mutex_trylock(&res->op) != 0) {
        return;
    }
    if (res->gone || resident_state(res) != SANDBOX_STATE_RUNNING || !is_due(res, now_ms)) {
        pthread_mutex_unlock(&res->op);
        return;
    }
    parts_init(&job.parts);
    run(&job, now_ms);
    parts_done(&job.parts);
}

void backup_end(struct resident *res)
{
    __atomic_store_n(&res->backup_unwanted, true, __ATOMIC_RELAXED);
    pthread_mutex_lock(&res->transfer);
    pthread_mutex_unlock(&res->transfer);
}
