/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/reaper.h"

#include "base/log.h"
#include "sandbox/bring.h"

struct job {
    struct job *next;
    struct resident *leftover; /* owned */
    struct priv_subvol disk;
};

struct reaper {
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t news;
    struct job *jobs; /* owned */
    bool stop;
};

static void do_job(struct job *job)
{
    const struct log_ctx ctx = {.sandbox = job->leftover->record.id};
    struct err e = {0};

    if (bring_down(job->leftover, &e) < 0 ||
        priv_subvol_delete(job->leftover->node->host.priv, &job->disk, &e) < 0) {
        log_warn(&ctx, "disk %u stays until the next start: %s", job->disk.n, e.msg);
    }
    resident_unref(job->leftover);
    free(job);
}

static void *reaper_main(void *arg)
{
    struct reaper *reaper = arg;

    pthread_mutex_lock(&reaper->lock);
    while (reaper->jobs || !reaper->stop) {
        struct job *job = reaper->jobs;

        if (!job) {
            pthread_cond_wait(&reaper->news, &reaper->lock);
            continue;
        }
        reaper->jobs = job->next;
        pthread_mutex_unlock(&reaper->lock);
        do_job(job);
        pthread_mutex_lock(&reaper->lock);
    }
    pthread_mutex_unlock(&reaper->lock);
    return NULL;
}

struct reaper *reaper_start(void)
{
    struct reaper *reaper = xnew(struct reaper);

    pthread_mutex_init(&reaper->lock, NULL);
    pthread_cond_init(&reaper->news, NULL);
    ASSERT(pthread_create(&reaper->thread, NULL, reaper_main, reaper) == 0);
    return reaper;
}

void reaper_stop(struct reaper *reaper)
{
    pthread_mutex_lock(&reaper->lock);
    reaper->stop = true;
    pthread_cond_signal(&reaper->news);
    pthread_mutex_unlock(&reaper->lock);
    pthread_join(reaper->thread, NULL);
    pthread_cond_destroy(&reaper->news);
    pthread_mutex_destroy(&reaper->lock);
    free(reaper);
}

void reaper_take(struct reaper *reaper, struct resident *leftover, const struct priv_subvol *disk)
{
    struct job *job = xnew(struct job);

    *job = (struct job){.leftover = leftover, .disk = *disk};
    pthread_mutex_lock(&reaper->lock);
    job->next = reaper->jobs;
    reaper->jobs = job;
    pthread_cond_signal(&reaper->news);
    pthread_mutex_unlock(&reaper->lock);
}
