/* SPDX-License-Identifier: Apache-2.0 */
/* The machine primitives of ipc/priv.h. State is in the cgroups and in /proc only. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/proc.h"
#include "jail/jail.h"
#include "jail/net.h"
#include "machine/qemu-args.h"
#include "privileged/fdcheck.h"
#include "privileged/ops.h"

#include <string.h>

#define MIB (1024ull * 1024)
/*
 * QEMU's own private memory: heap, stacks, device models; the disk's dirty pages are charged too.
 */
#define VMM_OVERHEAD_MIB 160u
/*
 * Under emulation also translated code (tb-size=64), its look-up structures, and soft TLBs per
 * vCPU.
 */
#define VMM_OVERHEAD_TCG_MIB 192u
#define VMM_OVERHEAD_PER_VCPU_MIB 16u
/* The main loop, RCU, up to 64 workers for the disk, migration; and the vCPUs. */
#define VMM_THREADS 96u
/* Higher than any disk that SPACE offers: a VMM gone bad cannot grow a file without end. */
#define VMM_FILE_SIZE_MAX (128ull << 30)
/*
 * Freeing a large guest's memory takes a while; a VMM that hangs in the kernel is reported, not
 * waited for.
 */
#define KILL_TIMEOUT_MS 10000

static int machine_args(const struct priv_machine_start *m, uint32_t tsc_khz, struct qemu_args *ret,
                        struct err *e)
{
    const struct qemu_args_spec spec = {
        .id = m->id,
        .accel = m->flags & PRIV_MACHINE_KVM ? QEMU_ACCEL_KVM : QEMU_ACCEL_TCG,
        .vcpus = m->vcpus,
        .memory_mib = m->memory_mib,
        .tsc_khz = tsc_khz,
        .boot = m->flags & PRIV_MACHINE_BOOT,
        .memory_path = PRIV_JAIL_PATH_MEMORY,
        .kernel_path = PRIV_JAIL_PATH_KERNEL,
        .initrd_path = PRIV_JAIL_PATH_INITRD,
        .disk_fd = PRIV_JAIL_FD(PRIV_FD_DISK),
        .qmp_fd = PRIV_JAIL_FD(PRIV_FD_QMP),
        .channel_fd = PRIV_JAIL_FD(PRIV_FD_CHANNEL),
        .net_fd = PRIV_JAIL_FD(PRIV_FD_NET),
        .device_state_fd = PRIV_JAIL_FD(PRIV_FD_DEVICE_STATE),
    };
    int r = qemu_args_build(&spec, ret);

    return r < 0 ? err_wrap(e, r, "composing the VMM's command line") : 0;
}

static struct cgroup_limits machine_limits(const struct priv_machine_start *m)
{
    uint64_t overhead_mib = VMM_OVERHEAD_MIB + (uint64_t)m->vcpus * VMM_OVERHEAD_PER_VCPU_MIB +
                            (m->flags & PRIV_MACHINE_KVM ? 0 : VMM_OVERHEAD_TCG_MIB);

    return (struct cgroup_limits){
        .memory_bytes = (m->memory_mib + overhead_mib) * MIB,
        .vcpus = m->vcpus,
        .pids = m->vcpus + VMM_THREADS,
    };
}

static int machine_must_be_free(struct priv_ctx *ctx, const struct priv_machine_start *m,
                                struct err *e)
{
    uint32_t slot;
    int r = cgroup_find(&ctx->cgroups, m->id, &slot);

    if (r == 0) {
        return err_set(e, -EEXIST, "machine_exists", "there is already a machine '%s'", m->id);
    }
    if (r != -ENOENT) {
        return err_wrap(e, r, "looking for machine '%s'", m->id);
    }
    r = cgroup_slot_used(&ctx->cgroups, m->uid_slot);
    if (r > 0) {
        return err_set(e, -EBUSY, "slot_in_use", "another machine has the user slot %u",
                       m->uid_slot);
    }
    return r < 0 ? err_wrap(e, r, "looking for user slot %u", m->uid_slot) : 0;
}

