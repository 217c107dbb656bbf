/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/warm.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "sandbox/base.h"
#include "sandbox/bring.h"
#include "sandbox/disk.h"
#include "sandbox/guest.h"
#include "sandbox/template.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHAPES_MAX 8
#define START_DEADLINE_MS 120000
#define LOOK_EVERY_MS 2000
/* A shape nobody has asked for in so long keeps no machine warm. */
#define FORGET_AFTER_MS (15ull * 60 * 1000)
/* Claims within this time of each other count as one burst. */
#define BURST_MS 10000

struct stock {
    unsigned vcpus; /* 0: a free slot */
    unsigned memory_mib;
    uint64_t last_claim_ms;
    unsigned burst;             /* claims close together, lately */
    struct resident *ready[32]; /* owned: in no list */
    unsigned n_ready;
};

struct warm {
    struct node *node; /* borrowed: lives longer */
    struct warm_options options;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t news;
    bool stop;
    struct stock stocks[SHAPES_MAX];
};

/* ---- one machine ---- */

static int make_folder(struct resident *res, struct err *e)
{
    const struct priv_subvol what = snapshot_subvolume(res, 0);
    cleanup_free char *name = xasprintf("%s/disk.img", res->record.id);
    int r = priv_subvol_create(res->node->host.priv, &what, e);

    if (r < 0) {
        return r;
    }
    r = fs_open_beneath(res->node->sandboxes_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (r < 0) {
        return err_wrap(e, r, "making the disk of a warm machine");
    }
    res->disk_fd = r;
    return ftruncate(res->disk_fd, BASE_DISK_BYTES) < 0 ? err_wrap(e, -errno, "sizing the disk")
                                                        : 0;
}

static int rehearse(struct resident *res, uint64_t deadline_ns, struct err *e)
{
    cleanup_template struct template t = {.disk_fd = FD_NONE};
    const struct guest_setup setup = {.hostname = "warm",
                                      .machine_id = res->record.machine_id,
                                      .default_user = "root",
                                      .fstype = "ext4",
                                      .disk_bytes = BASE_DISK_BYTES,
                                      .rehearse = true};
    int r = template_open(res->node, BASE_REHEARSAL_TEMPLATE, &t, NULL);

    if (r < 0 || t.size_bytes > BASE_DISK_BYTES) {
        return 0; /* as with base machines: slower, not wrong */
    }
    r = disk_clone_into(t.disk_fd, res->disk_fd);
    if (r == 0 && ftruncate(res->disk_fd, BASE_DISK_BYTES) < 0) {
        r = -errno;
    }
    return r < 0 ? err_wrap(e, r, "giving a warm machine a disk to rehearse with")
                 : guest_rehearse(res->channel, &setup, deadline_ns, e);
}

static void discard(struct resident *res)
{
    const struct priv_subvol what = snapshot_subvolume(res, 0);

    bring_down(res, /* e */ NULL);
    IGNORE_RESULT(
        priv_subvol_delete(res->node->host.priv, &what, NULL)); /* swept at the next start */
    resident_unref(res);
}

static struct resident *make_one(struct node *node, unsigned vcpus, unsigned memory_mib)
{
    struct record rec = {
        .shape = {.vcpus = vcpus, .memory_mib = memory_mib, .disk_mib = BASE_DISK_BYTES >> 20},
        .machine_id = "00000000000000000000000000000000"};
    uint64_t deadline_ns = deadline_in_ms(START_DEADLINE_MS);
    struct resident *res;
    struct err e = {0};
    int r;

    id_new(ID_SANDBOX, rec.id);
    rec.env = json_object();
    res = resident_new_unlisted(node, &rec);
    record_done(&rec);
    r = node_check_room(node, &rec.shape, &e);
    if (r == 0) {
        r = make_folder(res, &e);
    }
    if (r == 0) {
        r = bring_waiting(res, deadline_ns, &e);
    }
    if (r == 0) {
        r = rehearse(res, deadline_ns, &e);
    }
    if (r < 0) {
        log_warn(NULL, "no warm machine, trying again later: %s", e.msg);
        discard(res);
        return NULL;
    }
    return res;
}

static bool is_fresh(const struct resident *res)
{
    return res->machine && machine_alive(res->machine) && res->channel &&
           channel_is_up(res->channel) && res->record.accel == res->node->accel;
}

/* ---- the stock ---- */

static struct stock *find_stock(struct warm *w, unsigned vcpus, unsigned memory_mib)
{
    struct stock *oldest = &w->stocks[0];

    for (size_t i = 0; i < SHAPES_MAX; i++) {
        struct stock *s = &w->stocks[i];

        if (s->vcpus == vcpus && s->memory_mib == memory_mib) {
            return s;
        }
        if (s->n_ready == 0 && s->last_claim_ms < oldest->last_claim_ms) {
            oldest = s;
        }
    }
    if (oldest->n_ready > 0) {
        return NULL; /* every slot is in use: this shape goes without */
    }
    *oldest = (struct stock){.vcpus = vcpus, .memory_mib = memory_mib};
    return oldest;
}

static void count_demand(struct stock *s)
{
    uint64_t now_ms = clock_wall_ms();

    s->burst = now_ms - s->last_claim_ms < BURST_MS ? s->burst + 1 : 1;
    s->last_claim_ms = now_ms;
}

static unsigned wanted(const struct warm *w, const struct stock *s)
{
    unsigned by_memory;

    if (s->vcpus == 0 || clock_wall_ms() - s->last_claim_ms > FORGET_AFTER_MS) {
        return 0;
    }
    by_memory = w->options.memory_mib / s->memory_mib;
    return MIN(MIN(MAX(s->burst, 2u), w->options.machines_max),
               MIN(by_memory, (unsigned)ARRAY_SIZE(s->ready)));
}

static unsigned count_ready(const struct warm *w)
{
    unsigned n = 0;

    for (size_t i = 0; i < SHAPES_MAX; i++) {
        n += w->stocks[i].n_ready;
    }
    return n;
}

static struct stock *next_to_fill(struct warm *w)
{
    if (count_ready(w) >= w->options.machines_max) {
        return NULL;
    }
    for (size_t i = 0; i < SHAPES_MAX; i++) {
        if (w->stocks[i].n_ready < wanted(w, &w->stocks[i])) {
            return &w->stocks[i];
        }
    }
    return NULL;
}

/* One that is dead or not wanted any more; NULL: none. */
static struct resident *next_to_drop(struct warm *w)
{
    for (size_t i = 0; i < SHAPES_MAX; i++) {
        struct stock *s = &w->stocks[i];

        for (unsigned j = 0; j < s->n_ready; j++) {
            if (!is_fresh(s->ready[j]) || s->n_ready > MAX(wanted(w, s), 1u) ||
                (wanted(w, s) == 0 && s->n_ready > 0)) {
                struct resident *res = s->ready[j];

                s->ready[j] = s->ready[--s->n_ready];
                return res;
            }
        }
    }
    return NULL;
}

static void add_ready(struct warm *w, struct resident *res)
{
    struct stock *s = find_stock(w, res->record.shape.vcpus, res->record.shape.memory_mib);

    if (w->stop || !s || s->n_ready >= ARRAY_SIZE(s->ready)) {
        pthread_mutex_unlock(&w->lock);
        discard(res);
        pthread_mutex_lock(&w->lock);
        return;
    }
    s->ready[s->n_ready++] = res;
}

static void wait_for_news(struct warm *w)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOOK_EVERY_MS / 1000;
    pthread_cond_timedwait(&w->news, &w->lock, &until);
}

