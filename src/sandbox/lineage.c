/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/lineage.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>

bool lineage_is_past(const struct resident *res, const struct snapshot *snap)
{
    uint32_t n = res->record.parent_n;

    /* Newest first, and a parent is always older than its child: one walk. */
    for (const struct snapshot *s = res->snapshots; s && s->n >= snap->n; s = s->next) {
        if (s->n != n) {
            continue;
        }
        if (s == snap) {
            return true;
        }
        n = s->parent_n;
    }
    return false;
}

/* Forks that began after it begin after its parent. */
static void move_forks(struct resident *parent, const struct snapshot *snap)
{
    for (struct resident *res = resident_next_take(parent->node, NULL); res;
         res = resident_next_take(parent->node, res)) {
        struct err e = {0};
        bool moved = false;

        pthread_mutex_lock(&res->lock);
        if (res->record.origin_n == snap->n && str_eq(res->record.origin, parent->record.id)) {
            res->record.origin_n = snap->parent_n;
            moved = true;
        }
        pthread_mutex_unlock(&res->lock);
        if (moved && resident_save(res, RECORD_SURVIVES_PROCESS, &e) < 0) {
            log_warn(&(struct log_ctx){.sandbox = res->record.id},
                     "cannot note where it began, ignoring: %s", e.msg);
        }
    }
}

/* The child comes after its grandparent; back again when that cannot be written down. */
static int lift(struct resident *res, struct snapshot *child, const struct snapshot *snap,
                struct err *e)
{
    int r;

    child->parent_n = snap->parent_n;
    r = snapshot_save(res, child, e);
    if (r < 0 && r != -ENOSPC) {
        child->parent_n = snap->n;
        return r;
    }
    return 0;
}

int lineage_take_out(struct resident *res, const struct snapshot *snap, struct err *e)
{
    int r = 0;

    for (struct snapshot *s = res->snapshots; s && s->n > snap->n && r == 0; s = s->next) {
        r = s->parent_n == snap->n ? lift(res, s, snap, e) : 0;
    }
    if (r == 0 && res->record.parent_n == snap->n) {
        res->record.parent_n = snap->parent_n;
        /* One that is being deleted loses all of them: nobody will walk there. */
        r = resident_state(res) == SANDBOX_STATE_DELETING
                ? 0
                : resident_save(res, RECORD_SURVIVES_PROCESS, e);
        r = r == -ENOSPC ? 0 : r;
        res->record.parent_n = r < 0 ? snap->n : snap->parent_n;
    }
    if (r == 0) {
        move_forks(res, snap);
    }
    return r;
}

bool lineage_origin(struct resident *res, char ret_sandbox[static ID_SIZE],
                    char ret_snapshot[static ID_SIZE])
{
    CLEANUP(resident_unrefp) struct resident *parent = NULL;
    char origin[ID_SIZE];
    bool found = false;
    uint32_t n;

    pthread_mutex_lock(&res->lock);
    memcpy(origin, res->record.origin, sizeof(origin));
    n = res->record.origin_n;
    pthread_mutex_unlock(&res->lock);
    parent = origin[0] && n ? resident_find(res->node, origin) : NULL;
    if (!parent) {
        return false;
    }
    pthread_mutex_lock(&parent->op);
    for (const struct snapshot *s = parent->snapshots; s && !found; s = s->next) {
        if (s->n == n) {
            memcpy(ret_sandbox, origin, ID_SIZE);
            memcpy(ret_snapshot, s->id, ID_SIZE);
            found = true;
        }
    }
    pthread_mutex_unlock(&parent->op);
    return found;
}
