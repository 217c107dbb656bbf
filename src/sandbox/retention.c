/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/retention.h"

#include "base/log.h"
#include "sandbox/history.h"

#include <string.h>

/* Below this share of the pool snapshots are given up. */
#define POOL_SHORT_PERCENT 10

/* Retention: what people made or marked stays, and what one would go back to. */
static bool is_fixed(struct resident *res, const struct snapshot *s)
{
    return s->keep || str_eq(s->made_by, "request") || s == snapshot_newest(res, s->kind);
}

static void drop(struct resident *res, struct snapshot *s, const char *why)
{
    struct err e = {0};
    char id[ID_SIZE];

    memcpy(id, s->id, sizeof(id));
    if (snapshot_delete(res, s, &e) < 0) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id},
                 "cannot delete snapshot %s, ignoring: %s", id, e.msg);
    } else {
        history_add(res, "snapshot_deleted", "%s: %s", id, why);
    }
}

void retention_thin(struct resident *res, uint64_t now_ms)
{
    cleanup_free struct policy_item *items = NULL;
    cleanup_free struct snapshot **of = NULL;
    size_t n = 0;

    for (struct snapshot *s = res->snapshots; s; s = s->next) {
        n++;
    }
    items = xnew_n(struct policy_item, n);
    of = xnew_n(struct snapshot *, n);
    n = 0;
    for (struct snapshot *s = res->snapshots; s; s = s->next) {
        of[n] = s;
        items[n++] = (struct policy_item){s->created_at_ms, s->kind == SNAPSHOT_FULL,
                                          is_fixed(res, s), false};
    }
    policy_thin(&res->record.policy, now_ms, items, n);
    for (size_t i = 0; i < n; i++) {
        if (items[i].drop) {
            drop(res, of[i], "thinned out by age");
        }
    }
}

bool retention_pool_is_short(const struct node *node)
{
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;

    return node_pool_space(node, &free_bytes, &total_bytes) == 0 &&
           (free_bytes < NODE_POOL_RESERVE_BYTES ||
            free_bytes < total_bytes / 100 * POOL_SHORT_PERCENT);
}

static struct snapshot *oldest_spare(struct resident *res)
{
    struct snapshot *oldest = NULL;

    for (struct snapshot *s = res->snapshots; s; s = s->next) {
        if (!is_fixed(res, s)) {
            oldest = s; /* the list is newest first */
        }
    }
    return oldest;
}

/* The sandbox with the oldest one, referenced. */
static struct resident *with_oldest_spare(struct node *node)
{
    struct resident *chosen = NULL;
    uint64_t chosen_ms = UINT64_MAX;

    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        const struct snapshot *s;

        if (pthread_mutex_trylock(&res->op) != 0) {
            continue;
        }
        s = oldest_spare(res);
        if (s && s->created_at_ms < chosen_ms) {
            chosen_ms = s->created_at_ms;
            resident_unref(chosen);
            chosen = resident_find(node, res->record.id);
        }
        pthread_mutex_unlock(&res->op);
    }
    return chosen;
}

bool retention_make_room(struct node *node)
{
    CLEANUP(resident_unrefp) struct resident *chosen = with_oldest_spare(node);
    struct snapshot *s;

    if (!chosen) {
        return false;
    }
    pthread_mutex_lock(&chosen->op);
    s = oldest_spare(chosen);
    if (s) {
        drop(chosen, s, "the pool runs short of space");
    }
    pthread_mutex_unlock(&chosen->op);
    return s != NULL;
}
