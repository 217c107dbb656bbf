/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/recover.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "sandbox/base.h"
#include "sandbox/bring.h"
#include "sandbox/checkpoint.h"
#include "sandbox/history.h"
#include "sandbox/lifecycle.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RESUME_DEADLINE_MS 20000
#define MANIFEST_MAX 16384

struct names {
    char **names; /* owned */
    size_t n;
};

static void names_done(struct names *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->names[i]);
    }
    free(list->names);
}

/*
 * All names first, so that removing them does not disturb the reading. Never a part of them: what is not on
 * the list would be taken for what nobody knows. Their number has a ceiling, residents times snapshots.
 */
static int list_names(int dir_fd, struct names *ret)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    size_t room = 0;
    int r;

    if (!dir) {
        fd_close(fd);
        return -errno;
    }
    errno = 0;
    while ((entry = readdir(dir))) {
        if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, "..")) {
            if (ret->n == room) {
                room = MAX(room * 2, (size_t)64);
                ret->names = xrealloc(ret->names, room * sizeof(*ret->names));
            }
            ret->names[ret->n++] = xstrdup(entry->d_name);
        }
        errno = 0;
    }
    r = -errno;
    closedir(dir);
    return r;
}

/* ---- records ---- */

/* A paused sandbox stays so: resuming it will start from the snapshot that its pause made. */
static int machine_lost(struct resident *res, struct err *e)
{
    static const char why[] = "its machine ended while nobody watched";

    res->record.has_machine = false;
    if (res->record.state == SANDBOX_STATE_PAUSED && snapshot_newest(res, SNAPSHOT_FULL)) {
        return 0;
    }
    history_add(res, "failed", "%s", why);
    res->wants_recovery = true;
    return resident_set_state(res, SANDBOX_STATE_FAILED, why, RECORD_SURVIVES_PROCESS, e);
}

/*
 * Not waited for: a guest that does not answer is ours all the same and the channel goes on trying, requests
 * wait for it by themselves, and one silent guest must not keep the service from all the others.
 */
static void attach(struct resident *res, struct machine *m)
{
    IGNORE_RESULT(bring_attach(res, m, /* deadline */ 0, NULL));
    if (res->record.state == SANDBOX_STATE_PAUSED && res->channel) {
        channel_hold(res->channel, true);
    }
    log_info(&(struct log_ctx){.sandbox = res->record.id}, "taken back with its machine %s",
             res->record.machine.id);
}

static int adopt(struct resident *res, struct err *e)
{
    struct machine *m = NULL;
    struct err why = {0};
    int r;

    if (!res->record.has_machine) {
        return machine_lost(res, e);
    }
    node_slot_mark(res->node, res->record.machine.slot);
    r = machine_adopt(&res->node->host, &res->record.machine, &m, &why);
    if (r == -ESRCH) {
        node_slot_give(res->node, res->record.machine.slot);
        return machine_lost(res, e);
    }
    if (r < 0) {
        *e = why;
        return r;
    }
    attach(res, m);
    return bring_open_disk(res, e);
}

/* Our end may have come inside a pause, a snapshot or a rollback: a machine that stands still goes on. */
static int adopt_running(struct resident *res, struct err *e)
{
    int r = adopt(res, e);

    if (r == 0 && res->machine &&
        machine_resume(res->machine, deadline_in_ms(RESUME_DEADLINE_MS), NULL) < 0) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id},
                 "its machine cannot be told to go on, ignoring");
    }
    return r;
}

static int recover_one(struct resident *res, struct err *e)
{
    switch (res->record.state) {
    case SANDBOX_STATE_PAUSING: /* the machine stands or runs: it is let run */
    case SANDBOX_STATE_SUSPENDING:
        record_enter(&res->record, SANDBOX_STATE_RUNNING);
        return adopt_running(res, e);
    case SANDBOX_STATE_RUNNING:
        return adopt_running(res, e);
    case SANDBOX_STATE_PAUSED:
        return adopt(res, e);
    case SANDBOX_STATE_SUSPENDED: /* what it is, is in the object store */
    case SANDBOX_STATE_RESTORING:
        log_info(&(struct log_ctx){.sandbox = res->record.id},
                 "is in the object store: removing what is here");
        return lifecycle_remove_all(res, e);
    case SANDBOX_STATE_DELETING:
        if (res->record.durable_at_ms > 0) { /* is asked again, which forgets what is stored, too */
            res->record.has_machine = false;
            return 0;
        }
        __attribute__((fallthrough));
    case SANDBOX_STATE_CREATING:
        log_info(&(struct log_ctx){.sandbox = res->record.id},
                 "was being %s when we stopped: removing it",
                 res->record.state == SANDBOX_STATE_CREATING ? "made" : "deleted");
        return lifecycle_remove_all(res, e);
    case SANDBOX_STATE_STOPPING:
        res->record.has_machine = false;
        return resident_set_state(res, SANDBOX_STATE_STOPPED, NULL, RECORD_SURVIVES_HOST, e);
    case SANDBOX_STATE_RESUMING: /* a pause that was ending still has its machine; a start does not */
        if (res->record.has_machine) {
            record_enter(&res->record, SANDBOX_STATE_RUNNING);
            return adopt_running(res, e);
        }
        return resident_set_state(res, SANDBOX_STATE_FAILED, "the start was interrupted",
                                  RECORD_SURVIVES_PROCESS, e);
    default:
        res->record.has_machine = false;
        return 0;
    }
}

