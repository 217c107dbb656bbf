/* SPDX-License-Identifier: Apache-2.0 */
#include "control/schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCORE_MEMORY_FITS 4000
#define SCORE_SIBLING 1000
#define SCORE_TEMPLATE 400
#define SCORE_DRESSED 200
#define SCORE_WARM 100
#define SCORE_WAS_HERE 150
#define SIBLINGS_COUNTED 1000 /* of so many: beyond it one is as bad as another */

const char *schedule_why_name(enum schedule_why why)
{
    static const char *const names[SCHEDULE_WHY_COUNT_] = {
        [SCHEDULE_FITS] = "fits",
        [SCHEDULE_AVOIDED] = "avoided",
        [SCHEDULE_DEAD] = "not_alive",
        [SCHEDULE_NOT_TAKING] = "not_taking",
        [SCHEDULE_UNKNOWN] = "unknown",
        [SCHEDULE_NO_TEMPLATE] = "no_template",
        [SCHEDULE_NO_MEMORY_FIT] = "memory_does_not_fit",
        [SCHEDULE_TOO_MANY] = "too_many_sandboxes",
        [SCHEDULE_NO_CPU] = "no_cpu",
        [SCHEDULE_NO_MEMORY] = "no_memory",
        [SCHEDULE_NO_POOL] = "no_pool",
        [SCHEDULE_SIBLING] = "sibling",
    };

    ASSERT((size_t)why < ARRAY_SIZE(names));
    return names[why];
}

static bool has_template(const struct schedule_node *node, const char *name)
{
    for (size_t i = 0; i < node->n_templates; i++) {
        if (str_eq(node->templates[i], name)) {
            return true;
        }
    }
    return false;
}

static bool same_or_unknown(const char *wanted, const char *there)
{
    return str_empty(wanted) || str_eq(wanted, there);
}

static bool memory_fits(const struct schedule_wish *wish, const struct schedule_node *node)
{
    return same_or_unknown(wish->accel, node->accel) && same_or_unknown(wish->vmm, node->vmm) &&
           same_or_unknown(wish->cpu, node->cpu);
}

__attribute__((format(printf, 3, 4))) static bool
refuse(struct schedule_verdict *v, enum schedule_why why, const char *fmt, ...)
{
    va_list ap;

    v->why = why;
    va_start(ap, fmt);
    vsnprintf(v->text, sizeof(v->text), fmt, ap);
    va_end(ap);
    return false;
}

/* May it be asked at all? */
static bool takes(const struct schedule_wish *wish, const struct schedule_node *node,
                  struct schedule_verdict *v)
{
    if (!str_empty(wish->avoid) && str_eq(wish->avoid, node->name)) {
        return refuse(v, SCHEDULE_AVOIDED, "it is to be on another one");
    }
    if (!node->alive) {
        return refuse(v, SCHEDULE_DEAD, "its lease is over");
    }
    if (node->wanted != SCHEDULE_ACTIVE) {
        return refuse(v, SCHEDULE_NOT_TAKING, "%s: it takes no sandboxes",
                      node->wanted == SCHEDULE_DRAINING ? "draining" : "cordoned");
    }
    if (!node->known) {
        return refuse(v, SCHEDULE_UNKNOWN, "it has not said yet what it has");
    }
    return true;
}

/* What needs no counting. */
static bool suits(const struct schedule_wish *wish, const struct schedule_node *node,
                  struct schedule_verdict *v)
{
    if (!wish->stored && !has_template(node, wish->template_name)) {
        return refuse(v, SCHEDULE_NO_TEMPLATE, "template '%.64s' is not there",
                      wish->template_name);
    }
    if (wish->stored && wish->need_memory && !memory_fits(wish, node)) {
        return refuse(v, SCHEDULE_NO_MEMORY_FIT,
                      "its VMM is %.32s on %.16s, the stored memory's %.32s on %.16s%s", node->vmm,
                      node->accel, wish->vmm, wish->accel,
                      same_or_unknown(wish->cpu, node->cpu) ? "" : ", another CPU");
    }
    if (wish->apart == SCHEDULE_APART_REQUIRED && node->siblings > 0) {
        return refuse(v, SCHEDULE_SIBLING, "%u sibling%s there", node->siblings,
                      node->siblings == 1 ? " is" : "s are");
    }
    return true;
}

static bool has_room(const struct schedule_wish *wish, const struct schedule_node *node,
                     struct schedule_verdict *v)
{
    const struct shape *shape = &wish->shape;
    uint64_t vcpus_max = (uint64_t)node->cpus * SCHEDULE_VCPUS_PER_CPU;
    uint64_t memory_mib = (uint64_t)shape->memory_mib + SCHEDULE_RESERVE_MIB;
    uint64_t pool_mib = (uint64_t)shape->disk_mib + SCHEDULE_RESERVE_MIB;

