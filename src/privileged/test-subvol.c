/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subvolume primitives on a real btrfs (a loop file that space-setup makes), and space-setup
 * itself: needs root.
 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/test.h"
#include "privileged/testbed.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEW_TESTBED(t_) \
    const char *why_ = NULL; \
    CLEANUP(testbed_freep) struct testbed *t_ = testbed_new(&why_); \
    if (!t_) { \
        TEST_SKIP(why_); \
    } \
    if (access("/dev/loop-control", F_OK) < 0) { \
        TEST_SKIP("needs loop devices"); \
    }

static const struct testbed_manager usual = {0};

/* Runs space-setup; *ret_text (owned by the caller) is what it printed. Returns its exit status. */
static int setup(struct testbed *t, const char *verb, const char *user, const char *mib,
                 char **ret_text)
{
    cleanup_free char *state = xasprintf("%s/state", t->dir);
    cleanup_free char *run = xasprintf("%s/run", t->dir);
    cleanup_free char *out = xasprintf("%s/output", t->dir);
    cleanup_close int out_fd = open(out, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const char *const argv[] = {
        getenv("SPACE_SETUP"), verb, "--state-dir",    state, "--run-dir", run, "--pool-mib", mib,
        "--gateway-user",      user, "--sandbox-user", user,  NULL};
    const struct proc_spec spec = {
        .argv = argv, .stdin_fd = FD_NONE, .stdout_fd = out_fd, .stderr_fd = out_fd};
    cleanup_buf struct buf b = BUF_INIT(65536);
    struct proc proc;
    int status = -1;

    ASSERT(out_fd >= 0 && argv[0]);
    ASSERT(proc_spawn(&spec, &proc, NULL) == 0 &&
           proc_wait(&proc, deadline_in_ms(60000), &status) == 0);
    ASSERT(fs_read_file(AT_FDCWD, out, &b) == 0);
    unlink(out);
    if (ret_text) {
        *ret_text = buf_take(&b);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool pool_up(struct testbed *t, const char *user)
{
    cleanup_free char *text = NULL;

    if (setup(t, "up", user, "1024", &text) != 0) {
        TEST_FAIL("space-setup: %s", text);
        return false;
    }
    return true;
}

/* The pool must go before the testbed, which would find its folders busy. */
static void pool_down(struct testbed *t)
{
    cleanup_free char *text = NULL;

    testbed_stop(t, SIGTERM);
    if (setup(t, "down", "root", "0", &text) != 0) {
        TEST_FAIL("space-setup down: %s", text);
    }
}

static char *pool_path(const struct testbed *t, const char *name)
{
    return xasprintf("%s/state/pool/%s", t->dir, name);
}

static int put(const struct testbed *t, const char *name, const char *text)
{
    cleanup_free char *path = pool_path(t, name);
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    return fd < 0 ? -errno : fs_write_all(fd, text, strlen(text));
}

static char *get(const struct testbed *t, const char *name)
{
    cleanup_free char *path = pool_path(t, name);
    struct buf b = BUF_INIT(4096);

    if (fs_read_file(AT_FDCWD, path, &b) < 0) {
        ASSERT(buf_add_str(&b, "(none)") == 0);
    }
    return buf_take(&b);
}

static bool there(const struct testbed *t, const char *name)
{
    cleanup_free char *path = pool_path(t, name);
    struct stat st;

    return lstat(path, &st) == 0;
}

#define SANDBOX(id_) \
    { \
        .id = (id_), .kind = PRIV_SUBVOL_SANDBOX \
    }
#define SNAPSHOT(id_, n_) \
    { \
        .id = (id_), .kind = PRIV_SUBVOL_SNAPSHOT, .n = (n_) \
    }
#define CHECK_FILE(t_, name_, want_) \
    do { \
        cleanup_free char *text_ = get((t_), (name_)); \
        CHECK_STR(text_, (want_)); \
    } while (0)

static void snapshots_keep_their_moment(void)
{
    const struct priv_subvol s1 = SANDBOX("s1");
    const struct priv_subvol_snapshot save = {s1, SNAPSHOT("s1", 7), PRIV_SUBVOL_READONLY};
    const struct priv_subvol_snapshot fork = {SNAPSHOT("s1", 7), SANDBOX("s2"), 0};
    struct err e = {0};
    NEW_TESTBED(t)

    REQUIRE(pool_up(t, "root"));
    REQUIRE(testbed_start(t, &usual) == 0);
    CHECK_INT(priv_subvol_create(t->client, &s1, &e), 0);
    CHECK_INT(priv_subvol_create(t->client, &s1, &e), -EEXIST);
    CHECK_INT(put(t, "sandboxes/s1/disk.img", "then"), 0);
    CHECK_INT(priv_subvol_snapshot(t->client, &save, &e), 0);
    CHECK_INT(put(t, "sandboxes/s1/disk.img", "now"), 0);
    CHECK_FILE(t, "snapshots/s1/7/disk.img", "then");
    CHECK_INT(put(t, "snapshots/s1/7/disk.img", "x"), -EROFS);
    CHECK_INT(priv_subvol_snapshot(t->client, &save, &e), -EEXIST);
    CHECK_INT(priv_subvol_snapshot(t->client, &fork, &e), 0);
    CHECK_FILE(t, "sandboxes/s2/disk.img", "then");
    CHECK_INT(put(t, "sandboxes/s2/disk.img", "fork"), 0);
    CHECK_FILE(t, "sandboxes/s1/disk.img", "now");
    CHECK_INT(priv_subvol_delete(t->client, &save.to, &e), 0);
    CHECK(!there(t, "snapshots/s1"));
    CHECK_INT(priv_subvol_delete(t->client, &save.to, &e), 0); /* again */
    CHECK_INT(priv_subvol_delete(t->client, &s1, &e), 0);
    CHECK(!there(t, "sandboxes/s1"));
    CHECK_FILE(t, "sandboxes/s2/disk.img", "fork");
    CHECK_INT(priv_subvol_snapshot(t->client, &save, &e), -ENOENT);
    CHECK_STR(e.reason, "subvolume_not_found");
    CHECK(!there(t, "snapshots/s1"));
    pool_down(t);
}

/* The pool belongs to the sandbox manager: what it puts there must not lead root astray. */
static void planted_things_are_refused(void)
{
    const struct priv_subvol s1 = SANDBOX("s1");
    const struct priv_subvol linked = SNAPSHOT("s1", 1);
    const struct priv_subvol plain = SANDBOX("plain");
    const struct priv_subvol victim = SANDBOX("1");
    const struct priv_subvol_snapshot copy_plain = {SANDBOX("plain"), SANDBOX("s3"), 0};
    const struct priv_subvol_snapshot into_link = {SANDBOX("s1"), SNAPSHOT("s1", 2), 0};
    struct err e = {0};
    NEW_TESTBED(t)
    cleanup_free char *link = pool_path(t, "snapshots/s1");
    cleanup_free char *folder = pool_path(t, "sandboxes/plain");
    cleanup_free char *target = pool_path(t, "sandboxes");
    cleanup_free char *sandbox_link = pool_path(t, "sandboxes/link");

    REQUIRE(pool_up(t, "root"));
    REQUIRE(testbed_start(t, &usual) == 0);
    REQUIRE(priv_subvol_create(t->client, &s1, &e) == 0);
    REQUIRE(priv_subvol_create(t->client, &victim, &e) == 0);
    REQUIRE(symlink(target, link) == 0 && mkdir(folder, 0700) == 0 &&
            symlink("s1", sandbox_link) == 0);
    /* snapshots/s1/1 would be sandboxes/1. */
    CHECK(priv_subvol_delete(t->client, &linked, &e) < 0);
    CHECK(there(t, "sandboxes/1"));
    CHECK(priv_subvol_snapshot(t->client, &into_link, &e) < 0);
    CHECK(!there(t, "sandboxes/2"));
    CHECK_INT(priv_subvol_delete(t->client, &plain, &e), -EINVAL);
    CHECK_STR(e.reason, "not_a_subvolume");
    CHECK_INT(priv_subvol_snapshot(t->client, &copy_plain, &e), -ENOENT);
    CHECK(priv_subvol_delete(t->client, &(struct priv_subvol)SANDBOX("link"), &e) < 0);
    CHECK(there(t, "sandboxes/s1"));
    pool_down(t);
}

static void new_subvolumes_belong_to_the_sandbox_manager(void)
{
    const struct passwd *pw = getpwnam("daemon");
    const struct priv_subvol s1 = SANDBOX("s1");
    const struct priv_subvol_snapshot save = {s1, SNAPSHOT("s1", 1), PRIV_SUBVOL_READONLY};
    struct err e = {0};
    struct stat st = {0};
    int r;
    NEW_TESTBED(t)
    cleanup_free char *path = pool_path(t, "sandboxes/s1");
    cleanup_free char *parent = pool_path(t, "snapshots/s1");

    REQUIRE(pw);
    REQUIRE(pool_up(t, "daemon"));
    REQUIRE(testbed_start(t, &(struct testbed_manager){.user = "daemon"}) == 0);
    REQUIRE(setegid(pw->pw_gid) == 0 &&
            seteuid(pw->pw_uid) == 0); /* who connects is known by this */
    r = priv_subvol_create(t->client, &s1, &e);
    r = r < 0 ? r : priv_subvol_snapshot(t->client, &save, &e);
    REQUIRE(seteuid(0) == 0 && setegid(0) == 0);
    CHECK_INT(r, 0);
    CHECK(stat(path, &st) == 0 && st.st_uid == pw->pw_uid && st.st_gid == pw->pw_gid);
    CHECK_INT(st.st_mode & 07777, 0700);
    CHECK(stat(parent, &st) == 0 && st.st_uid == pw->pw_uid);
    CHECK_INT(st.st_mode & 07777, 0700);
    pool_down(t);
}

static void a_failed_subvolume_leaves_nothing(void)
{
    const struct priv_subvol made = SNAPSHOT("s9", 1);
    int failed = 0;
    NEW_TESTBED(t)

    REQUIRE(pool_up(t, "root"));
    for (int n = 1; n < 20; n++) {
        cleanup_free char *at = xasprintf("%d", n);
        struct err e = {0};

        REQUIRE(testbed_start(t, &(struct testbed_manager){.faults = true, .fault_at = at}) == 0);
        if (priv_subvol_create(t->client, &made, &e) == 0) {
            break;
        }
        failed++;
        CHECK(!there(t, "snapshots/s9"));
        CHECK_INT(priv_subvol_create(t->client, &made, &e), 0);
        CHECK_INT(priv_subvol_delete(t->client, &made, &e), 0);
        CHECK(!there(t, "snapshots/s9"));
        testbed_stop(t, SIGTERM);
    }
    CHECK_INT(failed, 2);
    pool_down(t);
}

static void setup_is_repeatable_and_keeps_data(void)
{
    NEW_TESTBED(t)
    cleanup_free char *image = xasprintf("%s/state/pool.img", t->dir);
    cleanup_free char *gateway = xasprintf("%s/state/gateway", t->dir);
    cleanup_free char *run = xasprintf("%s/run", t->dir);
    cleanup_free char *text = NULL;
    struct stat first;
    struct stat st;

    REQUIRE(pool_up(t, "daemon"));
    REQUIRE(stat(image, &first) == 0);
    CHECK_INT(first.st_mode & 07777, 0600);
    CHECK(first.st_blocks * 512 < 64 << 20); /* sparse */
    CHECK(stat(gateway, &st) == 0 && (st.st_mode & 07777) == 0700 &&
          st.st_uid == getpwnam("daemon")->pw_uid);
    CHECK(stat(run, &st) == 0 && (st.st_mode & 07777) == 01775 && st.st_uid == 0);
    CHECK_INT(put(t, "templates/keep", "me"), 0);
    CHECK_INT(setup(t, "up", "daemon", "1024", &text), 0);
    CHECK_STR(text, ""); /* nothing was to be done */
    CHECK_INT(setup(t, "down", "daemon", "0", NULL), 0);
    CHECK(!there(t, "templates"));
    REQUIRE(pool_up(t, "daemon"));
    CHECK(stat(image, &st) == 0 && st.st_ino == first.st_ino);
    CHECK_FILE(t, "templates/keep", "me");
    pool_down(t);
}

static void setup_says_what_is_wrong(void)
{
    NEW_TESTBED(t)
    cleanup_free char *text = NULL;
    cleanup_free char *busy = NULL;
    cleanup_free char *usage = NULL;
    cleanup_free char *templates = pool_path(t, "templates");
    cleanup_free char *image = xasprintf("%s/state/pool.img", t->dir);
    cleanup_close int fd = FD_NONE;

    CHECK_INT(setup(t, "up", "root", "99999999", &text), 1);
    CHECK(strstr(text, "MiB free; the pool needs 99999999 MiB"));
    CHECK(access(image, F_OK) < 0);
    CHECK_INT(setup(t, "sideways", "root", "0", &usage), 2);
    REQUIRE(pool_up(t, "root"));
    fd = open(templates, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    CHECK_INT(setup(t, "down", "root", "0", &busy), 1);
    CHECK(strstr(busy, "stop the services"));
    fd = fd_close(fd);
    pool_down(t);
}

static void setup_needs_root(void)
{
    const struct passwd *pw = getpwnam("daemon");
    cleanup_free char *text = NULL;
    int status = 0;
    pid_t pid;
    NEW_TESTBED(t)

    REQUIRE(pw);
    REQUIRE(chmod(t->dir, 0777) == 0);
    pid = fork();
    if (pid == 0) {
        /*
         * The build's own folder may be closed to others: keep what lets us read it, and be another
         * user.
         */
        if (setresgid(pw->pw_gid, pw->pw_gid, pw->pw_gid) < 0 ||
            setresuid(pw->pw_uid, pw->pw_uid, pw->pw_uid) < 0 ||
            access(getenv("SPACE_SETUP"), X_OK) < 0) {
            _exit(77);
        }
        _exit(setup(t, "up", "root", "1024", &text) == 1 && strstr(text, "must be run as root")
                  ? 0
                  : 1);
    }
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        return; /* another user cannot even see the program here */
    }
    CHECK_INT(status, 0);
}

TEST_MAIN(T(snapshots_keep_their_moment), T(planted_things_are_refused),
          T(new_subvolumes_belong_to_the_sandbox_manager), T(a_failed_subvolume_leaves_nothing),
          T(setup_is_repeatable_and_keeps_data), T(setup_says_what_is_wrong), T(setup_needs_root))
