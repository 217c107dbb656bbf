/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/lifecycle.h"
#include "sandbox/backup.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "sandbox/bring.h"
#include "sandbox/console.h"
#include "sandbox/disk.h"
#include "sandbox/figures.h"
#include "sandbox/fresh.h"
#include "sandbox/guest.h"
#include "sandbox/history.h"
#include "sandbox/pause.h"
#include "sandbox/rollback.h"
#include "sandbox/suspend.h"
#include "sandbox/template.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* From a saved base machine to a guest that is set up: 0.1 s when idle, much more on a busy host. */
#define START_DEADLINE_MS 60000
#define TEARDOWN_DEADLINE_MS 15000

static bool caller_gone(const struct lifecycle_caller *caller)
{
    return caller && caller->gone && caller->gone(caller->arg);
}

static int canceled(struct err *e)
{
    return err_set(e, -ECANCELED, "client_gone",
                   "the client has gone, so the sandbox was not made");
}

/* ---- the disk ---- */

static int make_disk(struct resident *res, void *arg, struct err *e)
{
    const struct template *t = arg;
    const struct priv_subvol what = snapshot_subvolume(res, 0);
    cleanup_close int dir_fd = FD_NONE;
    cleanup_close int disk_fd = FD_NONE;
    int r = priv_subvol_create(res->node->host.priv, &what, e);

    r = r == 0 && FAULT("create.subvolume") ? -EIO : r;
    if (r < 0) {
        return err_wrap(e, r, "making a subvolume for the sandbox");
    }
    dir_fd = fs_open_beneath(res->node->sandboxes_fd, res->record.id, O_RDONLY | O_DIRECTORY, 0);
    if (dir_fd < 0) {
        return err_wrap(e, dir_fd, "opening the sandbox's folder");
    }
    disk_fd = fs_open_beneath(dir_fd, "disk.img", O_RDWR | O_CREAT | O_EXCL, 0600);
    if (disk_fd < 0) {
        return err_wrap(e, disk_fd, "making the disk");
    }
    r = FAULT("create.clone") ? -EIO : disk_clone_into(t->disk_fd, disk_fd);
    if (r < 0) {
        return err_wrap(e, r, "cloning template '%s'", t->name);
    }
    res->disk_fd = TAKE_FD(disk_fd);
    return 0;
}

/* ---- create ---- */

static int check_disk_size(const struct resident *res, const struct template *t, struct err *e)
{
    uint64_t size = (uint64_t)res->record.shape.disk_mib << 20;

    if (size < t->size_bytes) {
        return err_field(e, -EINVAL, "out_of_range", "disk_mib",
                         "'disk_mib' must be at least %llu: template '%s' is that large",
                         (unsigned long long)((t->size_bytes + (1 << 20) - 1) >> 20), t->name);
    }
    return 0;
}

static int create_machine(struct resident *res, struct template *t, struct err *e)
{
    const struct fresh_source source = {.image_fd = t->disk_fd,
                                        .dress = t,
                                        .disk = {t->default_user, t->fstype, true},
                                        .make_disk = make_disk,
                                        .arg = t};

    return fresh_machine(res, &source, deadline_in_ms(START_DEADLINE_MS), e);
}

static int create_steps(struct resident *res, struct template *t,
                        const struct lifecycle_caller *caller, struct err *e)
{
    int r = record_write(res->node->records_fd, &res->record, RECORD_SURVIVES_PROCESS);

    if (r < 0) {
        return err_wrap(e, r, "writing the record");
    }
    trace_mark(&res->trace, "record written");
    if (FAULT("create.begun")) {
        return err_wrap(e, -EIO, "writing the record");
    }
    r = caller_gone(caller) ? canceled(e) : create_machine(res, t, e);
    if (r == 0 && caller_gone(caller)) {
        r = canceled(e);
    }
    if (r < 0) {
        return r;
    }
    if (FAULT("create.set_up")) {
        return err_wrap(e, -EIO, "finishing");
    }
    history_add(res, "created", "from template '%s'", t->name);
    return resident_set_state(res, SANDBOX_STATE_RUNNING, NULL, RECORD_SURVIVES_PROCESS, e);
}

