/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of commands: an engine on a loop of its own, and a client that starts a command, feeds it, reads
 * it, and waits for what should happen. Static functions: every test program includes it once.
 *
 * SPACE_TEST_CGROUPS=tree makes it use the process tree even where cgroups can be had.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/test.h"
#include "daemon/command.h"

#include <dirent.h>
#include <fcntl.h>
#include <mntent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAIT_MS 60000
#define CAPTURE_MAX ((size_t)256 * 1024 * 1024)

struct fixture {
    struct loop *loop;
    struct children *children;
    struct commands *commands;
    int base_fd;
    char base_path[512];
};

struct client {
    struct command_listener l;
    struct command *c;
    struct buf out;
    struct buf err;
    struct buf pty;
    struct command_view end; /* of the moment of the end; borrowed strings are not to be used */
    bool ended;
    bool stopped; /* reads nothing for now */
    const char *input;
    size_t input_len;
    bool input_eof; /* close when input is written */
    bool input_refused;
    size_t n_gaps;
};

/* A folder in the first cgroup2 mount, or FD_NONE. */
static int harness_cgroup(char ret_path[static 512])
{
    const char *wanted = getenv("SPACE_TEST_CGROUPS");
    FILE *mounts;
    struct mntent *m;
    int fd = FD_NONE;

    if (geteuid() != 0 || (wanted && str_eq(wanted, "tree"))) {
        return FD_NONE;
    }
    mounts = setmntent("/proc/self/mounts", "re");
    while (mounts && fd < 0 && (m = getmntent(mounts))) {
        if (str_eq(m->mnt_type, "cgroup2")) {
            snprintf(ret_path, 512, "%s/space-test-%d", m->mnt_dir, getpid());
            fd = mkdir(ret_path, 0755) == 0 ? open(ret_path, O_PATH | O_DIRECTORY | O_CLOEXEC)
                                            : FD_NONE;
        }
    }
    if (mounts) {
        endmntent(mounts);
    }
    return fd;
}

static void fixture_init(struct fixture *f, const struct command_limits *limits,
                         struct workload *workload)
{
    struct commands_config config = {.workload = workload};

    memset(f, 0, sizeof(*f));
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    f->loop = loop_new();
    ASSERT(children_new(f->loop, /* reap_all */ true, &f->children) == 0);
    f->base_fd = harness_cgroup(f->base_path);
    config.loop = f->loop;
    config.children = f->children;
    config.cgroup_base_fd = f->base_fd;
    config.limits = limits ? *limits : command_limits_default;
    f->commands = commands_new(&config);
}

static void fixture_done(struct fixture *f)
{
    uint64_t deadline = deadline_in_ms(WAIT_MS);
    struct commands_figures figures;

    commands_delete_all(f->commands);
    do {
        commands_figures(f->commands, &figures);
        loop_run_once(f->loop, figures.n_remembered ? deadline : 0);
    } while (figures.n_remembered > 0 && !deadline_passed(deadline));
    CHECK_INT(figures.n_remembered, 0);
    commands_free(f->commands);
    children_free(f->children);
    loop_free(f->loop);
    if (f->base_fd >= 0) {
        fd_close(f->base_fd);
        CHECK_INT(rmdir(f->base_path), 0); /* nothing may be left below it */
    }
}

static void client_feed(struct client *k)
{
    while (k->input_len > 0 && command_write_turn(&k->l)) {
        ssize_t n = command_write(k->c, k->input, k->input_len);

        if (n == 0) {
            return;
        }
        if (n < 0) {
            k->input_refused = true;
            k->input_len = 0;
            break;
        }
        k->input += n;
        k->input_len -= (size_t)n;
    }
    if (k->input_len == 0 && k->input_eof) {
        k->input_eof = false;
        command_close_stdin(k->c);
    }
}

