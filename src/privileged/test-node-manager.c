/* SPDX-License-Identifier: Apache-2.0 */
/* The node manager as a whole, with real namespaces and cgroups: needs root. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/sock.h"
#include "base/test.h"
#include "ipc/seqpacket.h"
#include "jail/net.h"
#include "machine/memory-copy.h"
#include "privileged/testbed.h"

#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEW_TESTBED(t_) \
    const char *why_ = NULL; \
    CLEANUP(testbed_freep) struct testbed *t_ = testbed_new(&why_); \
    if (!t_) { \
        TEST_SKIP(why_); \
    }
#define cleanup_machine CLEANUP(testbed_machine_done)

static const struct testbed_manager usual = {0};

static void print_picture(const char *title, const char *picture)
{
    printf("# %s:\n", title);
    while (picture && *picture) {
        size_t len = strcspn(picture, "\n");

        printf("#   %.*s\n", (int)len, picture);
        picture += len + (picture[len] == '\n');
    }
}

static bool same_picture(const char *before, const char *after)
{
    if (strcmp(before, after) == 0) {
        return true;
    }
    print_picture("before", before);
    print_picture("after", after);
    return false;
}

/*
 * Waits until the picture is as before: the kernel lets go of a dead process's last traces a moment
 * later.
 */
static void check_no_trace(struct testbed *t, const char *before)
{
    uint64_t deadline_ns = deadline_in_ms(5000);

    for (;;) {
        cleanup_free char *after = testbed_picture(t);

        if (strcmp(before, after) == 0) {
            return;
        }
        if (deadline_passed(deadline_ns)) {
            CHECK(same_picture(before, after));
            return;
        }
        sched_yield();
    }
}

static int raw_connection(struct testbed *t)
{
    cleanup_free char *path = xasprintf("%s/run/node-manager.sock", t->dir);

    return sock_connect_unix(path, SOCK_SEQPACKET, NULL);
}

/* Sends the bytes as one packet; true if the connection is closed without an answer. */
static bool closes_on(struct testbed *t, const void *packet, size_t len, const int *fds,
                      size_t n_fds)
{
    cleanup_close int fd = raw_connection(t);
    cleanup_fds struct seqpacket_fds in = {.max = 1};
    struct priv_reply reply;

    if (fd < 0 || seqpacket_send(fd, packet, len, fds, n_fds, deadline_in_ms(5000)) < 0) {
        return false;
    }
    return seqpacket_recv(fd, &reply, sizeof(reply), &in, deadline_in_ms(5000)) == -ECONNRESET;
}

struct kill_packet {
    struct priv_header header;
    struct priv_machine_id body;
    char more[8];
};

static void malformed_requests_close_the_connection(void)
{
    const struct kill_packet good = {.header = {PRIV_MAGIC, PRIV_VERSION, PRIV_OP_MACHINE_KILL},
                                     .body = {"s1"}};
    const size_t len = sizeof(good.header) + sizeof(good.body);
    struct kill_packet bad[] = {good, good, good, good, good, good};
    int fd = STDIN_FILENO;
    NEW_TESTBED(t)

    REQUIRE(testbed_start(t, &usual) == 0);
    CHECK(!closes_on(t, &good, len, NULL, 0));
    bad[0].header.magic++;
    bad[1].header.version++;
    bad[2].header.op = PRIV_OP_COUNT_;
    bad[3].body.id[0] = '\0';
    bad[4].body.id[1] = '/';
    bad[5].body.id[PRIV_ID_SIZE - 1] = 'x';
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (!closes_on(t, &bad[i], len, NULL, 0)) {
            TEST_FAIL("malformed request %zu was answered", i);
        }
    }
    CHECK(closes_on(t, &good, len - 1, NULL, 0));
    CHECK(closes_on(t, &good, len + 1, NULL, 0));
    CHECK(closes_on(t, &good, 3, NULL, 0));
    CHECK(closes_on(t, &good, len, &fd, 1)); /* a descriptor that it does not take */
    CHECK_INT(priv_machine_kill(t->client, "s1", NULL), 0);
}

static void another_user_is_refused(void)
{
    NEW_TESTBED(t)
    struct kill_packet good = {.header = {PRIV_MAGIC, PRIV_VERSION, PRIV_OP_MACHINE_KILL},
                               .body = {"s1"}};

    /* The manager belongs to user daemon: we, as root, are then the stranger. */
    REQUIRE(testbed_start(t, &(struct testbed_manager){.user = "daemon"}) == 0);
    CHECK(closes_on(t, &good, sizeof(good.header) + sizeof(good.body), NULL, 0));
}

