/* SPDX-License-Identifier: Apache-2.0 */
/* Reading, writing and changing files of a sandbox, through the pool and real workers. */
#include "daemon/file-harness.h"

#include <sys/wait.h>

#define MIB ((size_t)1024 * 1024)

static void check_error(const struct answer *a, int code, const char *reason)
{
    CHECK_INT(a->err.code, code);
    if (a->err.code == code) {
        CHECK_STR(err_reason(&a->err), reason);
    }
    CHECK(!a->ended || a->err.msg[0] || code == 0);
}

/* ---- reading ---- */

static void content_comes_as_it_is(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;

    put("/home/user/hello", "hello\n", 0640, 1000);
    ask(&a, FILE_OP_READ, "path=hello"); /* relative: to the home */
    CHECK_INT(a.err.code, 0);
    CHECK_STR(buf_str(&a.body), "hello\n");
    CHECK_INT(a.head.length, 6);
    CHECK_INT(a.head.mode, 0640);
    CHECK_STR(a.head.owner, "user");
    CHECK(a.head.mtime_ms > 1000000);
}

static void ranges_of_small_and_large_files(void)
{
    static const struct {
        const char *range;
        int code;
        uint64_t start;
        uint64_t len;
    } cases[] = {
        {"bytes=0-3", 0, 0, 4},
        {"bytes=7-", 0, 7, 999993},
        {"bytes=-5", 0, 999995, 5},
        {"bytes=999999-2000000", 0, 999999, 1},
        {"bytes=1000000-", -ERANGE, 0, 0},
        {"bytes=-0", -ERANGE, 0, 0},
        {"bytes=0-1,4-5", 0, 0, 1000000}, /* several: the whole file */
        {"lines=1-2", 0, 0, 1000000},
    };
    NEED_HARNESS;
    cleanup_free char *data = xmalloc(1000001);

    for (size_t i = 0; i < 1000000; i++) {
        data[i] = (char)('a' + i % 23);
    }
    data[1000000] = '\0';
    put("/home/user/large", data, 0644, 1000);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ANSWER a = ANSWER_INIT;

        start_query(&a, FILE_OP_READ, "path=/home/user/large", cases[i].range);
        harness_until(&a.ended);
        CHECK_INT(a.err.code, cases[i].code);
        if (a.err.code == 0) {
            CHECK_INT(a.body.len, cases[i].len);
            CHECK_INT(a.head.range_start, cases[i].start);
            CHECK(a.body.len == cases[i].len &&
                  memcmp(a.body.data, data + cases[i].start, a.body.len) == 0);
            CHECK_INT(!!(a.head.flags & FILE_HEAD_RANGE), cases[i].len != 1000000);
        }
    }
}

static void pseudo_files_are_read_to_their_end(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;

    ask(&a, FILE_OP_READ, "path=/proc/self/status");
    CHECK_INT(a.err.code, 0);
    CHECK(a.body.len > 100);
    CHECK(strstr(buf_str(&a.body), "space-file"));
    CHECK(strstr(buf_str(&a.body), "NoNewPrivs:\t1"));
}

/* F38: each is refused at once, and a hundred of them leave nothing hanging. */
static void special_files_are_refused(void)
{
    static const struct {
        const char *path;
        const char *reason;
        int code;
    } cases[] = {
        {"/tmp/fifo", "not_a_regular_file", -EINVAL},
        {"/dev/zero", "not_a_regular_file", -EINVAL},
        {"/home/user", "is_a_directory", -EISDIR},
        {"/home/user/none", "not_found", -ENOENT},
        {"/home/user/none/deeper", "not_found", -ENOENT},
        {"/etc/passwd/deeper", "not_a_directory", -ENOTDIR},
        {"/root/secret", "permission_denied", -EACCES},
        {"/tmp/loop", "too_many_links", -ELOOP},
        {"/proc/self/fd/0", "not_a_regular_file", -EINVAL},
    };
    NEED_HARNESS;
    struct file_pool_stats stats;

    ASSERT(mkfifo(inside("/tmp/fifo"), 0666) == 0 && symlink("loop", inside("/tmp/loop")) == 0);
    for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
            cleanup_free char *query = xasprintf("path=%s", cases[i].path);
            ANSWER a = ANSWER_INIT;

            if (str_eq(cases[i].path, "/proc/self/fd/0")) {
                continue; /* what standard input is depends on who runs the test */
            }
            ask(&a, FILE_OP_READ, query);
            check_error(&a, cases[i].code, cases[i].reason);
        }
    }
    file_pool_stats(harness.pool, &stats);
    CHECK_INT(stats.n_running + stats.n_queued + stats.n_stuck, 0);
}

