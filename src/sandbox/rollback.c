/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/rollback.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/bring.h"
#include "sandbox/fresh.h"
#include "sandbox/history.h"

#include <string.h>
#include <unistd.h>

#define DEADLINE_MS 60000

/* The sandbox as it will be, beside the one that is: same record but for disk and machine; nobody else sees it. */
static struct resident *begin_next(struct resident *res, uint32_t disk_n)
{
    struct resident *next = resident_new_unlisted(res->node, &res->record);

    next->record.disk_n = disk_n;
    next->record.has_machine = false;
    return next;
}

static void drop_next(struct resident *next)
{
    bring_down(next, /* e */ NULL);
    resident_unref(next);
}

static int clone_disk(struct resident *res, uint32_t from_n, uint32_t to_n, struct err *e)
{
    const struct priv_subvol_snapshot request = {.from = snapshot_subvolume(res, from_n),
                                                 .to = snapshot_subvolume(res, to_n)};

    return priv_subvol_snapshot(res->node->host.priv, &request, e);
}

static int make_next_disk(struct resident *next, void *arg, struct err *e)
{
    const struct snapshot *target = arg;
    int r = clone_disk(next, target->n, next->record.disk_n, e);

    r = r == 0 && FAULT("rollback.disk_cloned") ? -EIO : r;
    return r < 0 ? err_wrap(e, r, "making a disk from the snapshot") : bring_open_disk(next, e);
}

/* Afterwards all that the guest has written while it was set up, without barriers, is on the disk. */
static int bring_fresh(struct resident *next, struct snapshot *target, uint64_t deadline_ns,
                       struct err *e)
{
    cleanup_template struct template t = {.disk_fd = FD_NONE};
    struct fresh_source source = {.make_disk = make_next_disk, .arg = target};
    int r = fresh_open_image(next->node, next->record.id, target->n, &source.image_fd, e);

    if (r < 0) {
        return r;
    }
    template_open_or_default(next->node, next->record.template_name, &t);
    source.disk = (struct bring_disk){t.default_user, t.fstype, true};
    r = fresh_machine(next, &source, deadline_ns, e);
    fd_close(source.image_fd);
    return r == 0 && fdatasync(next->disk_fd) < 0 ? err_wrap(e, -errno, "storing the disk") : r;
}

static int bring_past(struct resident *next, struct snapshot *target, uint64_t deadline_ns,
                      struct err *e)
{
    int r = make_next_disk(next, target, e);

    trace_mark(&next->trace, "disk cloned");
    return r < 0 ? r
                 : bring_from_checkpoint(next, next->record.id, target->n,
                                         &(struct bring_identity){false}, deadline_ns, e);
}

static int bring_next(struct resident *next, struct snapshot *target, bool *ret_cold, struct err *e)
{
    uint64_t deadline_ns = deadline_in_ms(DEADLINE_MS);
    struct err why = {0};

    *ret_cold = true;
    if (target->kind == SNAPSHOT_FULL) {
        if (snapshot_fits_node(next->node, target, &why) == 0) {
            *ret_cold = false;
            return bring_past(next, target, deadline_ns, e);
        }
        history_add(next, "cold_start", "%s: starting fresh from the disk", why.msg);
    }
    return bring_fresh(next, target, deadline_ns, e);
}

static void remove_disk(struct resident *res, uint32_t n)
{
    const struct priv_subvol what = snapshot_subvolume(res, n);
    struct err e = {0};

    if (priv_subvol_delete(res->node->host.priv, &what, &e) < 0) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id},
                 "disk %u stays until the next start: %s", n, e.msg);
    }
}

/* Step 4, and then 5: what was res's becomes next's, which is taken down. */
static int switch_over(struct resident *res, struct resident *next, uint32_t parent_n,
                       struct err *e)
{
    struct record wanted = next->record;
    uint32_t old_n = res->record.disk_n;
    struct machine *old_machine;
    int old_disk;
    int r;

    pthread_mutex_lock(&res->lock);
    wanted.end_at_ms = res->record.end_at_ms; /* it may have been moved meanwhile */
    wanted.at_end = res->record.at_end;
    wanted.paused_at_ms = res->record.paused_at_ms;
    pthread_mutex_unlock(&res->lock);
    record_enter(&wanted, SANDBOX_STATE_RUNNING);
    wanted.last_n = res->record.last_n;
    wanted.parent_n = parent_n;
    wanted.reason[0] = '\0';
    r = FAULT("rollback.machine_ready")
            ? -EIO
            : record_write(res->node->records_fd, &wanted, RECORD_SURVIVES_HOST);
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
    res->record = wanted; /* env is the same object in both, with a reference each */
    pthread_mutex_unlock(&res->lock);
    next->machine = old_machine;
    next->disk_fd = old_disk;
    drop_next(next);
    remove_disk(res, old_n);
    return 0;
}

static int go_back(struct resident *res, struct snapshot *target, bool *ret_cold, struct err *e)
{
    uint32_t disk_n = ++res->record.last_n;
    struct resident *next;
    int r;

    next = begin_next(res, disk_n);
    trace_hand_over(&res->trace, &next->trace);
    r = FAULT("rollback.held") ? err_wrap(e, -EIO, "rolling back")
                               : bring_next(next, target, ret_cold, e);
    trace_hand_over(&next->trace, &res->trace);
    trace_mark(&res->trace, "machine of the past is up");
    if (r == 0) {
        r = switch_over(res, next, target->n, e);
    }
    trace_mark(&res->trace, "switched over");
    if (r < 0) {
        drop_next(next);
        remove_disk(res, disk_n);
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
    int r;

    if (!target) {
        return err_field(e, -ENOENT, "snapshot_not_found", "snapshot",
                         "the sandbox has no such snapshot");
    }
    r = hold_present(res, &before, e);
    trace_mark(&res->trace, "present kept");
    if (r == 0) {
        r = go_back(res, target, &result.cold, e);
    }
    if (r < 0) {
        let_present_go_on(res);
        return err_wrap(e, r, "rolling back");
    }
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
    bool cold = true;
    int r = snapshot_take(
        res, &(struct snapshot_wish){.kind = SNAPSHOT_DISK, .made_by = "recovery"}, &found, e);

    if (r == 0) {
        r = go_back(res, target, &cold, e);
    }
    if (r == 0) {
        history_add(res, "recovered",
                    "from full snapshot %s: what its processes did in the last %llu s is lost; the "
                    "disk as it was found is snapshot %s",
                    target->id, (unsigned long long)age_s, found->id);
    }
    return r;
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
