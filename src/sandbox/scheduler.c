/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/scheduler.h"

#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "sandbox/backup.h"
#include "sandbox/bring.h"
#include "sandbox/disk.h"
#include "sandbox/guest.h"
#include "sandbox/history.h"
#include "sandbox/lifecycle.h"
#include "sandbox/pause.h"
#include "sandbox/retention.h"
#include "sandbox/tenure.h"

#include <string.h>
#include <time.h>

#define LOOK_EVERY_MS 1000
#define WORKERS 4
/* Uploads at a time, of threads that do nothing else: bytes that travel hold up no snapshot. */
#define BACKUPS 2
#define CLOCK_EVERY_MS (60ull * 60 * 1000)
#define IDLE_LOOK_MS 5000
/* How long the control plane has to end a sandbox itself, or to say that its life is longer. */
#define END_GRACE_MS 10000
#define METRICS_DEADLINE_MS 2000
/* Of one processor: a kernel and a daemon that wait use far less. */
#define BUSY_PERCENT 10
/* Below this somebody has to stop writing. */
#define POOL_LAST_BYTES (192ull << 20)
#define POOL_STEP_BYTES (16ull << 20)

struct worker {
    struct scheduler *scheduler; /* borrowed: it is part of it */
    unsigned index;              /* among those of its kind */
    void (*look)(struct worker *w);
    pthread_t thread;
};

struct scheduler {
    struct node *node; /* borrowed: lives longer */
    /* The first worker's own: the pool has been full, and what was free when somebody was stopped. */
    bool was_full;
    uint64_t stopped_at_bytes;
    struct worker workers[WORKERS + BACKUPS];
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t news;
    bool stop;
};

/* ---- snapshots ---- */

static uint64_t last_of_kind_ms(struct resident *res, enum snapshot_kind kind)
{
    const struct snapshot *s = snapshot_newest(res, kind);

    return s ? s->created_at_ms : res->record.started_at_ms;
}

static bool is_due(struct resident *res, enum snapshot_kind kind, uint32_t every_s, uint64_t now_ms)
{
    return every_s > 0 && now_ms - last_of_kind_ms(res, kind) >= (uint64_t)every_s * 1000;
}

static void take_due(struct resident *res, uint64_t now_ms)
{
    const struct policy *p = &res->record.policy;
    struct snapshot_wish wish = {.kind = SNAPSHOT_DISK, .made_by = "schedule"};
    struct snapshot *snap = NULL;
    struct err e = {0};

    if (is_due(res, SNAPSHOT_FULL, p->full_every_s, now_ms)) {
        wish.kind = SNAPSHOT_FULL;
    } else if (!is_due(res, SNAPSHOT_DISK, p->disk_every_s, now_ms)) {
        return;
    }
    if (snapshot_take(res, &wish, &snap, &e) < 0) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id},
                 "no snapshot by schedule, trying again: %s", e.msg);
        return;
    }
    res->wants_thinning = true;
}

/* ---- idleness, use ---- */

static int read_metrics(struct resident *res, json_t **ret)
{
    struct channel *ch = NULL;
    int r = resident_guest_begin(res, &ch, NULL);

    if (r < 0) {
        return r;
    }
    r = guest_call(
        ch, &(struct guest_call){"GET", "/metrics", NULL, deadline_in_ms(METRICS_DEADLINE_MS)}, ret,
        NULL);
    resident_guest_end(ch);
    return r;
}

/* Does anything work in there now? Programs that were left in the background show by their processor time. */
static bool guest_is_busy(struct resident *res, json_t *metrics, uint64_t now_ms)
{
    json_t *cpu = json_object_get(metrics, "cpu");
    uint64_t used_ms =
        (uint64_t)json_get_int(cpu, "user_ms", 0) + (uint64_t)json_get_int(cpu, "system_ms", 0);
    uint64_t used_since = used_ms - MIN(res->idle_cpu_ms, used_ms);
    uint64_t since_ms = now_ms - res->idle_looked_ms;

    res->idle_cpu_ms = used_ms;
    return json_get_int(json_object_get(metrics, "commands"), "active", 1) > 0 ||
           json_get_int(json_object_get(metrics, "activity"), "connections", 1) > 0 ||
           used_since * 100 > since_ms * BUSY_PERCENT;
}

static bool guest_is_idle(struct resident *res, uint64_t idle_ms, uint64_t now_ms)
{
    cleanup_json json_t *metrics = NULL;

    int r = read_metrics(res, &metrics);

    if (r < 0) {
        res->mute_until_ms = now_ms + RESIDENT_MUTE_MS;
    }
    if (r < 0 || guest_is_busy(res, metrics, now_ms)) { /* what cannot be seen is not idle */
        res->busy_ms = now_ms;
    }
    res->idle_looked_ms = now_ms;
    res->busy_ms = MAX(res->busy_ms, res->record.started_at_ms);
    return now_ms - res->busy_ms >= idle_ms &&
           (uint64_t)json_get_int(json_object_get(metrics, "activity"), "idle_ms", 0) >= idle_ms;
}

