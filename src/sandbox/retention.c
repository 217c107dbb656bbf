/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/retention.h"

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/history.h"

#include <string.h>

/* Whoever wants to work with the sandbox waits for no more than these. */
#define AT_ONCE 16
/* So long one can think again after a rollback, or look at what a recovery has found. */
#define SECOND_THOUGHTS_MS (24ull * 60 * 60 * 1000)
/* Below this share of the pool snapshots are given up. */
#define POOL_SHORT_PERCENT 10

static bool is_second_thought(const struct snapshot *s, uint64_t now_ms)
{
    return (str_eq(s->made_by, "rollback") || str_eq(s->made_by, "recovery")) &&
           now_ms < s->created_at_ms + SECOND_THOUGHTS_MS;
}

/* What people made or marked stays, and what one would go back to. */
static bool is_fixed(struct resident *res, const struct snapshot *s, uint64_t now_ms)
{
    return s->keep || str_eq(s->made_by, "request") || is_second_thought(s, now_ms) ||
           s == snapshot_newest(res, s->kind);
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

bool retention_thin(struct resident *res, uint64_t now_ms)
{
    cleanup_free struct policy_item *items = NULL;
    cleanup_free struct snapshot **of = NULL;
    unsigned dropped = 0;
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
                                          is_fixed(res, s, now_ms), false};
    }
    policy_thin(&res->record.policy, now_ms, items, n);
    /* What stays decides about the rest, not what goes: a part of it may go now and the others later. */
    for (size_t i = 0; i < n; i++) {
        if (items[i].drop && dropped++ < AT_ONCE) {
            drop(res, of[i], "thinned out by age");
        }
    }
    return dropped > AT_ONCE;
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
    uint64_t now_ms = clock_wall_ms();
    struct snapshot *oldest = NULL;

    for (struct snapshot *s = res->snapshots; s; s = s->next) {
        if (!is_fixed(res, s, now_ms)) {
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
