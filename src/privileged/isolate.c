/* SPDX-License-Identifier: Apache-2.0 */
#include "privileged/isolate.h"

#include "jail/filter.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int capabilities[] = {
    CAP_SYS_ADMIN,        /* namespaces, mounts, subvolumes */
    CAP_SYS_CHROOT,       /* entering a mount namespace */
    CAP_SYS_PTRACE,       /* the namespaces of a process of another user */
    CAP_SETUID,           /* the machine's user */
    CAP_SETGID,           /* the machine's group */
    CAP_SETPCAP,          /* emptying the bounding set in the jail */
    CAP_NET_ADMIN,        /* the tap, addresses and rules of a machine's own network namespace */
    CAP_NET_BIND_SERVICE, /* port 53 in there */
    CAP_KILL,             /* ending a machine */
    CAP_FOWNER,           /* copying a subvolume that belongs to the sandbox manager */
    CAP_CHOWN,            /* a new subvolume belongs to the sandbox manager */
    CAP_DAC_OVERRIDE,     /* the pool's folders belong to the sandbox manager, mode 0700 */
};

/* Beside what a VMM needs, which inherits this filter: see jail/filter.h. */
static const struct filter_rule rules[] = {
    {.name = "clone"},             /* the jail's child, in its namespaces */
    {.name = "unshare"},           /* the jail's cgroup namespace */
    {.name = "setns"},             /* into a machine's mount namespace, to seal it */
    {.name = "wait4"},             /* children */
    {.name = "waitid"},            /* children */
    {.name = "kill"},              /* a child whose set-up failed */
    {.name = "pidfd_open"},        /* to hold a process */
    {.name = "pidfd_send_signal"}, /* to end a machine */
    {.name = "setsid"},            /* the jail */
    {.name = "sethostname"},       /* the jail */
    {.name = "setrlimit"},         /* the jail */
    {.name = "prlimit64"},         /* the jail */
    {.name = "fsopen"},            /* the jail's root */
    {.name = "fsconfig"},          /* the same */
    {.name = "fsmount"},           /* the same */
    {.name = "open_tree"},         /* the same */
    {.name = "move_mount"},        /* the same */
    {.name = "mount_setattr"},     /* the same */
    {.name = "mount"},             /* the same: private propagation */
    {.name = "pivot_root"},        /* the same */
    {.name = "umount2"},           /* the same */
    {.name = "chdir"},             /* the same */
    {.name = "fchdir"},            /* the same */
    {.name = "symlinkat"},         /* the same */
    {.name = "mkdirat"},           /* the same; cgroups; the pool */
    {.name = "unlinkat"},          /* cgroups; the pool */
    {.name = "unlink"},            /* our socket */
    {.name = "fchownat"},          /* the pool */
    {.name = "setgroups"},         /* the jail's identity */
    {.name = "setresgid"},         /* the same */
    {.name = "setresuid"},         /* the same */
    {.name = "capset"},            /* the same */
    {.name = "prctl"},             /* the same */
    {.name = "seccomp"},           /* the jail's filter */
    {.name = "execve"},            /* the VMM */
    {.name = "socket"},            /* netlink and listening sockets in a machine's namespace */
    {.name = "bind"},              /* the same */
    {.name = "openat2"},           /* the pool, beneath its folders */
    {.name = "ioctl"},             /* subvolumes */
};

static bool isolate_keeps(int cap)
{
    for (size_t i = 0; i < ARRAY_SIZE(capabilities); i++) {
        if (capabilities[i] == cap) {
            return true;
        }
    }
    return false;
}

static int isolate_capabilities(struct err *e)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++) {
        if (!isolate_keeps(cap) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            return err_wrap(e, -errno, "dropping capability %d", cap);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(capabilities); i++) {
        uint32_t bit = 1u << (capabilities[i] % 32);

        data[capabilities[i] / 32].effective |= bit;
        data[capabilities[i] / 32].permitted |= bit;
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
        syscall(SYS_capset, &header, data) < 0) {
        return err_wrap(e, -errno, "keeping only the capabilities on the list (is this root?)");
    }
    return 0;
}

int isolate_self(struct err *e)
{
    const struct rlimit no_core = {0};
    struct sock_fprog program = {0};
    int r = jail_filter_build(rules, ARRAY_SIZE(rules), filter_vmm_rules, filter_vmm_n_rules,
                              &program, e);

    if (r < 0) {
        return r;
    }
    r = isolate_capabilities(e);
    if (r == 0 &&
        (setrlimit(RLIMIT_CORE, &no_core) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)) {
        r = err_wrap(e, -errno, "setting no_new_privs");
    }
    if (r == 0) {
        r = jail_filter_install(&program);
        r = r < 0 ? err_wrap(e, r, "installing the system call filter") : 0;
    }
    free(program.filter);
    return r;
}
