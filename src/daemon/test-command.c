/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/command.h"

#include "daemon/command-harness.h"

#include <sys/resource.h>

static void exit_status_is_told_as_it_was(void)
{
    static const struct {
        const char *request;
        int exit_code;
        int signo;
        const char *out;
        const char *err;
        const char *error; /* NULL: none */
    } cases[] = {
        {"{\"argv\":[\"true\"]}", 0, 0, "", "", NULL},
        {"{\"shell\":\"exit 7\"}", 7, 0, "", "", NULL},
        {"{\"shell\":\"exit 255\"}", 255, 0, "", "", NULL},
        {"{\"shell\":\"kill -9 $$\"}", 137, 9, "", "", NULL},
        {"{\"shell\":\"kill -15 $$\"}", 143, 15, "", "", NULL},
        {"{\"shell\":\"echo out; echo err >&2\"}", 0, 0, "out\n", "err\n", NULL},
        {"{\"argv\":[\"/no/such\"]}", 127, 0, "", "",
         "cannot run '/no/such': No such file or directory"},
        {"{\"argv\":[\"no-such-program\"]}", 127, 0, "", "",
         "'no-such-program' was not found in PATH"},
        {"{\"argv\":[\"/etc/passwd\"]}", 126, 0, "", "",
         "cannot run '/etc/passwd': Permission denied"},
        {"{\"argv\":[\"/\"]}", 126, 0, "", "", "cannot run '/': Permission denied"},
        {"{\"argv\":[\"/etc/passwd/x\"]}", 127, 0, "", "",
         "cannot run '/etc/passwd/x': Not a directory"},
        {"{\"argv\":[\"sh\",\"-c\",\"printf %s \\\"$1\\\"\",\"x\",\"a  b\\nc\"]}", 0, 0, "a  b\nc",
         "", NULL},
        {"{\"shell\":\"pwd\",\"cwd\":\"/usr\"}", 0, 0, "/usr\n", "", NULL},
        {"{\"shell\":\"echo $A-$B\",\"env\":{\"A\":\"1\",\"B\":\"x y\"}}", 0, 0, "1-x y\n", "",
         NULL},
        {"{\"argv\":[\"echo\",\"hi\"],\"env\":{\"PATH\":\"/no:/bin\"}}", 0, 0, "hi\n", "", NULL},
        {"{\"argv\":[\"echo\"],\"env\":{\"PATH\":\"/no\"}}", 127, 0, "", "",
         "'echo' was not found in PATH"},
    };
    struct fixture f;

    fixture_init(&f, NULL, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct client k;
        struct command_view v;

        printf("# %s\n", cases[i].request);
        client_run(&f, &k, cases[i].request);
        REQUIRE(k.c);
        command_view(k.c, &v);
        CHECK_INT(v.exit_code, cases[i].exit_code);
        CHECK_INT(v.signo, cases[i].signo);
        CHECK_STR(buf_str(&k.out), cases[i].out);
        CHECK_STR(buf_str(&k.err), cases[i].err);
        CHECK_STR(v.error ? v.error : "(none)", cases[i].error ? cases[i].error : "(none)");
        CHECK(!v.timed_out && !v.oom_killed);
        client_done(&k);
    }
    fixture_done(&f);
}

static void missing_cwd_is_the_requests_error(void)
{
    struct fixture f;
    struct client k;
    struct err e = {0};
    struct commands_figures figures;

    fixture_init(&f, NULL, NULL);
    CHECK_INT(client_start(&f, &k, "{\"argv\":[\"true\"],\"cwd\":\"/no/such\"}", &e), 0);
    WAIT_UNTIL(&f, command_started(k.c, &e) != -EINPROGRESS);
    CHECK_INT(command_started(k.c, &e), -EINVAL);
    CHECK_STR(e.field, "cwd");
    CHECK_STR(e.msg, "cannot start in '/no/such': No such file or directory");
    WAIT_UNTIL(&f, command_gone(k.c));
    commands_figures(f.commands, &figures);
    CHECK_INT(figures.n_remembered, 0);
    client_done(&k);
    fixture_done(&f);
}

