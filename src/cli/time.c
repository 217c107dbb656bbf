/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs that move a sandbox through time: pause, resume, snapshots, rollback, fork, history, trace. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/progress.h"
#include "cli/sandbox.h"
#include "cli/table.h"
#include "cli/verbs.h"

static int failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_FAILED;
}

static int usage(struct cli *cli, const char *sentence)
{
    struct err e = {.code = -EINVAL, .reason = "usage"};

    snprintf(e.msg, sizeof(e.msg), "%s", sentence);
    ui_error(&cli->ui, &e);
    return CLI_EXIT_USAGE;
}

/* The sandbox of the first operand. */
static int first_sandbox(struct cli *cli, char ret[static ID_SIZE], struct err *e)
{
    int r = cli_connect(cli, e);

    return r < 0 ? r : cli_sandbox_id(cli, cli->args->operands[0], ret, e);
}

/* The snapshot of an operand, as a path of the API. */
static int snapshot_target(struct cli *cli, const char *sandbox, const char *text, char **ret,
                           struct err *e)
{
    char id[ID_SIZE];
    int r = cli_snapshot_id(cli, sandbox, text, id, e);

    if (r == 0) {
        *ret = xasprintf("/v1/sandboxes/%s/snapshots/%s", sandbox, id);
    }
    return r;
}

/* --- pause and resume --- */

static int pause_one(struct cli *cli, const char *id, json_t **ret, struct err *e)
{
    cleanup_json json_t *body =
        json_pack("{s:b, s:b}", "durable", !cli->args->light, "wake_on_request", cli->args->wake);

    return sandbox_post(cli, id, "pause", body, ret, e);
}

static int resume_one(struct cli *cli, const char *id, json_t **ret, struct err *e)
{
    return sandbox_post(cli, id, "resume", /* body */ NULL, ret, e);
}

int verb_pause(struct cli *cli)
{
    return sandbox_each(cli, "pausing", /* missing_ok */ false, pause_one);
}

static int suspend_one(struct cli *cli, const char *id, json_t **ret, struct err *e)
{
    cleanup_json json_t *body = json_pack("{s:b, s:b}", "wake_on_request", cli->args->wake,
                                          "drop_snapshots", cli->args->drop_snapshots);

    return sandbox_post(cli, id, "suspend", body, ret, e);
}

int verb_suspend(struct cli *cli)
{
    return sandbox_each(cli, "suspending", /* missing_ok */ false, suspend_one);
}

int verb_resume(struct cli *cli)
{
    return sandbox_each(cli, "resuming", /* missing_ok */ false, resume_one);
}

/* --- snapshots --- */

int verb_snapshot(struct cli *cli)
{
    const struct args *a = cli->args;
    cleanup_json json_t *body = json_pack("{s:s}", "kind", a->full_kind ? "full" : "disk");
    cleanup_json json_t *snapshot = NULL;
    struct progress *progress;
    json_t *name = NULL;
    char id[ID_SIZE];
    struct err e = {0};
    int r;

    if (a->disk_kind && a->full_kind) {
        return usage(cli, "say --disk or --full, not both: a full one has the disk in it");
    }
    if (a->keep) {
        json_object_set_new(body, "keep", json_true());
    }
    r = first_sandbox(cli, id, &e);
    if (r == 0 && a->name) {
        r = cli_json_text(a->name, "a name", &name, &e);
        if (r == 0) {
            json_object_set_new(body, "name", name);
        }
    }
    if (r == 0) {
        progress = progress_start(&cli->ui, "taking a snapshot");
        r = sandbox_post(cli, id, "snapshots", body, &snapshot, &e);
        progress_end(progress);
    }
    if (r < 0) {
        return failed(cli, &e);
    }
    if (a->json) {
        cli_print_json(cli, snapshot);
    } else {
        printf("%s\n", json_get_string(snapshot, "id", ""));
    }
    return CLI_EXIT_OK;
}

void sandbox_cell_when(struct table *t, int64_t ms)
{
    time_t when = ms / 1000;
    char text[40];
    struct tm tm;

    if (ms <= 0) {
        table_cell(t, NULL);
        return;
    }
    localtime_r(&when, &tm);
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
    table_cell(t, text);
}

static void cell_memory(struct table *t, json_t *snapshot)
{
    int64_t bytes = json_get_int(snapshot, "private_bytes", 0);
    char text[32];

    if (!str_eq(json_get_string(snapshot, "kind", ""), "full")) {
        table_cell(t, NULL);
        return;
    }
    ui_size(bytes > 0 ? (uint64_t)bytes : 0, text, sizeof(text));
    table_cell(t, text);
}

