/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/warm.h"

#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "sandbox/figures.h"
#include "sandbox/tenure.h"
#include "sandbox/warm-machine.h"

#include <string.h>

#define STOCKS_MAX 16
#define READY_MAX 32u
#define LOOK_EVERY_MS 2000
/* The stock is not refilled before: the refill would take the processor from what was claimed. */
#define REST_MS 400
/* What nobody has asked for in so long is not kept. */
#define FORGET_AFTER_MS (15ull * 60 * 1000)
/* Claims within this time of each other count as one burst. */
#define BURST_MS 10000

/* What one stock's machines are. */
struct kind {
    unsigned vcpus; /* 0: a free slot */
    unsigned memory_mib;
    unsigned disk_mib;                      /* of a dressed or blank one; 0: plain */
    char template_name[TEMPLATE_NAME_SIZE]; /* "": plain or blank */
    char template_id[64];
};

struct stock {
    struct kind kind;
    uint64_t last_claim_ms;
    unsigned burst;                    /* claims close together, lately */
    struct resident *ready[READY_MAX]; /* owned: in no list */
    unsigned n_ready;
};

struct warm {
    struct node *node; /* borrowed: lives longer */
    struct warm_options options;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t news;
    bool stop;
    struct stock stocks[STOCKS_MAX];
    uint64_t rest_until_ns;
};

/* ---- kinds ---- */

static struct kind plain(unsigned vcpus, unsigned memory_mib)
{
    return (struct kind){.vcpus = vcpus, .memory_mib = memory_mib};
}

static struct kind dressed(const struct shape *shape, const struct template *t)
{
    struct kind kind = plain(shape->vcpus, shape->memory_mib);

    kind.disk_mib = shape->disk_mib;
    ASSERT(str_copy(kind.template_name, sizeof(kind.template_name), t->name) == 0);
    /* One without an id is taken for the same as long as its name is. */
    if (str_copy(kind.template_id, sizeof(kind.template_id),
                 json_get_string(t->manifest, "id", "")) < 0) {
        kind.template_id[0] = '\0';
    }
    return kind;
}

static struct kind blank(const struct shape *shape)
{
    struct kind kind = plain(shape->vcpus, shape->memory_mib);

    kind.disk_mib = shape->disk_mib;
    return kind;
}

static bool same_kind(const struct kind *a, const struct kind *b)
{
    return a->vcpus == b->vcpus && a->memory_mib == b->memory_mib && a->disk_mib == b->disk_mib &&
           str_eq(a->template_name, b->template_name) && str_eq(a->template_id, b->template_id);
}

/* ---- one machine ---- */

static int dress(struct resident *res, const struct kind *kind, struct err *e)
{
    cleanup_template struct template t = {.disk_fd = FD_NONE};
    int r = template_open(res->node, kind->template_name, &t, e);

    if (r == 0) {
        r = template_fit_disk(res->node, &t, (uint64_t)kind->disk_mib << 20, e);
    }
    if (r == 0 && !str_eq(json_get_string(t.manifest, "id", ""), kind->template_id)) {
        r = err_set(e, -ESTALE, "conflict", "template '%s' has been made anew", t.name);
    }
    return r < 0 ? r : warm_machine_dress(res, &t, kind->disk_mib, e);
}

static struct resident *make_of_kind(struct node *node, const struct kind *kind, struct err *e)
{
    const struct shape shape = {
        .vcpus = kind->vcpus, .memory_mib = kind->memory_mib, .disk_mib = kind->disk_mib};
    struct resident *res;

    if (kind->disk_mib > 0 && !kind->template_name[0]) {
        return warm_machine_blank(node, &shape, e);
    }
    res = warm_machine_new(node, kind->vcpus, kind->memory_mib, e);
    if (res && kind->template_name[0] && dress(res, kind, e) < 0) {
        warm_machine_discard(TAKE_PTR(res));
    }
    return res;
}

static struct resident *make_one(struct node *node, const struct kind *kind)
{
    struct err e = {0};
    struct resident *res = make_of_kind(node, kind, &e);

    if (!res) {
        log_warn(NULL, "no warm machine, trying again later: %s", e.msg);
    }
    return res;
}

/* ---- the stock ---- */

static struct stock *find_stock(struct warm *w, const struct kind *kind)
{
    struct stock *oldest = NULL;

    for (size_t i = 0; i < STOCKS_MAX; i++) {
        struct stock *s = &w->stocks[i];

        if (same_kind(&s->kind, kind)) {
            return s;
        }
        if (s->n_ready == 0 && (!oldest || s->last_claim_ms < oldest->last_claim_ms)) {
            oldest = s;
        }
    }
    if (oldest) { /* else every slot is in use: this kind goes without */
        *oldest = (struct stock){.kind = *kind};
    }
    return oldest;
}