static void a_machine_runs_and_goes_without_a_trace(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    cleanup_free char *before = NULL;
    struct priv_machine_stats stats;
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    CHECK_INT(priv_machine_kill(t->client, "nobody", NULL), 0);
    testbed_machine_init(t, &m, "s1", 1);
    before = testbed_picture(t);
    if (testbed_machine_start(t, &m, &e) < 0) {
        TEST_FAIL("start: %s", e.msg);
        return;
    }
    CHECK(m.machine.pid > 0 && m.machine.start_time > 0);
    CHECK_INT(m.machine.uid_slot, t->slot + 1);
    CHECK_INT(testbed_machine_start(t, &m, &e), -EEXIST);
    CHECK_STR(e.reason, "machine_exists");
    CHECK_INT(priv_machine_stats(t->client, "s1", &stats, &e), 0);
    CHECK(stats.memory_limit_bytes > 32u << 20 && stats.pids >= 1);
    CHECK_INT(priv_machine_stats(t->client, "s2", &stats, &e), -ENOENT);
    CHECK_STR(e.reason, "machine_not_found");
    CHECK_INT(priv_machine_kill(t->client, "s1", &e), 0);
    CHECK(testbed_ended(&m, deadline_in_ms(5000)));
    check_no_trace(t, before);
}

static void two_machines_never_share_a_user(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine a = {0};
    cleanup_machine struct testbed_machine b = {0};
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &a, "s1", 1);
    testbed_machine_init(t, &b, "s2", 1);
    REQUIRE(testbed_machine_start(t, &a, &e) == 0);
    CHECK_INT(testbed_machine_start(t, &b, &e), -EBUSY);
    CHECK_STR(e.reason, "slot_in_use");
    b.request.uid_slot++;
    CHECK_INT(testbed_machine_start(t, &b, &e), 0);
}

/* One descriptor at a time is replaced by a wrong one. */
static void wrong_descriptors_are_refused(void)
{
    static const struct {
        enum priv_fd which;
        const char *path;
        int flags;
    } wrong[] = {
        {PRIV_FD_MEMORY, "memory", O_RDWR},
        {PRIV_FD_MEMORY, "disk", O_RDONLY},
        {PRIV_FD_MEMORY, "state", O_RDONLY},
        {PRIV_FD_MEMORY, "memory", O_PATH},
        {PRIV_FD_DISK, "disk", O_RDONLY},
        {PRIV_FD_DISK, "disk", O_RDWR | O_APPEND},
        {PRIV_FD_DISK, "/dev/null", O_RDWR},
        {PRIV_FD_QMP, "disk", O_RDWR},
        {PRIV_FD_CHANNEL, "/dev/null", O_RDWR},
        {PRIV_FD_CONSOLE, "console", O_RDWR},
        {PRIV_FD_CONSOLE, "/dev/null", O_WRONLY},
        {PRIV_FD_DEVICE_STATE, "state", O_RDONLY | O_DIRECTORY},
        {PRIV_FD_DEVICE_STATE, "/dev/zero", O_RDONLY},
    };
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    cleanup_free char *before = NULL;
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    CHECK_INT(priv_machine_kill(t->client, "nobody", NULL), 0);
    before = testbed_picture(t);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        cleanup_free char *path = wrong[i].path[0] == '/'
                                      ? xstrdup(wrong[i].path)
                                      : xasprintf("%s/%s", t->dir, wrong[i].path);
        int good = m.fds[wrong[i].which];
        int r;

        m.fds[wrong[i].which] = open(path, wrong[i].flags | O_CLOEXEC);
        REQUIRE(m.fds[wrong[i].which] >= 0);
        r = testbed_machine_start(t, &m, &e);
        if (r != -EINVAL || strcmp(e.reason, "bad_descriptor") != 0) {
            TEST_FAIL("wrong descriptor %zu: %d %s", i, r, e.msg);
        }
        close(m.fds[wrong[i].which]);
        m.fds[wrong[i].which] = good;
    }
    m.request.memory_mib = 64; /* the file has 32 */
    CHECK_INT(testbed_machine_start(t, &m, &e), -EINVAL);
    CHECK_STR(e.reason, "bad_descriptor");
    check_no_trace(t, before);
}