static void snapshot_table(struct cli *cli, const json_t *list)
{
    static const struct table_column columns[] = {
        {.title = "ID"},     {.title = "KIND"},    {.title = "TAKEN"},
        {.title = "BY"},     {.title = "KEEP"},    {.title = "MEMORY", .right = true},
        {.title = "PARENT"}, {.title = "COMMAND"}, {.title = "NAME", .cut = true},
    };
    struct table t;

    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *s = json_array_get(list, i);

        table_cell(&t, json_get_string(s, "id", NULL));
        table_cell(&t, json_get_string(s, "kind", NULL));
        sandbox_cell_when(&t, json_get_int(s, "created_at_ms", 0));
        table_cell(&t, json_get_string(s, "made_by", NULL));
        table_cell(&t, json_get_bool(s, "keep", false) ? "yes" : NULL);
        cell_memory(&t, s);
        table_cell(&t, json_get_string(s, "parent", NULL));
        table_cell(&t, json_get_string(s, "command", NULL));
        table_cell(&t, json_get_string(s, "name", NULL));
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
}

int verb_snapshot_ls(struct cli *cli)
{
    const struct args *a = cli->args;
    cleanup_json json_t *answer = NULL;
    cleanup_free char *target = NULL;
    const json_t *list;
    char id[ID_SIZE];
    struct err e = {0};
    int r = first_sandbox(cli, id, &e);

    if (r == 0) {
        target = xasprintf("/v1/sandboxes/%s/snapshots", id);
        r = cli_call(cli, "GET", target, /* body */ NULL, &answer, &e);
    }
    if (r < 0) {
        return failed(cli, &e);
    }
    list = json_object_get(answer, "snapshots");
    if (a->json) {
        cli_print_json(cli, answer);
    } else if (a->quiet) {
        for (size_t i = 0; i < json_array_size(list); i++) {
            printf("%s\n", json_get_string(json_array_get(list, i), "id", ""));
        }
    } else {
        snapshot_table(cli, list);
    }
    return CLI_EXIT_OK;
}

/* Method and body for the snapshot that the second operand names; the answer is printed. */
static int with_snapshot(struct cli *cli, const char *method, const json_t *body)
{
    cleanup_json json_t *answer = NULL;
    cleanup_free char *target = NULL;
    char id[ID_SIZE];
    struct err e = {0};
    int r = first_sandbox(cli, id, &e);

    r = r < 0 ? r : snapshot_target(cli, id, cli->args->operands[1], &target, &e);
    r = r < 0 ? r : cli_call(cli, method, target, body, &answer, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
    } else if (str_eq(method, "GET")) {
        sandbox_print_object(cli, answer);
    } else {
        printf("%s\n", json_get_string(answer, "id", ""));
    }
    return CLI_EXIT_OK;
}

int verb_snapshot_info(struct cli *cli)
{
    return with_snapshot(cli, "GET", /* body */ NULL);
}

int verb_snapshot_keep(struct cli *cli)
{
    cleanup_json json_t *body = json_pack("{s:b}", "keep", !cli->args->off);

    return with_snapshot(cli, "PATCH", body);
}

int verb_snapshot_name(struct cli *cli)
{
    cleanup_json json_t *body = json_object();
    json_t *name = NULL;
    struct err e = {0};

    if (cli_json_text(cli->args->operands[2], "a name", &name, &e) < 0) {
        return failed(cli, &e);
    }
    json_object_set_new(body, "name", name);
    return with_snapshot(cli, "PATCH", body);
}

int verb_snapshot_rm(struct cli *cli)
{
    cleanup_json json_t *gone = json_array();
    char id[ID_SIZE];
    struct err e = {0};
    int code = CLI_EXIT_OK;

    if (first_sandbox(cli, id, &e) < 0) {
        return failed(cli, &e);
    }
    for (size_t i = 1; i < cli->args->n_operands; i++) {
        cleanup_free char *target = NULL;
        struct err mine = {0};
        int r = snapshot_target(cli, id, cli->args->operands[i], &target, &mine);

        r = r < 0 ? r : cli_call(cli, "DELETE", target, /* body */ NULL, /* ret */ NULL, &mine);
        if (r < 0) {
            code = failed(cli, &mine);
            continue;
        }
        json_array_append_new(gone, json_pack("{s:s}", "id", strrchr(target, '/') + 1));
        if (!cli->args->json) {
            printf("%s\n", strrchr(target, '/') + 1);
        }
    }
    if (cli->args->json) {
        cli_print_json(cli, gone);
    }
    return code;
}

/* --- rollback and fork --- */

int verb_rollback(struct cli *cli)
{
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *answer = NULL;
    struct progress *progress;
    char snapshot[ID_SIZE];
    char id[ID_SIZE];
    struct err e = {0};
    int r = first_sandbox(cli, id, &e);

    r = r < 0 ? r : cli_snapshot_id(cli, id, cli->args->operands[1], snapshot, &e);
    if (r == 0) {
        body = json_pack("{s:s}", "snapshot", snapshot);
        progress = progress_start(&cli->ui, "going back to %s", snapshot);
        r = sandbox_post(cli, id, "rollback", body, &answer, &e);
        progress_end(progress);
    }
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
        return CLI_EXIT_OK;
    }
    printf("%s\n", id);
    ui_note(&cli->ui, "%s; the present of before is snapshot %s",
            json_get_bool(answer, "cold", false) ? "started fresh from the disk of then"
                                                 : "the processes of then run on",
            json_get_string(answer, "before", "?"));
    return CLI_EXIT_OK;
}