static void client_read(struct client *k)
{
    struct command_item item;

    while (!k->stopped) {
        struct buf *into;

        command_item(&k->l, 65536, &item);
        if (item.kind == COMMAND_ITEM_NOTHING) {
            return;
        }
        if (item.kind == COMMAND_ITEM_END) {
            k->ended = true;
            command_view(k->c, &k->end);
            return;
        }
        k->n_gaps += item.kind == COMMAND_ITEM_GAP;
        if (item.kind == COMMAND_ITEM_DATA) {
            into = item.run.kind == OUTPUT_STDOUT   ? &k->out
                   : item.run.kind == OUTPUT_STDERR ? &k->err
                                                    : &k->pty;
            ASSERT(buf_add(into, item.run.data, item.run.len) == 0);
        }
        command_advance(&k->l, &item);
    }
}

static void client_event(struct command_listener *l)
{
    struct client *k = l->arg;

    client_read(k);
    client_feed(k);
}

static void client_attach(struct client *k, struct command *c, uint64_t offset)
{
    *k = (struct client){.c = c,
                         .out = BUF_INIT(CAPTURE_MAX),
                         .err = BUF_INIT(CAPTURE_MAX),
                         .pty = BUF_INIT(CAPTURE_MAX)};
    k->l = (struct command_listener){.fn = client_event, .arg = k, .holds = true, .offset = offset};
    command_listen(c, &k->l);
}

/* 0, or what refused it; text is the JSON of the request. */
static int client_start(struct fixture *f, struct client *k, const char *text, struct err *e)
{
    cleanup_json json_t *object = NULL;
    struct command_spec spec;
    struct command *c;
    int r = json_parse_object(text, strlen(text), &object, e);

    memset(k, 0, sizeof(*k));
    if (r == 0) {
        r = command_spec_parse(object, &spec, e);
    }
    if (r == 0) {
        r = command_start(f->commands, &spec, &c, e);
    }
    if (r == 0) {
        client_attach(k, c, 0);
    }
    return r;
}

static void client_done(struct client *k)
{
    command_unlisten(&k->l);
    buf_done(&k->out);
    buf_done(&k->err);
    buf_done(&k->pty);
}

/* Runs the loop until cond holds, waking at least each step_ms; a failure of the case if it never does. */
#define WAIT_STEPPING(f_, cond_, step_ms_) \
    do { \
        uint64_t deadline_ = deadline_in_ms(WAIT_MS); \
        bool true_ = false; \
        while (!(true_ = (cond_)) && !deadline_passed(deadline_)) { \
            loop_run_once((f_)->loop, MIN(deadline_, deadline_in_ms(step_ms_))); \
        } \
        if (!true_) { \
            TEST_FAIL("never came true: %s", #cond_); \
        } \
    } while (0)
#define WAIT_UNTIL(f_, cond_) WAIT_STEPPING(f_, cond_, WAIT_MS)
/* For what makes no event of the loop's, such as the end of a grandchild. */
#define WAIT_LOOKING(f_, cond_) WAIT_STEPPING(f_, cond_, 5)

static void client_run(struct fixture *f, struct client *k, const char *text)
{
    struct err e = {0};
    int r = client_start(f, k, text, &e);

    if (r < 0) {
        TEST_FAIL("'%s' was refused: %s", text, e.msg);
        k->ended = true;
        return;
    }
    WAIT_UNTIL(f, k->ended);
}

/* How many processes have this as one of their arguments. */
static size_t count_processes(const char *argument)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    size_t n = 0;

    while ((entry = readdir(proc))) {
        cleanup_buf struct buf text = BUF_INIT(65536);
        char path[300];

        snprintf(path, sizeof(path), "%s/cmdline", entry->d_name);
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            fs_read_file(dirfd(proc), path, &text) == 0) {
            for (size_t at = 0; at < text.len; at += strlen(text.data + at) + 1) {
                if (str_eq(text.data + at, argument)) {
                    n++;
                    break;
                }
            }
        }
    }
    closedir(proc);
    return n;
}