    if (node->sandboxes >= node->sandboxes_max) {
        return refuse(v, SCHEDULE_TOO_MANY, "it has %u sandboxes, its limit", node->sandboxes);
    }
    if ((uint64_t)node->vcpus_used + shape->vcpus > vcpus_max) {
        return refuse(v, SCHEDULE_NO_CPU, "%u of %llu vCPUs are given, %u are wanted",
                      node->vcpus_used, (unsigned long long)vcpus_max, shape->vcpus);
    }
    if (node->memory_free_mib < memory_mib) {
        return refuse(v, SCHEDULE_NO_MEMORY, "%llu MiB of memory are free, %llu are needed",
                      (unsigned long long)node->memory_free_mib, (unsigned long long)memory_mib);
    }
    if (node->pool_free_mib < pool_mib) {
        return refuse(v, SCHEDULE_NO_POOL, "%llu MiB of the pool are free, %llu are needed",
                      (unsigned long long)node->pool_free_mib, (unsigned long long)pool_mib);
    }
    return true;
}

/* Only what has the shape serves; dressed with the template it serves at once. */
static int warm_score(const struct schedule_wish *wish, const struct schedule_node *node)
{
    int best = 0;

    for (size_t i = 0; i < node->n_warm; i++) {
        const struct schedule_warm *w = &node->warm[i];

        if (w->n > 0 && w->vcpus == wish->shape.vcpus && w->memory_mib == wish->shape.memory_mib &&
            (!w->template_name[0] || str_eq(w->template_name, wish->template_name))) {
            best = MAX(best, w->template_name[0] ? SCORE_DRESSED : SCORE_WARM);
        }
    }
    return best;
}

static int free_percent(const struct schedule_node *node)
{
    uint64_t all = MAX(node->memory_mib, (uint64_t)1);

    return (int)(MIN(node->memory_free_mib, all) * 100 / all);
}

static void score(const struct schedule_wish *wish, const struct schedule_node *node,
                  struct schedule_verdict *v)
{
    bool template_there = has_template(node, wish->template_name);
    bool was_here = !str_empty(wish->was_on) && str_eq(wish->was_on, node->name);
    int warm = wish->stored ? 0 : warm_score(wish, node);
    int free = free_percent(node);

    v->why = SCHEDULE_FITS;
    v->cold = wish->stored && !memory_fits(wish, node);
    v->score = free + warm + (template_there ? SCORE_TEMPLATE : 0) +
               (was_here ? SCORE_WAS_HERE : 0) + (wish->stored && !v->cold ? SCORE_MEMORY_FITS : 0);
    if (wish->apart == SCHEDULE_APART_PREFERRED) {
        v->score -= (int)MIN(node->siblings, (unsigned)SIBLINGS_COUNTED) * SCORE_SIBLING;
    }
    snprintf(v->text, sizeof(v->text), "%d%% of its memory free%s%s%s%s%s", free,
             template_there ? ", template there" : ", the template has to be fetched",
             warm == SCORE_DRESSED ? ", a machine with it waits"
             : warm                ? ", a machine waits"
                                   : "",
             was_here ? ", it was there before" : "",
             v->cold ? ", starts afresh from the disk" : "",
             wish->apart != SCHEDULE_APART_NO && node->siblings > 0 ? ", siblings there" : "");
}

struct ranked {
    struct schedule_verdict verdict;
    const char *name; /* borrowed: the input's */
};

static int compare(const void *a, const void *b)
{
    const struct ranked *x = a;
    const struct ranked *y = b;
    bool x_fits = x->verdict.why == SCHEDULE_FITS;
    bool y_fits = y->verdict.why == SCHEDULE_FITS;

    if (x_fits != y_fits) {
        return x_fits ? -1 : 1;
    }
    if (x->verdict.score != y->verdict.score) {
        return x->verdict.score > y->verdict.score ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

size_t schedule(const struct schedule_wish *wish, const struct schedule_node *nodes, size_t n,
                struct schedule_verdict *ret)
{
    cleanup_free struct ranked *all = xnew_n(struct ranked, MAX(n, (size_t)1));
    size_t fit = 0;

    ASSERT(wish && ret && n <= SCHEDULE_NODES_MAX);
    for (size_t i = 0; i < n; i++) {
        struct schedule_verdict *v = &all[i].verdict;

        v->node = i;
        all[i].name = nodes[i].name;
        if (takes(wish, &nodes[i], v) && suits(wish, &nodes[i], v) &&
            has_room(wish, &nodes[i], v)) {
            score(wish, &nodes[i], v);
            fit++;
        }
    }
    qsort(all, n, sizeof(*all), compare);
    for (size_t i = 0; i < n; i++) {
        ret[i] = all[i].verdict;
    }
    return fit;
}