static void sparse_ten_gib_range_has_flat_memory(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;
    ANSWER s = ANSWER_INIT;
    int fd = open(inside("/tmp/sparse"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);

    ASSERT(fd >= 0 && ftruncate(fd, (off_t)10 << 30) == 0);
    ASSERT(pwrite(fd, "needle", 6, ((off_t)9 << 30) + 17) == 6);
    close(fd);
    ask(&s, FILE_OP_STAT, "path=/tmp/sparse");
    CHECK(strstr(buf_str(&s.body), "\"size\":10737418240,"));
    start_query(&a, FILE_OP_READ, "path=/tmp/sparse", "bytes=9663676433-9663676438");
    harness_until(&a.ended);
    CHECK_STR(buf_str(&a.body), "needle");
    CHECK_INT(a.head.total, 10737418240);
    unlink(inside("/tmp/sparse"));
}

static void cancelled_read_ends_its_worker(void)
{
    NEED_HARNESS;
    struct file_pool_stats stats;
    bool gone = false;
    struct answer a = ANSWER_INIT;
    int fd = open(inside("/tmp/sparse"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);

    ASSERT(fd >= 0 && ftruncate(fd, (off_t)1 << 30) == 0);
    close(fd);
    a.keep = false;
    start_query(&a, FILE_OP_READ, "path=/tmp/sparse", /* range */ NULL);
    harness_until(&a.has_head);
    answer_done(&a);
    while (!gone) {
        gone = waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD;
        loop_run_once(harness.loop, deadline_in_ms(1));
    }
    file_pool_stats(harness.pool, &stats);
    CHECK_INT(stats.n_running + stats.n_queued + stats.n_stuck, 0);
    unlink(inside("/tmp/sparse"));
}

/* ---- writing ---- */

static void new_file_and_its_folders_belong_to_the_user(void)
{
    NEED_HARNESS;
    static const char *const folders[] = {"/home/user/a", "/home/user/a/b"};
    ANSWER a = ANSWER_INIT;
    ANSWER again = ANSWER_INIT;
    ANSWER gone = ANSWER_INIT;

    upload(&a, "path=/home/user/a/b/c.txt&user=user", "text", 4);
    CHECK_INT(a.err.code, 0);
    CHECK(a.head.flags & FILE_HEAD_CREATED);
    CHECK_STR(content("/home/user/a/b/c.txt"), "text");
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        CHECK_INT(look(folders[i]).st_uid, 1000);
        CHECK_INT(look(folders[i]).st_gid, 1000);
        CHECK_INT(look(folders[i]).st_mode & 07777, 0755);
    }
    CHECK_INT(look("/home/user/a/b/c.txt").st_uid, 1000);
    CHECK_INT(look("/home/user/a/b/c.txt").st_mode & 07777, 0644);
    CHECK(strstr(buf_str(&a.body),
                 "{\"name\":\"c.txt\",\"path\":\"/home/user/a/b/c.txt\",\"type\":\"file\","
                 "\"size\":4,\"mode\":\"0644\",\"uid\":1000,\"gid\":1000,\"owner\":\"user\","
                 "\"group\":\"user\",\"mtime_ms\":"));
    upload(&again, "path=a/b/c.txt&user=user", "longer text", 11);
    CHECK_INT(again.err.code, 0);
    CHECK(!(again.head.flags & FILE_HEAD_CREATED));
    CHECK_STR(content("/home/user/a/b/c.txt"), "longer text");
    ask_json(&gone, FILE_OP_REMOVE, "{\"path\":\"a\",\"recursive\":true,\"user\":\"user\"}");
    CHECK_INT(gone.err.code, 0);
    CHECK(!there("/home/user/a"));
}

static void modes_on_upload(void)
{
    static const struct {
        const char *what;
        mode_t before; /* 0: no old file */
        const char *query;
        int code;
        mode_t after;
    } cases[] = {
        {"new", 0, "", 0, 0644},
        {"new, asked", 0, "&mode=0600", 0, 0600},
        {"kept", 0755, "", 0, 0755},
        {"kept, without setuid", 04755, "", 0, 0755},
        {"asked over kept", 0755, "&mode=640", 0, 0640},
        {"setuid refused", 0, "&mode=4755", -EINVAL, 0},
        {"not octal", 0, "&mode=0888", -EINVAL, 0},
    };
    NEED_HARNESS;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *query = xasprintf("path=/home/user/mode-file%s", cases[i].query);
        ANSWER a = ANSWER_INIT;

        if (cases[i].before) {
            put("/home/user/mode-file", "old", cases[i].before, 1000);
        }
        upload(&a, query, "new", 3);
        CHECK_INT(a.err.code, cases[i].code);
        if (cases[i].code == 0) {
            CHECK_INT(look("/home/user/mode-file").st_mode & 07777, cases[i].after);
            CHECK_STR(content("/home/user/mode-file"), "new");
        } else {
            CHECK(!there("/home/user/mode-file"));
        }
        unlink(inside("/home/user/mode-file"));
    }
}

static void owner_stays_when_root_overwrites(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;

    put("/home/user/mine", "old", 0600, 1000);
    upload(&a, "path=/home/user/mine&user=root", "new", 3);
    CHECK_INT(a.err.code, 0);
    CHECK_INT(look("/home/user/mine").st_uid, 1000);
    CHECK_INT(look("/home/user/mine").st_mode & 07777, 0600);
}

