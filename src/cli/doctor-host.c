/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine is: kernel, devices, memory, programs. */
#include <fcntl.h>
#include <linux/kvm.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/proc.h"
#include "cli/doctor.h"

#define QEMU "/usr/bin/qemu-system-x86_64"
#define PROGRAM_MS 10000u
#define TEXT_MAX (256u * 1024)
#define GIB (1024ull * 1024 * 1024)

/* A small file as text, "" when it cannot be read. Owned by the caller. */
static char *read_text(const char *path)
{
    cleanup_buf struct buf b = BUF_INIT(TEXT_MAX);

    if (fs_read_file(AT_FDCWD, path, &b) < 0) {
        return xstrdup("");
    }
    return buf_take(&b);
}

static bool has_word(const char *text, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        bool starts = at == text || strchr(" \t\n,", at[-1]);
        bool ends = at[len] == '\0' || strchr(" \t\n,", at[len]);

        if (starts && ends) {
            return true;
        }
    }
    return false;
}

static void check_kernel(const struct doctor *d, struct finding *f)
{
    struct utsname u;
    unsigned major = 0;
    unsigned minor = 0;

    (void)d;
    uname(&u);
    sscanf(u.release, "%u.%u", &major, &minor);
    if (!str_eq(u.machine, "x86_64")) {
        finding_bad(f, DOCTOR_FAIL, "Use a machine with an x86-64 processor.",
                    "the processor is %s", u.machine);
    } else if (major < 5 || (major == 5 && minor < 14)) {
        finding_bad(f, DOCTOR_FAIL, "Install a newer kernel; Debian 12 has 6.1.",
                    "Linux %s is older than 5.14", u.release);
    } else {
        finding_ok(f, "Linux %s on %s", u.release, u.machine);
    }
}

static void check_root(const struct doctor *d, struct finding *f)
{
    (void)d;
    if (geteuid() == 0) {
        finding_ok(f, "run by root");
    } else {
        finding_bad(f, DOCTOR_WARN, "Run: sudo space doctor",
                    "not root: some checks see less, and only root can 'space up'");
    }
}

static void check_btrfs(const struct doctor *d, struct finding *f)
{
    cleanup_free char *known = read_text("/proc/filesystems");
    struct utsname u;

    (void)d;
    uname(&u);
    if (has_word(known, "btrfs")) {
        finding_ok(f, "the kernel has btrfs");
        return;
    }
    cleanup_free char *path = xasprintf("/lib/modules/%s/modules.dep", u.release);
    cleanup_free char *modules = read_text(path);

    if (strstr(modules, "/btrfs.ko")) {
        finding_ok(f, "the kernel has btrfs as a module");
    } else {
        finding_bad(f, DOCTOR_FAIL, "Run a kernel with btrfs: Debian's linux-image-amd64 has it.",
                    "the kernel has no btrfs, where sandboxes keep their disks");
    }
}

static void check_device(struct finding *f, const char *path, const char *what, const char *fix)
{
    if (access(path, F_OK) == 0) {
        finding_ok(f, "%s is there", path);
    } else {
        finding_bad(f, DOCTOR_FAIL, fix, "there is no %s, needed for %s", path, what);
    }
}

static void check_loop(const struct doctor *d, struct finding *f)
{
    (void)d;
    check_device(f, "/dev/loop-control", "the pool's file system in a file",
                 "Load the module: modprobe loop");
}

static void check_tun(const struct doctor *d, struct finding *f)
{
    (void)d;
    check_device(f, "/dev/net/tun", "the sandboxes' network", "Load the module: modprobe tun");
}

static void check_namespaces(const struct doctor *d, struct finding *f)
{
    static const char *const names[] = {"mnt", "pid", "net", "ipc", "uts"};

    (void)d;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        cleanup_free char *path = xasprintf("/proc/self/ns/%s", names[i]);

        if (access(path, F_OK) < 0) {
            finding_bad(f, DOCTOR_FAIL,
                        "Run a kernel with namespaces: every distribution's has them.",
                        "the kernel has no %s namespaces", names[i]);
            return;
        }
    }
    finding_ok(f, "mount, process, network, IPC and host name namespaces");
}

static void check_seccomp(const struct doctor *d, struct finding *f)
{
    (void)d;
    if (prctl(PR_GET_SECCOMP) >= 0) {
        finding_ok(f, "the kernel filters system calls");
    } else {
        finding_bad(f, DOCTOR_FAIL,
                    "Run a kernel with CONFIG_SECCOMP_FILTER: every distribution's has it.",
                    "the kernel has no seccomp");
    }
}

