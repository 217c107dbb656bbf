/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the node manager that need no root: which requests are well formed, which
 * descriptors are right.
 */
#include "base/sock.h"
#include "base/test.h"
#include "privileged/fdcheck.h"
#include "privileged/ops.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void ids_are_lower_case_letters_and_digits(void)
{
    static const struct {
        char id[PRIV_ID_SIZE];
        bool valid;
    } cases[] = {
        {"s1", true},   {"a", true},     {"0123456789abcdefghijklm", true},
        {"", false},    {"S1", false},   {"a/b", false},
        {"..", false},  {"a b", false},  {"a-1", false},
        {"a\n", false}, {"\xff", false}, {"a\0b", false},
    };
    char unterminated[PRIV_ID_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (priv_id_valid(cases[i].id) != cases[i].valid) {
            TEST_FAIL("'%s' is judged wrongly", cases[i].id);
        }
    }
    memset(unterminated, 'a', sizeof(unterminated));
    CHECK(!priv_id_valid(unterminated));
}

#define FDS_INCOMING \
    (1u << PRIV_FD_MEMORY | 1u << PRIV_FD_DISK | 1u << PRIV_FD_QMP | 1u << PRIV_FD_CHANNEL | \
     1u << PRIV_FD_CONSOLE | 1u << PRIV_FD_DEVICE_STATE)

static const struct priv_machine_start good_start = {
    .id = "s1",
    .vcpus = 1,
    .memory_mib = 64,
    .flags = PRIV_MACHINE_INCOMING,
    .fd_mask = FDS_INCOMING,
};

static void starts_are_judged_by_every_field(void)
{
    struct priv_machine_start bad[14];
    size_t n = 0;

    CHECK(machine_start_valid(&good_start));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        bad[i] = good_start;
    }
    bad[n++].uid_slot = PRIV_MACHINE_SLOT_MAX + 1;
    bad[n++].vcpus = 0;
    bad[n++].vcpus = PRIV_VCPUS_MAX + 1;
    bad[n++].memory_mib = PRIV_MEMORY_MIB_MIN - 1;
    bad[n++].memory_mib = PRIV_MEMORY_MIB_MAX + 1;
    bad[n++].flags = 0;
    bad[n++].flags = PRIV_MACHINE_BOOT;
    bad[n++].flags |= PRIV_MACHINE_BOOT;
    bad[n++].flags |= PRIV_MACHINE_BASE;
    bad[n++].flags |= 1u << 31;
    bad[n++].fd_mask &= ~(1u << PRIV_FD_DISK);
    bad[n++].fd_mask |= 1u << PRIV_FD_KERNEL;
    bad[n++].fd_mask |= 1u << PRIV_FD_COUNT_;
    bad[n++].id[0] = '.';
    CHECK_INT(n, ARRAY_SIZE(bad));
    for (size_t i = 0; i < n; i++) {
        if (machine_start_valid(&bad[i])) {
            TEST_FAIL("start %zu is taken for valid", i);
        }
    }
}

/* Good descriptors for good_start, made of what needs no privilege. */
static void fds_make(int fds[PRIV_FD_COUNT_])
{
    const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    cleanup_free char *name = xasprintf("%s/space-test-fds-%d", dir, (int)getpid());
    int pipe_fds[2];
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    ASSERT(fd >= 0 && ftruncate(fd, 64 << 20) == 0 && fchmod(fd, 0444) == 0);
    for (size_t i = 0; i < PRIV_FD_COUNT_; i++) {
        fds[i] = FD_NONE;
    }
    fds[PRIV_FD_DISK] = fd;
    fds[PRIV_FD_MEMORY] = open(name, O_RDONLY | O_CLOEXEC);
    fds[PRIV_FD_DEVICE_STATE] = open(name, O_RDONLY | O_CLOEXEC);
    unlink(name);
    for (int i = PRIV_FD_QMP; i <= PRIV_FD_CHANNEL; i++) {
        fds[i] = sock_listen_unix(name, SOCK_STREAM, 0600, NULL);
        ASSERT(fds[i] >= 0);
        unlink(name);
    }
    ASSERT(pipe2(pipe_fds, O_CLOEXEC) == 0);
    close(pipe_fds[0]);
    fds[PRIV_FD_CONSOLE] = pipe_fds[1];
}

static void fds_free(int fds[PRIV_FD_COUNT_])
{
    for (size_t i = 0; i < PRIV_FD_COUNT_; i++) {
        fds[i] = fd_close(fds[i]);
    }
}

static void expect_refused(int fds[PRIV_FD_COUNT_], enum priv_fd which, int wrong_fd,
                           const char *want)
{
    int good = fds[which];
    struct err e = {0};

    fds[which] = wrong_fd;
    CHECK_INT(fdcheck_machine(&good_start, fds, &e), -EINVAL);
    CHECK_STR(e.reason, "bad_descriptor");
    CHECK_STR(e.msg, want);
    fds[which] = good;
}

static void sockets_of_another_kind_are_refused(void)
{
    int fds[PRIV_FD_COUNT_];
    int pair[2];
    cleanup_close int inet = FD_NONE;
    cleanup_close int silent = FD_NONE;
    struct err e = {0};

    fds_make(fds);
    CHECK_INT(fdcheck_machine(&good_start, fds, &e), 0);
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    silent = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    expect_refused(fds, PRIV_FD_QMP, pair[0], "the descriptor 'qmp' is of the wrong kind");
    expect_refused(fds, PRIV_FD_CHANNEL, silent, "the descriptor 'channel' is of the wrong kind");
    if (inet >= 0 && listen(inet, 1) == 0) {
        expect_refused(fds, PRIV_FD_CHANNEL, inet, "the descriptor 'channel' is of the wrong kind");
    }
    close(pair[0]);
    close(pair[1]);
    fds_free(fds);
}

static void a_memory_file_that_others_may_write_is_refused(void)
{
    int fds[PRIV_FD_COUNT_];

    fds_make(fds);
    REQUIRE(fchmod(fds[PRIV_FD_DISK], 0446) == 0); /* the same file */
    expect_refused(fds, PRIV_FD_MEMORY, fds[PRIV_FD_MEMORY],
                   "the descriptor 'memory' must not be writable for others");
    REQUIRE(fchmod(fds[PRIV_FD_DISK], 0440) == 0);
    expect_refused(fds, PRIV_FD_MEMORY, fds[PRIV_FD_MEMORY],
                   "the descriptor 'memory' must be readable for others (mode 0444)");
    REQUIRE(fchmod(fds[PRIV_FD_DISK], 0444) == 0);
    REQUIRE(ftruncate(fds[PRIV_FD_DISK], 63 << 20) == 0);
    expect_refused(fds, PRIV_FD_MEMORY, fds[PRIV_FD_MEMORY],
                   "the descriptor 'memory' must be exactly as large as the machine's memory");
    fds_free(fds);
}

static void the_console_is_for_writing_only(void)
{
    int fds[PRIV_FD_COUNT_];

    fds_make(fds);
    expect_refused(fds, PRIV_FD_CONSOLE, fds[PRIV_FD_DISK],
                   "the descriptor 'console' must be open for writing only");
    expect_refused(fds, PRIV_FD_DISK, fds[PRIV_FD_MEMORY],
                   "the descriptor 'disk' must be open for reading and writing");
    fds_free(fds);
}

TEST_MAIN(T(ids_are_lower_case_letters_and_digits), T(starts_are_judged_by_every_field),
          T(sockets_of_another_kind_are_refused), T(a_memory_file_that_others_may_write_is_refused),
          T(the_console_is_for_writing_only))