static int create_new(struct resident *res, const struct lifecycle_caller *caller, struct err *e)
{
    cleanup_template struct template t = {.disk_fd = FD_NONE};
    int r = template_open(res->node, res->record.template_name, &t, e);

    if (r == 0) {
        r = check_disk_size(res, &t, e);
    }
    if (r == 0) {
        r = template_fit_disk(res->node, &t, (uint64_t)res->record.shape.disk_mib << 20, e);
    }
    if (r == 0) {
        r = node_check_room(res->node, &res->record.shape, e);
    }
    if (r == 0) {
        r = create_steps(res, &t, caller, e);
    }
    if (r < 0) {
        struct err undo = {0};

        if (lifecycle_remove_all(res, &undo) < 0) {
            log_error(&(struct log_ctx){.sandbox = res->record.id},
                      "a failed create leaves something: %s", undo.msg);
        }
    }
    return r;
}

/* Another request was here first: the same wish gets the same answer. */
static int join_existing(struct resident *res, const struct record *rec, struct err *e)
{
    int r = 0;

    pthread_mutex_lock(&res->op); /* a create under way is waited for */
    if (res->gone) {
        r = err_set(e, -EAGAIN, "try_again",
                    "an earlier attempt to make this sandbox failed: try again");
    } else if (!record_same_spec(&res->record, rec)) {
        r = err_field(e, -EEXIST, "sandbox_exists", "id",
                      "there is a sandbox with this id and another spec");
    }
    pthread_mutex_unlock(&res->op);
    return r;
}

int lifecycle_create(struct node *node, const struct record *rec,
                     const struct lifecycle_caller *caller, struct resident **ret,
                     bool *ret_existed, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    int r = resident_add(node, rec, &res, e);

    if (r == -EEXIST) {
        r = join_existing(res, rec, e);
        *ret_existed = true;
    } else if (r == 0) {
        pthread_mutex_lock(&res->op);
        trace_begin(&res->trace, "create");
        /* It is in the list since a moment: a delete may have had the lock before us. */
        r = res->gone ? canceled(e) : create_new(res, caller, e);
        trace_end(&res->trace, r);
        pthread_mutex_unlock(&res->op);
        *ret_existed = false;
    }
    if (r == 0) {
        *ret = TAKE_PTR(res);
    }
    return r;
}

/* ---- delete ---- */

int lifecycle_remove_all(struct resident *res, struct err *e)
{
    const struct priv_subvol first = snapshot_subvolume(res, 0);
    const struct priv_subvol disk = snapshot_subvolume(res, res->record.disk_n);
    int r;

    r = bring_down(res, e);
    if (r < 0) {
        return err_wrap(e, r, "removing sandbox %s", res->record.id);
    }
    r = FAULT("delete.machine_gone") ? err_wrap(e, -EIO, "ending the machine")
                                     : snapshot_delete_all(res, e);
    if (r == 0 && FAULT("delete.snapshots_gone")) {
        r = err_wrap(e, -EIO, "deleting snapshots");
    }
    if (r == 0) {
        r = priv_subvol_delete(res->node->host.priv, &disk, e);
    }
    if (r == 0) {
        r = priv_subvol_delete(res->node->host.priv, &first, e);
    }
    if (r == 0) {
        r = FAULT("delete.disk_gone") ? -EIO : history_remove(res);
    }
    if (r == 0) {
        r = record_remove(res->node->records_fd, res->record.id);
    }
    if (r < 0) {
        return err_wrap(e, r, "removing sandbox %s", res->record.id);
    }
    res->gone = true;
    resident_drop(res);
    return 0;
}

/* What of it is in the object store. Its machine ends first: a store that is away keeps no machine running. */
static int forget_stored(struct resident *res, struct err *e)
{
    int r;

    if (res->record.durable_at_ms == 0) {
        return 0;
    }
    r = bring_down(res, e);
    return r < 0 ? r : suspend_forget(res->node, res->record.org, res->record.id, e);
}