static void sample_usage(struct resident *res, uint64_t now_ms)
{
    cleanup_json json_t *metrics = NULL;

    if (now_ms < MAX(res->mute_until_ms, res->sample_at_ms) ||
        resident_state(res) != SANDBOX_STATE_RUNNING) {
        return;
    }
    if (read_metrics(res, &metrics) < 0) {
        res->sample_at_ms = now_ms + RESIDENT_MUTE_MS;
        return;
    }
    res->sample_at_ms = now_ms + USAGE_EVERY_MS;
    pthread_mutex_lock(&res->lock);
    usage_add(&res->usage, (int64_t)now_ms, metrics);
    pthread_mutex_unlock(&res->lock);
}

/* Called without the op lock: pausing takes it. */
static void pause_if_idle(struct resident *res, uint64_t now_ms)
{
    uint64_t idle_ms = (uint64_t)res->record.policy.idle_pause_s * 1000;
    struct err e = {0};
    int r;

    if (idle_ms == 0 || now_ms < res->mute_until_ms ||
        resident_state(res) != SANDBOX_STATE_RUNNING ||
        now_ms - res->idle_looked_ms < MIN((uint64_t)IDLE_LOOK_MS, idle_ms)) {
        return;
    }
    if (!guest_is_idle(res, idle_ms, now_ms)) {
        return;
    }
    r = pause_sandbox(
        res, &(struct pause_wish){.durable = true, .wake_on_request = true, .unless_visited = true},
        &e);
    if (r == -EBUSY) {
        res->busy_ms = now_ms; /* a request has come since we looked */
    } else if (r < 0) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id}, "cannot pause an idle sandbox: %s",
                 e.msg);
    }
}

/* ---- the end of its life ---- */

/*
 * Deleting it is the control plane's, which has had its time for it and may be away. Stopped it costs nothing but
 * room, and its disk is not lost should its life have been made longer behind our back.
 */
static int end_life(struct resident *res, struct err *e)
{
    enum sandbox_at_end how = res->record.at_end;

    if (how != SANDBOX_AT_END_PAUSE && how != SANDBOX_AT_END_SLEEP) {
        return lifecycle_stop(res, e);
    }
    return pause_sandbox(
        res, &(struct pause_wish){.durable = true, .wake_on_request = how == SANDBOX_AT_END_SLEEP},
        e);
}

static void end_if_over(struct resident *res, uint64_t now_ms)
{
    int64_t end_at_ms = resident_end_at_ms(res);
    struct err e = {0};

    if (end_at_ms == 0 || (int64_t)now_ms < end_at_ms + END_GRACE_MS ||
        resident_state(res) != SANDBOX_STATE_RUNNING) {
        return;
    }
    history_add(res, "time_over", "ended by its node: its life time ended %lld s ago",
                (long long)((int64_t)now_ms - end_at_ms) / 1000);
    if (end_life(res, &e) < 0) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id},
                 "its time is over and it cannot be ended, trying again: %s", e.msg);
    }
}

/* ---- the clock ---- */

/* An emulated guest has only its counter to go by: told the time once in a while, it stays right for months. */
static void set_clock(struct resident *res, uint64_t now_ms)
{
    uint64_t since_ms = MAX(res->clock_set_ms, res->record.started_at_ms);

    if (now_ms - since_ms < CLOCK_EVERY_MS || now_ms < res->mute_until_ms) {
        return;
    }
    res->clock_set_ms = now_ms;
    if (bring_identity(res, &(struct bring_identity){false}, deadline_in_ms(METRICS_DEADLINE_MS),
                       NULL) < 0) {
        res->mute_until_ms = now_ms + RESIDENT_MUTE_MS;
    }
}

/* ---- the last reserve ---- */

static uint64_t free_space(const struct node *node)
{
    uint64_t free_bytes = UINT64_MAX;
    uint64_t total_bytes = 0;

    /* What cannot be read is no reason to stop anybody. */
    return node_pool_space(node, &free_bytes, &total_bytes) < 0 ? UINT64_MAX : free_bytes;
}

static uint64_t own_disk_bytes(struct resident *res)
{
    uint64_t bytes = 0;
    int r = -ENOENT;

    if (pthread_mutex_trylock(&res->op) != 0) {
        return 0;
    }
    if (resident_state(res) == SANDBOX_STATE_RUNNING && res->disk_fd >= 0) {
        r = disk_exclusive_bytes(res->disk_fd, &bytes);
    }
    pthread_mutex_unlock(&res->op);
    return r < 0 ? 0 : bytes;
}

