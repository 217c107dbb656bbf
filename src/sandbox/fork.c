/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/fork.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/bring.h"
#include "sandbox/fresh.h"
#include "sandbox/history.h"
#include "sandbox/lifecycle.h"
#include "sandbox/network.h"
#include "sandbox/restore.h"

#include <stdio.h>
#include <string.h>

#define DEADLINE_MS 120000
/* QEMU's start is work for the processor: more at once than this only makes all of them late. */
#define AT_ONCE 4

struct forking {
    struct resident *parent;
    const struct fork_wish *wish;
    const struct snapshot *from; /* borrowed: the parent's op lock is held */
    struct resident **children;
    pthread_mutex_t lock; /* guards what follows */
    size_t next;
    struct err error;           /* of the first that failed */
    struct log_request request; /* whose it is */
};

static void describe_child(const struct forking *f, size_t i, struct record *rec)
{
    const struct record *parent = &f->parent->record;
    uint8_t machine_id[16];

    *rec = *parent;
    memcpy(rec->id, f->wish->ids[i], sizeof(rec->id));
    random_bytes(machine_id, sizeof(machine_id));
    hex_encode(machine_id, sizeof(machine_id), rec->machine_id);
    rec->env = f->wish->env ? json_deep_copy(f->wish->env) : json_incref(parent->env);
    rec->network = network_policy(f->parent);
    rec->state = SANDBOX_STATE_CREATING;
    rec->reason[0] = '\0';
    rec->created_at_ms = clock_wall_ms();
    rec->has_machine = false;
    rec->wake_on_request = false;
    rec->disk_n = rec->last_n = rec->parent_n = 0;
    rec->end_at_ms = f->wish->end_at_ms;
    rec->at_end = f->wish->at_end;
    rec->paused_at_ms = 0;
    rec->durable_at_ms = 0;
    memcpy(rec->origin, parent->id, sizeof(rec->origin));
    /* The snapshot of a fork goes with it: then its life began after the one before. */
    rec->origin_n = f->wish->snapshot ? f->from->n : f->from->parent_n;
}

static int make_child_disk(struct resident *child, void *arg, struct err *e)
{
    const struct forking *f = arg;
    const struct priv_subvol_snapshot request = {.from = snapshot_subvolume(f->parent, f->from->n),
                                                 .to = snapshot_subvolume(child, 0)};
    int r = priv_subvol_snapshot(child->node->host.priv, &request, e);

    r = r == 0 && FAULT("fork.disk_cloned") ? -EIO : r;
    return r < 0 ? err_wrap(e, r, "cloning the disk") : bring_open_disk(child, e);
}

static int start_fresh(struct forking *f, struct resident *child, uint64_t deadline_ns,
                       struct err *e)
{
    cleanup_template struct template t = {.disk_fd = FD_NONE};
    struct fresh_source source = {.make_disk = make_child_disk, .arg = f};
    int r = fresh_open_image(child->node, f->parent->record.id, f->from->n, &source.image_fd, e);

    if (r < 0) {
        return r;
    }
    template_open_or_default(child->node, child->record.template_name, &t);
    source.disk = (struct bring_disk){t.default_user, t.fstype, true};
    r = fresh_machine(child, &source, deadline_ns, e);
    fd_close(source.image_fd);
    return r;
}

static int start_child(struct forking *f, struct resident *child, struct err *e)
{
    uint64_t deadline_ns = deadline_in_ms(DEADLINE_MS);
    const struct restore_source source = {.owner = f->parent->record.id,
                                          .n = f->from->n,
                                          .identity = {.new_sandbox = true, .same_disk = true},
                                          .make_disk = make_child_disk,
                                          .arg = f};

    if (f->from->kind != SNAPSHOT_FULL || snapshot_fits_node(child->node, f->from, NULL) < 0) {
        return start_fresh(f, child, deadline_ns, e);
    }
    return restore_machine(child, &source, deadline_ns, e);
}

static int make_child(struct forking *f, struct resident *child, struct err *e)
{
    int r = node_check_room(child->node, &(struct shape){0}, e);

    if (r == 0) {
        r = record_write(child->node->records_fd, &child->record, RECORD_SURVIVES_PROCESS);
    }
    if (r == 0) {
        r = start_child(f, child, e);
    }
    if (r == 0 && FAULT("fork.child_up")) {
        r = err_wrap(e, -EIO, "finishing a child");
    }
    if (r == 0) {
        history_add(child, "forked", "from sandbox %s", f->parent->record.id);
        r = resident_set_state(child, SANDBOX_STATE_RUNNING, NULL, RECORD_SURVIVES_PROCESS, e);
    }
    return r;
}