static void count_demand(struct stock *s)
{
    uint64_t now_ms = clock_wall_ms();

    s->burst = now_ms - s->last_claim_ms < BURST_MS ? s->burst + 1 : 1;
    s->last_claim_ms = now_ms;
}

static bool is_wanted(const struct stock *s)
{
    return s->kind.vcpus > 0 && clock_wall_ms() - s->last_claim_ms <= FORGET_AFTER_MS;
}

/* Plain ones are for what nobody foresaw: a few do. */
static unsigned wanted(const struct warm *w, const struct stock *s)
{
    unsigned least = s->kind.disk_mib > 0 ? 2 : 1;

    return is_wanted(s) ? MIN(MIN(MAX(s->burst, least), w->options.machines_max), READY_MAX) : 0;
}

static unsigned count_ready(const struct warm *w, unsigned *ret_memory_mib)
{
    unsigned n = 0;

    *ret_memory_mib = 0;
    for (size_t i = 0; i < STOCKS_MAX; i++) {
        n += w->stocks[i].n_ready;
        *ret_memory_mib += w->stocks[i].n_ready * w->stocks[i].kind.memory_mib;
    }
    return n;
}

static bool has_room(const struct warm *w, unsigned memory_mib)
{
    unsigned used_mib;

    return count_ready(w, &used_mib) < w->options.machines_max &&
           used_mib + memory_mib <= w->options.memory_mib;
}

/* The one that lacks most, of those wanted last. */
static struct stock *next_to_fill(struct warm *w)
{
    struct stock *best = NULL;

    for (size_t i = 0; i < STOCKS_MAX; i++) {
        struct stock *s = &w->stocks[i];

        if (s->n_ready < wanted(w, s) && (!best || s->last_claim_ms > best->last_claim_ms)) {
            best = s;
        }
    }
    return best;
}

static struct resident *take_at(struct stock *s, unsigned i)
{
    struct resident *res = s->ready[i];

    s->ready[i] = s->ready[--s->n_ready];
    return res;
}

/* From the stock that nobody has asked for in longest, when it has waited longer than `than`. NULL: there is none. */
static struct resident *take_oldest(struct warm *w, const struct stock *than)
{
    struct stock *oldest = NULL;

    for (size_t i = 0; i < STOCKS_MAX; i++) {
        struct stock *s = &w->stocks[i];

        if (s->n_ready > 0 && s != than && s->last_claim_ms < than->last_claim_ms &&
            (!oldest || s->last_claim_ms < oldest->last_claim_ms)) {
            oldest = s;
        }
    }
    return oldest ? take_at(oldest, 0) : NULL;
}

/* One that is dead or not wanted any more, or that is in the way of one that is. NULL: none. */
static struct resident *next_to_drop(struct warm *w, const struct stock *fill)
{
    for (size_t i = 0; i < STOCKS_MAX; i++) {
        struct stock *s = &w->stocks[i];

        for (unsigned j = 0; j < s->n_ready; j++) {
            if (!is_wanted(s) || !warm_machine_is_fresh(s->ready[j])) {
                return take_at(s, j);
            }
        }
    }
    return fill && !has_room(w, fill->kind.memory_mib) ? take_oldest(w, fill) : NULL;
}

/* With the lock, which is let go for a machine that has no place. */
static void add_ready(struct warm *w, struct resident *res, const struct kind *kind)
{
    struct stock *s = find_stock(w, kind);

    if (w->stop || !s || s->n_ready >= READY_MAX) {
        pthread_mutex_unlock(&w->lock);
        warm_machine_discard(res);
        pthread_mutex_lock(&w->lock);
        return;
    }
    s->ready[s->n_ready++] = res;
}

static void wait_for_news(struct warm *w, unsigned at_most_ms)
{
    cond_wait_until(&w->news, &w->lock, deadline_in_ms(at_most_ms));
}

/* With the lock: what was claimed has its first work to do, and whoever claimed it waits for that. */
static void rest(struct warm *w)
{
    if (deadline_passed(w->rest_until_ns)) { /* claims without end do not make it wait for ever */
        w->rest_until_ns = deadline_in_ms(REST_MS);
    }
}

static void fill_up(struct warm *w, const struct kind *kind)
{
    struct resident *made;

    pthread_mutex_unlock(&w->lock);
    made = make_one(w->node, kind);
    pthread_mutex_lock(&w->lock);
    if (made) {
        add_ready(w, made, kind);
    } else if (!w->stop) {
        wait_for_news(w, LOOK_EVERY_MS); /* it failed: not at once again */
    }
}

