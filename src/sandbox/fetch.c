/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/fetch.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "sandbox/checkpoint.h"
#include "sandbox/history.h"
#include "sandbox/lifecycle.h"
#include "sandbox/parts.h"
#include "sandbox/rollback.h"
#include "sandbox/suspend.h"
#include "volume/client.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A record, a snapshot, a history. */
#define META_MAX (RECORD_MAX + 4 * HISTORY_BYTES_MAX)

struct fetching {
    const struct fetch_wish *wish;
    struct node *node;
    struct record record; /* owned */
    struct snapshot snapshot;
    json_t *history;      /* owned */
    struct resident *res; /* borrowed: once it is one */
    uint64_t stored_at_ms;
    unsigned images; /* that were not here */
};

static void fetching_done(struct fetching *f)
{
    record_done(&f->record);
    json_decref(f->history);
}

static int fetch(struct fetching *f, const struct archive_file *files, size_t n, struct err *e)
{
    const struct volume_call call = {.op = "fetch",
                                     .organisation = f->wish->organisation,
                                     .sandbox = f->wish->id,
                                     .files = files,
                                     .n_files = n,
                                     .deadline_ns = deadline_in_ms(SUSPEND_DEADLINE_MS),
                                     .gone = f->res ? resident_unwanted : NULL,
                                     .arg = f->res};
    cleanup_json json_t *answer = NULL;
    int r = volume_call(f->node->volume_socket, &call, &answer, e);

    if (r == 0) {
        f->stored_at_ms = (uint64_t)json_get_int(answer, "created_at_ms", 0);
        f->images = (unsigned)json_get_int(answer, "images", 0);
    }
    return r;
}

/* ---- meta ---- */

static int damaged(struct err *e)
{
    return err_set(e, -EBADMSG, "manifest_damaged",
                   "what is stored of the sandbox cannot be read by this version");
}

static int read_meta(struct fetching *f, int fd, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(META_MAX);
    cleanup_json json_t *root = NULL;
    int r = lseek(fd, 0, SEEK_SET) < 0 ? -errno : fs_read_fd(fd, &text);

    if (r < 0) {
        return err_wrap(e, r, "reading what was fetched");
    }
    if (json_parse_object(buf_str(&text), text.len, &root, NULL) < 0 ||
        record_from_json(json_object_get(root, "record"), &f->record) < 0 ||
        snapshot_from_json(json_object_get(root, "snapshot"), &f->snapshot) < 0 ||
        f->snapshot.kind != SNAPSHOT_FULL || !str_eq(f->record.id, f->wish->id) ||
        !str_eq(f->record.org, f->wish->organisation)) {
        return damaged(e);
    }
    f->history = json_incref(json_object_get(root, "history"));
    return 0;
}

static int get_meta(struct fetching *f, struct err *e)
{
    cleanup_close int fd = memfd_create("space-meta", MFD_CLOEXEC);
    const struct archive_file file = {.name = "meta", .fd = fd, .base_fd = FD_NONE};
    int r = fd < 0 ? err_wrap(e, -errno, "making room for the record") : fetch(f, &file, 1, e);

    if (r == 0) {
        r = read_meta(f, fd, e);
    }
    if (r == 0 && f->wish->need_memory) {
        r = snapshot_fits_node(f->node, &f->snapshot, e);
    }
    return r < 0 ? r : node_check_room(f->node, &f->record.shape, e);
}

/* As it is on a node that has just heard of it. */
static void prepare_record(struct fetching *f)
{
    struct record *rec = &f->record;

    rec->state = SANDBOX_STATE_RESTORING;
    rec->reason[0] = '\0';
    rec->has_machine = false;
    rec->wake_on_request = false;
    rec->disk_n = 0;
    rec->last_n = f->snapshot.n;
    rec->parent_n = f->snapshot.n;
    rec->origin[0] = '\0'; /* whose snapshots are not here */
    rec->origin_n = 0;
    rec->durable_at_ms = f->stored_at_ms;
    if (rec->paused_at_ms == 0) { /* its time stood still in the store */
        rec->paused_at_ms = (int64_t)f->stored_at_ms;
    }
    f->snapshot.parent_n = 0;
}

/* ---- the parts ---- */

struct places {
    struct archive_file disk;
    struct archive_file memory;
    struct archive_file device;
};

static void places_done(struct places *p)
{
    fd_close(p->disk.fd);
    fd_close(p->disk.base_fd);
    fd_close(p->memory.fd);
    fd_close(p->memory.base_fd);
    fd_close(p->device.fd);
}

static int make_disk(struct resident *res, int *ret_fd, struct err *e)
{
    const struct priv_subvol what = snapshot_subvolume(res, 0);
    cleanup_free char *name = xasprintf("%s/disk.img", res->record.id);
    int r = priv_subvol_create(res->node->host.priv, &what, e);
    int fd;

    if (r < 0) {
        return r;
    }
    fd = fs_open_beneath(res->node->sandboxes_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) {
        return err_wrap(e, fd, "making the disk");
    }
    *ret_fd = fd;
    return 0;
}