static void memory_file_of_wrong_mode_is_refused(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    REQUIRE(fchmod(m.fds[PRIV_FD_MEMORY], 0440) == 0);
    CHECK_INT(testbed_machine_start(t, &m, &e), -EINVAL);
    REQUIRE(fchmod(m.fds[PRIV_FD_MEMORY], 0666) == 0);
    CHECK_INT(testbed_machine_start(t, &m, &e), -EINVAL);
    REQUIRE(fchmod(m.fds[PRIV_FD_MEMORY], 0444) == 0);
    CHECK_INT(testbed_machine_start(t, &m, &e), 0);
}

#define CHECK_ASK(m_, want_, ...) CHECK_STR(testbed_ask((m_), __VA_ARGS__), (want_))

static void the_jail_has_no_privilege(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    cleanup_free char *want = NULL;
    cleanup_free char *path = NULL;
    cleanup_buf struct buf status = BUF_INIT(65536);
    struct err e = {0};
    uid_t uid;

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    uid = TESTBED_FIRST_UID + t->slot + 1;
    want = xasprintf("%u %u %u %u %u %u 1", uid, uid, uid, uid, uid, uid);
    CHECK_ASK(&m, want, "ids");
    CHECK_ASK(&m, "0 0 0 0", "caps");
    path = xasprintf("/proc/%d/status", m.machine.pid);
    REQUIRE(fs_read_file(AT_FDCWD, path, &status) == 0);
    CHECK(strstr(buf_str(&status), "\nNoNewPrivs:\t1\n"));
    CHECK(strstr(buf_str(&status), "\nSeccomp:\t2\n"));
    CHECK(strstr(buf_str(&status), "\nGroups:\t \n"));
    CHECK(strstr(buf_str(&status), "\nCapAmb:\t0000000000000000\n"));
    CHECK_ASK(&m, "0 0", "limit 4"); /* core */
    CHECK_ASK(&m, "1024 1024", "limit 7");
    CHECK_ASK(&m, "0 1 2 3 4 5 6 7 10 11 ", "fds");
}

static void the_jail_sees_little_and_nothing_once_sealed(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    cleanup_free char *mountinfo = NULL;
    cleanup_buf struct buf mounts = BUF_INIT(65536);
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    CHECK_ASK(&m, "M", "memory");
    CHECK_ASK(&m, "errno 13", "open /memory %d", O_RDWR);
    CHECK_ASK(&m, "ok", "write %d x", PRIV_JAIL_FD(PRIV_FD_DISK));
    CHECK_ASK(&m, "errno 9", "write %d x", PRIV_JAIL_FD(PRIV_FD_MEMORY));
    CHECK_ASK(&m, "1 self thread-self ", "ls /proc");
    CHECK_ASK(&m, "errno 2", "ls /home");
    CHECK_ASK(&m, "errno 2", "open /etc/passwd 0");
    CHECK_ASK(&m, "errno 30", "open /x %d", O_CREAT | O_WRONLY);
    CHECK_ASK(&m, "errno 30", "open /dev/x %d", O_CREAT | O_WRONLY);
    CHECK_ASK(&m, "null urandom ", "ls /dev");

    CHECK_INT(priv_machine_seal(t->client, "s1", &e), 0);
    CHECK_ASK(&m, "", "ls /");
    CHECK_ASK(&m, "", "ls .");
    CHECK_ASK(&m, "errno 30", "open /x %d", O_CREAT | O_WRONLY);
    CHECK_ASK(&m, "errno 2", "open /memory 0");
    CHECK_ASK(&m, "errno 2", "open /proc/self/fd/3 0");
    CHECK_ASK(&m, "ok", "write %d x", PRIV_JAIL_FD(PRIV_FD_DISK));
    CHECK_INT(priv_machine_seal(t->client, "s1", &e), 0); /* again */
    mountinfo = xasprintf("/proc/%d/mountinfo", m.machine.pid);
    REQUIRE(fs_read_file(AT_FDCWD, mountinfo, &mounts) == 0);
    CHECK(strchr(buf_str(&mounts), '\n') == strrchr(buf_str(&mounts), '\n')); /* one mount */
    CHECK(strstr(buf_str(&mounts), " / / ro,nosuid,nodev,noexec"));
    CHECK_INT(priv_machine_seal(t->client, "s2", &e), -ENOENT);
}

