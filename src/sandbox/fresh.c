/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/fresh.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "sandbox/disk.h"
#include "sandbox/warm.h"

#include <fcntl.h>

/* A warm machine that does not answer leaves time for the cold way. */
#define WARM_DEADLINE_MS 15000

/* The image is cloned into the file that the waiting machine has open. */
static int from_stock(struct resident *res, const struct fresh_source *source, uint64_t deadline_ns,
                      struct err *e)
{
    bool dressed = false;
    int r =
        res->node->warm ? warm_claim(res->node->warm, res, source->dress, &dressed, e) : -ENOENT;

    if (r < 0) {
        return r;
    }
    deadline_ns = MIN(deadline_ns, deadline_in_ms(WARM_DEADLINE_MS));
    trace_mark(&res->trace, dressed ? "dressed machine claimed" : "warm machine claimed");
    if (dressed) {
        return bring_identity(res, &(struct bring_identity){true}, deadline_ns, e);
    }
    r = disk_clone_into(source->image_fd, res->disk_fd);
    trace_mark(&res->trace, "disk cloned");
    return r < 0 ? err_wrap(e, r, "cloning the disk")
                 : bring_bind(res, &source->disk, deadline_ns, e);
}

int fresh_machine(struct resident *res, const struct fresh_source *source, uint64_t deadline_ns,
                  struct err *e)
{
    const struct priv_subvol what = snapshot_subvolume(res, res->record.disk_n);
    struct err why = {0};
    int r = from_stock(res, source, deadline_ns, &why);

    if (r >= 0) {
        return r;
    }
    if (r != -ENOENT) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id},
                 "a warm machine failed, starting another: %s", why.msg);
        bring_down(res, /* e */ NULL);
        r = priv_subvol_delete(res->node->host.priv, &what, e);
        if (r < 0) {
            return r;
        }
    }
    r = source->make_disk(res, source->arg, e);
    trace_mark(&res->trace, "disk cloned");
    return r < 0 ? r : bring_from_base(res, &source->disk, deadline_ns, e);
}

int fresh_open_image(const struct node *node, const char *owner, uint32_t n, int *ret_fd,
                     struct err *e)
{
    cleanup_free char *name =
        n ? xasprintf("%s/%u/disk.img", owner, n) : xasprintf("%s/disk.img", owner);

    *ret_fd = fs_open_beneath(n ? node->snapshots_fd : node->sandboxes_fd, name, O_RDONLY, 0);
    return *ret_fd < 0 ? err_wrap(e, *ret_fd, "opening the disk of a snapshot") : 0;
}
