/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of file operations: a pool of workers on a loop of its own, and a sandbox to work
 * in: a tmpfs that is mounted in a mount namespace of the test's own, so that nothing is left on
 * the host.
 *
 *     /home/user (user 1000), /home/other (1001), /tmp (1777), /root, /etc/passwd, /etc/group
 *     /proc, /dev/zero, /dev/full, /mnt/small (1 MiB), /mnt/ro (read-only)
 *
 * Static functions: every test program includes it once. Needs root; harness_init says so by false.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/test.h"
#include "daemon/file-job.h"
#include "daemon/workload.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define HARNESS_WAIT_MS 60000
#define HARNESS_BODY_MAX ((size_t)512 * 1024 * 1024)
#define UNUSED __attribute__((unused))

struct harness {
    struct loop *loop;
    struct children *children;
    struct workload *workload;
    struct file_pool *pool;
    char root[64];
};

struct answer {
    struct harness *h;
    struct file_job *job; /* NULL once it has ended */
    struct file_head head;
    bool has_head;
    bool ended;
    bool keep;      /* collect content, else only count it */
    struct err err; /* code 0: it went well */
    struct buf body;
    uint64_t n_content;
    const char *upload; /* what is still to be sent */
    size_t upload_len;
    bool commit; /* when all is sent */
};

static struct harness harness;

static void answer_head(void *arg, const struct file_head *head)
{
    struct answer *a = arg;

    a->head = *head;
    a->has_head = true;
}

static void answer_body(void *arg, const void *data, size_t len)
{
    struct answer *a = arg;

    ASSERT(buf_add(&a->body, data, len) == 0);
}

static void answer_content(void *arg)
{
    static char data[256 * 1024];
    struct answer *a = arg;
    size_t n = file_job_read(a->job, data, sizeof(data));

    a->n_content += n;
    if (a->keep) {
        ASSERT(buf_add(&a->body, data, n) == 0);
    }
}

static void answer_room(void *arg)
{
    struct answer *a = arg;
    size_t n;

    if (!a->upload) {
        return;
    }
    n = file_job_write(a->job, a->upload, a->upload_len);
    a->upload += n;
    a->upload_len -= n;
    if (a->upload_len == 0) {
        a->upload = NULL;
        if (a->commit) {
            file_job_commit(a->job);
        }
    }
}

static void answer_end(void *arg, const struct err *e)
{
    struct answer *a = arg;

    a->ended = true;
    a->job = NULL;
    if (e) {
        a->err = *e;
    }
}

static const struct file_job_events answer_events = {
    .on_head = answer_head,
    .on_body = answer_body,
    .on_content = answer_content,
    .on_room = answer_room,
    .on_end = answer_end,
};

static UNUSED void answer_done(struct answer *a)
{
    if (a->job) {
        file_job_cancel(a->job);
        a->job = NULL;
    }
    buf_done(&a->body);
}

#define ANSWER CLEANUP(answer_done) struct answer
#define ANSWER_INIT \
    { \
        .h = &harness, .keep = true, .body = BUF_INIT(HARNESS_BODY_MAX) \
    }

/* One turn after the other until *flag, or the test has failed. */
static UNUSED void harness_until(const bool *flag)
{
    uint64_t deadline_ns = deadline_in_ms(HARNESS_WAIT_MS);

    while (!*flag && !deadline_passed(deadline_ns)) {
        loop_run_once(harness.loop, deadline_ns);
    }
    if (!*flag) {
        TEST_FAIL("waited in vain");
    }
}

/* Query parameters as "path=/x&user=user": no percent-encoding. */
static const char *text_query(const void *arg, const char *name)
{
    static char values[8][8192];
    static unsigned n;
    const char *p = arg;
    size_t len = strlen(name);

    while (*p) {
        size_t all = strcspn(p, "&");

        if (strncmp(p, name, len) == 0 && p[len] == '=') {
            char *value = values[n++ % ARRAY_SIZE(values)];

            snprintf(value, sizeof(values[0]), "%.*s", (int)(all - len - 1), p + len + 1);
            return value;
        }
        p += all + (p[all] == '&');
    }
    return NULL;
}

static UNUSED void start_request(struct answer *a, struct file_request *req)
{
    int r = file_job_start_take(a->h->pool, req, &answer_events, a, &a->job, &a->err);

    if (r < 0) {
        a->ended = true;
    }
}

static UNUSED void start_query(struct answer *a, enum file_op op, const char *query,
                               const char *range)
{
    struct file_request req = {.mode = -1};

    if (file_request_from_query(op, text_query, query, &req, &a->err) < 0) {
        a->ended = true;
        return;
    }
    if (range) {
        file_range_parse(range, &req.range);
    }
    start_request(a, &req);
}

static UNUSED void ask(struct answer *a, enum file_op op, const char *query)
{
    start_query(a, op, query, /* range */ NULL);
    harness_until(&a->ended);
}

static UNUSED void ask_json(struct answer *a, enum file_op op, const char *text)
{
    cleanup_json json_t *body = NULL;
    struct file_request req = {.mode = -1};

    ASSERT(json_parse_object(text, strlen(text), &body, NULL) == 0);
    if (file_request_from_json(op, body, &req, &a->err) < 0) {
        a->ended = true;
        return;
    }
    start_request(a, &req);
    harness_until(&a->ended);
}