/* F01 */
static void background_child_does_not_hold_up_the_end(void)
{
    struct fixture f;
    struct client k;
    struct client late;
    uint64_t begin = clock_now_ns();
    char id[ID_SIZE];
    char sign[64];
    char request[200];

    fixture_init(&f, NULL, NULL);
    client_run(&f, &k, "{\"shell\":\"sleep 30.0101 & echo started\"}");
    CHECK(clock_now_ns() - begin < 20 * NS_PER_S);
    CHECK_STR(buf_str(&k.out), "started\n");
    CHECK_INT(k.end.exit_code, 0);
    WAIT_LOOKING(&f, count_processes("30.0101") == 1);
    client_done(&k);

    /* What comes late is on the same command, after its end. */
    snprintf(sign, sizeof(sign), "/tmp/space-late-%d", (int)getpid());
    snprintf(request, sizeof(request),
             "{\"shell\":\"(while [ ! -e %s ]; do sleep 0.02; done; echo late) & echo now\"}",
             sign);
    client_run(&f, &k, request);
    CHECK_STR(buf_str(&k.out), "now\n");
    snprintf(id, sizeof(id), "%s", k.end.id);
    close(open(sign, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    WAIT_UNTIL(&f, (command_view(k.c, &k.end), k.end.output_bytes == 9));
    client_done(&k);
    REQUIRE(command_find(f.commands, id));
    client_attach(&late, command_find(f.commands, id), 4);
    client_read(&late);
    CHECK(late.ended);
    CHECK_STR(buf_str(&late.out), "late\n");
    client_done(&late);
    unlink(sign);
    fixture_done(&f);
    CHECK_INT(count_processes("30.0101"), 0);
}

/* F02 */
static void timeout_reaches_the_whole_tree(void)
{
    static const char *const requests[] = {
        ("{\"shell\":\"(sleep 600.0201 &); setsid sleep 600.0201 & sleep 600.0201 & "
         "wait\",\"timeout_ms\":300}"),
        "{\"shell\":\"trap '' TERM; while :; do sleep 600.0201; done\",\"timeout_ms\":300}",
        "{\"shell\":\"sleep 600.0201 & kill -STOP $!; kill -STOP $$\",\"timeout_ms\":300}",
    };
    struct fixture f;
    struct client other;
    struct err e = {0};

    fixture_init(&f, NULL, NULL);
    CHECK_INT(client_start(&f, &other, "{\"argv\":[\"sleep\",\"600.0202\"]}", &e), 0);
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        struct client k;

        printf("# %s\n", requests[i]);
        client_run(&f, &k, requests[i]);
        CHECK(k.end.timed_out);
        CHECK(k.end.exit_code != 0);
        WAIT_LOOKING(&f, count_processes("600.0201") == 0);
        client_done(&k);
    }
    CHECK(!other.ended);
    WAIT_LOOKING(&f, count_processes("600.0202") == 1);
    client_done(&other);
    fixture_done(&f);
}

static void timeout_after_the_end_still_clears_the_tree(void)
{
    struct fixture f;
    struct client k;

    fixture_init(&f, NULL, NULL);
    client_run(&f, &k, "{\"shell\":\"sleep 600.0203 & exit 3\",\"timeout_ms\":1500}");
    CHECK_INT(k.end.exit_code, 3);
    WAIT_LOOKING(&f, count_processes("600.0203") == 1); /* it may be between fork and exec still */
    WAIT_LOOKING(&f, count_processes("600.0203") == 0);
    command_view(k.c, &k.end);
    CHECK(!k.end.timed_out); /* the command itself was in time */
    client_done(&k);
    fixture_done(&f);
}

static void kill_and_delete_reach_the_whole_tree(void)
{
    static const char request[] =
        "{\"shell\":\"(sleep 600.0204 &); setsid sleep 600.0204 & sleep 600.0204 & echo up; "
        "trap '' TERM; wait; wait; sleep 600.0204\"}";
    struct fixture f;
    struct client k;
    struct err e = {0};

    fixture_init(&f, NULL, NULL);
    CHECK_INT(client_start(&f, &k, request, &e), 0);
    WAIT_LOOKING(&f, count_processes("600.0204") == 3 && k.out.len == 3);
    CHECK_INT(command_signal(k.c, SIGKILL, /* tree */ true, &e), 0);
    WAIT_UNTIL(&f, k.ended);
    CHECK_INT(k.end.exit_code, 137);
    CHECK_INT(k.end.signo, 9);
    WAIT_LOOKING(&f, count_processes("600.0204") == 0);
    WAIT_UNTIL(&f, command_signal(k.c, SIGTERM, true, &e) == -ESTALE);
    CHECK_STR(e.reason, "not_running");
    client_done(&k);

    CHECK_INT(client_start(&f, &k, request, &e), 0);
    WAIT_LOOKING(&f, count_processes("600.0204") == 3);
    command_delete(k.c);
    command_delete(k.c);
    WAIT_UNTIL(&f, command_gone(k.c));
    CHECK(k.ended);
    CHECK_INT(count_processes("600.0204"), 0);
    client_done(&k);
    fixture_done(&f);
}

static void signal_to_the_process_alone_leaves_its_tree(void)
{
    struct fixture f;
    struct client k;
    struct err e = {0};

    fixture_init(&f, NULL, NULL);
    CHECK_INT(client_start(
                  &f, &k, "{\"shell\":\"sleep 600.0205 & trap 'exit 9' USR1; echo up; wait\"}", &e),
              0);
    WAIT_UNTIL(&f, k.out.len == 3);
    CHECK_INT(command_signal(k.c, SIGUSR1, /* tree */ false, &e), 0);
    WAIT_UNTIL(&f, k.ended);
    CHECK_INT(k.end.exit_code, 9);
    WAIT_LOOKING(&f, count_processes("600.0205") == 1);
    client_done(&k);
    fixture_done(&f);
}

/* F03 */
static void stdin_ends_holds_and_breaks_as_it_should(void)
{
    cleanup_free char *big = xcalloc(5, 1 << 20);
    struct fixture f;
    struct client k;
    struct err e = {0};

    fixture_init(&f, NULL, NULL);
    client_run(&f, &k, "{\"argv\":[\"cat\"]}");
    CHECK_INT(k.end.exit_code, 0);
    CHECK_INT(k.out.len, 0);
    CHECK(!command_stdin_open(k.c));
    client_done(&k);

    client_run(&f, &k, "{\"argv\":[\"echo\",\"hi\"],\"stdin\":true}");
    CHECK_STR(buf_str(&k.out), "hi\n");
    client_done(&k);

    CHECK_INT(client_start(&f, &k, "{\"shell\":\"read x; echo got:$x\",\"stdin\":true}", &e), 0);
    k.input = "hi\n";
    k.input_len = 3;
    client_feed(&k);
    CHECK_INT(command_write(k.c, "", 0), 0); /* an empty piece is not the end */
    WAIT_UNTIL(&f, k.ended);
    CHECK_STR(buf_str(&k.out), "got:hi\n");
    client_done(&k);

    CHECK_INT(client_start(&f, &k, "{\"argv\":[\"sha256sum\"],\"stdin\":true}", &e), 0);
    k.input = big;
    k.input_len = 5 << 20;
    k.input_eof = true;
    client_feed(&k);
    WAIT_UNTIL(&f, k.ended);
    CHECK(!k.input_refused);
    CHECK_STR(buf_str(&k.out),
              "c036cbb7553a909f8b8877d4461924307f27ecb66cff928eeeafd569c3887e29  -\n");
    client_done(&k);

    CHECK_INT(client_start(&f, &k, "{\"argv\":[\"true\"],\"stdin\":true}", &e), 0);
    k.input = big;
    k.input_len = 5 << 20;
    client_feed(&k);
    WAIT_UNTIL(&f, k.ended && k.input_refused);
    CHECK_INT(k.end.exit_code, 0);
    client_done(&k);
    fixture_done(&f);
}

static void program_that_closes_its_stdin_breaks_the_writer_only(void)
{
    cleanup_free char *big = xcalloc(1, 1 << 20);
    struct fixture f;
    struct client k;
    struct err e = {0};

    fixture_init(&f, NULL, NULL);
    CHECK_INT(
        client_start(&f, &k, "{\"shell\":\"exec <&-; sleep 0.3; echo done\",\"stdin\":true}", &e),
        0);
    k.input = big;
    k.input_len = 1 << 20;
    client_feed(&k);
    WAIT_UNTIL(&f, k.input_refused);
    CHECK(!k.ended);
    WAIT_UNTIL(&f, k.ended);
    CHECK_STR(buf_str(&k.out), "done\n");
    client_done(&k);
    fixture_done(&f);
}

static void writers_take_turns(void)
{
    struct fixture f;
    struct client k;
    struct client second;
    struct err e = {0};

    fixture_init(&f, NULL, NULL);
    CHECK_INT(client_start(&f, &k, "{\"argv\":[\"cat\"],\"stdin\":true}", &e), 0);
    k.l.writes = true;
    client_attach(&second, k.c, 0);
    second.l.writes = true;
    second.input = "two";
    second.input_len = 3;
    second.input_eof = true;
    client_feed(&second);
    CHECK_INT(second.input_len, 3); /* not its turn */
    k.input = "one";
    k.input_len = 3;
    client_feed(&k);
    command_unlisten(&k.l);
    WAIT_UNTIL(&f, second.ended);
    CHECK_STR(buf_str(&second.out), "onetwo");
    client_done(&k);
    client_done(&second);
    fixture_done(&f);
}

static long resident_kib(void)
{
    FILE *statm = fopen("/proc/self/statm", "re");
    long size = 0;
    long resident = 0;

    CHECK_INT(fscanf(statm, "%ld %ld", &size, &resident), 2);
    fclose(statm);
    return resident * 4;
}

/* F04: the reader stands still, then reads all; nothing is lost, nothing grows, others go on. */
static void slow_reader_loses_nothing_and_holds_up_nobody(void)
{
    static const uint64_t total = 104857600;
    struct fixture f;
    struct client k;
    struct client other;
    struct command_item item;
    struct err e = {0};
    uint64_t at = 0;
    long before;

    fixture_init(&f, NULL, NULL);
    before = resident_kib();
    CHECK_INT(client_start(&f, &k, "{\"shell\":\"yes abcdefghi | head -c 104857600\"}", &e), 0);
    k.stopped = true;
    WAIT_UNTIL(&f, (command_view(k.c, &k.end), k.end.output_bytes == 1 << 20));
    client_run(&f, &other, "{\"argv\":[\"echo\",\"ok\"]}");
    CHECK_STR(buf_str(&other.out), "ok\n");
    client_done(&other);
    command_view(k.c, &k.end);
    CHECK_INT(k.end.output_bytes, 1 << 20); /* held back */
    for (command_item(&k.l, 65536, &item); item.kind != COMMAND_ITEM_END;
         command_item(&k.l, 65536, &item)) {
        if (item.kind == COMMAND_ITEM_NOTHING) {
            loop_run_once(f.loop, deadline_in_ms(WAIT_MS));
            continue;
        }
        REQUIRE(item.kind == COMMAND_ITEM_DATA);
        for (size_t i = 0; i < item.run.len; i++, at++) {
            REQUIRE(item.run.data[i] == "abcdefghi\n"[at % 10]);
        }
        command_advance(&k.l, &item);
    }
    CHECK_INT(at, total);
    command_view(k.c, &k.end);
    CHECK_INT(k.end.exit_code, 0);
    CHECK(resident_kib() - before < 16 * 1024);
    client_done(&k);
    fixture_done(&f);
}

static void without_a_reader_the_newest_is_kept_and_the_gap_is_told(void)
{
    struct fixture f;
    struct client k;
    struct err e = {0};
    struct command *c;

    fixture_init(&f, NULL, NULL);
    CHECK_INT(client_start(&f, &k, "{\"shell\":\"head -c 5000000 /dev/zero; printf END\"}", &e), 0);
    c = k.c;
    k.l.holds = false;
    k.stopped = true;
    WAIT_UNTIL(&f, command_ended(c));
    client_done(&k);
    client_attach(&k, c, 0);
    client_read(&k);
    CHECK(k.ended);
    CHECK_INT(k.n_gaps, 1);
    CHECK_INT(k.out.len, 1 << 20);
    CHECK_MEM(k.out.data + k.out.len - 3, "END", 3);
    CHECK_INT(k.end.output_offset, 5000003 - (1 << 20));
    client_done(&k);
    /* By offset, nothing is told twice. */
    client_attach(&k, c, 5000000);
    client_read(&k);
    CHECK_STR(buf_str(&k.out), "END");
    client_done(&k);
    fixture_done(&f);
}

/* F05 */
static void last_bytes_are_never_lost(void)
{
    static const char request[] =
        "{\"shell\":\"head -c 65536 /dev/zero | tr '\\\\0' x; printf END; printf ERR >&2\"}";
    enum {
        AT_ONCE = 50,
        ROUNDS = 4
    };
    struct fixture f;

    fixture_init(&f, NULL, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        struct client k[AT_ONCE];
        struct err e = {0};

        for (int i = 0; i < AT_ONCE; i++) {
            REQUIRE(client_start(&f, &k[i], request, &e) == 0);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            WAIT_UNTIL(&f, k[i].ended);
            CHECK_INT(k[i].out.len, 65539);
            CHECK(k[i].out.len == 65539 && memcmp(k[i].out.data + 65536, "END", 3) == 0);
            CHECK_STR(buf_str(&k[i].err), "ERR");
            client_done(&k[i]);
        }
    }
    fixture_done(&f);
}

/* F28 */
static void bytes_stay_bytes(void)
{
    struct fixture f;
    struct client k;

    fixture_init(&f, NULL, NULL);
    client_run(&f, &k,
               "{\"shell\":\"i=0; while [ $i -lt 256 ]; do printf \\\\\\\\$(printf %03o $i); "
               "i=$((i+1)); done\"}");
    CHECK_INT(k.out.len, 256);
    for (size_t i = 0; i < k.out.len; i++) {
        CHECK_INT((uint8_t)k.out.data[i], i);
    }
    client_done(&k);
    fixture_done(&f);
}

static void child_starts_clean(void)
{
    struct fixture f;
    struct client k;
    sigset_t mask;
    sigset_t old;
    const char *const expected = "umask 0022\n"
                                 "nice 0\n"
                                 "SigBlk:\t0000000000000000\n"
                                 "SigIgn:\t0000000000000000\n"
                                 "session own\n"
                                 "stdin /dev/null\n";

    fixture_init(&f, NULL, NULL);
    signal(SIGHUP, SIG_IGN);
    sigfillset(&mask);
    sigprocmask(SIG_SETMASK, &mask, &old);
    umask(077);
    client_run(&f, &k,
               "{\"shell\":\"echo umask $(umask); echo nice $(nice); "
               "grep -E 'Sig(Blk|Ign)' /proc/self/status;"
               "[ $(cut -d' ' -f6 /proc/$$/stat) = $$ ] && echo session own;"
               "echo stdin $(readlink /proc/$$/fd/0)\"}");
    umask(022);
    sigprocmask(SIG_SETMASK, &old, NULL);
    signal(SIGHUP, SIG_DFL);
    CHECK_STR(buf_str(&k.out), expected);
    CHECK_STR(buf_str(&k.err), "");
    client_done(&k);
    client_run(&f, &k, "{\"argv\":[\"ls\",\"/proc/self/fd\"]}");
    CHECK_STR(buf_str(&k.out), "0\n1\n2\n3\n"); /* 3 is what it lists with */
    client_done(&k);
    fixture_done(&f);
}

static void too_many_commands_are_refused_clearly(void)
{
    struct command_limits limits = command_limits_default;
    struct fixture f;
    struct client k[3];
    struct err e = {0};

    limits.alive_max = 2;
    fixture_init(&f, &limits, NULL);
    CHECK_INT(client_start(&f, &k[0], "{\"argv\":[\"sleep\",\"600.0301\"]}", &e), 0);
    client_run(&f, &k[1], "{\"shell\":\"sleep 600.0301 & true\"}"); /* ended, but its child lives */
    CHECK_INT(client_start(&f, &k[2], "{\"argv\":[\"true\"]}", &e), -EUSERS);
    CHECK_STR(e.reason, "too_many_commands");
    CHECK_INT(err_http_status(&e), 429);
    command_delete(k[1].c);
    WAIT_UNTIL(&f, command_gone(k[1].c));
    client_done(&k[1]);
    client_run(&f, &k[2], "{\"argv\":[\"true\"]}");
    client_done(&k[2]);
    client_done(&k[0]);
    fixture_done(&f);
}

static void old_ended_commands_are_forgotten(void)
{
    struct command_limits limits = command_limits_default;
    struct commands_figures figures;
    struct fixture f;
    char first[ID_SIZE] = "";

    limits.ended_max = 5;
    fixture_init(&f, &limits, NULL);
    for (int i = 0; i < 20; i++) {
        struct client k;

        client_run(&f, &k, "{\"argv\":[\"echo\",\"x\"]}");
        REQUIRE(k.c);
        if (i == 0) {
            snprintf(first, sizeof(first), "%s", k.end.id);
        }
        client_done(&k);
        WAIT_UNTIL(&f, (commands_figures(f.commands, &figures), figures.n_alive == 0));
    }
    CHECK_INT(figures.n_remembered, 5);
    CHECK(!command_find(f.commands, first));
    fixture_done(&f);
}

static size_t count_own_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

/* F41: all answered, none lost, nothing left open. */
static void five_hundred_at_once(void)
{
    enum {
        N = 500
    };
    struct client *k = xnew_n(struct client, N);
    struct fixture f;
    struct err e = {0};
    struct rlimit files;
    size_t n_fds;

    REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
    fixture_init(&f, NULL, NULL);
    n_fds = count_own_fds();
    for (size_t i = 0; i < N; i++) {
        REQUIRE(client_start(&f, &k[i], "{\"argv\":[\"true\"]}", &e) == 0);
    }
    for (size_t i = 0; i < N; i++) {
        WAIT_UNTIL(&f, k[i].ended);
        CHECK_INT(k[i].end.exit_code, 0);
        client_done(&k[i]);
    }
    free(k);
    for (struct command *c; (c = command_after(f.commands, 0));) {
        command_delete(c);
        WAIT_UNTIL(&f, command_after(f.commands, 0) != c);
    }
    CHECK_INT(count_own_fds(), n_fds);
    fixture_done(&f);
}

TEST_MAIN(T(exit_status_is_told_as_it_was), T(missing_cwd_is_the_requests_error),
          T(background_child_does_not_hold_up_the_end), T(timeout_reaches_the_whole_tree),
          T(timeout_after_the_end_still_clears_the_tree), T(kill_and_delete_reach_the_whole_tree),
          T(signal_to_the_process_alone_leaves_its_tree),
          T(stdin_ends_holds_and_breaks_as_it_should),
          T(program_that_closes_its_stdin_breaks_the_writer_only), T(writers_take_turns),
          T(slow_reader_loses_nothing_and_holds_up_nobody),
          T(without_a_reader_the_newest_is_kept_and_the_gap_is_told), T(last_bytes_are_never_lost),
          T(bytes_stay_bytes), T(child_starts_clean), T(too_many_commands_are_refused_clearly),
          T(old_ended_commands_are_forgotten), T(five_hundred_at_once))