/* In a child: the machine's network namespace has its tap, a loopback interface, and nothing else. */
static int network_is_an_island(pid_t pid)
{
    cleanup_free char *path = xasprintf("/proc/%d/ns/net", (int)pid);
    cleanup_close int ns_fd = open(path, O_RDONLY | O_CLOEXEC);
    struct sockaddr_in out = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {0x01010101}};
    cleanup_close int fd = FD_NONE;
    struct if_nameindex *names;
    bool known = true;
    int n = 0;

    if (ns_fd < 0 || setns(ns_fd, CLONE_NEWNET) < 0) {
        return 1;
    }
    names = if_nameindex();
    while (names && names[n].if_index) {
        known = known && (str_eq(names[n].if_name, "lo") || str_eq(names[n].if_name, JAIL_NET_TAP));
        n++;
    }
    if_freenameindex(names);
    if (n != 2 || !known) {
        return 2;
    }
    /* Nothing that begins in there leaves: the address is local, and the output rules want a port. */
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&out, sizeof(out)) < 0 || send(fd, "x", 1, 0) != -1) {
        return 3;
    }
    return errno == EPERM ? 0 : 4;
}

static void the_jail_is_an_island(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    struct err e = {0};
    int status = 0;
    pid_t pid;

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    pid = fork();
    if (pid == 0) {
        _exit(network_is_an_island(m.machine.pid));
    }
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK_INT(WEXITSTATUS(status), 0);
}

/* The third field of /proc/PID/stat. */
static char process_state(pid_t pid)
{
    cleanup_free char *path = xasprintf("/proc/%d/stat", (int)pid);
    cleanup_buf struct buf text = BUF_INIT(4096);
    const char *end;

    if (fs_read_file(AT_FDCWD, path, &text) < 0) {
        return '?';
    }
    end = strrchr(buf_str(&text), ')');
    return end ? end[2] : '?';
}

static bool stands_still(pid_t pid, bool wanted)
{
    uint64_t deadline_ns = deadline_in_ms(10000);

    while ((process_state(pid) == 'T') != wanted && !deadline_passed(deadline_ns)) {
        sched_yield();
    }
    return process_state(pid) == 'T';
}

static uint64_t boottime_in_ms(uint64_t ms)
{
    return clock_boot_ns() + ms * NS_PER_MS;
}

static void a_lease_that_is_over_stops_all_machines(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    cleanup_machine struct testbed_machine second = {0};
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    testbed_machine_init(t, &second, "s2", 2);
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    CHECK_INT(priv_lease(t->client, &(struct priv_lease){.until_ns = 1}, &e), 1);
    CHECK(stands_still(m.machine.pid, true));
    CHECK_INT(testbed_machine_start(t, &second, &e), -EPERM);
    CHECK_STR(e.reason, "node_fenced");

    CHECK_INT(priv_lease(t->client, &(struct priv_lease){.until_ns = boottime_in_ms(60000)}, &e),
              0);
    CHECK(!stands_still(m.machine.pid, false));
    CHECK_ASK(&m, "0 0 0 0", "caps"); /* it answers */
    REQUIRE(testbed_machine_start(t, &second, &e) == 0);

    /* Nobody says anything any more. */
    CHECK_INT(priv_lease(t->client, &(struct priv_lease){.until_ns = boottime_in_ms(100)}, &e), 0);
    CHECK(stands_still(m.machine.pid, true) && stands_still(second.machine.pid, true));
    CHECK_INT(priv_machine_kill(t->client, "s2", &e), 0); /* the control plane ends what is left */
    CHECK_INT(priv_lease(t->client, &(struct priv_lease){.until_ns = 0}, &e), 0);
    CHECK(!stands_still(m.machine.pid, false));
}

static void who_does_not_know_the_lease_takes_it_for_over(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    const struct priv_lease if_unknown = {.flags = PRIV_LEASE_IF_UNKNOWN};
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    CHECK_INT(priv_lease(t->client, &(struct priv_lease){.until_ns = boottime_in_ms(60000)}, &e),
              0);
    CHECK_INT(priv_lease(t->client, &if_unknown, &e), 0); /* it does know */
    CHECK(!stands_still(m.machine.pid, false));
    testbed_stop(t, SIGKILL);
    REQUIRE(testbed_start(t, &usual) == 0);
    CHECK(!stands_still(m.machine.pid, false)); /* nobody has said that there are leases */
    CHECK_INT(priv_lease(t->client, &if_unknown, &e), 1);
    CHECK(stands_still(m.machine.pid, true));
}

static int int_option(int fd, int level, int option)
{
    int value = -1;
    socklen_t len = sizeof(value);

    return getsockopt(fd, level, option, &value, &len) < 0 ? -1 : value;
}

