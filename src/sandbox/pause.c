/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/pause.h"

#include "base/clock.h"
#include "base/fault.h"
#include "sandbox/bring.h"
#include "sandbox/history.h"
#include "sandbox/rollback.h"

#define DEADLINE_MS 30000

static void hold(struct resident *res, bool held)
{
    if (res->channel) {
        channel_hold(res->channel, held);
    }
}

static int stand_still(struct resident *res, const struct pause_wish *wish, struct err *e)
{
    struct snapshot *snap = NULL;
    int r;

    hold(res, true);
    if (wish->durable) {
        r = snapshot_take(res, &(struct snapshot_wish){.kind = SNAPSHOT_FULL, .made_by = "pause"},
                          &snap, e);
    } else {
        r = machine_pause(res->machine, deadline_in_ms(DEADLINE_MS), e);
    }
    if (r < 0) {
        hold(res, false);
    }
    return r;
}

/* Who comes from now on waits and wakes it; who has come before must not be paused with it. */
static int let_wake(struct resident *res, const struct pause_wish *wish, struct err *e)
{
    unsigned visits;

    pthread_mutex_lock(&res->lock);
    visits = wish->unless_visited ? res->visits : 0;
    if (visits == 0) {
        res->record.wake_on_request = wish->wake_on_request;
    }
    pthread_mutex_unlock(&res->lock);
    return visits == 0
               ? 0
               : err_set(e, -EBUSY, "busy", "%u requests to its inside are at work", visits);
}

/* Once it runs: before, who comes would find it neither running nor to be woken. */
static void let_not_wake(struct resident *res)
{
    pthread_mutex_lock(&res->lock);
    res->record.wake_on_request = false;
    pthread_mutex_unlock(&res->lock);
}

static int pause_steps(struct resident *res, const struct pause_wish *wish, struct err *e)
{
    int r = let_wake(res, wish, e);

    if (r < 0) {
        return r;
    }
    r = resident_set_state(res, SANDBOX_STATE_PAUSING, NULL, RECORD_SURVIVES_PROCESS, e);
    if (r < 0) {
        return r;
    }
    r = FAULT("pause.begun") ? err_wrap(e, -EIO, "pausing") : stand_still(res, wish, e);
    if (r < 0) {
        IGNORE_RESULT(resident_set_state(res, SANDBOX_STATE_RUNNING, NULL, RECORD_SURVIVES_PROCESS,
                                         NULL)); /* the first error counts */
        let_not_wake(res);
        return r;
    }
    IGNORE_RESULT(FAULT("pause.still")); /* only a crash can come between */
    history_add(res, "paused", "%s",
                wish->wake_on_request ? "idle; the next request wakes it" : "by request");
    return resident_set_state(res, SANDBOX_STATE_PAUSED, NULL, RECORD_SURVIVES_PROCESS, e);
}

int pause_sandbox(struct resident *res, const struct pause_wish *wish, struct err *e)
{
    int r;

    pthread_mutex_lock(&res->op);
    switch (res->gone ? SANDBOX_STATE_DELETED : resident_state(res)) {
    case SANDBOX_STATE_PAUSED:
        r = 0;
        break;
    case SANDBOX_STATE_RUNNING:
        trace_begin(&res->trace, "pause");
        r = pause_steps(res, wish, e);
        trace_end(&res->trace, r);
        break;
    default:
        r = err_set(e, -ESTALE, "conflict", "a sandbox that is %s cannot be paused",
                    sandbox_state_name(resident_state(res)));
        break;
    }
    pthread_mutex_unlock(&res->op);
    return r;
}

static int go_on(struct resident *res, struct err *e)
{
    uint64_t deadline_ns = deadline_in_ms(DEADLINE_MS);
    int r = machine_resume(res->machine, deadline_ns, e);

    trace_mark(&res->trace, "goes on");
    hold(res, false);
    r = r == 0 && FAULT("resume.runs") ? err_wrap(e, -EIO, "resuming") : r;
    return r < 0 ? r : bring_identity(res, &(struct bring_identity){false}, deadline_ns, e);
}

static int bring_back(struct resident *res, struct err *e)
{
    int r = rollback_recover(res, e);

    if (r < 0) {
        IGNORE_RESULT(resident_set_state(res, SANDBOX_STATE_FAILED,
                                         e ? e->msg : "the resume failed", RECORD_SURVIVES_PROCESS,
                                         NULL)); /* the first error counts */
    }
    return r;
}

int resume_held(struct resident *res, struct err *e)
{
    int r;

    r = resident_set_state(res, SANDBOX_STATE_RESUMING, NULL, RECORD_SURVIVES_PROCESS, e);
    if (r < 0) {
        return r;
    }
    if (!res->machine) { /* the host went down meanwhile */
        r = bring_back(res, e);
        let_not_wake(res);
        return r;
    }
    r = go_on(res, e);
    if (r < 0) {
        hold(res, true);
        IGNORE_RESULT(machine_pause(res->machine, deadline_in_ms(DEADLINE_MS),
                                    NULL)); /* back to where it was */
        IGNORE_RESULT(
            resident_set_state(res, SANDBOX_STATE_PAUSED, NULL, RECORD_SURVIVES_PROCESS, NULL));
        return r;
    }
    history_add(res, "resumed", "goes on where it was");
    r = resident_set_state(res, SANDBOX_STATE_RUNNING, NULL, RECORD_SURVIVES_PROCESS, e);
    let_not_wake(res);
    return r;
}

int resume_sandbox(struct resident *res, struct err *e)
{
    int r;

    pthread_mutex_lock(&res->op);
    switch (res->gone ? SANDBOX_STATE_DELETED : resident_state(res)) {
    case SANDBOX_STATE_RUNNING:
        r = 0;
        break;
    case SANDBOX_STATE_PAUSED:
        trace_begin(&res->trace, "resume");
        r = resume_held(res, e);
        trace_end(&res->trace, r);
        break;
    default:
        r = err_set(e, -ESTALE, "conflict", "a sandbox that is %s cannot be resumed",
                    sandbox_state_name(resident_state(res)));
        break;
    }
    pthread_mutex_unlock(&res->op);
    return r;
}
