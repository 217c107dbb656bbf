/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/proc.h"
#include "base/sock.h"
#include "base/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void buf_keeps_its_ceiling(void)
{
    cleanup_buf struct buf b = BUF_INIT(8);

    CHECK_STR(buf_str(&b), "");
    CHECK_INT(buf_add_str(&b, "12345678"), 0);
    CHECK_INT(buf_add_str(&b, "9"), -E2BIG);
    CHECK_STR(buf_str(&b), "12345678");
    buf_consume(&b, 6);
    CHECK_INT(buf_printf(&b, "%d", 123456), 0);
    CHECK_STR(buf_str(&b), "78123456");
    CHECK_INT(buf_printf(&b, "x"), -E2BIG);
}

static void buf_survives_many_small_moves(void)
{
    cleanup_buf struct buf b = BUF_INIT(1000);
    unsigned in = 0;
    unsigned out = 0;

    for (int round = 0; round < 10000; round++) {
        for (int i = round % 7; i >= 0; i--, in++) {
            uint8_t byte = (uint8_t)in;

            CHECK_INT(buf_add(&b, &byte, 1), 0);
        }
        for (; b.len > 20; out++) {
            if ((uint8_t)b.data[0] != (uint8_t)out) {
                TEST_FAIL("byte %u is wrong", out);
                return;
            }
            buf_consume(&b, 1);
        }
    }
}

static void err_wraps_outermost_first(void)
{
    struct err e = {0};

    CHECK_INT(err_wrap(&e, -EACCES, "opening '%s'", "x"), -EACCES);
    CHECK_INT(err_wrap(&e, -EACCES, "starting"), -EACCES);
    CHECK_STR(e.msg, "starting: opening 'x': Permission denied");
    CHECK_INT(err_http_status(&e), 403);
    CHECK_INT(err_field(&e, -EINVAL, NULL, "vcpus", "too many"), -EINVAL);
    CHECK_STR(e.field, "vcpus");
    CHECK_STR(err_reason(&e), "invalid_request");
}

/* 401 bytes of two-byte characters do not fit: the last one must go whole, or JSON could not carry the text. */
static void err_is_cut_between_characters(void)
{
    char text[420] = "";
    struct err e = {0};
    json_t *json;

    for (int i = 0; i < 205; i++) {
        memcpy(text + 2 * i, "\xc3\xa4", 2);
    }
    err_field(&e, -EINVAL, NULL, text, "x%s", text);
    json = json_error_object(&e);
    CHECK(strlen(json_string_value(json_object_get(json_object_get(json, "error"), "message"))) >
          380);
    CHECK(json_object_get(json_object_get(json, "error"), "field"));
    json_decref(json);
}

static void ids_are_well_formed_and_differ(void)
{
    char a[ID_SIZE];
    char b[ID_SIZE];

    id_new(ID_SANDBOX, a);
    id_new(ID_SANDBOX, b);
    CHECK(id_valid(ID_SANDBOX, a) && strcmp(a, b) != 0);
    CHECK(!id_valid(ID_COMMAND, a));
    a[5] = '/';
    CHECK(!id_valid(ID_SANDBOX, a));
    CHECK(!id_valid(ID_SANDBOX, "s"));
    CHECK(!id_valid(ID_SANDBOX, NULL));
}

static void numbers_are_strict(void)
{
    static const struct {
        const char *text;
        int r;
    } cases[] = {{"0", 0},        {"100", 0},       {"101", -ERANGE},
                 {"-1", -EINVAL}, {"", -EINVAL},    {"1 ", -EINVAL},
                 {"+1", -EINVAL}, {"0x1", -EINVAL}, {"99999999999999999999", -ERANGE}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t v = 7;

        CHECK_INT(str_to_u64(cases[i].text, 100, &v), cases[i].r);
        CHECK(cases[i].r == 0 || v == 7);
    }
}

static void files_are_replaced_whole(void)
{
    char dir[] = "/tmp/space-test-XXXXXX";
    cleanup_close int fd = FD_NONE;
    cleanup_buf struct buf b = BUF_INIT(100);

    REQUIRE(mkdtemp(dir));
    fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    CHECK_INT(fs_write_file_durable(fd, "f", "one", 3, 0600), 0);
    CHECK_INT(fs_write_file_durable(fd, "f", "two", 3, 0600), 0);
    CHECK_INT(fs_read_file(fd, "f", &b), 0);
    CHECK_STR(buf_str(&b), "two");
    CHECK_INT(symlinkat("/etc", fd, "out"), 0);
    CHECK_INT(fs_open_beneath(fd, "out/passwd", O_RDONLY, 0), -ELOOP);
    CHECK_INT(fs_open_beneath(fd, "../tmp", O_RDONLY, 0), -EXDEV);
    CHECK_INT(mkdirat(fd, "d", 0700), 0);
    CHECK_INT(symlinkat("/etc", fd, "d/link"), 0);
    CHECK_INT(fs_remove_tree(AT_FDCWD, dir), 0);
    CHECK(access(dir, F_OK) < 0 && access("/etc/passwd", F_OK) == 0);
    CHECK_INT(fs_remove_tree(AT_FDCWD, dir), 0);
}