static void sockets_of_a_machine_can_be_had_again_and_again(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    struct err e = {0};
    int fd = FD_NONE;

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    CHECK_INT(priv_machine_socket(t->client, "s1", PRIV_SOCKET_TCP, &fd, &e), -ENOENT);
    CHECK_STR(e.reason, "machine_not_found");
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    for (int i = 0; i < 2; i++) { /* the second time beside the first */
        cleanup_close int tcp_fd = FD_NONE;
        cleanup_close int dns_fd = FD_NONE;
        cleanup_close int again_fd = FD_NONE;

        CHECK_INT(priv_machine_socket(t->client, "s1", PRIV_SOCKET_TCP, &tcp_fd, &e), 0);
        CHECK_INT(priv_machine_socket(t->client, "s1", PRIV_SOCKET_TCP, &again_fd, &e), 0);
        CHECK_INT(priv_machine_socket(t->client, "s1", PRIV_SOCKET_DNS, &dns_fd, &e), 0);
        CHECK_INT(int_option(tcp_fd, SOL_SOCKET, SO_ACCEPTCONN), 1);
        CHECK_INT(int_option(tcp_fd, SOL_IP, IP_TRANSPARENT), 1);
        CHECK_INT(int_option(dns_fd, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
        CHECK_INT(int_option(dns_fd, SOL_IP, IP_PKTINFO), 1);
    }
    CHECK_INT(priv_machine_kill(t->client, "s1", &e), 0);
    CHECK_INT(priv_machine_socket(t->client, "s1", PRIV_SOCKET_DNS, &fd, &e), -ENOENT);
}

static void forbidden_calls_end_the_process(void)
{
    static const struct {
        const char *name;
        const char *call; /* number and arguments */
    } calls[] = {
        {"socket", "41 2 1"},
        {"unshare", "272 268435456"},
        {"ptrace", "101 0"},
        {"mount", "165 0"},
        {"fork", "57"},
        {"clone as fork", "56 17"},
        {"setns", "308 0"},
        {"bpf", "321 0"},
        {"keyctl", "250 0"},
        {"perf_event_open", "298 0"},
        {"userfaultfd", "323 0"},
        {"chroot", "161 0"},
        {"connect", "42 0"},
        {"open_tree", "428 0"},
        {"prctl dumpable", "157 4"},
        {"setuid", "105 0"},
        {"ioctl TIOCSTI", "16 0 21522"},
        {"process_vm_readv", "310 1"},
        {"pidfd_open", "434 1"},
    };
    NEW_TESTBED(t)
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        cleanup_machine struct testbed_machine m = {0};
        cleanup_free char *answer = NULL;

        testbed_machine_init(t, &m, "s1", 1);
        REQUIRE(testbed_machine_start(t, &m, &e) == 0);
        answer = xstrdup(testbed_ask(&m, "call %s", calls[i].call));
        if (answer[0] || !testbed_ended(&m, deadline_in_ms(5000))) {
            TEST_FAIL("%s was answered: '%s'", calls[i].name, answer);
        }
        CHECK_INT(priv_machine_kill(t->client, "s1", &e), 0);
    }
}

static void refused_calls_fail_but_do_not_kill(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    CHECK_ASK(&m, "errno 38", "call %d", (int)SYS_io_uring_setup);
    CHECK_ASK(&m, "errno 38", "call %d", (int)SYS_clone3);
}

static void limits_are_in_place_and_hold(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    cleanup_free char *group = NULL;
    cleanup_free char *procs = NULL;
    cleanup_free char *want = NULL;
    struct priv_machine_stats stats = {0};
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    group = xasprintf("s1-%u", m.request.uid_slot);
    procs = testbed_cgroup_file(t, "cpu", group, "cgroup.procs");
    want = xasprintf("%d\n", m.machine.pid);
    CHECK_STR(procs, want);
    if (testbed_cgroup_v2()) {
        cleanup_free char *cpu = testbed_cgroup_file(t, "cpu", group, "cpu.max");

        CHECK_STR(cpu, "120000 100000\n");
    } else {
        cleanup_free char *cpu = testbed_cgroup_file(t, "cpu", group, "cpu.cfs_quota_us");

        CHECK_STR(cpu, "120000\n");
    }
    /* 97 processes and threads are allowed; one is the probe's first. */
    CHECK_ASK(&m, "96", "threads");
    CHECK_ASK(&m, "ok", "eat 16");
    CHECK_INT(priv_machine_stats(t->client, "s1", &stats, &e), 0);
    CHECK_INT(stats.pids, 97);
    CHECK(stats.memory_anon_bytes >= 16u << 20);
    CHECK_INT(stats.memory_limit_bytes, (32ull + 160 + 16 + 192) << 20);
    CHECK_ASK(&m, "", "eat 600"); /* more than the machine may have: it dies, alone */
    CHECK(testbed_ended(&m, deadline_in_ms(10000)));
    CHECK_INT(priv_machine_stats(t->client, "s1", &stats, &e), 0);
    CHECK(stats.oom_kills >= 1);
}

static void a_machine_that_ended_is_listed_until_killed(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    struct priv_machine found;
    struct err e = {0};
    int pidfd = FD_NONE;

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    REQUIRE(kill(m.machine.pid, SIGKILL) == 0);
    CHECK(testbed_ended(&m, deadline_in_ms(5000)));
    CHECK_INT(priv_machine_next(t->client, "", &found, &pidfd, &e), 1);
    CHECK_INT(found.pid, 0);
    CHECK_INT(pidfd, FD_NONE);
    CHECK_INT(priv_machine_seal(t->client, "s1", &e), -ESRCH);
    CHECK_INT(priv_machine_kill(t->client, "s1", &e), 0);
    CHECK_INT(priv_machine_next(t->client, "", &found, &pidfd, &e), 0);
}

static void machines_outlive_the_node_manager(void)
{
    NEW_TESTBED(t)
    struct testbed_machine m[3] = {0};
    static const char *const ids[] = {"s3", "s1", "s2"};
    char after[PRIV_ID_SIZE] = "";
    struct priv_machine found;
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    for (unsigned i = 0; i < 3; i++) {
        testbed_machine_init(t, &m[i], ids[i], i);
        REQUIRE(testbed_machine_start(t, &m[i], &e) == 0);
    }
    testbed_stop(t, SIGKILL);
    CHECK(!testbed_ended(&m[0], deadline_in_ms(1)));
    REQUIRE(testbed_start(t, &usual) == 0);
    for (unsigned n = 1; n <= 3; n++) {
        cleanup_free char *want = xasprintf("s%u", n);
        struct testbed_machine *same = &m[n == 3 ? 0 : n];
        cleanup_close int pidfd = FD_NONE;

        CHECK_INT(priv_machine_next(t->client, after, &found, &pidfd, &e), 1);
        CHECK_STR(found.id, want);
        CHECK(found.pid == same->machine.pid && found.start_time == same->machine.start_time);
        CHECK_INT(found.uid_slot, same->request.uid_slot);
        CHECK(pidfd >= 0);
        memcpy(after, found.id, sizeof(after));
    }
    CHECK_INT(priv_machine_next(t->client, after, &found, &(int){FD_NONE}, &e), 0);
    CHECK_ASK(&m[1], "0 0 0 0", "caps"); /* it answers still */
    CHECK_INT(priv_machine_seal(t->client, "s1", &e), 0);
    CHECK_ASK(&m[1], "", "ls /");
    for (unsigned i = 0; i < 3; i++) {
        CHECK_INT(priv_machine_kill(t->client, ids[i], &e), 0);
        CHECK(testbed_ended(&m[i], deadline_in_ms(5000)));
        testbed_machine_done(&m[i]);
    }
}

/*
 * A start that fails at each step in turn leaves no trace, and the next one on the same slot
 * succeeds.
 */
static void a_failed_start_leaves_nothing(void)
{
    NEW_TESTBED(t)
    int failed = 0;

    for (int n = 1; n < 200; n++) {
        cleanup_machine struct testbed_machine m = {0};
        cleanup_free char *at = xasprintf("%d", n);
        cleanup_free char *before = NULL;
        struct err e = {0};
        int r;

        REQUIRE(testbed_start(t, &(struct testbed_manager){.faults = true, .fault_at = at}) == 0);
        testbed_machine_init(t, &m, "s1", 1);
        CHECK_INT(priv_machine_kill(t->client, "nobody", NULL), 0);
        before = testbed_picture(t);
        r = testbed_machine_start(t, &m, &e);
        if (r < 0) {
            failed++;
            CHECK_INT(r, -EIO);
            check_no_trace(t, before);
            r = testbed_machine_start(t, &m, &e);
        }
        if (r < 0) {
            TEST_FAIL("after a failure at point %d: %s", n, e.msg);
        }
        CHECK_INT(priv_machine_kill(t->client, "s1", &e), 0);
        check_no_trace(t, before);
        testbed_stop(t, SIGTERM);
        if (failed < n) {
            break; /* passed without a hit: that was the last point */
        }
    }
    CHECK(failed > 30);
    printf("# %d points\n", failed);
}

/* The node manager is killed at each step of a start; a new one clears up what is there. */
static void a_crash_in_a_start_is_cleared_up(void)
{
    NEW_TESTBED(t)
    cleanup_free char *before = NULL;
    int crashed = 0;
    int passed = 0;

    /* A few points lie where the child has closed all it could name us by: they pass. */
    for (int n = 1; n < 200 && passed < 25; n++) {
        cleanup_machine struct testbed_machine m = {0};
        cleanup_free char *at = xasprintf("%d", n);
        struct err e = {0};

        REQUIRE(testbed_start(t, &(struct testbed_manager){
                                     .faults = true, .fault_at = at, .fault_kill = true}) == 0);
        testbed_machine_init(t, &m, "s1", 1);
        if (testbed_machine_start(t, &m, &e) < 0) {
            crashed++;
        } else {
            passed++;
        }
        testbed_stop(t, SIGKILL);
        REQUIRE(testbed_start(t, &usual) == 0);
        CHECK_INT(priv_machine_kill(t->client, "s1", &e), 0);
        testbed_machine_done(&m);
        if (before) {
            check_no_trace(t, before);
        } else {
            before = testbed_picture(t);
        }
        testbed_stop(t, SIGTERM);
        free(TAKE_PTR(before));
    }
    CHECK(crashed > 25);
    printf("# %d crashes\n", crashed);
}

struct copying {
    int out_fd;     /* owned */
    int pages_fd;   /* owned */
    int control[2]; /* owned; the second is the copier's */
};

static void copying_done(struct copying *c)
{
    c->out_fd = fd_close(c->out_fd);
    c->pages_fd = fd_close(c->pages_fd);
    c->control[0] = fd_close(c->control[0]);
    c->control[1] = fd_close(c->control[1]);
}

/* A copier over a machine of 32 MiB whose page 5 has been written to. */
static int copying_start(struct testbed *t, struct testbed_machine *m, struct copying *c,
                         struct err *e)
{
    cleanup_free char *path = xasprintf("%s/out", t->dir);
    struct priv_copy_request request = {.id = "s1", .memory_mib = 32};
    int r;

    *c = (struct copying){.control = {FD_NONE, FD_NONE}};
    c->pages_fd = memfd_create("pages", MFD_CLOEXEC);
    c->out_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ASSERT(c->out_fd >= 0 && unlink(path) == 0 && ftruncate(c->out_fd, 32 << 20) == 0);
    ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, c->control) == 0);
    CHECK_ASK(m, "ok", "map 32 5");
    request.file_fd = c->out_fd;
    request.pages_fd = c->pages_fd;
    request.control_fd = c->control[1];
    r = priv_machine_copy(t->client, &request, e);
    c->control[1] = fd_close(c->control[1]);
    return r;
}

