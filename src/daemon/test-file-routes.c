/* SPDX-License-Identifier: Apache-2.0 */
/* The file routes of the whole daemon, through the real channel. */
#include "base/fs.h"
#include "base/json.h"
#include "base/test.h"
#include "channel/host.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOON deadline_in_ms(60000)
#define MIB ((size_t)1024 * 1024)
#define ANSWER_MAX (256 * MIB)

/* How much the daemon may grow: a sanitizer keeps what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
#define GROWTH_KIB (size_t)(256 * 1024)
#else
#define GROWTH_KIB (size_t)(16 * 1024)
#endif

struct guest {
    struct channel *ch; /* owned */
    pid_t pid;
    char root[64];
};

static struct guest guest;

struct answer {
    int status;
    struct buf body;
    char headers[1024]; /* "name: value\n" each */
};

static void answer_done(struct answer *a)
{
    buf_done(&a->body);
}
#define ANSWER CLEANUP(answer_done) struct answer
#define ANSWER_INIT \
    { \
        .body = BUF_INIT(ANSWER_MAX) \
    }

static const char *inside(const char *path)
{
    static char out[4][512];
    static unsigned n;
    char *p = out[n++ % ARRAY_SIZE(out)];

    snprintf(p, sizeof(out[0]), "%s%s", guest.root, path);
    return p;
}

static void put_text(const char *path, const char *text)
{
    cleanup_close int fd = open(inside(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    ASSERT(fd >= 0 && fs_write_all(fd, text, strlen(text)) == 0);
}

static int entries(const char *path)
{
    DIR *dir = opendir(inside(path));
    int n = 0;

    ASSERT(dir);
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n - 2;
}

static void guest_tree(void)
{
    static const char *const folders[] = {"/etc", "/home", "/home/user", "/tmp", "/small"};

    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        ASSERT(mkdir(inside(folders[i]), 0755) == 0);
    }
    ASSERT(chown(inside("/home/user"), 1000, 1000) == 0 && chmod(inside("/tmp"), 01777) == 0);
    put_text("/etc/passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n");
    put_text("/etc/group", "root:x:0:\nuser:x:1000:\n");
    ASSERT(mount("small", inside("/small"), "tmpfs", 0, "size=1m,mode=1777") == 0);
}

static bool guest_start(void)
{
    char number[16];
    const char *program = getenv("DAEMON_ON_HOST");
    char *argv[] = {(char *)(uintptr_t)program, (char[]){"--fd"}, number,
                    (char[]){"--root"},         guest.root,       NULL};
    int fds[2];

    ASSERT(program); /* the test runner sets it */
    if (guest.ch) {
        return true;
    }
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0) {
        return false;
    }
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    snprintf(guest.root, sizeof(guest.root), "/tmp/test-file-routes-XXXXXX");
    ASSERT(mkdtemp(guest.root) && mount("root", guest.root, "tmpfs", 0, "mode=755") == 0);
    guest_tree();
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    snprintf(number, sizeof(number), "%d", fds[1]);
    guest.pid = fork();
    if (guest.pid == 0) {
        fcntl(fds[1], F_SETFD, 0);
        execv(program, argv);
        _exit(127);
    }
    close(fds[1]);
    ASSERT(guest.pid > 0);
    ASSERT(channel_new(&(struct channel_options){.fd = fds[0]}, &guest.ch, NULL) == 0);
    return true;
}

#define NEED_GUEST \
    do { \
        if (!guest_start()) { \
            TEST_SKIP("needs root, for users and mounts"); \
        } \
    } while (0)

static void read_answer(struct channel_stream *s, struct answer *a)
{
    static char piece[256 * 1024];
    const struct channel_head *head = NULL;
    struct err e = {0};
    ssize_t n;

    if (channel_stream_read_head(s, SOON, &head, &e) < 0) {
        TEST_FAIL("no answer: %s", e.msg);
        return;
    }
    a->status = head->status;
    for (size_t i = 0, used = 0; i < head->n_headers && used < sizeof(a->headers); i++) {
        used += (size_t)snprintf(a->headers + used, sizeof(a->headers) - used, "%s: %s\n",
                                 head->headers[i].name, head->headers[i].value);
    }
    while ((n = channel_stream_read(s, piece, sizeof(piece), SOON, &e)) > 0) {
        ASSERT(buf_add(&a->body, piece, (size_t)n) == 0);
    }
    CHECK_INT(n, 0);
}