/* With the cgroups made: everything up to a running VMM. */
static int machine_launch(struct priv_ctx *ctx, const struct priv_request *req, const int *procs,
                          struct priv_answer *answer, struct err *e)
{
    const struct priv_machine_start *m = req->body;
    struct cgroup_limits limits = machine_limits(m);
    struct jail_child child = {.pidfd = FD_NONE};
    struct qemu_args args;
    struct jail_spec spec = {
        .vmm_path = ctx->vmm_path,
        .argv = (char *const *)(uintptr_t)args.argv,
        .filter = &ctx->vmm_filter,
        .uid = ctx->first_uid + m->uid_slot,
        .threads_max = limits.pids,
        .file_size_max = VMM_FILE_SIZE_MAX,
        .kvm = m->flags & PRIV_MACHINE_KVM,
    };
    uint64_t start_time;
    int r = machine_args(m, ctx->tsc_khz, &args, e);

    if (r < 0) {
        return r;
    }
    memcpy(spec.fds, req->fds, sizeof(spec.fds));
    memcpy(spec.cgroup_procs, procs, sizeof(spec.cgroup_procs));
    r = jail_start(&spec, &child, e);
    if (r < 0) {
        return r;
    }
    r = FAULT("machine.start_time") ? -EIO : proc_start_time(child.pid, &start_time);
    if (r < 0) {
        fd_close(child.pidfd); /* the caller's cgroup_destroy() ends it */
        return err_wrap(e, r, "identifying the VMM");
    }
    answer->reply.u.machine =
        (struct priv_machine){.pid = child.pid, .uid_slot = m->uid_slot, .start_time = start_time};
    memcpy(answer->reply.u.machine.id, m->id, sizeof(m->id));
    answer->fd = child.pidfd;
    return 0;
}

int machine_start_run(struct priv_ctx *ctx, const struct priv_request *req,
                      struct priv_answer *answer, struct err *e)
{
    const struct priv_machine_start *m = req->body;
    struct cgroup_limits limits = machine_limits(m);
    int procs[JAIL_CGROUPS_MAX];
    int r = ctx->fence.up ? err_set(e, -EPERM, "node_fenced",
                                    "the control plane has not been heard of: nothing starts")
                          : machine_must_be_free(ctx, m, e);

    if (r < 0) {
        return r;
    }
    r = fdcheck_machine(m, req->fds, e);
    if (r < 0) {
        return r;
    }
    r = cgroup_create(&ctx->cgroups, m->id, m->uid_slot, &limits, procs, e);
    if (r < 0) {
        return err_wrap(e, r, "starting machine '%s'", m->id);
    }
    r = machine_launch(ctx, req, procs, answer, e);
    for (size_t i = 0; i < JAIL_CGROUPS_MAX; i++) {
        fd_close(procs[i]);
    }
    if (r < 0) {
        /* What went wrong first is what the caller should read. */
        IGNORE_RESULT(cgroup_destroy(&ctx->cgroups, m->id, m->uid_slot,
                                     deadline_in_ms(KILL_TIMEOUT_MS),
                                     /* e */ NULL));
        return err_wrap(e, r, "starting machine '%s'", m->id);
    }
    return 0;
}

int machine_need(struct priv_ctx *ctx, const char *id, uint32_t *ret_slot, struct err *e)
{
    int r = cgroup_find(&ctx->cgroups, id, ret_slot);

    if (r == -ENOENT) {
        return err_set(e, r, "machine_not_found", "there is no machine '%s'", id);
    }
    return r < 0 ? err_wrap(e, r, "looking for machine '%s'", id) : 0;
}

int machine_vmm(struct priv_ctx *ctx, const char *id, uint32_t slot, pid_t *ret_pid, int *ret_pidfd,
                struct err *e)
{
    int r = cgroup_vmm(&ctx->cgroups, id, slot, ret_pid, ret_pidfd);