static void check_cgroups(const struct doctor *d, struct finding *f)
{
    static const char *const needed[] = {"memory", "pids", "cpu"};
    struct statfs fs;
    bool v2 = statfs("/sys/fs/cgroup", &fs) == 0 && (unsigned long)fs.f_type == CGROUP2_SUPER_MAGIC;
    cleanup_free char *v2_list = read_text("/sys/fs/cgroup/cgroup.controllers");
    cleanup_free char *mounts = read_text("/proc/mounts");

    (void)d;
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
        bool there = false;

        if (v2) {
            there = has_word(v2_list, needed[i]);
        } else {
            /* Version 1: a mount whose options name the controller. */
            for (const char *line = strstr(mounts, " cgroup "); line && !there;
                 line = strstr(line + 1, " cgroup ")) {
                cleanup_free char *options = xstrndup(line, strcspn(line, "\n"));

                there = has_word(options, needed[i]);
            }
        }
        if (!there) {
            finding_bad(f, DOCTOR_FAIL,
                        "Mount it, or in a container give it cgroups; on some machines the kernel "
                        "needs cgroup_enable=memory.",
                        "the %s controller of cgroups (version %d) is not there", needed[i],
                        v2 ? 2 : 1);
            return;
        }
    }
    finding_ok(f, "cgroups, version %d, with memory, pids and cpu", v2 ? 2 : 1);
}

/* What a program prints; NULL when it is not there or fails. */
static char *program_output(const char *const *argv)
{
    cleanup_close int out_fd = memfd_create("out", MFD_CLOEXEC);
    const struct proc_spec spec = {
        .argv = argv, .stdin_fd = FD_NONE, .stdout_fd = out_fd, .stderr_fd = out_fd};
    cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);
    struct proc proc;
    int status;

    if (out_fd < 0 || proc_spawn(&spec, &proc, /* e */ NULL) < 0) {
        return NULL;
    }
    if (proc_wait(&proc, deadline_in_ms(PROGRAM_MS), &status) < 0) {
        proc_signal(&proc, SIGKILL);
        IGNORE_RESULT(proc_wait(&proc, DEADLINE_NEVER, &status)); /* only reaped */
        return NULL;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || lseek(out_fd, 0, SEEK_SET) < 0 ||
        fs_read_fd(out_fd, &text) < 0) {
        return NULL;
    }
    return buf_take(&text);
}

static void check_qemu(const struct doctor *d, struct finding *f)
{
    static const char *const argv[] = {QEMU, "--version", NULL};
    static const char fix[] =
        "Install it: apt-get install qemu-system-x86 (on Debian 12 from bookworm-backports).";
    cleanup_free char *text = program_output(argv);
    const char *at = text ? strstr(text, "version ") : NULL;
    unsigned major = 0;
    unsigned minor = 0;

    (void)d;
    if (!at || sscanf(at, "version %u.%u", &major, &minor) != 2) {
        finding_bad(f, DOCTOR_FAIL, fix, "there is no %s that runs", QEMU);
    } else if (major < 8 || (major == 8 && minor < 2)) {
        finding_bad(f, DOCTOR_FAIL, fix, "QEMU %u.%u is older than 8.2", major, minor);
    } else {
        finding_ok(f, "QEMU %u.%u", major, minor);
    }
}

/* Tried, not looked up: modules that are built in have no name to be found under. */
static void check_network(const struct doctor *d, struct finding *f)
{
    cleanup_free char *program = xasprintf("%s/space-node-manager", d->host.libexec_dir);
    const char *const argv[] = {program, "--check-network", NULL};
    cleanup_free char *text = NULL;

    if (geteuid() != 0 || access(program, X_OK) < 0) {
        finding_ok(f, "only root can try it, once SPACE is installed");
        return;
    }
    text = program_output(argv);
    if (text && str_eq(text, "ok\n")) {
        finding_ok(f, "the kernel has nf_tables with tproxy and reject");
    } else {
        finding_bad(f, DOCTOR_FAIL,
                    "Load the modules: modprobe -a nf_tables nft_tproxy nft_reject_inet.",
                    "a sandbox's network cannot be made: %.*s",
                    text ? (int)strcspn(text, "\n") : 16, text ? text : "no word of why");
    }
}