/* F34: whatever goes wrong, the old content stays and nothing else is left. */
static void failed_writes_leave_everything_as_it_was(void)
{
    static const struct {
        const char *path;
        const char *reason;
        int code;
        int status;
    } cases[] = {
        {"/mnt/small/keep", "no_space", -ENOSPC, 507},
        {"/mnt/small/new/folder/file", "no_space", -ENOSPC, 507},
        {"/mnt/ro/file", "read_only", -EROFS, 409},
        {"/mnt/ro/new", "read_only", -EROFS, 409},
        {"/home/user/rootfile", "permission_denied", -EACCES, 403},
        {"/home/other/new", "permission_denied", -EACCES, 403},
        {"/home/user/folder", "is_a_directory", -EISDIR, 400},
        {"/home/user/folder/", "is_a_directory", -EISDIR, 400},
        {"/dev/full", "not_a_regular_file", -EINVAL, 400},
        {"/home/user/keep/below", "not_a_directory", -ENOTDIR, 400},
        {"/home/user/..", "invalid_field", -EINVAL, 400},
        {"/", "is_a_directory", -EISDIR, 400},
    };
    NEED_HARNESS;
    cleanup_free char *big = xcalloc(1, 2 * MIB);

    put("/mnt/small/keep", "OLD", 0644, 1000);
    put("/home/user/keep", "OLD", 0644, 1000);
    put("/home/user/rootfile", "ROOT", 0600, 0);
    put_dir("/home/user/folder", 0755, 1000);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *query = xasprintf("path=%s", cases[i].path);
        ANSWER a = ANSWER_INIT;

        upload(&a, query, big, 2 * MIB);
        check_error(&a, cases[i].code, cases[i].reason);
        CHECK_INT(err_http_status(&a.err), cases[i].status);
        if (test_failures) {
            printf("# at %s: %s\n", cases[i].path, a.err.msg);
        }
    }
    CHECK_STR(content("/mnt/small/keep"), "OLD");
    CHECK_INT(count_entries("/mnt/small"), 1);
    CHECK_STR(content("/home/user/rootfile"), "ROOT");
    CHECK_STR(content("/home/user/keep"), "OLD");
    CHECK_STR(content("/mnt/ro/file"), "fixed");
    CHECK_INT(count_entries("/home/user/folder"), 0);
    unlink(inside("/home/user/rootfile"));
    unlink(inside("/home/user/keep"));
}

static void running_program_is_not_overwritten(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;
    cleanup_close int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    cleanup_close int out =
        open(inside("/home/user/program"), O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    cleanup_buf struct buf program = BUF_INIT(HARNESS_BODY_MAX);
    int status;
    pid_t pid;
    int p[2];

    ASSERT(in >= 0 && out >= 0 && fs_read_fd(in, &program) == 0);
    ASSERT(fs_write_all(out, program.data, program.len) == 0 && fchown(out, 1000, 1000) == 0);
    ASSERT(fd_close(out) == FD_NONE && pipe(p) == 0);
    out = FD_NONE;
    pid = fork();
    if (pid == 0) {
        char *const argv[] = {(char[]){"program"}, (char[]){"--wait"}, NULL};

        dup2(p[1], 1);
        execve(inside("/home/user/program"), argv, environ);
        _exit(1);
    }
    close(p[1]);
    ASSERT(read(p[0], &(char){0}, 1) == 1); /* it says that it runs */
    upload(&a, "path=/home/user/program", "new", 3);
    check_error(&a, -ETXTBSY, "file_busy");
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    close(p[0]);
    unlink(inside("/home/user/program"));
}

static void cut_upload_leaves_nothing(void)
{
    static const char *const queries[] = {"path=/home/user/cut", "path=/home/user/x/y/cut"};
    NEED_HARNESS;
    cleanup_free char *data = xcalloc(1, MIB);

    put("/home/user/cut", "OLD", 0644, 1000);
    int before = count_entries("/home/user");
    for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
        struct answer a = ANSWER_INIT;
        bool gone = false;

        a.upload = data;
        a.upload_len = MIB;
        start_query(&a, FILE_OP_WRITE, queries[i], /* range */ NULL);
        while (a.upload) {
            loop_run_once(harness.loop, deadline_in_ms(1000));
        }
        answer_done(&a); /* the client is gone */
        while (!gone) {
            gone = waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD;
            loop_run_once(harness.loop, deadline_in_ms(1));
        }
        CHECK_STR(content("/home/user/cut"), "OLD");
        CHECK_INT(count_entries("/home/user"), before);
    }
    unlink(inside("/home/user/cut"));
}

/*
 * Around the sizes where the way of writing changes, on a file system with O_DIRECT and on one
 * without.
 */