static int fork_one(struct forking *f, size_t i, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *child = NULL;
    CLEANUP(record_done) struct record rec = {0};
    int r;

    describe_child(f, i, &rec);
    r = resident_add(f->parent->node, &rec, &child, e);
    if (r == -EEXIST && resident_state(child) == SANDBOX_STATE_RUNNING) {
        f->children[i] = TAKE_PTR(child); /* an earlier attempt of the same request made it */
        return 0;
    }
    if (r < 0) {
        return r == -EEXIST
                   ? err_set(e, r, "sandbox_exists", "there is a sandbox %s already", rec.id)
                   : r;
    }
    pthread_mutex_lock(&child->op);
    trace_begin_part(&child->trace, "fork");
    /* It is in the list since a moment: a delete may have had the lock before us. */
    r = child->gone ? err_set(e, -ECANCELED, "canceled", "the child has been deleted")
                    : make_child(f, child, e);
    if (r < 0 && !child->gone) {
        IGNORE_RESULT(lifecycle_remove_all(child, NULL)); /* swept at the next start if it stays */
    }
    trace_end(&child->trace, r);
    pthread_mutex_unlock(&child->op);
    if (r == 0) {
        f->children[i] = TAKE_PTR(child);
    }
    return r;
}

static void *fork_worker(void *arg)
{
    struct forking *f = arg;

    log_request_set(&f->request);
    pthread_mutex_lock(&f->lock);
    while (f->next < f->wish->n && f->error.code == 0) {
        size_t i = f->next++;
        struct err e = {0};
        int r;

        pthread_mutex_unlock(&f->lock);
        r = fork_one(f, i, &e);
        pthread_mutex_lock(&f->lock);
        if (r < 0 && f->error.code == 0) {
            f->error = e;
        }
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static int fork_all(struct forking *f, struct err *e)
{
    pthread_t threads[AT_ONCE];
    size_t n = MIN(f->wish->n, (size_t)AT_ONCE);

    f->request = *log_request();
    for (size_t i = 0; i < n; i++) {
        ASSERT(pthread_create(&threads[i], NULL, fork_worker, f) == 0);
    }
    for (size_t i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    if (f->error.code == 0) {
        return 0;
    }
    for (size_t i = 0; i < f->wish->n; i++) {
        if (f->children[i] && lifecycle_delete(f->children[i], NULL) < 0) {
            log_error(NULL, "a failed fork leaves sandbox %s", f->wish->ids[i]);
        }
        resident_unref(TAKE_PTR(f->children[i]));
    }
    if (e) {
        *e = f->error;
    }
    return f->error.code;
}

/* A moment to fork from, and whether it was made only for that. */
static int choose_moment(struct resident *parent, const char *snapshot, struct snapshot **ret,
                         bool *ret_made, struct err *e)
{
    struct snapshot_wish wish = {.kind = parent->machine ? SNAPSHOT_FULL : SNAPSHOT_DISK,
                                 .made_by = "fork",
                                 .passing = true};
    enum sandbox_state state = resident_state(parent);

    *ret_made = false;
    if (snapshot) {
        *ret = snapshot_find(parent, snapshot);
        return *ret ? 0
                    : err_field(e, -ENOENT, "snapshot_not_found", "snapshot",
                                "the sandbox has no such snapshot");
    }
    if (parent->gone || (state != SANDBOX_STATE_RUNNING && state != SANDBOX_STATE_PAUSED &&
                         state != SANDBOX_STATE_STOPPED && state != SANDBOX_STATE_FAILED)) {
        return err_set(e, -ESTALE, "conflict", "a sandbox that is %s cannot be forked",
                       sandbox_state_name(state));
    }
    *ret_made = true;
    return snapshot_take(parent, &wish, ret, e);
}

int fork_sandbox(struct resident *parent, const struct fork_wish *wish, struct resident **ret,
                 struct err *e)
{
    struct forking f = {.parent = parent, .wish = wish, .children = ret};
    struct snapshot *from = NULL;
    bool made = false;
    int r;

    ASSERT(wish->n >= 1 && wish->n <= FORK_CHILDREN_MAX);
    memset(ret, 0, wish->n * sizeof(*ret));
    pthread_mutex_init(&f.lock, NULL);
    pthread_mutex_lock(&parent->op);
    trace_begin(&parent->trace, "fork");
    r = choose_moment(parent, wish->snapshot, &from, &made, e);
    trace_mark(&parent->trace, "moment chosen");
    if (r == 0 && FAULT("fork.moment")) {
        r = err_wrap(e, -EIO, "forking");
    }
    if (r == 0) {
        f.from = from;
        r = fork_all(&f, e);
    }
    trace_mark(&parent->trace, "children up");
    /* Children hold the memory file and the blocks by themselves: the moment is not needed any more. */
    if (made && from && snapshot_delete(parent, from, NULL) < 0) {
        log_warn(&(struct log_ctx){.sandbox = parent->record.id},
                 "the snapshot of a fork stays until the next start");
    }
    if (r == 0) {
        history_add(parent, "forked", "into %zu", wish->n);
    }
    trace_end(&parent->trace, r);
    pthread_mutex_unlock(&parent->op);
    pthread_mutex_destroy(&f.lock);
    return r;
}
