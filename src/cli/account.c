/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs about what belongs to an account rather than to a sandbox: templates and keys. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/table.h"
#include "cli/verbs.h"

static int failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_FAILED;
}

/* The array in an answer, whether it is one or has one. */
static json_t *answer_list(json_t *answer, const char *member)
{
    return json_is_array(answer) ? answer : json_object_get(answer, member);
}

int verb_template_ls(struct cli *cli)
{
    static const struct table_column columns[] = {{.title = "TEMPLATE"},
                                                  {.title = "SIZE", .right = true},
                                                  {.title = "USER"},
                                                  {.title = "DESCRIPTION", .cut = true}};
    cleanup_json json_t *answer = NULL;
    struct err e = {0};
    struct table t;
    json_t *list;
    int r;

    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_call(cli, "GET", "/v1/templates", /* body */ NULL, &answer, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
        return CLI_EXIT_OK;
    }
    list = answer_list(answer, "templates");
    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        const char *name = json_get_string(item, "name", json_get_string(item, "id", NULL));
        int64_t mib = json_get_int(item, "disk_mib", -1);
        int64_t bytes = json_get_int(item, "size_bytes", mib >= 0 ? mib << 20 : -1);
        char size[32] = "";

        if (cli->args->quiet) {
            printf("%s\n", name ? name : "");
            continue;
        }
        if (bytes >= 0) {
            ui_size((uint64_t)bytes, size, sizeof(size));
        }
        table_cell(&t, name);
        table_cell(&t, size);
        table_cell(&t, json_get_string(item, "default_user", NULL));
        table_cell(&t, json_get_string(item, "description", NULL));
    }
    if (!cli->args->quiet) {
        table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    }
    table_done(&t);
    return CLI_EXIT_OK;
}

int verb_key_create(struct cli *cli)
{
    const struct args *a = cli->args;
    const struct {
        const char *name;
        const char *value;
    } fields[] = {{"name", a->name}, {"project", a->project}, {"scope", a->scope}};
    cleanup_json json_t *body = json_object();
    cleanup_json json_t *key = NULL;
    struct err e = {0};
    int r;

    r = cli_connect(cli, &e);
    for (size_t i = 0; i < ARRAY_SIZE(fields) && r == 0; i++) {
        json_t *text = NULL;

        r = fields[i].value ? cli_json_text(fields[i].value, fields[i].name, &text, &e) : 0;
        if (text) {
            json_object_set_new(body, fields[i].name, text);
        }
    }
    r = r < 0 ? r : cli_call(cli, "POST", "/v1/keys", body, &key, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (a->json) {
        cli_print_json(cli, key);
        return CLI_EXIT_OK;
    }
    printf("%s\n", json_get_string(key, "key", ""));
    if (cli->ui.err_tty) {
        ui_note(&cli->ui, "this is the only time it is shown; use it as SPACE_API_KEY");
    }
    return CLI_EXIT_OK;
}

int verb_key_ls(struct cli *cli)
{
    static const struct table_column columns[] = {
        {.title = "ID"},      {.title = "KEY"},   {.title = "NAME", .cut = true},
        {.title = "PROJECT"}, {.title = "SCOPE"}, {.title = "AGE", .right = true}};
    cleanup_json json_t *answer = NULL;
    struct err e = {0};
    struct table t;
    json_t *list;
    int r;

    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_call(cli, "GET", "/v1/keys", /* body */ NULL, &answer, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
        return CLI_EXIT_OK;
    }
    list = answer_list(answer, "keys");
    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        int64_t made_ms = json_get_int(item, "created_at_ms", 0);
        int64_t now_ms = (int64_t)clock_wall_ms();
        char age[32] = "";

        if (cli->args->quiet) {
            printf("%s\n", json_get_string(item, "id", ""));
            continue;
        }
        if (made_ms > 0) {
            ui_age(made_ms < now_ms ? (uint64_t)(now_ms - made_ms) / 1000 : 0, age, sizeof(age));
        }
        table_cell(&t, json_get_string(item, "id", NULL));
        table_cellf(&t, "%s...", json_get_string(item, "prefix", ""));
        table_cell(&t, json_get_string(item, "name", NULL));
        table_cell(&t, json_get_string(item, "project", NULL));
        table_cell(&t, json_is_integer(json_object_get(item, "revoked_at_ms"))
                           ? "revoked"
                           : json_get_string(item, "scope", NULL));
        table_cell(&t, age);
    }
    if (!cli->args->quiet) {
        table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    }
    table_done(&t);
    return CLI_EXIT_OK;
}

int verb_key_rm(struct cli *cli)
{
    struct err e = {0};
    int code = CLI_EXIT_OK;

    if (cli_connect(cli, &e) < 0) {
        return failed(cli, &e);
    }
    for (size_t i = 0; i < cli->args->n_operands; i++) {
        const char *id = cli->args->operands[i];
        cleanup_free char *target = NULL;

        e = (struct err){0};
        if (!id_valid(ID_KEY, id)) {
            err_set(&e, -EINVAL, "invalid_id",
                    "'%s' is not the id of a key; 'space key ls' shows them", id);
            code = failed(cli, &e);
            continue;
        }
        target = xasprintf("/v1/keys/%s", id);
        if (cli_call(cli, "DELETE", target, /* body */ NULL, /* ret */ NULL, &e) < 0) {
            code = failed(cli, &e);
        } else if (!cli->args->json) {
            printf("%s\n", id);
        }
    }
    return code;
}
