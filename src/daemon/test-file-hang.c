/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File operations in a file system that the workload serves and that never answers. Such a worker
 * cannot even be killed: it sleeps until the server ends. The daemon must not mind.
 */
#include "daemon/file-harness.h"

#include <linux/fuse.h>
#include <sys/wait.h>

static pid_t server_pid;

/* Answers the greeting, takes every other request and answers none. */
static void serve(int fd)
{
    static char in[FUSE_MIN_READ_BUFFER + 65536];
    struct {
        struct fuse_out_header head;
        struct fuse_init_out init;
    } out = {.head.len = sizeof(out), .init.major = FUSE_KERNEL_VERSION, .init.minor = 31};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        struct fuse_in_header head;
        ssize_t n = read(fd, in, sizeof(in));

        if (n < (ssize_t)sizeof(head)) {
            _exit(0);
        }
        memcpy(&head, in, sizeof(head));
        if (head.opcode == FUSE_INIT) {
            out.head.unique = head.unique;
            out.init.max_write = 65536;
            ASSERT(write(fd, &out, sizeof(out)) == (ssize_t)sizeof(out));
        }
    }
}

static bool hang_start(void)
{
    char options[96];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (fd < 0) {
        return false;
    }
    put_dir("/mnt/hang", 0755, 0);
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd);
    if (mount("hang", inside("/mnt/hang"), "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
        close(fd);
        return false;
    }
    server_pid = fork();
    if (server_pid == 0) {
        serve(fd);
    }
    ASSERT(server_pid > 0);
    close(fd); /* the server's is the last: when it ends, everybody wakes */
    return true;
}

static const char *const hanging[] = {"path=/mnt/hang/file&user=root", "path=/mnt/hang&user=root"};

static void operations_time_out_and_others_go_on(void)
{
    static const enum file_op ops[] = {FILE_OP_STAT, FILE_OP_READ, FILE_OP_WRITE, FILE_OP_LIST,
                                       FILE_OP_WATCH};
    NEED_HARNESS;
    struct answer stuck[ARRAY_SIZE(ops)];

    if (!hang_start()) {
        TEST_SKIP("needs /dev/fuse");
    }
    file_pool_hurry(harness.pool, 500);
    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        stuck[i] = (struct answer)ANSWER_INIT;
        start_query(&stuck[i], ops[i], hanging[ops[i] == FILE_OP_LIST], /* range */ NULL);
    }
    for (int i = 0; i < 5; i++) {
        ANSWER a = ANSWER_INIT;

        ask(&a, FILE_OP_STAT, "path=/etc/passwd");
        CHECK_INT(a.err.code, 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        if (ops[i] == FILE_OP_WRITE) {
            answer_done(
                &stuck[i]); /* nobody waits for the worker while there is nothing to write */
            continue;
        }
        harness_until(&stuck[i].ended);
        CHECK_INT(stuck[i].err.code, -ETIMEDOUT);
        answer_done(&stuck[i]);
    }
}

static void too_many_stuck_workers_are_told(void)
{
    NEED_HARNESS;
    struct file_pool_stats stats = {0};
    bool refused = false;
    uint64_t deadline_ns = deadline_in_ms(HARNESS_WAIT_MS);
    ANSWER after = ANSWER_INIT;

    if (server_pid == 0) {
        TEST_SKIP("needs /dev/fuse");
    }
    file_pool_hurry(harness.pool, 20);
    while (!refused && !deadline_passed(deadline_ns)) {
        ANSWER a = ANSWER_INIT;

        ask(&a, FILE_OP_STAT, hanging[0]);
        refused = str_eq(a.err.reason, "file_workers_stuck");
        CHECK(refused || a.err.code == -ETIMEDOUT);
    }
    CHECK(refused);
    file_pool_stats(harness.pool, &stats);
    CHECK_INT(stats.n_stuck, JOB_STUCK_MAX);
    CHECK_INT(stats.n_running, 0);
    kill(server_pid, SIGKILL);
    while (stats.n_stuck > 0 && !deadline_passed(deadline_ns)) {
        loop_run_once(harness.loop, deadline_ns);
        file_pool_stats(harness.pool, &stats);
    }
    CHECK_INT(stats.n_stuck, 0);
    file_pool_hurry(harness.pool, 0);
    ask(&after, FILE_OP_STAT, "path=/etc/passwd");
    CHECK_INT(after.err.code, 0);
}

static void nothing_is_left(void)
{
    harness_free();
    CHECK(!harness.loop);
}

TEST_MAIN(T(operations_time_out_and_others_go_on), T(too_many_stuck_workers_are_told),
          T(nothing_is_left))
