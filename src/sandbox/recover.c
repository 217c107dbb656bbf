/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/recover.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "sandbox/bring.h"
#include "sandbox/lifecycle.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ATTACH_DEADLINE_MS 20000
#define NAMES_MAX (2 * NODE_RESIDENTS_MAX)

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

/* All names first, so that removing them does not disturb the reading. */
static int list_names(int dir_fd, struct names *ret)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        fd_close(fd);
        return -errno;
    }
    ret->names = xnew_n(char *, NAMES_MAX);
    while (ret->n < NAMES_MAX && (entry = readdir(dir))) {
        if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, "..")) {
            ret->names[ret->n++] = xstrdup(entry->d_name);
        }
    }
    closedir(dir);
    return 0;
}

/* ---- records ---- */

static int adopt(struct resident *res, struct err *e)
{
    struct machine *m = NULL;
    struct err why = {0};
    int r;

    if (!res->record.has_machine) {
        return resident_set_state(res, SANDBOX_STATE_FAILED, "its machine is not known", RECORD_SURVIVES_PROCESS, e);
    }
    node_slot_mark(res->node, res->record.machine.slot);
    r = machine_adopt(&res->node->host, &res->record.machine, &m, &why);
    if (r == -ESRCH) {
        node_slot_give(res->node, res->record.machine.slot);
        res->record.has_machine = false;
        return resident_set_state(res, SANDBOX_STATE_FAILED, "its machine ended while nobody watched",
                                  RECORD_SURVIVES_PROCESS, e);
    }
    if (r < 0) {
        *e = why;
        return r;
    }
    /* A guest that does not answer yet is still ours: the channel goes on trying. */
    r = bring_attach(res, m, deadline_in_ms(ATTACH_DEADLINE_MS), &why);
    log_info(&(struct log_ctx){.sandbox = res->record.id}, "taken back with its machine %s%s%s",
             res->record.machine.id, r < 0 ? ", but the guest does not answer: " : "", r < 0 ? why.msg : "");
    return 0;
}

static int recover_one(struct resident *res, struct err *e)
{
    switch (res->record.state) {
    case SANDBOX_STATE_RUNNING:
        return adopt(res, e);
    case SANDBOX_STATE_CREATING:
    case SANDBOX_STATE_DELETING:
        log_info(&(struct log_ctx){.sandbox = res->record.id}, "was being %s when we stopped: removing it",
                 res->record.state == SANDBOX_STATE_CREATING ? "made" : "deleted");
        return lifecycle_remove_all(res, e);
    case SANDBOX_STATE_STOPPING:
        res->record.has_machine = false;
        return resident_set_state(res, SANDBOX_STATE_STOPPED, NULL, RECORD_SURVIVES_HOST, e);
    case SANDBOX_STATE_RESUMING:
        res->record.has_machine = false;
        return resident_set_state(res, SANDBOX_STATE_FAILED, "the start was interrupted", RECORD_SURVIVES_PROCESS, e);
    default:
        res->record.has_machine = false;
        return 0;
    }
}

static int recover_record(struct node *node, const char *file, struct err *e)
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
        log_error(NULL, "the record of sandbox %s is damaged; it is kept and nothing of it is touched", id);
        return 0;
    }
    if (r < 0) {
        return err_wrap(e, r, "reading the record of sandbox %s", id);
    }
    r = resident_add(node, &rec, &res, e);
    record_done(&rec);
    return r < 0 ? r : recover_one(res, e);
}

static int recover_records(struct node *node, struct err *e)
{
    CLEANUP(names_done) struct names list = {0};
    int r = list_names(node->records_fd, &list);

    if (r < 0) {
        return err_wrap(e, r, "listing the records");
    }
    for (size_t i = 0; i < list.n && r == 0; i++) {
        r = recover_record(node, list.names[i], e);
    }
    return r;
}

/* ---- what has no record ---- */

static bool machine_is_known(struct node *node, const char *id)
{
    bool known = false;

    for (struct resident *res = resident_next_take(node, NULL); res; res = resident_next_take(node, res)) {
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

static int sweep_half_made(int dir_fd, const char *prefix, bool (*keep)(struct node *, const char *),
                           struct node *node)
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

int recover_node(struct node *node, struct err *e)
{
    int r = recover_records(node, e);

    if (r == 0) {
        r = sweep_machines(node, e);
    }
    if (r == 0) {
        r = sweep_subvolumes(node, e);
    }
    if (r < 0) {
        return r;
    }
    r = sweep_half_made(node->machines_fd, "new-", NULL, node);
    if (r == 0) {
        r = sweep_run_dir(node);
    }
    return r < 0 ? err_wrap(e, r, "removing what was half made") : 0;
}