    return r < 0 ? err_set(e, r, "vmm_failed", "the VMM of machine '%s' has ended", id) : 0;
}

int machine_seal_run(struct priv_ctx *ctx, const struct priv_request *req,
                     struct priv_answer *answer, struct err *e)
{
    const struct priv_machine_id *m = req->body;
    cleanup_close int pidfd = FD_NONE;
    uint32_t slot;
    pid_t pid;
    int r = machine_need(ctx, m->id, &slot, e);

    (void)answer;
    if (r < 0) {
        return r;
    }
    r = machine_vmm(ctx, m->id, slot, &pid, &pidfd, e);
    if (r < 0) {
        return r;
    }
    r = jail_seal(pidfd, e);
    return r < 0 ? err_wrap(e, r, "sealing machine '%s'", m->id) : 0;
}

int machine_kill_run(struct priv_ctx *ctx, const struct priv_request *req,
                     struct priv_answer *answer, struct err *e)
{
    const struct priv_machine_id *m = req->body;
    uint32_t slot;
    int r = cgroup_find(&ctx->cgroups, m->id, &slot);

    (void)answer;
    if (r == -ENOENT) {
        return 0;
    }
    if (r < 0) {
        return err_wrap(e, r, "looking for machine '%s'", m->id);
    }
    r = copies_end(&ctx->copies, slot, deadline_in_ms(KILL_TIMEOUT_MS));
    if (r < 0) {
        return err_wrap(e, r, "ending the copies of machine '%s'", m->id);
    }
    return cgroup_destroy(&ctx->cgroups, m->id, slot, deadline_in_ms(KILL_TIMEOUT_MS), e);
}

int machine_next_run(struct priv_ctx *ctx, const struct priv_request *req,
                     struct priv_answer *answer, struct err *e)
{
    const struct priv_machine_id *after = req->body;
    struct priv_machine *found = &answer->reply.u.machine;
    cleanup_close int pidfd = FD_NONE;
    pid_t pid;
    int r = cgroup_next(&ctx->cgroups, after->id, found->id, &found->uid_slot);

    if (r <= 0) {
        return r < 0 ? err_wrap(e, r, "listing machines") : 0;
    }
    r = cgroup_vmm(&ctx->cgroups, found->id, found->uid_slot, &pid, &pidfd);
    if (r == 0) {
        r = proc_start_time(pid, &found->start_time);
    }
    if (r == 0) {
        found->pid = pid;
        answer->fd = TAKE_FD(pidfd);
    } else if (r != -ESRCH && r != -ENOENT) {
        return err_wrap(e, r, "identifying the VMM of machine '%s'", found->id);
    }
    return 1;
}

int machine_stats_run(struct priv_ctx *ctx, const struct priv_request *req,
                      struct priv_answer *answer, struct err *e)
{
    const struct priv_machine_id *m = req->body;
    uint32_t slot;
    int r = machine_need(ctx, m->id, &slot, e);

    return r < 0 ? r : cgroup_stats(&ctx->cgroups, m->id, slot, &answer->reply.u.stats, e);
}

int machine_socket_run(struct priv_ctx *ctx, const struct priv_request *req,
                       struct priv_answer *answer, struct err *e)
{
    const struct priv_machine_socket *m = req->body;
    cleanup_close int pidfd = FD_NONE;
    uint32_t slot;
    pid_t pid;
    int r = machine_need(ctx, m->id, &slot, e);

    if (r == 0) {
        r = machine_vmm(ctx, m->id, slot, &pid, &pidfd, e);
    }
    if (r < 0) {
        return r;
    }
    r = jail_net_socket(pidfd, ctx->network_fd, m->kind, &answer->fd, e);
    return r < 0 ? err_wrap(e, r, "opening a socket in the network of machine '%s'", m->id) : 0;
}
