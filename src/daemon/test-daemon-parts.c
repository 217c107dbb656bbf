/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's pure parts, and its children. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/test.h"
#include "daemon/helper.h"
#include "daemon/passwd.h"
#include "daemon/setup-spec.h"
#include "daemon/target.h"
#include "daemon/trust.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- targets ---- */

static void targets_are_taken_apart(void)
{
    const char *captures[ROUTE_CAPTURES_MAX] = {0};
    struct target t;

    REQUIRE(target_parse("/commands/c%20x/output?path=%2Fa+b&e=&flag&path=2", &t, NULL) == 0);
    CHECK_INT(t.n_segments, 3);
    CHECK_STR(t.segments[1], "c x");
    CHECK_STR(target_param(&t, "path"), "/a b");
    CHECK_STR(target_param(&t, "e"), "");
    CHECK_STR(target_param(&t, "flag"), "");
    CHECK(!target_param(&t, "other"));
    CHECK(target_matches(&t, "/commands/{id}/output", captures));
    CHECK_STR(captures[0], "c x");
    CHECK(!target_matches(&t, "/commands/{id}", captures));
    CHECK(!target_matches(&t, "/commands/{id}/output/x", captures));
    CHECK(!target_matches(&t, "/commands/{id}/outpu", captures));
    target_done(&t);
}

static void bad_targets_are_refused(void)
{
    static const char *const bad[] = {"",      "x",        "*",       "//",
                                      "/a//b", "/a/",      "/%",      "/%zz",
                                      "/a%00", "/a?x=%00", "/a?x=%4", "/1/2/3/4/5/6/7/8/9"};
    struct target t;
    struct err e = {0};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (target_parse(bad[i], &t, &e) != -EINVAL) {
            TEST_FAIL("'%s' was taken", bad[i]);
        }
    }
}

/* ---- passwd ---- */

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
                             "bad line\n"
                             "no:x:number:0::/:/bin/sh\n"
                             "user:x:1000:1001:,,,:/home/user:\n"
                             "user:x:0:0::/:/bin/sh\n"
                             "rel:x:1002:1002::home:sh\n"
                             "last:x:1003:1003::/l:/bin/l";
static const char group[] =
    "root:x:0:\nsudo:x:27:other,user\nusers:x:100:user,user\ngone:x:1001:user\n"
    "not:x:5:users,use\n";

static void users_are_found(void)
{
    struct workload_user u;

    REQUIRE(passwd_find_name(passwd, sizeof(passwd) - 1, "user", &u) == 0);
    CHECK_INT(u.uid, 1000); /* the first line wins */
    CHECK_INT(u.gid, 1001);
    CHECK_STR(u.home, "/home/user");
    CHECK_STR(u.shell, "/bin/sh");
    group_collect(group, sizeof(group) - 1, &u);
    CHECK_INT(u.n_groups, 3);
    CHECK_INT(u.groups[0], 1001);
    CHECK_INT(u.groups[1], 27);
    CHECK_INT(u.groups[2], 100);
    CHECK_INT(passwd_find_name(passwd, sizeof(passwd) - 1, "rel", &u), 0);
    CHECK_STR(u.home, "/");
    CHECK_STR(u.shell, "/bin/sh");
    CHECK_INT(passwd_find_uid(passwd, sizeof(passwd) - 1, 1003, &u), 0);
    CHECK_STR(u.name, "last");
    CHECK_INT(passwd_find_name(passwd, sizeof(passwd) - 1, "bad line", &u), -ENOENT);
    CHECK_INT(passwd_find_name(passwd, sizeof(passwd) - 1, "no", &u), -ENOENT);
    CHECK_INT(passwd_find_name(passwd, sizeof(passwd) - 1, "", &u), -ENOENT);
    CHECK_INT(passwd_find_uid(passwd, sizeof(passwd) - 1, 7, &u), -ENOENT);
}