static int load_record(struct node *node, const char *file, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    struct record rec = {0};
    char id[ID_SIZE];
    int r;

    snprintf(id, sizeof(id), "%.*s", ID_LEN, file);
    if (!id_valid(ID_SANDBOX, id) || !str_eq(file + ID_LEN, ".json")) {
        return 0; /* a temporary file */
    }
    r = record_read(node->records_fd, id, &rec);
    if (r == -EBADMSG) {
        log_error(NULL,
                  "the record of sandbox %s is damaged; it is kept and nothing of it is touched",
                  id);
        return 0;
    }
    if (r < 0) {
        return err_wrap(e, r, "reading the record of sandbox %s", id);
    }
    r = resident_add(node, &rec, &res, e);
    record_done(&rec);
    return r;
}

/* Everything is known before anything is done. */
static int recover_all(struct node *node, struct err *e)
{
    int r = 0;

    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        r = r < 0 ? r : recover_one(res, e);
    }
    return r;
}

static int load_records(struct node *node, struct err *e)
{
    CLEANUP(names_done) struct names list = {0};
    int r = list_names(node->records_fd, &list);

    if (r < 0) {
        return err_wrap(e, r, "listing the records");
    }
    for (size_t i = 0; i < list.n && r == 0; i++) {
        r = load_record(node, list.names[i], e);
    }
    return r;
}

/* ---- what has no record ---- */

static bool machine_is_known(struct node *node, const char *id)
{
    bool known = false;

    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        known = known || (res->record.has_machine && str_eq(res->record.machine.id, id));
    }
    return known;
}

static int sweep_machines(struct node *node, struct err *e)
{
    char after[PRIV_ID_SIZE] = "";

    for (;;) {
        struct priv_machine found;
        int pidfd = FD_NONE;
        int r = priv_machine_next(node->host.priv, after, &found, &pidfd, e);

        fd_close(pidfd);
        if (r <= 0) {
            return r < 0 ? err_wrap(e, r, "listing the machines") : 0;
        }
        memcpy(after, found.id, sizeof(after));
        if (!machine_is_known(node, found.id)) {
            log_warn(NULL, "ending machine %s: no sandbox has it", found.id);
            r = priv_machine_kill(node->host.priv, found.id, e);
            if (r < 0) {
                return r;
            }
        }
    }
}

static bool has_record(const struct node *node, const char *id)
{
    cleanup_free char *name = xasprintf("%.*s.json", ID_LEN, id);

    return faccessat(node->records_fd, name, F_OK, 0) == 0;
}

static int sweep_subvolumes(struct node *node, struct err *e)
{
    CLEANUP(names_done) struct names list = {0};
    int r = list_names(node->sandboxes_fd, &list);

    for (size_t i = 0; i < list.n && r == 0; i++) {
        struct priv_subvol what = {.kind = PRIV_SUBVOL_SANDBOX};

        if (id_valid(ID_SANDBOX, list.names[i]) && !has_record(node, list.names[i])) {
            log_warn(NULL, "removing the disk of %s: it has no record", list.names[i]);
            ASSERT(str_copy(what.id, sizeof(what.id), list.names[i]) == 0);
            r = priv_subvol_delete(node->host.priv, &what, e);
        }
    }
    return r < 0 ? err_wrap(e, r, "sweeping the sandboxes' folders") : 0;
}

static int sweep_half_made(int dir_fd, const char *prefix,
                           bool (*keep)(struct node *, const char *), struct node *node)
{
    CLEANUP(names_done) struct names list = {0};
    int r = list_names(dir_fd, &list);

    for (size_t i = 0; i < list.n && r == 0; i++) {
        if (str_starts(list.names[i], prefix) && !(keep && keep(node, list.names[i]))) {
            r = fs_remove_tree(dir_fd, list.names[i]);
        }
    }
    return r;
}