static void uploads_of_all_sizes_are_whole(void)
{
    static const size_t sizes[] = {0,       1,           4095,        MIB - 1,       MIB,
                                   MIB + 1, 2 * MIB - 1, 3 * MIB + 7, 5 * MIB + 4096};
    NEED_HARNESS;
    cleanup_free char *data = xmalloc(6 * MIB);
    cleanup_free char *disk = xasprintf("%s/disk-%d", "/var/tmp", getpid());

    for (size_t i = 0; i < 6 * MIB; i++) {
        data[i] = (char)(i * 2654435761u >> 13);
    }
    put_dir("/mnt/disk", 01777, 0);
    ASSERT(mkdir(disk, 0777) == 0 && chmod(disk, 0777) == 0);
    ASSERT(mount(disk, inside("/mnt/disk"), NULL, MS_BIND, NULL) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        static const char *const queries[] = {"path=/mnt/disk/file", "path=/home/user/sized"};

        for (size_t j = 0; j < ARRAY_SIZE(queries); j++) {
            ANSWER up = ANSWER_INIT;
            ANSWER down = ANSWER_INIT;

            upload(&up, queries[j], data, sizes[i]);
            CHECK_INT(up.err.code, 0);
            ask(&down, FILE_OP_READ, queries[j]);
            CHECK_INT(down.body.len, sizes[i]);
            CHECK(down.body.len == sizes[i] &&
                  (sizes[i] == 0 || memcmp(down.body.data, data, sizes[i]) == 0));
        }
    }
    CHECK_INT(umount2(inside("/mnt/disk"), MNT_DETACH), 0);
    CHECK_INT(fs_remove_tree(AT_FDCWD, disk), 0);
    unlink(inside("/home/user/sized"));
}

static void last_of_concurrent_writers_wins_whole(void)
{
    NEED_HARNESS;
    struct answer writers[8];
    cleanup_free char *data[8] = {0};
    cleanup_close int fd = FD_NONE;
    cleanup_buf struct buf now = BUF_INIT(HARNESS_BODY_MAX);

    for (size_t i = 0; i < 8; i++) {
        data[i] = xmalloc(MIB);
        memset(data[i], (int)('0' + i), MIB);
        writers[i] = (struct answer)ANSWER_INIT;
        upload_start(&writers[i], "path=/home/user/race", data[i], MIB);
    }
    for (size_t i = 0; i < 8; i++) {
        harness_until(&writers[i].ended);
        CHECK_INT(writers[i].err.code, 0);
        answer_done(&writers[i]);
    }
    fd = open(inside("/home/user/race"), O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && fs_read_fd(fd, &now) == 0);
    CHECK_INT(now.len, MIB);
    CHECK(now.len == MIB && memcmp(now.data, data[now.data[0] - '0'], MIB) == 0);
    unlink(inside("/home/user/race"));
    for (size_t i = 0; i < 8; i++) {
        free(data[i]);
    }
    data[0] = NULL;
}

static void hundred_megabytes_there_and_back(void)
{
    NEED_HARNESS;
    ANSWER up = ANSWER_INIT;
    ANSWER down = ANSWER_INIT;
    size_t len = 100 * MIB;
    cleanup_free char *data = xmalloc(len);
    uint64_t t0;
    uint64_t t1;

    for (size_t i = 0; i < len; i += 8) {
        uint64_t v = i * 0x9e3779b97f4a7c15ull;

        memcpy(data + i, &v, 8);
    }
    t0 = clock_now_ns();
    upload(&up, "path=/home/user/big", data, len);
    t1 = clock_now_ns();
    CHECK_INT(up.err.code, 0);
    ask(&down, FILE_OP_READ, "path=/home/user/big");
    printf("# 100 MiB up %llu ms, down %llu ms\n", (unsigned long long)((t1 - t0) / NS_PER_MS),
           (unsigned long long)((clock_now_ns() - t1) / NS_PER_MS));
    CHECK_INT(down.body.len, len);
    CHECK(down.body.len == len && memcmp(down.body.data, data, len) == 0);
    unlink(inside("/home/user/big"));
}

/* ---- links that the workload planted ---- */