static void a_copier_copies_what_is_private_and_ends_with_its_machine(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    CLEANUP(copying_done) struct copying c = {FD_NONE, FD_NONE, {FD_NONE, FD_NONE}};
    cleanup_free char *before = NULL;
    struct memory_copy_answer answer = {0};
    struct priv_machine found;
    struct err e = {0};
    char byte = 0;
    int pidfd = FD_NONE;

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    CHECK_INT(priv_machine_kill(t->client, "nobody", NULL), 0);
    before = testbed_picture(t);
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    REQUIRE(copying_start(t, &m, &c, &e) == 0);
    REQUIRE(send(c.control[0], "p", 1, MSG_NOSIGNAL) == 1);
    REQUIRE(sock_wait(c.control[0], POLLIN, deadline_in_ms(10000)) == 0);
    CHECK_INT(recv(c.control[0], &answer, sizeof(answer), 0), sizeof(answer));
    CHECK_INT(answer.code, 0);
    CHECK_INT(answer.stats.private_pages, 1);
    CHECK_INT(pread(c.out_fd, &byte, 1, 5 * 4096), 1);
    CHECK_INT(byte, 'P');
    CHECK_INT(pread(c.pages_fd, &byte, 1, MEMORY_PAGES_AT), 1);
    CHECK_INT(byte, 1 << 5); /* the map says which page it is */
    /* The copier is not taken for the VMM. */
    CHECK_INT(priv_machine_next(t->client, "", &found, &pidfd, &e), 1);
    CHECK_INT(found.pid, m.machine.pid);
    fd_close(pidfd);
    CHECK_INT(priv_machine_kill(t->client, "s1", &e), 0);
    CHECK_INT(recv(c.control[0], &answer, sizeof(answer), 0), 0); /* it has ended, too */
    check_no_trace(t, before);
}

