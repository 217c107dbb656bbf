/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/rollback.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/bring.h"
#include "sandbox/history.h"
#include "sandbox/network.h"
#include "sandbox/past.h"
#include "sandbox/reaper.h"
#include "sandbox/template.h"

#include <string.h>

#define DEADLINE_MS 60000

/* Step 4, and then 5: what was res's becomes next's, which goes. */
static int switch_over(struct resident *res, struct past *past, struct err *e)
{
    struct resident *next = past->next;
    const struct priv_subvol old_subvolume = snapshot_subvolume(res, res->record.disk_n);
    struct record wanted = next->record;
    struct machine *old_machine;
    int old_disk;
    int r;

    pthread_mutex_lock(&res->lock);
    wanted.end_at_ms = res->record.end_at_ms; /* it may have been moved meanwhile */
    wanted.at_end = res->record.at_end;
    wanted.paused_at_ms = res->record.paused_at_ms;
    pthread_mutex_unlock(&res->lock);
    wanted.network = network_policy(res);
    record_enter(&wanted, SANDBOX_STATE_RUNNING);
    wanted.last_n = res->record.last_n;
    wanted.parent_n = past->target->n;
    wanted.reason[0] = '\0';
    r = FAULT("rollback.machine_ready")
            ? -EIO
            : record_write(res->node->records_fd, &wanted, RECORD_SURVIVES_HOST);
    netpolicy_unref(wanted.network);
    if (r < 0) {
        return err_wrap(e, r, "writing the record");
    }
    IGNORE_RESULT(FAULT("rollback.switched")); /* no failure is possible from here on, a crash is */
    resident_guest_shut(res);
    pthread_mutex_lock(&res->lock);
    old_machine = res->machine;
    old_disk = res->disk_fd;
    res->machine = TAKE_PTR(next->machine);
    res->channel = TAKE_PTR(next->channel);
    res->disk_fd = TAKE_FD(next->disk_fd);
    wanted.network = res->record.network; /* whose reference stays where it is */
    res->record = wanted; /* env is the same object in both, with a reference each */
    pthread_mutex_unlock(&res->lock);
    next->machine = old_machine;
    next->record.has_machine = false; /* the network is the other one's */
    next->disk_fd = old_disk;
    reaper_take(res->node->reaper, TAKE_PTR(past->next), &old_subvolume);
    return 0;
}

/* The second half: the machine of the past has been begun. */
static int go_back(struct resident *res, struct past *past, struct err *e)
{
    int r = past_wait(past, e);

    trace_mark(&res->trace, "machine of the past is up");
    if (r == 0 && past->cold && past->target->kind == SNAPSHOT_FULL) {
        history_add(res, "cold_start", "%s: starting fresh from the disk", past->why_cold.msg);
    }
    if (r == 0) {
        r = FAULT("rollback.held") ? err_wrap(e, -EIO, "rolling back") : switch_over(res, past, e);
    }
    trace_mark(&res->trace, "switched over");
    if (r < 0) {
        past_drop(past);
    }
    return r;
}

static int hold_present(struct resident *res, struct snapshot **ret, struct err *e)
{
    struct snapshot_wish wish = {.kind = res->machine ? SNAPSHOT_FULL : SNAPSHOT_DISK,
                                 .made_by = "rollback"};

    if (res->channel) {
        channel_hold(res->channel, true);
    }
    wish.stay_paused = true;
    return snapshot_take(res, &wish, ret, e);
}

static void let_present_go_on(struct resident *res)
{
    struct err e = {0};

    if (!res->machine || resident_state(res) != SANDBOX_STATE_RUNNING) {
        return;
    }
    network_attach(res);
    if (machine_resume(res->machine, deadline_in_ms(DEADLINE_MS), &e) < 0) {
        log_error(&(struct log_ctx){.sandbox = res->record.id}, "after a failed rollback: %s",
                  e.msg);
    }
    if (res->channel) {
        channel_hold(res->channel, false);
    }
}

static int rollback_steps(struct resident *res, const char *snapshot_id,
                          struct rollback_result *ret, struct err *e)
{
    struct snapshot *target = snapshot_find(res, snapshot_id);
    struct rollback_result result = {0};
    struct snapshot *before = NULL;
    struct past past;
    int r;

