/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs that look at what a sandbox runs and says: ps, kill, logs. */
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/table.h"
#include "cli/verbs.h"

#define LOGS_MAX (16u * 1024 * 1024)
#define LOGS_EVERY_MS 1000
/* The end of a log that is looked for in its next state. */
#define LOGS_OVERLAP 512u

static int failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_FAILED;
}

/* The arguments as one would type them, so that what was one argument is seen as one. */
static void ps_cell_argv(struct table *t, const json_t *argv)
{
    cleanup_buf struct buf b = BUF_INIT(UI_TEXT_MAX);

    for (size_t i = 0; i < json_array_size(argv); i++) {
        const char *arg = json_string_value(json_array_get(argv, i));
        bool plain = arg && *arg && strpbrk(arg, " \t\n\"'\\$`|&;<>(){}*?[]#~") == NULL;

        if (buf_printf(&b, plain ? "%s%s" : "%s'%s'", i ? " " : "", arg ? arg : "") < 0) {
            break;
        }
    }
    table_cell(t, buf_str(&b));
}

static void ps_cell_end(struct table *t, json_t *command)
{
    const char *signal = json_get_string(command, "signal", NULL);

    if (str_eq(json_get_string(command, "state", ""), "running")) {
        table_cell(t, NULL);
    } else if (json_get_bool(command, "oom_killed", false)) {
        table_cell(t, "out of memory");
    } else if (json_get_bool(command, "timed_out", false)) {
        table_cell(t, "timeout");
    } else if (signal) {
        table_cellf(t, "SIG%s", signal);
    } else {
        table_cellf(t, "%" PRId64, json_get_int(command, "exit_code", -1));
    }
}

static void ps_cell_time(struct table *t, json_t *command)
{
    int64_t start_ms = json_get_int(command, "started_at_ms", 0);
    int64_t end_ms = json_get_int(command, "ended_at_ms", 0);
    char text[32];

    end_ms = end_ms > 0 ? end_ms : (int64_t)clock_wall_ms();
    ui_age(end_ms > start_ms ? (uint64_t)(end_ms - start_ms) / 1000 : 0, text, sizeof(text));
    table_cell(t, text);
}

static void ps_table(struct cli *cli, const json_t *list)
{
    static const struct table_column columns[] = {
        {.title = "ID"},
        {.title = "PID", .right = true},
        {.title = "USER", .cut = true},
        {.title = "STATE"},
        {.title = "EXIT"},
        {.title = "TIME", .right = true},
        {.title = "COMMAND", .cut = true},
    };
    struct table t;

    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *c = json_array_get(list, i);

        table_cell(&t, json_get_string(c, "id", NULL));
        table_cellf(&t, "%" PRId64, json_get_int(c, "pid", 0));
        table_cell(&t, json_get_string(c, "user", NULL));
        table_cell(&t, json_get_string(c, "state", NULL));
        ps_cell_end(&t, c);
        ps_cell_time(&t, c);
        ps_cell_argv(&t, json_object_get(c, "argv"));
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
}

int verb_ps(struct cli *cli)
{
    cleanup_json json_t *answer = NULL;
    cleanup_free char *target = NULL;
    struct err e = {0};
    char id[ID_SIZE];
    int r;

    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_sandbox_id(cli, cli->args->operands[0], id, &e);
    if (r == 0) {
        target = xasprintf("/v1/sandboxes/%s/commands", id);
        r = cli_call(cli, "GET", target, /* body */ NULL, &answer, &e);
    }
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
    } else if (cli->args->quiet) {
        const json_t *list = json_object_get(answer, "commands");

        for (size_t i = 0; i < json_array_size(list); i++) {
            printf("%s\n", json_get_string(json_array_get(list, i), "id", ""));
        }
    } else {
        ps_table(cli, json_object_get(answer, "commands"));
    }
    return CLI_EXIT_OK;
}