static void a_copier_ends_with_the_node_manager(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    CLEANUP(copying_done) struct copying c = {FD_NONE, FD_NONE, {FD_NONE, FD_NONE}};
    struct memory_copy_answer answer;
    struct err e = {0};

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    REQUIRE(copying_start(t, &m, &c, &e) == 0);
    testbed_stop(t, SIGKILL);
    REQUIRE(sock_wait(c.control[0], POLLIN, deadline_in_ms(10000)) == 0);
    CHECK_INT(recv(c.control[0], &answer, sizeof(answer), 0), 0);
    REQUIRE(testbed_start(t, &usual) == 0); /* for the machine, which lives */
    CHECK_INT(priv_machine_kill(t->client, "s1", &e), 0);
}

static void wrong_copies_are_refused(void)
{
    NEW_TESTBED(t)
    cleanup_machine struct testbed_machine m = {0};
    struct priv_copy_request request = {.id = "s1", .memory_mib = 32};
    struct err e = {0};
    int pair[2];

    REQUIRE(testbed_start(t, &usual) == 0);
    testbed_machine_init(t, &m, "s1", 1);
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    request.file_fd = request.pages_fd = m.fds[PRIV_FD_DISK];
    request.control_fd = pair[1];
    CHECK_INT(priv_machine_copy(t->client, &request, &e), -ENOENT);
    REQUIRE(testbed_machine_start(t, &m, &e) == 0);
    request.file_fd = m.fds[PRIV_FD_MEMORY];
    CHECK_INT(priv_machine_copy(t->client, &request, &e), -EINVAL);
    request.file_fd = m.fds[PRIV_FD_DISK];
    request.pages_fd = m.fds[PRIV_FD_MEMORY];
    CHECK_INT(priv_machine_copy(t->client, &request, &e), -EINVAL);
    request.into = true; /* then both must be for reading only */
    CHECK_INT(priv_machine_copy(t->client, &request, &e), -EINVAL);
    request.into = false;
    request.pages_fd = m.fds[PRIV_FD_DISK];
    request.control_fd = m.fds[PRIV_FD_QMP];
    CHECK_INT(priv_machine_copy(t->client, &request, &e), -EINVAL);
    CHECK_STR(e.reason, "bad_descriptor");
    CHECK_INT(kill(m.machine.pid, SIGKILL), 0);
    CHECK(testbed_ended(&m, deadline_in_ms(5000)));
    request.control_fd = pair[1];
    CHECK_INT(priv_machine_copy(t->client, &request, &e), -ESRCH);
    close(pair[0]);
    close(pair[1]);
}