static void ask_range(struct answer *a, const char *target, const char *range)
{
    struct channel_header header = {"range", range};
    struct channel_request q = {
        .method = "GET", .target = target, .headers = &header, .n_headers = range ? 1 : 0};
    CLEANUP(channel_stream_freep) struct channel_stream *s = NULL;
    struct err e = {0};

    if (channel_request(guest.ch, &q, SOON, &s, &e) < 0) {
        TEST_FAIL("%.100s: %s", target, e.msg);
        return;
    }
    read_answer(s, a);
}

static void ask(struct answer *a, const char *target)
{
    ask_range(a, target, /* range */ NULL);
}

static void submit(struct answer *a, const char *method, const char *target, const void *body,
                   size_t len)
{
    struct channel_request q = {.method = method, .target = target, .has_body = true};
    CLEANUP(channel_stream_freep) struct channel_stream *s = NULL;
    struct err e = {0};

    if (channel_request(guest.ch, &q, SOON, &s, &e) < 0 ||
        (channel_stream_write(s, body, len, SOON, &e) < 0 && e.code != -EPIPE)) {
        TEST_FAIL("%s %s: %s", method, target, e.msg);
        return;
    }
    channel_stream_finish(s);
    read_answer(s, a);
}

static void check_post(const char *target, const char *body, int status, const char *part)
{
    ANSWER a = ANSWER_INIT;

    submit(&a, "POST", target, body, strlen(body));
    if (a.status != status || !strstr(buf_str(&a.body), part)) {
        TEST_FAIL("%s %s is %d %s", target, body, a.status, buf_str(&a.body));
    }
}

static void set_up(void)
{
    NEED_GUEST;
    check_post("/setup", "{\"default_user\":\"user\"}", 200, "ready");
}

static void file_there_and_back(void)
{
    NEED_GUEST;
    ANSWER put = ANSWER_INIT;
    ANSWER again = ANSWER_INIT;
    ANSWER get = ANSWER_INIT;
    ANSWER empty = ANSWER_INIT;
    ANSWER got_empty = ANSWER_INIT;

    submit(&put, "PUT", "/files?path=a%2Fb%2fc.txt&mode=0640", "hello", 5);
    CHECK_INT(put.status, 201);
    CHECK(
        strstr(buf_str(&put.body),
               "\"path\":\"/home/user/a/b/c.txt\",\"type\":\"file\",\"size\":5,\"mode\":\"0640\""));
    submit(&again, "PUT", "/files?path=/home/user/a/b/c.txt", "hello again", 11);
    CHECK_INT(again.status, 200);
    ask(&get, "/files?path=a/b/c.txt");
    CHECK_INT(get.status, 200);
    CHECK_STR(buf_str(&get.body), "hello again");
    CHECK(strstr(get.headers, "content-length: 11\n"));
    CHECK(strstr(get.headers, "content-type: application/octet-stream\n"));
    CHECK(strstr(get.headers, "x-space-mode: 0640\n"));
    CHECK(strstr(get.headers, "x-space-owner: user\n"));
    CHECK(strstr(get.headers, "x-space-mtime-ms: 1"));
    submit(&empty, "PUT", "/files?path=empty", "", 0);
    CHECK_INT(empty.status, 201);
    ask(&got_empty, "/files?path=empty");
    CHECK_INT(got_empty.status, 200);
    CHECK_INT(got_empty.body.len, 0);
    CHECK(strstr(got_empty.headers, "content-length: 0\n"));
}

static void parts_of_a_file(void)
{
    NEED_GUEST;
    ANSWER part = ANSWER_INIT;
    ANSWER none = ANSWER_INIT;

    put_text("/tmp/ten", "0123456789");
    ask_range(&part, "/files?path=/tmp/ten", "bytes=2-4");
    CHECK_INT(part.status, 206);
    CHECK_STR(buf_str(&part.body), "234");
    CHECK(strstr(part.headers, "content-range: bytes 2-4/10\n"));
    ask_range(&none, "/files?path=/tmp/ten", "bytes=10-");
    CHECK_INT(none.status, 416);
    CHECK(strstr(buf_str(&none.body), "range_not_satisfiable"));
}

static void links_tell_where_they_lead_when_asked(void)
{
    NEED_GUEST;
    ANSWER plain = ANSWER_INIT;
    ANSWER more = ANSWER_INIT;
    ANSWER dangling = ANSWER_INIT;
    ANSWER bad = ANSWER_INIT;

    put_text("/tmp/led-to", "x");
    ASSERT(symlink("../tmp/led-to", inside("/tmp/leads")) == 0);
    ASSERT(symlink("nowhere", inside("/tmp/leads-nowhere")) == 0);
    ask(&plain, "/files/stat?path=/tmp/leads");
    CHECK(!strstr(buf_str(&plain.body), "resolved"));
    ask(&more, "/files/stat?path=/tmp/leads&more=1");
    CHECK(strstr(buf_str(&more.body),
                 "\"resolved\":{\"path\":\"/tmp/led-to\",\"type\":\"file\",\"mode\":\"06"));
    ask(&dangling, "/files/list?path=/tmp&more=1");
    CHECK_INT(dangling.status, 200);
    CHECK(strstr(buf_str(&dangling.body), "leads-nowhere"));
    ask(&bad, "/files/stat?path=/tmp&more=2");
    CHECK_INT(bad.status, 400);
}

