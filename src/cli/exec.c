/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec.h"

#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/stream.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

int exec_run(struct cli *cli, const struct exec_plan *plan, struct command_end *ret, struct err *e)
{
    cleanup_json json_t *body = NULL;
    struct sigs own = SIGS_INIT;
    struct command_spec spec = {
        .sandbox = plan->sandbox,
        .attach = plan->attach,
        .with_stdin = plan->with_stdin,
        .capture = cli->args->json,
        .sigs = plan->sigs,
    };
    int r;

    if (!plan->attach) {
        r = command_body(cli->args, plan->argv, plan->n_argv, &body, e);
        if (r < 0) {
            return r;
        }
        json_object_set_new(body, "stdin", json_boolean(plan->with_stdin && !plan->tty));
        if (plan->tty) {
            terminal_prepare(body);
        }
        spec.body = body;
    }
    if (!spec.sigs) {
        r = sigs_open(&own, plan->tty, e);
        if (r < 0) {
            return r;
        }
        spec.sigs = &own;
    }
    r = plan->tty ? terminal_run(cli, &spec, ret, e) : stream_run(cli, &spec, ret, e);
    sigs_done(&own);
    return r;
}

void exec_print_end(const struct cli *cli, const struct command_end *end)
{
    if (cli->args->json && end->command) {
        cli_print_json(cli, end->command);
    }
}

static int exec_failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_SPACE;
}

static int exec_usage(struct cli *cli, const char *text)
{
    struct err e = {0};

    err_set(&e, -EINVAL, "usage", "%s", text);
    return exec_failed(cli, &e);
}

/* Starts it and leaves it. */
static int exec_detached(struct cli *cli, const char *sandbox, struct err *e)
{
    const struct args *a = cli->args;
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/commands", sandbox);
    cleanup_json json_t *command = NULL;
    cleanup_json json_t *body = NULL;
    int r;

    r = command_body(a, a->command, a->n_command, &body, e);
    if (r < 0) {
        return r;
    }
    if (a->tty) {
        terminal_prepare(body);
    }
    r = cli_call(cli, "POST", target, body, &command, e);
    if (r < 0) {
        return r;
    }
    if (a->json) {
        cli_print_json(cli, command);
    } else {
        printf("%s\n", json_get_string(command, "id", ""));
    }
    return 0;
}

/* The terminal was left: how to come back. */
static void exec_say_detached(struct cli *cli, const char *sandbox, const struct command_end *end)
{
    fputs("\n", stderr);
    ui_note(&cli->ui, "left it running; come back with: space shell %s --attach %s", sandbox,
            end->id);
}

static int exec_finish(struct cli *cli, const char *sandbox, int r, struct command_end *end,
                       const struct err *e)
{
    int code;

    if (r < 0) {
        return exec_failed(cli, e);
    }
    if (end->detached) {
        exec_say_detached(cli, sandbox, end);
    }
    exec_print_end(cli, end);
    code = end->code;
    command_end_done(end);
    return code;
}

int verb_exec(struct cli *cli)
{
    const struct args *a = cli->args;
    struct command_end end = {0};
    struct err e = {0};
    char sandbox[ID_SIZE];
    char attach[ID_SIZE];
    int r;

    if ((a->attach != NULL) == (a->n_command > 0)) {
        return exec_usage(cli, a->attach ? "--attach goes to a command that runs; give no other"
                                         : "the command is missing: space exec SANDBOX -- COMMAND");
    }
    if (a->detach && (a->interactive || a->attach)) {
        return exec_usage(
            cli, "--detach leaves the command alone: it goes with neither -i nor --attach");
    }
    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_sandbox_id(cli, a->operands[0], sandbox, &e);
    if (r == 0 && a->attach) {
        r = cli_command_id(cli, sandbox, a->attach, attach, &e);
    }
    if (r < 0) {
        return exec_failed(cli, &e);
    }
    if (a->detach) {
        return exec_detached(cli, sandbox, &e) < 0 ? exec_failed(cli, &e) : CLI_EXIT_OK;
    }
    r = exec_run(cli,
                 &(struct exec_plan){.sandbox = sandbox,
                                     .attach = a->attach ? attach : NULL,
                                     .argv = a->command,
                                     .n_argv = a->n_command,
                                     .with_stdin = a->interactive,
                                     .tty = a->tty},
                 &end, &e);
    return exec_finish(cli, sandbox, r, &end, &e);
}

int verb_shell(struct cli *cli)
{
    static const char *const shell[] = {
        "/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash -l; exec sh -l"};
    const struct args *a = cli->args;
    struct command_end end = {0};
    struct err e = {0};
    char sandbox[ID_SIZE];
    char attach[ID_SIZE];
    int r;

    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_sandbox_id(cli, a->operands[0], sandbox, &e);
    if (r == 0 && a->attach) {
        r = cli_command_id(cli, sandbox, a->attach, attach, &e);
    }
    if (r < 0) {
        return exec_failed(cli, &e);
    }
    if (cli->ui.err_tty && isatty(STDIN_FILENO)) {
        ui_note(&cli->ui, "Enter ~ . leaves the terminal and its programs running");
    }
    r = exec_run(cli,
                 &(struct exec_plan){.sandbox = sandbox,
                                     .attach = a->attach ? attach : NULL,
                                     .argv = shell,
                                     .n_argv = ARRAY_SIZE(shell),
                                     .with_stdin = true,
                                     .tty = true},
                 &end, &e);
    return exec_finish(cli, sandbox, r, &end, &e);
}