static void groups_have_a_ceiling(void)
{
    cleanup_buf struct buf text = BUF_INIT(100000);
    struct workload_user u = {.name = "u", .n_groups = 1};

    for (int i = 1; i < 1000; i++) {
        CHECK_INT(buf_printf(&text, "g%d:x:%d:u\n", i, i), 0);
    }
    group_collect(text.data, text.len, &u);
    CHECK_INT(u.n_groups, WORKLOAD_GROUPS_MAX);
}

/* ---- set-up ---- */

static int parse_setup(const char *text, struct setup_spec *s, struct err *e)
{
    cleanup_json json_t *body = NULL;

    ASSERT(json_parse_object(text, strlen(text), &body, NULL) == 0);
    return setup_spec_parse(body, s, e);
}

static void a_setup_is_read(void)
{
    struct setup_spec s;

    REQUIRE(
        parse_setup(
            "{\"hostname\":\"box-1\",\"epoch_ns\":1800000000000000000,\"entropy_base64\":\"QUJD\","
            "\"machine_id\":\"0123456789abcdef0123456789abcdef\",\"env\":{\"A\":\"b=c\"},"
            "\"default_user\":\"user\",\"disk\":{\"device\":\"/dev/vda\",\"fstype\":\"ext4\"},"
            "\"rehearse\":true,\"limits\":{\"max_processes\":100}}",
            &s, NULL) == 0);
    CHECK_STR(s.hostname, "box-1");
    CHECK(s.epoch_ns == 1800000000000000000);
    CHECK_INT(s.n_entropy, 3);
    CHECK_MEM(s.entropy, "ABC", 3);
    CHECK_STR(s.env[0], "A=b=c");
    CHECK(!s.env[1]);
    CHECK_STR(s.device, "/dev/vda");
    CHECK(s.rehearse);
    CHECK_INT(s.max_processes, 100);
    setup_spec_done(&s);
}

