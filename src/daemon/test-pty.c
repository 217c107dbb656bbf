/* SPDX-License-Identifier: Apache-2.0 */
/* F33: size, SIGWINCH, controlling terminal, Ctrl-C, end of file, hang-up, floods. */
#include "daemon/command.h"

#include "daemon/command-harness.h"

static void type(struct fixture *f, struct client *k, const char *text)
{
    k->input = text;
    k->input_len = strlen(text);
    client_feed(k);
    WAIT_UNTIL(f, k->input_len == 0);
}

static bool shows(const struct client *k, const char *text)
{
    return k->pty.len > 0 && memmem(k->pty.data, k->pty.len, text, strlen(text));
}

/* A shell that echoes nothing it is told, so that only what programs print is seen. */
static int start_shell(struct fixture *f, struct client *k)
{
    struct err e = {0};
    int r = client_start(
        f, k,
        "{\"argv\":[\"sh\",\"-c\",\"stty -echo; exec bash --norc --noprofile --noediting -i\"],"
        "\"env\":{\"PS1\":\"\",\"PATH\":\"/bin:/usr/bin:/sbin:/usr/"
        "sbin\"},\"pty\":{\"rows\":24,\"cols\":80}}",
        &e);

    if (r < 0) {
        TEST_FAIL("no shell: %s", e.msg);
        return r;
    }
    WAIT_UNTIL(f, command_stdin_open(k->c));
    type(f, k, "echo up-$((1+1))\n");
    WAIT_UNTIL(f, shows(k, "up-2"));
    return 0;
}

static void size_is_set_and_changes_are_signalled(void)
{
    struct fixture f;
    struct client k;
    struct err e = {0};

    fixture_init(&f, NULL, NULL);
    REQUIRE(start_shell(&f, &k) == 0);
    type(&f, &k, "stty size\n");
    WAIT_UNTIL(&f, shows(&k, "24 80"));
    type(&f, &k,
         "python3 -c 'import signal,os,time\n"
         "def say(*a): os.write(1, b\"%d %d\\n\" % tuple(reversed(os.get_terminal_size())))\n"
         "signal.signal(signal.SIGWINCH, say)\n"
         "os.write(1, b\"wait\" + b\"ing\\n\")\n"
         "while True: time.sleep(.05)'\n");
    WAIT_UNTIL(&f, shows(&k, "waiting"));
    CHECK_INT(command_resize(k.c, (struct pty_size){50, 132}, &e), 0);
    WAIT_UNTIL(&f, shows(&k, "50 132"));
    type(&f, &k, "\x03stty size; echo si\"\"zed\n"); /* Ctrl-C ends it, the shell lives */
    WAIT_UNTIL(&f, shows(&k, "sized"));
    CHECK(!k.ended);
    client_done(&k);
    fixture_done(&f);
}

/* The state letter of the process with this argument; 0 when there is none. */
static char state_of(const char *argument)
{
    cleanup_free char *command =
        xasprintf("ps -eo state=,args= | grep -v grep | grep 'sleep %s$'", argument);
    FILE *ps = popen(command, "re"); /* banned: a fixed line, in a test */
    int state = fgetc(ps);

    pclose(ps);
    return (char)MAX(state, 0);
}

static void terminal_is_the_controlling_one_and_jobs_work(void)
{
    struct fixture f;
    struct client k;
    struct command_view v;

    fixture_init(&f, NULL, NULL);
    REQUIRE(start_shell(&f, &k) == 0);
    type(&f, &k, "[ $(tty) = /dev/$(ps -o tty= -p $$) ] && echo agr\"\"ees; echo $TERM $(umask)\n");
    WAIT_UNTIL(&f, shows(&k, "xterm-256color 0022"));
    CHECK(shows(&k, "agrees"));
    CHECK(!shows(&k, "job control"));
    type(&f, &k, "sleep 600.0501\n");
    WAIT_LOOKING(&f, count_processes("600.0501") == 1);
    type(&f, &k, "\x1a");
    WAIT_UNTIL(&f, shows(&k, "Stopped"));
    type(&f, &k, "fg\n");
    WAIT_LOOKING(&f, state_of("600.0501") == 'S'); /* continued: by then the terminal is its */
    type(&f, &k, "\x03");
    WAIT_LOOKING(&f, count_processes("600.0501") == 0);
    type(&f, &k, "echo status $?\n");
    WAIT_UNTIL(&f, shows(&k, "status 130"));
    type(&f, &k, "exit 5\n");
    WAIT_UNTIL(&f, k.ended);
    command_view(k.c, &v);
    CHECK_INT(v.exit_code, 5);
    CHECK(v.pty);
    client_done(&k);
    fixture_done(&f);
}

static void end_of_file_byte_ends_the_shell(void)
{
    struct fixture f;
    struct client k;

    fixture_init(&f, NULL, NULL);
    REQUIRE(start_shell(&f, &k) == 0);
    type(&f, &k, "\x04");
    WAIT_UNTIL(&f, k.ended);
    CHECK_INT(k.end.exit_code, 0);
    client_done(&k);

    REQUIRE(start_shell(&f, &k) == 0);
    command_close_stdin(k.c);
    WAIT_UNTIL(&f, k.ended);
    client_done(&k);
    fixture_done(&f);
}

