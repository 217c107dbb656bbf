/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/past.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/bring.h"
#include "sandbox/fresh.h"
#include "sandbox/restore.h"

#include <unistd.h>

#define DEADLINE_MS 60000

static int make_disk(struct resident *next, void *arg, struct err *e)
{
    const struct past *past = arg;
    const struct priv_subvol_snapshot request = {.from = snapshot_subvolume(next, past->target->n),
                                                 .to =
                                                     snapshot_subvolume(next, next->record.disk_n)};
    int r = priv_subvol_snapshot(next->node->host.priv, &request, e);

    r = r == 0 && FAULT("rollback.disk_cloned") ? -EIO : r;
    return r < 0 ? err_wrap(e, r, "making a disk from the snapshot") : bring_open_disk(next, e);
}

static int bring_fresh(struct past *past, uint64_t deadline_ns, struct err *e)
{
    struct resident *next = past->next;
    cleanup_template struct template t = {.disk_fd = FD_NONE};
    struct fresh_source source = {.make_disk = make_disk, .arg = past};
    int r = fresh_open_image(next->node, next->record.id, past->target->n, &source.image_fd, e);

    if (r < 0) {
        return r;
    }
    template_open_or_default(next->node, next->record.template_name, &t);
    source.disk = (struct bring_disk){t.default_user, t.fstype, true};
    r = fresh_machine(next, &source, deadline_ns, e);
    fd_close(source.image_fd);
    return r;
}

static int bring_memory(struct past *past, uint64_t deadline_ns, struct err *e)
{
    struct resident *next = past->next;
    const struct restore_source source = {
        .owner = next->record.id, .n = past->target->n, .make_disk = make_disk, .arg = past};

    return restore_machine(next, &source, deadline_ns, e);
}

static void *past_main(void *arg)
{
    struct past *past = arg;
    uint64_t deadline_ns = deadline_in_ms(DEADLINE_MS);
    struct err *e = &past->error;

    log_request_set(&past->request);
    past->cold = past->target->kind != SNAPSHOT_FULL ||
                 snapshot_fits_node(past->next->node, past->target, &past->why_cold) < 0;
    past->result =
        past->cold ? bring_fresh(past, deadline_ns, e) : bring_memory(past, deadline_ns, e);
    /* What the guest has written while it was set up, without barriers, must be on the disk. */
    if (past->result == 0 && fdatasync(past->next->disk_fd) < 0) {
        past->result = err_wrap(e, -errno, "storing the disk");
    }
    return NULL;
}

void past_begin(struct past *past, struct resident *res, const struct snapshot *target,
                uint32_t disk_n)
{
    *past = (struct past){.target = target, .request = *log_request()};
    pthread_mutex_lock(&res->lock); /* its network policy may be changed at any time */
    past->next = resident_new_unlisted(res->node, &res->record);
    pthread_mutex_unlock(&res->lock);
    past->next->record.disk_n = disk_n;
    past->next->record.has_machine = false;
    ASSERT(pthread_create(&past->thread, NULL, past_main, past) == 0);
}

int past_wait(struct past *past, struct err *e)
{
    pthread_join(past->thread, NULL);
    if (past->result < 0 && e) {
        *e = past->error;
    }
    return past->result;
}

void past_drop(struct past *past)
{
    const struct priv_subvol disk = snapshot_subvolume(past->next, past->next->record.disk_n);
    const struct log_ctx ctx = {.sandbox = past->next->record.id};
    struct err e = {0};

    if (bring_down(past->next, &e) < 0 ||
        priv_subvol_delete(past->next->node->host.priv, &disk, &e) < 0) {
        log_warn(&ctx, "disk %u stays until the next start: %s", disk.n, e.msg);
    }
    resident_unref(TAKE_PTR(past->next));
}