static void *warm_main(void *arg)
{
    struct warm *w = arg;

    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        struct resident *drop = next_to_drop(w);
        struct stock *fill = drop ? NULL : next_to_fill(w);
        struct resident *made = NULL;

        if (!drop && !fill) {
            wait_for_news(w);
            continue;
        }
        unsigned vcpus = fill ? fill->vcpus : 0;
        unsigned memory_mib = fill ? fill->memory_mib : 0;

        pthread_mutex_unlock(&w->lock);
        if (drop) {
            discard(drop);
        } else {
            made = make_one(w->node, vcpus, memory_mib);
        }
        pthread_mutex_lock(&w->lock);
        if (made) {
            add_ready(w, made);
        } else if (!drop && !w->stop) {
            wait_for_news(w); /* it failed: not at once again */
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct warm *warm_start(struct node *node, const struct warm_options *options)
{
    struct warm *w = xnew(struct warm);
    const struct shape shape = shape_default();

    w->node = node;
    w->options = *options;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->news, NULL);
    if (options->machines_max > 0) { /* the usual shape, before anybody has asked */
        count_demand(find_stock(w, shape.vcpus, shape.memory_mib));
    }
    ASSERT(pthread_create(&w->thread, NULL, warm_main, w) == 0);
    return w;
}

void warm_stop(struct warm *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->news);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    for (size_t i = 0; i < SHAPES_MAX; i++) {
        for (unsigned j = 0; j < w->stocks[i].n_ready; j++) {
            discard(w->stocks[i].ready[j]);
        }
    }
    pthread_cond_destroy(&w->news);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static struct resident *take_ready(struct warm *w, unsigned vcpus, unsigned memory_mib)
{
    struct resident *taken = NULL;
    struct stock *s;

    pthread_mutex_lock(&w->lock);
    s = w->options.machines_max > 0 ? find_stock(w, vcpus, memory_mib) : NULL;
    if (s) {
        count_demand(s);
        for (unsigned j = s->n_ready; j-- > 0 && !taken;) {
            if (is_fresh(s->ready[j])) {
                taken = s->ready[j];
                s->ready[j] = s->ready[--s->n_ready];
            }
        }
        pthread_cond_signal(&w->news);
    }
    pthread_mutex_unlock(&w->lock);
    return taken;
}

int warm_claim(struct warm *w, struct resident *res, struct err *e)
{
    struct resident *from = take_ready(w, res->record.shape.vcpus, res->record.shape.memory_mib);

    if (!from) {
        return -ENOENT;
    }
    if (renameat(res->node->sandboxes_fd, from->record.id, res->node->sandboxes_fd,
                 res->record.id) < 0) {
        int r = err_wrap(e, -errno, "taking over a warm machine's folder");

        discard(from);
        return r;
    }
    pthread_mutex_lock(&res->lock);
    res->machine = TAKE_PTR(from->machine);
    res->channel = TAKE_PTR(from->channel);
    res->disk_fd = TAKE_FD(from->disk_fd);
    res->record.machine = from->record.machine;
    res->record.has_machine = true;
    res->record.accel = from->record.accel;
    res->record.started_at_ms = clock_wall_ms();
    pthread_mutex_unlock(&res->lock);
    resident_unref(from);
    return 0;
}

unsigned warm_ready(struct warm *w)
{
    unsigned n;

    pthread_mutex_lock(&w->lock);
    n = count_ready(w);
    pthread_mutex_unlock(&w->lock);
    return n;
}