static void long_socket_paths_are_refused(void)
{
    char path[200] = "/tmp/";
    struct err e = {0};

    memset(path + 5, 'x', 150);
    CHECK_INT(sock_listen_unix(path, SOCK_STREAM, 0600, &e), -ENAMETOOLONG);
    CHECK(strstr(e.msg, "107"));
}

static void children_are_waited_for_and_have_no_descriptors(void)
{
    static const char *const argv[] = {"/bin/sh", "-c", "ls /proc/self/fd | wc -l; exit 7", NULL};
    int pipe_fds[2];
    char out[10] = "";
    struct proc p;
    int status = 0;

    REQUIRE(pipe(pipe_fds) == 0); /* on purpose not close-on-exec */
    REQUIRE(proc_spawn(&(struct proc_spec){argv, NULL, FD_NONE, pipe_fds[1], FD_NONE, false}, &p,
                       NULL) == 0);
    CHECK_INT(proc_wait(&p, deadline_in_ms(10000), &status), 0);
    CHECK_INT(WEXITSTATUS(status), 7);
    CHECK(read(pipe_fds[0], out, sizeof(out) - 1) > 0);
    CHECK_STR(out, "4\n"); /* 0, 1, 2 and ls's own */
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

struct loop_probe {
    struct loop *loop;
    struct loop_timer *timer;
    int fired;
};

static void on_probe(void *arg)
{
    struct loop_probe *p = arg;

    p->fired++;
    loop_timer_free(p->timer);
    loop_stop(p->loop);
}

static void loop_timers_fire_once_and_may_free_themselves(void)
{
    CLEANUP(loop_freep) struct loop *loop = loop_new();
    struct loop_probe p = {.loop = loop};

    p.timer = loop_add_timer(loop, on_probe, &p);
    loop_timer_set(p.timer, deadline_in_ms(1));
    loop_run(loop);
    loop_run_once(loop, deadline_in_ms(5));
    CHECK_INT(p.fired, 1);
}

static void json_names_the_field(void)
{
    static const struct json_field fields[] = {{"a", JSON_FIELD_INT, JSON_REQUIRED},
                                               {"m", JSON_FIELD_STRING_MAP, JSON_NULLABLE}};
    static const struct {
        const char *text;
        const char *reason;
    } cases[] = {{"{\"a\":1}", ""},
                 {"{\"a\":1,\"m\":null}", ""},
                 {"{\"a\":1,\"m\":{\"x\":1}}", "invalid_field"},
                 {"{\"m\":{}}", "missing_field"},
                 {"{\"a\":1,\"b\":2}", "unknown_field"},
                 {"{\"a\":1,\"a\":2}", "invalid_json"},
                 {"[1]", "invalid_json"},
                 {"{\"a\":1} x", "invalid_json"}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_json json_t *root = NULL;
        struct err e = {0};
        int r = json_parse_object(cases[i].text, strlen(cases[i].text), &root, &e);

        if (r == 0) {
            r = json_check_object(root, fields, ARRAY_SIZE(fields), &e);
        }
        CHECK_STR(e.reason, cases[i].reason);
        CHECK((r == 0) == (cases[i].reason[0] == '\0'));
    }
}

static void base64_is_strict(void)
{
    cleanup_buf struct buf b = BUF_INIT(100);

    CHECK_INT(base64_encode("light work", 10, &b), 0);
    CHECK_STR(buf_str(&b), "bGlnaHQgd29yaw==");
    CHECK_INT(base64_decode("bGlnaHQgd29yax==", 16, &b), -EINVAL);
    CHECK_INT(base64_decode("bGln aHQ", 8, &b), -EINVAL);
    CHECK_INT(base64_decode("b===", 4, &b), -EINVAL);
}

TEST_MAIN(T(buf_keeps_its_ceiling), T(buf_survives_many_small_moves), T(err_wraps_outermost_first),
          T(err_is_cut_between_characters),

          T(ids_are_well_formed_and_differ), T(numbers_are_strict), T(files_are_replaced_whole),
          T(long_socket_paths_are_refused), T(children_are_waited_for_and_have_no_descriptors),
          T(loop_timers_fire_once_and_may_free_themselves), T(json_names_the_field),
          T(base64_is_strict))
