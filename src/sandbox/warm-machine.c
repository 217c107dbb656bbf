/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/warm-machine.h"

#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/base.h"
#include "sandbox/bring.h"
#include "sandbox/disk.h"
#include "sandbox/guest.h"
#include "sandbox/network.h"
#include "sandbox/trust.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define START_DEADLINE_MS 120000

static int make_folder(struct resident *res, struct err *e)
{
    const struct priv_subvol what = snapshot_subvolume(res, 0);
    cleanup_free char *name = xasprintf("%s/disk.img", res->record.id);
    int r = priv_subvol_create(res->node->host.priv, &what, e);

    if (r < 0) {
        return r;
    }
    r = fs_open_beneath(res->node->sandboxes_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (r < 0) {
        return err_wrap(e, r, "making the disk of a warm machine");
    }
    res->disk_fd = r;
    return ftruncate(res->disk_fd, (off_t)((uint64_t)res->record.shape.disk_mib << 20)) < 0
               ? err_wrap(e, -errno, "sizing the disk")
               : 0;
}

static int rehearse(struct resident *res, uint64_t deadline_ns, struct err *e)
{
    cleanup_template struct template t = {.disk_fd = FD_NONE};
    const struct guest_setup setup = {.hostname = "warm",
                                      .machine_id = res->record.machine_id,
                                      .default_user = "root",
                                      .fstype = "ext4",
                                      .disk_bytes = BASE_DISK_BYTES,
                                      .fresh = true,
                                      .rehearse = true};
    int r = template_open(res->node, BASE_REHEARSAL_TEMPLATE, &t, NULL);

    if (r < 0 || t.size_bytes > BASE_DISK_BYTES) {
        return 0; /* as with base machines: slower, not wrong */
    }
    r = disk_clone_into(t.disk_fd, res->disk_fd);
    if (r == 0 && ftruncate(res->disk_fd, BASE_DISK_BYTES) < 0) {
        r = -errno;
    }
    return r < 0 ? err_wrap(e, r, "giving a warm machine a disk to rehearse with")
                 : guest_rehearse(res->channel, &setup, deadline_ns, e);
}

void warm_machine_discard(struct resident *res)
{
    const struct priv_subvol what = snapshot_subvolume(res, 0);

    bring_down(res, /* e */ NULL);
    IGNORE_RESULT(
        priv_subvol_delete(res->node->host.priv, &what, NULL)); /* swept at the next start */
    resident_unref(res);
}

static struct resident *begin(struct node *node, const struct shape *shape)
{
    struct record rec = {.shape = *shape, .machine_id = "00000000000000000000000000000000"};
    struct resident *res;

    id_new(ID_SANDBOX, rec.id);
    rec.env = json_object();
    res = resident_new_unlisted(node, &rec);
    record_done(&rec);
    return res;
}

struct resident *warm_machine_new(struct node *node, unsigned vcpus, unsigned memory_mib,
                                  struct err *e)
{
    const struct shape shape = {
        .vcpus = vcpus, .memory_mib = memory_mib, .disk_mib = BASE_DISK_BYTES >> 20};
    uint64_t deadline_ns = deadline_in_ms(START_DEADLINE_MS);
    struct resident *res = begin(node, &shape);
    int r = node_check_room(node, &shape, e);

    if (r == 0) {
        r = make_folder(res, e);
    }
    if (r == 0) {
        r = bring_waiting(res, deadline_ns, e);
    }
    if (r == 0) {
        r = rehearse(res, deadline_ns, e);
    }
    if (r < 0) {
        warm_machine_discard(TAKE_PTR(res));
    }
    return res;
}

/* ---- blank ones ---- */

static int open_device(const struct resident *res, int flags, struct err *e)
{
    cleanup_free char *name = xasprintf("%s/device", res->record.id);
    int fd = fs_open_beneath(res->node->sandboxes_fd, name, flags, 0600);

    return fd < 0 ? err_wrap(e, fd, "opening the device state of a waiting VMM") : fd;
}

int warm_machine_device(const struct resident *res, struct err *e)
{
    cleanup_free char *name = xasprintf("%s/device", res->record.id);
    int fd = open_device(res, O_WRONLY, e);

    /* The VMM has it open; in the sandbox's folder it has no business. */
    if (fd >= 0 && unlinkat(res->node->sandboxes_fd, name, 0) < 0) {
        fd_close(fd);
        return err_wrap(e, -errno, "taking the device state of a waiting VMM out of its folder");
    }
    return fd;
}

static int bring_blank(struct resident *res, struct err *e)
{
    cleanup_close int made_fd = open_device(res, O_WRONLY | O_CREAT | O_EXCL, e);
    cleanup_close int device_fd = made_fd < 0 ? made_fd : open_device(res, O_RDONLY, e);
    struct base *base = NULL;
    int r = device_fd < 0 ? device_fd
                          : base_get(res->node, res->record.shape.vcpus,
                                     res->record.shape.memory_mib, &base, e);

    if (r == 0) {
        r = bring_over_base(res, base, device_fd, deadline_in_ms(START_DEADLINE_MS), e);
        base_put(res->node, base);
    }
    return r;
}

struct resident *warm_machine_blank(struct node *node, const struct shape *shape, struct err *e)
{
    struct resident *res = begin(node, shape);
    int r = node_check_room(node, shape, e);

    if (r == 0) {
        r = make_folder(res, e);
    }
    if (r == 0) {
        r = bring_blank(res, e);
    }
    if (r < 0) {
        warm_machine_discard(TAKE_PTR(res));
    }
    return res;
}

/* ---- all kinds ---- */

int warm_machine_dress(struct resident *res, const struct template *t, unsigned disk_mib,
                       struct err *e)
{
    const struct bring_disk disk = {t->default_user, t->fstype, true};
    uint64_t deadline_ns = deadline_in_ms(START_DEADLINE_MS);
    int r = disk_clone_into(t->disk_fd, res->disk_fd);

    if (r < 0) {
        return err_wrap(e, r, "cloning template '%s'", t->name);
    }
    res->record.shape.disk_mib = disk_mib;
    trust_usual(res->node->trust, res->record.org);
    r = bring_bind(res, &disk, deadline_ns, e);
    if (r == 0) {
        r = guest_try_command(res->channel, deadline_ns, e);
    }
    /* What a create does is done once before: under emulation the second time costs a fraction. */
    return r < 0 ? r : bring_identity(res, &(struct bring_identity){true}, deadline_ns, e);
}

bool warm_machine_is_fresh(const struct resident *res)
{
    return res->machine && machine_alive(res->machine) &&
           (!res->channel || channel_is_up(res->channel)) && res->record.accel == res->node->accel;
}

/* The folder, a subvolume of its own, becomes the one that bring_open_disk() looks into. */
static int move_folder(const struct resident *from, const struct resident *to)
{
    const struct node *node = to->node;
    char name[ID_SIZE + 16];

    if (to->record.disk_n == 0) {
        return renameat(node->sandboxes_fd, from->record.id, node->sandboxes_fd, to->record.id) < 0
                   ? -errno
                   : 0;
    }
    snprintf(name, sizeof(name), "%s/%u", to->record.id, to->record.disk_n);
    return renameat(node->sandboxes_fd, from->record.id, node->snapshots_fd, name) < 0 ? -errno : 0;
}

int warm_machine_give(struct resident *from, struct resident *to, struct err *e)
{
    int r = move_folder(from, to);

    if (r < 0) {
        warm_machine_discard(from);
        return err_wrap(e, r, "taking over a warm machine's folder");
    }
    pthread_mutex_lock(&to->lock);
    to->machine = TAKE_PTR(from->machine);
    to->channel = TAKE_PTR(from->channel);
    to->disk_fd = TAKE_FD(from->disk_fd);
    to->record.machine = from->record.machine;
    to->record.has_machine = true;
    to->record.accel = from->record.accel;
    to->record.started_at_ms = clock_wall_ms();
    pthread_mutex_unlock(&to->lock);
    network_attach(to);
    resident_unref(from);
    return 0;
}
