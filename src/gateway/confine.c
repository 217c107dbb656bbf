/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/confine.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"

#define FS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FS_WRITE \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE)
/* Everything the first version of Landlock knows. */
#define FS_ALL ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)

static int allow_beneath(int ruleset_fd, const char *path, uint64_t access, struct err *e)
{
    cleanup_close int fd = fs_open(path, O_PATH, 0);
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};

    if (fd == -ENOENT) {
        return 0;
    }
    if (fd < 0) {
        return err_wrap(e, fd, "opening '%s'", path);
    }
    if (syscall(SYS_landlock_add_rule, ruleset_fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0) {
        return err_wrap(e, -errno, "allowing '%s'", path);
    }
    return 0;
}

static int confine_files(const char *state_dir, const char *const read[static CONFINE_READ_MAX],
                         struct err *e)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = FS_ALL};
    cleanup_close int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    const struct {
        const char *path;
        uint64_t access;
    } rules[] = {
        {state_dir, FS_READ | FS_WRITE},
        {"/etc/localtime",
         LANDLOCK_ACCESS_FS_READ_FILE}, /* the C library, at the first time of day */
        {"/dev/urandom",
         LANDLOCK_ACCESS_FS_READ_FILE}, /* SQLite, for the names of temporary files */
        {"/proc/self", FS_READ},        /* the C library and sanitizers */
        /* A database that is reached anew is looked up anew, and its certificate checked. */
        {"/etc/resolv.conf", LANDLOCK_ACCESS_FS_READ_FILE},
        {"/etc/hosts", LANDLOCK_ACCESS_FS_READ_FILE},
        {"/etc/nsswitch.conf", LANDLOCK_ACCESS_FS_READ_FILE},
        {"/etc/gai.conf", LANDLOCK_ACCESS_FS_READ_FILE},
        {"/run/systemd/resolve", FS_READ},
        {"/etc/ssl/certs", FS_READ},
        {"/usr/share/ca-certificates", FS_READ},
    };
    int r;

    if (fd < 0) {
        log_warn(NULL, "this kernel has no Landlock, going on without limits on files: %m");
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        r = rules[i].path ? allow_beneath(fd, rules[i].path, rules[i].access, e) : 0;
        if (r < 0) {
            return r;
        }
    }
    for (size_t i = 0; i < CONFINE_READ_MAX && read[i]; i++) {
        r = allow_beneath(fd, read[i], FS_READ, e);
        if (r < 0) {
            return r;
        }
    }
    if (syscall(SYS_landlock_restrict_self, fd, 0) < 0) {
        return err_wrap(e, -errno, "limiting files");
    }
    return 0;
}

/* One a line, with what it would be good for. */
static const struct {
    int number;
    const char *why;
} refused[] = {
    {SCMP_SYS(execve), "running programs"},
    {SCMP_SYS(execveat), "running programs"},
    {SCMP_SYS(ptrace), "other processes' memory"},
    {SCMP_SYS(process_vm_readv), "other processes' memory"},
    {SCMP_SYS(process_vm_writev), "other processes' memory"},
    {SCMP_SYS(pidfd_getfd), "other processes' descriptors"},
    {SCMP_SYS(kill), "other processes"},
    {SCMP_SYS(tkill), "other processes"},
    {SCMP_SYS(pidfd_send_signal), "other processes"},
    {SCMP_SYS(setuid), "another identity"},
    {SCMP_SYS(setgid), "another identity"},
    {SCMP_SYS(setreuid), "another identity"},
    {SCMP_SYS(setregid), "another identity"},
    {SCMP_SYS(setresuid), "another identity"},
    {SCMP_SYS(setresgid), "another identity"},
    {SCMP_SYS(setgroups), "another identity"},
    {SCMP_SYS(capset), "another identity"},
    {SCMP_SYS(unshare), "namespaces: kernel code that is rarely reached"},
    {SCMP_SYS(setns), "namespaces"},
    {SCMP_SYS(mount), "file systems"},
    {SCMP_SYS(umount2), "file systems"},
    {SCMP_SYS(move_mount), "file systems"},
    {SCMP_SYS(open_tree), "file systems"},
    {SCMP_SYS(fsopen), "file systems"},
    {SCMP_SYS(pivot_root), "file systems"},
    {SCMP_SYS(chroot), "file systems"},
    {SCMP_SYS(mknod), "device nodes"},
    {SCMP_SYS(mknodat), "device nodes"},
    {SCMP_SYS(bpf), "code in the kernel"},
    {SCMP_SYS(init_module), "code in the kernel"},
    {SCMP_SYS(finit_module), "code in the kernel"},
    {SCMP_SYS(delete_module), "code in the kernel"},
    {SCMP_SYS(kexec_load), "another kernel"},
    {SCMP_SYS(kexec_file_load), "another kernel"},
    {SCMP_SYS(reboot), "the host"},
    {SCMP_SYS(swapon), "the host"},
    {SCMP_SYS(swapoff), "the host"},
    {SCMP_SYS(settimeofday), "the host's clock"},
    {SCMP_SYS(clock_settime), "the host's clock"},
    {SCMP_SYS(adjtimex), "the host's clock"},
    {SCMP_SYS(clock_adjtime), "the host's clock"},
    {SCMP_SYS(sethostname), "the host's name"},
    {SCMP_SYS(setdomainname), "the host's name"},
    {SCMP_SYS(syslog), "the kernel's log"},
    {SCMP_SYS(perf_event_open), "kernel code that is often broken"},
    {SCMP_SYS(userfaultfd), "kernel code that exploits like"},
    {SCMP_SYS(io_uring_setup), "kernel code that exploits like"},
    {SCMP_SYS(keyctl), "kernel keys"},
    {SCMP_SYS(add_key), "kernel keys"},
    {SCMP_SYS(request_key), "kernel keys"},
    {SCMP_SYS(personality), "old ways around randomisation"},
    {SCMP_SYS(quotactl), "file systems"},
    {SCMP_SYS(acct), "the host"},
    {SCMP_SYS(ioperm), "the hardware"},
    {SCMP_SYS(iopl), "the hardware"},
};

/* Unix and internet stream sockets are what a gateway speaks; netlink is for name look-ups. */
static int refuse_sockets(scmp_filter_ctx filter)
{
    int r = 0;

    for (unsigned domain = 0; domain < AF_MAX && r == 0; domain++) {
        if (domain != AF_UNIX && domain != AF_INET && domain != AF_INET6 && domain != AF_NETLINK) {
            r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                                 SCMP_A0(SCMP_CMP_EQ, domain));
        }
    }
    return r;
}

static int confine_calls(struct err *e)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int r = filter ? 0 : -ENOMEM;

    for (size_t i = 0; i < ARRAY_SIZE(refused) && r == 0; i++) {
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), refused[i].number, 0);
        if (r == -EFAULT || r == -EDOM || r == -EINVAL) {
            r = 0; /* this architecture has no such call */
        }
    }
    if (r == 0) {
        r = refuse_sockets(filter);
    }
    if (r == 0) {
        r = seccomp_load(filter);
    }
    if (filter) {
        seccomp_release(filter);
    }
    return r < 0 ? err_wrap(e, r, "limiting system calls") : 0;
}

int confine(const char *state_dir, const char *const read[static CONFINE_READ_MAX], struct err *e)
{
    int r;

    ASSERT(state_dir);
    r = confine_files(state_dir, read, e);
    return r < 0 ? r : confine_calls(e);
}
