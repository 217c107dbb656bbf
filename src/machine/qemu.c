/* SPDX-License-Identifier: Apache-2.0 */
/* The QEMU driver: machine.h's table over QMP (QEMU documentation, interop/qemu-qmp-ref). */
#include "base/clock.h"
#include "base/fs.h"
#include "base/proc.h"
#include "machine/machine.h"
#include "machine/qmp.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The descriptor set that save_state adds and removes again. 1 and 2 are the command line's. */
#define SAVE_FDSET 3
#define MIGRATE_POLL_NS 200000L

static int command(struct machine *m, const char *name, json_t *arguments_take,
                   uint64_t deadline_ns, struct err *e)
{
    return qmp_command_take(machine_qmp(m), name, arguments_take, FD_NONE, deadline_ns, NULL, e);
}

static int read_version(int fd, char version[static 32], struct err *e)
{
    cleanup_buf struct buf out = BUF_INIT(4096);
    unsigned major = 0;
    unsigned minor = 0;
    const char *at;
    int r = fs_read_fd(fd, &out);

    if (r < 0) {
        return err_wrap(e, r, "reading the version of QEMU");
    }
    at = strstr(buf_str(&out), "version ");
    if (!at || sscanf(at, "version %u.%u", &major, &minor) != 2) {
        return err_set(e, -ENOTSUP, NULL, "'" QEMU_PATH " --version' did not name a version");
    }
    snprintf(version, 32, "%.*s", (int)strcspn(at + 8, " \n("), at + 8);
    if (major < QEMU_VERSION_MIN_MAJOR ||
        (major == QEMU_VERSION_MIN_MAJOR && minor < QEMU_VERSION_MIN_MINOR)) {
        return err_set(e, -ENOTSUP, NULL,
                       "QEMU %s is too old: %d.%d or newer is needed (on Debian 12 from backports)",
                       version, QEMU_VERSION_MIN_MAJOR, QEMU_VERSION_MIN_MINOR);
    }
    return 0;
}

static int qemu_probe(char version[static 32], struct err *e)
{
    static const char *const argv[] = {QEMU_PATH, "--version", NULL};
    cleanup_close int read_end = FD_NONE;
    cleanup_close int write_end = FD_NONE;
    struct proc proc;
    int fds[2];
    int status;
    int r;

    if (pipe2(fds, O_CLOEXEC) < 0) {
        return err_wrap(e, -errno, "making a pipe");
    }
    read_end = fds[0];
    write_end = fds[1];
    r = proc_spawn(&(struct proc_spec){argv, NULL, FD_NONE, write_end, FD_NONE, false}, &proc, e);
    if (r < 0) {
        return r;
    }
    write_end = fd_close(write_end);
    r = read_version(read_end, version, e);
    IGNORE_RESULT(
        proc_wait(&proc, DEADLINE_NEVER, &status)); /* it has closed its output: it ends */
    return r;
}

static int qemu_ping(struct machine *m, uint64_t deadline_ns, struct err *e)
{
    return command(m, "query-status", NULL, deadline_ns, e);
}

/* 1: completed, 0: not yet. */
static int migration_state(struct machine *m, uint64_t deadline_ns, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    const char *status;
    int r =
        qmp_command_take(machine_qmp(m), "query-migrate", NULL, FD_NONE, deadline_ns, &answer, e);

    if (r < 0) {
        return r;
    }
    status = json_get_string(answer, "status", "");
    if (str_eq(status, "failed")) {
        return err_set(e, -EIO, "bad_device_state", "the VMM could not restore the device state");
    }
    return str_eq(status, "completed");
}

static int qemu_restore(struct machine *m, uint64_t deadline_ns, struct err *e)
{
    const struct timespec pause = {.tv_nsec = MIGRATE_POLL_NS};
    int r = command(m, "migrate-incoming",
                    json_pack("{s:s}", "uri", "file:" QEMU_FDSET_DEVICE_STATE), deadline_ns, e);

    while (r == 0) {
        r = migration_state(m, deadline_ns, e);
        if (r == 0 && deadline_passed(deadline_ns)) {
            return err_set(e, -ETIMEDOUT, NULL, "the VMM did not restore the device state in time");
        }
        if (r == 0) {
            nanosleep(&pause, NULL); /* banned: only polling tells */
        }
    }
    return r < 0 ? r : 0;
}

static int qemu_pause(struct machine *m, uint64_t deadline_ns, struct err *e)
{
    return command(m, "stop", NULL, deadline_ns, e);
}

static int qemu_resume(struct machine *m, uint64_t deadline_ns, struct err *e)
{
    return command(m, "cont", NULL, deadline_ns, e);
}

static int qemu_resize_disk(struct machine *m, uint64_t size_bytes, uint64_t deadline_ns,
                            struct err *e)
{
    return command(
        m, "block_resize",
        json_pack("{s:s, s:I}", "node-name", QEMU_NODE_DISK, "size", (json_int_t)size_bytes),
        deadline_ns, e);
}

static int qemu_save_state(struct machine *m, int fd, uint64_t deadline_ns, struct err *e)
{
    char name[32];
    int r = qmp_command_take(machine_qmp(m), "add-fd", json_pack("{s:i}", "fdset-id", SAVE_FDSET),
                             fd, deadline_ns, NULL, e);

    if (r < 0) {
        return r;
    }
    snprintf(name, sizeof(name), "/dev/fdset/%d", SAVE_FDSET);
    /* Generic in spite of its name: all devices, no RAM. */
    r = command(m, "xen-save-devices-state", json_pack("{s:s, s:b}", "filename", name, "live", 0),
                deadline_ns, e);
    IGNORE_RESULT(command(m, "remove-fd", json_pack("{s:i}", "fdset-id", SAVE_FDSET), deadline_ns,
                          NULL)); /* a set that stays is harmless */
    return r;
}

const struct machine_driver machine_driver_qemu = {
    .name = "qemu",
    .probe = qemu_probe,
    .restore = qemu_restore,
    .pause = qemu_pause,
    .resume = qemu_resume,
    .resize_disk = qemu_resize_disk,
    .save_state = qemu_save_state,
    .ping = qemu_ping,
};