static void errors_have_status_and_word(void)
{
    static const struct {
        const char *target;
        int status;
        const char *word;
    } gets[] = {
        {"/files?path=/none", 404, "\"not_found\""},
        {"/files?path=/tmp", 400, "\"is_a_directory\""},
        {"/files", 400, "\"field\":\"path\""},
        {"/files?path=", 400, "\"field\":\"path\""},
        {"/files?path=/etc/passwd&user=nobody", 404, "\"user_not_found\""},
        {"/files?path=a%00b", 400, "\"error\""},
        {"/files/stat?path=/none", 404, "\"not_found\""},
        {"/files/list?path=/none", 404, "\"not_found\""},
        {"/files/list?path=/tmp&depth=101", 400, "\"field\":\"depth\""},
        {"/files/watch?path=/none", 404, "\"not_found\""},
        {"/files/nothing", 404, "\"not_found\""},
        {"/files/mkdir", 405, "\"method_not_allowed\""},
    };
    static char big[2 * 1024 * 1024];
    NEED_GUEST;
    ANSWER full = ANSWER_INIT;
    ANSWER mode = ANSWER_INIT;

    for (size_t i = 0; i < ARRAY_SIZE(gets); i++) {
        ANSWER a = ANSWER_INIT;

        ask(&a, gets[i].target);
        if (a.status != gets[i].status || !strstr(buf_str(&a.body), gets[i].word)) {
            TEST_FAIL("%s is %d %s", gets[i].target, a.status, buf_str(&a.body));
        }
    }
    put_text("/small/keep", "OLD");
    ASSERT(chown(inside("/small/keep"), 1000, 1000) == 0);
    submit(&full, "PUT", "/files?path=/small/keep", big, sizeof(big));
    CHECK_INT(full.status, 507);
    CHECK(strstr(buf_str(&full.body), "\"no_space\""));
    CHECK_INT(entries("/small"), 1);
    submit(&mode, "PUT", "/files?path=/tmp/x&mode=4755", "x", 1);
    CHECK_INT(mode.status, 400);
    CHECK(strstr(buf_str(&mode.body), "\"field\":\"mode\""));
}

static void changes(void)
{
    NEED_GUEST;
    check_post("/files/mkdir", "{\"path\":\"m/n\"}", 201, "\"path\":\"/home/user/m/n\"");
    check_post("/files/mkdir", "{\"path\":\"m/n\"}", 200, "\"type\":\"dir\"");
    check_post("/files/symlink", "{\"path\":\"m/link\",\"target\":\"n\"}", 201, "\"target\":\"n\"");
    check_post("/files/symlink", "{\"path\":\"m/link\",\"target\":\"n\"}", 409, "already_exists");
    check_post("/files/move", "{\"path\":\"m/link\",\"to\":\"m/n/moved\"}", 200,
               "\"/home/user/m/n/moved\"");
    check_post("/files/chmod", "{\"path\":\"m\",\"mode\":\"0700\"}", 200, "\"mode\":\"0700\"");
    check_post("/files/chown", "{\"path\":\"m\",\"owner\":\"root\"}", 403, "not_permitted");
    check_post("/files/chown", "{\"path\":\"/home/user/m\",\"owner\":\"0\",\"user\":\"root\"}", 200,
               "\"owner\":\"root\"");
    check_post("/files/remove", "{\"path\":\"/home/user/m\",\"user\":\"root\"}", 409, "not_empty");
    check_post("/files/remove", "{\"path\":\"/home/user/m\",\"user\":\"root\",\"recursive\":true}",
               200, "removed");
    check_post("/files/remove", "{\"path\":\"m\",\"force\":true}", 400, "\"field\":\"force\"");
    check_post("/files/remove", "{\"path\":", 400, "invalid_json");
}