static int delete (struct resident *res, bool keep_stored, struct err *e)
{
    uint64_t begun_ns = clock_now_ns();
    struct err note = {0};
    int r = 0;

    __atomic_store_n(&res->unwanted, true, __ATOMIC_RELAXED); /* a transfer ends soon then */
    pthread_mutex_lock(&res->op);
    backup_end(res);
    if (!res->gone) {
        if (keep_stored) { /* a crash in between must not forget it either */
            res->record.durable_at_ms = 0;
        }
        /* A pool that is full takes no note, and deleting is what makes room in it. */
        if (resident_state(res) != SANDBOX_STATE_DELETING &&
            resident_set_state(res, SANDBOX_STATE_DELETING, NULL, RECORD_SURVIVES_PROCESS, &note) <
                0) {
            log_warn(&(struct log_ctx){.sandbox = res->record.id},
                     "cannot note its deletion, deleting it all the same: %s", note.msg);
        }
        r = forget_stored(res, e);
        r = r < 0 ? r : lifecycle_remove_all(res, e);
        figures_count_operation("delete", r, clock_now_ns() - begun_ns);
    }
    pthread_mutex_unlock(&res->op);
    return r;
}

int lifecycle_delete(struct resident *res, struct err *e)
{
    return delete (res, /* keep_stored */ false, e);
}

int lifecycle_leave(struct resident *res, struct err *e)
{
    return delete (res, /* keep_stored */ true, e);
}

/* ---- stop and start ---- */

static int refuse(struct resident *res, const char *what, struct err *e)
{
    return err_set(e, -ESTALE, "conflict", "a sandbox that is %s cannot be %s",
                   sandbox_state_name(resident_state(res)), what);
}

static void tear_down_guest(struct resident *res)
{
    struct channel *ch = NULL;
    struct err e = {0};

    if (resident_guest_begin(res, &ch, NULL) < 0) {
        return;
    }
    if (guest_call(
            ch,
            &(struct guest_call){"POST", "/teardown", NULL, deadline_in_ms(TEARDOWN_DEADLINE_MS)},
            NULL, &e) < 0) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id},
                 "the guest did not stop cleanly, going on as if the power had failed: %s", e.msg);
    }
    resident_guest_end(ch);
}

/* From "stopping" on, again when it failed before: a machine that cannot be ended now can be later. */
static int end_machine(struct resident *res, struct err *e)
{
    int r = FAULT("stop.begun") ? err_wrap(e, -EIO, "stopping") : bring_down(res, e);

    if (r == 0 && FAULT("stop.machine_gone")) {
        r = err_wrap(e, -EIO, "stopping");
    }
    return r < 0 ? r
                 : resident_set_state(res, SANDBOX_STATE_STOPPED, NULL, RECORD_SURVIVES_HOST, e);
}

void lifecycle_finish_stop(struct resident *res)
{
    struct err e = {0};

    if (resident_state(res) == SANDBOX_STATE_STOPPING && end_machine(res, &e) < 0) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id}, "cannot be stopped, retrying: %s",
                 e.msg);
    }
}

static int stop_steps(struct resident *res, struct err *e)
{
    int r = 0;

    if (resident_state(res) == SANDBOX_STATE_PAUSED) {
        /* What its programs have written may still be in its memory alone: it has to run to write it out. */
        r = resume_held(res, e);
        if (r < 0) {
            return r;
        }
    }
    tear_down_guest(res);
    r = resident_set_state(res, SANDBOX_STATE_STOPPING, NULL, RECORD_SURVIVES_PROCESS, e);
    return r < 0 ? r : end_machine(res, e);
}

int lifecycle_stop(struct resident *res, struct err *e)
{
    int r;

    pthread_mutex_lock(&res->op);
    switch (res->gone ? SANDBOX_STATE_DELETED : resident_state(res)) {
    case SANDBOX_STATE_STOPPED:
        r = 0;
        break;
    case SANDBOX_STATE_STOPPING: /* an attempt that failed */
        r = end_machine(res, e);
        break;
    case SANDBOX_STATE_RUNNING:
    case SANDBOX_STATE_PAUSED:
        trace_begin(&res->trace, "stop");
        r = stop_steps(res, e);
        trace_end(&res->trace, r);
        break;
    default:
        r = refuse(res, "stopped", e);
        break;
    }
    pthread_mutex_unlock(&res->op);
    return r;
}

