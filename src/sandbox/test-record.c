/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"
#include "base/test.h"
#include "sandbox/record.h"
#include "sandbox/resident.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int parse(const char *text, struct record *ret, struct err *e)
{
    cleanup_json json_t *root = NULL;
    int r = json_parse_object(text, strlen(text), &root, e);

    return r < 0 ? r : record_from_request(root, ret, e);
}

static const char good[] =
    "{\"id\":\"s0123456789abcdefghj\",\"template\":\"tiny\",\"memory_mib\":128,"
    "\"env\":{\"A\":\"b\"},\"org\":null}";

static void requests_are_checked(void)
{
    static const struct {
        const char *text;
        const char *field;
    } cases[] = {
        {"{\"template\":\"tiny\"}", "id"},
        {"{\"id\":\"../../etc\",\"template\":\"tiny\"}", "id"},
        {"{\"id\":\"s0123456789abcdefghj\"}", "template"},
        {"{\"id\":\"s0123456789abcdefghj\",\"template\":\"t\",\"memory_mib\":1}", "memory_mib"},
        {"{\"id\":\"s0123456789abcdefghj\",\"template\":\"t\",\"env\":{\"a\":1}}", "env"},
        {"{\"id\":\"s0123456789abcdefghj\",\"template\":\"t\",\"pid\":1}", "pid"}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct record rec = {0};
        struct err e = {0};

        CHECK_INT(parse(cases[i].text, &rec, &e), -EINVAL);
        CHECK_STR(e.field, cases[i].field);
        record_done(&rec);
    }
}

static void records_come_back_as_written(void)
{
    char dir[] = "/tmp/space-test-XXXXXX";
    cleanup_close int fd = FD_NONE;
    struct record rec = {0};
    struct record back = {0};
    struct err e = {0};

    REQUIRE(mkdtemp(dir));
    fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    REQUIRE(parse(good, &rec, &e) == 0);
    rec.state = SANDBOX_STATE_RUNNING;
    rec.has_machine = true;
    rec.machine = (struct machine_record){
        .id = "m0123456789abcdefghj", .pid = 12, .start_time = 1ull << 40, .slot = 7};
    rec.end_at_ms = 1ll << 41;
    rec.paused_at_ms = 1ll << 40;
    memcpy(rec.origin, "s9876543210abcdefghj", ID_SIZE);
    rec.origin_n = 17;
    CHECK_INT(record_write(fd, &rec, RECORD_SURVIVES_HOST), 0);
    REQUIRE(record_read(fd, rec.id, &back) == 0);
    CHECK(record_same_spec(&rec, &back));
    CHECK_STR(back.machine_id, rec.machine_id);
    CHECK_INT(back.state, SANDBOX_STATE_RUNNING);
    CHECK(back.has_machine && back.machine.start_time == rec.machine.start_time &&
          back.machine.slot == 7);
    CHECK(back.end_at_ms == rec.end_at_ms && back.paused_at_ms == rec.paused_at_ms);
    CHECK_STR(back.origin, rec.origin);
    CHECK_INT(back.origin_n, 17);
    CHECK_INT(record_remove(fd, rec.id), 0);
    CHECK_INT(record_remove(fd, rec.id), 0);
    CHECK_INT(record_read(fd, rec.id, &back), -ENOENT);
    record_done(&rec);
    record_done(&back);
    CHECK_INT(fs_remove_tree(AT_FDCWD, dir), 0);
}

static void damaged_records_are_refused(void)
{
    static const char *const texts[] = {
        "",
        "{}",
        "{\"version\":1}",
        "[1]",
        "{\"version\":2,\"id\":\"s0123456789abcdefghj\",\"env\":{}}",
        "{\"version\":1,\"id\":\"s0123456789abcdefghj\",\"template\":\"t\",\"env\":{},\"state\":"
        "\"flying\"}",
        "{\"version\":1,\"id\":\"s0123456789abcdefghj\",\"template\":\"t\",\"env\":{},\"state\":"
        "\"running\","
        "\"machine\":{\"slot\":-1}}"};
    char dir[] = "/tmp/space-test-XXXXXX";
    cleanup_close int fd = FD_NONE;

    REQUIRE(mkdtemp(dir));
    fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct record rec = {0};

        CHECK_INT(fs_write_file_durable(fd, "s0123456789abcdefghj.json", texts[i], strlen(texts[i]),
                                        0600),
                  0);
        CHECK_INT(record_read(fd, "s0123456789abcdefghj", &rec), -EBADMSG);
    }
    CHECK_INT(fs_remove_tree(AT_FDCWD, dir), 0);
}

static void other_specs_differ(void)
{
    struct record a = {0};
    struct record b = {0};
    struct err e = {0};

    REQUIRE(parse(good, &a, &e) == 0 && parse(good, &b, &e) == 0);
    CHECK(record_same_spec(&a, &b));
    b.shape.vcpus = 2;
    CHECK(!record_same_spec(&a, &b));
    record_done(&a);
    record_done(&b);
}

/* In a pool that is full: what has not begun has not happened, and what has happened is known. */
static void a_record_that_cannot_be_written_wedges_nothing(void)
{
    char dir[] = "/tmp/space-test-XXXXXX";
    struct node node = {0};
    struct resident *res = NULL;
    struct record rec = {0};
    struct err e = {0};

    REQUIRE(mkdtemp(dir) && parse(good, &rec, &e) == 0);
    pthread_mutex_init(&node.lock, NULL);
    node.records_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    REQUIRE(resident_add(&node, &rec, &res, &e) == 0);
    CHECK_INT(resident_set_state(res, SANDBOX_STATE_RUNNING, NULL, RECORD_SURVIVES_PROCESS, &e), 0);
    CHECK_INT(fs_remove_tree(AT_FDCWD, dir), 0);
    CHECK(resident_set_state(res, SANDBOX_STATE_STOPPING, NULL, RECORD_SURVIVES_PROCESS, &e) < 0);
    CHECK_INT(resident_state(res), SANDBOX_STATE_RUNNING);
    CHECK(resident_set_state(res, SANDBOX_STATE_FAILED, "x", RECORD_SURVIVES_PROCESS, &e) < 0);
    CHECK_INT(resident_state(res), SANDBOX_STATE_FAILED);
    resident_drop(res);
    resident_unref(res);
    record_done(&rec);
    fd_close(node.records_fd);
    pthread_mutex_destroy(&node.lock);
}

TEST_MAIN(T(requests_are_checked), T(records_come_back_as_written), T(damaged_records_are_refused),
          T(other_specs_differ), T(a_record_that_cannot_be_written_wedges_nothing))
