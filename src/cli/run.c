/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `space run`: create, copy in, run, copy out, remove. From the moment the sandbox exists every way out goes through
 * run_remove(): signals are only read, never acted on by the kernel, until it is done.
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/cp.h"
#include "cli/exec.h"
#include "cli/lease.h"
#include "cli/progress.h"
#include "cli/sandbox.h"
#include "cli/verbs.h"

#define REMOVE_TRIES 5u
#define REMOVE_AGAIN_MS 1000u

struct run {
    struct cli *cli; /* borrowed */
    struct sigs sigs;
    struct lease *lease; /* owned; NULL with --keep */
    char id[ID_SIZE];
};

/* A pipe or file is meant to be read; a terminal or /dev/null is just what we were started with. */
static bool stdin_is_meant(void)
{
    struct stat st;

    return fstat(STDIN_FILENO, &st) == 0 &&
           (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

/* Every mistake that can be found before a sandbox is made. */
static int run_check(const struct args *a, struct err *e)
{
    if (a->n_command == 0) {
        return err_set(e, -EINVAL, "usage", "the command is missing: space run -- COMMAND");
    }
    for (size_t i = 0; i < a->copy_in.n; i++) {
        cleanup_free char *source = NULL;
        cleanup_free char *target = NULL;
        struct stat st;
        int r = cp_split(a->copy_in.items[i], "copy-in", &source, &target, e);

        if (r < 0) {
            return r;
        }
        if (lstat(source, &st) < 0) {
            return err_wrap(e, -errno, "'--copy-in %s': '%s'", a->copy_in.items[i], source);
        }
    }
    for (size_t i = 0; i < a->copy_out.n; i++) {
        cleanup_free char *source = NULL;
        cleanup_free char *target = NULL;
        int r = cp_split(a->copy_out.items[i], "copy-out", &source, &target, e);

        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int run_create(struct run *run, struct err *e)
{
    const struct pollfd watch = {.fd = run->sigs.end_fd, .events = POLLIN};
    bool keep = run->cli->args->keep;
    cleanup_json json_t *sandbox = NULL;
    struct progress *progress;
    int r;

    progress = progress_start(&run->cli->ui, "making a sandbox");
    r = sandbox_create(run->cli, keep ? 0 : LEASE_S, /* env */ NULL, &watch, &sandbox, e);
    progress_end(progress);
    if (r < 0) {
        return r;
    }
    return str_copy(run->id, sizeof(run->id), json_get_string(sandbox, "id", ""));
}

static int run_copies(struct run *run, bool in, struct err *e)
{
    const struct text_list *list = in ? &run->cli->args->copy_in : &run->cli->args->copy_out;
    struct cp_result result = {0};

    for (size_t i = 0; i < list->n; i++) {
        cleanup_free char *source = NULL;
        cleanup_free char *target = NULL;
        int r = cp_split(list->items[i], in ? "copy-in" : "copy-out", &source, &target, e);

        r = r < 0 ? r : cp_one(run->cli, run->id, &run->sigs, in, source, target, &result, e);
        if (r < 0) {
            return err_wrap(e, r, "copying '%s'", source ? source : "");
        }
    }
    if (result.n_errors > 0) {
        return err_set(e, -EIO, "copy_failed", "not everything could be copied %s",
                       in ? "in" : "out");
    }
    return 0;
}

static int run_exit_code(const struct run *run, const struct err *e)
{
    int signo = sigs_read(&run->sigs);

    if (e->code == -ECANCELED) {
        return CLI_EXIT_SIGNAL + (signo > 0 ? signo : SIGINT);
    }
    ui_error(&run->cli->ui, e);
    return CLI_EXIT_SPACE;
}

static int run_command(struct run *run, struct err *e)
{
    const struct args *a = run->cli->args;
    struct command_end end = {0};
    int code;
    int r;

    r = exec_run(run->cli,
                 &(struct exec_plan){.sandbox = run->id,
                                     .argv = a->command,
                                     .n_argv = a->n_command,
                                     .with_stdin = a->interactive || (!a->tty && stdin_is_meant()),
                                     .tty = a->tty,
                                     .sigs = &run->sigs},
                 &end, e);
    if (r < 0) {
        return r;
    }
    code = end.code;
    if (end.gave_up) {
        command_end_done(&end);
        return code;
    }
    if (end.command) {
        json_object_set_new(end.command, "sandbox", json_string(run->id));
    }
    /* Results count even when the command failed; a failed copy makes a good end a bad one. */
    r = run_copies(run, /* in */ false, e);
    if (r < 0) {
        int failed = run_exit_code(run, e);

        code = code ? code : failed;
    }
    exec_print_end(run->cli, &end);
    command_end_done(&end);
    return code;
}

/* Removes the sandbox whatever happened; no signal keeps us from it. */
static void run_remove(struct run *run)
{
    struct progress *progress;
    struct err e = {0};
    int r = 0;

    lease_stop(TAKE_PTR(run->lease));
    progress = progress_start(&run->cli->ui, "removing the sandbox");
    for (unsigned i = 0; i < REMOVE_TRIES; i++) {
        e = (struct err){0};
        r = sandbox_remove(run->cli, run->id, /* missing_ok */ true, &e);
        if (r == 0 || !command_error_is_passing(&e)) {
            break;
        }
        http_client_drop_idle(run->cli->client);
        sigs_wait(&run->sigs, deadline_in_ms(REMOVE_AGAIN_MS));
    }
    progress_end(progress);
    if (r < 0) {
        ui_warn(
            &run->cli->ui,
            "sandbox %s is still there and ends by itself within the hour, or with 'space rm': %s",
            run->id, e.msg);
    }
}

static int run_in_sandbox(struct run *run)
{
    struct err e = {0};
    int r = 0;

    if (!run->cli->args->keep) {
        r = lease_start(run->cli, run->id, &run->lease, &e);
    }
    r = r < 0 ? r : run_copies(run, /* in */ true, &e);
    r = r < 0 ? r : run_command(run, &e);
    return r < 0 ? run_exit_code(run, &e) : r;
}

int verb_run(struct cli *cli)
{
    struct run run = {.cli = cli, .sigs = SIGS_INIT};
    struct err e = {0};
    int code;
    int r;

    r = run_check(cli->args, &e);
    r = r < 0 ? r : cli_connect(cli, &e);
    if (r < 0) {
        ui_error(&cli->ui, &e);
        return CLI_EXIT_SPACE;
    }
    r = sigs_open(&run.sigs, cli->args->tty, &e);
    r = r < 0 ? r : run_create(&run, &e);
    if (r < 0) {
        code = run_exit_code(&run, &e);
        sigs_done(&run.sigs);
        return code;
    }
    code = run_in_sandbox(&run);
    if (cli->args->keep) {
        ui_note(&cli->ui, "kept sandbox %s", run.id);
    } else {
        run_remove(&run);
    }
    sigs_done(&run.sigs);
    return code;
}