static void stop_largest_writer(struct node *node)
{
    struct resident *largest = NULL;
    uint64_t most = 0;
    struct err e = {0};

    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        uint64_t bytes = own_disk_bytes(res);

        if (bytes > most) {
            most = bytes;
            resident_unref(largest);
            largest = resident_find(node, res->record.id);
        }
    }
    if (!largest) {
        return;
    }
    history_add(largest, "pool_full",
                "paused: the node's pool is full and this disk is the largest, %llu MiB",
                (unsigned long long)(most >> 20));
    if (pause_sandbox(largest, &(struct pause_wish){.durable = false}, &e) < 0) {
        log_warn(&(struct log_ctx){.sandbox = largest->record.id}, "cannot be paused: %s", e.msg);
    }
    resident_unref(largest);
}

/* "cont" is for those that stand still after a full pool; the others do not notice. */
static void let_all_go_on(struct node *node)
{
    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        if (pthread_mutex_trylock(&res->op) != 0) {
            continue;
        }
        if (res->machine && resident_state(res) == SANDBOX_STATE_RUNNING) {
            IGNORE_RESULT(machine_resume(res->machine, deadline_in_ms(METRICS_DEADLINE_MS),
                                         NULL)); /* one that has ended is the monitor's */
        }
        pthread_mutex_unlock(&res->op);
    }
}

static void guard_reserve(struct scheduler *s)
{
    uint64_t free_bytes = free_space(s->node);

    if (free_bytes < POOL_LAST_BYTES) {
        /* One at a time: the next one only if it goes on shrinking all the same. */
        if (!s->was_full || free_bytes + POOL_STEP_BYTES < s->stopped_at_bytes) {
            s->stopped_at_bytes = free_bytes;
            stop_largest_writer(s->node);
        }
        s->was_full = true;
    } else if (s->was_full) {
        s->was_full = free_bytes < 2 * POOL_LAST_BYTES;
        let_all_go_on(s->node);
    }
}

/* ---- the look ---- */

static void look_at(struct resident *res)
{
    uint64_t now_ms = clock_wall_ms();

    end_if_over(res, now_ms);
    sample_usage(res, now_ms);
    pause_if_idle(res, now_ms);
    if (pthread_mutex_trylock(&res->op) != 0) {
        return;
    }
    lifecycle_finish_stop(res);
    if (!res->gone && resident_state(res) == SANDBOX_STATE_RUNNING) {
        take_due(res, now_ms);
        set_clock(res, now_ms);
    }
    if (!res->gone && res->wants_thinning) {
        res->wants_thinning = retention_thin(res, now_ms);
    }
    pthread_mutex_unlock(&res->op);
}

static void look(struct worker *w)
{
    struct node *node = w->scheduler->node;

    if (tenure_fenced(node->tenure)) {
        return; /* they stand still: nothing can be asked of them, and nothing grows */
    }
    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        if (res->number % WORKERS == w->index) {
            look_at(res);
        }
    }
    if (w->index == 0 && retention_pool_is_short(node)) {
        IGNORE_RESULT(retention_make_room(node)); /* one a look */
    }
    if (w->index == 0) {
        guard_reserve(w->scheduler);
    }
}

static bool is_stopped(void *arg)
{
    struct scheduler *s = arg;
    bool stop;

    pthread_mutex_lock(&s->lock);
    stop = s->stop;
    pthread_mutex_unlock(&s->lock);
    return stop;
}

static void look_for_backups(struct worker *w)
{
    struct scheduler *s = w->scheduler;

    for (struct resident *res = resident_next_take(s->node, NULL); res;
         res = resident_next_take(s->node, res)) {
        if (res->number % BACKUPS == w->index && !tenure_fenced(s->node->tenure) &&
            !is_stopped(s)) {
            backup_look(res, clock_wall_ms(), is_stopped, s);
        }
    }
}

static void *scheduler_main(void *arg)
{
    struct worker *w = arg;
    struct scheduler *s = w->scheduler;

    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        pthread_mutex_unlock(&s->lock);
        w->look(w);
        pthread_mutex_lock(&s->lock);
        if (!s->stop) {
            cond_wait_until(&s->news, &s->lock, deadline_in_ms(LOOK_EVERY_MS));
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

struct scheduler *scheduler_start(struct node *node)
{
    struct scheduler *s = xnew(struct scheduler);

    s->node = node;
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->news);
    for (unsigned i = 0; i < ARRAY_SIZE(s->workers); i++) {
        s->workers[i] =
            i < WORKERS
                ? (struct worker){.scheduler = s, .index = i, .look = look}
                : (struct worker){.scheduler = s, .index = i - WORKERS, .look = look_for_backups};
        ASSERT(pthread_create(&s->workers[i].thread, NULL, scheduler_main, &s->workers[i]) == 0);
    }
    return s;
}

void scheduler_stop(struct scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->news);
    pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < ARRAY_SIZE(s->workers); i++) {
        pthread_join(s->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&s->news);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