/* With the lock, which is let go meanwhile: gives one up, makes one, or waits. */
static void work(struct warm *w)
{
    struct stock *fill;
    struct resident *drop;

    if (tenure_fenced(w->node->tenure)) {
        wait_for_news(w, LOOK_EVERY_MS);
        return;
    }
    fill = next_to_fill(w);
    drop = next_to_drop(w, fill);
    if (drop) {
        pthread_mutex_unlock(&w->lock);
        warm_machine_discard(drop);
        pthread_mutex_lock(&w->lock);
    } else if (fill && has_room(w, fill->kind.memory_mib)) {
        struct kind kind = fill->kind;

        fill_up(w, &kind);
    } else {
        wait_for_news(w, LOOK_EVERY_MS);
    }
}

static void *warm_main(void *arg)
{
    struct warm *w = arg;

    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (deadline_passed(w->rest_until_ns)) {
            work(w);
        } else {
            wait_for_news(w, REST_MS);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct warm *warm_start(struct node *node, const struct warm_options *options)
{
    struct warm *w = xnew(struct warm);
    const struct shape shape = shape_default();
    const struct kind usual = plain(shape.vcpus, shape.memory_mib);

    w->node = node;
    w->options = *options;
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->news);
    if (options->machines_max > 0) { /* the usual shape, before anybody has asked */
        count_demand(find_stock(w, &usual));
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
    for (size_t i = 0; i < STOCKS_MAX; i++) {
        while (w->stocks[i].n_ready > 0) {
            warm_machine_discard(take_at(&w->stocks[i], 0));
        }
    }
    pthread_cond_destroy(&w->news);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* With the lock. */
static struct resident *take_ready(struct warm *w, const struct kind *kind)
{
    struct stock *s = find_stock(w, kind);

    if (!s) {
        return NULL;
    }
    count_demand(s);
    for (unsigned j = s->n_ready; j-- > 0;) {
        if (warm_machine_is_fresh(s->ready[j])) {
            return take_at(s, j);
        }
    }
    return NULL;
}

int warm_claim(struct warm *w, struct resident *res, const struct template *t, bool *ret_dressed,
               struct err *e)
{
    const struct shape *shape = &res->record.shape;
    const struct kind any = plain(shape->vcpus, shape->memory_mib);
    struct resident *from = NULL;

    *ret_dressed = false;
    if (w->options.machines_max == 0) {
        return -ENOENT;
    }
    pthread_mutex_lock(&w->lock);
    if (t) {
        const struct kind wish = dressed(shape, t);

        from = take_ready(w, &wish);
        *ret_dressed = from != NULL;
    }
    if (!from) {
        from = take_ready(w, &any);
    }
    rest(w);
    pthread_cond_signal(&w->news);
    pthread_mutex_unlock(&w->lock);
    figures_count_claim(!from ? FIGURES_COLD : *ret_dressed ? FIGURES_DRESSED : FIGURES_PLAIN);
    return from ? warm_machine_give(from, res, e) : -ENOENT;
}

static int give_blank(struct resident *from, struct resident *res, int *ret_device_fd,
                      struct err *e)
{
    cleanup_close int device_fd = warm_machine_device(from, e);
    int r;

    if (device_fd < 0) {
        r = device_fd;
        warm_machine_discard(from);
        return r;
    }
    r = warm_machine_give(from, res, e);
    if (r == 0) {
        *ret_device_fd = TAKE_FD(device_fd);
    }
    return r;
}

int warm_claim_blank(struct warm *w, struct resident *res, int *ret_device_fd, struct err *e)
{
    const struct kind wish = blank(&res->record.shape);
    struct resident *from;

    if (w->options.machines_max == 0) {
        return -ENOENT;
    }
    pthread_mutex_lock(&w->lock);
    from = take_ready(w, &wish);
    rest(w);
    pthread_cond_signal(&w->news);
    pthread_mutex_unlock(&w->lock);
    figures_count_claim(from ? FIGURES_BLANK : FIGURES_COLD);
    return from ? give_blank(from, res, ret_device_fd, e) : -ENOENT;
}

json_t *warm_json(struct warm *w)
{
    json_t *out = json_array();

    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < STOCKS_MAX; i++) {
        const struct stock *s = &w->stocks[i];

        if (s->n_ready > 0) {
            json_array_append_new(out, json_pack("{s:s, s:i, s:i, s:i, s:i}", "template",
                                                 s->kind.template_name, "vcpus", s->kind.vcpus,
                                                 "memory_mib", s->kind.memory_mib, "disk_mib",
                                                 s->kind.disk_mib, "ready", s->n_ready));
        }
    }
    pthread_mutex_unlock(&w->lock);
    return out;
}

unsigned warm_ready(struct warm *w)
{
    unsigned memory_mib;
    unsigned n;

    pthread_mutex_lock(&w->lock);
    n = count_ready(w, &memory_mib);
    pthread_mutex_unlock(&w->lock);
    return n;
}