static void deletion_hangs_up_first(void)
{
    cleanup_free char *mark = xasprintf("/tmp/space-test-hup-%d", getpid());
    cleanup_free char *line =
        xasprintf("trap 'touch %s; exit' HUP; echo re\"\"ady; while :; do sleep 0.1; done\n", mark);
    struct fixture f;
    struct client k;

    fixture_init(&f, NULL, NULL);
    REQUIRE(start_shell(&f, &k) == 0);
    type(&f, &k, line);
    WAIT_UNTIL(&f, shows(&k, "ready"));
    command_delete(k.c);
    WAIT_UNTIL(&f, command_gone(k.c));
    CHECK_INT(unlink(mark), 0);
    client_done(&k);

    REQUIRE(start_shell(&f, &k) == 0);
    type(&f, &k, "trap '' HUP TERM; sleep 600.0502 & setsid sleep 600.0502 & echo re\"\"ady\n");
    WAIT_UNTIL(&f, shows(&k, "ready"));
    WAIT_LOOKING(&f, count_processes("600.0502") == 2);
    command_delete(k.c);
    WAIT_UNTIL(&f, command_gone(k.c));
    CHECK_INT(count_processes("600.0502"), 0);
    client_done(&k);
    fixture_done(&f);
}

static void paste_of_a_mebibyte_with_echo_does_not_deadlock(void)
{
    enum {
        LINES = 16384,
        LINE = 64
    };
    cleanup_free char *paste = xmalloc(LINES * LINE);
    struct fixture f;
    struct client k;
    struct err e = {0};

    for (size_t i = 0; i < LINES; i++) {
        memset(paste + i * LINE, 'a' + (int)(i % 26), LINE - 1);
        paste[i * LINE + LINE - 1] = '\n';
    }
    fixture_init(&f, NULL, NULL);
    CHECK_INT(client_start(&f, &k, "{\"argv\":[\"wc\",\"-c\"],\"pty\":{}}", &e), 0);
    WAIT_UNTIL(&f, command_stdin_open(k.c));
    k.input = paste;
    k.input_len = LINES * LINE;
    k.input_eof = true;
    client_feed(&k);
    WAIT_UNTIL(&f, k.ended);
    CHECK(shows(&k,
                "1048576\r\n")); /* no byte of it was lost; of its echo the kernel may drop some */
    CHECK(k.pty.len > LINES * LINE / 2);
    client_done(&k);
    fixture_done(&f);
}

static void last_bytes_of_a_terminal_are_never_lost(void)
{
    struct fixture f;

    fixture_init(&f, NULL, NULL);
    for (int i = 0; i < 100; i++) {
        struct client k;

        client_run(&f, &k,
                   "{\"shell\":\"stty -opost; head -c 20000 /dev/zero | tr '\\\\0' x; printf "
                   "END\",\"pty\":{}}");
        CHECK_INT(k.pty.len, 20003);
        CHECK(k.pty.len > 3 && memcmp(k.pty.data + k.pty.len - 3, "END", 3) == 0);
        client_done(&k);
    }
    fixture_done(&f);
}

static void several_readers_see_the_same(void)
{
    struct fixture f;
    struct client k;
    struct client second;
    struct client third;
    uint64_t from;

    fixture_init(&f, NULL, NULL);
    REQUIRE(start_shell(&f, &k) == 0);
    client_attach(&second, k.c, 0);
    client_read(&second);
    from = k.l.offset;
    type(&f, &k,
         "printf '\\377\\376\\303('; echo; echo all-$((40+2))\n"); /* not UTF-8: passes as it is */
    WAIT_UNTIL(&f, shows(&k, "all-42") && shows(&second, "all-42"));
    client_attach(&third, k.c, from); /* comes back by offset */
    client_read(&third);
    CHECK(shows(&third, "\xff\xfe\xc3("));
    client_done(&second); /* one client goes, the terminal goes on */
    type(&f, &k, "echo still-$((1+2)); exit\n");
    WAIT_UNTIL(&f, k.ended && third.ended);
    CHECK(shows(&third, "still-3"));
    CHECK_INT(from + third.pty.len, k.pty.len);
    client_done(&k);
    client_done(&third);
    fixture_done(&f);
}

static void command_without_terminal_cannot_be_resized(void)
{
    struct fixture f;
    struct client k;
    struct err e = {0};

    fixture_init(&f, NULL, NULL);
    CHECK_INT(client_start(&f, &k, "{\"argv\":[\"cat\"],\"stdin\":true}", &e), 0);
    CHECK_INT(command_resize(k.c, (struct pty_size){1, 1}, &e), -ESTALE);
    CHECK_STR(e.reason, "no_terminal");
    command_delete(k.c);
    WAIT_UNTIL(&f, command_gone(k.c));
    client_done(&k);
    fixture_done(&f);
}

static void flood_with_a_reader_that_stands_still_ends_with_deletion(void)
{
    struct fixture f;
    struct client k;
    struct err e = {0};

    fixture_init(&f, NULL, NULL);
    CHECK_INT(client_start(&f, &k, "{\"argv\":[\"yes\"],\"pty\":{}}", &e), 0);
    k.stopped = true;
    WAIT_UNTIL(&f, (command_view(k.c, &k.end), k.end.output_bytes == 1 << 20));
    command_delete(k.c);
    WAIT_UNTIL(&f, command_gone(k.c));
    client_done(&k);
    fixture_done(&f);
}

TEST_MAIN(T(size_is_set_and_changes_are_signalled),
          T(terminal_is_the_controlling_one_and_jobs_work), T(end_of_file_byte_ends_the_shell),
          T(deletion_hangs_up_first), T(paste_of_a_mebibyte_with_echo_does_not_deadlock),
          T(last_bytes_of_a_terminal_are_never_lost), T(several_readers_see_the_same),
          T(command_without_terminal_cannot_be_resized),
          T(flood_with_a_reader_that_stands_still_ends_with_deletion))
