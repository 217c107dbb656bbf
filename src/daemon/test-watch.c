/* SPDX-License-Identifier: Apache-2.0 */
/* Watching a folder of the sandbox. */
#include "daemon/file-harness.h"

#include <sys/wait.h>

static UNUSED unsigned count_text(const char *text, const char *part)
{
    unsigned n = 0;

    for (const char *p = text; (p = strstr(p, part)); p++) {
        n++;
    }
    return n;
}

/* Turns the loop until the stream holds this text. */
static void until_told(struct answer *a, const char *text)
{
    uint64_t deadline_ns = deadline_in_ms(HARNESS_WAIT_MS);

    while (!strstr(buf_str(&a->body), text) && !a->ended && !deadline_passed(deadline_ns)) {
        loop_run_once(harness.loop, deadline_ns);
    }
    if (!strstr(buf_str(&a->body), text)) {
        for (char *p = a->body.data; p && *p; p++) {
            *p = *p == '\n' ? ' ' : *p; /* one line of TAP */
        }
        TEST_FAIL("was not told %.*s but: %s %s", (int)strcspn(text, "\n"), text, buf_str(&a->body),
                  a->err.msg);
    }
}

static void watch_start(struct answer *a, const char *query)
{
    start_query(a, FILE_OP_WATCH, query, /* range */ NULL);
    until_told(a, "{\"type\":\"ready\"}\n");
    CHECK(a->head.flags & FILE_HEAD_STREAM);
}

#define EVENT(type_, name_) \
    "{\"type\":\"" type_ "\",\"path\":\"/home/user/w/" name_ "\",\"name\":\"" name_ "\"}\n"

static void fresh(void)
{
    ANSWER a = ANSWER_INIT;

    ask_json(&a, FILE_OP_REMOVE,
             "{\"path\":\"/home/user/w\",\"recursive\":true,\"user\":\"root\"}");
    put_dir("/home/user/w", 0755, 1000);
}

static void each_kind_of_event(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;

    fresh();
    put("/home/user/w/old", "x", 0644, 1000);
    watch_start(&a, "path=/home/user/w");
    put("/home/user/w/new", "text", 0644, 1000);
    until_told(&a, EVENT("create", "new") EVENT("write", "new") EVENT("chmod", "new"));
    chmod(inside("/home/user/w/old"), 0600);
    until_told(&a, EVENT("chmod", "old"));
    rename(inside("/home/user/w/old"), inside("/home/user/w/older"));
    until_told(&a, "{\"type\":\"rename\",\"path\":\"/home/user/w/old\",\"name\":\"old\","
                   "\"to\":\"/home/user/w/older\",\"to_name\":\"older\"}\n");
    rename(inside("/home/user/w/older"), inside("/home/user/outside"));
    until_told(&a, EVENT("remove", "older"));
    rename(inside("/home/user/outside"), inside("/home/user/w/back"));
    until_told(&a, EVENT("create", "back"));
    unlink(inside("/home/user/w/back"));
    until_told(&a, EVENT("remove", "back"));
    CHECK(!strstr(buf_str(&a.body), "overflow"));
}

static void not_recursive_tells_of_the_folder_alone(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;

    fresh();
    put_dir("/home/user/w/sub", 0755, 1000);
    watch_start(&a, "path=/home/user/w&recursive=0");
    put("/home/user/w/sub/deep", "x", 0644, 1000);
    put("/home/user/w/last", "x", 0644, 1000);
    until_told(&a, EVENT("create", "last"));
    CHECK(!strstr(buf_str(&a.body), "deep"));
}

/*
 * Folders made and filled faster than anybody could add a watch: nothing is lost, nothing told
 * twice.
 */
static void new_folders_lose_nothing(void)
{
    NEED_HARNESS;
    enum {
        ROUNDS = 100
    };
    ANSWER a = ANSWER_INIT;

    fresh();
    watch_start(&a, "path=/home/user/w&recursive=1");
    for (int i = 0; i < ROUNDS; i++) {
        char path[64];

        snprintf(path, sizeof(path), "/home/user/w/d%03d", i);
        put_dir(path, 0755, 1000);
        snprintf(path, sizeof(path), "/home/user/w/d%03d/e", i);
        put_dir(path, 0755, 1000);
        snprintf(path, sizeof(path), "/home/user/w/d%03d/e/f", i);
        put(path, "", 0644, 1000);
    }
    put("/home/user/w/last", "", 0644, 1000);
    until_told(&a, EVENT("create", "last"));
    for (int i = 0; i < ROUNDS; i++) {
        static const char *const names[] = {"d%03d", "d%03d/e", "d%03d/e/f"};

        for (size_t j = 0; j < ARRAY_SIZE(names); j++) {
            char name[32];
            cleanup_free char *event = NULL;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(name, sizeof(name), names[j], i);
#pragma GCC diagnostic pop
            event = xasprintf(
                "{\"type\":\"create\",\"path\":\"/home/user/w/%s\",\"name\":\"%s\"}\n", name, name);
            until_told(&a, event);
            CHECK_INT(count_text(buf_str(&a.body), event), 1);
        }
    }
}

