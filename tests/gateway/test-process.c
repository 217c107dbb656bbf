/* SPDX-License-Identifier: Apache-2.0 */

/* space-gateway as a program: how it starts, what it refuses, how it stops. The program's path is argv[1]. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/test.h"
#include "database/postgres-testbed.h"
#include "http/client.h"

#define TEST_MS 30000
#define NOBODY 65534

static const char *program;

struct place {
    char dir[40];
    char state[64];
};

static void place_init(struct place *p)
{
    snprintf(p->dir, sizeof(p->dir), "/tmp/space-gwproc-XXXXXX");
    ASSERT(mkdtemp(p->dir));
    ASSERT(chmod(p->dir, 0755) == 0);
    snprintf(p->state, sizeof(p->state), "%s/state", p->dir);
    ASSERT(mkdir(p->state, 0700) == 0);
    if (geteuid() == 0) {
        ASSERT(chown(p->state, NOBODY, NOBODY) == 0);
    }
}

static void place_done(struct place *p)
{
    cleanup_close int fd = fs_open("/tmp", O_RDONLY | O_DIRECTORY, 0);

    ASSERT(fd >= 0 && fs_remove_tree(fd, p->dir + 5) == 0);
}
#define PLACE(p_) \
    CLEANUP(place_done) struct place p_; \
    place_init(&p_)

/* A gateway with its standard output and error on one pipe. */
struct gateway_process {
    struct proc proc;
    int out_fd; /* owned */
    struct buf out;
};

#define ARGS_MAX 12

/* user NULL: as whoever we are. args end with NULL. */
static void process_start(struct gateway_process *g, const char *user, const char *const *args)
{
    const char *argv[ARGS_MAX + 4] = {program};
    struct proc_spec spec = {.argv = argv, .stdin_fd = FD_NONE};
    size_t n = 1;
    int fds[2];

    while (*args) {
        ASSERT(n < ARGS_MAX);
        argv[n++] = *args++;
    }
    if (user) {
        argv[n++] = "--user";
        argv[n++] = user;
    }
    ASSERT(pipe2(fds, O_CLOEXEC) == 0);
    spec.stdout_fd = fds[1];
    spec.stderr_fd = fds[1];
    *g = (struct gateway_process){.out_fd = fds[0], .out = BUF_INIT(1u << 20)};
    ASSERT(proc_spawn(&spec, &g->proc, NULL) == 0);
    close(fds[1]);
}
#define START(g_, ...) \
    process_start((g_), geteuid() == 0 ? "nobody" : NULL, (const char *const[]){__VA_ARGS__, NULL})

/* Reads until the text appears; false: the output ended, or nothing came for too long. */
static bool process_await(struct gateway_process *g, const char *text)
{
    uint64_t deadline_ns = deadline_in_ms(TEST_MS);
    char data[4096];

    while (!strstr(buf_str(&g->out), text)) {
        struct pollfd p = {.fd = g->out_fd, .events = POLLIN};
        ssize_t n;

        if (poll(&p, 1, deadline_poll_ms(deadline_ns)) <= 0) {
            return false;
        }
        n = read(g->out_fd, data, sizeof(data));
        if (n <= 0) {
            return false;
        }
        ASSERT(buf_add(&g->out, data, (size_t)n) == 0);
    }
    return true;
}

