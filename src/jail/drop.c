/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"
#include "jail/jail-internal.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Above every number that is handed out, so that moving one descriptor never overwrites another. */
#define FDS_ASIDE 64
#define ERROR_FD PRIV_JAIL_FD(PRIV_FD_COUNT_)

static int jail_move_aside(int fd, int *ret)
{
    *ret = FAULT("jail.fds") ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FDS_ASIDE);
    return *ret < 0 ? -errno : 0;
}

int jail_fds(const struct jail_spec *spec, int *error_fd, struct err *e)
{
    int aside[PRIV_FD_COUNT_];
    int error_aside;
    int null_fd;
    int r;

    r = jail_move_aside(*error_fd, &error_aside);
    if (r < 0) {
        return err_wrap(e, r, "moving descriptors");
    }
    *error_fd = error_aside;
    for (size_t i = 0; i < PRIV_FD_COUNT_; i++) {
        aside[i] = FD_NONE;
        r = spec->fds[i] >= 0 ? jail_move_aside(spec->fds[i], &aside[i]) : 0;
        if (r < 0) {
            return err_wrap(e, r, "moving descriptors");
        }
    }
    null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 ||
        dup2(aside[PRIV_FD_CONSOLE], STDOUT_FILENO) < 0 ||
        dup2(aside[PRIV_FD_CONSOLE], STDERR_FILENO) < 0) {
        return err_wrap(e, -errno, "setting standard descriptors");
    }
    for (int i = 0; i < (int)PRIV_FD_COUNT_; i++) {
        if (aside[i] >= 0 && dup2(aside[i], PRIV_JAIL_FD(i)) < 0) {
            return err_wrap(e, -errno, "placing descriptors");
        }
        if (aside[i] < 0) {
            close(PRIV_JAIL_FD(i)); /* whatever the node manager had under this number */
        }
    }
    if (dup3(error_aside, ERROR_FD, O_CLOEXEC) < 0) {
        return err_wrap(e, -errno, "placing descriptors");
    }
    *error_fd = ERROR_FD;
    if (FAULT("jail.close_range") || close_range(ERROR_FD + 1, ~0u, 0) < 0) {
        return err_wrap(e, -errno, "closing all other descriptors");
    }
    return 0;
}

int jail_limits(const struct jail_spec *spec, struct err *e)
{
    const struct {
        __rlimit_resource_t what;
        rlim_t value;
    } limits[] = {
        {RLIMIT_CORE, 0},
        {RLIMIT_FSIZE, spec->file_size_max},
        {RLIMIT_NOFILE, 1024},
        {RLIMIT_NPROC, spec->threads_max + 16u}, /* a second fence: the pids cgroup is the first */
        {RLIMIT_MEMLOCK, 0},
        {RLIMIT_MSGQUEUE, 0},
        {RLIMIT_RTPRIO, 0},
        {RLIMIT_NICE, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        struct rlimit value = {.rlim_cur = limits[i].value, .rlim_max = limits[i].value};

        if (FAULT("jail.limits") || setrlimit(limits[i].what, &value) < 0) {
            return err_wrap(e, -errno, "setting resource limit %d", (int)limits[i].what);
        }
    }
    return 0;
}

/* No program, not even a set-uid one, can gain a capability in here again. */
static int jail_drop_bounding_set(struct err *e)
{
    for (unsigned long cap = 0; cap <= 63; cap++) {
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            return errno == EINVAL && cap > CAP_WAKE_ALARM /* the kernel's last one is passed */
                       ? 0
                       : err_wrap(e, -errno, "dropping capability %lu", cap);
        }
    }
    return 0;
}

int jail_identity(const struct jail_spec *spec, gid_t kvm_gid, struct err *e)
{
    const unsigned long securebits =
        SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
        SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    int r;

    if (FAULT("jail.securebits") || prctl(PR_SET_SECUREBITS, securebits, 0, 0, 0) < 0) {
        return err_wrap(e, -errno, "locking the secure bits");
    }
    r = jail_drop_bounding_set(e);
    if (r < 0) {
        return r;
    }
    if (FAULT("jail.groups") || setgroups(kvm_gid ? 1 : 0, &kvm_gid) < 0) {
        return err_wrap(e, -errno, "leaving all groups");
    }
    if (FAULT("jail.gid") || setresgid(spec->uid, spec->uid, spec->uid) < 0) {
        return err_wrap(e, -errno, "changing to group %u", spec->uid);
    }
    if (FAULT("jail.uid") || setresuid(spec->uid, spec->uid, spec->uid) < 0) {
        return err_wrap(e, -errno, "changing to user %u", spec->uid);
    }
    if (FAULT("jail.caps") || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
        syscall(SYS_capset, &header, none) < 0) {
        return err_wrap(e, -errno, "dropping all capabilities");
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return err_wrap(e, -errno, "setting no_new_privs");
    }
    return 0;
}