static void users_of_people_are_no_machines_users(void)
{
    static const char *const wrong[] = {"0", "1000", "1879048191", "4294967295", "-5", "ten", ""};
    NEW_TESTBED(t)

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        int status;

        CHECK_INT(testbed_start(t, &(struct testbed_manager){.first_uid = wrong[i]}), -ECHILD);
        status = testbed_stop(t, SIGTERM);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
}

static void stop_is_clean(void)
{
    NEW_TESTBED(t)
    cleanup_free char *path = xasprintf("%s/run/node-manager.sock", t->dir);

    REQUIRE(testbed_start(t, &usual) == 0);
    CHECK_INT(testbed_stop(t, SIGTERM), 0);
    CHECK(access(path, F_OK) < 0);
}

TEST_MAIN(T(a_lease_that_is_over_stops_all_machines),
          T(who_does_not_know_the_lease_takes_it_for_over),
          T(malformed_requests_close_the_connection), T(another_user_is_refused),
          T(a_machine_runs_and_goes_without_a_trace), T(two_machines_never_share_a_user),
          T(wrong_descriptors_are_refused), T(memory_file_of_wrong_mode_is_refused),
          T(the_jail_has_no_privilege), T(the_jail_sees_little_and_nothing_once_sealed),
          T(the_jail_is_an_island), T(sockets_of_a_machine_can_be_had_again_and_again),
          T(forbidden_calls_end_the_process), T(refused_calls_fail_but_do_not_kill),
          T(limits_are_in_place_and_hold), T(a_machine_that_ended_is_listed_until_killed),
          T(machines_outlive_the_node_manager), T(a_failed_start_leaves_nothing),
          T(a_crash_in_a_start_is_cleared_up),
          T(a_copier_copies_what_is_private_and_ends_with_its_machine),
          T(a_copier_ends_with_the_node_manager), T(wrong_copies_are_refused),
          T(users_of_people_are_no_machines_users), T(stop_is_clean))