static int fork_body(struct cli *cli, const char *id, json_t **ret, struct err *e)
{
    const struct args *a = cli->args;
    cleanup_json json_t *body = json_object();
    const struct {
        const char *name;
        const struct text_list *list;
    } maps[] = {{"env", &a->env}, {"metadata", &a->metadata}};
    char snapshot[ID_SIZE];
    int r;

    if (a->count) {
        json_object_set_new(body, "count", json_integer((json_int_t)a->count));
    }
    if (a->timeout_given) {
        json_object_set_new(body, "timeout_s", json_integer((json_int_t)a->timeout_s));
    }
    for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
        json_t *map = NULL;

        if (maps[i].list->n == 0) {
            continue;
        }
        r = cli_pairs(maps[i].list, maps[i].name, &map, e);
        if (r < 0) {
            return r;
        }
        json_object_set_new(body, maps[i].name, map);
    }
    if (a->snapshot) {
        r = cli_snapshot_id(cli, id, a->snapshot, snapshot, e);
        if (r < 0) {
            return r;
        }
        json_object_set_new(body, "snapshot", json_string(snapshot));
    }
    *ret = TAKE_PTR(body);
    return 0;
}

int verb_fork(struct cli *cli)
{
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *answer = NULL;
    cleanup_free char *target = NULL;
    struct progress *progress;
    json_t *list;
    char id[ID_SIZE];
    struct err e = {0};
    int r = first_sandbox(cli, id, &e);

    r = r < 0 ? r : fork_body(cli, id, &body, &e);
    if (r == 0) {
        target = xasprintf("/v1/sandboxes/%s/fork", id);
        progress = progress_start(&cli->ui, "forking %s", id);
        r = sandbox_post_once(cli, target, body, /* watch */ NULL, &answer, &e);
        progress_end(progress);
    }
    if (r < 0) {
        return failed(cli, &e);
    }
    list = json_object_get(answer, "sandboxes");
    if (cli->args->json) {
        cli_print_json(cli, list);
        return CLI_EXIT_OK;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        printf("%s\n", json_get_string(json_array_get(list, i), "id", ""));
    }
    return CLI_EXIT_OK;
}

/* --- history and trace --- */

static void history_table(struct cli *cli, json_t *answer)
{
    static const struct table_column columns[] = {
        {.title = "WHEN"},
        {.title = "EVENT"},
        {.title = "WHAT", .cut = true},
    };
    const json_t *list = json_object_get(answer, "history");
    struct table t;

    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *entry = json_array_get(list, i);

        sandbox_cell_when(&t, json_get_int(entry, "at_ms", 0));
        table_cell(&t, json_get_string(entry, "event", NULL));
        table_cell(&t, json_get_string(entry, "text", NULL));
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
}

static void trace_rows(struct table *t, json_t *operation)
{
    const json_t *steps = json_object_get(operation, "steps");

    sandbox_cell_when(t, json_get_int(operation, "at_ms", 0));
    table_cell(t, json_get_string(operation, "operation", NULL));
    table_cell(t, json_get_bool(operation, "ok", false) ? "ok" : "failed");
    table_cellf(t, "%.1f", (double)json_get_int(operation, "took_us", 0) / 1000.0);
    for (size_t i = 0; i < json_array_size(steps); i++) {
        json_t *step = json_array_get(steps, i);

        table_cell(t, "");
        table_cellf(t, "  %s", json_get_string(step, "step", "?"));
        table_cell(t, "");
        table_cellf(t, "%.1f", (double)json_get_int(step, "took_us", 0) / 1000.0);
    }
}

static void trace_table(struct cli *cli, json_t *answer)
{
    static const struct table_column columns[] = {
        {.title = "WHEN"},
        {.title = "OPERATION"},
        {.title = ""},
        {.title = "MS", .right = true},
    };
    const json_t *list = json_object_get(answer, "operations");
    struct table t;

    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        trace_rows(&t, json_array_get(list, i));
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
}

static int show(struct cli *cli, const char *word, void (*print)(struct cli *cli, json_t *answer))
{
    cleanup_json json_t *answer = NULL;
    cleanup_free char *target = NULL;
    char id[ID_SIZE];
    struct err e = {0};
    int r = first_sandbox(cli, id, &e);

    if (r == 0) {
        target = xasprintf("/v1/sandboxes/%s/%s", id, word);
        r = cli_call(cli, "GET", target, /* body */ NULL, &answer, &e);
    }
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
    } else {
        print(cli, answer);
    }
    return CLI_EXIT_OK;
}

int verb_history(struct cli *cli)
{
    return show(cli, "history", history_table);
}

int verb_trace(struct cli *cli)
{
    return show(cli, "trace", trace_table);
}