static void links_on_the_way_of_a_write(void)
{
    static const struct {
        const char *what;
        const char *query;
        int code;
        const char *reason;
    } cases[] = {
        {"user's own link, as user", "path=/home/user/own-link&user=user", 0, ""},
        {"root's link, as user", "path=/home/user/root-link&user=user", 0, ""},
        {"user's link to /etc/passwd, as root", "path=/home/user/evil&user=root", -EACCES,
         "untrusted_link"},
        {"user's folder link to /etc, as root", "path=/home/user/evil-dir/passwd&user=root",
         -EACCES, "untrusted_link"},
        {"user's link to /etc/passwd, as user", "path=/home/user/evil&user=user", -EACCES,
         "permission_denied"},
        {"dangling link: target is made", "path=/home/user/dangling&user=user", 0, ""},
    };
    NEED_HARNESS;
    cleanup_free char *passwd = xstrdup(content("/etc/passwd"));

    put("/home/user/real", "OLD", 0644, 1000);
    ASSERT(symlink("real", inside("/home/user/own-link")) == 0);
    ASSERT(symlink("/home/user/real", inside("/home/user/root-link")) == 0);
    ASSERT(symlink("/etc/passwd", inside("/home/user/evil")) == 0);
    ASSERT(symlink("/etc", inside("/home/user/evil-dir")) == 0);
    ASSERT(symlink("made", inside("/home/user/dangling")) == 0);
    for (size_t i = 0; i < 5; i++) {
        static const char *const links[] = {"own-link", "evil", "evil-dir", "dangling", "real"};
        cleanup_free char *path = xasprintf("/home/user/%s", links[i]);

        ASSERT(lchown(inside(path), 1000, 1000) == 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ANSWER a = ANSWER_INIT;

        upload(&a, cases[i].query, "NEW", 3);
        check_error(&a, cases[i].code, cases[i].code ? cases[i].reason : "internal");
    }
    CHECK_STR(content("/home/user/real"), "NEW");
    CHECK_STR(content("/home/user/made"), "NEW");
    CHECK(S_ISLNK(look("/home/user/own-link").st_mode));
    CHECK(S_ISLNK(look("/home/user/root-link").st_mode));
    CHECK_STR(content("/etc/passwd"), passwd);
}

/*
 * A process that swaps a folder for a link to /etc and back, as fast as it can, while root writes
 * through it.
 */
static void swapped_folder_never_leads_out(void)
{
    NEED_HARNESS;
    cleanup_free char *a_path = xstrdup(inside("/home/user/swap"));
    cleanup_free char *b_path = xstrdup(inside("/home/user/swap-link"));
    pid_t pid;

    put_dir("/home/user/swap", 0755, 1000);
    ASSERT(symlink("/etc", b_path) == 0 && lchown(b_path, 1000, 1000) == 0);
    int etc = count_entries("/etc");
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            renameat2(AT_FDCWD, a_path, AT_FDCWD, b_path, 2 /* RENAME_EXCHANGE */);
        }
    }
    for (int i = 0; i < 150; i++) {
        ANSWER w = ANSWER_INIT;
        ANSWER m = ANSWER_INIT;
        ANSWER rm = ANSWER_INIT;
        ANSWER c = ANSWER_INIT;

        upload(&w, "path=/home/user/swap/planted&user=root", "x", 1);
        ask_json(&m, FILE_OP_MKDIR, "{\"path\":\"/home/user/swap/d/e\",\"user\":\"root\"}");
        ask_json(&c, FILE_OP_CHOWN,
                 "{\"path\":\"/home/user/swap/passwd\",\"owner\":\"user\",\"user\":\"root\"}");
        ask_json(&rm, FILE_OP_REMOVE, "{\"path\":\"/home/user/swap/passwd\",\"user\":\"root\"}");
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_INT(count_entries("/etc"), etc);
    CHECK_INT(look("/etc/passwd").st_uid, 0);
    CHECK(there("/etc/group"));
}

static void names_of_any_bytes(void)
{
    NEED_HARNESS;
    ANSWER w = ANSWER_INIT;
    ANSWER s = ANSWER_INIT;
    ANSWER mv = ANSWER_INIT;
    ANSWER link = ANSWER_INIT;

    upload(&w, "path=/home/user/\xff\xfe \"\n\\x", "odd", 3);
    CHECK_INT(w.err.code, 0);
    CHECK_STR(content("/home/user/\xff\xfe \"\n\\x"), "odd");
    ask(&s, FILE_OP_STAT, "path=/home/user/\xff\xfe \"\n\\x");
    CHECK(strstr(
        buf_str(&s.body),
        "\"name\":\"\xef\xbf\xbd\xef\xbf\xbd \\\"\\n\\\\x\",\"name_base64\":\"//4gIgpceA==\""));
    CHECK(strstr(buf_str(&s.body), "\"path_base64\":\"L2hvbWUvdXNlci//"));
    ask_json(&mv, FILE_OP_MOVE,
             "{\"path_base64\":\"L2hvbWUvdXNlci///iAiClx4\",\"to\":\"/home/user/caf\\u00e9\"}");
    CHECK_INT(mv.err.code, 0);
    CHECK_STR(content("/home/user/caf\xc3\xa9"), "odd");
    CHECK(strstr(buf_str(&mv.body), "\"name\":\"caf\xc3\xa9\""));
    CHECK(!strstr(buf_str(&mv.body), "base64"));
    ask_json(&link, FILE_OP_SYMLINK, "{\"path\":\"odd-link\",\"target_base64\":\"gA==\"}");
    CHECK_INT(link.err.code, 0);
    CHECK(strstr(buf_str(&link.body), "\"target_base64\":\"gA==\""));
}

/* ---- changing ---- */

