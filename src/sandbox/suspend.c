/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/suspend.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "sandbox/backup.h"
#include "sandbox/checkpoint.h"
#include "sandbox/lifecycle.h"
#include "sandbox/parts.h"
#include "sandbox/pause.h"
#include "volume/client.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ASK_DEADLINE_MS 30000

/* ---- the steps ---- */

static int check_snapshots(const struct resident *res, const struct suspend_wish *wish,
                           struct err *e)
{
    for (const struct snapshot *s = res->snapshots; s && !wish->drop_snapshots; s = s->next) {
        if (s->keep || s->name[0]) {
            return err_set(e, -ESTALE, "snapshots_kept",
                           "snapshot %s is to be kept, and suspending leaves no snapshot: delete "
                           "it, or suspend with drop_snapshots",
                           s->id);
        }
    }
    return 0;
}

/* A paused sandbox whose host went down has no machine, but the snapshot that its pause made. */
static int take_snapshot(struct resident *res, struct snapshot **ret, bool *ret_made, struct err *e)
{
    const struct snapshot_wish wish = {
        .kind = SNAPSHOT_FULL, .made_by = "suspend", .stay_paused = true};

    *ret_made = res->machine != NULL;
    if (res->machine) {
        return snapshot_take(res, &wish, ret, e);
    }
    *ret = snapshot_newest(res, SNAPSHOT_FULL);
    return *ret ? 0
                : err_set(e, -ESTALE, "conflict",
                          "the sandbox has neither a machine nor a full snapshot");
}

/* Back to where it was; the first error counts. */
static void take_back(struct resident *res, enum sandbox_state from, struct snapshot *made)
{
    const struct log_ctx ctx = {.sandbox = res->record.id};
    struct err e = {0};

    if (made && snapshot_delete(res, made, &e) < 0) {
        log_warn(&ctx, "the snapshot of a suspend that failed stays: %s", e.msg);
    }
    IGNORE_RESULT(
        resident_set_state(res, SANDBOX_STATE_PAUSED, NULL, RECORD_SURVIVES_PROCESS, NULL));
    if (from == SANDBOX_STATE_RUNNING && resume_held(res, &e) < 0) {
        log_error(&ctx, "after a suspend that failed it stays paused: %s", e.msg);
    }
}

static int store(struct resident *res, const struct snapshot *snap, json_t **ret, struct err *e)
{
    CLEANUP(parts_done) struct parts p;
    int r;

    parts_init(&p);
    r = parts_open(res, snap, &p, e);
    return r < 0 ? r : parts_store(res, &p, resident_unwanted, res, ret, e);
}

static int up_to_stored(struct resident *res, struct snapshot **ret_made, json_t **ret,
                        struct err *e)
{
    struct snapshot *snap = NULL;
    bool made = false;
    int r;

    if (res->channel) {
        channel_hold(res->channel, true);
    }
    r = FAULT("suspend.begun") ? err_wrap(e, -EIO, "suspending")
                               : take_snapshot(res, &snap, &made, e);
    if (r < 0) {
        return r;
    }
    ASSERT(snap);
    *ret_made = made ? snap : NULL;
    trace_mark(&res->trace, "full snapshot taken");
    r = FAULT("suspend.saved") ? err_wrap(e, -EIO, "suspending") : store(res, snap, ret, e);
    trace_mark(&res->trace, "stored");
    if (r == 0 && FAULT("suspend.stored")) {
        json_decref(*ret);
        *ret = NULL;
        r = err_wrap(e, -EIO, "suspending");
    }
    return r;
}

static int suspend_steps(struct resident *res, json_t **ret, struct err *e)
{
    enum sandbox_state from = resident_state(res);
    const struct log_ctx ctx = {.sandbox = res->record.id};
    struct snapshot *made = NULL;
    struct err later = {0};
    int r;

    backup_end(res);
    res->record.durable_at_ms = clock_wall_ms(); /* whatever comes of it: deleting asks the store */
    r = resident_set_state(res, SANDBOX_STATE_SUSPENDING, NULL, RECORD_SURVIVES_PROCESS, e);
    if (r < 0) {
        return r;
    }
    r = up_to_stored(res, &made, ret, e);
    if (r < 0) {
        take_back(res, from, made);
        return r;
    }
    r = resident_set_state(res, SANDBOX_STATE_SUSPENDED, NULL, RECORD_SURVIVES_HOST, &later);
    if (r <
        0) { /* the pool is full: what follows makes room, and a crash meanwhile only repeats it */
        log_warn(&ctx, "cannot note that it is suspended, going on: %s", later.msg);
    }
    IGNORE_RESULT(FAULT("suspend.noted")); /* only a crash can come between */
    if (lifecycle_remove_all(res, &later) < 0) {
        log_error(&ctx, "a suspended sandbox leaves something until the next start: %s", later.msg);
    }
    trace_mark(&res->trace, "removed here");
    return 0;
}

int suspend_sandbox(struct resident *res, const struct suspend_wish *wish, json_t **ret,
                    struct err *e)
{
    enum sandbox_state state;
    int r;

    pthread_mutex_lock(&res->op);
    state = res->gone ? SANDBOX_STATE_DELETED : resident_state(res);
    if (state == SANDBOX_STATE_RUNNING || state == SANDBOX_STATE_PAUSED) {
        r = check_snapshots(res, wish, e);
        if (r == 0) {
            trace_begin(&res->trace, "suspend");
            r = suspend_steps(res, ret, e);
            trace_end(&res->trace, r);
        }
    } else {
        r = err_set(e, -ESTALE, "conflict", "a sandbox that is %s cannot be suspended",
                    sandbox_state_name(state));
    }
    pthread_mutex_unlock(&res->op);
    return r;
}

/* ---- what else the store is asked ---- */

static int ask(const struct node *node, const char *op, const char *organisation, const char *id,
               json_t **ret, struct err *e)
{
    const struct volume_call call = {.op = op,
                                     .organisation = organisation,
                                     .sandbox = id,
                                     .deadline_ns = deadline_in_ms(ASK_DEADLINE_MS)};

    return volume_call(node->volume_socket, &call, ret, e);
}

int suspend_age(const struct node *node, const char *organisation, const char *id, json_t **ret,
                struct err *e)
{
    return ask(node, "age", organisation, id, ret, e);
}

int suspend_forget(const struct node *node, const char *organisation, const char *id, struct err *e)
{
    if (access(node->volume_socket, F_OK) < 0 && errno == ENOENT) {
        return 0;
    }
    return ask(node, "forget", organisation, id, NULL, e);
}
