/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/bring.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "sandbox/base.h"
#include "sandbox/checkpoint.h"
#include "sandbox/console.h"
#include "sandbox/guest.h"
#include "sandbox/network.h"
#include "sandbox/trust.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define HOSTNAME_DIGITS 12
#define HOSTNAME_SIZE (HOSTNAME_DIGITS + 9)

int bring_open_disk(struct resident *res, struct err *e)
{
    cleanup_free char *name = res->record.disk_n
                                  ? xasprintf("%s/%u/disk.img", res->record.id, res->record.disk_n)
                                  : xasprintf("%s/disk.img", res->record.id);
    int dir_fd = res->record.disk_n ? res->node->snapshots_fd : res->node->sandboxes_fd;
    int fd = fs_open_beneath(dir_fd, name, O_RDWR, 0);

    if (fd < 0) {
        return err_wrap(e, fd, "opening the disk");
    }
    res->disk_fd = fd;
    return 0;
}

int bring_down(struct resident *res, struct err *e)
{
    struct machine *m = res->machine;
    int r = 0;

    resident_guest_shut(res);
    if (m) {
        uint32_t slot = machine_record(m)->slot;

        network_detach(res);
        r = machine_kill(m, e);
        if (r < 0) {
            return r; /* it keeps its machine, its slot and its record: nothing else may use them */
        }
        pthread_mutex_lock(&res->lock);
        res->machine = NULL;
        res->record.has_machine = false;
        pthread_mutex_unlock(&res->lock);
        memory_unlink(res->node, machine_record(m)->id);
        machine_destroy(m);
        node_slot_give(res->node, slot);
    }
    res->record.has_machine = false;
    res->disk_fd = fd_close(res->disk_fd);
    return 0;
}

static int start_vmm(struct resident *res, const struct bring_source *source, uint32_t slot,
                     uint64_t deadline_ns, struct machine **ret, struct err *e)
{
    cleanup_close int console_fd = FD_NONE;
    char id[ID_SIZE];
    struct machine_spec spec = {.id = id,
                                .slot = slot,
                                .accel = source->accel,
                                .vcpus = res->record.shape.vcpus,
                                .memory_mib = res->record.shape.memory_mib,
                                .memory_fd = source->memory_fd,
                                .disk_fd = res->disk_fd,
                                .kernel_fd = FD_NONE,
                                .initrd_fd = FD_NONE,
                                .deferred = source->deferred,
                                .device_state_fd = source->device_fd};
    int r;

    id_new(ID_MACHINE, id);
    r = memory_link(res->node, source->memory_fd, id);
    if (r < 0) {
        return err_wrap(e, r, "keeping the machine's memory file");
    }
    r = console_open(res->node, id, &console_fd, e);
    if (r == 0) {
        spec.console_fd = console_fd;
        r = FAULT("machine.start") ? err_wrap(e, -EIO, "starting the VMM")
                                   : machine_start(&res->node->host, &spec, deadline_ns, ret, e);
    }
    if (r < 0) {
        memory_unlink(res->node, id);
    }
    return r;
}

static void keep_machine(struct resident *res, struct machine *m, enum qemu_accel accel)
{
    pthread_mutex_lock(&res->lock);
    res->machine = m;
    res->record.machine = *machine_record(m);
    res->record.has_machine = true;
    res->record.accel = accel;
    res->record.started_at_ms = clock_wall_ms();
    pthread_mutex_unlock(&res->lock);
}

/*
 * A slot that the node manager says is taken has a machine that could not be ended, or whose start we never
 * heard of: it stays marked until the next start sweeps, else it would be the first choice of every create.
 */
static int start_in_slot(struct resident *res, const struct bring_source *source,
                         uint64_t deadline_ns, struct machine **ret, struct err *e)
{
    struct err why = {0};
    uint32_t slot;
    int r;

    do {
        why = (struct err){0};
        r = node_slot_take(res->node, &slot);
        if (r < 0) {
            return err_set(e, r, "node_full",
                           "this node runs as many machines as it has users for");
        }
        r = start_vmm(res, source, slot, deadline_ns, ret, &why);
    } while (r < 0 && node_slot_refused(&why) && !deadline_passed(deadline_ns));
    if (r < 0 && !node_slot_refused(&why)) {
        node_slot_give(res->node, slot);
    }
    if (r < 0 && e) {
        *e = why;
    }
    return r;
}

int bring_vmm(struct resident *res, const struct bring_source *source, uint64_t deadline_ns,
              struct err *e)
{
    struct machine *m = NULL;
    int r = start_in_slot(res, source, deadline_ns, &m, e);

    if (r < 0) {
        return r;
    }
    keep_machine(res, m, source->accel);
    trace_mark(&res->trace, source->deferred ? "VMM started" : "VMM started and restored");
    return FAULT("machine.started") ? err_wrap(e, -EIO, "starting the VMM") : 0;
}

int bring_attach(struct resident *res, struct machine *machine_take, uint64_t deadline_ns,
                 struct err *e)
{
    struct channel *ch = NULL;
    int r;

    res->machine = machine_take;
    r = channel_new(&(struct channel_options){.path = machine_channel_path(res->machine),
                                              .sandbox = res->record.id},
                    &ch, e);
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&res->lock);
    res->channel = ch;
    pthread_mutex_unlock(&res->lock);
    return channel_wait(ch, deadline_ns, e);
}