/* Waits for the end; the exit status, or 128 and the signal. */
static int process_end(struct gateway_process *g)
{
    int status = 0;

    IGNORE_RESULT(process_await(g, "\x01")); /* is never printed: reads to the end of the output */
    ASSERT(proc_wait(&g->proc, deadline_in_ms(TEST_MS), &status) == 0);
    fd_close(g->proc.pidfd);
    fd_close(g->out_fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void process_stop(struct gateway_process *g)
{
    proc_signal(&g->proc, SIGTERM);
    CHECK_INT(process_end(g), 0);
    CHECK(strstr(buf_str(&g->out), "stopped") != NULL);
    buf_done(&g->out);
}

static unsigned process_port(struct gateway_process *g)
{
    const char *at;
    unsigned port = 0;

    if (!process_await(g, "node unix:")) {
        TEST_FAIL("it does not listen: %s", buf_str(&g->out));
        return 0;
    }
    at = strstr(buf_str(&g->out), "(port ");
    CHECK(at && sscanf(at, "(port %u)", &port) == 1);
    return port;
}

static void expect_end(struct gateway_process *g, int want_status, const char *want_text)
{
    CHECK_INT(process_end(g), want_status);
    if (!strstr(buf_str(&g->out), want_text)) {
        TEST_FAIL("'%s' is not in: %s", want_text, buf_str(&g->out));
    }
    buf_done(&g->out);
}

static int health(unsigned port)
{
    CLEANUP(http_client_freep) struct http_client *client = NULL;
    char url[64];
    int status = 0;
    struct http_json_opts opts = {
        .target = "/v1/health", .deadline_ns = deadline_in_ms(TEST_MS), .ret_status = &status};

    snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
    ASSERT(http_client_new(url, NULL, &client, NULL) == 0);
    return http_client_json(client, &opts, NULL, NULL) == 0 ? status : -1;
}

static void serves_and_stops_on_sigterm(void)
{
    PLACE(p);
    struct gateway_process g;

    START(&g, "--state-dir", p.state, "--run-dir", p.dir, "--listen", "127.0.0.1:0");
    CHECK_INT(health(process_port(&g)), 200);
    process_stop(&g);
}

static void restart_finds_the_same_database(void)
{
    PLACE(p);

    for (int i = 0; i < 3; i++) {
        struct gateway_process g;

        START(&g, "--state-dir", p.state, "--run-dir", p.dir, "--listen", "127.0.0.1:0");
        CHECK_INT(health(process_port(&g)), 200);
        if (i < 2) { /* without warning */
            proc_signal(&g.proc, SIGKILL);
            CHECK_INT(process_end(&g), 128 + SIGKILL);
            buf_done(&g.out);
        } else {
            process_stop(&g);
        }
    }
}

static void taken_port_is_named_with_the_option(void)
{
    PLACE(p);
    PLACE(other);
    struct gateway_process g;
    struct gateway_process second;
    char address[32];

    START(&g, "--state-dir", p.state, "--run-dir", p.dir, "--listen", "127.0.0.1:0");
    snprintf(address, sizeof(address), "127.0.0.1:%u", process_port(&g));
    START(&second, "--state-dir", other.state, "--run-dir", p.dir, "--listen", address);
    expect_end(&second, 1, "--listen");
    START(&second, "--state-dir", other.state, "--run-dir", p.dir, "--listen", address);
    expect_end(&second, 1, address);
    process_stop(&g);
}

static void second_gateway_on_one_state_folder_is_refused(void)
{
    PLACE(p);
    struct gateway_process g;
    struct gateway_process second;

    START(&g, "--state-dir", p.state, "--run-dir", p.dir, "--listen", "127.0.0.1:0");
    CHECK(process_port(&g) > 0);
    START(&second, "--state-dir", p.state, "--run-dir", p.dir, "--listen", "127.0.0.1:0");
    expect_end(&second, 1, "another gateway runs on");
    process_stop(&g);
}

static void key_is_made_beside_a_running_gateway_and_works(void)
{
    PLACE(p);
    struct gateway_process g;
    struct gateway_process maker;
    CLEANUP(http_client_freep) struct http_client *client = NULL;
    cleanup_json json_t *key = NULL;
    struct http_headers headers = HTTP_HEADERS_INIT;
    struct http_json_opts opts = {
        .target = "/v1/keys", .headers = &headers, .deadline_ns = deadline_in_ms(TEST_MS)};
    char url[64];

    START(&g, "--state-dir", p.state, "--run-dir", p.dir, "--listen", "127.0.0.1:0");
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", process_port(&g));
    START(&maker, "--state-dir", p.state, "--create-key", "first");
    CHECK_INT(process_end(&maker), 0);
    CHECK_INT(json_parse_object(buf_str(&maker.out), maker.out.len, &key, NULL), 0);
    http_headers_add(&headers, "X-API-Key", json_get_string(key, "key", ""));
    ASSERT(http_client_new(url, NULL, &client, NULL) == 0);
    CHECK_INT(http_client_json(client, &opts, NULL, NULL), 0);
    http_headers_done(&headers);
    buf_done(&maker.out);
    process_stop(&g);
}

static void wrong_use_is_explained(void)
{
    PLACE(p);
    struct gateway_process g;

    START(&g, "--listn", "x");
    expect_end(&g, 2, "--listn");
    START(&g, "--state-dir", "/nonexistent", "--run-dir", p.dir);
    expect_end(&g, 1, "--state-dir");
    START(&g, "--state-dir", p.state, "--run-dir", p.dir, "--listen", "nonsense:port");
    expect_end(&g, 1, "nonsense:port");
    START(&g, "--state-dir", p.state, "--run-dir", p.dir, "--console", "/nonexistent");
    expect_end(&g, 1, "/nonexistent");
    START(&g, "--state-dir", p.state, "--create-key", "x", "--scope", "everything");
    expect_end(&g, 1, "--scope");
}

static void passwords_do_not_go_on_command_lines(void)
{
    PLACE(p);
    struct gateway_process g;

    START(&g, "--state-dir", p.state, "--database", "postgresql://u:secret@127.0.0.1/x");
    expect_end(&g, 2, "--database-password-file");
    START(&g, "--state-dir", p.state, "--database", "postgresql:///x?host=/tmp&password=secret");
    expect_end(&g, 2, "--database-password-file");
    START(&g, "--state-dir", p.state, "--database", "mysql://u@127.0.0.1/x");
    expect_end(&g, 2, "postgresql://");
    START(&g, "--state-dir", p.state, "--database-password-file", "/x");
    expect_end(&g, 2, "needs '--database'");
    START(&g, "--state-dir", p.state, "--run-dir", p.dir, "--database",
          "postgresql://u@127.0.0.1/x", "--database-password-file", "/nonexistent");
    expect_end(&g, 1, "/nonexistent");
}

/* A folder each, one database; what one died of the other does not mind. The database goes and comes meanwhile. */
static void gateways_over_one_server(void)
{
    PLACE(p);
    PLACE(other);
    CLEANUP(postgres_testbed_freep) struct postgres_testbed *bed = postgres_testbed_new();
    cleanup_free char *password = xasprintf("%s/password", p.dir);
    cleanup_close int fd = open(password, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    char url[POSTGRES_TESTBED_URL_SIZE];
    struct gateway_process a;
    struct gateway_process b;
    unsigned port;

    if (!bed) {
        TEST_SKIP("there is no PostgreSQL on this system");
    }
    ASSERT(fs_write_all(fd, "it's a 100% secret\n", 19) == 0 && fchmod(fd, 0644) == 0);
    postgres_testbed_database(bed, url);
    START(&a, "--state-dir", p.state, "--run-dir", p.dir, "--listen", "127.0.0.1:0", "--database",
          url, "--database-password-file", password);
    START(&b, "--state-dir", other.state, "--run-dir", p.dir, "--listen", "127.0.0.1:0",
          "--database", url);
    CHECK_INT(health(process_port(&a)), 200);
    port = process_port(&b);
    CHECK_INT(health(port), 200);
    proc_signal(&a.proc, SIGKILL);
    CHECK_INT(process_end(&a), 128 + SIGKILL);
    buf_done(&a.out);
    CHECK_INT(health(port), 200);

    postgres_testbed_kill(bed);
    CHECK_INT(health(port), -1); /* 503: it says so, and lives */
    postgres_testbed_start(bed);
    CHECK(process_await(&b, "the database is back")); /* a confined gateway can connect anew */
    CHECK_INT(health(port), 200);
    process_stop(&b);
}

static void root_is_refused(void)
{
    PLACE(p);
    struct gateway_process g;
    static const char *const no_args[] = {NULL};

    if (geteuid() != 0) {
        TEST_SKIP("needs root");
    }
    process_start(&g, NULL, no_args);
    expect_end(&g, 1, "--user");
    process_start(&g, "root", no_args);
    expect_end(&g, 1, "must not be root");
    process_start(&g, "no-such-user-here", no_args);
    expect_end(&g, 1, "no-such-user-here");
    ASSERT(p.dir[0]);
}

/* What the program really is while it serves. */
static void serving_process_has_given_up_what_it_does_not_need(void)
{
    static const char *const want[] = {"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000",
                                       "CapPrm:\t0000000000000000"};
    PLACE(p);
    struct gateway_process g;
    cleanup_buf struct buf status = BUF_INIT(65536);
    cleanup_free char *path = NULL;
    unsigned port;

    START(&g, "--state-dir", p.state, "--run-dir", p.dir, "--listen", "127.0.0.1:0");
    port = process_port(&g);
    CHECK_INT(health(port), 200); /* so it serves, and is confined */
    path = xasprintf("/proc/%d/status", (int)g.proc.pid);
    CHECK_INT(fs_read_file(AT_FDCWD, path, &status), 0);
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        if (!strstr(buf_str(&status), want[i])) {
            TEST_FAIL("'%s' is not in its status", want[i]);
        }
    }
    process_stop(&g);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        T(serves_and_stops_on_sigterm),
        T(restart_finds_the_same_database),
        T(taken_port_is_named_with_the_option),
        T(second_gateway_on_one_state_folder_is_refused),
        T(key_is_made_beside_a_running_gateway_and_works),
        T(wrong_use_is_explained),
        T(passwords_do_not_go_on_command_lines),
        T(gateways_over_one_server),
        T(root_is_refused),
        T(serving_process_has_given_up_what_it_does_not_need),
    };

    ASSERT(argc > 1);
    program = argv[1];
    /* In sanitizer builds: the search for leaks traces its own process, which a confined gateway may not. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    return test_run_all(cases, ARRAY_SIZE(cases), argc - 1, argv + 1);
}
