/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/restore.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "sandbox/base.h"
#include "sandbox/checkpoint.h"
#include "sandbox/delta.h"
#include "sandbox/disk.h"
#include "sandbox/fresh.h"
#include "sandbox/warm.h"

#include <fcntl.h>
#include <unistd.h>

#define STOCK_DEADLINE_MS 15000
#define DEVICE_STATE_MAX (4u * 1024 * 1024)

struct restoring {
    struct resident *res;
    const struct restore_source *source;
    struct checkpoint_files files;
    int pages_fd;      /* owned: of the checkpoint; FD_NONE: it must be mapped */
    struct base *base; /* owned; NULL: it must be mapped */
    uint64_t deadline_ns;
};

static void restoring_done(struct restoring *x)
{
    fd_close(x->files.memory_fd);
    fd_close(x->files.device_fd);
    fd_close(x->pages_fd);
    if (x->base) {
        base_put(x->res->node, x->base);
    }
}

/*
 * The VMM has ended over what it was to restore, or said that it cannot: -EPIPE and -ECONNRESET on its QMP socket,
 * -EIO. The files were whole as far as their sizes tell.
 */
static int vmm_refused(int r, struct err *e)
{
    struct err why = {0};

    if (!e || (r != -EPIPE && r != -ECONNRESET && r != -EIO)) {
        return r;
    }
    why = *e;
    return err_set(e, -EIO, "snapshot_damaged",
                   "the snapshot is damaged: no machine can be restored from it (%.200s); its disk "
                   "and other snapshots may be whole",
                   why.msg);
}

/* The pages that differ into the waiting VMM, then the devices; then it runs. */
static int fill_and_run(struct restoring *x, struct err *e)
{
    struct resident *res = x->res;
    int r = delta_load(res->node, res->machine, res->record.shape.memory_mib, x->files.memory_fd,
                       x->pages_fd, e);

    trace_mark(&res->trace, "pages written");
    if (r == 0) {
        r = machine_restore(res->machine, x->deadline_ns, e);
        r = r < 0 ? vmm_refused(r, e) : 0;
    }
    trace_mark(&res->trace, "devices restored");
    return r < 0 ? r : bring_let_run(res, x->deadline_ns, e);
}

/* ---- from the stock ---- */

static int clone_snapshot_disk(struct restoring *x, struct err *e)
{
    cleanup_close int image_fd = FD_NONE;
    int r = fresh_open_image(x->res->node, x->source->owner, x->source->n, &image_fd, e);

    if (r < 0) {
        return r;
    }
    r = disk_clone_into(image_fd, x->res->disk_fd);
    return r < 0 ? err_wrap(e, r, "cloning the disk") : 0;
}

/* Into the file that the VMM will read. */
static int copy_device_state(int from_fd, int to_fd, struct err *e)
{
    cleanup_buf struct buf state = BUF_INIT(DEVICE_STATE_MAX);
    int r = fs_read_fd(from_fd, &state);

    if (r == 0 && pwrite(to_fd, state.data, state.len, 0) != (ssize_t)state.len) {
        r = -errno;
    }
    return r < 0 ? err_wrap(e, r, "copying the device state") : 0;
}

static int from_stock(struct restoring *x, struct err *e)
{
    struct resident *res = x->res;
    cleanup_close int device_fd = FD_NONE;
    int r = res->node->warm ? warm_claim_blank(res->node->warm, res, &device_fd, e) : -ENOENT;

    if (r < 0) {
        return r;
    }
    trace_mark(&res->trace, "waiting VMM claimed");
    x->deadline_ns = MIN(x->deadline_ns, deadline_in_ms(STOCK_DEADLINE_MS));
    r = clone_snapshot_disk(x, e);
    if (r == 0) {
        r = copy_device_state(x->files.device_fd, device_fd, e);
    }
    trace_mark(&res->trace, "disk cloned");
    return r < 0 ? r : fill_and_run(x, e);
}

/* ---- the other ways ---- */

static int from_now_on(struct restoring *x, struct err *e)
{
    struct resident *res = x->res;
    int r = x->source->make_disk(res, x->source->arg, e);

    trace_mark(&res->trace, "disk cloned");
    if (r < 0) {
        return r;
    }
    if (x->pages_fd >= 0) {
        r = bring_over_base(res, x->base, x->files.device_fd, x->deadline_ns, e);
        return r < 0 ? r : fill_and_run(x, e);
    }
    r = bring_vmm(
        res,
        &(struct bring_source){x->files.memory_fd, x->files.device_fd, res->node->accel, false},
        x->deadline_ns, e);
    return r < 0 ? r : bring_let_run(res, x->deadline_ns, e);
}

/* Without a base machine of the shape, which takes seconds to make, the memory is mapped. */
static int look_for_delta(struct restoring *x, struct err *e)
{
    const struct record *rec = &x->res->record;
    int r = base_get(x->res->node, rec->shape.vcpus, rec->shape.memory_mib, &x->base, e);

    if (r == 0) {
        r = delta_open(x->res->node, x->source->owner, x->source->n, x->base, &x->pages_fd);
    }
    return r;
}

static int restore_somehow(struct restoring *x, struct err *e)
{
    struct resident *res = x->res;
    const struct priv_subvol what = snapshot_subvolume(res, res->record.disk_n);
    uint64_t deadline_ns = x->deadline_ns;
    struct err why = {0};
    int r = x->pages_fd >= 0 ? from_stock(x, &why) : -ENOENT;

    if (r >= 0) {
        return r;
    }
    if (r != -ENOENT) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id},
                 "a waiting VMM failed, starting another: %s", why.msg);
        bring_down(res, /* e */ NULL);
        r = priv_subvol_delete(res->node->host.priv, &what, e);
        if (r < 0) {
            return r;
        }
    }
    x->deadline_ns = deadline_ns;
    return from_now_on(x, e);
}

int restore_machine(struct resident *res, const struct restore_source *source, uint64_t deadline_ns,
                    struct err *e)
{
    CLEANUP(restoring_done)
    struct restoring x = {.res = res,
                          .source = source,
                          .files = {FD_NONE, FD_NONE},
                          .pages_fd = FD_NONE,
                          .deadline_ns = deadline_ns};
    int r = checkpoint_open(res->node, source->owner, source->n,
                            (uint64_t)res->record.shape.memory_mib << 20, &x.files, e);

    if (r < 0) {
        return r;
    }
    IGNORE_RESULT(look_for_delta(&x, NULL)); /* it is mapped then */
    r = restore_somehow(&x, e);
    return r < 0 ? r : bring_identity(res, &source->identity, deadline_ns, e);
}