/* The longest path there is, of bytes that each take three in a query. */
static void names_of_any_bytes_and_length(void)
{
    NEED_GUEST;
    cleanup_buf struct buf target = BUF_INIT(16384);
    ANSWER put = ANSWER_INIT;
    ANSWER list = ANSWER_INIT;
    ANSWER far = ANSWER_INIT;

    submit(&put, "PUT", "/files?path=%ff%0a%22", "odd", 3);
    CHECK_INT(put.status, 201);
    CHECK(strstr(buf_str(&put.body), "\"name_base64\":\"/woi\""));
    ask(&list, "/files/list?path=/home/user");
    CHECK(strstr(buf_str(&list.body), "\"name_base64\":\"/woi\""));
    ASSERT(buf_add_str(&target, "/files/stat?path=") == 0);
    for (int i = 0; i < 4095; i++) {
        ASSERT(buf_add_str(&target, i % 200 == 0 ? "%2f" : "%ff") == 0);
    }
    ask(&far, buf_str(&target));
    CHECK_INT(far.status, 404);
}

static void pages(void)
{
    NEED_GUEST;
    cleanup_free char *cursor = NULL;
    size_t n = 0;
    int n_pages = 0;

    ASSERT(mkdir(inside("/tmp/many"), 0755) == 0);
    for (int i = 0; i < 2500; i++) {
        char path[64];

        snprintf(path, sizeof(path), "/tmp/many/file-with-some-name-%d", i);
        put_text(path, "");
    }
    do {
        cleanup_free char *target = xasprintf("/files/list?path=/tmp/many&limit=900%s%s",
                                              cursor ? "&cursor=" : "", cursor ? cursor : "");
        cleanup_json json_t *page = NULL;
        ANSWER a = ANSWER_INIT;

        ask(&a, target);
        REQUIRE(a.status == 200 && json_parse_object(a.body.data, a.body.len, &page, NULL) == 0);
        n += json_array_size(json_object_get(page, "entries"));
        free(cursor);
        cursor = json_get_string(page, "next_cursor", NULL)
                     ? xstrdup(json_get_string(page, "next_cursor", ""))
                     : NULL;
        n_pages++;
    } while (cursor && n_pages < 10);
    CHECK_INT(n, 2500);
    CHECK_INT(n_pages, 3);
}

static size_t daemon_rss_kib(void)
{
    cleanup_free char *path = xasprintf("/proc/%d/status", guest.pid);
    cleanup_buf struct buf text = BUF_INIT(65536);
    const char *line;

    ASSERT(fs_read_file(AT_FDCWD, path, &text) == 0);
    line = strstr(buf_str(&text), "VmRSS:");
    return line ? (size_t)strtoul(line + 6, NULL, 10) : 0;
}

static void hundred_megabytes_with_flat_memory(void)
{
    NEED_GUEST;
    size_t len = 100 * MIB;
    cleanup_free char *data = xmalloc(len);
    ANSWER put = ANSWER_INIT;
    ANSWER get = ANSWER_INIT;
    size_t before = daemon_rss_kib();
    uint64_t t0;
    uint64_t t1;

    for (size_t i = 0; i < len; i += 8) {
        uint64_t v = i * 0x9e3779b97f4a7c15ull;

        memcpy(data + i, &v, 8);
    }
    t0 = clock_now_ns();
    submit(&put, "PUT", "/files?path=/tmp/big", data, len);
    t1 = clock_now_ns();
    CHECK_INT(put.status, 201);
    ask(&get, "/files?path=/tmp/big");
    printf("# 100 MiB up %llu ms, down %llu ms; the daemon has %zu KiB more\n",
           (unsigned long long)((t1 - t0) / NS_PER_MS),
           (unsigned long long)((clock_now_ns() - t1) / NS_PER_MS), daemon_rss_kib() - before);
    CHECK(get.body.len == len && memcmp(get.body.data, data, len) == 0);
    CHECK(daemon_rss_kib() < before + GROWTH_KIB);
    unlink(inside("/tmp/big"));
}