static UNUSED void upload_start(struct answer *a, const char *query, const void *data, size_t len)
{
    a->upload = data;
    a->upload_len = len;
    a->commit = true;
    start_query(a, FILE_OP_WRITE, query, /* range */ NULL);
}

static UNUSED void upload(struct answer *a, const char *query, const void *data, size_t len)
{
    upload_start(a, query, data, len);
    harness_until(&a->ended);
}

/* ---- the sandbox, seen from outside ---- */

static UNUSED const char *inside(const char *path)
{
    static char out[4][4096];
    static unsigned n;
    char *p = out[n++ % ARRAY_SIZE(out)];

    snprintf(p, sizeof(out[0]), "%s%s", harness.root, path);
    return p;
}

static UNUSED void put(const char *path, const char *content, mode_t mode, uid_t owner)
{
    cleanup_close int fd = open(inside(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ASSERT(fd >= 0 && fs_write_all(fd, content, strlen(content)) == 0);
    ASSERT(fchown(fd, owner, owner) == 0 && fchmod(fd, mode) == 0);
}

static UNUSED void put_dir(const char *path, mode_t mode, uid_t owner)
{
    ASSERT(mkdir(inside(path), 0700) == 0 || errno == EEXIST);
    ASSERT(chown(inside(path), owner, owner) == 0 && chmod(inside(path), mode) == 0);
}

static UNUSED bool there(const char *path)
{
    struct stat st;

    return lstat(inside(path), &st) == 0;
}

static UNUSED struct stat look(const char *path)
{
    struct stat st = {0};

    if (lstat(inside(path), &st) < 0) {
        TEST_FAIL("'%s' is not there", path);
    }
    return st;
}

/* The content, for CHECK_STR. */
static UNUSED const char *content(const char *path)
{
    static char out[4096];
    cleanup_close int fd = open(inside(path), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : fs_read_full(fd, out, sizeof(out) - 1);

    out[MAX(n, (ssize_t)0)] = '\0';
    return fd < 0 ? "(cannot be opened)" : out;
}

/* Entries of a directory, "." and ".." not counted; -1 when it is not there. */
static UNUSED int count_entries(const char *path)
{
    DIR *dir = opendir(inside(path));
    int n = 0;

    if (!dir) {
        return -1;
    }
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n - 2;
}

static void harness_tree(void)
{
    put_dir("/etc", 0755, 0);
    put_dir("/home", 0755, 0);
    put_dir("/home/user", 0755, 1000);
    put_dir("/home/other", 0755, 1001);
    put_dir("/root", 0700, 0);
    put_dir("/tmp", 01777, 0);
    put_dir("/dev", 0755, 0);
    put_dir("/proc", 0755, 0);
    put_dir("/mnt", 0755, 0);
    put_dir("/mnt/small", 01777, 0);
    put_dir("/mnt/ro", 0755, 0);
    put("/etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
        "other:x:1001:1001::/home/other:/bin/sh\n",
        0644, 0);
    put("/etc/group", "root:x:0:\nuser:x:1000:\nother:x:1001:\nstaff:x:50:other,user\n", 0644, 0);
    ASSERT(mknod(inside("/dev/zero"), S_IFCHR | 0666, makedev(1, 5)) == 0);
    ASSERT(mknod(inside("/dev/full"), S_IFCHR | 0666, makedev(1, 7)) == 0);
    ASSERT(mount("proc", inside("/proc"), "proc", 0, NULL) == 0);
    ASSERT(mount("small", inside("/mnt/small"), "tmpfs", 0, "size=1m,mode=1777") == 0);
    ASSERT(mount("ro", inside("/mnt/ro"), "tmpfs", 0, "mode=1777") == 0);
    put("/mnt/ro/file", "fixed", 0666, 1000);
    ASSERT(mount("ro", inside("/mnt/ro"), NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
}

/* The last case of each program; and at exit, when one case alone was asked for. */
static void harness_free(void)
{
    if (!harness.loop) {
        return;
    }
    file_pool_free(harness.pool);
    children_free(harness.children);
    workload_free(harness.workload);
    loop_run_once(harness.loop, 0); /* what was freed goes */
    loop_free(harness.loop);
    ASSERT(umount2(harness.root, MNT_DETACH) == 0 && rmdir(harness.root) == 0);
    memset(&harness, 0, sizeof(harness));
}

static UNUSED bool harness_init(void)
{
    struct workload_place place = {FD_NONE, FD_NONE};

    if (harness.loop) {
        return true;
    }
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0) {
        return false;
    }
    ASSERT(atexit(harness_free) == 0); /* children leave by _exit */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    umask(022);
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    snprintf(harness.root, sizeof(harness.root), "/tmp/space-files-XXXXXX");
    ASSERT(mkdtemp(harness.root));
    ASSERT(mount("root", harness.root, "tmpfs", 0, "mode=755") == 0);
    harness_tree();
    harness.loop = loop_new();
    ASSERT(children_new(harness.loop, /* reap_all */ true, &harness.children) == 0);
    harness.workload = workload_new((struct workload_cgroups){FD_NONE, FD_NONE});
    place.root_fd = open(harness.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    workload_enter_ready(harness.workload, place);
    workload_configure(harness.workload, /* env */ NULL, "user");
    harness.pool = file_pool_new(harness.loop, harness.children, harness.workload);
    return true;
}

#define NEED_HARNESS \
    do { \
        if (!harness_init()) { \
            TEST_SKIP("needs root, for users and mounts"); \
        } \
    } while (0)
