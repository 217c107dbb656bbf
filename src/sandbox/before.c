/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/before.h"

static bool is_wanted(struct resident *res)
{
    bool wanted;

    pthread_mutex_lock(&res->lock);
    wanted = res->record.policy.before_commands == POLICY_BEFORE_DISK &&
             res->record.state == SANDBOX_STATE_RUNNING && !res->gone;
    pthread_mutex_unlock(&res->lock);
    return wanted;
}

int before_command(struct resident *res, char ret[static ID_SIZE], struct err *e)
{
    struct snapshot_wish wish = {.kind = SNAPSHOT_DISK, .made_by = "command", .command = ret};
    struct snapshot *snap = NULL;
    int r = 0;

    ret[0] = '\0';
    if (!is_wanted(res)) {
        return 0;
    }
    pthread_mutex_lock(&res->op);
    if (is_wanted(res)) {
        id_new(ID_COMMAND, ret);
        trace_begin(&res->trace, "snapshot before a command");
        r = snapshot_take(res, &wish, &snap, e);
        trace_mark(&res->trace, "manifest stored");
        trace_end(&res->trace, r);
        res->wants_thinning = true;
    }
    pthread_mutex_unlock(&res->op);
    return r;
}