static const struct {
    enum file_op op;
    const char *body;
    int code;
    const char *reason; /* or what the answer holds */
} change_cases[] = {
    {FILE_OP_MKDIR, "{\"path\":\"t/one/two\"}", 0, "\"type\":\"dir\""},
    {FILE_OP_MKDIR, "{\"path\":\"t/one/two\"}", 0, "\"mode\":\"0755\""},
    {FILE_OP_MKDIR, "{\"path\":\"t/three\",\"mode\":\"1777\"}", 0, "\"mode\":\"1777\""},
    {FILE_OP_MKDIR, "{\"path\":\"t/a/b\",\"recursive\":false}", -ENOENT, "not_found"},
    {FILE_OP_MKDIR, "{\"path\":\"hello\"}", -EEXIST, "already_exists"},
    {FILE_OP_MKDIR, "{\"path\":\"/etc/x/y\"}", -EACCES, "permission_denied"},
    {FILE_OP_MKDIR, "{\"path\":\"/\"}", 0, "\"name\":\"/\""},
    {FILE_OP_MKDIR, "{\"path\":\"t/z\",\"mode\":\"2755\"}", -EINVAL, "invalid_field"},
    {FILE_OP_MKDIR, "{\"path\":\"t/z\",\"colour\":1}", -EINVAL, "unknown_field"},
    {FILE_OP_MKDIR, "{}", -EINVAL, "missing_field"},
    {FILE_OP_MKDIR, "{\"path\":\"t/z\",\"user\":\"nobody-here\"}", -ENOENT, "user_not_found"},
    {FILE_OP_SYMLINK, "{\"path\":\"t/link\",\"target\":\"one\"}", 0, "\"target\":\"one\""},
    {FILE_OP_SYMLINK, "{\"path\":\"t/link\",\"target\":\"one\"}", -EEXIST, "already_exists"},
    {FILE_OP_MOVE, "{\"path\":\"t/link\",\"to\":\"t/new/place/link2\"}", 0, "\"type\":\"symlink\""},
    {FILE_OP_MOVE, "{\"path\":\"t/none\",\"to\":\"t/newer/x\"}", -ENOENT, "not_found"},
    {FILE_OP_MOVE, "{\"path\":\"t/one\",\"to\":\"t/one/two/three\"}", -EINVAL, "into_itself"},
    {FILE_OP_MOVE, "{\"path\":\"t/one\",\"to\":\"/mnt/small/one\"}", -EXDEV, "other_file_system"},
    {FILE_OP_MOVE, "{\"path\":\"hello\",\"to\":\"t/one\"}", -EISDIR, "is_a_directory"},
    {FILE_OP_MOVE, "{\"path\":\"t/one\",\"to\":\"t\"}", -ENOTEMPTY, "not_empty"},
    {FILE_OP_MOVE, "{\"path\":\"t/one\",\"to\":\"hello\"}", -EEXIST, "already_exists"},
    {FILE_OP_MOVE, "{\"path\":\"t/three\",\"to\":\"hello\",\"overwrite\":false}", -EEXIST,
     "already_exists"},
    {FILE_OP_MOVE, "{\"path\":\"/\",\"to\":\"t/root\"}", -EBUSY, "busy"},
    {FILE_OP_CHMOD, "{\"path\":\"hello\",\"mode\":\"0700\"}", 0, "\"mode\":\"0700\""},
    {FILE_OP_CHMOD, "{\"path\":\"t/new/place/link2\",\"mode\":\"0700\"}", -EINVAL, "is_a_link"},
    {FILE_OP_CHMOD, "{\"path\":\"/etc/passwd\",\"mode\":\"0666\"}", -EPERM, "not_permitted"},
    {FILE_OP_CHMOD, "{\"path\":\"hello\"}", -EINVAL, "missing_field"},
    {FILE_OP_CHMOD, "{\"path\":\"hello\",\"mode\":\"77777\"}", -EINVAL, "invalid_field"},
    {FILE_OP_CHOWN, "{\"path\":\"hello\",\"group\":\"staff\"}", 0, "\"group\":\"staff\""},
    {FILE_OP_CHOWN, "{\"path\":\"hello\",\"owner\":\"other\"}", -EPERM, "not_permitted"},
    {FILE_OP_CHOWN, "{\"path\":\"/home/user/hello\",\"owner\":\"other\",\"user\":\"root\"}", 0,
     "\"owner\":\"other\""},
    {FILE_OP_CHOWN,
     "{\"path\":\"/home/user/hello\",\"owner\":\"1000\",\"group\":\"1000\",\"user\":\"root\"}", 0,
     "\"owner\":\"user\""},
    {FILE_OP_CHOWN, "{\"path\":\"hello\",\"owner\":\"who\"}", -EINVAL, "user_not_found"},
    {FILE_OP_CHOWN, "{\"path\":\"hello\"}", -EINVAL, "missing_field"},
    {FILE_OP_CHOWN,
     "{\"path\":\"/home/user/t/new/place/link2\",\"owner\":\"other\",\"user\":\"root\"}", 0,
     "\"type\":\"symlink\",\"size\":3,\"mode\":\"0777\",\"uid\":1001"},
    {FILE_OP_CHOWN, "{\"path\":\"/home/user/hop/passwd\",\"owner\":\"other\",\"user\":\"root\"}",
     -EACCES, "untrusted_link"},
    {FILE_OP_REMOVE, "{\"path\":\"t\"}", -ENOTEMPTY, "not_empty"},
    {FILE_OP_REMOVE, "{\"path\":\"t/none\"}", -ENOENT, "not_found"},
    {FILE_OP_REMOVE, "{\"path\":\"/\",\"recursive\":true,\"user\":\"root\"}", -EBUSY, "busy"},
    {FILE_OP_REMOVE, "{\"path\":\"/mnt/small\",\"recursive\":true,\"user\":\"root\"}", -EBUSY,
     "busy"},
    {FILE_OP_REMOVE, "{\"path\":\"t\",\"recursive\":true}", 0, "\"removed\":\"/home/user/t\""},
};