static int sweep_run_dir(struct node *node)
{
    cleanup_free char *path = xasprintf("%s/m", node->run_dir);
    cleanup_close int fd = FD_NONE;
    int r = fs_mkdir_all(path, 0700);

    if (r < 0) {
        return r;
    }
    fd = fs_open(path, O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? fd : sweep_half_made(fd, "m", machine_is_known, node);
}

/* ---- snapshots ---- */

static int recover_manifest(struct node *node, const char *file)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_MAX);
    cleanup_json json_t *root = NULL;
    struct snapshot snap;
    char id[ID_SIZE];
    int r;

    snprintf(id, sizeof(id), "%.*s", ID_LEN, file);
    res = id_valid(ID_SANDBOX, id) ? resident_find(node, id) : NULL;
    if (!res) {
        /* A temporary file, or of a sandbox that has gone. */
        return unlinkat(node->manifests_fd, file, 0) < 0 && errno != ENOENT ? -errno : 0;
    }
    r = fs_read_file(node->manifests_fd, file, &text);
    if (r < 0) {
        return r;
    }
    if (json_parse_object(buf_str(&text), text.len, &root, NULL) < 0 ||
        snapshot_from_json(root, &snap) < 0) {
        log_error(&(struct log_ctx){.sandbox = id},
                  "the manifest %s is damaged: that snapshot is not used", file);
        return 0;
    }
    if (!snapshot_has_disk(res, &snap)) {
        log_warn(&(struct log_ctx){.sandbox = id},
                 "snapshot %s was not finished, or its disk is gone: removing it", snap.id);
        return unlinkat(node->manifests_fd, file, 0) < 0 && errno != ENOENT ? -errno : 0;
    }
    snapshot_adopt(res, &snap);
    return 0;
}

static int recover_manifests(struct node *node, struct err *e)
{
    CLEANUP(names_done) struct names list = {0};
    int r = list_names(node->manifests_fd, &list);

    for (size_t i = 0; i < list.n && r == 0; i++) {
        r = recover_manifest(node, list.names[i]);
    }
    return r < 0 ? err_wrap(e, r, "reading the manifests of snapshots") : 0;
}

/* Is number n of this sandbox something: its disk, or a snapshot (damaged manifests count)? */
static bool number_in_use(struct node *node, const char *id, uint32_t n)
{
    CLEANUP(resident_unrefp) struct resident *res = resident_find(node, id);
    cleanup_free char *manifest = xasprintf("%s-%u.json", id, n);

    if (!res) {
        return has_record(node, id); /* a damaged record: nothing of it is touched */
    }
    return res->record.disk_n == n || faccessat(node->manifests_fd, manifest, F_OK, 0) == 0;
}

static int sweep_number(struct node *node, const char *id, uint32_t n, struct err *e)
{
    struct priv_subvol what = {.kind = PRIV_SUBVOL_SNAPSHOT, .n = n};
    int r;

    if (number_in_use(node, id, n)) {
        return 0;
    }
    log_warn(&(struct log_ctx){.sandbox = id},
             "removing what is left of number %u: it has no manifest", n);
    ASSERT(str_copy(what.id, sizeof(what.id), id) == 0);
    r = priv_subvol_delete(node->host.priv, &what, e);
    return r < 0 ? r : checkpoint_remove(node, id, n);
}

/* snapshots/ID/N and checkpoints/ID/N. */
static int sweep_numbers(struct node *node, int folder_fd, struct err *e)
{
    CLEANUP(names_done) struct names ids = {0};
    int r = list_names(folder_fd, &ids);

    for (size_t i = 0; i < ids.n && r == 0; i++) {
        CLEANUP(names_done) struct names numbers = {0};
        cleanup_close int fd = fs_open_beneath(folder_fd, ids.names[i], O_RDONLY | O_DIRECTORY, 0);

        if (fd < 0 || !id_valid(ID_SANDBOX, ids.names[i])) {
            continue;
        }
        r = list_names(fd, &numbers);
        for (size_t j = 0; j < numbers.n && r == 0; j++) {
            uint64_t n = 0;

            if (str_to_u64(numbers.names[j], PRIV_SNAPSHOT_N_MAX, &n) == 0 && n > 0) {
                r = sweep_number(node, ids.names[i], (uint32_t)n, e);
            }
        }
    }
    return r < 0 ? err_wrap(e, r, "sweeping snapshots") : 0;
}

static int sweep_snapshots(struct node *node, struct err *e)
{
    int r = sweep_numbers(node, node->snapshots_fd, e);

    if (r == 0) {
        r = sweep_numbers(node, node->checkpoints_fd, e);
    }
    if (r == 0) {
        r = sweep_half_made(node->memory_fd, "m", machine_is_known, node);
    }
    return r;
}

int recover_node(struct node *node, struct err *e)
{
    int r = load_records(node, e);

    if (r == 0) {
        r = recover_manifests(node, e);
    }
    if (r == 0) {
        r = recover_all(node, e);
    }

    if (r == 0) {
        r = sweep_machines(node, e);
    }
    if (r == 0) {
        r = sweep_subvolumes(node, e);
    }
    if (r == 0) {
        r = sweep_snapshots(node, e);
    }
    if (r < 0) {
        return r;
    }
    r = sweep_half_made(node->machines_fd, "", base_is_current, node);
    if (r == 0) {
        r = sweep_run_dir(node);
    }
    return r < 0 ? err_wrap(e, r, "removing what was half made") : 0;
}