static void slow_reader_holds_up_nobody(void)
{
    NEED_GUEST;
    struct channel_request q = {.method = "GET", .target = "/files?path=/tmp/sparse"};
    struct channel_stream *slow[8] = {0};
    size_t before = daemon_rss_kib();
    int fd = open(inside("/tmp/sparse"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    ASSERT(fd >= 0 && ftruncate(fd, (off_t)1 << 32) == 0 && close(fd) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
        const struct channel_head *head = NULL;

        REQUIRE(channel_request(guest.ch, &q, SOON, &slow[i], NULL) == 0);
        CHECK_INT(channel_stream_read_head(slow[i], SOON, &head, NULL), 0);
    }
    for (int i = 0; i < 20; i++) {
        ANSWER a = ANSWER_INIT;

        ask(&a, "/files/stat?path=/tmp/sparse");
        CHECK_INT(a.status, 200);
    }
    CHECK(daemon_rss_kib() < before + GROWTH_KIB);
    for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
        channel_stream_free(slow[i]);
    }
    unlink(inside("/tmp/sparse"));
}

static void cut_upload_leaves_nothing(void)
{
    static char data[512 * 1024];
    NEED_GUEST;
    struct channel_request q = {
        .method = "PUT", .target = "/files?path=/tmp/cut/deep/file", .has_body = true};
    CLEANUP(channel_stream_freep) struct channel_stream *s = NULL;
    bool seen = false;
    int before = entries("/tmp");
    uint64_t deadline_ns = SOON;

    REQUIRE(channel_request(guest.ch, &q, SOON, &s, NULL) == 0);
    CHECK_INT(channel_stream_write(s, data, sizeof(data), SOON, NULL), 0);
    while (!seen &&
           !deadline_passed(deadline_ns)) { /* each question is a turn of the daemon's loop */
        ANSWER a = ANSWER_INIT;

        ask(&a, "/files/stat?path=/tmp/cut/deep");
        seen = a.status == 200;
    }
    CHECK(seen);
    channel_stream_cancel(s);
    while (entries("/tmp") != before && !deadline_passed(deadline_ns)) {
        ANSWER a = ANSWER_INIT;

        ask(&a, "/files/stat?path=/tmp/cut");
    }
    CHECK_INT(entries("/tmp"), before);
}

static void watching(void)
{
    NEED_GUEST;
    struct channel_request q = {.method = "GET",
                                .target = "/files/watch?path=/tmp/watched&recursive=1"};
    CLEANUP(channel_stream_freep) struct channel_stream *s = NULL;
    const struct channel_head *head = NULL;
    cleanup_buf struct buf text = BUF_INIT(65536);
    char piece[4096];
    ssize_t n = 1;

    check_post("/files/mkdir", "{\"path\":\"/tmp/watched\"}", 201, "dir");
    REQUIRE(channel_request(guest.ch, &q, SOON, &s, NULL) == 0);
    REQUIRE(channel_stream_read_head(s, SOON, &head, NULL) == 0);
    CHECK_INT(head->status, 200);
    while (n > 0 && !strstr(buf_str(&text), "{\"type\":\"ready\"}\n")) {
        n = channel_stream_read(s, piece, sizeof(piece), SOON, NULL);
        ASSERT(n > 0 && buf_add(&text, piece, (size_t)n) == 0);
    }
    check_post("/files/mkdir", "{\"path\":\"/tmp/watched/a/b\"}", 201, "dir");
    while (n > 0 && !strstr(buf_str(&text), "\"name\":\"a/b\"}\n")) {
        n = channel_stream_read(s, piece, sizeof(piece), SOON, NULL);
        ASSERT(n > 0 && buf_add(&text, piece, (size_t)n) == 0);
    }
    check_post("/files/remove", "{\"path\":\"/tmp/watched\",\"recursive\":true}", 200, "removed");
    while (n > 0) { /* the stream ends by itself */
        n = channel_stream_read(s, piece, sizeof(piece), SOON, NULL);
        ASSERT(n <= 0 || buf_add(&text, piece, (size_t)n) == 0);
    }
    CHECK_INT(n, 0);
    CHECK(
        strstr(buf_str(&text), "{\"type\":\"remove\",\"path\":\"/tmp/watched\",\"name\":\"\"}\n"));
}

/*
 * The daemon ends when the channel does, and frees everything: under a sanitizer that is a leak
 * check.
 */
static void nothing_is_left(void)
{
    NEED_GUEST;
    struct channel_request q = {.method = "GET", .target = "/files/watch?path=/tmp"};
    struct channel_stream *s = NULL;
    const struct channel_head *head = NULL;
    int status = -1;

    REQUIRE(channel_request(guest.ch, &q, SOON, &s, NULL) == 0);
    CHECK_INT(channel_stream_read_head(s, SOON, &head, NULL), 0);
    channel_free(guest.ch);
    channel_stream_free(s);
    CHECK_INT(waitpid(guest.pid, &status, 0), guest.pid);
    CHECK_INT(status, 0);
    CHECK_INT(umount2(guest.root, MNT_DETACH), 0);
    CHECK_INT(rmdir(guest.root), 0);
}

TEST_MAIN(T(set_up), T(file_there_and_back), T(parts_of_a_file),
          T(links_tell_where_they_lead_when_asked), T(errors_have_status_and_word), T(changes),
          T(names_of_any_bytes_and_length), T(pages), T(hundred_megabytes_with_flat_memory),
          T(slow_reader_holds_up_nobody), T(cut_upload_leaves_nothing), T(watching),
          T(nothing_is_left))
