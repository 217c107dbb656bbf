/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/machine.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/sock.h"
#include "machine/qmp.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct machine {
    struct machine_host host; /* what it points to lives longer */
    struct machine_record record;
    int pidfd;          /* owned */
    struct qmp *qmp;    /* owned */
    char *channel_path; /* owned */
    char *qmp_path;     /* owned */
};

static struct machine *machine_new(const struct machine_host *host, const char *id)
{
    struct machine *m = xnew(struct machine);

    m->host = *host;
    m->pidfd = FD_NONE;
    snprintf(m->record.id, sizeof(m->record.id), "%s", id);
    m->channel_path = xasprintf("%s/m/%s/channel", host->run_dir, id);
    m->qmp_path = xasprintf("%s/m/%s/qmp", host->run_dir, id);
    m->qmp = qmp_new(m->qmp_path);
    return m;
}

void machine_forget(struct machine *m)
{
    if (!m) {
        return;
    }
    qmp_free(m->qmp);
    fd_close(m->pidfd);
    free(m->channel_path);
    free(m->qmp_path);
    free(m);
}

static void remove_sockets(struct machine *m)
{
    cleanup_free char *dir = xasprintf("%s/m/%s", m->host.run_dir, m->record.id);
    int r = fs_remove_tree(AT_FDCWD, dir);

    if (r < 0) {
        log_warn(NULL, "cannot remove '%s', ignoring: %s", dir, strerror(-r));
    }
}

int machine_kill(struct machine *m, struct err *e)
{
    int r = priv_machine_kill(m->host.priv, m->record.id, e);

    return r < 0 ? err_wrap(e, r, "ending machine %s", m->record.id) : 0;
}

void machine_destroy(struct machine *m)
{
    struct err e = {0};

    if (!m) {
        return;
    }
    if (priv_machine_kill(m->host.priv, m->record.id, &e) < 0) {
        log_error(NULL, "cannot end machine %s: %s", m->record.id, e.msg);
    }
    remove_sockets(m);
    machine_forget(m);
}

/* The VMM accepts on sockets that we made: it has no file system to make them in. */
static int listen_for(struct machine *m, int *ret_qmp, int *ret_channel, struct err *e)
{
    cleanup_free char *dir = xasprintf("%s/m/%s", m->host.run_dir, m->record.id);
    int r = fs_mkdir_all(dir, 0700);

    if (r < 0) {
        return err_wrap(e, r, "making '%s'", dir);
    }
    r = sock_listen_unix(m->qmp_path, SOCK_STREAM, 0600, e);
    if (r < 0) {
        return r;
    }
    *ret_qmp = r;
    r = sock_listen_unix(m->channel_path, SOCK_STREAM, 0600, e);
    if (r < 0) {
        return r;
    }
    *ret_channel = r;
    return 0;
}

static int ask_for_vmm(struct machine *m, const struct machine_spec *spec, struct err *e)
{
    cleanup_close int qmp_fd = FD_NONE;
    cleanup_close int channel_fd = FD_NONE;
    struct priv_machine_start request = {
        .uid_slot = spec->slot,
        .vcpus = spec->vcpus,
        .memory_mib = spec->memory_mib,
        .flags = (spec->accel == QEMU_ACCEL_KVM ? PRIV_MACHINE_KVM : 0) |
                 (spec->base ? PRIV_MACHINE_BOOT | PRIV_MACHINE_BASE : PRIV_MACHINE_INCOMING),
    };
    struct priv_machine started;
    int fds[PRIV_FD_COUNT_];
    int r;

    r = str_copy(request.id, sizeof(request.id), spec->id);
    if (r == 0) {
        r = listen_for(m, &qmp_fd, &channel_fd, e);
    }
    if (r < 0) {
        return r;
    }
    fds[PRIV_FD_MEMORY] = spec->memory_fd;
    fds[PRIV_FD_DISK] = spec->disk_fd;
    fds[PRIV_FD_QMP] = qmp_fd;
    fds[PRIV_FD_CHANNEL] = channel_fd;
    fds[PRIV_FD_CONSOLE] = spec->console_fd;
    fds[PRIV_FD_KERNEL] = spec->kernel_fd;
    fds[PRIV_FD_INITRD] = spec->initrd_fd;
    fds[PRIV_FD_DEVICE_STATE] = spec->device_state_fd;
    fds[PRIV_FD_NET] = FD_NONE;
    r = priv_machine_start(m->host.priv, &request, fds, &started, &m->pidfd, e);
    if (r < 0) {
        return r;
    }
    m->record.pid = started.pid;
    m->record.start_time = started.start_time;
    m->record.slot = spec->slot;
    return 0;
}