static void name_host(const struct resident *res, char ret[static HOSTNAME_SIZE])
{
    snprintf(ret, HOSTNAME_SIZE, "sandbox-%.*s", HOSTNAME_DIGITS, res->record.id);
}

int bring_let_run(struct resident *res, uint64_t deadline_ns, struct err *e)
{
    int r;

    network_attach(res); /* before its first packet */
    r = FAULT("machine.resume") ? err_wrap(e, -EIO, "letting the machine run")
                                : machine_resume(res->machine, deadline_ns, e);
    if (r == 0) {
        r = bring_attach(res, res->machine, deadline_ns, e);
    }
    trace_mark(&res->trace, "guest answers");
    return r;
}

static int set_up_guest(struct resident *res, const struct bring_disk *disk, uint64_t deadline_ns,
                        struct err *e)
{
    const struct trust_what trust = trust_get(res->node->trust, res->record.org);
    char hostname[HOSTNAME_SIZE];
    const struct guest_setup setup = {.hostname = hostname,
                                      .machine_id = res->record.machine_id,
                                      .default_user = disk->default_user,
                                      .fstype = disk->fstype,
                                      .fresh = disk->fresh,
                                      .env = res->record.env,
                                      .authority = trust.authority,
                                      .ssh_host_key = trust.ssh_host_key,
                                      .disk_bytes = (uint64_t)res->record.shape.disk_mib << 20};

    name_host(res, hostname);
    return guest_setup(res->channel, &setup, deadline_ns, e);
}

/*
 * Opened for this machine alone: VMMs that share an open file share its position and flags, and could talk to each other
 * through them.
 */
static int open_base_memory(const struct base *base, int *ret_fd, struct err *e)
{
    *ret_fd = fs_open_beneath(base->dir_fd, "memory", O_RDONLY, 0);
    return *ret_fd < 0 ? err_wrap(e, *ret_fd, "opening the base machine's memory") : 0;
}

int bring_over_base(struct resident *res, const struct base *base, int device_fd,
                    uint64_t deadline_ns, struct err *e)
{
    cleanup_close int memory_fd = FD_NONE;
    int r = open_base_memory(base, &memory_fd, e);

    return r < 0 ? r
                 : bring_vmm(res,
                             &(struct bring_source){.memory_fd = memory_fd,
                                                    .device_fd = device_fd,
                                                    .accel = base->accel,
                                                    .deferred = true},
                             deadline_ns, e);
}

int bring_waiting(struct resident *res, uint64_t deadline_ns, struct err *e)
{
    cleanup_close int memory_fd = FD_NONE;
    cleanup_close int device_fd = FD_NONE;
    struct base *base = NULL;
    int r = base_get(res->node, res->record.shape.vcpus, res->record.shape.memory_mib, &base, e);

    if (r < 0) {
        return r;
    }
    r = open_base_memory(base, &memory_fd, e);
    if (r == 0) {
        device_fd = base_open_device_state(base);
        r = device_fd < 0
                ? err_wrap(e, device_fd, "opening the base machine's device state")
                : bring_vmm(res, &(struct bring_source){memory_fd, device_fd, base->accel, false},
                            deadline_ns, e);
    }
    base_put(res->node, base); /* the machine has its own link to the memory */
    return r < 0 ? r : bring_let_run(res, deadline_ns, e);
}

/* Only with the machine running: QEMU's block nodes are inactive until a restored machine runs. */
int bring_bind(struct resident *res, const struct bring_disk *disk, uint64_t deadline_ns,
               struct err *e)
{
    int r = FAULT("machine.bind")
                ? err_wrap(e, -EIO, "binding the disk")
                : machine_resize_disk(res->machine, (uint64_t)res->record.shape.disk_mib << 20,
                                      deadline_ns, e);

    trace_mark(&res->trace, "disk resized");
    if (r == 0) {
        r = set_up_guest(res, disk, deadline_ns, e);
    }
    trace_mark(&res->trace, "guest set up");
    return r;
}

int bring_from_base(struct resident *res, const struct bring_disk *disk, uint64_t deadline_ns,
                    struct err *e)
{
    int r = bring_waiting(res, deadline_ns, e);

    return r < 0 ? r : bring_bind(res, disk, deadline_ns, e);
}

int bring_identity(struct resident *res, const struct bring_identity *identity,
                   uint64_t deadline_ns, struct err *e)
{
    char hostname[HOSTNAME_SIZE];
    const struct trust_what trust = identity->new_sandbox && !identity->same_disk
                                        ? trust_get(res->node->trust, res->record.org)
                                        : (struct trust_what){NULL, NULL};
    const struct guest_identity who = {.hostname = identity->new_sandbox ? hostname : NULL,
                                       .machine_id =
                                           identity->new_sandbox ? res->record.machine_id : NULL,
                                       .env = identity->new_sandbox ? res->record.env : NULL,
                                       .authority = trust.authority,
                                       .ssh_host_key = trust.ssh_host_key};
    int r;

    name_host(res, hostname);
    r = guest_identity(res->channel, &who, deadline_ns, e);
    trace_mark(&res->trace, "guest has its identity");
    return r;
}