static void check_kvm(const struct doctor *d, struct finding *f)
{
    static const char fix[] =
        "For full speed use a machine with hardware virtualisation, switched on in its firmware or "
        "hypervisor.";
    const char *accel = json_get_string(d->node, "accel", NULL);
    const char *why = json_get_string(d->node, "accel_why", "");
    cleanup_close int fd = FD_NONE;

    if (accel) {
        if (str_eq(accel, "kvm")) {
            finding_ok(f, "machines run on KVM%s%.200s", *why ? ": " : "", why);
        } else {
            finding_bad(f, DOCTOR_WARN, fix,
                        "machines are emulated in software, which is slower: %.200s", why);
        }
        return;
    }
    fd = fs_open("/dev/kvm", O_RDWR, 0);
    if (fd == -ENOENT) {
        finding_bad(f, DOCTOR_WARN, fix,
                    "there is no /dev/kvm: machines will be emulated in software, which is slower");
    } else if (fd < 0) {
        finding_bad(f, DOCTOR_WARN, "Run: sudo space doctor", "/dev/kvm cannot be opened: %s",
                    strerror(-fd));
    } else if (ioctl(fd, KVM_GET_API_VERSION, 0) != KVM_API_VERSION) {
        finding_bad(f, DOCTOR_WARN, fix,
                    "/dev/kvm does not work: machines will be emulated in software");
    } else {
        finding_ok(f, "/dev/kvm opens; whether machines run on it shows after 'space up'");
    }
}

static void check_memory(const struct doctor *d, struct finding *f)
{
    cleanup_free char *text = read_text("/proc/meminfo");
    const char *at = strstr(text, "MemAvailable:");
    unsigned long long kib = 0;
    char size[32];

    (void)d;
    if (!at || sscanf(at, "MemAvailable: %llu", &kib) != 1) {
        finding_bad(f, DOCTOR_WARN, "Mount /proc.", "the free memory cannot be told");
        return;
    }
    ui_size(kib * 1024, size, sizeof(size));
    if (kib * 1024 < GIB / 2) {
        finding_bad(f, DOCTOR_FAIL, "Free some, or add memory: a small sandbox needs 256 MiB.",
                    "only %s of memory are free", size);
    } else if (kib * 1024 < 2 * GIB) {
        finding_bad(f, DOCTOR_WARN, "Free some for more than a few sandboxes.",
                    "%s of memory are free", size);
    } else {
        finding_ok(f, "%s of memory are free", size);
    }
}

static void check_clock(const struct doctor *d, struct finding *f)
{
    struct timex tx = {0};
    time_t now = time(NULL);
    struct tm tm;

    (void)d;
    gmtime_r(&now, &tm);
    if (tm.tm_year + 1900 < 2025) {
        finding_bad(f, DOCTOR_FAIL, "Set it: date -s, or install systemd-timesyncd or chrony.",
                    "the clock says the year %d; certificates will not be valid",
                    tm.tm_year + 1900);
    } else if (adjtimex(&tx) == TIME_ERROR || tx.status & STA_UNSYNC) {
        finding_bad(f, DOCTOR_WARN,
                    "Install chrony or systemd-timesyncd, unless the hypervisor keeps it right.",
                    "nothing keeps the clock right");
    } else {
        finding_ok(f, "the clock is kept right");
    }
}

static void check_disk(const struct doctor *d, struct finding *f)
{
    cleanup_free char *path = xstrdup(d->host.state_dir);
    struct statvfs vfs;
    uint64_t bytes;
    char size[32];

    /* Before the first 'space up' the folder is not there: what it will be in. */
    while (statvfs(path, &vfs) < 0) {
        char *slash = strrchr(path, '/');

        if (errno != ENOENT || !slash || path[1] == '\0') {
            finding_bad(f, DOCTOR_FAIL, "Choose another place with --state-dir.",
                        "'%s' cannot be looked at: %s", d->host.state_dir, strerror(errno));
            return;
        }
        slash[slash == path ? 1 : 0] = '\0';
    }
    bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    ui_size(bytes, size, sizeof(size));
    if (bytes < 2 * GIB && !d->node) {
        finding_bad(f, DOCTOR_FAIL, "Make room, or choose another place with --state-dir.",
                    "only %s are free for %s", size, d->host.state_dir);
    } else if (bytes < 8 * GIB && !d->node) {
        finding_bad(f, DOCTOR_WARN, "Make room for templates and more than a few sandboxes.",
                    "%s are free for %s", size, d->host.state_dir);
    } else {
        finding_ok(f, "%s are free for %s", size, d->host.state_dir);
    }
}

const struct doctor_check doctor_host_checks[] = {
    {"kernel", check_kernel},   {"root", check_root},       {"btrfs", check_btrfs},
    {"loop", check_loop},       {"tun", check_tun},         {"namespaces", check_namespaces},
    {"seccomp", check_seccomp}, {"cgroups", check_cgroups}, {"qemu", check_qemu},
    {"kvm", check_kvm},         {"memory", check_memory},   {"disk", check_disk},
    {"clock", check_clock},     {"network", check_network}, {NULL, NULL},
};