int machine_start(const struct machine_host *host, const struct machine_spec *spec,
                  uint64_t deadline_ns, struct machine **ret, struct err *e)
{
    struct machine *m = machine_new(host, spec->id);
    int r = ask_for_vmm(m, spec, e);

    if (r < 0) {
        remove_sockets(m);
        machine_forget(m);
        return r;
    }
    r = spec->base || spec->deferred ? host->driver->ping(m, deadline_ns, e)
                                     : host->driver->restore(m, deadline_ns, e);
    if (r == 0) {
        r = priv_machine_seal(host->priv, spec->id, e);
    }
    if (r < 0) {
        machine_destroy(m);
        return err_wrap(e, r, "starting the VMM");
    }
    *ret = m;
    return 0;
}

int machine_restore(struct machine *m, uint64_t deadline_ns, struct err *e)
{
    int r = m->host.driver->restore(m, deadline_ns, e);

    return r < 0 ? err_wrap(e, r, "restoring the machine") : 0;
}

static int find_machine(const struct machine_host *host, const struct machine_record *record,
                        struct machine *m, struct err *e)
{
    char after[PRIV_ID_SIZE] = "";

    for (;;) {
        struct priv_machine found;
        int pidfd = FD_NONE;
        int r = priv_machine_next(host->priv, after, &found, &pidfd, e);

        if (r <= 0) {
            return r < 0 ? r : -ESRCH;
        }
        if (str_eq(found.id, record->id) && found.pid == record->pid &&
            found.start_time == record->start_time && pidfd >= 0) {
            m->pidfd = pidfd;
            return 0;
        }
        fd_close(pidfd);
        memcpy(after, found.id, sizeof(after));
    }
}

int machine_adopt(const struct machine_host *host, const struct machine_record *record,
                  struct machine **ret, struct err *e)
{
    struct machine *m = machine_new(host, record->id);
    int r;

    m->record = *record;
    r = find_machine(host, record, m, e);
    if (r == 0) {
        r = host->driver->ping(m, deadline_in_ms(10000), e);
        if (r < 0) {
            err_wrap(e, r, "talking to the VMM");
            r = -ESRCH;
        }
    }
    if (r == -ESRCH) {
        machine_destroy(m); /* whatever is left of it */
        return err_set(e, -ESRCH, "machine_lost", "the machine did not survive");
    }
    if (r < 0) {
        machine_forget(m); /* the node manager cannot tell: nothing is known, so nothing is ended */
        return err_wrap(e, r, "asking for living machines");
    }
    *ret = m;
    return 0;
}

int machine_pause(struct machine *m, uint64_t deadline_ns, struct err *e)
{
    return m->host.driver->pause(m, deadline_ns, e);
}

int machine_resume(struct machine *m, uint64_t deadline_ns, struct err *e)
{
    return m->host.driver->resume(m, deadline_ns, e);
}

int machine_resize_disk(struct machine *m, uint64_t size_bytes, uint64_t deadline_ns, struct err *e)
{
    return m->host.driver->resize_disk(m, size_bytes, deadline_ns, e);
}

int machine_save_state(struct machine *m, int fd, uint64_t deadline_ns, struct err *e)
{
    return m->host.driver->save_state(m, fd, deadline_ns, e);
}

const struct machine_record *machine_record(const struct machine *m)
{
    return &m->record;
}

int machine_pidfd(const struct machine *m)
{
    return m->pidfd;
}

bool machine_alive(const struct machine *m)
{
    return sock_wait(m->pidfd, POLLIN, 0) == -ETIMEDOUT;
}

const char *machine_channel_path(const struct machine *m)
{
    return m->channel_path;
}

struct qmp *machine_qmp(struct machine *m)
{
    return m->qmp;
}