static void changes_and_their_errors(void)
{
    NEED_HARNESS;
    put("/home/user/hello", "hello\n", 0640, 1000);
    ASSERT(symlink("/etc", inside("/home/user/hop")) == 0);
    ASSERT(lchown(inside("/home/user/hop"), 1000, 1000) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(change_cases); i++) {
        ANSWER a = ANSWER_INIT;
        int failures = test_failures;

        ask_json(&a, change_cases[i].op, change_cases[i].body);
        CHECK_INT(a.err.code, change_cases[i].code);
        if (change_cases[i].code) {
            CHECK_STR(err_reason(&a.err), change_cases[i].reason);
        } else {
            CHECK(strstr(buf_str(&a.body), change_cases[i].reason));
        }
        if (test_failures > failures) {
            printf("# case %zu: %s -> %s %s\n", i, change_cases[i].body, buf_str(&a.body),
                   a.err.msg);
        }
    }
    CHECK(!there("/home/user/t"));
}

static void link_itself_changes_owner(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;

    put("/root/secret", "secret", 0600, 0);
    ASSERT(symlink("/root/secret", inside("/tmp/to-secret")) == 0);
    ask_json(&a, FILE_OP_CHOWN,
             "{\"path\":\"/tmp/to-secret\",\"owner\":\"user\",\"user\":\"root\"}");
    CHECK_INT(a.err.code, 0);
    CHECK_INT(look("/tmp/to-secret").st_uid, 1000);
    CHECK_INT(look("/root/secret").st_uid, 0);
    unlink(inside("/tmp/to-secret"));
}

static void deep_tree_is_removed(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;
    int fd = open(inside("/home/user"), O_PATH | O_CLOEXEC);

    for (int i = 0; i < 3000; i++) { /* far beyond PATH_MAX and the open levels */
        int next;

        ASSERT(mkdirat(fd, "deeper", 0755) == 0 && fchownat(fd, "deeper", 1000, 1000, 0) == 0);
        next = openat(fd, "deeper", O_PATH | O_CLOEXEC);
        close(fd);
        fd = next;
        ASSERT(mkdirat(fd, "side", 0755) == 0 && fchownat(fd, "side", 1000, 1000, 0) == 0);
    }
    close(fd);
    ask_json(&a, FILE_OP_REMOVE, "{\"path\":\"deeper\",\"recursive\":true}");
    CHECK_INT(a.err.code, 0);
    CHECK(!there("/home/user/deeper"));
}

static void remove_does_not_follow_links(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;
    ANSWER b = ANSWER_INIT;

    put_dir("/home/user/keep-me", 0755, 1000);
    put("/home/user/keep-me/file", "x", 0644, 1000);
    put_dir("/home/user/tree", 0755, 1000);
    ASSERT(symlink("../keep-me", inside("/home/user/tree/link")) == 0);
    ASSERT(symlink("keep-me", inside("/home/user/top-link")) == 0);
    ask_json(&a, FILE_OP_REMOVE, "{\"path\":\"tree\",\"recursive\":true}");
    CHECK_INT(a.err.code, 0);
    ask_json(&b, FILE_OP_REMOVE, "{\"path\":\"top-link/\",\"recursive\":true}");
    CHECK_INT(b.err.code, 0);
    CHECK(there("/home/user/keep-me/file"));
    CHECK(!there("/home/user/top-link"));
}

static void many_operations_at_once_are_all_answered(void)
{
    NEED_HARNESS;
    enum {
        N = 600
    };
    struct answer *all = xnew_n(struct answer, N);
    unsigned n_ok = 0;
    unsigned n_refused = 0;
    uint64_t start = clock_now_ns();

    for (size_t i = 0; i < N; i++) {
        all[i] = (struct answer)ANSWER_INIT;
        start_query(&all[i], FILE_OP_STAT, "path=/etc/passwd", /* range */ NULL);
    }
    for (size_t i = 0; i < N; i++) {
        harness_until(&all[i].ended);
        n_ok += all[i].err.code == 0 && all[i].body.len > 0;
        n_refused += str_eq(all[i].err.reason, "too_many_file_operations");
        answer_done(&all[i]);
    }
    printf("# %u operations in %llu ms\n", n_ok,
           (unsigned long long)((clock_now_ns() - start) / NS_PER_MS));
    CHECK_INT(n_ok + n_refused, N);
    CHECK(n_ok >= 512);
    free(all);
}