    if (!target) {
        return err_field(e, -ENOENT, "snapshot_not_found", "snapshot",
                         "the sandbox has no such snapshot");
    }
    past_begin(&past, res, target, ++res->record.last_n);
    r = hold_present(res, &before, e);
    trace_mark(&res->trace, "present kept");
    if (r == 0) {
        r = go_back(res, &past, e);
    } else {
        IGNORE_RESULT(past_wait(&past, NULL)); /* the first error counts */
        past_drop(&past);
    }
    if (r < 0) {
        let_present_go_on(res);
        return err_wrap(e, r, "rolling back");
    }
    result.cold = past.cold;
    history_add(res, "rolled_back", "to snapshot %s%s; the present of before is snapshot %s",
                target->id, result.cold ? ", fresh from its disk" : "", before->id);
    memcpy(result.before_id, before->id, sizeof(result.before_id));
    *ret = result;
    return 0;
}

int rollback_to(struct resident *res, const char *snapshot_id, struct rollback_result *ret,
                struct err *e)
{
    enum sandbox_state state;
    int r;

    pthread_mutex_lock(&res->op);
    state = res->gone ? SANDBOX_STATE_DELETED : resident_state(res);
    if (state == SANDBOX_STATE_RUNNING || state == SANDBOX_STATE_PAUSED ||
        state == SANDBOX_STATE_STOPPED || state == SANDBOX_STATE_FAILED) {
        trace_begin(&res->trace, "rollback");
        r = rollback_steps(res, snapshot_id, ret, e);
        trace_end(&res->trace, r);
    } else {
        r = err_set(e, -ESTALE, "conflict", "a sandbox that is %s cannot be rolled back",
                    sandbox_state_name(state));
    }
    pthread_mutex_unlock(&res->op);
    return r;
}

/* The disk as it was found: its journal is replayed with barriers. */
static int bring_old_disk(struct resident *res, uint64_t deadline_ns, struct err *e)
{
    cleanup_template struct template t = {.disk_fd = FD_NONE};

    template_open_or_default(res->node, res->record.template_name, &t);
    return bring_from_base(res, &(struct bring_disk){t.default_user, t.fstype, false}, deadline_ns,
                           e);
}

/* The disk as it is found is kept as a snapshot: it may be younger than the memory that is gone back to. */
static int recover_memory(struct resident *res, struct snapshot *target, struct err *e)
{
    uint64_t age_s = (clock_wall_ms() - target->created_at_ms) / 1000;
    struct snapshot *found = NULL;
    struct past past;
    int r = snapshot_take(
        res, &(struct snapshot_wish){.kind = SNAPSHOT_DISK, .made_by = "recovery"}, &found, e);

    if (r == 0) {
        past_begin(&past, res, target, ++res->record.last_n);
        r = go_back(res, &past, e);
    }
    if (r == 0) {
        history_add(res, "recovered",
                    "from full snapshot %s: what its processes did in the last %llu s is lost; the "
                    "disk as it was found is snapshot %s",
                    target->id, (unsigned long long)age_s, found->id);
    }
    return r;
}

int rollback_enter(struct resident *res, struct snapshot *target, struct err *e)
{
    struct past past;

    past_begin(&past, res, target, ++res->record.last_n);
    return go_back(res, &past, e);
}

int rollback_recover_disk(struct resident *res, struct err *e)
{
    uint64_t ran_s = (clock_wall_ms() - res->record.started_at_ms) / 1000;
    int r = bring_down(res, e); /* what may be left of the machine that ended */

    if (r == 0) {
        r = bring_open_disk(res, e);
    }
    if (r == 0) {
        r = bring_old_disk(res, deadline_in_ms(DEADLINE_MS), e);
    }
    if (r < 0) {
        bring_down(res, /* e */ NULL);
        return r;
    }
    history_add(res, "recovered",
                "from its disk: what its processes had in memory is lost, %llu s after it was "
                "started",
                (unsigned long long)ran_s);
    return resident_set_state(res, SANDBOX_STATE_RUNNING, NULL, RECORD_SURVIVES_PROCESS, e);
}

int rollback_recover(struct resident *res, struct err *e)
{
    struct snapshot *target = snapshot_newest(res, SNAPSHOT_FULL);
    int r;

    if (!target || snapshot_fits_node(res->node, target, NULL) < 0) {
        return rollback_recover_disk(res, e);
    }
    r = bring_down(res, e);
    return r < 0 ? r : recover_memory(res, target, e);
}