int verb_kill(struct cli *cli)
{
    const struct args *a = cli->args;
    cleanup_free char *target = NULL;
    cleanup_json json_t *body = NULL;
    struct err e = {0};
    char sandbox[ID_SIZE];
    char command[ID_SIZE];
    int r;

    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_sandbox_id(cli, a->operands[0], sandbox, &e);
    r = r < 0 ? r : cli_command_id(cli, sandbox, a->operands[1], command, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    target =
        xasprintf("/v1/sandboxes/%s/commands/%s%s", sandbox, command, a->signal ? "/signal" : "");
    if (a->signal) {
        uint64_t number;

        body = str_to_u64(a->signal, 64, &number) == 0 ? json_pack("{s:i}", "signal", (int)number)
                                                       : json_pack("{s:s}", "signal", a->signal);
        if (!body) {
            err_set(&e, -EINVAL, "usage", "the signal must be a name such as TERM, or a number");
            return failed(cli, &e);
        }
    }
    r = cli_call(cli, a->signal ? "POST" : "DELETE", target, body, /* ret */ NULL, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (a->json) {
        cleanup_json json_t *doc = json_pack("{s:s}", "id", command);

        cli_print_json(cli, doc);
    }
    return CLI_EXIT_OK;
}

/* Text of a guest's console: to a terminal without what could change it, elsewhere as it is. */
static int logs_write(struct cli *cli, const char *data, size_t len)
{
    while (len > 0) {
        size_t n = MIN(len, (size_t)1024);

        if (cli->ui.out_tty) {
            cleanup_free char *clean = ui_clean(data, n, /* lines */ true);

            fputs(clean, stdout);
        } else {
            fwrite(data, 1, n, stdout);
        }
        data += n;
        len -= n;
    }
    return fflush(stdout) == 0 ? 0 : -errno;
}

static int logs_get(struct cli *cli, const char *target, char **ret, size_t *ret_len, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct http_call_opts opts = {
        .method = "GET", .target = target, .deadline_ns = deadline_in_ms(CLI_CALL_TIMEOUT_MS)};
    int r;

    r = http_call_new(cli->client, &opts, &call, e);
    r = r < 0 ? r : http_call_head(call, e);
    r = r < 0 ? r : http_call_check(call, e);
    return r < 0 ? r : http_call_all(call, LOGS_MAX, ret, ret_len, e);
}

/*
 * How much of `now` was in `before` already. The log is a window that moves over what the sandbox says: either it has grown at its end, or
 * its start is gone too and the end of what we have seen is somewhere in it.
 */
static size_t logs_seen(const char *before, size_t n_before, const char *now, size_t n_now)
{
    size_t tail = MIN(n_before, (size_t)LOGS_OVERLAP);
    const char *found;

    if (n_now >= n_before && memcmp(before, now, n_before) == 0) {
        return n_before;
    }
    found = memmem(now, n_now, before + n_before - tail, tail);
    return found ? (size_t)(found - now) + tail : 0;
}

static int logs_follow(struct cli *cli, const char *target, struct err *e)
{
    cleanup_free char *before = xstrdup("");
    size_t n_before = 0;

    for (;;) {
        char *now = NULL;
        size_t n_now = 0;
        size_t seen;
        int r;

        r = logs_get(cli, target, &now, &n_now, e);
        if (r < 0) {
            return r;
        }
        seen = logs_seen(before, n_before, now, n_now);
        r = logs_write(cli, now + seen, n_now - seen);
        free(before);
        before = now;
        n_before = n_now;
        if (r < 0) {
            return r == -EPIPE ? 0 : err_wrap(e, r, "writing the log");
        }
        if (!cli->args->follow) {
            return 0;
        }
        /* A reader that leaves ends us before the next look. */
        struct pollfd out = {.fd = STDOUT_FILENO};
        if (poll(&out, 1, LOGS_EVERY_MS) > 0) {
            return 0;
        }
    }
}

int verb_logs(struct cli *cli)
{
    cleanup_free char *target = NULL;
    struct err e = {0};
    char id[ID_SIZE];
    int r;

    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_sandbox_id(cli, cli->args->operands[0], id, &e);
    if (r == 0) {
        target = xasprintf("/v1/sandboxes/%s/logs", id);
        r = logs_follow(cli, target, &e);
        if (r < 0) {
            cli_explain(cli, &e);
        }
    }
    return r < 0 ? failed(cli, &e) : CLI_EXIT_OK;
}