/* Forking is dear under emulation: the next operation of the same user finds the process there. */
static void workers_are_used_again(void)
{
    static const char *const queries[] = {"path=/etc/passwd&user=user",
                                          "path=/etc/passwd&user=root", "path=/root/none&user=root",
                                          "path=/root/none&user=user"};
    static const int codes[] = {0, 0, -ENOENT, -EACCES};
    NEED_HARNESS;
    struct file_pool_stats before;
    struct file_pool_stats after;

    file_pool_stats(harness.pool, &before);
    for (size_t i = 0; i < 40; i++) {
        ANSWER s = ANSWER_INIT;
        ANSWER w = ANSWER_INIT;
        ANSWER r = ANSWER_INIT;

        ask(&s, FILE_OP_STAT, queries[i % 4]);
        CHECK_INT(s.err.code, codes[i % 4]);
        upload(&w, "path=/home/user/again", "x", 1);
        CHECK_INT(w.err.code, 0);
        ask(&r, FILE_OP_READ, "path=/home/user/again");
        CHECK_INT(r.body.len, 1);
    }
    file_pool_stats(harness.pool, &after);
    CHECK_INT(after.n_started - before.n_started, 120);
    CHECK(after.n_forked - before.n_forked <= 4);
}

static void worker_killed_while_idle_is_replaced(void)
{
    NEED_HARNESS;
    cleanup_buf struct buf list = BUF_INIT(65536);
    cleanup_free char *path = xasprintf("/proc/self/task/%d/children", getpid());
    ANSWER before = ANSWER_INIT;
    char *p;

    ask(&before, FILE_OP_STAT, "path=/etc/passwd");
    CHECK_INT(fs_read_file(AT_FDCWD, path, &list), 0);
    p = list.data;
    for (pid_t pid; p && (pid = (pid_t)strtol(p, &p, 10)) > 0;) {
        kill(pid, SIGKILL); /* as `pkill -u user` in the sandbox would */
    }
    for (int i = 0; i < 5; i++) {
        ANSWER a = ANSWER_INIT;

        ask(&a, FILE_OP_STAT, "path=/etc/passwd");
        CHECK_INT(a.err.code, 0);
    }
}

static void reset_ends_everything(void)
{
    NEED_HARNESS;
    struct answer a = ANSWER_INIT;
    struct answer b = ANSWER_INIT;

    start_query(&a, FILE_OP_WATCH, "path=/home/user&recursive=1", /* range */ NULL);
    harness_until(&a.has_head);
    start_query(&b, FILE_OP_WRITE, "path=/home/user/never", /* range */ NULL);
    file_pool_reset(harness.pool);
    CHECK(a.ended && b.ended);
    CHECK_INT(a.err.code, -ESHUTDOWN);
    CHECK_INT(b.err.code, -ESHUTDOWN);
    answer_done(&a);
    answer_done(&b);
    CHECK(!there("/home/user/never"));
}

static void nothing_is_left(void)
{
    harness_free();
    CHECK(!harness.loop);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        T(content_comes_as_it_is),
        T(ranges_of_small_and_large_files),
        T(pseudo_files_are_read_to_their_end),
        T(special_files_are_refused),
        T(sparse_ten_gib_range_has_flat_memory),
        T(cancelled_read_ends_its_worker),
        T(new_file_and_its_folders_belong_to_the_user),
        T(modes_on_upload),
        T(owner_stays_when_root_overwrites),
        T(failed_writes_leave_everything_as_it_was),
        T(running_program_is_not_overwritten),
        T(cut_upload_leaves_nothing),
        T(uploads_of_all_sizes_are_whole),
        T(last_of_concurrent_writers_wins_whole),
        T(hundred_megabytes_there_and_back),
        T(links_on_the_way_of_a_write),
        T(swapped_folder_never_leads_out),
        T(names_of_any_bytes),
        T(changes_and_their_errors),
        T(link_itself_changes_owner),
        T(deep_tree_is_removed),
        T(remove_does_not_follow_links),
        T(many_operations_at_once_are_all_answered),
        T(workers_are_used_again),
        T(worker_killed_while_idle_is_replaced),
        T(reset_ends_everything),
        T(nothing_is_left),
    };

    if (argc > 1 && str_eq(argv[1], "--wait")) { /* the running program of a case */
        return write(1, "!", 1) == 1 ? pause() : 1;
    }
    return test_run_all(cases, ARRAY_SIZE(cases), argc, argv);
}