static int get_parts(struct fetching *f, struct resident *res, struct err *e)
{
    CLEANUP(places_done)
    struct places p = {.disk = {"disk", FD_NONE, FD_NONE},
                       .memory = {"memory", FD_NONE, FD_NONE},
                       .device = {"device", FD_NONE, FD_NONE}};
    struct archive_file files[3];
    struct checkpoint_files checkpoint = {FD_NONE, FD_NONE};
    int r = make_disk(res, &p.disk.fd, e);

    f->res = res;
    if (r == 0) {
        r = checkpoint_make(res->node, res->record.id, f->snapshot.n, &checkpoint, e);
    }
    if (r < 0) {
        return r;
    }
    p.memory.fd = checkpoint.memory_fd;
    p.device.fd = checkpoint.device_fd;
    /* The volume manager looks whether they are the ones. */
    parts_open_images(res, &p.disk.base_fd, &p.memory.base_fd);
    files[0] = p.disk;
    files[1] = p.memory;
    files[2] = p.device;
    r = FAULT("restore.begun") ? err_wrap(e, -EIO, "restoring")
                               : fetch(f, files, ARRAY_SIZE(files), e);
    return r < 0 ? r : checkpoint_keep(&checkpoint, e);
}

/* ---- the steps ---- */

/* What was fetched is the full snapshot that it was. */
static int become_snapshot(struct fetching *f, struct resident *res, struct snapshot **ret,
                           struct err *e)
{
    const struct priv_subvol_snapshot request = {.from = snapshot_subvolume(res, 0),
                                                 .to = snapshot_subvolume(res, f->snapshot.n),
                                                 .flags = PRIV_SUBVOL_READONLY};
    int r = FAULT("restore.fetched") ? err_wrap(e, -EIO, "restoring")
                                     : priv_subvol_snapshot(res->node->host.priv, &request, e);

    if (r < 0) {
        return r;
    }
    snapshot_adopt(res, &f->snapshot);
    *ret = snapshot_find(res, f->snapshot.id);
    return snapshot_save(res, *ret, e);
}

static int fetch_steps(struct fetching *f, struct resident *res, struct err *e)
{
    struct snapshot *snap = NULL;
    int r = record_write(res->node->records_fd, &res->record, RECORD_SURVIVES_HOST);

    if (r < 0) {
        return err_wrap(e, r, "writing the record");
    }
    history_take_over(res, f->history);
    r = get_parts(f, res, e);
    trace_mark(&res->trace, "fetched");
    if (r == 0) {
        r = become_snapshot(f, res, &snap, e);
    }
    if (r == 0) {
        r = FAULT("restore.kept") ? err_wrap(e, -EIO, "restoring") : rollback_enter(res, snap, e);
    }
    trace_mark(&res->trace, "machine is up");
    if (r == 0) {
        history_add(res, "restored", "from what was stored %llu s ago%s",
                    (unsigned long long)((clock_wall_ms() - f->stored_at_ms) / 1000),
                    f->images > 0 ? "; its template or base machine was fetched, too" : "");
    }
    return r;
}

static int fetch_new(struct fetching *f, struct resident *res, struct err *e)
{
    int r;

    trace_begin(&res->trace, "restore");
    r = fetch_steps(f, res, e);
    trace_end(&res->trace, r);
    if (r < 0) {
        const struct priv_subvol disk = snapshot_subvolume(res, f->snapshot.n);
        struct err undo = {0};

        /* It is no snapshot yet, or no longer. What stays is swept at the next start. */
        IGNORE_RESULT(checkpoint_remove(res->node, res->record.id, f->snapshot.n));
        IGNORE_RESULT(priv_subvol_delete(res->node->host.priv, &disk, NULL));
        if (lifecycle_remove_all(res, &undo) < 0) {
            log_error(&(struct log_ctx){.sandbox = res->record.id},
                      "a failed restore leaves something: %s", undo.msg);
        }
        return err_wrap(e, r, "restoring sandbox %s", f->wish->id);
    }
    return 0;
}

/* It is here already, or another request was faster. */
static int join_existing(struct resident *res, struct err *e)
{
    enum sandbox_state state;

    pthread_mutex_lock(&res->op); /* a restore under way is waited for */
    state = res->gone ? SANDBOX_STATE_DELETED : resident_state(res);
    pthread_mutex_unlock(&res->op);
    if (state == SANDBOX_STATE_DELETED) {
        return err_set(e, -EAGAIN, "try_again", "an earlier attempt to restore it has failed");
    }
    return state == SANDBOX_STATE_RUNNING
               ? 0
               : err_set(e, -ESTALE, "conflict", "a sandbox that is %s cannot be restored",
                         sandbox_state_name(state));
}

static int fetch_and_add(struct node *node, const struct fetch_wish *wish, struct resident **ret,
                         struct err *e)
{
    CLEANUP(fetching_done) struct fetching f = {.wish = wish, .node = node};
    int r = get_meta(&f, e);

    if (r < 0) {
        return r;
    }
    prepare_record(&f);
    r = resident_add(node, &f.record, ret, e);
    if (r == -EEXIST) {
        return join_existing(*ret, e);
    }
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&(*ret)->op);
    r = (*ret)->gone ? err_set(e, -ECANCELED, "sandbox_deleted", "it was deleted meanwhile")
                     : fetch_new(&f, *ret, e);
    pthread_mutex_unlock(&(*ret)->op);
    return r;
}

int fetch_sandbox(struct node *node, const struct fetch_wish *wish, struct resident **ret,
                  struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = resident_find(node, wish->id);
    int r = res ? join_existing(res, e) : fetch_and_add(node, wish, &res, e);

    if (r == 0) {
        *ret = TAKE_PTR(res);
    }
    return r;
}