static void moved_folder_keeps_being_watched(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;

    fresh();
    put_dir("/home/user/w/a", 0755, 1000);
    put_dir("/home/user/w/a/b", 0755, 1000);
    put_dir("/home/user/w/z", 0755, 1000);
    watch_start(&a, "path=/home/user/w&recursive=1");
    ASSERT(rename(inside("/home/user/w/a"), inside("/home/user/w/z/moved")) == 0);
    put("/home/user/w/z/moved/b/file", "", 0644, 1000);
    until_told(&a, EVENT("create", "z/moved/b/file"));
    /* Out and changed there: of no interest. In again: told, with what is in it. */
    ASSERT(rename(inside("/home/user/w/z/moved"), inside("/home/user/out")) == 0);
    until_told(&a, EVENT("remove", "z/moved"));
    put("/home/user/out/b/unseen", "", 0644, 1000);
    ASSERT(rename(inside("/home/user/out"), inside("/home/user/w/in")) == 0);
    until_told(&a, EVENT("create", "in/b/unseen"));
    CHECK(!strstr(buf_str(&a.body), "moved/b/unseen"));
}

static void uploads_are_one_event(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;
    ANSWER u1 = ANSWER_INIT;
    ANSWER u2 = ANSWER_INIT;

    fresh();
    watch_start(&a, "path=/home/user/w&recursive=1");
    upload(&u1, "path=/home/user/w/file", "one", 3);
    until_told(&a, EVENT("create", "file"));
    upload(&u2, "path=/home/user/w/file", "two", 3);
    until_told(&a, EVENT("write", "file"));
    CHECK(!strstr(buf_str(&a.body), ".space-"));
}

static void links_are_not_entered(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;

    fresh();
    put_dir("/home/user/elsewhere", 0755, 1000);
    ASSERT(symlink("../elsewhere", inside("/home/user/w/link")) == 0);
    watch_start(&a, "path=/home/user/w&recursive=1");
    ASSERT(symlink("..", inside("/home/user/w/loop")) == 0);
    put("/home/user/elsewhere/x", "", 0644, 1000);
    put("/home/user/w/last", "", 0644, 1000);
    until_told(&a, EVENT("create", "last"));
    CHECK(!strstr(buf_str(&a.body), "link/x"));
}

static void end_of_the_folder_ends_the_stream(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;
    ANSWER rm = ANSWER_INIT;

    fresh();
    watch_start(&a, "path=/home/user/w&recursive=1");
    ask_json(&rm, FILE_OP_REMOVE, "{\"path\":\"/home/user/w\",\"recursive\":true}");
    harness_until(&a.ended);
    CHECK_INT(a.err.code, 0);
    CHECK(strstr(buf_str(&a.body),
                 "{\"type\":\"remove\",\"path\":\"/home/user/w\",\"name\":\"\"}\n"));
}

static void slow_reader_is_told_of_the_overflow(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;
    char path[64];

    fresh();
    watch_start(&a, "path=/home/user/w&recursive=1");
    file_job_pause(a.job, true);
    for (int i = 0; i < 40000; i++) { /* the kernel keeps 16384 events */
        snprintf(path, sizeof(path), "/home/user/w/%d", i % 50);
        mkdir(inside(path), 0755);
        rmdir(inside(path));
    }
    put_dir("/home/user/w/lost", 0755, 1000);
    file_job_pause(a.job, false);
    until_told(&a, "{\"type\":\"overflow\"}\n");
    /* Whatever was lost, folders are watched again. */
    do {
        put("/home/user/w/lost/file", "", 0644, 1000);
        loop_run_once(harness.loop, deadline_in_ms(20));
        unlink(inside("/home/user/w/lost/file"));
    } while (!a.ended && !strstr(buf_str(&a.body), EVENT("create", "lost/file")));
    CHECK(!a.ended);
}

static void errors_before_it_starts(void)
{
    static const struct {
        const char *query;
        int code;
    } cases[] = {
        {"path=/home/user/none", -ENOENT},
        {"path=/root&user=user", -EACCES},
        {"path=/home/user/w&recursive=maybe", -EINVAL},
    };
    NEED_HARNESS;
    fresh();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ANSWER a = ANSWER_INIT;

        ask(&a, FILE_OP_WATCH, cases[i].query);
        CHECK_INT(a.err.code, cases[i].code);
    }
}

static void file_is_watched_too(void)
{
    NEED_HARNESS;
    ANSWER a = ANSWER_INIT;
    cleanup_close int fd = FD_NONE;

    fresh();
    put("/home/user/w/file", "x", 0644, 1000);
    watch_start(&a, "path=/home/user/w/file");
    fd = open(inside("/home/user/w/file"), O_WRONLY | O_CLOEXEC);
    ASSERT(fd >= 0 && write(fd, "y", 1) == 1);
    until_told(&a, "{\"type\":\"write\",\"path\":\"/home/user/w/file\",\"name\":\"\"}\n");
}

static void nothing_is_left(void)
{
    harness_free();
    CHECK(!harness.loop);
}

TEST_MAIN(T(each_kind_of_event), T(not_recursive_tells_of_the_folder_alone),
          T(new_folders_lose_nothing), T(moved_folder_keeps_being_watched),
          T(uploads_are_one_event), T(links_are_not_entered), T(end_of_the_folder_ends_the_stream),
          T(slow_reader_is_told_of_the_overflow), T(errors_before_it_starts),
          T(file_is_watched_too), T(nothing_is_left))