static void bad_setups_name_their_field(void)
{
    static const struct {
        const char *text;
        const char *field;
    } bad[] = {
        {"{\"hostname\":\"a/b\"}", "hostname"},
        {"{\"hostname\":1}", "hostname"},
        {"{\"epoch_ns\":-1}", "epoch_ns"},
        {"{\"entropy_base64\":\"=\"}", "entropy_base64"},
        {"{\"machine_id\":\"abc\"}", "machine_id"},
        {"{\"env\":{\"A=\":\"\"}}", "env"},
        {"{\"disk\":{\"device\":\"/dev/../etc/passwd\",\"fstype\":\"ext4\"}}", "device"},
        {"{\"disk\":{\"device\":\"/dev/sda\",\"fstype\":\"ext4\"}}", "device"},
        {"{\"disk\":{\"device\":\"/dev/vda\",\"fstype\":\"proc\"}}", "fstype"},
        {"{\"limits\":{\"max_processes\":1}}", "max_processes"},
        {"{\"colour\":1}", "colour"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct setup_spec s = {0};
        struct err e = {0};

        CHECK_INT(parse_setup(bad[i].text, &s, &e), -EINVAL);
        CHECK_STR(e.field, bad[i].field);
    }
}

/* ---- children and helpers ---- */

struct bench {
    struct daemon d;
    struct child_exit last;
    unsigned n_exits;
    int helped;
    struct err help_err;
    bool helper_done;
};

static void bench_init(struct bench *b)
{
    *b = (struct bench){.d.loop = loop_new()};
    ASSERT(children_new(b->d.loop, /* reap_all */ true, &b->d.children) == 0);
}

static void bench_done(struct bench *b)
{
    children_free(b->d.children);
    loop_run_once(b->d.loop, 0);
    loop_free(b->d.loop);
}

static void on_exit_of_child(void *arg, const struct child_exit *x)
{
    struct bench *b = arg;

    b->last = *x;
    b->n_exits++;
}

static pid_t spawn(int exit_code, int signo)
{
    pid_t pid = fork();

    if (pid == 0) {
        sigset_t none;

        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (signo) {
            raise(signo);
        }
        _exit(exit_code);
    }
    return pid;
}

static void children_are_reaped_and_told(void)
{
    struct bench b;
    uint64_t deadline_ns = deadline_in_ms(20000);

    bench_init(&b);
    children_watch(b.d.children, spawn(7, 0), on_exit_of_child, &b);
    while (b.n_exits < 1 && !deadline_passed(deadline_ns)) {
        loop_run_once(b.d.loop, deadline_ns);
    }
    CHECK_INT(b.last.code, CLD_EXITED);
    CHECK_INT(b.last.status, 7);
    children_watch(b.d.children, spawn(0, SIGKILL), on_exit_of_child, &b);
    while (b.n_exits < 2 && !deadline_passed(deadline_ns)) {
        loop_run_once(b.d.loop, deadline_ns);
    }
    CHECK_INT(b.last.code, CLD_KILLED);
    CHECK_INT(b.last.status, SIGKILL);
    bench_done(&b);
}

static void nobodys_children_are_reaped_too(void)
{
    struct bench b;
    uint64_t deadline_ns = deadline_in_ms(20000);
    pid_t forgotten;

    bench_init(&b);
    for (int i = 0; i < 300; i++) { /* more than one round reaps */
        spawn(0, 0);
    }
    forgotten = spawn(0, 0);
    children_watch(b.d.children, forgotten, on_exit_of_child, &b);
    children_forget(b.d.children, forgotten);
    /* All are gone when there is nothing left to wait for. */
    while (waitid(P_ALL, 0, NULL, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           !deadline_passed(deadline_ns)) {
        loop_run_once(b.d.loop, deadline_in_ms(100));
    }
    CHECK_INT(errno, ECHILD);
    CHECK_INT(b.n_exits, 0);
    bench_done(&b);
}

static void on_help(void *arg, int r, const struct err *e, pid_t pid)
{
    struct bench *b = arg;

    (void)pid;
    b->helped = r;
    b->help_err = *e;
    b->helper_done = true;
}

static int help_fine(void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    return 0;
}

static int help_fails(void *arg, struct err *e)
{
    (void)arg;
    return err_set(e, -ENOSPC, "no_space", "the disk is full");
}

static int help_dies(void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    raise(SIGKILL);
    return 0;
}

static int help_hangs(void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    pause();
    return 0;
}

static void helpers_report(void)
{
    static const struct {
        helper_fn *fn;
        int r;
        const char *reason;
        uint64_t ms;
    } cases[] = {{help_fine, 0, "", 20000},
                 {help_fails, -ENOSPC, "no_space", 20000},
                 {help_dies, -EIO, "", 20000},
                 {help_hangs, -ETIMEDOUT, "", 10}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct bench b;
        struct helper_spec spec = {.what = "testing",
                                   .fn = cases[i].fn,
                                   .done = on_help,
                                   .done_arg = &b,
                                   .deadline_ns = deadline_in_ms(cases[i].ms)};
        struct helper *h = NULL;
        uint64_t deadline_ns = deadline_in_ms(20000);

        bench_init(&b);
        CHECK_INT(helper_start(&b.d, &spec, &h, NULL), 0);
        while (!b.helper_done && !deadline_passed(deadline_ns)) {
            loop_run_once(b.d.loop, deadline_ns);
        }
        CHECK_INT(b.helped, cases[i].r);
        CHECK_STR(b.help_err.reason, cases[i].reason);
        while (waitid(P_ALL, 0, NULL, WEXITED | WNOHANG | WNOWAIT) == 0 &&
               !deadline_passed(deadline_ns)) {
            loop_run_once(b.d.loop, deadline_in_ms(100));
        }
        bench_done(&b);
    }
}

static void the_authority_is_installed_once(void)
{
    static const char pem[] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    char dir[] = "/tmp/space-trust-XXXXXX";
    cleanup_close int root_fd = FD_NONE;
    cleanup_close int bundle_fd = FD_NONE;
    cleanup_buf struct buf text = BUF_INIT(4096);

    REQUIRE(mkdtemp(dir));
    root_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(root_fd >= 0);
    trust_install(root_fd, pem); /* an image without a bundle gets none */
    CHECK(!trust_present(root_fd));
    CHECK(mkdirat(root_fd, "etc", 0755) == 0 && mkdirat(root_fd, "etc/ssl", 0755) == 0 &&
          mkdirat(root_fd, "etc/ssl/certs", 0755) == 0);
    bundle_fd =
        openat(root_fd, "etc/ssl/certs/ca-certificates.crt", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(bundle_fd >= 0 && fs_write_all(bundle_fd, "old", 3) == 0);
    trust_install(root_fd, pem);
    trust_install(root_fd, pem);
    CHECK(trust_present(root_fd));
    CHECK_INT(fs_read_file(root_fd, "etc/ssl/certs/ca-certificates.crt", &text), 0);
    CHECK(str_starts(buf_str(&text), "old\n-----BEGIN"));
    CHECK_STR(buf_str(&text) + 4, pem);
    /* What the workload has put in its place is not written through. */
    CHECK(unlinkat(root_fd, "etc/ssl/certs/ca-certificates.crt", 0) == 0);
    CHECK(symlinkat("/etc/passwd", root_fd, "etc/ssl/certs/ca-certificates.crt") == 0);
    trust_install(root_fd, pem);
    CHECK(!trust_present(root_fd));
    CHECK(mknodat(root_fd, "usr/local/share/ca-certificates/.space-new", S_IFIFO | 0644, 0) == 0);
    trust_install(root_fd, pem);
    buf_reset(&text);
    CHECK_INT(fs_read_file(root_fd, "usr/local/share/ca-certificates/space.crt", &text), 0);
    CHECK_STR(buf_str(&text), pem);
    CHECK_INT(fs_remove_tree(AT_FDCWD, dir), 0);
}

static void an_authority_takes_the_place_of_another(void)
{
    static const char first[] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    static const char second[] = "-----BEGIN CERTIFICATE-----\nBB\n-----END CERTIFICATE-----\n";
    char dir[] = "/tmp/space-trust-XXXXXX";
    cleanup_close int root_fd = FD_NONE;
    cleanup_close int bundle_fd = FD_NONE;
    cleanup_buf struct buf text = BUF_INIT(4096);

    REQUIRE(mkdtemp(dir));
    root_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(root_fd >= 0);
    CHECK(mkdirat(root_fd, "etc", 0755) == 0 && mkdirat(root_fd, "etc/ssl", 0755) == 0 &&
          mkdirat(root_fd, "etc/ssl/certs", 0755) == 0);
    bundle_fd =
        openat(root_fd, "etc/ssl/certs/ca-certificates.crt", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(bundle_fd >= 0 && fs_write_all(bundle_fd, "a\n", 2) == 0);
    trust_install(root_fd, first);
    trust_install(root_fd, second);
    CHECK_INT(fs_read_file(root_fd, "etc/ssl/certs/ca-certificates.crt", &text), 0);
    CHECK(str_starts(buf_str(&text), "a\n") && strcmp(buf_str(&text) + 2, second) == 0);
    buf_reset(&text);
    CHECK_INT(fs_read_file(root_fd, "usr/local/share/ca-certificates/space.crt", &text), 0);
    CHECK_STR(buf_str(&text), second);
    CHECK_INT(fs_remove_tree(AT_FDCWD, dir), 0);
}

static void only_one_certificate_is_taken_for_an_authority(void)
{
    static const char *const bad[] = {
        "", "x", "-----BEGIN CERTIFICATE-----\\nAA!A\\n-----END CERTIFICATE-----\\n",
        ("-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\\n-----BEGIN "
         "CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\\n"),
        "-----BEGIN PRIVATE KEY-----\\nAAAA\\n-----END PRIVATE KEY-----\\n"};
    cleanup_free char *good =
        xasprintf("{\"authority\":\"%s\"}", "-----BEGIN CERTIFICATE-----\\nAAAA\\n"
                                            "-----END CERTIFICATE-----\\n");
    struct setup_spec s;
    struct err e = {0};

    CHECK_INT(parse_setup(good, &s, &e), 0);
    CHECK(s.authority && str_starts(s.authority, "-----BEGIN"));
    setup_spec_done(&s);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_free char *text = xasprintf("{\"authority\":\"%s\"}", bad[i]);

        CHECK_INT(parse_setup(text, &s, &e), -EINVAL);
        CHECK_STR(e.field, "authority");
    }
}

static void a_host_key_is_known_and_no_other(void)
{
    static const char line[] =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmY";
    char dir[] = "/tmp/space-trust-XXXXXX";
    cleanup_close int root_fd = FD_NONE;
    cleanup_buf struct buf text = BUF_INIT(4096);
    struct stat st;

    REQUIRE(mkdtemp(dir));
    root_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(root_fd >= 0);
    trust_install_ssh(root_fd, "ssh-ed25519 old");
    trust_install_ssh(root_fd, line);
    CHECK_INT(fs_read_file(root_fd, "usr/local/libexec/space/known-host", &text), 0);
    CHECK(strstr(buf_str(&text), line) && !strstr(buf_str(&text), "old"));
    CHECK(fstatat(root_fd, "usr/local/libexec/space/known-host", &st, 0) == 0 &&
          (st.st_mode & 07777) == 0755);
    buf_reset(&text);
    CHECK_INT(fs_read_file(root_fd, "etc/ssh/ssh_config.d/space.conf", &text), 0);
    CHECK(strstr(buf_str(&text), "KnownHostsCommand /usr/local/libexec/space/known-host %t %K\n"));
    CHECK_INT(fs_remove_tree(AT_FDCWD, dir), 0);
}

static void only_a_key_is_taken_for_a_host_key(void)
{
    static const char *const bad[] = {
        "",
        "ssh-ed25519 AAAA",
        "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIJmYmYmYmYmYmYmYmYmYmYmYmYmYmYmY",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJmYmYmYmYmYmYmYmYmYmYmYmYm\" ] ; reboot #",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJmYmYmYmYmYmYmYmYmYmYmYmYm$(reboot)",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJmYmYmYmYmYmYmYmYmYmYmYmYm\nreboot"};
    struct setup_spec s;
    struct err e = {0};

    CHECK_INT(parse_setup("{\"ssh_host_key\":\"ssh-ed25519 "
                          "AAAAC3NzaC1lZDI1NTE5AAAAIJmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmYmY\"}",
                          &s, &e),
              0);
    CHECK(s.ssh_host_key && str_starts(s.ssh_host_key, "ssh-ed25519 AAAA"));
    setup_spec_done(&s);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_json json_t *body = json_pack("{s:s}", "ssh_host_key", bad[i]);

        CHECK_INT(setup_spec_parse(body, &s, &e), -EINVAL);
        CHECK_STR(e.field, "ssh_host_key");
    }
}

TEST_MAIN(T(the_authority_is_installed_once), T(an_authority_takes_the_place_of_another),
          T(only_one_certificate_is_taken_for_an_authority), T(a_host_key_is_known_and_no_other),
          T(only_a_key_is_taken_for_a_host_key), T(targets_are_taken_apart),
          T(bad_targets_are_refused), T(users_are_found), T(groups_have_a_ceiling),
          T(a_setup_is_read), T(bad_setups_name_their_field), T(children_are_reaped_and_told),
          T(nobodys_children_are_reaped_too), T(helpers_report))