static int start_steps(struct resident *res, struct err *e)
{
    cleanup_template struct template t = {.disk_fd = FD_NONE};
    uint64_t deadline_ns = deadline_in_ms(START_DEADLINE_MS);
    int r;

    template_open_or_default(res->node, res->record.template_name, &t);
    /* Its disk is there already. */
    r = node_check_room(res->node, &(struct shape){.memory_mib = res->record.shape.memory_mib}, e);
    if (r == 0) {
        r = resident_set_state(res, SANDBOX_STATE_RESUMING, NULL, RECORD_SURVIVES_PROCESS, e);
    }
    if (r < 0) {
        return r;
    }
    r = FAULT("start.begun") ? err_wrap(e, -EIO, "starting") : bring_open_disk(res, e);
    if (r == 0) {
        r = bring_from_base(res, &(struct bring_disk){t.default_user, t.fstype, false}, deadline_ns,
                            e);
    }
    if (r < 0) {
        bring_down(res, /* e */ NULL);
        IGNORE_RESULT(resident_set_state(res, SANDBOX_STATE_FAILED, e ? e->msg : "the start failed",
                                         RECORD_SURVIVES_PROCESS,
                                         NULL)); /* the first error is what counts */
        return r;
    }
    return resident_set_state(res, SANDBOX_STATE_RUNNING, NULL, RECORD_SURVIVES_PROCESS, e);
}

int lifecycle_start(struct resident *res, struct err *e)
{
    int r;

    pthread_mutex_lock(&res->op);
    switch (res->gone ? SANDBOX_STATE_DELETED : resident_state(res)) {
    case SANDBOX_STATE_RUNNING:
        r = 0;
        break;
    case SANDBOX_STATE_STOPPED:
    case SANDBOX_STATE_FAILED:
        trace_begin(&res->trace, "start");
        r = start_steps(res, e);
        trace_end(&res->trace, r);
        break;
    default:
        r = refuse(res, "started", e);
        break;
    }
    pthread_mutex_unlock(&res->op);
    return r;
}

/* ---- the machine ended by itself ---- */

/* As after a restart of the host: resuming starts from the snapshot that the pause has made. */
static bool stays_paused(struct resident *res)
{
    return resident_state(res) == SANDBOX_STATE_PAUSED && snapshot_newest(res, SNAPSHOT_FULL);
}

void lifecycle_machine_died(struct resident *res)
{
    const struct log_ctx ctx = {.sandbox = res->record.id};
    cleanup_buf struct buf tail = BUF_INIT(sizeof(res->last_console) - 1);
    const char *why = "the machine has ended unexpectedly";
    struct err e = {0};

    if (console_shows_panic(res->node, res->record.machine.id)) {
        why = "the guest's kernel has panicked";
    }
    if (console_read_tail(res->node, res->record.machine.id, &tail) == 0) {
        snprintf(res->last_console, sizeof(res->last_console), "%s", buf_str(&tail));
        log_warn(&ctx, "%s; its console ended with: %s", why, res->last_console);
    }
    bring_down(res, /* e */ NULL);
    if (stays_paused(res)) {
        history_add(res, "machine_lost", "%s; it stays paused, its pause has kept a snapshot", why);
        if (resident_set_state(res, SANDBOX_STATE_PAUSED, NULL, RECORD_SURVIVES_PROCESS, &e) < 0) {
            log_error(&ctx, "%s", e.msg);
        }
    } else {
        if (resident_set_state(res, SANDBOX_STATE_FAILED, why, RECORD_SURVIVES_PROCESS, &e) < 0) {
            log_error(&ctx, "%s", e.msg);
        }
        history_add(res, "failed", "%s", why);
        res->wants_recovery = true;
    }
    figures_count_death();
}
